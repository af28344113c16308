import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  firstIndexAfter,
  instantOf,
  MOST_INSTANCES,
  ReportedSyncs,
  type StageVersions,
} from '../../../src/core/lag/reported-syncs.ts';
import { runs } from '../../property/runs.ts';
import { expectedOf } from './reported-syncs-oracle.ts';
import {
  cursorOf,
  FORMS,
  type Form,
  instance,
  NONE,
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
    // A sync is only known to have begun after the one before was reported: up to one interval too long.
    ['after', 10, 20],
  ])('%s: lags from %d s to %d s, evenly', (form, least, most) => {
    const { lags, lost } = reported(every('gw-1', 10_000), form, 20 * MINUTE);
    // One a second, but for the first sync and what is still waiting.
    expect(lags.length).toBeGreaterThan(1_160);
    expect(lost).toBe(0);
    for (const share of [0.1, 0.5, 0.9])
      expect(quantile(lags, share)).toBeLessThan(0.3 + least + share * (most - least));
    for (const share of [0.1, 0.5, 0.9])
      expect(quantile(lags, share)).toBeGreaterThan(least + share * (most - least) - 0.3);
    expect(Math.min(...lags)).toBeGreaterThanOrEqual(least - 1e-6);
    expect(Math.max(...lags)).toBeLessThanOrEqual(most + 1e-6);
  });

  it('reports that travel for 3 s make every lag 3 s longer: they never claim a sync that had not begun', () => {
    const [prompt, late] = [0, 3_000].map((travelMs) =>
      sorted(reported(every('gw-1', 10_000), 'around', 20 * MINUTE, travelMs).lags),
    );
    for (const [index, lag] of late!.slice(0, 1_160).entries())
      expect(lag).toBeGreaterThan(prompt![index]! + 2.5);
  });
});

it('two that take turns are as late as one: the last one counts, and it is never both at their worst', () => {
  const staggered = [...every('a', 10_000), ...every('b', 10_000, { first: 5_000 })];
  const together = [...every('a', 10_000), ...every('b', 10_000)];
  const p = (syncs: readonly SimulatedSync[], share: number) =>
    quantile(reported(syncs, 'around', 20 * MINUTE).lags, share);
  // Where two take turns, the later one comes 5 s to 10 s after a removal.
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
    book.advance(70 * MINUTE, NONE);
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

  it.each([0.25, 1, 1.1, 1.309, 1.618, 2, 5, 7.256, 10, 30, 61.8])(
    'meet a consumer of %d s at every phase alike',
    (period) => {
      const tenths = new Array<number>(10).fill(0);
      for (const at of instants) tenths[Math.floor(((at / 1000 / period) % 1) * 10)]! += 1;
      // Each tenth has 2,000 on average: chance alone would give a standard deviation of 42.
      for (const tenth of tenths) expect(Math.abs(tenth - 2_000)).toBeLessThan(150);
    },
  );
});

describe('cursors', () => {
  const book = () => new ReportedSyncs(0, NONE, () => undefined);

  it('count once, and none counts that was given before one that has counted', () => {
    const syncs = book();
    const send = (givenAt: number, now: number) => syncs.report(instance('a'), cursorOf(givenAt), now, NONE);
    expect(send(20, 30)).toBe('Synced');
    expect(send(20, 31)).toBe('UsedCursor');
    expect(send(10, 32)).toBe('UsedCursor');
    expect(send(21, 33)).toBe('Synced');
  });

  it('of an earlier leader make an instance live, and say nothing of when', () => {
    const lags: number[] = [];
    const syncs = new ReportedSyncs(0, NONE, (lag) => lags.push(lag));
    const earlier = { by: 'cursor', givenAt: undefined, versions: { EndpointSlice: '7' } } as const;
    for (let now = 0; now < 60_000; now += 5_000)
      expect(syncs.report(instance('a'), earlier, now, NONE)).toBe('Synced');
    expect(syncs.state(60_000).live).toBe(1);
    expect(lags).toEqual([]);
    expect(syncs.waitingFor({ EndpointSlice: '7' })).toEqual([]);
  });
});

describe('an instant that no report applies', () => {
  it('is given up after half an hour, however many reports arrive', () => {
    const lags: number[] = [];
    const syncs = new ReportedSyncs(0, NONE, (lag) => lags.push(lag));
    // It asks each time, and sends back cursors of the first minute: true, and of no use.
    for (let now = 0; now < 60 * MINUTE; now += 5_000)
      syncs.report(instance('a'), cursorOf(now / 10_000), now, NONE);
    expect(lags).toEqual([]);
    expect(syncs.lost).toBeGreaterThan(1_700);
  });
});

describe('acknowledgements', () => {
  const sync = (syncs: ReportedSyncs, who: string, begin: number, end: number, versions: StageVersions) => {
    syncs.report(instance(who), undefined, begin, versions);
    syncs.report(instance(who), cursorOf(begin, versions), end, versions);
  };
  const versions = (slices: string, endpoints = slices) => ({ EndpointSlice: slices, Endpoints: endpoints });

  it('name the live instances that have not applied a withdrawal yet', () => {
    const syncs = new ReportedSyncs(0, NONE, () => undefined);
    expect(syncs.waitingFor(versions('100'))).toBeUndefined();
    sync(syncs, 'a', 1_000, 2_000, versions('99'));
    sync(syncs, 'b', 1_500, 2_500, versions('100'));
    expect(syncs.waitingFor(versions('99'))).toEqual([]);
    expect(syncs.waitingFor(versions('100'))).toEqual(['a']);
    expect(syncs.waitingFor(versions('101'))).toEqual(['a', 'b']);
    sync(syncs, 'a', 3_000, 4_000, versions('101', '98'));
    expect(syncs.waitingFor({ EndpointSlice: '101' })).toEqual(['b']);
    expect(syncs.waitingFor({ Endpoints: '100' })).toEqual(['a']);
  });

  it('never go back, and those of an instance that reads no Endpoints do not wait for them', () => {
    const syncs = new ReportedSyncs(0, NONE, () => undefined);
    for (const version of ['100', '99'])
      syncs.report(
        instance('a'),
        { by: 'versions', versions: { EndpointSlice: version } },
        1_000,
        versions('100'),
      );
    expect(syncs.waitingFor(versions('100', '5000'))).toEqual([]);
    expect(syncs.waitingFor(versions('101', '50'))).toEqual(['a']);
  });

  it('are waited for from the first cursor that an instance asks for, for half a minute', () => {
    const syncs = new ReportedSyncs(0, NONE, () => undefined);
    sync(syncs, 'a', 1_000, 2_000, versions('100'));
    syncs.report(instance('new'), undefined, 3_000, versions('100'));
    expect(syncs.waitingFor(versions('100'))).toEqual(['new']);
    syncs.advance(33_000, versions('100'));
    expect(syncs.waitingFor(versions('100'))).toEqual(['new']);
    syncs.advance(33_001, versions('100'));
    expect(syncs.waitingFor(versions('100'))).toEqual([]);
    sync(syncs, 'new', 40_000, 41_000, versions('101'));
    expect(syncs.waitingFor(versions('101'))).toEqual(['a']);
    syncs.report(instance('third'), undefined, 42_000, versions('101'));
    syncs.gone('third', 43_000);
    expect(syncs.waitingFor(versions('100'))).toEqual([]);
  });

  it('end with the instance', () => {
    const syncs = new ReportedSyncs(0, NONE, () => undefined);
    sync(syncs, 'a', 1_000, 2_000, versions('100'));
    syncs.advance(20 * MINUTE, versions('100'));
    expect(syncs.waitingFor(versions('100'))).toBeUndefined();
  });
});

describe('an instance that reads Kubernetes itself', () => {
  /** The cluster changes at each of these instants; the instance has applied that `lag` later, and says so. */
  function watching(changes: readonly number[], lag: number, reads: readonly ('slices' | 'endpoints')[]) {
    const lags: number[] = [];
    const syncs = new ReportedSyncs(0, { EndpointSlice: '1', Endpoints: '1' }, (each) => lags.push(each));
    const at = (now: number) => {
      const version = String(1 + changes.filter((change) => change <= now).length);
      return { EndpointSlice: version, Endpoints: '1' };
    };
    const claim = (now: number) => ({
      by: 'versions' as const,
      versions: {
        ...(reads.includes('slices') ? { EndpointSlice: at(now - lag).EndpointSlice } : {}),
        ...(reads.includes('endpoints') ? { Endpoints: '1' } : {}),
      },
    });
    for (let now = 0; now < 30 * MINUTE; now += 100) {
      // Every 10 s, changed or not, and when it has applied something.
      if (now % 10_000 === 0 || changes.includes(now - lag))
        syncs.report(instance('proxy'), claim(now), now, at(now));
      else if (now % 1_000 === 0) syncs.advance(now, at(now));
    }
    return { lags, lost: syncs.lost };
  }

  const changes = Array.from({ length: 50 }, (_, each) => 20_300 + each * 30_000);

  it('is measured at each change, to within the second in which that was seen, and never too short', () => {
    const { lags, lost } = watching(changes, 4_000, ['slices']);
    expect(lags).toHaveLength(50);
    for (const lag of lags) expect(lag).toBeGreaterThanOrEqual(4);
    for (const lag of lags) expect(lag).toBeLessThanOrEqual(5);
    expect(lost).toBe(0);
  });

  it('is not measured by changes of what it does not read', () => {
    expect(watching(changes, 4_000, ['endpoints'])).toEqual({ lags: [], lost: 0 });
  });

  it('has no lag where it applies a change before Linger sees it', () => {
    const lags: number[] = [];
    const syncs = new ReportedSyncs(0, { EndpointSlice: '1' }, (each) => lags.push(each));
    const report = (version: string, now: number, seen: string) =>
      syncs.report(instance('proxy'), { by: 'versions', versions: { EndpointSlice: version } }, now, {
        EndpointSlice: seen,
      });
    report('1', 1_000, '1');
    report('2', 2_000, '1');
    syncs.advance(3_000, { EndpointSlice: '2' });
    expect(lags).toEqual([0]);
  });
});

describe(`more than ${MOST_INSTANCES} instances`, () => {
  const full = (live: boolean) => {
    const syncs = new ReportedSyncs(0, NONE, () => undefined);
    for (let each = 0; each < MOST_INSTANCES; each++) {
      syncs.report(instance(`gw-${each}`), undefined, each, NONE);
      if (live) syncs.report(instance(`gw-${each}`), cursorOf(each), each, NONE);
    }
    return syncs;
  };

  it('take no place from live ones', () => {
    expect(full(true).report(instance('one-more'), undefined, 2_000, NONE)).toBe('TooManyInstances');
  });

  it('take that of the one heard least recently', () => {
    const syncs = full(false);
    syncs.report(instance('gw-0'), undefined, 1_500, NONE);
    expect(syncs.report(instance('one-more'), undefined, 2_000, NONE)).toBe('Asked');
    // All others are still known: one more takes the place of the next.
    for (const name of ['gw-0', 'gw-2', 'gw-999'])
      expect(syncs.report(instance(name), cursorOf(1_999), 2_001, NONE)).toBe('Synced');
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
        const { lags, lost } = reported(syncs, 'around', horizon);
        expect(rounded(lags)).toEqual(rounded(expected.lags));
        expect(lost).toBe(expected.lost);
      }),
      runs(150),
    );
  });

  it('a report after each sync alone is never too short, and at most one interval too long', () => {
    fc.assert(
      fc.property(gateways, (schedules) => {
        const steady = schedules.map((each) => ({ ...each, jitter: [0], missedEvery: 0 }));
        const syncs = separate(steady.flatMap(syncsOf));
        const [around, after] = FORMS.map((form) => reported(syncs, form, horizon));
        const longest = Math.max(...steady.map(({ interval, took }) => interval + 2 * Math.max(...took)));
        const [least, most] = [quantileOr(around!.lags, 0.5), quantileOr(after!.lags, 0.5)];
        if (around!.lost > 0 || after!.lost > 0 || after!.lags.length < 100) return;
        expect(most).toBeGreaterThanOrEqual(least - 0.001);
        expect(most).toBeLessThanOrEqual(least + longest / 1000 + 1);
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
    fc.property(settings, ({ interval, took, fleet: all }) => {
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
      // Removals at instants that are unrelated to any instance's interval.
      const removals = irregular(5_000).map((share) => 3 * interval + share * (to - 8 * interval));
      const truth = removals.map((removed) => {
        const ends = own.map((each) => each[firstFrom(each, removed)]!.end);
        return (Math.max(...ends) - removed) / 1000;
      });
      const { lags } = reported(syncs, 'around', to);
      for (const share of [0.5, 0.9]) {
        const [measured, real] = [quantile(lags, share), quantile(truth, share)];
        expect(Math.abs(measured - real)).toBeLessThan(Math.max(0.1, 0.05 * real));
      }
    }),
    runs(25),
  );
});

function quantileOr(values: readonly number[], share: number): number {
  return values.length === 0 ? 0 : quantile(values, share);
}

/** Moves events apart: of two at one instant, the order would be arbitrary. */
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

/** Pseudo-random numbers in [0, 1) (Park and Miller), the same in each run. */
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
