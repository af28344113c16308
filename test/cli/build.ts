import { createHash } from 'node:crypto';
import { cp, glob, mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { buildProgram } from '../../deploy/build.ts';
import { exclusively } from '../testbed/lock.ts';
import { BUILT, METAFILE, ROOT } from './built.ts';

/**
 * Before any test: the program as it is shipped. Hundreds of processes of it are started, and from the sources each takes
 * two to five times as long to start. Not built again from the same sources: another suite may be running what stands there.
 */
export default async function setup(): Promise<void> {
  const folder = dirname(BUILT);
  await mkdir(folder, { recursive: true });
  await exclusively(join(folder, 'lock'), console.log, async () => {
    const [sources, built] = [await digestOfSources(), join(folder, 'built-from')];
    if ((await readFile(built, 'utf8').catch(() => '')) === sources) return;
    // It reads its version from the package.json beside its folder, as in the image.
    await cp(join(ROOT, 'package.json'), join(folder, 'package.json'));
    await writeFile(METAFILE, JSON.stringify(await buildProgram(BUILT)));
    await writeFile(built, sources);
  });
}

async function digestOfSources(): Promise<string> {
  const hash = createHash('sha256');
  const patterns = ['src/**/*.*', 'deploy/*.ts', 'test/cli/build.ts', 'package*.json'];
  const paths: string[] = [];
  for await (const path of glob(patterns, { cwd: ROOT })) paths.push(path);
  for (const path of paths.toSorted()) hash.update(`${path}\0`).update(await readFile(join(ROOT, path)));
  return hash.digest('hex');
}
