import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { promisify } from 'node:util';
import { asError, LingerError } from '../core/api/index.ts';

/** The files of the page, by path. */
export type Assets = ReadonlyMap<string, { readonly type: string; readonly bytes: Buffer }>;

const TYPES: Readonly<Record<string, string>> = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
};

/** Beside the bundle, as `npm run build` leaves it. */
const BUILT = join(import.meta.dirname, 'page');
/** In a checkout, the page is built from its sources. */
const BUILDER = join(import.meta.dirname, '..', '..', 'deploy', 'build-page.ts');

/** @throws LingerError `page-missing`, where the program was shipped without it */
export async function readPageAssets(): Promise<Assets> {
  if (existsSync(BUILT)) return readFrom(BUILT);
  if (!existsSync(BUILDER))
    throw new LingerError(
      'page-missing',
      'this build of Linger, like that of the image, has no page: use the npm package or a checkout',
    );
  const folder = await mkdtemp(join(tmpdir(), 'linger-page-'));
  try {
    await promisify(execFile)(process.execPath, [BUILDER, folder]);
    return await readFrom(folder);
  } catch (cause) {
    const message = `the page cannot be built (${asError(cause).message}): run npm ci`;
    throw new LingerError('page-missing', message, { cause });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

async function readFrom(folder: string): Promise<Assets> {
  const read = (await readdir(folder)).map(async (name) => {
    const type = TYPES[extname(name)] ?? 'application/octet-stream';
    return [`/${name}`, { type, bytes: await readFile(join(folder, name)) }] as const;
  });
  return new Map(await Promise.all(read));
}
