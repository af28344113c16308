import { describe, expect, test } from 'vitest';
import {
  isShortfall,
  type JudgedEnd,
  judgeEnd,
  type PodEnd,
  type SendersLag,
  type Shortfall,
  sentenceOf,
  slowStopOf,
  type TerminationFinding,
  TerminationLog,
  terminationsIn,
} from '../../src/audit/terminations.ts';
import type { RemovalSample } from '../../src/core/lag/index.ts';
import { CLEAR } from '../core/timeline/sample-termination.ts';

/** A removal by two Services: of one after a second, of the other after `lag`. */
function removal(lag: number): RemovalSample {
  const common = { stage: 'EndpointSlice', namespace: 'shop', uid: 'u1', at: 0, version: '1' } as const;
  return {
    namespace: 'shop',
    pod: 'web-1',
    uid: 'u1',
    lag,
    at: 0,
    withdrawals: [
      { ...common, name: 'quick', lag: 1 },
      { ...common, name: 'slow', lag },
    ],
  };
}

const EDGE = { slowest: { name: 'edge', seconds: 4 }, unknown: [] };
const NO_SENDERS = { slowest: undefined, unknown: [] };

type Wait = number | readonly [least: number, most: number];
const judged = (lag: number, waits: Wait, grace?: number, senders: SendersLag = NO_SENDERS) => {
  const [least, most] = typeof waits === 'number' ? [waits, waits] : waits;
  const wait = { least, most };
  const { end, shortfall } = judgeEnd(removal(lag), { owner: 'Deployment/web', wait, grace, senders }, 1_000);
  expect(shortfall !== undefined).toBe(end.outcome === 'TooEarly');
  return [end.outcome, ...(shortfall ? [shortfall.seconds, shortfall.at, shortfall.services.join()] : [])];
};

describe('a pod was stopped in time if its wait covers the lists and the consumers that follow them', () => {
  test.each<[string, Parameters<typeof judged>, ReturnType<typeof judged>]>([
    ['stopped long after', [12, 30], ['InTime']],
    ['stopped at the same instant', [12, 12], ['InTime']],
    ['by less than two watches differ', [12.2, 12], ['InTime']],
    ['stopped before', [51.5, 30], ['TooEarly', 21.5, 978.5, 'slow']],
    ['without a hook', [12, 0], ['TooEarly', 12, 988, 'quick,slow']],
    ['without a hook, however quick the lists', [0.125, 0], ['TooEarly', 0.125, 999.875, 'quick,slow']],
    ['a grace that was cut ends the wait', [12, 30, 5], ['TooEarly', 7, 993, 'slow']],
    ['a grace that was not', [12, 30, 60], ['InTime']],
    ['a hook of which nothing is known', [500, [0, Infinity]], ['Unknown']],
    ['the same, killed with the grace', [500, [0, Infinity], 30], ['TooEarly', 470, 530, 'slow']],
    ['a hook that waits long enough, and perhaps longer', [12, [15, Infinity], 60], ['InTime']],
    ['a hook that waits for less at least', [12, [5, Infinity], 60], ['Unknown']],
    [
      'a container that stops first, beside one of which nothing is known',
      [12, [0, 5], 60],
      ['TooEarly', 7, 993, 'slow'],
    ],
    ['a wait for the lists, and none for a consumer', [1, 3, 60, EDGE], ['TooEarly', 2, 1_002, 'quick,slow']],
    ['a wait for both', [1, 5, 60, EDGE], ['InTime']],
    ['a consumer of which nothing is known', [1, 5, 60, { ...EDGE, unknown: ['dns'] }], ['Unknown']],
    [
      'the same, and too short for the others',
      [1, 3, 60, { ...EDGE, unknown: ['dns'] }],
      ['TooEarly', 2, 1_002, 'quick,slow'],
    ],
  ])('%s', (_title, given, expected) => expect(judged(...given)).toEqual(expected));

  test('what cut a wait short is named', () => {
    const pod = { owner: '', wait: { least: 30, most: 30 }, grace: 2, senders: EDGE };
    expect(judgeEnd(removal(1), pod, 0).end).toMatchObject({ waited: 2, cutBy: 'grace 2s', lag: 5 });
  });
});

function shortfall(at: number, uid = String(at)): Shortfall {
  const of = {
    reason: 'StoppedTooEarly',
    namespace: 'shop',
    pod: `web-${uid}`,
    uid,
    owner: '',
    services: ['web'],
  } as const;
  return { ...of, at, wait: 1, lag: 3.000_04, seconds: 2.000_04 };
}

describe('the log of findings', () => {
  test('is empty text while there is nothing, and the same text until something is added', () => {
    const log = new TerminationLog();
    expect(log.text).toBe('');
    log.add(shortfall(10));
    const { text } = log;
    log.add(shortfall(10));
    expect(log.text).toBe(text);
    log.add(shortfall(11));
    expect(log.text).not.toBe(text);
  });

  test('what one leader has written the next one goes on with, each pod once', () => {
    const [before, after] = [new TerminationLog(), new TerminationLog()];
    before.add(shortfall(10), shortfall(20));
    after.add(shortfall(20), shortfall(30));
    expect(after.restore(JSON.parse(before.text))).toBe(true);
    expect(after.since(0).map(({ at }) => at)).toEqual([10, 20, 30]);
    expect(after.since(15).map(({ at }) => at)).toEqual([20, 30]);
  });

  test('keeps a week, and of very many the latest', () => {
    const log = new TerminationLog();
    log.add(shortfall(0, 'old'), shortfall(8 * 86_400, 'new'));
    expect(log.since(0)).toHaveLength(1);
    log.add(...Array.from({ length: 5_000 }, (_, index) => shortfall(9 * 86_400 + index)));
    const kept = log.since(0).map(({ at }) => at);
    expect(kept.length).toBeGreaterThanOrEqual(1_000);
    expect(kept).toEqual(kept.map((_, index) => 9 * 86_400 + 5_000 - kept.length + index));
    // What has made room is known.
    const { incompleteBefore = 0 } = terminationsIn(JSON.parse(log.text)) ?? {};
    expect(incompleteBefore).toBe((kept[0] ?? 0) - 1);
  });

  test('a namespace with the longest names and thousands of Services neither pushes out others nor fills the ConfigMap', () => {
    const log = new TerminationLog('replica');
    log.add(shortfall(10, 'quiet'));
    const of = { namespace: 'n'.repeat(63), owner: `Deployment/${'o'.repeat(253)}` };
    const services = Array.from({ length: 3_000 }, (_, index) => `${'s'.repeat(58)}-${index}`);
    const withdrawals = services.map((name) => ({ name, lag: 5 }) as never);
    for (let each = 0; each < 1_500; each += 1) {
      const pod = `${'p'.repeat(240)}-${each}`;
      const sample = { ...of, pod, uid: pod, lag: 5, withdrawals: each < 3 ? withdrawals : [] } as never;
      const senders = {
        slowest: { name: 'c'.repeat(253), seconds: 4 },
        unknown: Array(9).fill('u'.repeat(253)),
      };
      const wait = { least: 1, most: 1 };
      const { end, shortfall } = judgeEnd(sample, { ...of, wait, grace: 30, senders }, 60 * each);
      if (shortfall !== undefined) log.add(shortfall);
      log.count(end);
      const finding = { ...of, pod, uid: pod, at: 60 * each, seconds: 1, connections: 9 };
      for (const reason of ['UndeclaredConsumer', 'OpenAtStop', 'SlowStop', 'HoldUnreachable'] as const)
        log.add({ ...finding, reason, from: Array(5).fill(`10.0.0.1 (${'f'.repeat(253)})`) });
      log.keep({ ...CLEAR, ...of, pod, uid: pod });
      if (each === 2) expect(log.since(10).filter(isShortfall).at(-1)).toMatchObject({ omitted: 2_992 });
    }
    expect(log.text.length).toBeLessThan(1_000_000);
    expect(log.since(0).some(({ uid }) => uid === 'quiet')).toBe(true);
  });

  test.each([undefined, {}, { v: 1, findings: [] }, { v: 2, findings: 'none' }])(
    'refuses what it has not written: %j',
    (json) => {
      expect(terminationsIn(json)).toBeUndefined();
      expect(new TerminationLog().restore(json)).toBeUndefined();
    },
  );

  test.each([
    {},
    null,
    { ...shortfall(1), services: 'web' },
    { ...shortfall(1), at: 'now' },
    { ...shortfall(1), seconds: null },
    { ...shortfall(1), reason: 'constructor' },
    { ...shortfall(1), reason: 'UndeclaredConsumer', from: [4] },
  ])('an entry that it has not written costs itself only: %j', (entry) => {
    expect(terminationsIn({ v: 2, findings: [entry, shortfall(20)] })?.findings).toEqual([shortfall(20)]);
  });

  test('a number that JSON does not have costs its finding, and not what is stored', () => {
    const log = new TerminationLog();
    log.add(
      { ...shortfall(30), seconds: Number.NaN },
      { ...shortfall(40), at: Number.POSITIVE_INFINITY },
      shortfall(10),
    );
    expect(terminationsIn(JSON.parse(log.text))?.findings.map(({ at }) => at)).toEqual([10]);
  });

  test('1,000 findings one by one take a few milliseconds', () => {
    const log = new TerminationLog();
    const before = process.threadCpuUsage();
    for (let each = 0; each < 1_000; each += 1) log.add(shortfall(1 + each, `pod-${each}`));
    expect(log.since(0)).toHaveLength(1_000);
    const { user, system } = process.threadCpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(100);
  });
});

test('of one pod there may be several findings, and no kind takes the place of another', () => {
  const log = new TerminationLog();
  const { wait: _, lag: __, services: ___, ...of } = shortfall(10);
  const open: TerminationFinding = { ...of, reason: 'OpenAtStop', connections: 3 };
  log.add(shortfall(10), open);
  for (let each = 0; each < 1_000; each += 1) log.add({ ...open, uid: `other-${each}`, at: 11 + each });
  const kept = log.since(0).filter(({ reason }) => reason === 'OpenAtStop');
  expect(kept.length).toBeGreaterThan(300);
  expect(kept.length).toBeLessThan(400);
  expect(log.since(0).filter(({ reason }) => reason === 'StoppedTooEarly')).toHaveLength(1);
  const next = new TerminationLog();
  expect(next.restore(JSON.parse(log.text))).toBe(true);
  expect(next.text).toBe(log.text);
});

describe('an application that takes longer to stop than its own time', () => {
  /** Held for 10 s of 60, with 30 s of its own. */
  const end: PodEnd = {
    deletedAt: 0,
    stoppedAt: 10,
    goneAt: 12,
    grace: 90,
    planned: { grace: 90, baseGrace: 30 },
  };
  test.each<[string, Partial<PodEnd>, number | undefined]>([
    ['stops in time', {}, undefined],
    ['just so, with what the kubelet does afterwards', { goneAt: 42.5 }, undefined],
    ['takes longer', { goneAt: 55 }, 45],
    ['is killed at the end of the grace', { goneAt: 91 }, 81],
    ['is killed after a wait that left it its own time only', { stoppedAt: 60, goneAt: 90.5 }, 30.5],
    ['was given less by whoever deleted it', { stoppedAt: 2, goneAt: 90, grace: 5 }, undefined],
  ])('%s', (_, change, took) => expect(slowStopOf({ ...end, ...change })).toBe(took));
});

test('each finding is a sentence about its pod', () => {
  const { wait: _, lag: __, services: ___, ...of } = shortfall(10, '1');
  const found = (finding: Partial<TerminationFinding>) => sentenceOf({ ...of, ...finding });
  expect(sentenceOf(shortfall(10, '1'))).toBe(
    'Pod web-1 got SIGTERM after 1s, but web listed it for 3s: requests may have been lost for 2s.',
  );
  expect(
    found({ reason: 'UndeclaredConsumer', connections: 40, seconds: 4, from: ['10.0.0.7 (infra/gw-0)'] }),
  ).toContain(
    '40 connections within 4s after every known consumer had stopped using it, from 10.0.0.7 (infra/gw-0)',
  );
  expect(found({ reason: 'OpenAtStop', connections: 1 })).toContain('1 connection open');
  expect(found({ reason: 'SlowStop', seconds: 44.96 })).toContain('took 45s after SIGTERM');
  expect(found({ reason: 'HoldUnreachable', seconds: 31 })).toContain('gone 31s after its deletion');
});

describe('the pods that ended', () => {
  const end = (at: number, more: Partial<JudgedEnd> = {}): JudgedEnd => ({
    at,
    namespace: 'shop',
    owner: 'Deployment/web',
    pod: 'web-1',
    outcome: 'InTime',
    waited: 10,
    cutBy: '',
    lag: 4,
    consumer: 'edge',
    unmeasured: [],
    ...more,
  });

  test('are counted by workload and minute', () => {
    const log = new TerminationLog('a');
    log.count(end(60));
    log.count(end(100, { outcome: 'TooEarly', waited: 0, lag: 5 }));
    log.count(end(119, { outcome: 'Unknown', waited: 1.5, cutBy: 'Max' }));
    log.count(end(120, { owner: '' }));
    expect(log.ended).toMatchObject([
      {
        from: 60,
        by: 'a',
        owner: 'Deployment/web',
        ended: 3,
        tooEarly: 1,
        unknown: 1,
        noWait: 1,
        cut: 1,
        cutBy: 'Max',
        waits: [0, 10],
        lag: 5,
      },
      { from: 120, owner: 'Pod/web-1', ended: 1 },
    ]);
  });

  test('are taken over once, and added to those that the next leader counts', () => {
    const [before, after] = [new TerminationLog('a'), new TerminationLog('b')];
    before.count(end(60));
    after.count(end(61));
    for (let times = 0; times < 2; times += 1) expect(after.restore(JSON.parse(before.text))).toBe(true);
    expect(after.ended.map(({ by, ended }) => [by, ended])).toEqual([
      ['b', 1],
      ['a', 1],
    ]);
    const again = new TerminationLog('a');
    again.restore(JSON.parse(after.text));
    expect(again.ended.toSorted((a, b) => (a.by < b.by ? -1 : 1))).toEqual(
      after.ended.toSorted((a, b) => (a.by < b.by ? -1 : 1)),
    );
  });

  test('of one namespace take no room from another’s, and what is left out is known', () => {
    const log = new TerminationLog('a');
    log.count(end(0, { namespace: 'quiet' }));
    for (let pod = 0; pod < 2_000; pod += 1) log.count(end(60 * pod, { owner: `Deployment/${pod}` }));
    log.count(end(1, { waited: Number.NaN }));
    expect(log.ended.length).toBeGreaterThan(1_200);
    const oldest = Math.min(
      ...log.ended.flatMap(({ namespace, from }) => (namespace === 'quiet' ? [] : from)),
    );
    expect(log.ended.some(({ namespace }) => namespace === 'quiet')).toBe(true);
    expect(terminationsIn(JSON.parse(log.text))?.incompleteBefore).toBe(oldest);
    expect(log.text.length).toBeLessThan(500_000);
  });

  test('a row that cannot be read costs itself only', () => {
    const log = new TerminationLog('a');
    log.count(end(60));
    const json = JSON.parse(log.text) as { ended: unknown[] };
    json.ended.push({ ...(json.ended[0] as object), ended: null }, 7);
    expect(terminationsIn(json)?.ended).toHaveLength(1);
  });
});
