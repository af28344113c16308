import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { ensureCertificates, type ServingCertificate } from '../../src/certs/folder.ts';
import { issueServingCertificate } from '../../src/certs/issue.ts';
import { FileSource } from '../../src/certs/source.ts';
import { CertificateError } from '../../src/certs/x509.ts';
import { createLogger, createMetrics } from '../../src/telemetry/index.ts';

import { swapMounted } from '../cluster/mounted.ts';
import {
  connectTo,
  copyOf,
  days,
  devNames,
  emptyDirectory,
  handshake,
  nameless,
  read,
  serveHttps,
  userAuthority,
  write,
} from './fixture.ts';

// A new pair is two RSA keys, which take seconds where the machine is busy with other things.
vi.setConfig({ testTimeout: 90_000 });
const PATIENT = { timeout: 60_000 };

const now = new Date();
const names = devNames;
/** Pairs of a user's authority, and one of Linger's own. */
let first: Record<string, string>;
let second: Record<string, string>;
let own: string;

beforeAll(async () => {
  own = await mkdtemp(join(tmpdir(), 'linger-certs-'));
  await ensureCertificates({ directory: own, names }, now);
  const authority = userAuthority(await read(own, 'tls.key'), days(30, now));
  const provided = async () => {
    const { cert, key } = await issueServingCertificate(authority, names, now);
    return { 'tls.crt': cert, 'tls.key': key, 'ca.crt': authority.certificate };
  };
  [first, second] = [await provided(), await provided()];
});

afterAll(() => rm(own, { recursive: true, force: true }));

const serial = (pem: string): string => new X509Certificate(pem).serialNumber;

it('does not open without a certificate', async () => {
  const directory = await emptyDirectory();
  await write(directory, { 'tls.crt': first['tls.crt']! });
  await expect(FileSource.open({ directory, names }, now)).rejects.toThrow(CertificateError);
});

it('serves with a certificate that has no names but the alternative ones', async () => {
  const directory = await emptyDirectory();
  const pair = nameless(['linger.linger.svc'], days(30, now));
  expect(new X509Certificate(pair['tls.crt']).issuer).toBeUndefined();
  await write(directory, pair);
  const source = await FileSource.open({ directory, names }, now);
  expect(source.get().notAfter).toEqual(new X509Certificate(pair['tls.crt']).validToDate);
});

it('is ready until the certificate in force has expired', async () => {
  const directory = await emptyDirectory();
  await write(directory, first);
  const source = await FileSource.open({ directory, names }, now);
  const { notAfter } = source.get();
  expect(source.unready(new Date(notAfter.getTime() - 1))).toBeUndefined();
  expect(source.unready(notAfter)).toMatch('expired');
});

/** Follows with a short interval and a clock that the test sets. */
async function following(directory: string, from = now) {
  const source = await FileSource.open({ directory, names }, from);
  const started = source.get();
  const abort = new AbortController();
  const clock = { now: from };
  const changes: ServingCertificate[] = [];
  const failures: string[] = [];
  const listeners: ((certificate: ServingCertificate) => void)[] = [];
  const write = (line: string) => {
    const { level, problem } = JSON.parse(line) as { level: string; problem: string };
    if (level === 'error') failures.push(problem);
  };
  const use = (certificate: ServingCertificate) => {
    changes.push(certificate);
    for (const listen of listeners) listen(certificate);
  };
  const ended = source.follow(use, {
    signal: abort.signal,
    logger: createLogger('info', { write }),
    metrics: createMetrics('test'),
    clock: () => clock.now,
    everyMs: 5,
  });
  onTestFinished(async () => {
    abort.abort();
    await ended;
  });
  return { source, started, abort, ended, clock, changes, failures, listeners };
}

describe('following', () => {
  it('changes the certificate of a running server: open connections live on, new ones see the new one', async () => {
    const directory = await emptyDirectory();
    await write(directory, first);
    const { source, started, changes, failures, listeners } = await following(directory);
    const { server, port } = await serveHttps(started);
    listeners.push((certificate) => server.setSecureContext(certificate));
    const open = await connectTo(port, 'localhost', started.caBundle);
    expect(await get(open)).toContain('200 OK');

    // The files change one by one: until they fit, the previous pair serves.
    await write(directory, { 'tls.key': second['tls.key']! });
    await vi.waitFor(() => expect(failures).toHaveLength(1), PATIENT);
    expect(failures[0]).toContain(join(directory, 'tls.key'));
    expect(await handshake(port, 'localhost', started.caBundle)).toBe('ok');
    await write(directory, { 'tls.crt': second['tls.crt']! });
    await vi.waitFor(() => expect(changes).toHaveLength(1), PATIENT);
    const fresh = await connectTo(port, 'localhost', started.caBundle);
    expect(fresh.getPeerX509Certificate()?.serialNumber).toBe(serial(second['tls.crt']!));
    fresh.destroy();
    expect(await get(open)).toContain('200 OK');
    open.destroy();
    // Another replica has seen the change, or will in a minute: each reads what the other signs.
    expect(source.commonKeys).toEqual([second['tls.key'], started.key]);
  });

  it('a mounted Secret, whose files are links through a directory link that is swapped', async () => {
    const directory = await emptyDirectory();
    await swapMounted(directory, '..1', first);
    const { started, changes } = await following(directory);
    expect(started.origin).toBe('provided');
    await swapMounted(directory, '..2', second);
    await vi.waitFor(() => expect(changes.at(-1)?.cert).toBe(second['tls.crt']), PATIENT);
  });

  it('makes a new pair when its own expires, or is deleted: how to renew by hand', async () => {
    const directory = await copyOf(own);
    const { started, clock, changes, failures } = await following(directory);
    clock.now = started.notAfter;
    await vi.waitFor(() => expect(changes).toHaveLength(1), PATIENT);
    for (const name of ['ca.crt', 'tls.crt', 'tls.key']) await unlink(join(directory, name));
    // Three files go one after the other: a look between two of them makes a pair, too, or misses one.
    await vi.waitFor(async () => {
      expect(changes.length).toBeGreaterThan(1);
      expect(await readFile(join(directory, 'tls.crt'), 'utf8')).toBe(changes.at(-1)?.cert);
    }, PATIENT);
    expect(changes.at(-1)?.origin).toBe('generated');
    expect(failures.filter((each) => !each.includes(' is missing'))).toEqual([]);
  });

  it('reports once what the receiver of a change throws, and hands it over again', async () => {
    const directory = await emptyDirectory();
    await write(directory, first);
    const { source, started, changes, failures, listeners } = await following(directory);
    listeners.push(() => {
      throw new Error('no thanks');
    });
    await write(directory, second);
    await vi.waitFor(() => expect(changes.length).toBeGreaterThan(2), PATIENT);
    expect(failures.at(-1)).toBe('no thanks');
    expect(new Set(failures).size).toBe(failures.length);
    listeners.pop();
    await vi.waitFor(() => expect(source.get()).not.toBe(started), PATIENT);
    expect(source.get().cert).toBe(changes.at(-1)?.cert);
  });

  it('ends when its signal aborts', async () => {
    const { abort, ended, clock, started, changes } = await following(await copyOf(own));
    abort.abort();
    await ended;
    clock.now = started.notAfter;
    expect(changes).toEqual([]);
  });
});

/** One request on a connection that stays open; the head of the response. */
async function get(socket: TLSSocket): Promise<string> {
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  return chunk.toString('latin1');
}
