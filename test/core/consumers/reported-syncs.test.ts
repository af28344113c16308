import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { firstIndexAfter, instantOf } from '../../../src/core/consumers/instants.ts';
import { MOST_INSTANCES, ReportedSyncs } from '../../../src/core/consumers/reported-syncs.ts';
import { runs } from '../../property/runs.ts';
import { expectedOf } from './reported-syncs-oracle.ts';
import {
  FORMS,
  type Form,
  reported,
  type Schedule,
  type SimulatedSync,
  syncsOf,
} from './simulated-gateways.ts';

const MINUTE = 60_000;

/** Every `interval` from `first` until `to`, each taking `took`. */
function every(gateway: string, interval: number, { first = 0, to = 20 * MINUTE, took = 100 } = {}) {
  const schedule = { gateway, from: first, to, interval: interval - took, jitter: [0], took: [took] };
  return syncsOf({ ...schedule, missedEvery: 0 });
}

const sorted = (values: readonly number[]) => values.toSorted((a, b) => a - b);
const quantile = (values: readonly number[], share: number) =>
  sorted(values)[Math.floor(values.length * share)]!;

describe('one instance that syncs every 10 s, 100 ms each', () => {
  it.each<[Form, number, number]>([
    // Removed right before a sync begins, or right after.
    ['around', 0.1, 10.1],
    ['timed', 0.1, 10.1],
    // How long a sync takes is not known.
    ['after', 0, 10],
  ])('%s: lags from %d s to %d s, evenly', (form, least, most) => {
    const { lags, lost } = reported(every('gw-1', 10_000), form, 20 * MINUTE);
    // One a second, but for the first sync and what is still waiting.
    expect(lags.length).toBeGreaterThan(1_170);
    expect(lost).toBe(0);
    for (const share of [0.1, 0.5, 0.9])
      expect(quantile(lags, share)).toBeLessThan(0.3 + least + share * (most - least));
    for (const share of [0.1, 0.5, 0.9])
      expect(quantile(lags, share)).toBeGreaterThan(least + share * (most - least) - 0.3);
    expect(Math.min(...lags)).toBeGreaterThanOrEqual(least - 1e-6);
    expect(Math.max(...lags)).toBeLessThanOrEqual(most + 1e-6);
  });
});

it('two that take turns are as late as one: the last one counts, and it is never both at their worst', () => {
  const staggered = [...every('a', 10_000), ...every('b', 10_000, { first: 5_000 })];
  const together = [...every('a', 10_000), ...every('b', 10_000)];
  const p = (syncs: readonly SimulatedSync[], share: number) =>
    quantile(reported(syncs, 'around', 20 * MINUTE).lags, share);
  // Of two that take turns, the later one comes 5 s to 10 s after a removal.
  expect(Math.abs(p(staggered, 0.5) - 7.6)).toBeLessThan(0.3);
  expect(p(staggered, 0.01)).toBeGreaterThan(5);
  expect(Math.abs(p(together, 0.5) - 5.1)).toBeLessThan(0.3);
});

describe('an instance that dies', () => {
  const died = [...every('a', 10_000), ...every('b', 10_000, { first: 3_000, to: 5 * MINUTE })];

  it('holds nothing up for longer than its patience, and what waited for it is given up and counted', () => {
    const { lags, lost, book } = reported(died, 'around', 20 * MINUTE);
    // Its last sync is at 4:53; it is taken to be gone 30 s later.
    expect(lost).toBeGreaterThan(25);
    expect(lost).toBeLessThan(35);
    expect(lags.length).toBeGreaterThan(1_130);
    expect(Math.max(...lags)).toBeLessThan(10.2);
    expect(book.state(20 * MINUTE)).toMatchObject({ live: 1, silent: ['b'] });
  });

  it('is forgotten after an hour', () => {
    const { book } = reported(died, 'around', 20 * MINUTE);
    expect(book.state(70 * MINUTE).silent).not.toContain('b');
  });
});

it('a pause that was longer than its patience is remembered: the next such pause is waited for', () => {
  const pauses = [
    ...every('a', 10_000, { to: 2 * MINUTE }),
    ...every('a', 60_000, { first: 3 * MINUTE, to: 9 * MINUTE }),
  ];
  const { lags, book } = reported(pauses, 'around', 9 * MINUTE);
  expect(Math.max(...lags)).toBeGreaterThan(55);
  expect(book.state(9 * MINUTE)).toMatchObject({ live: 1, interval: { longest: 70 } });
});

describe('the instants', () => {
  const instants = Array.from({ length: 20_000 }, (_, index) => instantOf(index));

  it('are one in each second', () => {
    expect(instants.map((at) => Math.floor(at / 1000))).toEqual(instants.map((_, index) => index));
    const later = instants.map((at) => instantOf(firstIndexAfter(at)));
    expect(later.slice(0, -1)).toEqual(instants.slice(1));
  });

  it.each([0.25, 1, 1.1, 2, 5, 7.256, 10, 30, 61.8])(
    'meet a consumer of %d s at every phase alike',
    (period) => {
      const tenths = new Array<number>(10).fill(0);
      for (const at of instants) tenths[Math.floor(((at / 1000 / period) % 1) * 10)]! += 1;
      // Of 2,000: chance alone would give a deviation of 42.
      for (const tenth of tenths) expect(Math.abs(tenth - 2_000)).toBeLessThan(150);
    },
  );
});

describe('cursors', () => {
  const book = () => new ReportedSyncs(0, () => undefined);
  const report = (cursor: number | 'Past' | 'Foreign' | undefined, instance = 'a') => ({
    instance,
    cursor,
    took: undefined,
  });

  it('count once, and only the last one given does', () => {
    const syncs = book();
    const first = syncs.report(report(undefined), 0).cursor;
    const second = syncs.report(report(undefined), 1).cursor;
    expect(syncs.report(report(first), 2).result).toBe('UsedCursor');
    expect(syncs.report(report(second), 3).result).toBe('UsedCursor');
    const third = syncs.report(report(undefined), 4).cursor;
    const synced = syncs.report(report(third), 5);
    expect(synced.result).toBe('Synced');
    expect(syncs.report(report(third), 6).result).toBe('UsedCursor');
  });

  it.each<['Past' | 'Foreign', string]>([
    ['Past', 'PastCursor'],
    ['Foreign', 'ForeignCursor'],
  ])('%s ones are no sync, and the answer brings one with which it goes on', (cursor, result) => {
    const syncs = book();
    const refused = syncs.report(report(cursor), 0);
    expect(refused.result).toBe(result);
    expect(syncs.state(0).live).toBe(0);
    expect(syncs.report(report(refused.cursor), 10_000).result).toBe('Synced');
    expect(syncs.state(10_000).live).toBe(1);
  });

  it('that contradict each other again and again are told, until one is right', () => {
    const syncs = book();
    let cursor: number | undefined;
    for (let now = 0; now < 3; now++) cursor = syncs.report(report('Foreign'), now).cursor;
    expect(syncs.state(3).contradicting).toEqual(['a']);
    syncs.report(report(cursor), 4);
    expect(syncs.state(4).contradicting).toEqual([]);
  });

  it('of two processes under one name never count as the syncs of one', () => {
    const [lags, syncs] = [[] as number[], new ReportedSyncs(0, (lag) => lags.push(lag))];
    const cursors: (number | undefined)[] = [undefined, undefined];
    // They take turns every 5 s: each has synced only every 10 s.
    for (let count = 0; count < 100; count++) {
      const which = count % 2;
      cursors[which] = syncs.report(report(cursors[which]), count * 5_000).cursor;
    }
    expect(lags).toEqual([]);
    expect(syncs.state(500_000).contradicting).toEqual(['a']);
  });
});

describe('acknowledgements', () => {
  it('are as old as the oldest of live instances, and none without any', () => {
    const syncs = new ReportedSyncs(0, () => undefined);
    expect(syncs.acknowledged()).toBeUndefined();
    const sync = (instance: string, began: number, ended: number) => {
      const { cursor } = syncs.report({ instance, cursor: undefined, took: undefined }, began);
      syncs.report({ instance, cursor, took: undefined }, ended);
    };
    sync('a', 1_000, 2_000);
    expect(syncs.acknowledged()).toBe(1_000);
    sync('b', 5_000, 9_000);
    expect(syncs.acknowledged()).toBe(1_000);
    sync('a', 10_000, 11_000);
    expect(syncs.acknowledged()).toBe(5_000);
  });

  it('take nothing for granted: whoever reports once after each sync has applied what came before the last but one', () => {
    const syncs = new ReportedSyncs(0, () => undefined);
    let cursor: number | undefined;
    for (const now of [0, 10_000, 20_000, 30_000])
      cursor = syncs.report({ instance: 'a', cursor, took: undefined }, now).cursor;
    expect(syncs.acknowledged()).toBe(20_000);
    syncs.report({ instance: 'a', cursor, took: 200 }, 40_000);
    expect(syncs.acknowledged()).toBe(39_800);
  });
});

describe(`more than ${MOST_INSTANCES} instances`, () => {
  const full = (live: boolean) => {
    const syncs = new ReportedSyncs(0, () => undefined);
    for (let each = 0; each < MOST_INSTANCES; each++) {
      const { cursor } = syncs.report({ instance: `gw-${each}`, cursor: undefined, took: undefined }, each);
      if (live) syncs.report({ instance: `gw-${each}`, cursor, took: undefined }, each);
    }
    return syncs;
  };

  it('take no place from live ones', () => {
    const answer = full(true).report({ instance: 'one-more', cursor: undefined, took: undefined }, 2_000);
    expect(answer).toEqual({ result: 'TooManyInstances', cursor: undefined });
  });

  it('take that of the one heard least recently', () => {
    const syncs = full(false);
    expect(syncs.report({ instance: 'one-more', cursor: undefined, took: undefined }, 2_000).result).toBe(
      'Asked',
    );
    // Forgotten, it is a newcomer.
    expect(syncs.report({ instance: 'gw-0', cursor: 1, took: undefined }, 2_001).result).toBe('UsedCursor');
    expect(syncs.report({ instance: 'gw-999', cursor: 1000, took: undefined }, 2_002).result).toBe('Synced');
  });
});

const schedule = fc.record({
  from: fc.integer({ min: 0, max: 5 * MINUTE }),
  length: fc.integer({ min: 1, max: 25 * MINUTE }),
  interval: fc.integer({ min: 300, max: 120_000 }),
  jitter: fc.array(fc.integer({ min: -20_000, max: 60_000 }), { minLength: 1, maxLength: 7 }),
  took: fc.array(fc.integer({ min: 1, max: 20_000 }), { minLength: 1, maxLength: 5 }),
  missedEvery: fc.integer({ min: 0, max: 9 }),
});

describe('for instances that come, go, restart, hang and miss syncs', () => {
  // The second is another life of the first, under its name.
  const gateways = fc.array(schedule, { minLength: 1, maxLength: 5 }).map((all) =>
    all.map(
      ({ from, length, ...rest }, index): Schedule => ({
        ...rest,
        gateway: `gw-${index}`,
        from,
        to: from + length,
      }),
    ),
  );
  const restarts = fc.option(fc.integer({ min: 0, max: 10 * MINUTE }), { nil: undefined });
  const horizon = 32 * MINUTE;

  it('the lags are those of the history seen as a whole', () => {
    fc.assert(
      fc.property(gateways, restarts, (schedules, pause) => {
        const [first] = schedules;
        const again =
          first && pause !== undefined
            ? [{ ...first, from: first.to + 20_001 + pause, to: first.to + 5 * MINUTE + pause }]
            : [];
        const syncs = separate([...schedules, ...again].flatMap(syncsOf));
        const expected = expectedOf(syncs, horizon);
        const { lags, lost, book } = reported(syncs, 'timed', horizon);
        expect(rounded(lags)).toEqual(rounded(expected.lags));
        expect(lost).toBe(expected.lost);
        const acknowledged = book.acknowledged();
        if (expected.acknowledged === undefined) expect(acknowledged).toBeUndefined();
        else expect(acknowledged).toBeCloseTo(expected.acknowledged, 3);
      }),
      runs(150),
    );
  });

  it('each form sees nearly the same where syncs take no time worth mentioning', () => {
    fc.assert(
      fc.property(gateways, (schedules) => {
        const quick = schedules.map((each) => ({ ...each, interval: each.interval + 3_000, took: [1] }));
        const syncs = separate(quick.flatMap(syncsOf));
        const [around, ...others] = FORMS.map((form) => reported(syncs, form, horizon));
        for (const each of others) {
          expect(Math.abs(each.lags.length - around!.lags.length)).toBeLessThan(20);
          // An instant within the millisecond of a sync is before it for one form, and after it for another.
          expect(Math.abs(each.lost - around!.lost)).toBeLessThanOrEqual(2);
        }
      }),
      runs(20),
    );
  });
});

it('what is estimated is what removals really meet', () => {
  const fleet = fc.array(
    fc.record({
      phase: fc.double({ min: 0, max: 1, noNaN: true }),
      spread: fc.double({ min: 0, max: 0.5, noNaN: true }),
    }),
    { minLength: 1, maxLength: 8 },
  );
  const settings = fc.record({
    interval: fc.integer({ min: 1_000, max: 30_000 }),
    took: fc.integer({ min: 5, max: 800 }),
    fleet,
  });
  fc.assert(
    fc.property(
      settings,
      fc.constantFrom<Form>('around', 'timed'),
      ({ interval, took, fleet: all }, form) => {
        const to = Math.max(400 * interval, 60 * MINUTE);
        const syncs = separate(
          all.flatMap(({ phase, spread }, index) =>
            syncsOf({
              gateway: `gw-${index}`,
              from: phase * interval,
              to,
              interval,
              jitter: Array.from(
                { length: 97 },
                (_, at) => spread * interval * (((at * 0.7548776662466927) % 1) - 0.5),
              ),
              took: [took],
              missedEvery: 0,
            }),
          ),
        );
        const names = [...new Set(syncs.map(({ gateway }) => gateway))];
        const own = names.map((name) => syncs.filter(({ gateway }) => gateway === name));
        // Removals at instants that have nothing to do with anybody's interval.
        const removals = irregular(5_000).map((share) => 3 * interval + share * (to - 8 * interval));
        const truth = removals.map((removed) => {
          const ends = own.map((each) => each[firstFrom(each, removed)]!.end);
          return (Math.max(...ends) - removed) / 1000;
        });
        const { lags } = reported(syncs, form, to);
        for (const share of [0.5, 0.9]) {
          const [measured, real] = [quantile(lags, share), quantile(truth, share)];
          expect(Math.abs(measured - real)).toBeLessThan(Math.max(0.1, 0.05 * real));
        }
      },
    ),
    runs(25),
  );
});

/** No two events at one instant: which of them is first would be anybody's guess. */
function separate(syncs: readonly SimulatedSync[]): SimulatedSync[] {
  return syncs.map((sync, index) => ({
    ...sync,
    begin: sync.begin + index * 1e-4,
    end: sync.end + index * 1e-4,
  }));
}

function rounded(lags: readonly number[]): readonly number[] {
  return sorted(lags.map((lag) => Math.round(lag * 1000) / 1000));
}

/** In [0, 1), from a generator of its own (Park and Miller). */
function irregular(count: number): readonly number[] {
  let state = 20_261_121;
  return Array.from({ length: count }, () => {
    state = (state * 48_271) % 2_147_483_647;
    return state / 2_147_483_647;
  });
}

/** The first that begins no earlier. */
function firstFrom(syncs: readonly SimulatedSync[], at: number): number {
  let [low, high] = [0, syncs.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (syncs[middle]!.begin < at) low = middle + 1;
    else high = middle;
  }
  return low;
}
