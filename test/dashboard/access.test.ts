import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { apiError, dashboardApp, pageApp } from '../../src/dashboard/index.ts';

const TOKEN = 'the-token-of-this-run';
const HOST = '127.0.0.1:8088';
const root = { version: '0.0.0', views: ['workloads'], source: null } as const;
const page = new Map([
  ['/index.html', { type: 'text/html; charset=utf-8', bytes: Buffer.from('<p>page</p>') }],
]);
const app = dashboardApp({ root }, TOKEN, page);

const get = (path: string, headers: Readonly<Record<string, string>> = {}) =>
  request(app)
    .get(path)
    .set({ Host: HOST, ...headers });
const bearer = { Authorization: `Bearer ${TOKEN}` };

describe('the API', () => {
  it('answers with the token', async () => {
    const { status, body } = await get('/api/v1', bearer);
    expect([status, body]).toEqual([200, root]);
  });

  it.each([
    ['no token', {}],
    ['another token', { Authorization: 'Bearer another' }],
    ['one of the same length', { Authorization: `Bearer ${TOKEN.replace('t', 'x')}` }],
    ['the token in another scheme', { Authorization: `Basic ${TOKEN}` }],
  ])('refuses %s, whatever is asked for', async (_, headers) => {
    for (const path of ['/api/v1', '/api/v1/workloads', '/api/v1/nothing']) {
      const { status, body } = await get(path, headers as Record<string, string>);
      expect([status, apiError.parse(body).error.code]).toEqual([401, 'no-token']);
    }
  });

  it('takes the token from no other place', async () => {
    expect((await get(`/api/v1?token=${TOKEN}`, { Cookie: `token=${TOKEN}` })).status).toBe(401);
  });
});

describe('another site', () => {
  const foreign = {
    'a name of another site that leads to this machine': { Host: 'attacker.example:8088' },
    'a name that begins as a loopback address does': { Host: '127.0.0.1.attacker.example' },
    'no name': { Host: '' },
    'a script of another site': { Origin: 'https://attacker.example' },
    'a script of a page without an origin, as in a sandbox': { Origin: 'null' },
    'a page of another port of this machine': { Origin: 'http://127.0.0.1:3000' },
    'a link or an image of another site': { 'Sec-Fetch-Site': 'cross-site' },
    'a page of another port, by its own word': { 'Sec-Fetch-Site': 'same-site' },
  };
  it.each(Object.entries(foreign))('%s gets nothing, even with the token', async (_, headers) => {
    for (const path of ['/', '/api/v1']) {
      const { status, body } = await get(path, { ...bearer, ...headers });
      expect([status, apiError.parse(body).error.code]).toEqual([403, 'foreign-page']);
    }
  });

  it.each(['127.0.0.1:8088', 'localhost:9000', '[::1]:8088'])('%s is this machine', async (host) => {
    const own = { Host: host, Origin: `http://${host}`, 'Sec-Fetch-Site': 'same-origin' };
    expect((await get('/api/v1', { ...bearer, ...own })).status).toBe(200);
  });
});

describe('every answer', () => {
  it.each(['/', '/api/v1', '/none'])('%s loads nothing from outside, and is kept nowhere', async (path) => {
    const { headers } = await get(path);
    const policy = headers['content-security-policy'] ?? '';
    expect(policy.split('; ')).toEqual(expect.arrayContaining(["default-src 'none'", "script-src 'self'"]));
    expect(policy).not.toMatch(/unsafe|\*|https?:|data:/);
    expect(headers).toMatchObject({
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
      'cross-origin-resource-policy': 'same-origin',
      'cache-control': 'no-store',
    });
    expect(headers).not.toHaveProperty('access-control-allow-origin');
    expect(headers).not.toHaveProperty('x-powered-by');
  });
});

it('the page for manifests needs no token, and another site cannot frame it', async () => {
  const { status, headers, text } = await request(pageApp(Buffer.from('<p>page</p>'))).get('/');
  expect([status, text]).toEqual([200, '<p>page</p>']);
  expect(headers).toMatchObject({
    'content-security-policy': "frame-ancestors 'none'",
    'x-content-type-options': 'nosniff',
    'cross-origin-opener-policy': 'same-origin',
  });
});
