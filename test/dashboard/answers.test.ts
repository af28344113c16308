import request from 'supertest';
import { describe, expect, it } from 'vitest';
import { type Answers, dashboardApp } from '../../src/dashboard/index.ts';
import { sampleSources } from '../page/sample-views.ts';

const TOKEN = 'the-token-of-this-run';
const HEADERS = { Host: '127.0.0.1:8088', Authorization: `Bearer ${TOKEN}`, 'Accept-Encoding': 'gzip' };

function asking(sources: Answers) {
  const app = dashboardApp(sources, TOKEN, new Map());
  return (path: string, headers: Readonly<Record<string, string>> = {}) =>
    request(app)
      .get(`/api/v1${path}`)
      .set({ ...HEADERS, ...headers });
}

const PATHS = ['/', '/now', '/workloads', '/timeline', '/consumers', '/lag', '/what-if?hook=Hold'];

describe('an answer of the API', () => {
  // A browser sends `no-cache` with each tag that a script has set.
  const again = (etag: string) => ({ 'If-None-Match': etag, 'Cache-Control': 'no-cache' });

  it.each(PATHS)('%s: is not sent again to who has it', async (path) => {
    const get = asking(sampleSources());
    const first = await get(path);
    expect([first.status, first.headers.etag]).toEqual([200, expect.stringMatching(/^".{43}"$/)]);
    const second = await get(path, again(first.headers.etag as string));
    expect([second.status, second.text]).toEqual([304, '']);
  });

  it('is sent again once it has changed', async () => {
    const sources = sampleSources();
    let version = '1';
    const get = asking({ ...sources, now: async () => ({ ...(await sources.now!()), headline: version }) });
    const { headers } = await get('/now');
    version = '2';
    const { status, body } = await get('/now', again(headers.etag as string));
    expect([status, body]).toMatchObject([200, { headline: '2' }]);
  });

  it('is compressed where that is worth it, and only for who reads it', async () => {
    const sources = sampleSources();
    const now = async () => ({ ...(await sources.now!()), headline: 'x'.repeat(100_000) });
    const get = asking({ ...sources, now });
    const zipped = await get('/now');
    expect(zipped.headers).toMatchObject({ 'content-encoding': 'gzip', vary: 'Accept-Encoding' });
    expect(Number(zipped.headers['content-length'])).toBeLessThan(10_000);
    const plain = await get('/now', { 'Accept-Encoding': 'identity' });
    expect(plain.headers['content-encoding']).toBeUndefined();
    expect(plain.body).toEqual(zipped.body);
    expect((await get('/')).headers['content-encoding']).toBeUndefined();
  });
});
