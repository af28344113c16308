import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, unlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { ensureCertificates, FileSource, type ServingCertificate } from '../../src/certs/source.ts';
import { CertificateError } from '../../src/certs/x509.ts';
import { createLogger } from '../../src/telemetry/logs.ts';
import { createMetrics } from '../../src/telemetry/registry.ts';
import { swapMounted } from '../cluster/mounted.ts';
import {
  connectTo,
  copyOf,
  days,
  devNames,
  emptyDirectory,
  handshake,
  read,
  serveHttps,
  write,
} from './fixture.ts';

// A new pair is two RSA keys, which take seconds where the machine is busy with other things.
vi.setConfig({ testTimeout: 90_000 });
const PATIENT = { timeout: 60_000 };

const now = new Date();
const names = devNames;
let first: string;
let second: string;

beforeAll(async () => {
  [first, second] = (await Promise.all([1, 2].map(() => mkdtemp(join(tmpdir(), 'linger-certs-'))))) as [
    string,
    string,
  ];
  await ensureCertificates({ directory: first, names }, now);
  await ensureCertificates({ directory: second, names }, now);
});

afterAll(async () => {
  for (const directory of [first, second]) await rm(directory, { recursive: true, force: true });
});

const pairOf = async (directory: string): Promise<Record<string, string>> => ({
  'tls.crt': await read(directory, 'tls.crt'),
  'tls.key': await read(directory, 'tls.key'),
  'ca.crt': await read(directory, 'ca.crt'),
});
const serial = (pem: string): string => new X509Certificate(pem).serialNumber;

describe('a source over a directory', () => {
  it('does not open without a certificate', async () => {
    const directory = await emptyDirectory();
    await write(directory, { 'tls.crt': await read(first, 'tls.crt') });
    await expect(FileSource.open({ directory, names }, now)).rejects.toThrow(CertificateError);
  });

  it('leaves its own alone until two thirds of its life, then renews it', async () => {
    const source = await FileSource.open({ directory: await copyOf(first), names }, now);
    const started = source.get();
    expect(started.origin).toBe('reused');
    expect(await source.refresh(now)).toBeUndefined();
    expect(await source.refresh(new Date(started.renewAt.getTime() - 1))).toBeUndefined();
    expect(await source.refresh(started.renewAt)).toMatchObject({ because: 'Expiring' });
    expect(serial(source.get().cert)).not.toBe(serial(started.cert));
    expect(await source.refresh(started.renewAt)).toBeUndefined();
  });

  it('makes new ones when its files are deleted: how to renew by hand', async () => {
    const directory = await copyOf(first);
    const source = await FileSource.open({ directory, names }, now);
    for (const name of ['ca.crt', 'ca.key', 'tls.crt', 'tls.key']) await unlink(join(directory, name));
    expect(await source.refresh(now)).toMatchObject({ because: 'Absent' });
  });

  it('agrees with a process that uses the same directory under other names', async () => {
    const directory = await copyOf(first);
    const source = await FileSource.open({ directory, names }, now);
    const theirs = await ensureCertificates({ directory, names: ['a.example'] }, now);
    expect(await source.refresh(now)).toMatchObject({ cert: theirs.cert });
    expect(new X509Certificate(theirs.cert).subjectAltName).toMatch(/^DNS:localhost,.*DNS:a.example$/);
  });

  it('keeps the last good certificate while the user changes the files one by one', async () => {
    const directory = await emptyDirectory();
    await write(directory, await pairOf(first));
    const source = await FileSource.open({ directory, names }, now);
    const started = source.get();
    const next = await pairOf(second);
    await write(directory, { 'tls.crt': next['tls.crt']! });
    await expect(source.refresh(now)).rejects.toMatchObject({ code: 'Mismatched' });
    expect(source.get()).toBe(started);
    expect(source.unready(now)).toBeUndefined();
    await write(directory, { 'tls.key': next['tls.key']!, 'ca.crt': next['ca.crt']! });
    expect(await source.refresh(now)).toBe(source.get());
    expect(source.get().cert).toBe(next['tls.crt']);
    // Another replica has seen the change, or will in a minute: each reads what the other signs.
    expect(source.commonKeys).toEqual([next['tls.key'], started.key]);
  });

  it('goes back to the last good files without a change', async () => {
    const directory = await emptyDirectory();
    await write(directory, await pairOf(first));
    const source = await FileSource.open({ directory, names }, now);
    await unlink(join(directory, 'tls.key'));
    await expect(source.refresh(now)).rejects.toMatchObject({ code: 'Incomplete' });
    await write(directory, await pairOf(first));
    expect(await source.refresh(now)).toBeUndefined();
  });

  it('is healthy until the certificate in force has expired', async () => {
    const directory = await emptyDirectory();
    await write(directory, await pairOf(first));
    const source = await FileSource.open({ directory, names }, now);
    const { notAfter } = source.get();
    expect(source.unready(new Date(notAfter.getTime() - 1))).toBeUndefined();
    expect(source.unready(notAfter)).toMatch('expired');
    await expect(source.refresh(notAfter)).rejects.toMatchObject({ code: 'Expired' });
  });

  it('follows a mounted Secret, whose files are links through a directory link that is swapped', async () => {
    const directory = await emptyDirectory();
    await swapMounted(directory, '..1', await pairOf(first));
    const source = await FileSource.open({ directory, names }, now);
    expect(source.get().origin).toBe('provided');
    await swapMounted(directory, '..2', await pairOf(second));
    expect(await source.refresh(now)).toBe(source.get());
    expect(source.get().cert).toBe(await read(second, 'tls.crt'));
  });
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
    // Due for renewal by the real clock, which TLS clients go by; not yet by the one that the watch starts with.
    const directory = await emptyDirectory();
    await ensureCertificates({ directory, names }, days(-61, now));
    const { started, clock, changes, failures, listeners } = await following(directory, days(-30, now));
    const { server, port } = await serveHttps(started);
    listeners.push((certificate) => server.setSecureContext(certificate));
    const open = await connectTo(port, 'localhost', started.caBundle);
    expect(open.getPeerX509Certificate()?.serialNumber).toBe(serial(started.cert));
    expect(await get(open)).toContain('200 OK');

    clock.now = now;
    await vi.waitFor(() => expect(changes).toHaveLength(1), PATIENT);
    expect(await get(open)).toContain('200 OK');
    const fresh = await connectTo(port, 'localhost', started.caBundle);
    expect(serial(changes[0]!.cert)).not.toBe(serial(started.cert));
    expect(fresh.getPeerX509Certificate()?.serialNumber).toBe(serial(changes[0]!.cert));
    fresh.destroy();
    expect(await get(open)).toContain('200 OK');
    open.destroy();
    expect(failures).toEqual([]);
  });

  it('reports a failure once, keeps serving, and recovers', async () => {
    const directory = await emptyDirectory();
    await write(directory, await pairOf(first));
    const { started, changes, failures, listeners } = await following(directory);
    const { server, port } = await serveHttps(started);
    listeners.push((certificate) => server.setSecureContext(certificate));
    const next = await pairOf(second);

    await write(directory, { 'tls.key': next['tls.key']! });
    await vi.waitFor(() => expect(failures).toHaveLength(1), PATIENT);
    expect(failures[0]).toContain(join(directory, 'tls.key'));
    expect(await handshake(port, 'localhost', started.caBundle)).toBe('ok');

    await write(directory, next);
    await vi.waitFor(() => expect(changes).toHaveLength(1), PATIENT);
    expect(await handshake(port, 'localhost', next['ca.crt']!)).toBe('ok');
    expect(new Set(failures).size).toBe(failures.length);
  });

  it('reports once what the receiver of a change throws, and hands it over again', async () => {
    const { source, clock, started, changes, failures, listeners } = await following(await copyOf(first));
    listeners.push(() => {
      throw new Error('no thanks');
    });
    clock.now = started.renewAt;
    await vi.waitFor(() => expect(changes.length).toBeGreaterThan(2), PATIENT);
    expect(failures).toEqual(['no thanks']);
    listeners.pop();
    await vi.waitFor(() => expect(source.get()).not.toBe(started), PATIENT);
    expect(source.get().cert).toBe(changes.at(-1)?.cert);
  });

  it('ends when its signal aborts', async () => {
    const { abort, ended, clock, started, changes } = await following(await copyOf(first));
    abort.abort();
    await ended;
    clock.now = started.renewAt;
    expect(changes).toEqual([]);
  });
});

/** One request on a connection that stays open; the head of the response. */
async function get(socket: TLSSocket): Promise<string> {
  socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n');
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  return chunk.toString('latin1');
}
