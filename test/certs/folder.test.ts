import { generateKeyPairSync, X509Certificate } from 'node:crypto';
import { chmod, mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { ensureCertificates } from '../../src/certs/folder.ts';
import { issueServingCertificate } from '../../src/certs/issue.ts';
import { CERTIFICATE_ERRORS, CertificateError, type CertificateErrorCode } from '../../src/certs/x509.ts';
import {
  copyOf,
  days,
  devNames,
  emptyDirectory,
  handshake,
  read,
  serveHttps,
  snapshot,
  userAuthority,
  write,
} from './fixture.ts';

// A new pair is two RSA keys, which take seconds where the machine is busy with other things.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const now = new Date();
const names = devNames;
const FILES = ['ca.crt', 'tls.crt', 'tls.key'] as const;
const ensure = (directory: string, day = 0) => ensureCertificates({ directory, names }, days(day, now));
const namesIn = ({ cert }: { cert: string }) =>
  (new X509Certificate(cert).subjectAltName ?? '').replaceAll(/DNS:|IP Address:/g, '').split(', ');

/** Linger's own folder, and what a user could bring: an authority of theirs and a pair that it issued. */
let own: string;
let user: Record<'ca.crt' | 'ca.key' | 'tls.crt' | 'tls.key', string>;
const keys: string[] = [];

beforeAll(async () => {
  own = await mkdtemp(join(tmpdir(), 'linger-certs-'));
  await ensure(own);
  const authority = userAuthority(await read(own, 'tls.key'), days(100, now));
  const pair = await issueServingCertificate(authority, ['user.example'], now, 90 * 86_400_000);
  user = {
    'ca.crt': authority.certificate,
    'ca.key': authority.key,
    'tls.crt': pair.cert,
    'tls.key': pair.key,
  };
  keys.push(await read(own, 'tls.key'), pair.key);
});

afterAll(() => rm(own, { recursive: true, force: true }));

describe('a folder without certificates', () => {
  it('gets an authority and a pair that lasts a year, and no key of the authority', async () => {
    const directory = join(await emptyDirectory(), 'made/here');
    const made = await ensure(directory);
    expect(made.origin).toBe('generated');
    expect((await readdir(directory)).toSorted()).toEqual(FILES);
    expect([
      (await stat(directory)).mode & 0o777,
      (await stat(join(directory, 'tls.key'))).mode & 0o777,
    ]).toEqual([0o700, 0o600]);
    expect(made.caBundle).toBe(await read(directory, 'ca.crt'));
    expect(made.notAfter.getTime()).toBeGreaterThan(days(364, now).getTime());
    expect(namesIn(made).toSorted()).toEqual(['0:0:0:0:0:0:0:1', '127.0.0.1', 'localhost']);
    const { port } = await serveHttps(made);
    expect(await handshake(port, 'localhost', made.caBundle)).toBe('ok');
  });

  it('two processes at once end with one pair', async () => {
    const directory = await emptyDirectory();
    const [a, b] = await Promise.all([ensure(directory), ensure(directory)]);
    expect([a?.origin, b?.origin].toSorted()).toEqual(['generated', 'reused']);
    expect(a?.cert).toBe(b?.cert);
    expect((await readdir(directory)).toSorted()).toEqual(FILES);
  });

  it('is completed where it holds an authority, or a certificate, without a key', async () => {
    for (const written of [['ca.crt'], ['ca.crt', 'tls.crt']] as const) {
      const directory = await emptyDirectory();
      for (const name of written) await write(directory, { [name]: await read(own, name) });
      expect((await ensure(directory)).origin).toBe('generated');
      expect((await readdir(directory)).toSorted()).toEqual(FILES);
    }
  });

  it('is refused, and never served, where a process was killed while it wrote', async () => {
    const directory = await emptyDirectory();
    await write(directory, { 'tls.key': await read(own, 'tls.key') });
    expect((await refusalOf(ensure(directory))).code).toBe('Incomplete');
    await write(directory, { 'ca.crt': await read(own, 'ca.crt') });
    expect((await refusalOf(ensure(directory))).code).toBe('Incomplete');
  });
});

describe('a pair of Linger’s', () => {
  it('is served while it is valid, under whatever names', async () => {
    const directory = await copyOf(own);
    const before = await snapshot(directory);
    const served = await ensureCertificates({ directory, names: ['other.example'] }, days(364, now));
    expect(served.origin).toBe('reused');
    expect(await snapshot(directory)).toEqual(before);
  });

  it('is replaced once it has expired', async () => {
    const directory = await copyOf(own);
    const renewed = await ensure(directory, 366);
    expect(renewed.origin).toBe('generated');
    expect(renewed.notAfter.getTime()).toBeGreaterThan(days(700, now).getTime());
    expect((await ensure(directory, 366)).cert).toBe(renewed.cert);
  });

  it('gets the names that a person asks for, and is made anew for one after two thirds of its life', async () => {
    const directory = await copyOf(own);
    const request = (asked: readonly string[], day: number) =>
      ensureCertificates({ directory, names: asked, onRequest: true }, days(day, now));
    expect((await request(names, 240)).origin).toBe('reused');
    expect((await request(names, 245)).origin).toBe('generated');
    expect(namesIn(await request(['a.example'], 245))).toEqual(['a.example']);
  });
});

describe('a pair of the user’s', () => {
  it.each([
    { title: 'with its authority', files: ['tls.crt', 'tls.key', 'ca.crt'] as const, bundle: true },
    { title: 'without', files: ['tls.crt', 'tls.key'] as const, bundle: false },
    {
      title: 'with the key of its authority',
      files: ['tls.crt', 'tls.key', 'ca.crt', 'ca.key'] as const,
      bundle: true,
    },
  ])('is served as it is and never touched: $title', async ({ files, bundle }) => {
    const directory = await emptyDirectory();
    await write(directory, Object.fromEntries(files.map((name) => [name, user[name]])));
    const before = await snapshot(directory);
    // Past two thirds of its life, and for other names: both are the user's business.
    const provided = await ensure(directory, 80);
    expect(provided.origin).toBe('provided');
    expect(provided.key).toBe(user['tls.key']);
    expect(provided.caBundle.trim()).toBe(bundle ? user['ca.crt'].replaceAll('\r', '').trim() : '');
    expect(await snapshot(directory)).toEqual(before);
  });

  it('never prints a private key that stands in ca.crt', async () => {
    const directory = await emptyDirectory();
    await write(directory, { 'tls.crt': user['tls.crt'], 'tls.key': user['tls.key'] });
    await write(directory, { 'ca.crt': user['ca.key'] + user['ca.crt'] });
    const { caBundle } = await ensure(directory);
    expect(caBundle).toContain('BEGIN CERTIFICATE');
    expect(caBundle).not.toContain('PRIVATE KEY');
  });
});

interface Refusal {
  readonly title: string;
  readonly code: string;
  readonly file: string;
  readonly at?: number;
  /** On top of Linger's own folder instead of an empty one. */
  readonly over?: true;
  readonly files: () => Record<string, string>;
}

const pick = (...files: (keyof typeof user)[]) => Object.fromEntries(files.map((name) => [name, user[name]]));
const encrypted = generateKeyPairSync('rsa', {
  modulusLength: 2048,
  publicKeyEncoding: { type: 'spki', format: 'pem' },
  privateKeyEncoding: { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' },
}).privateKey;
keys.push(encrypted);

const refusals: readonly Refusal[] = [
  { title: 'expired', code: 'Expired', file: 'tls.crt', at: 101, files: () => pick('tls.crt', 'tls.key') },
  {
    title: "another pair's key",
    code: 'Mismatched',
    file: 'tls.key',
    files: () => ({ ...pick('tls.crt'), 'tls.key': user['ca.key'] }),
  },
  {
    title: 'a chain in the wrong order',
    code: 'Mismatched',
    file: 'tls.key',
    files: () => ({ ...pick('tls.key'), 'tls.crt': user['ca.crt'] + user['tls.crt'] }),
  },
  { title: 'no key', code: 'Incomplete', file: 'tls.key', files: () => pick('tls.crt', 'ca.crt') },
  { title: 'no certificate', code: 'Incomplete', file: 'tls.crt', files: () => pick('tls.key') },
  { title: 'an authority only', code: 'Incomplete', file: 'tls.crt', files: () => pick('ca.crt') },
  {
    title: 'a certificate that is none',
    code: 'Corrupt',
    file: 'tls.crt',
    files: () => ({ ...pick('tls.key'), 'tls.crt': user['tls.crt'].replace('MII', 'AAA') }),
  },
  {
    title: 'a key that is none',
    code: 'Corrupt',
    file: 'tls.key',
    files: () => ({ ...pick('tls.crt'), 'tls.key': user['tls.key'].slice(0, 900) }),
  },
  {
    title: 'an encrypted key',
    code: 'EncryptedKey',
    file: 'tls.key',
    files: () => ({ ...pick('tls.crt'), 'tls.key': encrypted }),
  },
  {
    title: "the user's key over Linger's",
    code: 'Mismatched',
    file: 'tls.key',
    over: true,
    files: () => pick('tls.key'),
  },
  {
    title: "the user's key over Linger's, which has expired",
    code: 'Mismatched',
    file: 'tls.key',
    over: true,
    at: 400,
    files: () => pick('tls.key'),
  },
  {
    title: "the user's certificate over Linger's",
    code: 'Mismatched',
    file: 'tls.key',
    over: true,
    files: () => pick('tls.crt'),
  },
];

describe('what Linger refuses, saying the file, and leaves as it was', () => {
  it.each(refusals)('$title: $code, $file', async ({ code, file, at = 0, over, files }) => {
    const directory = over ? await copyOf(own) : await emptyDirectory();
    await write(directory, files());
    const before = await snapshot(directory);
    const error = await refusalOf(ensure(directory, at));
    expect(error.code).toBe(code);
    expect(error.message).toContain(join(directory, file));
    expect(error.message).toMatch(/; put/);
    expectNoKey(error);
    expect(await snapshot(directory)).toEqual(before);
  });

  it('a directory that cannot be made: Unreadable or Unwritable', async () => {
    const directory = await copyOf(own);
    const error = await refusalOf(ensure(join(directory, 'ca.crt', 'certs')));
    expect(error.code).toBe('Unreadable');
    expect(error.message).toContain('ENOTDIR');
  });

  it('a file that is a directory: Unreadable', async () => {
    const directory = await emptyDirectory();
    await mkdir(join(directory, 'tls.key'));
    const error = await refusalOf(ensure(directory));
    expect([error.code, error.message]).toEqual([
      'Unreadable',
      expect.stringContaining(`${join(directory, 'tls.key')}: EISDIR`),
    ]);
  });

  // Root writes where it likes.
  it.skipIf(process.getuid?.() === 0)('a directory without write permission: Unwritable', async () => {
    const directory = await emptyDirectory();
    await chmod(directory, 0o500);
    const error = await refusalOf(ensure(directory));
    expect([error.code, error.message]).toEqual([
      'Unwritable',
      expect.stringContaining(`${directory}: EACCES`),
    ]);
  });
});

describe('certs/README.md', () => {
  it.each(Object.keys(CERTIFICATE_ERRORS) as CertificateErrorCode[])('explains %s', async (code) => {
    expect(await read('certs', 'README.md')).toMatch(new RegExp(`^\\|\`${code}\`\\|.{20,}\\|$`, 'm'));
  });
});

async function refusalOf(ensured: Promise<unknown>): Promise<CertificateError> {
  const outcome = await ensured.catch((error: unknown) => error);
  if (outcome instanceof CertificateError) return outcome;
  throw new Error(`expected a CertificateError, got ${inspect(outcome, { depth: 0 })}`);
}

function expectNoKey(error: Error): void {
  const said = inspect(error, { depth: null, showHidden: true });
  expect(said).not.toContain('PRIVATE KEY');
  for (const key of keys) for (const line of key.split('\n').slice(1, -2)) expect(said).not.toContain(line);
}
