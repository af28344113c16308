import { mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * Swaps the files of a mounted ConfigMap or Secret as the kubelet does: a new folder of them, then the link to it.
 * Source: k8s.io/kubernetes pkg/volume/util/atomic_writer.go.
 * @param revision the folder's name, which begins with `..`
 * @param files name → text; those that were not there before get their link
 */
export async function swapMounted(
  directory: string,
  revision: string,
  files: Readonly<Record<string, string>>,
): Promise<void> {
  await mkdir(join(directory, revision));
  for (const [name, text] of Object.entries(files)) await writeFile(join(directory, revision, name), text);
  await symlink(revision, join(directory, '..data_tmp'));
  await rename(join(directory, '..data_tmp'), join(directory, '..data'));
  for (const name of Object.keys(files)) {
    await symlink(join('..data', name), join(directory, name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
  }
}
