import supertest from 'supertest';
import { describe, expect, it } from 'vitest';
import { REPORT_RESULTS, type ReportResult } from '../../../src/core/catalog/report-results.ts';
import { MAX_REPORT_BYTES } from '../../../src/serve/reports/app.ts';
import { CURSOR_HEADER } from '../../../src/serve/reports/refusals.ts';
import { Desk, type Posted } from './desk.ts';

const REPORT = { instance: 'gw-1' };
const WITH_EVERYTHING = JSON.stringify({ instance: 'gw-1', padding: 'x'.repeat(MAX_REPORT_BYTES) });

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
    ['InvalidReport', 'that is no JSON', { body: 'gw-1' }, /^the body is no report: /],
    ['InvalidReport', 'that is no object', { body: '["gw-1"]' }, /expected object/],
    ['InvalidReport', 'of nobody', { body: {} }, /^instance: /],
    [
      'InvalidReport',
      'of an instance without a name',
      { body: { instance: '' } },
      /^instance: expected 1 to 128/,
    ],
    [
      'InvalidReport',
      'with a name that is too long',
      { body: { instance: 'x'.repeat(129) } },
      /^instance: expected 1 to 128/,
    ],
    ['InvalidReport', 'with a line break in the name', { body: { instance: 'gw\n1' } }, /^instance: /],
    ['InvalidReport', 'with a misspelt field', { body: { ...REPORT, syncSecond: 1 } }, /syncSecond/],
    ['InvalidReport', 'with a negative duration', { body: { ...REPORT, syncSeconds: -1 } }, /^syncSeconds: /],
    [
      'InvalidReport',
      'with an hour and a second',
      { body: { ...REPORT, syncSeconds: 3601 } },
      /^syncSeconds: /,
    ],
    [
      'InvalidReport',
      'with a time of day',
      { body: { ...REPORT, syncSeconds: '2026-11-21T20:00:00Z' } },
      /^syncSeconds: expected a number/,
    ],
    ['InvalidReport', 'with a cursor that is none', { body: { ...REPORT, cursor: 7 } }, /^cursor: /],
    [
      'ForeignCursor',
      'with a cursor that was made up',
      { body: { ...REPORT, cursor: 'latest' } },
      /as it came/,
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

  it('nothing of a token gets into the answer or the log', async () => {
    const desk = new Desk();
    for (const token of ['strange', 'of-another-gateway', 'good']) {
      const { body } = await desk.post({ token, body: { instance: 'gw-1', cursor: 'none' } });
      expect(JSON.stringify(body)).not.toContain(token === 'good' ? 'Bearer' : token);
    }
    expect(desk.logs.join()).not.toMatch(/strange|of-another/);
  });
});

describe('a gateway that reports', () => {
  it('once after each sync is measured', async () => {
    const desk = new Desk();
    let cursor: string | undefined;
    for (let sync = 0; sync < 20; sync++) {
      const { status, body, headers } = await desk.report('gw-1', cursor);
      expect(status).toBe(200);
      expect(headers[CURSOR_HEADER.toLowerCase()]).toBe(body.cursor);
      cursor = body.cursor;
      desk.now += 10_000;
    }
    // All but the first two begin something.
    expect(desk.lags).toHaveLength(180);
    expect(Math.max(...desk.lags)).toBeLessThanOrEqual(10);
    expect(desk.reports.states().get('edge')).toMatchObject({ instances: 1, trouble: undefined });
    expect(desk.counted.map(([, result]) => result)).toEqual(['Asked', ...Array(19).fill('Synced')]);
  });

  it('around each sync is measured with how long its syncs take', async () => {
    const desk = new Desk();
    for (let sync = 0; sync < 20; sync++) {
      const { body } = await desk.report('gw-1', '');
      desk.now += 2_000;
      expect((await desk.report('gw-1', body.cursor)).status).toBe(200);
      desk.now += 8_000;
    }
    expect(Math.min(...desk.lags)).toBeGreaterThanOrEqual(2);
    expect(Math.max(...desk.lags)).toBeGreaterThan(11);
    expect(desk.reports.states().get('edge')?.limits.join()).not.toContain('syncSeconds');
  });

  it('goes on after a change of leader with the cursor of the refusal', async () => {
    const desk = new Desk();
    const { body } = await desk.report('gw-1');
    desk.changeLeader();
    desk.now += 10_000;
    const refused = await desk.report('gw-1', body.cursor);
    expect([refused.status, refused.body.reason]).toEqual([409, 'PastCursor']);
    expect(refused.headers[CURSOR_HEADER.toLowerCase()]).toBe(refused.body.cursor);
    desk.now += 10_000;
    expect((await desk.report('gw-1', refused.body.cursor)).status).toBe(200);
    expect(desk.reports.states().get('edge')).toMatchObject({ instances: 1, trouble: { reason: 'Waiting' } });
  });

  it.each([
    ['another instance', 'edge', 'gw-2'],
    ['another consumer', 'inner', 'gw-1'],
  ])('cannot use the cursor of %s', async (_, consumer, instance) => {
    const desk = new Desk();
    const { body } = await desk.report('gw-1');
    const answer = await desk.post({ consumer, body: { instance, cursor: body.cursor } });
    expect([answer.status, answer.body.reason]).toEqual([409, 'ForeignCursor']);
  });

  it('cannot send a cursor back twice, and none that another has followed', async () => {
    const desk = new Desk();
    const { body: first } = await desk.report('gw-1');
    const { body: second } = await desk.report('gw-1', first.cursor);
    expect((await desk.report('gw-1', first.cursor)).body.reason).toBe('UsedCursor');
    expect((await desk.report('gw-1', second.cursor)).body.reason).toBe('UsedCursor');
  });

  it('and lies is not believed, and named', async () => {
    const desk = new Desk();
    await desk.report('gw-1');
    for (let lie = 0; lie < 3; lie++) {
      desk.now += 1_000;
      await desk.report('gw-1', 'AAAAAAAA.1.AAAAAAAAAAAAAAAAAAAAAA');
    }
    expect(desk.lags).toEqual([]);
    const trouble = desk.reports.states().get('edge')?.trouble;
    expect(trouble).toMatchObject({ reason: 'Implausible', message: expect.stringContaining('gw-1') });
  });

  it('has a clock that is an hour off, which nobody asks', async () => {
    const desk = new Desk();
    let cursor: string | undefined;
    for (let sync = 0; sync < 10; sync++) {
      cursor = (await desk.report('gw-1', cursor, 0.2)).body.cursor;
      const late = { Date: new Date(Date.now() + 3_600_000).toUTCString() };
      cursor = (await desk.post({ body: { instance: 'gw-1' }, headers: late })).body.cursor;
      desk.now += 10_000;
    }
    expect(Math.max(...desk.lags)).toBeLessThan(11);
  });

  it('for a consumer that is deleted meanwhile is told, and starts anew where it comes back', async () => {
    const desk = new Desk();
    const { body } = await desk.report('gw-1');
    desk.consumers.delete('edge');
    desk.keep();
    expect((await desk.report('gw-1', body.cursor)).body.reason).toBe('NoSuchConsumer');
    expect(desk.reports.states().has('edge')).toBe(false);
    desk.consumers.set('edge', 'reports');
    desk.keep();
    const again = await desk.report('gw-1', body.cursor);
    expect([again.status, again.body.reason]).toEqual([409, 'UsedCursor']);
    expect((await desk.report('gw-1', again.body.cursor)).status).toBe(200);
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

  it('under ever new names is refused by its token', async () => {
    const desk = new Desk();
    const statuses: number[] = [];
    for (let each = 0; each < 250; each++) statuses.push((await desk.report(`gw-${each}`)).status);
    expect(statuses.filter((status) => status === 429)).toHaveLength(50);
  });
});

describe('conditions', () => {
  it.each<[string, (desk: Desk) => Promise<unknown>, string, RegExp]>([
    ['before anybody reports', async () => undefined, 'NoInstances', /no instance has completed a sync/],
    [
      'after refusals',
      (desk) => desk.post({ token: 'strange', body: REPORT }),
      'Unauthorized',
      /does not vouch/,
    ],
    ['after reports that are none', (desk) => desk.post({ body: {} }), 'NoInstances', /no report/],
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
    for (let sync = 0; sync < 3; sync++) {
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
