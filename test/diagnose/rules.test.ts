import { describe, expect, it } from 'vitest';
import {
  type ControllerActivity,
  DEFAULT_FLAGS,
  type QueueActivity,
  UNLIMITED,
} from '../../src/diagnose/controller-metrics.ts';
import { CONTROLLER_METRICS, type Facts } from '../../src/diagnose/facts.ts';
import { DIAGNOSES, type DiagnosisCode, diagnose, SEVERITIES } from '../../src/diagnose/rules.ts';
import { activity, facts, queue, stage } from './sample-facts.ts';

const codes = (over: Partial<Facts>) => diagnose(facts(over)).map(({ code }) => code);
const controller = (over: Partial<ControllerActivity>) => ({ controller: activity(over) });
const slices = (over: Partial<QueueActivity>, more: Partial<ControllerActivity> = {}) =>
  controller({ queues: [queue(over), queue({ name: 'endpoint' })], ...more });
const flags = (over: Partial<Facts['flags']>) => ({ ...DEFAULT_FLAGS, known: true, ...over });

const readers = (...endpointsReaders: readonly string[]) => ({
  cluster: { services: 10, neverWithdrawn: { services: 0, examples: [] }, endpointsReaders },
});

function only(code: DiagnosisCode, over: Partial<Facts>) {
  const found = diagnose(facts(over)).find((each) => each.code === code);
  if (found === undefined) throw new Error(`${code} was not found`);
  return found;
}

/** 290 Services wait, 5 a second come out: each of 5 workers waits a second for the limiter. */
const BACKLOG: Partial<QueueActivity> = {
  depth: 240,
  depthBefore: 290,
  adds: 0,
  done: 50,
  meanWaitSeconds: 12,
  meanWorkSeconds: 1,
  busyWorkers: 5,
  longestSeconds: 0.9,
};
const THROTTLED: Partial<ControllerActivity> = {
  limiter: { count: 100, sum: 98, overSecond: 40 },
  server: { count: 100, sum: 0.6, overSecond: 0 },
};
const NOT_THROTTLED: Partial<ControllerActivity> = { server: { count: 100, sum: 98, overSecond: 10 } };

describe('a calm cluster', () => {
  it('has nothing wrong, and the finding says what was looked at and measured', () => {
    const looks = [
      { what: CONTROLLER_METRICS, seen: true, text: 'https://127.0.0.1:10257/metrics, twice in 10 s' },
      { what: 'nodes', seen: false, text: '403' },
    ];
    const [found, ...more] = diagnose(facts({ looks }));
    expect(more).toEqual([]);
    expect(found).toMatchObject({
      code: 'NothingWrong',
      severity: 'info',
      text: 'Nothing was found that delays withdrawals. Measured: EndpointSlice: p99 80 ms of 40 removals; Endpoints: p99 80 ms of 40 removals.',
      evidence: ['controller-manager metrics: https://127.0.0.1:10257/metrics, twice in 10 s'],
    });
  });

  it.each<[what: string, lag: Facts['lag'], said: RegExp]>([
    [
      'watched, and none',
      { from: 'x', stages: [stage({ samples: 0, p99: undefined })], life: [] },
      /No pod was removed/,
    ],
    ['not watched', undefined, /Removals were not observed/],
    ['one scrape of a Linger', { from: 'file', uncounted: true, stages: [], life: [] }, /not observed/],
  ])('says whether pods were removed: %s', (_what, lag, said) => {
    expect(only('NothingWrong', { lag }).text).toMatch(said);
  });
});

// What is the case → every finding, in order.
describe.each<[string, [what: string, over: Partial<Facts>, expected: DiagnosisCode[]][]]>([
  [
    'the client is throttled',
    [
      ['qps 5 and a backlog (S0)', slices(BACKLOG, THROTTLED), ['ClientThrottled', 'WriteStorm']],
      ['waits for the limiter, but nothing waits in the queue', controller(THROTTLED), ['NothingWrong']],
      [
        'the API server takes longer than the limiter',
        slices(BACKLOG, { ...THROTTLED, server: { count: 100, sum: 99, overSecond: 0 } }),
        ['TooFewWorkers', 'WriteStorm', 'ApiServerSlow'],
      ],
      [
        'no rest_client metrics, and it goes at just the limit',
        slices({ ...BACKLOG, done: 200 }, { limiter: undefined, limiterLife: undefined, server: undefined }),
        ['ClientThrottled', 'WriteStorm'],
      ],
      [
        'no rest_client metrics, and it goes faster than the limit',
        slices({ ...BACKLOG, done: 900 }, { limiter: undefined, limiterLife: undefined, server: undefined }),
        ['TooFewWorkers', 'WriteStorm'],
      ],
      [
        'one scrape: a backlog, and a life of waiting',
        slices(
          { ...BACKLOG, depthBefore: undefined, busyWorkers: undefined },
          { ...THROTTLED, seconds: undefined },
        ),
        ['ClientThrottled', 'WriteStorm'],
      ],
      [
        'one scrape: no backlog; what was, was',
        slices({ depthBefore: undefined, busyWorkers: undefined }, { ...THROTTLED, seconds: undefined }),
        ['NothingWrong'],
      ],
    ],
  ],
  [
    'workers',
    [
      ['all busy', slices(BACKLOG, NOT_THROTTLED), ['TooFewWorkers', 'WriteStorm', 'ApiServerSlow']],
      ['busy, and nothing waits', slices({ busyWorkers: 5 }), ['NothingWrong']],
      ['one is stuck', slices({ longestSeconds: 61, depth: 1, depthBefore: 1 }), ['StuckWorker']],
      ['one takes long', slices({ longestSeconds: 59 }), ['NothingWrong']],
      [
        'long, since it is throttled',
        slices({ ...BACKLOG, longestSeconds: 61 }, THROTTLED),
        ['ClientThrottled', 'WriteStorm'],
      ],
    ],
  ],
  [
    'queues',
    [
      ['they have just been filled', slices({ depth: 90 }), ['NothingWrong']],
      [
        'deep at both ends, and nothing comes out',
        slices({ depth: 12, depthBefore: 12, done: 0 }),
        ['QueueBacklog'],
      ],
      [
        'deep at both ends, and drained in no time',
        slices({ depth: 12, depthBefore: 12, done: 900 }),
        ['NothingWrong'],
      ],
      ['Services waited long', slices({ meanWaitSeconds: 1 }), ['TooFewWorkers']],
      [
        'Services waited long, and none was finished',
        slices({ meanWaitSeconds: 1, done: 0 }),
        ['QueueBacklog'],
      ],
      ['Services waited a little', slices({ meanWaitSeconds: 0.99 }), ['NothingWrong']],
      ['one scrape, deep', slices({ depth: 50 }, { seconds: undefined }), ['QueueBacklog']],
      ['one scrape, not deep', slices({ depth: 49 }, { seconds: undefined }), ['NothingWrong']],
      [
        'waited earlier',
        slices({ life: { taken: 1000, overSecond: 10 } }),
        ['BacklogBefore', 'NothingWrong'],
      ],
      ['waited earlier, once', slices({ life: { taken: 1000, overSecond: 9 } }), ['NothingWrong']],
      [
        'throttled earlier',
        controller({ limiterLife: { count: 1000, sum: 500, overSecond: 400 } }),
        ['ThrottledBefore', 'NothingWrong'],
      ],
      [
        'throttled earlier, but hardly anything was written',
        controller({ limiterLife: { count: 19, sum: 20, overSecond: 19 } }),
        ['NothingWrong'],
      ],
    ],
  ],
  [
    'a storm',
    [
      ['a fifth of all Services wait', slices({ depth: 200 }), ['WriteStorm']],
      ['a little less', slices({ depth: 199 }), ['NothingWrong']],
      ['they waited at the beginning', slices({ depthBefore: 200 }), ['WriteStorm']],
      ['how many there are is not known', { ...slices({ depth: 100 }), cluster: undefined }, ['WriteStorm']],
      ['more arrive than may be written', slices({ adds: 201, done: 201 }), ['WriteStorm']],
      ['as many arrive as may be written', slices({ adds: 200, done: 200 }), ['NothingWrong']],
    ],
  ],
  [
    'the API server',
    [
      ['slow on average', controller({ server: { count: 20, sum: 5, overSecond: 0 } }), ['ApiServerSlow']],
      ['slow now and then', controller({ server: { count: 100, sum: 3, overSecond: 1 } }), ['ApiServerSlow']],
      [
        'slow for a few only',
        controller({ server: { count: 19, sum: 19, overSecond: 19 } }),
        ['NothingWrong'],
      ],
      [
        'slow in the past',
        controller({ seconds: undefined, server: { count: 20, sum: 5, overSecond: 0 } }),
        ['NothingWrong'],
      ],
      [
        '429',
        controller({ answers: { total: 9999, tooMany: 1, serverErrors: 0, unanswered: 0 } }),
        ['ApiServerRejects'],
      ],
      [
        'one 500',
        controller({ answers: { total: 5, tooMany: 0, serverErrors: 1, unanswered: 0 } }),
        ['NothingWrong'],
      ],
      [
        'a 500 and a lost connection',
        controller({ answers: { total: 200, tooMany: 0, serverErrors: 1, unanswered: 1 } }),
        ['ApiServerRejects'],
      ],
      [
        'two of very many',
        controller({ answers: { total: 201, tooMany: 0, serverErrors: 1, unanswered: 1 } }),
        ['NothingWrong'],
      ],
      [
        'its priority level is full',
        { priority: { level: 'workload-high', waiting: 3, rejected: 0, timedOut: 0 } },
        ['ApiServerRejects'],
      ],
      ['syncs fail', controller({ failedSyncs: 2 }), ['SyncErrors']],
      ['one sync found a stale cache', controller({ failedSyncs: 1 }), ['NothingWrong']],
    ],
  ],
  [
    'who does the work',
    [
      [
        'a batch period',
        { flags: flags({ batchSeconds: { ...DEFAULT_FLAGS.batchSeconds, endpoint: 0.5 } }) },
        ['BatchPeriod'],
      ],
      ['a new leader', { leader: { holder: 'a_b', ageSeconds: 899, transitions: 4 } }, ['LeaderChanged']],
      ['a new process', controller({ ageSeconds: 899 }), ['LeaderChanged']],
      ['a restart meanwhile', controller({ restarted: true, seconds: undefined }), ['LeaderChanged']],
      [
        'not the leader, and just started',
        controller({ leading: false, queues: [], ageSeconds: 7 }),
        ['NotLeading'],
      ],
      ['who leads is not known', controller({ leading: undefined }), ['NothingWrong']],
      [
        'Services that are never withdrawn from',
        {
          cluster: {
            services: 10,
            neverWithdrawn: { services: 1, examples: ['db/peers'] },
            endpointsReaders: undefined,
          },
        },
        ['NeverWithdrawn', 'NothingWrong'],
      ],
      ['nobody reads Endpoints', readers(), ['EndpointsUnread', 'NothingWrong']],
      ['somebody may read Endpoints', readers('ServiceAccount edge/gateway'), ['NothingWrong']],
      [
        'nobody reads Endpoints, which no controller writes',
        { ...readers(), ...controller({ queues: [queue()] }) },
        ['NothingWrong'],
      ],
    ],
  ],
  [
    'what was measured',
    [
      [
        'late, and the controllers are calm',
        { lag: { from: 'x', stages: [stage({ p99: 1 })], life: [] } },
        ['SlowWithdrawals', 'LagUnexplained'],
      ],
      [
        'one waits for long',
        {
          lag: {
            from: 'x',
            stages: [stage({ samples: 0, p50: undefined, p99: undefined, waiting: 1, oldestSeconds: 43 })],
            life: [],
          },
        },
        ['SlowWithdrawals', 'LagUnexplained'],
      ],
      [
        'late, and the cause is known',
        { ...slices(BACKLOG, THROTTLED), lag: { from: 'x', stages: [stage({ p99: 40 })], life: [] } },
        ['ClientThrottled', 'WriteStorm', 'SlowWithdrawals'],
      ],
      [
        'late, and the controllers were not seen',
        { controller: undefined, lag: { from: 'x', stages: [stage({ p99: 40 })], life: [] } },
        ['SlowWithdrawals', 'ControllerNotSeen'],
      ],
      [
        'late earlier',
        { lag: { from: 'x', stages: [stage()], life: [stage({ p99: 40 })] } },
        ['SlowBefore', 'NothingWrong'],
      ],
      [
        'nothing was removed',
        { lag: { from: 'x', stages: [stage({ samples: 0, p50: undefined, p99: undefined })], life: [] } },
        ['NothingWrong'],
      ],
      [
        'nothing was removed, and the controllers were not seen',
        { controller: undefined, lag: undefined },
        ['ControllerNotSeen'],
      ],
      [
        'nothing at all is known',
        { controller: undefined, lag: undefined, cluster: undefined, leader: undefined, priority: undefined },
        ['ControllerNotSeen'],
      ],
      [
        'nothing is exported but the queues',
        controller({
          limiter: undefined,
          limiterLife: undefined,
          server: undefined,
          answers: undefined,
          failedSyncs: undefined,
          changes: undefined,
          leading: undefined,
          ageSeconds: undefined,
        }),
        ['NothingWrong'],
      ],
      ['no queue is exported', controller({ queues: [] }), ['NothingWrong']],
    ],
  ],
])('%s', (_about, cases) => {
  it.each(cases)('%s', (_what, over, expected) => {
    expect(codes(over)).toEqual(expected);
  });
});

describe('the advice for a throttled client', () => {
  const found = only('ClientThrottled', slices(BACKLOG, THROTTLED));

  it('why, and what it means for a pod', () => {
    expect(found.text).toBe(
      'EndpointSlices are withdrawn late because each write waits 980 ms for the controller-manager’s own rate limit (20 requests a second) and 6 ms for the API server. A pod deleted now is withdrawn about 48 s later. More workers alone do not help: they share the limit.',
    );
  });

  it('on what it rests', () => {
    expect(found.evidence).toEqual([
      'rest_client_rate_limiter_duration_seconds mean 980 ms over 100 writes in 10 s',
      'rest_client_request_duration_seconds without that: mean 6 ms in 10 s',
      'workqueue_depth{name="endpoint_slice"} 290 → 240 in 10 s; 0/s added, 5/s done',
      'workqueue_queue_duration_seconds{name="endpoint_slice"} mean 12 s',
      'workqueue_work_duration_seconds{name="endpoint_slice"} mean 1 s: 5.0 of 5 workers busy (--concurrent-service-endpoint-syncs)',
    ]);
  });

  it.each([
    [{ qps: 5, burst: 5 }, 0.006, ['--kube-api-qps=300', '--kube-api-burst=325']],
    [{ qps: 100, burst: 120 }, 0.006, ['--kube-api-qps=300', '--kube-api-burst=325']],
    [{ qps: 300, burst: 325 }, 0.006, ['--kube-api-qps=600', '--kube-api-burst=650']],
    // 300 writes a second of 50 ms each keep 15 workers busy.
    [{}, 0.05, ['--kube-api-qps=300', '--kube-api-burst=325', '--concurrent-service-endpoint-syncs=15']],
    [{}, 0.5, ['--kube-api-qps=300', '--kube-api-burst=325', '--concurrent-service-endpoint-syncs=50']],
  ])('which flags to set: with %j and an API server that takes %d s', (present, seconds, expected) => {
    const server = { count: 100, sum: 100 * seconds, overSecond: 0 };
    const over = { ...slices(BACKLOG, { ...THROTTLED, server }), flags: flags(present) };
    expect(only('ClientThrottled', over).cure.slice(0, -1)).toEqual(expected);
  });

  it('that flags which were not seen are the defaults', () => {
    const over = { ...slices(BACKLOG, THROTTLED), flags: DEFAULT_FLAGS };
    expect(only('ClientThrottled', over).text).toContain('(20 requests a second if the default)');
  });
});

describe('the advice for too few workers', () => {
  it.each<[string, Partial<QueueActivity>, Partial<Facts['flags']>, string[]]>([
    [
      'a burst with a mean wait of 3 s',
      { meanWaitSeconds: 3 },
      {},
      ['--concurrent-service-endpoint-syncs=30'],
    ],
    [
      'a flow of 24 a second, 0.5 s each',
      { adds: 240, meanWorkSeconds: 0.5 },
      {},
      ['--concurrent-service-endpoint-syncs=12'],
    ],
    ['at least twice as many', {}, {}, ['--concurrent-service-endpoint-syncs=10']],
    ['no more than there may be', { meanWaitSeconds: 60 }, {}, ['--concurrent-service-endpoint-syncs=50']],
    ['as many as there may be', {}, { workers: { ...DEFAULT_FLAGS.workers, endpoint_slice: 50 } }, []],
    [
      'the rate limit would be next',
      { meanWorkSeconds: 0.1 },
      { qps: 20, burst: 30 },
      ['--concurrent-service-endpoint-syncs=10', '--kube-api-qps=300', '--kube-api-burst=325'],
    ],
  ])('%s', (_what, over, present, expected) => {
    const busy = slices({ ...BACKLOG, meanWaitSeconds: 1, ...over }, NOT_THROTTLED);
    const limits = { qps: 300, burst: 325, ...present };
    expect(only('TooFewWorkers', { ...busy, flags: flags(limits) }).cure).toEqual(expected);
  });
});

describe('the advice for a storm', () => {
  it.each([
    [
      'Services that wait',
      slices({ depth: 700 }),
      'A write storm: up to 700 of 1,000 Services are queued at once for EndpointSlices. At 20 writes a second they take 35 s. Every pod deleted meanwhile waits behind them.',
    ],
    [
      'Services that come in',
      slices({ adds: 600, done: 600 }),
      'A write storm: 60/s Services are queued for EndpointSlices, above the limit of 20 writes a second. Every pod deleted meanwhile waits behind them.',
    ],
    [
      'a limit of less than one a second',
      { ...slices({ depth: 700 }), flags: flags({ qps: 0.5 }) },
      'A write storm: up to 700 of 1,000 Services are queued at once for EndpointSlices. At 0.5 writes a second they take 23 min. Every pod deleted meanwhile waits behind them.',
    ],
    [
      'no limit',
      { ...slices({ depth: 700 }), flags: flags({ qps: UNLIMITED }) },
      'A write storm: up to 700 of 1,000 Services are queued at once for EndpointSlices. Every pod deleted meanwhile waits behind them.',
    ],
  ])('%s', (_what, over, text) => {
    expect(only('WriteStorm', over).text).toBe(text);
  });

  it('no flag lifts a limit that there is not', () => {
    const over = { ...slices({ depth: 700 }), flags: flags({ qps: UNLIMITED }) };
    expect(only('WriteStorm', over).cure[0]).toMatch(/^Find what changes/);
  });

  it('the flags to set, where no other finding has them', () => {
    expect(only('WriteStorm', slices({ depth: 700 })).cure[0]).toBe('--kube-api-qps=300');
    expect(only('WriteStorm', slices(BACKLOG, THROTTLED)).cure[0]).toMatch(/^Find what changes/);
  });

  it('the mirroring queue sees every write of Endpoints, which is no storm', () => {
    const queues = [queue({ name: 'endpoint_slice_mirroring', adds: 900, done: 900 })];
    expect(codes(controller({ queues }))).toEqual(['NothingWrong']);
  });
});

it('what cannot be seen is reported once, with every remedy', () => {
  const looks = ['a', 'b'].map((name) => ({
    what: CONTROLLER_METRICS,
    seen: false,
    text: `${name}: 403`,
    remedy: 'ask',
  }));
  const found = only('ControllerNotSeen', { controller: undefined, looks });
  expect([found.evidence, found.cure]).toEqual([['a: 403', 'b: 403'], ['ask']]);
});

it('the catalogue is ordered by severity, so that the worst comes first', () => {
  const ranks = Object.values(DIAGNOSES).map(({ severity }) => SEVERITIES.indexOf(severity));
  expect(ranks).toEqual(ranks.toSorted((a, b) => a - b));
});
