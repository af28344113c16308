import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import supertest from 'supertest';
import { describe, expect, it } from 'vitest';
import { CURSOR_HEADER, REPORT_RESULTS, type ReportResult } from '../../../src/core/api/index.ts';
import { MAX_REPORT_BYTES } from '../../../src/webhook/report-endpoint.ts';
import { Desk, type Posted } from './desk.ts';

const REPORT = {};
const WITH_EVERYTHING = JSON.stringify({ padding: 'x'.repeat(MAX_REPORT_BYTES) });

describe('a report is refused', () => {
  it.each<[ReportResult, string, Posted, RegExp]>([
    ['NoToken', 'without a token', { token: '' }, /Authorization: Bearer/],
    [
      'NoToken',
      'with another kind of credentials',
      { token: '', headers: { Authorization: 'Basic Zm9v' } },
      /Bearer/,
    ],
    [
      'TokenRefused',
      'with a token that nobody vouches for, such as one for another audience',
      { token: 'strange' },
      /--reports-audience/,
    ],
    [
      'NotAllowed',
      'from another consumer’s gateway',
      { token: 'of-another-gateway' },
      /discoveryconsumers\/reports/,
    ],
    ['NoVerdict', 'while the API server is away', { token: 'while-the-server-is-away' }, /try again/],
    [
      'NoSuchConsumer',
      'for a consumer that does not exist',
      { consumer: 'edgy', body: REPORT },
      /correct the name/,
    ],
    [
      'NotByReports',
      'for a consumer that is measured otherwise',
      { consumer: 'mesh', body: REPORT },
      /mesh is measured by probe/,
    ],
    ['InvalidReport', 'that is no JSON', { body: 'gw-1' }, /^the body is not a report: /],
    ['InvalidReport', 'that is no object', { body: '["gw-1"]' }, /expected object/],
    ['InvalidReport', 'with a misspelt field', { body: { ...REPORT, syncSecond: 1 } }, /syncSecond/],
    [
      'InvalidReport',
      'with a resourceVersion that is a number',
      { body: { resourceVersions: { endpointSlices: 48213 } } },
      /^resourceVersions.endpointSlices: expected a resourceVersion/,
    ],
    [
      'InvalidReport',
      'with a resourceVersion that cannot be compared',
      { body: { resourceVersions: { endpoints: '0x1f' } } },
      /^resourceVersions.endpoints: expected a resourceVersion/,
    ],
    [
      'InvalidReport',
      'with a cursor and resourceVersions',
      { body: { cursor: 'a', resourceVersions: { endpoints: '1' } } },
      /not both/,
    ],
    [
      'InvalidReport',
      'with resourceVersions of nothing, which would acknowledge everything',
      { body: { resourceVersions: {} } },
      /^resourceVersions: expected endpointSlices, endpoints or both/,
    ],
    ['InvalidReport', 'with a cursor that is none', { body: { ...REPORT, cursor: 7 } }, /^cursor: /],
    [
      'ForeignCursor',
      'with a cursor that was made up',
      { body: { ...REPORT, cursor: 'latest' } },
      /unchanged/,
    ],
    ['TooLarge', 'that is too long', { body: WITH_EVERYTHING }, /longer than 4096 bytes/],
    [
      'Compressed',
      'that is compressed',
      { body: REPORT, headers: { 'Content-Encoding': 'gzip' } },
      /send it as it is/,
    ],
  ])('%s: %s', async (reason, _, posted, message) => {
    const desk = new Desk();
    const { status, body, headers } = await desk.post(posted);
    expect(status).toBe(REPORT_RESULTS[reason].status);
    expect(body.reason).toBe(reason);
    expect(body.message).toMatch(message);
    expect(headers['content-type']).toBe('application/json');
    const known = desk.consumers.has(posted.consumer ?? 'edge') ? (posted.consumer ?? 'edge') : '';
    expect(desk.counted).toEqual([[known, reason]]);
    expect(desk.lags).toEqual([]);
    if (status === 401) expect(headers['www-authenticate']).toBe('Bearer');
    if (status === 503) expect(Number(headers['retry-after'])).toBeGreaterThan(0);
  });

  it('by a replica that does not lead, before anybody is asked about the token, and the connection ends', async () => {
    const desk = new Desk();
    desk.leading = false;
    const { status, body, headers } = await desk.post({ token: 'strange', body: REPORT });
    expect([status, body.reason]).toEqual([503, 'NotLeader']);
    expect(headers.connection).toBe('close');
    expect(Number(headers['retry-after'])).toBeGreaterThan(0);
  });

  it.each<[string, Posted]>([
    ['an unknown consumer', { consumer: 'x'.repeat(12_000) }],
    ['one that is measured otherwise', { consumer: 'mesh' }],
  ])('for %s before anything is asked about the token', async (_, posted) => {
    const desk = new Desk();
    await desk.post({ ...posted, token: 'made-up' });
    expect(desk.judged).toEqual([]);
  });

  it('nothing of a token gets into the answer or the log', async () => {
    const desk = new Desk();
    for (const token of ['strange', 'of-another-gateway', 'gw-1']) {
      const { body } = await desk.post({ token, body: { cursor: 'none' } });
      expect(JSON.stringify(body)).not.toContain(token);
    }
    expect(desk.logs.join()).not.toMatch(/strange|of-another/);
  });
});

describe('a gateway that reports', () => {
  it('around each sync is measured', async () => {
    const desk = new Desk();
    for (let sync = 0; sync < 20; sync++) {
      const { body } = await desk.report('gw-1');
      desk.now += 2_000;
      const { status, body: next, headers } = await desk.report('gw-1', body.cursor);
      expect(status).toBe(200);
      expect(headers[CURSOR_HEADER.toLowerCase()]).toBe(next.cursor);
      desk.now += 8_000;
    }
    expect(Math.min(...desk.lags)).toBeGreaterThanOrEqual(2);
    expect(Math.max(...desk.lags)).toBeGreaterThan(11);
    expect(Math.max(...desk.lags)).toBeLessThan(12.1);
    expect(desk.reports.states().get('edge')).toMatchObject({ instances: 1, trouble: undefined });
    expect(desk.counted.map(([, result]) => result)).toEqual(Array(20).fill(['Asked', 'Synced']).flat());
  });

  it('once after each sync is measured, never too short', async () => {
    const desk = new Desk();
    let cursor: string | undefined;
    for (let sync = 0; sync < 20; sync++) {
      cursor = (await desk.report('gw-1', cursor)).body.cursor;
      desk.now += 10_000;
    }
    expect(desk.lags.length).toBeGreaterThan(160);
    expect(Math.min(...desk.lags)).toBeGreaterThan(9.9);
    expect(Math.max(...desk.lags)).toBeLessThan(20.1);
  });

  it('goes on after a change of leader with the cursor that it has, which says what it has applied', async () => {
    const desk = new Desk();
    const { body } = await desk.report('gw-1');
    desk.changeLeader();
    desk.versions = { EndpointSlice: '200', Endpoints: '200' };
    const first = await desk.report('gw-1', body.cursor);
    expect(first.status).toBe(200);
    const waiting = (slices: string) => desk.reports.waitingFor('edge', { EndpointSlice: slices });
    expect([waiting('100'), waiting('101')]).toEqual([[], ['gw-1']]);
    expect(desk.lags).toEqual([]);
    desk.now += 10_000;
    expect((await desk.report('gw-1', first.body.cursor)).status).toBe(200);
    expect(waiting('200')).toEqual([]);
  });

  it('acknowledges nothing by a cursor from before Linger had read the cluster', async () => {
    const desk = new Desk();
    desk.versions = {};
    const { body } = await desk.report('gw-1');
    expect((await desk.report('gw-1', body.cursor)).status).toBe(200);
    expect(desk.reports.waitingFor('edge', { EndpointSlice: '1' })).toEqual(['gw-1']);
    desk.versions = { EndpointSlice: '7', Endpoints: '7' };
    const { body: next } = await desk.report('gw-1');
    await desk.report('gw-1', next.cursor);
    expect(desk.reports.waitingFor('edge', { EndpointSlice: '7', Endpoints: '7' })).toEqual([]);
  });

  it('posts what it has read of Kubernetes instead of a cursor', async () => {
    const desk = new Desk();
    const post = (endpointSlices: string) =>
      desk.post({ token: 'proxy', body: { resourceVersions: { endpointSlices } } });
    expect((await post('99')).status).toBe(200);
    expect(desk.reports.waitingFor('edge', desk.versions)).toEqual(['proxy']);
    expect((await post('100')).status).toBe(200);
    expect(desk.reports.waitingFor('edge', desk.versions)).toEqual([]);
  });

  it('is the pod of its token, whatever name it sends', async () => {
    const desk = new Desk();
    for (const instance of ['a', 'b', 'constructor', '__proto__']) {
      desk.now += 1_000;
      const { body } = await desk.post({ body: { instance } });
      desk.now += 1_000;
      expect((await desk.post({ body: { instance, cursor: body.cursor } })).status).toBe(200);
    }
    expect(desk.reports.states().get('edge')?.instances).toBe(1);
  });

  it.each([
    ['another instance', 'edge', 'gw-2'],
    ['another consumer', 'inner', 'gw-1'],
  ])('cannot use the cursor of %s', async (_, consumer, token) => {
    const desk = new Desk();
    const { body } = await desk.report('gw-1');
    const answer = await desk.post({ consumer, token, body: { cursor: body.cursor } });
    expect([answer.status, answer.body.reason]).toEqual([409, 'ForeignCursor']);
    expect(answer.headers[CURSOR_HEADER.toLowerCase()]).toBe(answer.body.cursor);
    expect((await desk.post({ consumer, token, body: { cursor: answer.body.cursor } })).status).toBe(200);
  });

  it('cannot send a cursor back twice, and none that is older than another that it has sent back', async () => {
    const desk = new Desk();
    const { body: first } = await desk.report('gw-1');
    const { body: second } = await desk.report('gw-1');
    expect((await desk.report('gw-1', second.cursor)).status).toBe(200);
    for (const cursor of [second.cursor, first.cursor])
      expect((await desk.report('gw-1', cursor)).body.reason).toBe('UsedCursor');
  });

  it('sends what older clients send, too', async () => {
    const desk = new Desk();
    const { body } = await desk.post({ body: { instance: 'gw-1', cursor: '' } });
    const sync = { instance: 'gw-1', cursor: body.cursor, syncSeconds: 0.2 };
    expect((await desk.post({ body: sync })).status).toBe(200);
  });

  it('for a consumer that is deleted meanwhile is refused, and counts from 0 when it comes back', async () => {
    const desk = new Desk();
    const { body } = await desk.report('gw-1');
    desk.consumers.delete('edge');
    desk.keep();
    expect((await desk.report('gw-1', body.cursor)).body.reason).toBe('NoSuchConsumer');
    expect(desk.reports.states().has('edge')).toBe(false);
    desk.consumers.set('edge', 'reports');
    desk.keep();
    expect((await desk.report('gw-1', body.cursor)).status).toBe(200);
  });
});

describe('an instance that floods', () => {
  it('is refused, and its reports neither count nor keep others from theirs', async () => {
    const desk = new Desk();
    const quiet = await desk.report('gw-2');
    const statuses: number[] = [];
    for (let each = 0; each < 60; each++) {
      desk.now += 10;
      statuses.push((await desk.report('gw-1')).status);
    }
    const refused = statuses.filter((status) => status === 429).length;
    expect(refused).toBeGreaterThan(40);
    expect(statuses.slice(0, 12)).toEqual(Array(12).fill(200));
    const { status, body, headers } = await desk.report('gw-1');
    expect([status, body.reason, headers['retry-after']]).toEqual([429, 'TooManyReports', '1']);
    expect((await desk.report('gw-2', quiet.body.cursor)).status).toBe(200);
    desk.now += 1_000;
    expect((await desk.report('gw-1')).status).toBe(200);
  });

  it('on one connection, without waiting for answers, gets one report taken', async () => {
    const desk = new Desk();
    const server = createServer(desk.app).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    const head = 'POST /v1/consumers/edge/reports HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer gw-1\r\n';
    socket.write(`${head}Content-Length: 2\r\n\r\n{}`.repeat(50));
    const answers = await text(socket);
    server.close();
    expect(answers.match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 429']);
  });
});

describe('conditions', () => {
  it.each<[string, (desk: Desk) => Promise<unknown>, string, RegExp]>([
    ['before anybody reports', async () => undefined, 'NoInstances', /no instance has completed a sync/],
    [
      'after refusals',
      (desk) => desk.post({ token: 'strange', body: REPORT }),
      'Unauthorized',
      /rejects the token/,
    ],
    ['after reports that are none', (desk) => desk.post({ body: '' }), 'NoInstances', /not a report/],
    [
      'after one sync',
      async (desk) => desk.report('gw-1', (await desk.report('gw-1')).body.cursor),
      'Waiting',
      /a second sync/,
    ],
    [
      'after a silence',
      async (desk) => {
        await desk.report('gw-1', (await desk.report('gw-1')).body.cursor);
        desk.now += 1_000_000;
      },
      'NoInstances',
      /fallen silent: gw-1/,
    ],
  ])('%s', async (_, happen, reason, message) => {
    const desk = new Desk();
    await happen(desk);
    const trouble = desk.reports.states().get('edge')?.trouble;
    expect(trouble?.reason).toBe(reason);
    expect(trouble?.message).toMatch(message);
  });

  it('of a consumer that is well do not mind what strangers send', async () => {
    const desk = new Desk();
    let cursor: string | undefined;
    for (let sync = 0; sync < 4; sync++) {
      cursor = (await desk.report('gw-1', cursor)).body.cursor;
      desk.now += 10_000;
    }
    await desk.post({ token: 'strange', body: REPORT });
    expect(desk.reports.states().get('edge')?.trouble).toBeUndefined();
  });
});

it.each<[string, string, number]>([
  ['GET', '/v1/consumers/edge/reports', 405],
  ['PUT', '/v1/consumers/edge/reports', 405],
  ['POST', '/v1/consumers/edge/reports/', 404],
  ['POST', '/v1/consumers/edge', 404],
  ['POST', '/v1/consumers/%zz/reports', 404],
  ['GET', '/v1/', 404],
])('%s %s: %d, as JSON', async (method, path, status) => {
  const answer = await supertest(new Desk().app)[method.toLowerCase() as 'get'](path);
  expect(answer.status).toBe(status);
  expect(answer.body).toEqual({ message: expect.any(String) });
});

it('the answers of 200 and of refusals are those of the OpenAPI document', async () => {
  const desk = new Desk();
  const { body } = await supertest(desk.app).get('/v1/openapi.json');
  const { Accepted, Refused } = body.components.schemas;
  const accepted = await desk.report('gw-1');
  expect(Object.keys(accepted.body)).toEqual(Object.keys(Accepted.properties));
  const refused = await desk.report('gw-1', 'none');
  expect(Object.keys(refused.body).toSorted()).toEqual(Object.keys(Refused.properties).toSorted());
  expect(Refused.properties.reason.enum).toContain(refused.body.reason);
});
