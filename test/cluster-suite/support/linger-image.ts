import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chownSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { containerRuntime } from '../../../bench/containerfile.ts';
import { BUILT, ROOT } from '../../cli/built.ts';
import { type ImageFile, imageArchive } from '../../testbed/image.ts';
import { exclusively } from '../../testbed/lock.ts';

/** The image that deploy/kustomization.yaml names by default. */
export const LINGER_IMAGE = 'registry.example/linger:0.1.0';

/**
 * The image of deploy/Containerfile, assembled without a container engine: Node with its shared libraries and the bundle,
 * started as the Containerfile says, with the compile cache that its commands fill. Or what LINGER_IMAGE_ARCHIVE names: an
 * archive that has been built elsewhere.
 */
export async function lingerImageArchive(): Promise<Buffer> {
  const built = process.env.LINGER_IMAGE_ARCHIVE;
  return built === undefined || built === '' ? assembledImageArchive() : readFileSync(built);
}

export async function assembledImageArchive(): Promise<Buffer> {
  const program = [
    ...nodeFiles(),
    fileOf(join(ROOT, 'package.json'), '/app/package.json'),
    ...treeOf(BUILT, '/app/dist'),
  ];
  const files = [...program, ...treeOf(await compileCache(program), CACHE)];
  const entrypoint = [...command, 'serve'];
  return imageArchive([{ reference: LINGER_IMAGE, files, entrypoint, environment, user }]);
}

const { nodeFlags, program, environment, user, warmUps, files: read } = containerRuntime(ROOT);
const command = ['/bin/node', ...nodeFlags, `/app/${program}`];
const CACHE = environment.NODE_COMPILE_CACHE ?? '';

/** @returns the folder of Node's compile cache for this program; the last one is kept */
async function compileCache(files: readonly ImageFile[]): Promise<string> {
  const folder = join(dirname(BUILT), 'compiled');
  const [cache, note] = [join(folder, 'cache'), join(folder, 'made-from')];
  const made = createHash('sha256').update(JSON.stringify([command, user, environment, warmUps]));
  for (const file of files) if ('content' in file) made.update(file.path).update(file.content);
  const digest = made.digest('hex');
  await exclusively(join(dirname(BUILT), 'compiled-lock'), console.log, async () => {
    if (existsSync(note) && readFileSync(note, 'utf8') === digest) return;
    rmSync(folder, { recursive: true, force: true });
    // Compiled code is keyed by the path of its file.
    const root = join(folder, 'root');
    for (const file of [...files, ...filesRead()]) {
      if (!('content' in file)) continue;
      mkdirSync(dirname(join(root, file.path)), { recursive: true });
      writeFileSync(join(root, file.path), file.content, { mode: file.mode });
    }
    const [uid = 0, gid = 0] = user.split(':').map(Number);
    for (const each of [CACHE, '/tmp']) {
      mkdirSync(join(root, each), { recursive: true });
      chownSync(join(root, each), uid, gid);
    }
    for (const words of warmUps) await startAndEnd(root, words);
    renameSync(join(root, CACHE), cache);
    rmSync(root, { recursive: true });
    writeFileSync(note, digest);
  });
  return cache;
}

const filesRead = (): readonly ImageFile[] =>
  Object.entries(read).map(([path, text]) => ({ path, mode: 0o644, content: Buffer.from(text) }));

async function startAndEnd(root: string, words: readonly string[]): Promise<void> {
  const env = { PATH: process.env.PATH, ...environment };
  const chroot = [`--userspec=${user}`, root, ...command, ...words];
  const child = spawn('chroot', chroot, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  // It has got as far as possible without a cluster, and begun the next attempt.
  for await (const line of child.stdout) if (String(line).includes('"Unreachable"')) break;
  await sleep(1_500);
  child.kill('SIGTERM');
  const [code] = await ended;
  if (code !== 0) throw new Error(`${words.join(' ')}: ended with ${code}`);
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
