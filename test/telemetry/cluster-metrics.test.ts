import { Registry } from '@prometheus-io/client';
import { describe, expect, it, test } from 'vitest';
import { newStats, registerWatchMetrics, type WatchStats } from '../../src/cluster/index.ts';
import type { DefaultWait } from '../../src/core/decision/index.ts';
import { exactly } from '../../src/core/lag/distribution.ts';
import {
  consumerOf,
  DISCARDS,
  type DiscardCounts,
  NOTHING_PLANNED,
  STANDARD_CONSUMERS,
  type StageSample,
} from '../../src/core/lag/index.ts';
import { registerCanaryMetrics, registerLagMetrics } from '../../src/measurement/index.ts';
import type { LagReadings } from '../../src/measurement/lag-metrics.ts';
import { historyOf, START, tableOf } from '../core/lag/sample-table.ts';

/** The samples of some metrics: `name{labels} value`, without help and types. */
async function samplesOf(registry: Registry, name: string): Promise<readonly string[]> {
  return (await registry.metrics()).split('\n').filter((line) => new RegExp(`^${name}[ {]`).test(line));
}

const NO_DISCARDS = Object.fromEntries(Object.keys(DISCARDS).map((reason) => [reason, 0])) as DiscardCounts;
const NOTHING = { count: 0, oldestSeconds: 0 };

function readings(more: Partial<LagReadings> = {}): LagReadings {
  return {
    unresolved: () => ({ EndpointSlice: NOTHING, Endpoints: NOTHING }),
    now: () => undefined,
    table: NOTHING_PLANNED,
    discarded: NO_DISCARDS,
    size: { pods: 1, objects: 2, open: 3 },
    maintainsEndpoints: true,
    ...more,
  };
}

const INITIAL: DefaultWait = {
  seconds: 30,
  why: 'initial',
  origin: 'built-in',
  notes: [],
  coverage: undefined,
};

/** Registers them; the wait of the cluster as a whole is `initial`. */
function register(registry: Registry, more: Partial<LagReadings> = {}, wait: DefaultWait = INITIAL) {
  return registerLagMetrics(registry, readings(more), () => wait);
}

const lagOf = (seconds: number) => ({
  scope: 'cluster' as const,
  samples: 812,
  historySeconds: 5 * 86_400,
  density: exactly(seconds),
  stages: [],
});

describe('the lag', () => {
  const sample = (stage: StageSample['stage'], lag: number) => ({ stage, lag });

  it('is a histogram by stage, from the start', async () => {
    const registry = new Registry();
    const count = register(registry);
    expect(await samplesOf(registry, 'linger_removal_lag_seconds_count')).toEqual([
      'linger_removal_lag_seconds_count{stage="EndpointSlice"} 0',
      'linger_removal_lag_seconds_count{stage="Endpoints"} 0',
    ]);
    for (const each of [sample('EndpointSlice', 0.02), sample('EndpointSlice', 700), sample('Endpoints', 3)])
      count(each);
    const buckets = await samplesOf(registry, 'linger_removal_lag_seconds_bucket');
    const of = (le: string) => buckets.find((line) => line.includes(`le="${le}",stage="EndpointSlice"`));
    expect([of('0.01'), of('0.025'), of('600'), of('+Inf')].map((line) => line?.split(' ')[1])).toEqual([
      '0',
      '1',
      '1',
      '2',
    ]);
  });

  test.each<[string, Partial<LagReadings>, string, string[], DefaultWait?]>([
    [
      'what is unresolved',
      { unresolved: () => ({ EndpointSlice: { count: 7, oldestSeconds: 2.5 }, Endpoints: NOTHING }) },
      'linger_removals_unresolved',
      ['{stage="EndpointSlice"} 7', '{stage="Endpoints"} 0'],
    ],
    [
      'how old it is',
      { unresolved: () => ({ EndpointSlice: { count: 7, oldestSeconds: 2.5 }, Endpoints: NOTHING }) },
      'linger_removals_oldest_unresolved_seconds',
      ['{stage="EndpointSlice"} 2.5', '{stage="Endpoints"} 0'],
    ],
    ['no lag of now', {}, 'linger_lag_now_seconds', []],
    ['no planned lag', {}, 'linger_lag_planned_seconds', []],
    ['no planned samples', {}, 'linger_lag_planned_samples', [' 0']],
    ['the wait of the cluster as a whole', {}, 'linger_default_wait_seconds', ['{why="initial"} 30']],
    ['no coverage of what is not measured', {}, 'linger_default_wait_coverage', []],
    [
      'the coverage of a measured wait',
      {},
      'linger_default_wait_coverage',
      ['{why="measured"} 0.75'],
      { ...INITIAL, seconds: 10, why: 'measured', coverage: 0.75 },
    ],
    [
      'what the recorder holds',
      {},
      'linger_recorder_entries',
      ['{kind="pods"} 1', '{kind="objects"} 2', '{kind="open"} 3'],
    ],
  ])('%s', async (_what, more, name, expected, wait) => {
    const registry = new Registry();
    register(registry, more, wait);
    expect((await samplesOf(registry, name)).map((line) => line.slice(name.length))).toEqual(expected);
  });

  it('of now, and the planned one with what stands behind it', async () => {
    const registry = new Registry();
    const table = tableOf({ cluster: historyOf([4], 812, START, 5 * 86_400) });
    register(registry, { now: () => lagOf(120), table });
    const quantiles = async (name: string) =>
      (await samplesOf(registry, name)).map((line) => {
        const [labels = '', value] = line.slice(name.length).split(' ');
        return `${labels} ${Math.round(Number(value))}`;
      });
    const all = (value: number) => ['0.5', '0.9', '0.99'].map((each) => `{quantile="${each}"} ${value}`);
    expect(
      (await quantiles('linger_lag_now_seconds')).map((line) => line.replace(/ 1[12]\d$/, ' 120')),
    ).toEqual(all(120));
    expect(await quantiles('linger_lag_planned_seconds')).toEqual(all(4));
    expect(await samplesOf(registry, 'linger_lag_planned_samples')).toEqual([
      'linger_lag_planned_samples 812',
    ]);
    expect(await samplesOf(registry, 'linger_lag_planned_history_seconds')).toEqual([
      `linger_lag_planned_history_seconds ${5 * 86_400}`,
    ]);
  });

  it('is read at each scrape, and what is no longer there is no longer shown', async () => {
    const registry = new Registry();
    const answers = [lagOf(4), undefined];
    register(registry, { now: () => answers.shift() });
    expect(await samplesOf(registry, 'linger_lag_now_seconds')).toHaveLength(3);
    expect(await samplesOf(registry, 'linger_lag_now_seconds')).toEqual([]);
  });

  it('has every reason for which a removal gives no sample, from the start', async () => {
    const registry = new Registry();
    const discarded = { ...NO_DISCARDS, Expired: 3 };
    register(registry, { discarded });
    expect(await samplesOf(registry, 'linger_removals_discarded_total')).toEqual(
      Object.entries(discarded).map(
        ([reason, count]) => `linger_removals_discarded_total{reason="${reason}"} ${count}`,
      ),
    );
  });
});

test('the canary has nothing to flip for where what it times is only declared', async () => {
  const registry = new Registry();
  let consumers = STANDARD_CONSUMERS;
  registerCanaryMetrics(registry, () => consumers);
  expect(await samplesOf(registry, 'linger_canary_consumers')).toEqual(['linger_canary_consumers 2']);
  consumers = [consumerOf('cluster-ip', { measure: { declared: { lag: 1 } } })];
  expect(await samplesOf(registry, 'linger_canary_consumers')).toEqual(['linger_canary_consumers 0']);
});

describe('a watch', () => {
  const pods: WatchStats = {
    ...newStats(),
    restarts: { Ended: 2, Cut: 0 } as WatchStats['restarts'],
    stalls: 1,
    events: 10,
    lastEventAt: 3_000,
    bytes: 5_000,
    objects: 4,
    handlerErrors: 0,
    current: true,
  };
  const nodes = { ...pods, lastEventAt: undefined, current: false };

  test.each<[string, string[]]>([
    ['linger_cluster_synced', [' 1']],
    [
      'linger_watch_restarts_total',
      ['pods', 'nodes'].flatMap((resource) => [
        `{resource="${resource}",reason="Ended"} 2`,
        `{resource="${resource}",reason="Cut"} 0`,
      ]),
    ],
    ['linger_watch_current', ['{resource="pods"} 1', '{resource="nodes"} 0']],
    // Before the first event there is no age.
    ['linger_watch_last_event_age_seconds', ['{resource="pods"} 5']],
    ['linger_watch_objects', ['{resource="pods"} 4', '{resource="nodes"} 4']],
    ['linger_watch_unread_objects', ['{resource="pods"} 3']],
    ['linger_watch_refused_objects', ['{resource="terminationpolicies"} 2']],
    ['linger_watch_events_total', ['{resource="pods"} 10', '{resource="nodes"} 10']],
    ['linger_watch_received_bytes_total', ['{resource="pods"} 5000', '{resource="nodes"} 5000']],
    ['linger_watch_stalls_total', ['{resource="pods"} 1', '{resource="nodes"} 1']],
    ['linger_watch_handler_errors_total', ['{resource="pods"} 0', '{resource="nodes"} 0']],
  ])('%s', async (name, expected) => {
    const registry = new Registry();
    registerWatchMetrics(registry, {
      watches: () => ({ pods, nodes }),
      unread: () => ({
        pods: new Map([
          ['shop', 2],
          ['other', 1],
        ]),
      }),
      refused: () => ({ terminationpolicies: 2 }),
      synced: () => true,
      clock: () => 8_000,
    });
    expect((await samplesOf(registry, name)).map((line) => line.slice(name.length))).toEqual(expected);
    // Read, not added up.
    expect((await samplesOf(registry, name)).map((line) => line.slice(name.length))).toEqual(expected);
  });
});
