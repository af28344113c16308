import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import http from 'node:http';
import https from 'node:https';
import net, { type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';
import { Worker } from 'node:worker_threads';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ensureCertificates } from '../../src/certs/index.ts';
import { withoutRoute } from '../../src/cluster/index.ts';
import { attempt, attemptClusterIp, resolve } from '../../src/measurement/requests/probe.ts';
import { canaryServer } from '../../src/webhook/index.ts';

const run = promisify(execFile);
const IDENTITY = '0123456789abcdef0123456789abcdef';
const options = { signal: new AbortController().signal, allowLinkLocal: false };

async function listening(server: net.Server): Promise<number> {
  const sockets = new Set<net.Socket>();
  server.on('connection', (socket: net.Socket) => sockets.add(socket));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

function probe(port: number, { timeoutMs = 10_000, path = '/linger?x=1', tls = false } = {}) {
  const url = new URL(`http${tls ? 's' : ''}://localhost:${port}${path}`);
  return attempt({ url, address: '127.0.0.1', timeoutMs });
}

const answering = (answer: (request: http.IncomingMessage, response: http.ServerResponse) => void) =>
  listening(http.createServer(answer));

describe('a replica', () => {
  it('is known by its answer to any path and method', async () => {
    const port = await listening(canaryServer(IDENTITY));
    for (const path of ['/', '/canary', '/a/b%20c?d=e']) {
      expect(await probe(port, { path })).toEqual({ identity: IDENTITY });
    }
  });

  it('closes every connection, forbids caching, and echoes nothing of the request', async () => {
    const port = await listening(canaryServer(IDENTITY));
    const answer = await fetch(`http://127.0.0.1:${port}/secret?token=s3cr3t`, {
      method: 'POST',
      body: 's3cr3t',
      headers: { 'x-secret': 's3cr3t' },
    });
    const said = `${JSON.stringify([...answer.headers])} ${await answer.text()}`;
    expect(said).not.toContain('s3cr3t');
    expect(Object.fromEntries(answer.headers)).toMatchObject({
      connection: 'close',
      'cache-control': 'no-store',
      'linger-canary': IDENTITY,
    });
  });

  it('is known where a gateway drops its header', async () => {
    const port = await answering((_, response) => response.end(`linger-canary ${IDENTITY}\n`));
    expect(await probe(port)).toEqual({ identity: IDENTITY });
  });

  it('is known where a gateway drops the body', async () => {
    const headers = { 'linger-canary': IDENTITY };
    const port = await answering((_, response) => response.writeHead(200, headers).end());
    expect(await probe(port)).toEqual({ identity: IDENTITY });
  });
});

it('asks for what the URL says, on a connection of its own each time, and sends nothing of anybody’s', async () => {
  const asked: http.IncomingMessage[] = [];
  const sockets = new Set<net.Socket>();
  const port = await answering((request, response) => {
    asked.push(request);
    sockets.add(request.socket);
    response.end(`linger-canary ${IDENTITY}\n`);
  });
  const url = new URL(`http://user:secret@localhost:${port}/linger?x=1#fragment`);
  for (let times = 0; times < 3; times++) await attempt({ url, address: '127.0.0.1', timeoutMs: 10_000 });
  expect(sockets.size).toBe(3);
  expect(asked.map(({ method, url: path }) => `${method} ${path}`)).toEqual(Array(3).fill('GET /linger?x=1'));
  expect(Object.keys(asked[0]!.headers).toSorted()).toEqual([
    'accept',
    'cache-control',
    'connection',
    'host',
    'user-agent',
  ]);
  expect(asked[0]!.headers.host).toBe(`localhost:${port}`);
});

it('uses no proxy of the environment', async () => {
  const port = await listening(canaryServer(IDENTITY));
  const module = join(import.meta.dirname, '..', '..', 'src', 'measurement', 'requests', 'probe.ts');
  const script = `
    import { attempt } from ${JSON.stringify(pathToFileURL(module).href)};
    const url = new URL('http://gateway.invalid:${port}/');
    console.log(JSON.stringify(await attempt({ url, address: '127.0.0.1', timeoutMs: 10_000 })));`;
  const proxy = `http://127.0.0.1:1`;
  const env = { ...process.env, NODE_USE_ENV_PROXY: '1', HTTP_PROXY: proxy, HTTPS_PROXY: proxy };
  const { stdout } = await run(process.execPath, ['--input-type=module', '--eval', script], { env });
  expect(JSON.parse(stdout)).toEqual({ identity: IDENTITY });
});

describe('a consumer that does something else', () => {
  it.each([
    { what: 'redirects', status: 302, reason: 'BadAnswer', says: /^is redirected \(302\)/, away: false },
    { what: 'does not know the path', status: 404, reason: 'BadAnswer', says: /status 404$/, away: false },
    { what: 'has no endpoint', status: 503, reason: 'BadAnswer', says: /status 503$/, away: true },
    {
      what: 'succeeds',
      status: 200,
      reason: 'NotLinger',
      says: /with 200 by something that is not Linger/,
      away: false,
    },
    { what: 'has nothing to say', status: 204, reason: 'NotLinger', says: /with 204/, away: false },
  ])('$what: $reason', async ({ status, reason, says, away }) => {
    let asked = 0;
    const port = await answering((request, response) => {
      asked += 1;
      response.writeHead(status, { location: request.url ?? '/' }).end();
    });
    const answer = await probe(port);
    expect(answer).toEqual({ reason, message: expect.stringMatching(says), turnedAway: away });
    // A redirect for ever is one request.
    expect(asked).toBe(1);
  });

  it('answers megabytes: read no further than what Linger itself would say', async () => {
    let written = 0;
    const port = await answering((_, response) => {
      const more = () => {
        while (!response.destroyed && response.write(Buffer.alloc(64 * 1024, 'a'))) written += 64 * 1024;
      };
      response.on('drain', more).on('error', () => undefined);
      more();
    });
    expect(await probe(port)).toMatchObject({ reason: 'NotLinger' });
    // What fits into the buffers of two sockets, and no more: 8 MB at the very most.
    expect(written).toBeLessThan(16 * 1024 * 1024);
  });

  it('sends headers without end: BadAnswer', async () => {
    const port = await listening(
      net.createServer((socket) => {
        socket.on('error', () => undefined);
        socket.write(`HTTP/1.1 200 OK\r\nx: ${'a'.repeat(100_000)}`);
      }),
    );
    expect(await probe(port)).toMatchObject({ reason: 'BadAnswer' });
  });

  it('speaks no HTTP: BadAnswer', async () => {
    const port = await listening(net.createServer((socket) => void socket.end('SSH-2.0-x\r\n')));
    expect(await probe(port)).toMatchObject({ reason: 'BadAnswer', turnedAway: false });
  });

  it('closes at once: Unreachable', async () => {
    const port = await listening(net.createServer((socket) => socket.destroy()));
    expect(await probe(port)).toMatchObject({ reason: 'Unreachable', turnedAway: true });
  });

  it('closes in the middle of the body: Unreachable', async () => {
    const port = await answering((_, response) => {
      response.writeHead(200, { 'content-length': '47' }).write('linger-canary 01', () => response.destroy());
    });
    expect(await probe(port)).toMatchObject({ reason: 'Unreachable' });
  });

  it.each([
    { what: 'never answers', serve: () => undefined },
    {
      what: 'never ends its answer',
      serve: (socket: net.Socket) => void socket.write('HTTP/1.1 200 OK\r\n'),
    },
  ])('$what: no longer than the timeout', async ({ serve }) => {
    const port = await listening(net.createServer(serve));
    expect(await probe(port, { timeoutMs: 200 })).toEqual({
      reason: 'Unreachable',
      message: 'gets no answer within 0.2 s',
      turnedAway: false,
    });
  });

  it('is not there: Unreachable, at once', async () => {
    const server = net.createServer();
    const port = await listening(server);
    server.close();
    await once(server, 'close');
    expect(await probe(port)).toEqual({
      reason: 'Unreachable',
      message: 'is refused a connection',
      turnedAway: true,
    });
  });

  it('has a certificate of its own: Unreachable, and what to do', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'linger-canary-'));
    await ensureCertificates({ directory, names: ['localhost'] }, new Date());
    const [cert, key] = ['tls.crt', 'tls.key'].map((name) => readFileSync(join(directory, name), 'utf8'));
    const port = await listening(https.createServer({ cert, key }));
    const answer = await probe(port, { tls: true });
    expect(answer).toMatchObject({ reason: 'Unreachable', turnedAway: false });
    expect(answer).toMatchObject({ message: expect.stringContaining('NODE_EXTRA_CA_CERTS') });
  });

  it('speaks no TLS: Unreachable', async () => {
    const port = await answering((_, response) => response.end());
    expect(await probe(port, { tls: true })).toMatchObject({
      reason: 'Unreachable',
      message: expect.stringMatching(/TLS/),
    });
  });
});

describe('a connection to a ClusterIP', () => {
  const through = (port: number) => {
    const url = new URL(`http://127.0.0.1:${port}/canary`);
    return attemptClusterIp({ url, address: '127.0.0.1', timeoutMs: 500 });
  };

  it('that never stands has been turned away: the kernel rejects few of those without an endpoint', async () => {
    // It never accepts, so that the kernel drops what its queue has no place for.
    const deaf = `const { parentPort } = require('node:worker_threads');
      const server = require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
        parentPort.postMessage(server.address().port);
        setTimeout(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0), 50);
      });`;
    const worker = new Worker(deaf, { eval: true });
    onTestFinished(async () => void (await worker.terminate()));
    const [port] = (await once(worker, 'message')) as [number];
    await delay(200);
    const queued = Array.from({ length: 4 }, () =>
      net.connect(port, '127.0.0.1').on('error', () => undefined),
    );
    onTestFinished(() => {
      for (const socket of queued) socket.destroy();
    });
    await delay(200);
    expect(await through(port)).toMatchObject({ reason: 'Unreachable', turnedAway: true });
  });

  it('that stands and gets no answer says nothing', async () => {
    const port = await listening(net.createServer(() => undefined));
    expect(await through(port)).toMatchObject({ reason: 'Unreachable', turnedAway: false });
  });

  it('may meet a replica', async () => {
    expect(await through(await listening(canaryServer(IDENTITY)))).toEqual({ identity: IDENTITY });
  });
});

describe('the host of a URL', () => {
  it.each([
    ['http://127.0.0.1/', ['127.0.0.1']],
    ['http://[::1]:80/', ['::1']],
  ])('%s is its address', async (url, addresses) => {
    expect(await resolve(new URL(url), options)).toEqual({ addresses, unrouted: [] });
  });

  it('may be a name', async () => {
    const { addresses } = (await resolve(new URL('http://localhost/'), options)) as {
      addresses: readonly string[];
    };
    expect(['127.0.0.1', '::1']).toEqual(expect.arrayContaining([...addresses]));
  });

  it.each<[string, string[], string[], number | undefined]>([
    ['of a family without a route are left out', ['10.0.0.1', '2001:db8::1', '2001:db8::2'], [':'], 1],
    ['so are those of IPv4', ['10.0.0.1', '10.0.0.2', '2001:db8::1'], ['.'], 0],
    ['of a family with some route stay', ['10.0.0.1', '2001:db8::1', '2001:db8::2'], ['::1'], undefined],
    ['of the only family stay, for they may be down', ['2001:db8::1', '2001:db8::2'], [':'], undefined],
  ])('addresses %s', async (_, addresses, dead, left) => {
    const isRouted = async (address: string) => !dead.some((each) => address.includes(each));
    const families = [
      addresses.filter((each) => each.includes('.')),
      addresses.filter((each) => each.includes(':')),
    ];
    expect(await withoutRoute(addresses, isRouted)).toEqual(left === undefined ? [] : families[left]);
  });

  it('has a route to this machine, whether or not something listens there', async () => {
    // Nothing listens on a datagram's port 443 here, and nothing is sent.
    expect(await withoutRoute(['127.0.0.1', '::1'])).not.toContain('127.0.0.1');
  });

  it('that does not resolve: Unreachable', async () => {
    // RFC 6761: nobody may answer for it.
    expect(await resolve(new URL('http://gateway.invalid/'), options)).toMatchObject({
      reason: 'Unreachable',
      message: expect.stringMatching(/^cannot resolve its host \(\w+\)$/),
    });
  });

  const METADATA = [
    ...['169.254.169.254', '169.254.170.2', '2852039166', '0xa9fea9fe', '0251.0376.0251.0376'],
    ...['100.100.100.200', '168.63.129.16', '192.0.0.192'],
    ...['[fe80::1]', '[fd00:ec2::254]', '[fd00:ec2::23]', '[fd20:ce::254]', '[fd00:42::42]'],
    ...['[::ffff:169.254.169.254]', '[::169.254.169.254]', '[::ffff:0:169.254.169.254]'],
    ...['[64:ff9b::169.254.169.254]', '[64:ff9b:1::a9fe:a9fe]', '[2002:a9fe:a9fe::1]', '[2001:0:a9fe::1]'],
    ...['[::ffff:100.100.100.200]', '[64:ff9b::168.63.129.16]', '[2002:6464:64c8::]'],
  ];

  it.each(METADATA)('%s is not called', async (host) => {
    expect(await resolve(new URL(`http://${host}/`), options)).toMatchObject({
      reason: 'Unreachable',
      message: expect.stringContaining('--probe-allow-link-local'),
    });
  });

  it.each(METADATA)('%s is called where that is allowed', async (host) => {
    const allowed = { ...options, allowLinkLocal: true };
    expect(await resolve(new URL(`http://${host}/`), allowed)).toHaveProperty('addresses');
  });

  it.each([
    ...['10.0.0.1', '169.253.0.1', '100.100.100.201', '[2001:db8::1]', '[2002:a00:1::1]', '[fd00::1]'],
    '[64:ff9b::10.0.0.1]',
  ])('%s is', async (host) => {
    expect(await resolve(new URL(`http://${host}/`), options)).toHaveProperty('addresses');
  });
});
