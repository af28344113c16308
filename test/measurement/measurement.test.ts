import { describe, expect, it } from 'vitest';
import {
  BUILT_IN_ENOUGH,
  type ClusterEvent,
  plannedFromJson,
  plannedToText,
  type StageSample,
} from '../../src/core/lag/index.ts';
import { Measurement } from '../../src/measurement/measurement.ts';
import {
  ALL_CURRENT,
  endpoints,
  marker,
  service,
  short,
  slice,
  terminating,
} from '../core/lag/sample-events.ts';

const START = 20_000 * 86_400;

/** A measurement that has got these events; its clocks stand still until they are set. */
function measuring(...events: readonly ClusterEvent[]) {
  const clocks = { ms: 0, epoch: START };
  const measurement = new Measurement({ clock: () => clocks.ms, epochSeconds: () => clocks.epoch });
  const samples: StageSample[] = [];
  measurement.onSample((sample) => void samples.push(sample));
  const apply = (...more: readonly ClusterEvent[]) => {
    for (const event of more) measurement.apply(event);
  };
  apply(...events);
  return { measurement, samples, clocks, apply };
}

/** The removal of one pod in so many seconds, begun at an instant. */
const removal = (at: number, seconds: number, uid = `pod-${at}`) => [
  slice(at, { [uid]: 'ready' }),
  terminating(at, uid),
  slice(at + seconds * 1000, {}),
];

/** As many removals, one after another. */
const removals = (count: number, seconds: number, from = 0) =>
  Array.from({ length: count }, (_, index) => removal(from + index * 10_000, seconds)).flat();

const READY = [...ALL_CURRENT, service()];

describe('samples', () => {
  it('reach each listener', () => {
    const { measurement, samples, apply } = measuring(...READY);
    const others: StageSample[] = [];
    measurement.onSample((sample) => void others.push(sample));
    apply(...removal(1_000, 0.5), ...removal(2_000, 0.7));
    expect(samples.map(short)).toEqual(['slice web 0.5', 'slice web 0.7']);
    expect(others).toEqual(samples);
  });

  it('are recorded and reach the other listeners where one throws', () => {
    const thrown: unknown[] = [];
    const onListenerError = (error: unknown) => void thrown.push(error);
    const measurement = new Measurement({ clock: () => 0, epochSeconds: () => START }, { onListenerError });
    const broken = () => {
      throw new Error('broken');
    };
    for (const add of [measurement.onChange, measurement.onSample, measurement.onRemoval]) add(broken);
    measurement.consumers.onSample(broken);
    const lags: number[] = [];
    measurement.onRemoval(({ lag }) => void lags.push(lag));
    for (const event of [...READY, ...removal(1_000, 0.5)]) measurement.apply(event);
    measurement.consumers.record({ consumer: 'edge', direction: 'removal', lag: 1 });
    expect(lags).toEqual([0.5]);
    expect(measurement.week()).toBeDefined();
    expect(thrown.length).toBeGreaterThan(3);
  });

  it('are not taken while what the Services say may be out of date', () => {
    const { measurement, samples, apply } = measuring(...READY);
    const discarded = () => measurement.discarded.Reconnect;
    apply(marker(500, 'StreamBroken', 'services'), ...removal(1_000, 0.5));
    expect([samples.length, discarded()]).toEqual([0, 1]);
    apply(marker(2_000, 'ListBegins', 'services'), service(), marker(2_000, 'ListEnds', 'services'));
    apply(...removal(2_100, 0.5));
    expect([samples.length, discarded()]).toEqual([0, 2]);
    apply(marker(3_000, 'StreamCurrent', 'services'), ...removal(3_100, 0.5));
    expect([samples.length, discarded()]).toEqual([1, 2]);
  });

  it('are taken across a watch of the Services that is only resumed', () => {
    const { samples, apply } = measuring(...READY, marker(500, 'StreamRotated', 'services'));
    apply(...removal(1_000, 0.5));
    expect(samples).toHaveLength(1);
  });
});

describe('what is unresolved', () => {
  const waiting = [
    ...READY,
    slice(0, { a: 'ready', b: 'ready' }),
    endpoints(0, ['a']),
    terminating(1_000, 'a'),
    terminating(3_000, 'b'),
  ];

  it('is counted by stage, with the age of the oldest', () => {
    const { measurement, clocks } = measuring(...waiting);
    clocks.ms = 5_000;
    expect(measurement.unresolved()).toEqual({
      EndpointSlice: { count: 2, oldestSeconds: 4 },
      Endpoints: { count: 1, oldestSeconds: 4 },
    });
  });

  it('is 0 where nothing waits', () => {
    const nothing = { count: 0, oldestSeconds: 0 };
    expect(measuring(...READY).measurement.unresolved()).toEqual({
      EndpointSlice: nothing,
      Endpoints: nothing,
    });
  });

  it('is listed by Service, the oldest first, and no more than asked for', () => {
    const other = slice(0, { c: 'ready' }, { name: 'api-1', serviceName: 'api' });
    const { measurement, clocks, apply } = measuring(...waiting, service({ name: 'api' }), other);
    apply(terminating(500, 'c'));
    clocks.ms = 5_000;
    expect(measurement.unresolvedServices(2)).toEqual([
      { stage: 'EndpointSlice', namespace: 'shop', name: 'api', count: 1, oldestSeconds: 4.5 },
      expect.objectContaining({ name: 'web', oldestSeconds: 4 }),
    ]);
  });

  it('counts in the lag of now by its age', () => {
    const { measurement, clocks } = measuring(...waiting);
    expect(measuring(...READY).measurement.now()).toBeUndefined();
    clocks.ms = 61_000;
    const { samples, stages } = measurement.now() ?? {};
    expect(samples).toBe(2);
    expect(stages?.map(({ stage }) => stage)).toEqual(['EndpointSlice', 'Endpoints']);
  });
});

describe('the planned lags', () => {
  const p99 = (measurement: Measurement) =>
    measurement.lags().planned('shop', [], BUILT_IN_ENOUGH).seen?.quantile(99);

  it('are none before a sample, and follow the first at the next step', async () => {
    const { measurement, apply } = measuring(...READY);
    const none = await measurement.replan(START);
    expect([none.cluster, p99(measurement)]).toEqual([undefined, undefined]);
    apply(...removal(1_000, 4));
    expect(p99(measurement)).toBeUndefined();
    expect((await measurement.replan(START)).cluster?.samples).toBe(1);
    expect(p99(measurement)).toBeCloseTo(4, 0);
  });

  it('stay as they are, table and all, when no sample has come', async () => {
    const { measurement } = measuring(...READY, ...removal(1_000, 4));
    const table = await measurement.replan(START);
    const lags = measurement.lags();
    expect(await measurement.replan(START + 3_600)).toBe(table);
    expect(measurement.lags()).toBe(lags);
  });

  it('can be stepped without being put in force', async () => {
    const { measurement } = measuring(...READY, ...removal(1_000, 4));
    const next = await measurement.next(measurement.table, START);
    expect(next.cluster?.samples).toBe(1);
    expect(p99(measurement)).toBeUndefined();
    expect(await measurement.next(next, START)).toBe(await measurement.next(next, START + 60));
    measurement.adopt(next);
    expect(p99(measurement)).toBeCloseTo(4, 0);
  });

  it('miss nothing that is measured while a step is made: the next one has it, ten minutes later', async () => {
    const { measurement, apply } = measuring(...READY, ...removal(1_000, 4));
    const step = measurement.next(measurement.table, START);
    apply(...removal(10_000, 8));
    expect((await measurement.next(await step, START + 600)).cluster?.samples).toBe(2);
  });

  it('of a follower are the table that it is given, to the bit', async () => {
    const leader = measuring(...READY, ...removals(300, 4)).measurement;
    const text = plannedToText(await leader.replan(START));
    const follower = measuring(...READY, ...removal(1_000, 60)).measurement;
    const table = plannedFromJson(JSON.parse(text));
    if (table === undefined) throw new Error('no table');
    follower.adopt(table);
    for (const percentile of [50, 90, 99, 99.9]) {
      const planned = (of: Measurement) =>
        of.lags().planned('shop', [], BUILT_IN_ENOUGH).seen?.quantile(percentile);
      expect(planned(follower)).toBe(planned(leader));
    }
    expect(follower.table).toBe(table);
  });

  it('of a follower that becomes the leader go on from the table that it had', async () => {
    const leader = measuring(...READY, ...removals(300, 4)).measurement;
    const next = measuring(...READY, ...removals(300, 60));
    next.measurement.adopt(await leader.replan(START));
    next.clocks.epoch = START + 60;
    next.apply(...removal(5_000_000, 60));
    await next.measurement.replan(START + 60);
    // A table is published at most every ten minutes.
    expect(p99(next.measurement)).toBeCloseTo(4, 0);
    await next.measurement.replan(START + 600);
    expect(p99(next.measurement)).toBeCloseTo(60, -1);
  });
});

describe('the parts of a history', () => {
  it('bring back what was measured', async () => {
    const { measurement } = measuring(...READY, ...removals(50, 4));
    const { measurement: later } = measuring();
    for (const part of measurement.parts(START))
      expect(later.restorePart(JSON.parse(part.text(100_000)), START)).toBe(true);
    expect(later.week()?.samples).toBe(50);
    expect((await later.replan(START)).cluster?.samples).toBe(50);
  });

  it('change nothing where they are none', async () => {
    const { measurement } = measuring();
    expect(measurement.restorePart({ v: 0 }, START)).toBe(false);
    expect((await measurement.replan(START)).cluster).toBeUndefined();
  });
});

it('says how much it holds', async () => {
  const { measurement } = measuring(...READY, slice(0, { a: 'ready' }), terminating(1, 'a'));
  expect(measurement.size).toEqual({ pods: 1, objects: 1, open: 1 });
});
