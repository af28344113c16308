import http from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ObjectFailure, requestObject } from '../../src/kube/object-request.ts';
import { newAgent } from '../../src/kube/request.ts';
import { listening } from '../serve/listening.ts';

interface Asked {
  readonly method: string;
  readonly url: string;
  readonly headers: http.IncomingHttpHeaders;
  readonly body: string;
}

/** A server that answers every request so. */
async function serve(answer: (asked: Asked, response: http.ServerResponse) => void) {
  const asked: Asked[] = [];
  const server = http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = '', url = '', headers } = request;
    const each = { method, url, headers, body: Buffer.concat(chunks).toString() };
    asked.push(each);
    answer(each, response);
  });
  const connection = {
    server: new URL(`http://127.0.0.1:${await listening(server)}`),
    credentials: async () => ({ token: 'T' }),
  };
  const agent = newAgent(connection);
  onTestFinished(() => agent.destroy());
  const request = (method: 'GET' | 'POST' | 'PUT' | 'PATCH', object?: unknown, withinMs = 10_000) => {
    const { signal } = new AbortController();
    return requestObject(connection, { method, path: '/api/v1/x', object, agent, signal, withinMs });
  };
  return { asked, request, connection, agent };
}

const STORED = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'é', resourceVersion: '7' } };
const say =
  (status: number, body: unknown, headers = {}) =>
  (_asked: Asked, response: http.ServerResponse) =>
    void response.writeHead(status, headers).end(typeof body === 'string' ? body : JSON.stringify(body));
const status = (reason: string) => ({ kind: 'Status', status: 'Failure', reason, message: `said ${reason}` });

it.each([
  { method: 'GET' as const, answer: 200, object: undefined, contentType: undefined },
  { method: 'POST' as const, answer: 201, object: STORED, contentType: 'application/json' },
  { method: 'PUT' as const, answer: 200, object: STORED, contentType: 'application/json' },
  {
    method: 'PATCH' as const,
    answer: 200,
    object: { data: null },
    contentType: 'application/merge-patch+json',
  },
  {
    method: 'PATCH' as const,
    answer: 200,
    object: [{ op: 'test', path: '/data', value: null }],
    contentType: 'application/json-patch+json',
  },
])(
  '$method sends the object whole, and gives what is stored',
  async ({ method, answer, object, contentType }) => {
    const { asked, request } = await serve(say(answer, STORED));
    expect(await request(method, object)).toEqual(STORED);
    const body = object === undefined ? '' : JSON.stringify(object);
    expect(asked).toMatchObject([{ method, url: '/api/v1/x', body }]);
    const { headers } = asked[0]!;
    expect(headers).toMatchObject({ authorization: 'Bearer T', accept: 'application/json' });
    expect(headers['content-type']).toBe(contentType);
    if (object !== undefined) expect(headers['content-length']).toBe(String(Buffer.byteLength(body)));
  },
);

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
  [200, { kind: 'Status', metadata: {} }, 'Malformed'],
])('%i %j is %s', async (code, body, reason) => {
  const { request } = await serve(say(code, body));
  const failed = request('GET');
  await expect(failed).rejects.toBeInstanceOf(ObjectFailure);
  await expect(failed).rejects.toMatchObject({ reason });
});

it.each([
  [{ 'retry-after': '3' }, 3_000],
  [{ 'retry-after': 'Wed, 21 Oct 2026 07:28:00 GMT' }, undefined],
  [{}, undefined],
])('429 with %j asks for a pause of %s ms', async (headers, retryAfterMs) => {
  const { request } = await serve(say(429, status('TooManyRequests'), headers));
  await expect(request('PUT', STORED)).rejects.toMatchObject({
    reason: 'Throttled',
    message: '429: said TooManyRequests',
    retryAfterMs,
  });
});

describe('without a whole answer', () => {
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
    const { request } = await serve(answer);
    await expect(request('GET', undefined, 200)).rejects.toMatchObject({
      reason: 'Unreachable',
      message: 'no whole answer within 200 ms',
    });
  });

  it('a cut is no answer', async () => {
    const { request } = await serve((_asked, response) => void response.destroy());
    await expect(request('GET')).rejects.toMatchObject({ reason: 'Unreachable' });
  });

  it('one that is too long is not read to its end', async () => {
    const { request } = await serve((_asked, response) => {
      response.writeHead(200);
      const more = () => {
        while (response.write(' '.repeat(65_536)));
      };
      response.on('drain', more);
      more();
    });
    await expect(request('GET')).rejects.toMatchObject({ reason: 'Malformed' });
  });

  it('the caller’s own reason is thrown once its signal has aborted', async () => {
    const { connection, agent } = await serve(() => undefined);
    const stopping = new AbortController();
    const { signal } = stopping;
    const failed = requestObject(connection, { method: 'GET', path: '/', agent, signal, withinMs: 10_000 });
    const reason = new Error('enough');
    stopping.abort(reason);
    await expect(failed).rejects.toBe(reason);
  });
});
