import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { promisify } from 'node:util';
import { asError, LingerError } from '../core/api/index.ts';

/** The files of the dashboard, by path. */
export type Assets = ReadonlyMap<string, { readonly type: string; readonly bytes: Buffer }>;

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** In a checkout, builds both from their sources. */
const BUILDER = join(import.meta.dirname, '..', '..', 'deploy', 'build-page.ts');

/** @throws LingerError `page-missing` if the program was shipped without it */
export function readDashboardAssets(): Promise<Assets> {
  return built('dashboard', async (folder) => {
    const read = (await readdir(folder)).map(async (name) => {
      const type = TYPES[extname(name)] ?? 'application/octet-stream';
      return [`/${name}`, { type, bytes: await readFile(join(folder, name)) }] as const;
    });
    return new Map(await Promise.all(read));
  });
}

/** The page for manifests, a single file. @throws LingerError `page-missing` if the program was shipped without it */
export function readPage(): Promise<Buffer> {
  return built('page', (folder) => readFile(join(folder, 'index.html')));
}

/** @param read reads what `npm run build` puts beside the bundle, in a folder of this name */
async function built<T>(name: 'page' | 'dashboard', read: (folder: string) => Promise<T>): Promise<T> {
  const beside = join(import.meta.dirname, name);
  if (existsSync(beside)) return read(beside);
  if (!existsSync(BUILDER))
    throw new LingerError(
      'page-missing',
      `this build of Linger has no ${name}: use the npm package or a checkout`,
    );
  const folder = await mkdtemp(join(tmpdir(), 'linger-page-'));
  try {
    await promisify(execFile)(process.execPath, [BUILDER, name, folder]);
    return await read(folder);
  } catch (cause) {
    const message = `the ${name} cannot be built (${asError(cause).message}): run npm ci`;
    throw new LingerError('page-missing', message, { cause });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
