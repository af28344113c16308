import { gzipSync } from 'node:zlib';
import supertest from 'supertest';
import { describe, expect, it } from 'vitest';
import { MAX_BODY_BYTES } from '../../src/webhook/admission.ts';
import { pod } from '../core/decision/sample-pod.ts';
import { connect, type Headers, requestBytes } from './connection.ts';
import { bodyOf, UID } from './reviews.ts';
import { responseOf, startWebhook } from './webhook.ts';

const MIB = 1024 * 1024;

/** A review of exactly this many bytes, all of them read. */
function bodyOfLength(bytes: number): string {
  const empty = bodyOf(pod(), { padding: '' });
  return bodyOf(pod(), { padding: 'x'.repeat(bytes - empty.length) });
}

describe('paths and methods', () => {
  it.each([
    '/',
    '/healthz',
    '/metrics',
    '/mutat',
    '/mutate2',
    '/mutate/x',
    '/mutate/',
    '/MUTATE',
    '/%6dutate%zz',
  ])('POST %s: 404', async (path) => {
    const answer = await (await startWebhook()).request('POST', path, bodyOf());
    expect(answer.status).toBe(404);
    expect(JSON.parse(answer.body)).toEqual({ error: expect.stringContaining('/mutate') });
  });

  it.each(['GET', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])('%s /mutate: 405 with Allow', async (method) => {
    const answer = await (await startWebhook()).request(method, '/mutate');
    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'POST']);
    expect(JSON.parse(answer.body)).toEqual({ error: expect.stringContaining('POST') });
  });

  it('HEAD /mutate: 405 with Allow and no body', async () => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write('HEAD /mutate HTTP/1.1\r\nHost: localhost\r\n\r\n');
    const answer = await connection.answer('HEAD');
    await connection.closed;

    expect([answer.status, answer.headers.get('allow')]).toEqual([405, 'POST']);
    await expect(connection.answer()).rejects.toThrow('ended after ""');
  });

  it('the API server’s own path, with its timeout, is served', async () => {
    const answer = await (await startWebhook()).request('POST', '/mutate?timeout=2s', bodyOf());
    expect(responseOf(answer).uid).toBe(UID);
  });

  it('says nothing about what it is built with', async () => {
    const webhook = await startWebhook();
    const { ca, port } = webhook;
    const agent = supertest.agent(`https://localhost:${port}`, { ca });
    const response = await agent.post('/mutate').set('Content-Type', 'application/json').send(bodyOf());
    expect(response.status).toBe(200);
    expect(response.headers).not.toHaveProperty('x-powered-by');
    expect(response.headers).not.toHaveProperty('etag');
  });
});

describe('the Content-Type is ignored', () => {
  it.each([
    ['none', {}],
    ['application/json', { 'Content-Type': 'application/json' }],
    ['text/plain', { 'Content-Type': 'text/plain' }],
    ['another charset', { 'Content-Type': 'application/json; charset=utf-16' }],
    ['a form', { 'Content-Type': 'application/x-www-form-urlencoded' }],
    ['multipart without a boundary', { 'Content-Type': 'multipart/form-data' }],
    ['nonsense', { 'Content-Type': ';;;=' }],
    ['nothing', { 'Content-Type': '' }],
  ] satisfies [string, Headers][])('%s', async (_what, headers) => {
    const answer = await (await startWebhook()).post(bodyOf(), headers);
    expect(responseOf(answer)).toMatchObject({ uid: UID, allowed: true, patchType: 'JSONPatch' });
    expect(answer.headers.get('content-length')).toBe(String(Buffer.byteLength(answer.body)));
  });
});

describe('length and encoding of the body', () => {
  it('7 MiB are read', async () => {
    expect(MAX_BODY_BYTES).toBe(7 * MIB);
    const body = bodyOfLength(MAX_BODY_BYTES);
    expect(body.length).toBe(MAX_BODY_BYTES);
    expect(responseOf(await (await startWebhook()).post(body)).patch).toBeDefined();
  });

  it.each([
    ['one byte more', MAX_BODY_BYTES + 1],
    ['8 MiB', 8 * MIB],
  ])('%s: 413', async (_what, length) => {
    const webhook = await startWebhook();
    const answer = await webhook.post(bodyOfLength(length));
    expect(answer.status).toBe(413);
    expect(JSON.parse(answer.body)).toEqual({ error: expect.stringContaining(String(MAX_BODY_BYTES)) });
    expect(responseOf(await webhook.post(bodyOf())).uid).toBe(UID);
  });

  it('8 MiB in chunks, with no length announced: 413', async () => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write(chunkedBytes(bodyOfLength(8 * MIB), 64 * 1024));
    expect((await connection.answer()).status).toBe(413);
    expect(responseOf(await webhook.post(bodyOf())).uid).toBe(UID);
  });

  it.each([
    ['/mutate', 413],
    ['/elsewhere', 404],
  ])(
    'POST %s: a client that is still sending when it is answered is not reset over it',
    async (path, status) => {
      const connection = await connect(await startWebhook());
      connection.write(`POST ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 30000000\r\n\r\n`);
      expect((await connection.answer()).status).toBe(status);
      const answered = performance.now();
      const sending = setInterval(() => connection.write(Buffer.alloc(16 * 1024)), 20);
      await connection.closed;
      clearInterval(sending);
      // Read and dropped for a second; a socket that is closed over unread bytes takes the answer along.
      expect(performance.now() - answered).toBeGreaterThan(500);
    },
  );

  it.each([1, 7, 1000, 100_000])('chunks of %i bytes are read', async (size) => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write(chunkedBytes(bodyOf(), size));
    expect(responseOf(await connection.answer()).uid).toBe(UID);
    connection.write(requestBytes(bodyOf()));
    expect(responseOf(await connection.answer()).uid).toBe(UID);
  });

  it.each(['gzip', 'GZIP', 'deflate', 'br', 'zstd'])('Content-Encoding %s: 415', async (encoding) => {
    const webhook = await startWebhook();
    const answer = await webhook.post(gzipSync(bodyOf()), { 'Content-Encoding': encoding });
    expect([answer.status, JSON.parse(answer.body)]).toEqual([
      415,
      { error: expect.stringContaining('compressed') },
    ]);
    expect(responseOf(await webhook.post(bodyOf())).uid).toBe(UID);
  });

  it('Content-Encoding identity is none', async () => {
    const answer = await (await startWebhook()).post(bodyOf(), { 'Content-Encoding': 'identity' });
    expect(responseOf(answer).uid).toBe(UID);
  });

  it('an announced body that does not come, and a client that goes away: the next is served', async () => {
    const webhook = await startWebhook();
    const leave = ['destroy', 'end'] as const;
    for (const how of leave) {
      const connection = await connect(webhook);
      connection.write(requestBytes(bodyOf(), { 'Content-Length': '100000' }));
      connection[how]();
      await connection.closed;
    }
    expect(responseOf(await webhook.post(bodyOf())).uid).toBe(UID);
    expect(webhook.logs.filter((line) => line.includes('"level":"error"'))).toEqual([]);
  });

  it('a body longer than announced: the rest is no request, and ends the connection', async () => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write(
      requestBytes(`${bodyOf()}garbage\r\n\r\n`, { 'Content-Length': String(bodyOf().length) }),
    );
    await connection.closed;
    expect(responseOf(await webhook.post(bodyOf())).uid).toBe(UID);
  });

  it('what is not HTTP gets 400 and the next is served', async () => {
    const webhook = await startWebhook();
    const connection = await connect(webhook);
    connection.write('this is not HTTP\r\n\r\n');
    expect((await connection.answer()).status).toBe(400);
    await connection.closed;
    expect(responseOf(await webhook.post(bodyOf())).uid).toBe(UID);
  });
});

/** The same request with Transfer-Encoding: chunked. */
function chunkedBytes(body: string, size: number): string {
  const head = 'POST /mutate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n';
  const chunks: string[] = [];
  for (let at = 0; at < body.length; at += size) {
    const chunk = body.slice(at, at + size);
    chunks.push(`${chunk.length.toString(16)}\r\n${chunk}\r\n`);
  }
  return `${head}${chunks.join('')}0\r\n\r\n`;
}
