import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll } from 'vitest';
import { ensureCertificates } from '../../src/certs/source.ts';

/** A folder with a CA and a serving certificate for the loopback, made once for all tests of a file. */
export function sharedCertificates(): () => string {
  let directory = '';
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'linger-certs-'));
    await ensureCertificates({ directory, names: ['localhost', '127.0.0.1', '::1'] }, new Date());
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));
  return () => directory;
}
