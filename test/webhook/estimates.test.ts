import { describe, expect, it } from 'vitest';
import { type ClusterEvent, consumerOf, consumerView } from '../../src/core/lag/index.ts';
import { Measurement } from '../../src/measurement/index.ts';
import { estimatesPage, type ShownWatch } from '../../src/webhook/estimates.ts';
import { ALL_CURRENT, service, slice, terminating } from '../core/lag/sample-events.ts';

const START = 20_000 * 86_400;
const PODS: ShownWatch = {
  state: 'watching',
  current: true,
  objects: 4,
  lists: 1,
  lastEventAt: 3_000,
  restarts: { Ended: 2, Cut: 0 },
  stalls: 0,
  handlerErrors: 0,
};

const EDGE = {
  consumer: consumerOf('edge', { measure: { reports: {} } }),
  state: { instances: 2, trouble: undefined, limits: ['Not all.'] },
};

interface Given {
  readonly now: number;
  readonly events?: readonly ClusterEvent[];
  /** Share of removals that the default wait covers, from 0 to 1. */
  readonly coverage?: number | undefined;
}

async function pageOf({ now, events = [], coverage }: Given) {
  const clock = () => now;
  const measurement = new Measurement({ clock, epochSeconds: () => START });
  for (const event of [...ALL_CURRENT, service(), ...events]) measurement.apply(event);
  await measurement.replan(START);
  const defaultWait = {
    seconds: 30,
    why: 'initial' as const,
    origin: 'built-in' as const,
    notes: [],
    coverage,
  };
  const watches = { pods: PODS, nodes: { ...PODS, lastEventAt: undefined } };
  const consumers = [consumerView({ ...EDGE, removals: undefined, additions: undefined }, START)];
  const page = estimatesPage({ measurement, consumers, watches, synced: true, defaultWait, clock });
  // As it is sent.
  return JSON.parse(JSON.stringify(page)) as Record<string, unknown>;
}

/** The page after these events, at an instant. */
const pageAt = (now: number, ...events: readonly ClusterEvent[]) => pageOf({ now, events });

describe('the page of estimates', () => {
  it.each([
    [1, 1],
    [0.99967, 0.999],
    [0.9949, 0.994],
  ])('a wait that covers a share of %d covers %d', async (coverage, shown) => {
    expect(await pageOf({ now: 5_000, coverage })).toMatchObject({ defaultWait: { coverage: shown } });
  });

  it('says null where nothing is known', async () => {
    expect(await pageAt(5_000)).toMatchObject({
      synced: true,
      defaultWait: { seconds: 30, why: 'initial', origin: 'built-in', coverage: null },
      planned: { cluster: null, namespaces: {} },
      now: null,
      week: null,
      unresolved: { oldest: [] },
    });
  });

  it('tells each lag with what stands behind it, in three digits', async () => {
    const page = await pageAt(6_000, slice(0, { a: 'ready' }), terminating(1_000, 'a'), slice(1_400, {}));
    const lags = { p50: expect.closeTo(0.4, 2), p90: expect.closeTo(0.4, 2), p99: expect.closeTo(0.4, 2) };
    const stages = { EndpointSlice: { samples: 1, ...lags } };
    expect(page).toMatchObject({
      planned: { cluster: { samples: 1, ...lags, reached: { samples: 1, seconds: expect.any(Number) } } },
      now: { samples: 1, ...lags, stages },
      week: { samples: 1, ...lags },
    });
    for (const number of JSON.stringify(page.now).match(/\d+\.\d+/g) ?? [])
      expect(number.replace(/^0\.0*|\./g, '').length).toBeLessThanOrEqual(3);
  });

  it('tells of each consumer, and since when it is how it is', async () => {
    expect((await pageAt(5_000)).consumers).toEqual({
      edge: {
        measure: 'reports',
        removals: null,
        additions: null,
        lastSample: null,
        services: null,
        instances: 2,
        measured: {
          status: 'Unknown',
          reason: 'Waiting',
          message: expect.any(String),
          since: new Date(START * 1000).toISOString(),
        },
        limits: ['Not all.'],
      },
    });
  });

  it('names the Services that have waited longest', async () => {
    const page = await pageAt(6_543, slice(0, { a: 'ready' }), terminating(1_000, 'a'));
    expect(page.unresolved).toEqual({
      byStage: {
        EndpointSlice: { count: 1, oldestSeconds: 5.54 },
        Endpoints: { count: 0, oldestSeconds: 0 },
      },
      oldest: [{ stage: 'EndpointSlice', namespace: 'shop', name: 'web', count: 1, oldestSeconds: 5.54 }],
    });
  });

  it('says how each watch is doing, with the restarts that there were', async () => {
    expect((await pageAt(8_000)).watches).toEqual({
      pods: {
        state: 'watching',
        current: true,
        objects: 4,
        lists: 1,
        lastEventAgeSeconds: 5,
        restarts: { Ended: 2 },
        stalls: 0,
        handlerErrors: 0,
      },
      nodes: expect.objectContaining({ lastEventAgeSeconds: null }),
    });
  });
});
