import http from 'node:http';
import { describe, expect, it } from 'vitest';
import { callApi, callPath } from '../../src/cluster/client.ts';
import { KubeFailure } from '../../src/cluster/failure.ts';
import { listening } from '../webhook/listening.ts';
import { bearer } from './bearer.ts';

interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
  /** The client's port, which tells connections apart. */
  readonly port: number | undefined;
}

/** A server that answers every request so. */
async function serve(answer: (asked: Asked, response: http.ServerResponse) => void) {
  const asked: Asked[] = [];
  const server = http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = '', url = '', headers, socket } = request;
    const each = { method, url, headers, body: Buffer.concat(chunks).toString(), port: socket.remotePort };
    asked.push(each);
    answer(each, response);
  });
  const connection = {
    server: new URL(`http://127.0.0.1:${await listening(server)}`),
    credentials: async () => bearer('T'),
  };
  const read = (withinMs = 10_000, signal = new AbortController().signal) =>
    callApi(connection, 'CoreV1Api', { signal, withinMs }, (core) => core.readNamespacedConfigMap(NAMED));
  const readPath = () => {
    const call = { signal: new AbortController().signal, withinMs: 10_000 };
    return callPath(connection, { method: 'GET', path: `${PATH}/%C3%A9` }, call);
  };
  return { asked, connection, read, readPath };
}

const NAMED = { name: 'é', namespace: 'shop' };
const PATH = '/api/v1/namespaces/shop/configmaps';

const STORED = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'é', resourceVersion: '7' } };
const say =
  (status: number, body: unknown, headers = {}) =>
  (_asked: Asked, response: http.ServerResponse) =>
    void response.writeHead(status, headers).end(typeof body === 'string' ? body : JSON.stringify(body));
const status = (reason: string) => ({ kind: 'Status', status: 'Failure', reason, message: `said ${reason}` });

describe('a typed call', () => {
  const { signal } = new AbortController();
  const call = { signal, withinMs: 10_000 };

  it('reads an object', async () => {
    const { asked, read } = await serve(say(200, STORED));
    expect(await read()).toEqual(STORED);
    expect(asked).toMatchObject([{ method: 'GET', url: `${PATH}/%C3%A9`, body: '' }]);
    expect(asked[0]?.headers).toMatchObject({ authorization: 'Bearer T', 'user-agent': 'linger' });
  });

  it('writes one, and gives what is stored', async () => {
    const { asked, connection } = await serve(say(201, STORED));
    const body = { metadata: { name: 'é' }, data: { a: 'b' } };
    const written = callApi(connection, 'CoreV1Api', call, (core) =>
      core.createNamespacedConfigMap({ namespace: 'shop', body }),
    );
    expect(await written).toEqual(STORED);
    const { headers, port: _port, ...sent } = asked[0]!;
    expect({ ...sent, body: JSON.parse(sent.body) }).toEqual({ method: 'POST', url: PATH, body });
    expect(headers).toMatchObject({ 'content-type': 'application/json' });
    expect(headers['content-length']).toBe(String(Buffer.byteLength(sent.body)));
  });

  it.each([
    ['json-patch', 'application/json-patch+json', [{ op: 'test', path: '/data', value: null }]],
    ['merge-patch', 'application/merge-patch+json', { data: null }],
    ['apply-patch', 'application/apply-patch+yaml', { data: { a: 'b' } }],
  ] as const)('sends a %s as %s', async (patch, contentType, body) => {
    const { asked, connection } = await serve(say(200, STORED));
    await callApi(connection, 'CoreV1Api', { ...call, patch }, (core) =>
      core.patchNamespacedConfigMap({ ...NAMED, body, fieldManager: 'linger' }),
    );
    expect(asked).toMatchObject([{ method: 'PATCH', url: `${PATH}/%C3%A9?fieldManager=linger` }]);
    expect(asked[0]?.headers['content-type']).toBe(contentType);
    expect(JSON.parse(asked[0]?.body ?? '')).toEqual(body);
  });

  it('keeps the path of the server, and one connection for calls that follow each other', async () => {
    const { asked, connection } = await serve(say(200, STORED));
    const behind = { ...connection, server: new URL('/k8s/clusters/c-1', connection.server) };
    for (const _ of [1, 2, 3]) {
      await callApi(behind, 'CoreV1Api', call, (core) => core.readNamespacedConfigMap(NAMED));
    }
    expect(new Set(asked.map(({ url }) => url))).toEqual(new Set([`/k8s/clusters/c-1${PATH}/%C3%A9`]));
    expect(new Set(asked.map(({ port }) => port)).size).toBe(1);
  });
});

it.each([
  [404, status('NotFound'), 'NotFound'],
  [409, status('AlreadyExists'), 'AlreadyExists'],
  [409, status('Conflict'), 'Conflict'],
  [409, 'no Status', 'Conflict'],
  [401, status('Unauthorized'), 'Unauthorized'],
  [403, status('Forbidden'), 'Forbidden'],
  [413, status('RequestEntityTooLarge'), 'Refused'],
  [422, status('Invalid'), 'Refused'],
  [500, status('InternalError'), 'ServerError'],
  [502, '<html>', 'ServerError'],
  [410, status('Gone'), 'Refused'],
  [302, '', 'Refused'],
  [200, 'no JSON', 'Malformed'],
])('%i %j is %s', async (code, body, reason) => {
  const { read, readPath } = await serve(say(code, body));
  for (const ask of [() => read(), readPath]) {
    const failed = ask();
    await expect(failed).rejects.toBeInstanceOf(KubeFailure);
    await expect(failed).rejects.toMatchObject({ reason });
  }
});

it('a call by path sends and reads any object', async () => {
  const { asked, connection } = await serve(say(200, STORED));
  const object = { data: null };
  const call = { signal: new AbortController().signal, withinMs: 10_000, patch: 'merge-patch' } as const;
  const path = `${PATH}/%C3%A9?dryRun=All`;
  expect(await callPath(connection, { method: 'PATCH', path, object }, call)).toEqual(STORED);
  expect(asked).toMatchObject([{ method: 'PATCH', url: path, body: JSON.stringify(object) }]);
  expect(asked[0]?.headers['content-type']).toBe('application/merge-patch+json');
});

it.each([
  [{ 'retry-after': '3' }, 3_000],
  [{ 'retry-after': 'Wed, 21 Oct 2026 07:28:00 GMT' }, undefined],
  [{}, undefined],
])('429 with %j asks for a pause of %s ms', async (headers, retryAfterMs) => {
  const { read } = await serve(say(429, status('TooManyRequests'), headers));
  await expect(read()).rejects.toMatchObject({
    reason: 'Throttled',
    message: '429: said TooManyRequests',
    retryAfterMs,
  });
});

describe('without a full answer', () => {
  it.each<{ name: string; answer: Parameters<typeof serve>[0] }>([
    { name: 'none begins', answer: () => undefined },
    { name: 'it stops in the middle', answer: (_asked, response) => void response.writeHead(200).write('{') },
    {
      name: 'it drips on and on',
      answer: (_asked, response) => {
        response.writeHead(200);
        const drip = setInterval(() => response.write(' '), 20);
        response.on('close', () => clearInterval(drip));
      },
    },
    {
      name: 'a refusal stops in the middle',
      answer: (_asked, response) => void response.writeHead(500).write('{'),
    },
  ])('it is given up in time: $name', async ({ answer }) => {
    const { read } = await serve(answer);
    await expect(read(200)).rejects.toMatchObject({
      reason: 'Unreachable',
      message: 'no full answer within 200 ms',
    });
  });

  it('it is given up in time, too, while the credentials are still being read', async () => {
    const { connection } = await serve(say(200, STORED));
    const waiting = { ...connection, credentials: () => new Promise<never>(() => undefined) };
    const call = { signal: new AbortController().signal, withinMs: 200 };
    const read = callApi(waiting, 'CoreV1Api', call, (core) => core.readNamespacedConfigMap(NAMED));
    await expect(read).rejects.toMatchObject({ reason: 'Unreachable' });
  });

  it('a cut is no answer', async () => {
    const { read } = await serve((_asked, response) => void response.destroy());
    await expect(read()).rejects.toMatchObject({ reason: 'Unreachable' });
  });

  it('one that is too long is not read to its end', async () => {
    const { read } = await serve((_asked, response) => {
      response.writeHead(200);
      const more = () => {
        while (response.write(' '.repeat(65_536)));
      };
      response.on('drain', more);
      more();
    });
    await expect(read()).rejects.toMatchObject({ reason: 'Malformed' });
  });

  it('the caller’s own reason is thrown once its signal has aborted', async () => {
    const { read } = await serve(() => undefined);
    const stopping = new AbortController();
    const failed = read(10_000, stopping.signal);
    const reason = new Error('enough');
    stopping.abort(reason);
    await expect(failed).rejects.toBe(reason);
  });
});
