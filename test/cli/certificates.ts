import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { ensureCertificates } from '../../src/certs/index.ts';

const empty = () => mkdtemp(join(tmpdir(), 'linger-certs-'));

/** Two RSA keys: made once for all files of a worker. */
let made: Promise<ReadonlyMap<string, Buffer>> | undefined;

async function make(): Promise<ReadonlyMap<string, Buffer>> {
  const directory = await empty();
  await ensureCertificates({ directory, names: ['localhost', '127.0.0.1', '::1'] }, new Date());
  const files = new Map<string, Buffer>();
  for (const name of await readdir(directory)) files.set(name, await readFile(join(directory, name)));
  await rm(directory, { recursive: true });
  return files;
}

/** A folder with a CA and a serving certificate for the loopback, one for all tests of a file. */
export function sharedCertificates(): () => string {
  let directory = '';
  beforeAll(async () => {
    made ??= make();
    directory = await empty();
    for (const [name, bytes] of await made) await writeFile(join(directory, name), bytes, { mode: 0o600 });
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));
  return () => directory;
}
