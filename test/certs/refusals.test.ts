import { generateKeyPairSync } from 'node:crypto';
import { chmod, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { issueServingCertificate } from '../../src/certs/issue.ts';
import { ensureCertificates } from '../../src/certs/source.ts';
import { CertificateError, certificateErrorCodes } from '../../src/certs/x509.ts';
import { copyOf, days, devNames, emptyDirectory, read, snapshot, userAuthority, write } from './fixture.ts';

const now = new Date();
const names = devNames;
const ensure = (directory: string, time = now) => ensureCertificates({ directory, names }, time);

/** Linger's own directory, and what a user could bring: an authority of theirs and a pair that it issued. */
let own: string;
let user: Record<'ca.crt' | 'ca.key' | 'tls.crt' | 'tls.key', string>;
const keys: string[] = [];

beforeAll(async () => {
  own = await mkdtemp(join(tmpdir(), 'linger-certs-'));
  await ensure(own);
  const authority = userAuthority(await read(own, 'tls.key'), days(100, now));
  const pair = await issueServingCertificate(authority, ['user.example'], now);
  user = {
    'ca.crt': authority.certificate,
    'ca.key': authority.key,
    'tls.crt': pair.cert,
    'tls.key': pair.key,
  };
  keys.push(await read(own, 'ca.key'), await read(own, 'tls.key'), pair.key);
});

afterAll(() => rm(own, { recursive: true, force: true }));

describe('a directory of the user, without ca.key', () => {
  it.each([
    { title: 'with its authority', files: ['tls.crt', 'tls.key', 'ca.crt'] as const, bundle: true },
    { title: 'without', files: ['tls.crt', 'tls.key'] as const, bundle: false },
  ])('is served as it is and never touched: $title', async ({ files, bundle }) => {
    const directory = await emptyDirectory();
    await write(directory, Object.fromEntries(files.map((name) => [name, user[name]])));
    const before = await snapshot(directory);
    // Past two thirds of its life, and for other names: both are the user's business.
    const provided = await ensure(directory, days(80, now));
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
  /** On top of Linger's own directory instead of an empty one. */
  readonly over?: true;
  readonly files: () => Record<string, string>;
}

const pick = (...files: (keyof typeof user)[]) => Object.fromEntries(files.map((name) => [name, user[name]]));
const rsa = { modulusLength: 2048, publicKeyEncoding: { type: 'spki', format: 'pem' } } as const;
const encrypted = generateKeyPairSync('rsa', {
  ...rsa,
  privateKeyEncoding: { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'secret' },
}).privateKey;
const elliptic = generateKeyPairSync('ec', {
  namedCurve: 'P-256',
  privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  publicKeyEncoding: { type: 'spki', format: 'pem' },
}).privateKey;
keys.push(encrypted, elliptic);

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
    title: "the user's certificate over Linger's",
    code: 'ForeignCertificate',
    file: 'tls.crt',
    over: true,
    files: () => pick('tls.crt', 'tls.key'),
  },
  {
    title: "the user's authority over Linger's, without its key",
    code: 'ForeignCertificate',
    file: 'ca.crt',
    over: true,
    files: () => ({ 'ca.crt': userAuthority(user['tls.key'], days(9, now)).certificate }),
  },
  {
    title: "the user's authority, expired",
    code: 'Expired',
    file: 'ca.crt',
    at: 101,
    files: () => ({ ...user }),
  },
  {
    title: 'an encrypted ca.key',
    code: 'EncryptedKey',
    file: 'ca.key',
    over: true,
    files: () => ({ 'ca.key': encrypted }),
  },
  {
    title: 'a ca.key that is not RSA',
    code: 'UnsupportedKey',
    file: 'ca.key',
    over: true,
    files: () => ({ 'ca.key': elliptic }),
  },
];

describe('what Linger refuses, saying the file, and leaves as it was', () => {
  it.each(refusals)('$title: $code, $file', async ({ code, file, at = 0, over, files }) => {
    const directory = over ? await copyOf(own) : await emptyDirectory();
    await write(directory, files());
    const before = await snapshot(directory);
    const error = await refusalOf(ensure(directory, days(at, now)));
    expect(error.code).toBe(code);
    expect(error.message).toContain(join(directory, file));
    expect(error.message).toMatch(/(: put|; put|; to use it)/);
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

  // procfs takes no new directories, not even from root.
  it.skipIf(process.platform !== 'linux')('a file system that takes no files: Unwritable', async () => {
    const error = await refusalOf(ensure('/proc/self/linger-certs'));
    expect([error.code, error.message]).toEqual([
      'Unwritable',
      expect.stringContaining('/proc/self/linger-certs: ENOENT'),
    ]);
  });
});

describe("an authority of the user's, with its key", () => {
  it('issues, is never replaced, and is not asked for more than it can give', async () => {
    const directory = await emptyDirectory();
    await write(directory, pick('ca.crt', 'ca.key'));
    // Ten days before its end, far past two thirds of its life.
    const late = days(90, now);
    const issued = await ensure(directory, late);
    expect([issued.origin, issued.because]).toEqual(['generated', 'Absent']);
    expect(await read(directory, 'ca.crt')).toBe(user['ca.crt']);
    expect(await read(directory, 'ca.key')).toBe(user['ca.key']);
    // An hour before its end, a renewal would bring nothing.
    expect((await ensure(directory, new Date(days(100, now).getTime() - 3_600_000))).origin).toBe('reused');
  });
});

describe('certs/README.md', () => {
  it.each(certificateErrorCodes)('explains %s', async (code) => {
    expect(await read('certs', 'README.md')).toMatch(new RegExp(`^\\| \`${code}\` \\| .{20,} \\|$`, 'm'));
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
