import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import http from 'node:http';
import { type AddressInfo, createServer, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { readCommand, witnessApp } from '../../src/cli/witness.ts';
import { PageFindings, readerOf } from '../../src/measurement/page-formats.ts';
import { readPage } from '../../src/measurement/pages.ts';

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

const envoy: http.RequestListener = (_, response) => response.end(page('envoy-clusters.txt'));

describe('a witness', () => {
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
    const reader = readerOf('Witness', new Set(['10.0.0.1', '10.0.0.3']));
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
      'breaks off',
      (_, response) =>
        void response.writeHead(200, { 'Content-Length': 99_999 }).write('x', () => response.destroy()),
      /The page/,
    ],
    ['is refused', (_, response) => void response.writeHead(403).end('no'), /status 403/],
    ['is another', (_, response) => void response.end('<html>'), /is not what Envoy answers/],
    ['never ends', (_, response) => void response.write('a::added_via_api::true\n'), /no whole answer/],
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
    expect(message).toMatch(/longer than 16 MiB|no whole answer/);
    expect(sent).toBeLessThan(30);
  });

  it('answers no more than it should have to', async () => {
    const url = await witnessOf(envoy);
    const statuses: number[] = [];
    for (let n = 0; n < 25; n += 1)
      statuses.push((await fetch(new URL('/v1/uses/10.0.0.1:8080', url))).status);
    expect(statuses.slice(0, 20)).toEqual(Array(20).fill(200));
    expect(statuses).toContain(429);
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
    (await readCommand(path, 'show servers state', readerOf('HAProxy', new Set(['10.202.0.7'])))).outcome;

  it('is asked by a command', async () => {
    const found = await read(await answering(page('haproxy-servers-state.txt')));
    expect((found as PageFindings).of({ address: '10.202.0.7', ports: [8080] })).toBe('using');
  });

  it('must answer whole', async () => {
    const whole = page('haproxy-servers-state.txt');
    expect(await read(await answering(whole.subarray(0, -40)))).toMatchObject({ message: 'breaks off' });
    expect(await read('/nowhere')).toMatchObject({ reason: 'Unreachable' });
  });
});
