import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { containerRuntime } from '../../../bench/containerfile.ts';
import { BUILT, ROOT } from '../../cli/built.ts';
import { type ImageFile, imageArchive } from '../../testbed/image.ts';

/** The image that deploy/kustomization.yaml names as long as nobody has put in one of their own. */
export const LINGER_IMAGE = 'registry.example/linger:0.1.0';

/**
 * The image of deploy/Containerfile, assembled without a container engine: Node with its shared libraries and the
 * bundle, started as the Containerfile says. Its compile cache is empty.
 */
export function lingerImageArchive(): Buffer {
  const files = [
    ...nodeFiles(),
    fileOf(join(ROOT, 'package.json'), '/app/package.json'),
    ...treeOf(BUILT, '/app/dist'),
  ];
  const { nodeFlags, program, environment } = containerRuntime(ROOT);
  const entrypoint = ['/bin/node', ...nodeFlags, `/app/${program}`, 'serve'];
  const user = '65532:65532';
  return imageArchive([{ reference: LINGER_IMAGE, files, entrypoint, environment, user }]);
}

function nodeFiles(): ImageFile[] {
  const node = process.execPath;
  // `libm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x…)`, and the loader by its path alone.
  const libraries = execFileSync('ldd', [node], { encoding: 'utf8' }).matchAll(/(\/\S+) \(0x/g);
  return [fileOf(node, '/bin/node'), ...[...libraries].map(([, path = '']) => fileOf(path, path))];
}

function treeOf(directory: string, target: string): ImageFile[] {
  const entries = readdirSync(directory, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => entry.isFile() && !entry.name.endsWith('.map'))
    .map((entry) => join(entry.parentPath, entry.name))
    .map((path) => fileOf(path, join(target, relative(directory, path))));
}

function fileOf(path: string, target: string): ImageFile {
  return { path: target, mode: 0o755, content: readFileSync(path) };
}
