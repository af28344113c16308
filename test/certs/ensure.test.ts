import { X509Certificate } from 'node:crypto';
import { cp, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { assess } from '../../src/certs/assess.ts';
import { readContents } from '../../src/certs/directory.ts';
import { ensureCertificates, type ServingCertificate } from '../../src/certs/source.ts';
import { parseNames } from '../../src/certs/x509.ts';
import {
  allFiles,
  copyOf,
  days,
  devNames,
  emptyDirectory,
  handshake,
  read,
  serveHttps,
  write,
} from './fixture.ts';

// Each pair is two RSA keys, which take seconds where the machine is busy with other things.
vi.setConfig({ testTimeout: 90_000, hookTimeout: 90_000 });

const now = new Date();
const names = devNames;
const count = (pem: string): number => pem.match(/BEGIN CERTIFICATE/g)?.length ?? 0;

/** Two independent directories made at `now`, and one whose authority is 250 days old: past two thirds of its life. */
let fresh: string;
let other: string;
let aged: string;
let agedBundle: string;
/** What `aged` becomes at `now`. */
let rotated: string;

beforeAll(async () => {
  const make = (): Promise<string> => mkdtemp(join(tmpdir(), 'linger-certs-'));
  [fresh, other, aged, rotated] = await Promise.all([make(), make(), make(), make()]);
  await ensureCertificates({ directory: fresh, names }, now);
  await ensureCertificates({ directory: other, names }, now);
  await ensureCertificates({ directory: aged, names }, days(-250, now));
  // Its serving certificate is younger, as in a server that has been running.
  await ensureCertificates({ directory: aged, names }, days(-20, now));
  agedBundle = await read(aged, 'ca.crt');
  await cp(aged, rotated, { recursive: true });
  await ensureCertificates({ directory: rotated, names }, now);
});

afterAll(async () => {
  for (const directory of [fresh, other, aged, rotated])
    await rm(directory, { recursive: true, force: true });
});

describe('a directory that does not exist', () => {
  it('is made, 0700, with key files 0600 and nothing left over', async () => {
    const directory = join(await emptyDirectory(), 'made', 'here');
    const made = await ensureCertificates({ directory, names }, now);
    expect(made).toMatchObject({ origin: 'generated', because: 'Absent' });
    expect((await readdir(directory)).sort()).toEqual([...allFiles]);
    expect((await stat(directory)).mode & 0o777).toBe(0o700);
    for (const name of allFiles) {
      const mode = (await stat(join(directory, name))).mode & 0o777;
      expect([name, name.endsWith('.key') ? mode : mode & 0o600]).toEqual([name, 0o600]);
    }
    expect(await read(directory, 'tls.crt')).toBe(made.cert);
    expect(await read(directory, 'ca.crt')).toBe(made.caBundle);
  });

  it('serves every name asked for to clients of its bundle', async () => {
    const made = await ensureCertificates({ directory: fresh, names }, now);
    const { port } = await serveHttps(made);
    for (const name of names)
      expect([name, await handshake(port, name, made.caBundle)]).toEqual([name, 'ok']);
    expect(await handshake(port, 'example.org', made.caBundle)).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
  });
});

interface Case {
  readonly title: string;
  readonly from?: () => string;
  readonly at?: number;
  readonly asked?: readonly string[];
  readonly exactly?: true;
  /** What is done to the files beforehand. `undefined` removes one. */
  readonly change?: (directory: string) => Promise<Partial<Record<string, string>>>;
  readonly because?: string;
  /** The authority is replaced as well. */
  readonly authority?: 'new';
}

const firstHalf = (text: string): string => text.slice(0, text.length / 2);
const half = (name: string) => async (directory: string) => ({
  [name]: firstHalf(await read(directory, name)),
});
const text = (name: string, value: string | undefined) => async () => ({ [name]: value });
const fromOther = (name: string) => async () => ({ [name]: await read(other, name) });

const renewals: readonly Case[] = [
  { title: 'fresh' },
  { title: 'the same names in another order and spelling', asked: ['0:0::1', '127.0.0.1', 'LOCALHOST'] },
  { title: 'just before two thirds of its life', at: 59 },
  { title: 'past two thirds of its life', at: 61, because: 'Expiring' },
  { title: 'expired', at: 100, because: 'Expiring' },
  {
    title: 'not yet valid: the clock was set back',
    at: -10,
    because: 'AuthorityNotYetValid',
    authority: 'new',
  },
  {
    title: 'authority past two thirds of its life',
    from: () => aged,
    because: 'AuthorityExpiring',
    authority: 'new',
  },
  { title: 'authority expired', at: 400, because: 'AuthorityExpiring', authority: 'new' },
  { title: 'a name more', asked: [...names, 'a.example'], because: 'NamesDiffer' },
  { title: 'a name less', asked: ['localhost'] },
  { title: 'a name less, and exactly those', asked: ['localhost'], exactly: true, because: 'NamesDiffer' },
  { title: 'another name', asked: ['a.example'], because: 'NamesDiffer' },
  { title: 'tls.crt missing', change: text('tls.crt', undefined), because: 'Absent' },
  { title: 'tls.key missing', change: text('tls.key', undefined), because: 'Absent' },
  { title: 'tls.crt empty', change: text('tls.crt', ''), because: 'Corrupt' },
  { title: 'tls.crt half written', change: half('tls.crt'), because: 'Corrupt' },
  { title: 'tls.key half written', change: half('tls.key'), because: 'Corrupt' },
  { title: 'tls.key no PEM', change: text('tls.key', 'hello'), because: 'Corrupt' },
  { title: "tls.key another pair's", change: fromOther('tls.key'), because: 'Mismatched' },
  {
    title: 'ca.crt missing',
    change: text('ca.crt', undefined),
    because: 'AuthorityCorrupt',
    authority: 'new',
  },
  { title: 'ca.crt half written', change: half('ca.crt'), because: 'AuthorityCorrupt', authority: 'new' },
  { title: 'ca.key empty', change: text('ca.key', ''), because: 'AuthorityCorrupt', authority: 'new' },
  { title: 'ca.key half written', change: half('ca.key'), because: 'AuthorityCorrupt', authority: 'new' },
  {
    title: "ca.key another's",
    change: fromOther('ca.key'),
    because: 'AuthorityMismatched',
    authority: 'new',
  },
  {
    title: 'another authority of ours, whole',
    change: async () => ({ 'ca.key': await read(other, 'ca.key'), 'ca.crt': await read(other, 'ca.crt') }),
    because: 'IssuerChanged',
  },
];

/** A copy of the case's directory with its change applied. */
async function arrange({ from, change }: Case): Promise<string> {
  const directory = await copyOf(from?.() ?? fresh);
  for (const [name, value] of Object.entries((await change?.(directory)) ?? {})) {
    if (value === undefined) await rm(join(directory, name));
    else await write(directory, { [name]: value });
  }
  return directory;
}

describe('what is due in a directory of Linger', () => {
  it.each(renewals)('$title: $because', async (renewal) => {
    const { at = 0, asked = names, exactly = false, because, authority } = renewal;
    const directory = await arrange(renewal);
    const wanted = { names: parseNames(asked), exactly };
    const verdict = assess(await readContents(directory), wanted, directory, days(at, now));
    const issue = { because, authority: authority === 'new' ? undefined : expect.any(Object) };
    expect(verdict).toMatchObject(because === undefined ? { origin: 'reused' } : { issue });
  });
});

/** One for each way through, as each costs a key or two. */
const carriedOut = [
  'Expiring',
  'NamesDiffer',
  'Mismatched',
  'IssuerChanged',
  'AuthorityCorrupt',
  'AuthorityExpiring',
];
const onePerReason = carriedOut.map((because) => renewals.find((renewal) => renewal.because === because)!);

describe('what is due is done, once', () => {
  it.each(onePerReason)('$because', async (renewal) => {
    const { at = 0, asked = names, because } = renewal;
    const directory = await arrange(renewal);
    const time = days(at, now);
    const ensured = await ensureCertificates({ directory, names: asked }, time);
    expect(ensured).toMatchObject({ origin: 'generated', because });
    expectSound(ensured, asked, time);
    const again = await ensureCertificates({ directory, names: asked }, time);
    expect([again.origin, again.cert, again.caBundle]).toEqual(['reused', ensured.cert, ensured.caBundle]);
  });
});

function expectSound(certificate: ServingCertificate, asked: readonly string[], time: Date): void {
  const leaf = new X509Certificate(certificate.cert);
  const authority = new X509Certificate(certificate.caBundle);
  expect(leaf.verify(authority.publicKey)).toBe(true);
  expect(leaf.validFromDate <= time && time < certificate.renewAt).toBe(true);
  expect(certificate.renewAt < certificate.notAfter).toBe(true);
  for (const name of asked) expect(leaf.checkHost(name) ?? leaf.checkIP(name)).toBeDefined();
}

describe('the names of a certificate that is there', () => {
  const made = ['a.example', '10.0.0.7'];
  const asked = ['localhost', '127.0.0.1'];
  const namesIn = ({ cert }: { cert: string }) =>
    (new X509Certificate(cert).subjectAltName ?? '').replaceAll(/DNS:|IP Address:/g, '').split(', ');

  it('stay in it when others are asked for, when it is renewed, and when its authority is replaced', async () => {
    const directory = await emptyDirectory();
    await ensureCertificates({ directory, names: made, exactly: true }, now);
    const ensure = (day: number) => ensureCertificates({ directory, names: asked }, days(day, now));
    for (const day of [0, 61, 250]) {
      const ensured = await ensure(day);
      expect([day, ensured.origin, namesIn(ensured).toSorted()]).toEqual([
        day,
        'generated',
        [...made, ...asked].toSorted(),
      ]);
      expect((await ensure(day)).origin).toBe('reused');
    }
  });

  it('are taken out by who asks for exactly the others', async () => {
    const directory = await emptyDirectory();
    await ensureCertificates({ directory, names: made }, now);
    expect(namesIn(await ensureCertificates({ directory, names: asked, exactly: true }, now))).toEqual(asked);
  });
});

describe('a new authority', () => {
  it('keeps the old one trusted, and is itself accepted by clients that know only the old one', async () => {
    const before = { cert: await read(aged, 'tls.crt'), key: await read(aged, 'tls.key') };
    const after = await ensureCertificates({ directory: rotated, names }, now);
    expect(count(after.caBundle)).toBe(2);
    const [old, renewed] = [await serveHttps(before), await serveHttps(after)];
    expect({
      'old certificate, old bundle': await handshake(old.port, 'localhost', agedBundle),
      'old certificate, new bundle': await handshake(old.port, 'localhost', after.caBundle),
      'new certificate, old bundle': await handshake(renewed.port, 'localhost', agedBundle),
      'new certificate, new bundle': await handshake(renewed.port, 'localhost', after.caBundle),
      'new certificate, new authority alone': await handshake(
        renewed.port,
        'localhost',
        new X509Certificate(after.caBundle).toString(),
      ),
    }).toEqual({
      'old certificate, old bundle': 'ok',
      'old certificate, new bundle': 'ok',
      'new certificate, old bundle': 'ok',
      'new certificate, new bundle': 'ok',
      'new certificate, new authority alone': 'ok',
    });
  });

  it('keeps its cross-signature when the serving certificate is renewed, and drops the old one once it has expired', async () => {
    const directory = await copyOf(rotated);
    // The old authority ends on day 115.
    const during = await ensureCertificates({ directory, names }, days(61, now));
    expect([during.because, count(during.cert), count(during.caBundle)]).toEqual(['Expiring', 2, 2]);
    const after = await ensureCertificates({ directory, names }, days(122, now));
    expect([after.because, count(after.cert), count(after.caBundle)]).toEqual(['Expiring', 1, 1]);
  });
});

/** The states that a crash can leave: the first few files of the order have been written. */
function crashes(...order: string[]): { done: number; written: string[] }[] {
  return order.slice(1).map((_, i) => ({ done: i + 1, written: order.slice(0, i + 1) }));
}

describe('a crash between two files is repaired', () => {
  it.each(crashes('ca.key', 'ca.crt', 'tls.key', 'tls.crt'))(
    'first certificates, $done of 4',
    async ({ written }) => {
      const directory = await emptyDirectory();
      for (const name of written) await write(directory, { [name]: await read(fresh, name) });
      const ensured = await ensureCertificates({ directory, names }, now);
      expect(ensured.origin).toBe('generated');
      expectSound(ensured, names, now);
    },
  );

  it.each(crashes('ca.crt', 'tls.key', 'tls.crt', 'ca.key'))(
    'new authority, $done of 4',
    async ({ written }) => {
      const directory = await copyOf(aged);
      for (const name of written) await write(directory, { [name]: await read(rotated, name) });
      const ensured = await ensureCertificates({ directory, names }, now);
      expect(ensured.origin).toBe('generated');
      expectSound(ensured, names, now);
      const { port } = await serveHttps(ensured);
      expect(await handshake(port, 'localhost', agedBundle)).toBe('ok');
    },
  );

  it('two processes at once end with one sound directory', async () => {
    const directory = await emptyDirectory();
    const results = await Promise.all([1, 2].map(() => ensureCertificates({ directory, names }, now)));
    for (const result of results) expectSound(result, names, now);
    const settled = await ensureCertificates({ directory, names }, now);
    expectSound(settled, names, now);
    expect(settled.cert).toBe(await read(directory, 'tls.crt'));
  });
});
