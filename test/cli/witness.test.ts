import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { limitConnections } from '../../src/cli/sidecar-server.ts';
import { readCommand, witnessApp } from '../../src/cli/witness.ts';
import { PageFindings, pageReader } from '../../src/core/api/index.ts';
import { readPage } from '../../src/measurement/index.ts';
import { linger } from './linger.ts';

const page = (name: string) => readFileSync(join(import.meta.dirname, '../testdata/pages', name));
const opened: (() => void)[] = [];
afterEach(() => {
  for (const each of opened.splice(0)) each();
});

async function serving(answer: http.RequestListener): Promise<URL> {
  const server = http.createServer(answer).listen(0, '127.0.0.1');
  await new Promise((done) => server.once('listening', done));
  opened.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/clusters`);
}

/** A witness of a page that is served with this. */
async function witnessOf(answer: http.RequestListener): Promise<URL> {
  const url = await serving(answer);
  const to = { host: '127.0.0.1' };
  return serving(witnessApp('Envoy', (reader) => readPage({ url, to, reader, timeoutMs: 300 })));
}

const envoy: http.RequestListener = (_, response) => response.end(page('Envoy/clusters.txt'));

describe('a witness', () => {
  it('refuses a password that it would never send, and does not repeat it', async () => {
    const { code, stderr } = await linger(['witness', '--page', 'http://stats:hunter2@127.0.0.1:8404/stats']);
    expect([code, stderr]).toEqual([2, expect.stringContaining('--page: expected a URL without user')]);
    expect(stderr).not.toContain('hunter2');
  });

  it('says what the page says of each address', async () => {
    const url = await witnessOf(envoy);
    const names = '10.0.0.1:8080,10.0.0.2:8080,10.0.0.1:9,[fd00::A:1]:8080';
    const response = await fetch(new URL(`/v1/uses/${names}`, url));
    expect([response.status, await response.json()]).toEqual([
      200,
      {
        '10.0.0.1:8080': 'using',
        '10.0.0.2:8080': 'listed',
        '10.0.0.1:9': 'absent',
        '[fd00::A:1]:8080': 'using',
      },
    ]);
  });

  it('is a page itself', async () => {
    const url = await witnessOf(envoy);
    url.pathname = '/v1/uses/10.0.0.1:8080,10.0.0.3:8080';
    const reader = pageReader('Witness', [
      { address: '10.0.0.1', ports: [8080] },
      { address: '10.0.0.3', ports: [8080] },
    ]);
    const { outcome } = await readPage({ url, to: { host: '127.0.0.1' }, reader, timeoutMs: 1_000 });
    expect(outcome).toBeInstanceOf(PageFindings);
    const found = outcome as PageFindings;
    const says = (address: string) => found.of({ address, ports: [8080] });
    expect([says('10.0.0.1'), says('10.0.0.3')]).toEqual(['using', 'listed']);
  });

  it.each([
    ['GET', '/', 404],
    ['GET', '/clusters', 404],
    ['GET', '/v1/uses', 404],
    ['GET', '/v1/uses/', 400],
    ['GET', '/v1/uses/web:80', 400],
    ['GET', '/v1/uses/10.0.0.1', 400],
    ['GET', '/v1/uses/10.0.0.1:80,', 400],
    ['GET', `/v1/uses/${Array(65).fill('10.0.0.1:80').join(',')}`, 400],
    ['POST', '/v1/uses/10.0.0.1:80', 405],
  ])('refuses %s %.40s', async (method, path, status) => {
    const response = await fetch(new URL(path, await witnessOf(envoy)), { method });
    expect(response.status).toBe(status);
  });

  it.each<[string, http.RequestListener, RegExp]>([
    [
      'is truncated',
      (_, response) =>
        void response.writeHead(200, { 'Content-Length': 99_999 }).write('x', () => response.destroy()),
      /The page/,
    ],
    ['is refused', (_, response) => void response.writeHead(403).end('no'), /status 403/],
    ['is another', (_, response) => void response.end('<html>'), /is not what Envoy answers/],
    ['never ends', (_, response) => void response.write('a::added_via_api::true\n'), /no full answer/],
    [
      'has no length',
      (_, response) => {
        response.removeHeader('Transfer-Encoding');
        response.useChunkedEncodingByDefault = false;
        response.writeHead(200, { Connection: 'close' }).end();
      },
      /how long it is/,
    ],
    [
      'is compressed',
      (_, response) => void response.writeHead(200, { 'Content-Encoding': 'gzip' }).end('x'),
      /encoded as gzip/,
    ],
    [
      'is one of several',
      (_, response) => void response.writeHead(200, { 'X-Next-Page': '2' }).end('[]'),
      /only a part/,
    ],
    ['is elsewhere', (_, response) => void response.writeHead(302, { Location: '/' }).end(), /redirected/],
  ])('does not say anything of a page that %s', async (_, answer, message) => {
    const response = await fetch(new URL('/v1/uses/10.0.0.1:80', await witnessOf(answer)));
    expect([response.status, await response.json()]).toEqual([
      503,
      { message: expect.stringMatching(message) as string },
    ]);
  });

  it('does not read a page beyond its bound', async () => {
    const chunk = Buffer.alloc(1 << 20, 'a::added_via_api::true\n');
    let sent = 0;
    const url = await witnessOf((_, response) => {
      const more = () => {
        while (!response.destroyed && sent < 64) {
          sent += 1;
          if (!response.write(chunk)) return void response.once('drain', more);
        }
      };
      more();
    });
    const response = await fetch(new URL('/v1/uses/10.0.0.1:80', url));
    const { message } = (await response.json()) as { message: string };
    expect(message).toMatch(/longer than 16 MiB|no full answer/);
    expect(sent).toBeLessThan(30);
  });

  it('reads the page a few times for many questions, and answers all of them', async () => {
    let reads = 0;
    const url = await witnessOf((request, response) => {
      reads += 1;
      envoy(request, response);
    });
    const asked = Array.from({ length: 40 }, () => fetch(new URL('/v1/uses/10.0.0.1:8080', url)));
    const answers = await Promise.all((await Promise.all(asked)).map((response) => response.json()));
    expect(answers).toEqual(Array(40).fill({ '10.0.0.1:8080': 'using' }));
    expect(reads).toBeLessThan(20);
  });

  it('answers a question from no page that was read before', async () => {
    let isListed = true;
    const answers: (() => void)[] = [];
    const url = await witnessOf((_, response) => {
      const text = isListed ? page('Envoy/clusters.txt') : 'web::added_via_api::true\n';
      answers.push(() => response.end(text));
    });
    const ask = async () => (await fetch(new URL('/v1/uses/10.0.0.1:8080', url))).json();
    const first = ask();
    await vi.waitFor(() => expect(answers).toHaveLength(1));
    isListed = false;
    const second = ask();
    await new Promise((done) => setTimeout(done, 50));
    answers[0]?.();
    expect(await first).toEqual({ '10.0.0.1:8080': 'using' });
    await vi.waitFor(() => expect(answers).toHaveLength(2));
    answers[1]?.();
    expect(await second).toEqual({ '10.0.0.1:8080': 'absent' });
  });

  it('keeps connections for others, however many one address opens', async () => {
    const server = http.createServer();
    limitConnections(server);
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    const sockets = Array.from({ length: 20 }, () => connect(port, '127.0.0.1'));
    for (const socket of sockets) socket.on('error', () => undefined);
    await vi.waitFor(() => expect(sockets.filter(({ closed }) => closed)).toHaveLength(12));
    for (const socket of sockets) socket.destroy();
    const open = () => new Promise<number>((done) => server.getConnections((_, count) => done(count)));
    await vi.waitFor(async () => expect(await open()).toBe(0));
    const next = connect(port, '127.0.0.1');
    await new Promise((done) => setTimeout(done, 50));
    expect(next.closed).toBe(false);
    next.destroy();
  });
});

describe('HAProxy’s socket', () => {
  async function answering(text: Buffer): Promise<string> {
    const folder = mkdtempSync(join(tmpdir(), 'witness-'));
    const path = join(folder, 'ha.sock');
    const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
      socket.once('data', (command) =>
        socket.end(String(command) === 'show servers state\n' ? text : 'Unknown\n'),
      );
    });
    server.listen(path);
    await new Promise((done) => server.once('listening', done));
    opened.push(() => {
      server.close();
      rmSync(folder, { recursive: true });
    });
    return path;
  }
  const read = async (path: string) =>
    (
      await readCommand(
        path,
        'show servers state',
        pageReader('HAProxy', [{ address: '10.202.0.7', ports: [8080] }]),
      )
    ).outcome;

  it('is asked by a command', async () => {
    const found = await read(await answering(page('HAProxy/servers-state.txt')));
    expect((found as PageFindings).of({ address: '10.202.0.7', ports: [8080] })).toBe('using');
  });

  it('must answer whole', async () => {
    const whole = page('HAProxy/servers-state.txt');
    expect(await read(await answering(whole.subarray(0, -40)))).toMatchObject({ message: 'is truncated' });
    expect(await read('/nowhere')).toMatchObject({ reason: 'Unreachable' });
  });
});
