import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { AccessReviews } from '../../src/cluster/access-reviews.ts';
import { bearer } from './bearer.ts';

/** A server that answers each request so. */
async function answering(
  answer: (path: string, body: unknown) => { status: number; body: unknown } | 'nothing',
) {
  const requests: { path: string; body: unknown; authorization: string | undefined }[] = [];
  const server = http.createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body: unknown = JSON.parse(Buffer.concat(chunks).toString());
    requests.push({ path: request.url ?? '', body, authorization: request.headers.authorization });
    const said = answer(request.url ?? '', body);
    if (said !== 'nothing') response.writeHead(said.status).end(JSON.stringify(said.body));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const ending = new AbortController();
  onTestFinished(() => {
    ending.abort();
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as AddressInfo;
  const connection = {
    server: new URL(`http://127.0.0.1:${port}`),
    credentials: async () => bearer('lingers-own'),
  };
  const reviews = new AccessReviews({ connection, requestMs: 300, connections: 2, signal: ending.signal });
  return { reviews, requests };
}

const USER = {
  username: 'system:serviceaccount:edge:gateway',
  uid: '7',
  groups: ['a'],
  extra: { pod: ['gw-1'] },
};
const status = (given: object) => () => ({ status: 201, body: { metadata: {}, status: given } });
const ACCESS = {
  verb: 'create',
  group: 'linger.dev',
  resource: 'discoveryconsumers',
  subresource: 'reports',
  name: 'edge',
};

describe('a TokenReview', () => {
  it('asks for the audience, with credentials of our own', async () => {
    const { reviews, requests } = await answering(
      status({ authenticated: true, user: USER, audiences: ['reports'] }),
    );
    expect(await reviews.userOf('theirs', 'reports')).toEqual(USER);
    expect(requests).toEqual([
      {
        path: '/apis/authentication.k8s.io/v1/tokenreviews',
        authorization: 'Bearer lingers-own',
        body: {
          apiVersion: 'authentication.k8s.io/v1',
          kind: 'TokenReview',
          spec: { token: 'theirs', audiences: ['reports'] },
        },
      },
    ]);
  });

  it.each([
    ['not authenticated', { authenticated: false, user: {}, error: 'expired' }],
    ['no answer to that', { user: USER, audiences: ['reports'] }],
    ['of an authenticator that knows no audiences', { authenticated: true, user: USER }],
    [
      'for another audience',
      { authenticated: true, user: USER, audiences: ['https://kubernetes.default.svc'] },
    ],
    ['of nobody', { authenticated: true, user: {}, audiences: ['reports'] }],
  ])('%s: nobody', async (_, said) => {
    const { reviews } = await answering(status(said));
    expect(await reviews.userOf('theirs', 'reports')).toBeUndefined();
  });
});

describe('a SubjectAccessReview', () => {
  it.each([
    [{ allowed: true }, true],
    [{ allowed: false }, false],
    [{ allowed: true, denied: true }, false],
    [{}, false],
    [{ allowed: 'true' }, false],
  ])('%j: %s', async (said, allowed) => {
    const { reviews, requests } = await answering(status(said));
    expect(await reviews.isAllowed(USER, ACCESS)).toBe(allowed);
    const { username, ...rest } = USER;
    expect(requests[0]).toMatchObject({
      path: '/apis/authorization.k8s.io/v1/subjectaccessreviews',
      body: { spec: { user: username, ...rest, resourceAttributes: ACCESS } },
    });
  });
});

describe('what cannot be asked fails', () => {
  it.each<[string, Parameters<typeof answering>[0], string]>([
    ['a server that fails', () => ({ status: 500, body: { message: 'etcd' } }), 'ServerError'],
    ['a right that Linger does not have', () => ({ status: 403, body: { message: 'no' } }), 'Forbidden'],
    ['a server that asks for patience', () => ({ status: 429, body: {} }), 'Throttled'],
    ['an answer that is none', () => ({ status: 201, body: ['yes'] }), 'Malformed'],
    ['a server that hangs', () => 'nothing', 'Unreachable'],
  ])('%s', async (_, answer, reason) => {
    const { reviews } = await answering(answer);
    await expect(reviews.userOf('theirs', 'reports')).rejects.toMatchObject({ reason });
  });
});
