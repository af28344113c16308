import http from 'node:http';
import https from 'node:https';
import { gzipSync } from 'node:zlib';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  type Authority,
  issueAuthority,
  issueServingCertificate,
  type KeyPair,
} from '../../src/certs/index.ts';
import { kubeVersion } from '../../src/cluster/client.ts';
import { pagesOf } from '../../src/cluster/list.ts';
import { ask, newAgent, readText } from '../../src/cluster/request.ts';
import { acceptOf, requestPath } from '../../src/cluster/resource.ts';
import { podsResource } from '../../src/informers/index.ts';
import { listening } from '../webhook/listening.ts';
import { bearer } from './bearer.ts';

let authority: Authority;
let pair: KeyPair;

beforeAll(async () => {
  const now = new Date();
  authority = await issueAuthority(now);
  pair = await issueServingCertificate(authority, ['kubernetes.default.svc'], now);
});

const NEVER = new AbortController().signal;

/** A server that answers every request so; resolves with its address and what it was asked. */
async function serve(
  answer: http.RequestListener,
  tls = false,
): Promise<{ url: URL; asked: http.IncomingMessage[] }> {
  const asked: http.IncomingMessage[] = [];
  const listener: http.RequestListener = (request, response) => {
    asked.push(request);
    answer(request, response);
  };
  const server = tls
    ? https.createServer({ cert: pair.cert, key: pair.key }, listener)
    : http.createServer(listener);
  const port = await listening(server);
  return { url: new URL(`${tls ? 'https' : 'http'}://127.0.0.1:${port}`), asked };
}

const version =
  (gitVersion: unknown): http.RequestListener =>
  (_request, response) =>
    void response.end(JSON.stringify({ major: '1', minor: '36', gitVersion }));

describe('the API server', () => {
  it.each([
    {
      name: 'whose CA is known, under the name that was given',
      known: true,
      serverName: 'kubernetes.default.svc',
    },
    { name: 'of another name', known: true, serverName: undefined, refusal: /altnames/ },
    { name: 'of an unknown CA', known: false, serverName: 'kubernetes.default.svc', refusal: /certificate/ },
    { name: 'that is not to be verified', known: false, serverName: undefined, insecure: true },
  ])('$name', async ({ known, serverName, refusal, insecure = false }) => {
    const { url } = await serve(version('v1.36.3'), true);
    const ca = known ? authority.certificate : undefined;
    const credentials = async () => ({ ca, servername: serverName, rejectUnauthorized: !insecure });
    const answer = kubeVersion({ server: url, credentials }, NEVER);
    if (refusal === undefined) expect(await answer).toBe('v1.36.3');
    else
      await expect(answer).rejects.toMatchObject({
        reason: 'Unreachable',
        message: expect.stringMatching(refusal),
      });
  });

  it('may stand behind a path, and gets the credentials', async () => {
    const { url, asked } = await serve(version('v1.30.4-eks-a737599'));
    const server = new URL('/k8s/clusters/c-1', url);
    expect(await kubeVersion({ server, credentials: async () => bearer('T') }, NEVER)).toBe(
      'v1.30.4-eks-a737599',
    );
    expect(asked[0]?.url).toBe('/k8s/clusters/c-1/version');
    expect(asked[0]?.headers).toMatchObject({ authorization: 'Bearer T', 'user-agent': 'linger' });
  });

  it.each([
    { name: 'no version', answer: version(36) },
    {
      name: 'no JSON',
      answer: ((_request, response) => void response.end('<html>')) as http.RequestListener,
    },
  ])('is not believed when it answers with $name', async ({ answer }) => {
    const { url } = await serve(answer);
    await expect(kubeVersion({ server: url, credentials: async () => ({}) }, NEVER)).rejects.toMatchObject({
      reason: 'Malformed',
    });
  });
});

describe('an answer', () => {
  const open = async (answer: http.RequestListener) => {
    const { url } = await serve(answer);
    const connection = { server: url, credentials: async () => ({}) };
    const agent = newAgent(connection);
    onTestFinished(() => agent.destroy());
    return ask(connection, { path: '/', agent, signal: NEVER, answerMs: 300 });
  };

  it.each<{ name: string; answer: http.RequestListener; failure: object }>([
    {
      name: 'longer than its bound',
      answer: (_request, response) => void response.end('x'.repeat(2_000)),
      failure: { reason: 'Malformed', message: expect.stringContaining('more than 1000 bytes') },
    },
    {
      name: 'that stops in the middle',
      answer: (_request, response) => void response.write('x'),
      failure: { reason: 'Cut', message: expect.stringContaining('nothing arrived for 300 ms') },
    },
    {
      name: 'that is cut',
      answer: (request, response) => {
        response.writeHead(200, { 'content-length': '10' });
        response.write('x', () => request.socket.resetAndDestroy());
      },
      failure: { reason: 'Cut' },
    },
  ])('$name is a failure', async ({ answer, failure }) => {
    const response = await open(answer);
    await expect(readText(response, 1_000, 300)).rejects.toMatchObject(failure);
  });

  const page = Buffer.from(
    JSON.stringify({ items: Array.from({ length: 9_000 }, (_, index) => ({ index })) }),
  );
  const zipped = (bytes: Buffer, most = bytes.length): http.RequestListener => {
    // Not while a client waits: packing 10 MB takes as long as it may on a busy machine.
    const packed = gzipSync(bytes);
    return (_request, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip', 'content-length': packed.length });
      response.write(packed.subarray(0, most), () => most < packed.length && response.destroy());
      if (most >= packed.length) response.end();
    };
  };

  it('that is compressed is read as it was', async () => {
    expect(await readText(await open(zipped(page)), page.length, 300)).toBe(page.toString());
  });

  it.each<{ name: string; answer: http.RequestListener; failure: object }>([
    {
      name: 'is much longer than it seems',
      answer: zipped(Buffer.alloc(10_000_000)),
      failure: { reason: 'Malformed', message: expect.stringContaining(`more than ${page.length} bytes`) },
    },
    { name: 'is cut', answer: zipped(page, 2_000), failure: { reason: 'Cut' } },
    {
      name: 'stops in the middle',
      answer: (_request, response) => {
        response.writeHead(200, { 'content-encoding': 'gzip' });
        response.write(gzipSync(page).subarray(0, 2_000));
      },
      failure: { reason: 'Cut', message: expect.stringContaining('nothing arrived for 300 ms') },
    },
    {
      name: 'is not what it says',
      answer: (_request, response) => {
        response.writeHead(200, { 'content-encoding': 'gzip' });
        response.end(page);
      },
      failure: { reason: 'Cut', message: expect.stringContaining('incorrect header') },
    },
  ])('that is compressed and $name is a failure', async ({ answer, failure }) => {
    const response = await open(answer);
    await expect(readText(response, page.length, 300)).rejects.toMatchObject(failure);
  });

  it.each([true, false, undefined])('is asked for compressed: %s', async (compressed) => {
    const { url, asked } = await serve(version('v1.36.3'));
    const connection = { server: url, credentials: async () => ({}), compressed };
    const pages = pagesOf(podsResource(), connection);
    onTestFinished(() => pages.close());
    const failure = pages.page(undefined, { limit: 1, signal: NEVER, answerMs: 10_000 });
    await expect(failure).rejects.toMatchObject({ reason: 'Malformed' });
    expect(asked[0]?.headers['accept-encoding']).toBe(compressed === true ? 'gzip' : undefined);
  });

  it.each([
    { status: 410, reason: 'Expired' },
    { status: 429, reason: 'Throttled', retryAfter: '2', retryAfterMs: 2_000 },
    { status: 503, reason: 'ServerError', retryAfter: 'Wed, 21 Oct 2026 07:28:00 GMT' },
    { status: 401, reason: 'Unauthorized' },
    { status: 403, reason: 'Forbidden' },
    { status: 404, reason: 'NotServed' },
    { status: 301, reason: 'Refused' },
  ])('of $status is $reason', async ({ status, reason, retryAfter, retryAfterMs }) => {
    const headers = retryAfter === undefined ? {} : { 'retry-after': retryAfter };
    const body = JSON.stringify({ kind: 'Status', message: 'as the server says' });
    const failure = open((_request, response) => void response.writeHead(status, headers).end(body));
    await expect(failure).rejects.toMatchObject({
      reason,
      retryAfterMs,
      message: `${status}: as the server says`,
    });
  });
});

describe('a request', () => {
  it('for metadata asks for the kinds that lists and watches of it have', () => {
    expect(acceptOf({ metadataOnly: true }, 'list')).toBe(
      'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1',
    );
    expect(acceptOf({ metadataOnly: true }, 'watch')).toBe(
      'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1',
    );
    expect(acceptOf({}, 'watch')).toBe('application/json');
  });

  it('carries the selectors', () => {
    const query = { labelSelector: 'app in (a,b)', fieldSelector: 'metadata.name=x' };
    expect(requestPath({ path: '/api/v1/pods', query }, { limit: '1' })).toBe(
      '/api/v1/pods?labelSelector=app+in+%28a%2Cb%29&fieldSelector=metadata.name%3Dx&limit=1',
    );
  });
});
