import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  BLIND,
  BLIND_MS,
  CONTROL_PLANE_LISTS,
  HOOK_STARTS_MS,
  type HoldFacts,
  type HoldVerdict,
  LEAST_HOLD,
  type LettingGo,
  type ListingFacts,
  type Sender,
  STATIC_WAIT,
  UNDECLARED,
  UNDELETED,
  verdictOf,
} from '../../src/hold/release-rules.ts';
import { runs } from '../property/runs.ts';

const TERMS = {
  wait: 15,
  grace: 90,
  baseGrace: 30,
  min: 5,
  max: 60,
  percentile: 99,
  initial: 30,
  probes: 0,
  containers: 1,
};
/** Converts seconds since the deletion, which is seen at 1,000 s of the clock. */
const DELETED = 1_000_000;
const at = (seconds: number) => DELETED + seconds * 1000;

const elapsed = (seconds: number): LettingGo => ({ by: 'time', ms: seconds * 1000 });
const word = (still: readonly string[], completeAt = 0): LettingGo => ({ by: 'word', still, completeAt });
const consumer = (lettingGo: LettingGo, name = 'edge'): Sender => ({ name, lettingGo });
const listing = (withdrawn?: number, truncated = false): ListingFacts => ({
  name: 'EndpointSlice shop/web',
  withdrawnAt: withdrawn === undefined ? undefined : at(withdrawn),
  truncated,
});

/** A pod that was withdrawn a second after its deletion and dropped by a consumer 2 s later. */
const CALM: HoldFacts = {
  now: at(5),
  terms: TERMS,
  calledAt: at(0.2),
  deletion: { at: at(0), graceSeconds: 90 },
  cause: undefined,
  nodeBudget: undefined,
  blindSince: undefined,
  listings: [listing(1)],
  consumers: [consumer(elapsed(2))],
  quiet: 'Unknown',
};

type Change = Partial<HoldFacts>;
const terms = (change: Partial<HoldFacts['terms']>) => ({ terms: { ...TERMS, ...change } });
const none = { deletion: undefined };

describe('released', () => {
  const rows: readonly (readonly [what: string, change: Change, reason: string])[] = [
    ['withdrawn, let go and hold.min past', {}, 'Gone'],
    ['hold.min 0, at the very instant of the last', { ...terms({ min: 0 }), now: at(3) }, 'Gone'],
    ['no instance uses it any more', { consumers: [consumer(word([]))] }, 'Gone'],
    [
      'several consumers, the slowest of them',
      { consumers: [consumer(elapsed(1)), consumer(elapsed(4))] },
      'Gone',
    ],
    ['an unknown consumer, after initial', { now: at(31), consumers: [consumer({ by: 'unknown' })] }, 'Gone'],
    [
      'instances of an earlier lead, once all have reported',
      { consumers: [consumer(word([], at(4)))] },
      'Gone',
    ],
    [
      'instances of an earlier lead, after initial at the latest',
      { now: at(31), consumers: [consumer(word([], at(100)))] },
      'Gone',
    ],
    [
      'readiness lost 3 s before the deletion',
      { listings: [listing(-3)], consumers: [consumer(elapsed(7))] },
      'Gone',
    ],
    ['no consumer at all', { consumers: [] }, 'Gone'],
    ['a truncated list, after initial', { now: at(32), listings: [listing(1), listing(1, true)] }, 'Gone'],
    ['connections too rare to tell', { quiet: 'Rare' }, 'Gone'],
    ['a witness who has seen the end', { quiet: 'Quiet' }, 'Gone'],
    ['nothing listed it', { listings: [] }, 'NotServing'],
    ['withdrawn longer ago than any lag', { listings: [listing(-3)] }, 'NotServing'],
    ['a restart', { ...none, cause: 'Restart', now: at(1) }, 'NotTerminating'],
    ['an eviction: withdrawn and let go', { ...none, cause: 'Evicted', now: at(5.2) }, 'Gone'],
    ['an eviction: max', { ...none, cause: 'Evicted', now: at(60.2), listings: [listing()] }, 'Max'],
    [
      'a node that shuts down: withdrawn and let go',
      { ...none, cause: 'NodeShutdown', nodeBudget: 30, now: at(5.2) },
      'Gone',
    ],
    [
      'a node that shuts down: a third of its time',
      { ...none, cause: 'NodeShutdown', nodeBudget: 15, now: at(5.2), listings: [listing()] },
      'NodeShutdown',
    ],
    [
      'the same for a pod that is deleted meanwhile',
      { cause: 'NodeShutdown', nodeBudget: 15, now: at(5.2), listings: [listing()] },
      'NodeShutdown',
    ],
    [
      'a node that leaves more time than the pod has',
      { cause: 'NodeShutdown', nodeBudget: 3_600, now: at(30.2), listings: [listing()] },
      'NodeShutdown',
    ],
    [
      'a deletion that a clock puts too early: hold.max since the hook started',
      { deletion: { at: at(-70), graceSeconds: 90 }, now: at(58.2), listings: [listing()] },
      'Max',
    ],
    ['hold.max past', { now: at(60), listings: [listing()] }, 'Max'],
    [
      'the application’s own time',
      { now: at(40), deletion: { at: at(0), graceSeconds: 70 }, listings: [listing()] },
      'Max',
    ],
    [
      'half of a grace that was cut',
      { now: at(10), deletion: { at: at(0), graceSeconds: 20 }, listings: [listing()] },
      'Max',
    ],
    [
      'max before hold.min, where the grace was cut so far',
      { now: at(2), deletion: { at: at(0), graceSeconds: 4 } },
      'Max',
    ],
    ['no deletion shows, and hold.max is past', { ...none, now: at(60.2) }, 'Max'],
    ['an instance that never acknowledges', { now: at(60), consumers: [consumer(word(['edge-1']))] }, 'Max'],
    ['blind for 30 s and past the static wait', { now: at(40), blindSince: at(10) }, 'Unsure'],
    ['observed', { ...terms({ observe: true }), now: at(15.2), listings: [listing()] }, 'Observed'],
  ];
  it.each(rows)('%s', (_, change, reason) => {
    expect(verdictOf({ ...CALM, ...change })).toEqual({ release: reason });
  });

  it.each(rows)('not 1 ms earlier, where it is time that releases it: %s', (_, change, reason) => {
    const facts = { ...CALM, ...change };
    if (reason === 'NotTerminating') return;
    const earliest = firstRelease(facts);
    expect(verdictOf({ ...facts, now: earliest })).toEqual({ release: reason });
    expect(verdictOf({ ...facts, now: earliest - 1 })).toHaveProperty('waitingFor');
  });
});

describe('held', () => {
  const rows: readonly (readonly [what: string, change: Change, waitingFor: unknown])[] = [
    [
      'something lists it',
      { now: at(59), listings: [listing(1), listing()] },
      [{ consumer: CONTROL_PLANE_LISTS, instances: ['EndpointSlice shop/web'] }],
    ],
    ['hold.min', { now: at(4.9) }, [{ consumer: LEAST_HOLD }]],
    ['hold.min, though nothing lists it', { now: at(4.9), listings: [] }, [{ consumer: LEAST_HOLD }]],
    ['a lag', { now: at(10), consumers: [consumer(elapsed(12))] }, [{ consumer: 'edge' }]],
    [
      'an instance',
      { now: at(59), consumers: [consumer(word(['edge-1', 'edge-2']))] },
      [{ consumer: 'edge', instances: ['edge-1', 'edge-2'] }],
    ],
    [
      'an instance that has fallen silent',
      { now: at(30.9), consumers: [consumer(word([], Number.POSITIVE_INFINITY))] },
      [{ consumer: 'edge' }],
    ],
    [
      'an unknown consumer',
      { now: at(30.9), consumers: [consumer({ by: 'unknown' })] },
      [{ consumer: 'edge' }],
    ],
    ['who has not been declared', { quiet: 'Sending' }, [{ consumer: UNDECLARED }]],
    ['no deletion shows', { ...none, now: at(59) }, [{ consumer: UNDELETED }]],
    [
      'a deletion that a clock puts too early',
      { deletion: { at: at(-70), graceSeconds: 90 }, now: at(58.1), listings: [listing()] },
      [{ consumer: CONTROL_PLANE_LISTS, instances: ['EndpointSlice shop/web'] }],
    ],
    ['watches that are not current', { blindSince: at(4) }, [{ consumer: BLIND }]],
    [
      'the static wait, whatever else',
      { ...terms({ observe: true }), now: at(15.1) },
      [{ consumer: STATIC_WAIT }],
    ],
    [
      'the static wait of a container that restarts',
      { ...terms({ observe: true }), ...none, cause: 'Restart' },
      [{ consumer: STATIC_WAIT }],
    ],
    [
      'connections after a restart began do not matter',
      { ...none, quiet: 'Sending' },
      [{ consumer: UNDELETED }],
    ],
  ];
  it.each(rows)('%s', (_, change, waitingFor) => {
    const facts = { ...CALM, ...change };
    const verdict = verdictOf(facts);
    expect(verdict).toMatchObject({ waitingFor });
  });
});

const seconds = fc.integer({ min: 0, max: 120 });
const lettingGo: fc.Arbitrary<LettingGo> = fc.oneof(
  fc.record({ by: fc.constant('time' as const), ms: fc.nat({ max: 40_000 }) }),
  fc.record({
    by: fc.constant('word' as const),
    still: fc.constantFrom<readonly string[]>([], [], ['edge-1']),
    completeAt: fc.oneof(
      fc.nat({ max: 60_000 }).map((ms) => DELETED + ms),
      fc.constant(Number.POSITIVE_INFINITY),
    ),
  }),
  fc.record({ by: fc.constant('unknown' as const) }),
);
const instant = fc.integer({ min: -20_000, max: 90_000 }).map((ms) => DELETED + ms);
const anyFacts: fc.Arbitrary<HoldFacts> = fc.record({
  now: fc.integer({ min: 0, max: 130_000 }).map((ms) => DELETED + ms),
  terms: fc
    .record({
      wait: seconds,
      grace: seconds,
      baseGrace: seconds,
      min: fc.nat({ max: 20 }),
      max: seconds,
      percentile: fc.constant(99),
      initial: fc.nat({ max: 40 }),
      probes: fc.constant(0),
      containers: fc.constant(1),
      observe: fc.boolean(),
    })
    .map(({ observe, ...terms }) => ({ ...terms, ...(observe && { observe }) })),
  calledAt: fc.nat({ max: 3_000 }).map((ms) => DELETED + ms),
  deletion: fc.option(fc.record({ at: fc.constant(DELETED), graceSeconds: seconds }), { nil: undefined }),
  cause: fc.constantFrom(undefined, 'Restart', 'Evicted'),
  nodeBudget: fc.constant(undefined),
  blindSince: fc.option(instant, { nil: undefined }),
  listings: fc.array(
    fc.record({
      name: fc.constant('EndpointSlice shop/web'),
      withdrawnAt: fc.option(instant, { nil: undefined }),
      truncated: fc.boolean(),
    }),
    { maxLength: 3 },
  ),
  consumers: fc.array(fc.record({ name: fc.constantFrom('a', 'b'), lettingGo }), { maxLength: 3 }),
  quiet: fc.constantFrom('Off', 'Unknown', 'Rare', 'Sending', 'Quiet'),
});
const begunAt = ({ deletion, calledAt }: HoldFacts) =>
  deletion === undefined ? calledAt : Math.max(deletion.at, calledAt - HOOK_STARTS_MS);
const reasonOf = (verdict: HoldVerdict) => ('release' in verdict ? verdict.release : undefined);

describe('always', () => {
  const check = (holds: (facts: HoldFacts) => void) => fc.assert(fc.property(anyFacts, holds), runs(2_000));

  it('not before hold.min, but for a restart, hold.max and the static wait of an observer', () => {
    check((facts) => {
      const reason = reasonOf(verdictOf(facts));
      if (reason === undefined || ['NotTerminating', 'Max', 'Observed'].includes(reason)) return;
      const begun = begunAt(facts);
      expect(facts.now).toBeGreaterThanOrEqual(begun + facts.terms.min * 1000);
    });
  });

  it('at hold.max, and by when the application needs its own time', () => {
    check((facts) => {
      const { deletion, terms: of } = facts;
      if (deletion === undefined && facts.cause === 'Evicted') return;
      const grace = deletion?.graceSeconds ?? Number.POSITIVE_INFINITY;
      const most = Math.min(of.max, Math.max(grace - of.baseGrace, grace / 2));
      if (facts.now >= begunAt(facts) + most * 1000) expect(verdictOf(facts)).toEqual({ release: 'Max' });
    });
  });

  it('an observer’s hold ends at its static wait', () => {
    check((facts) => {
      if (!facts.terms.observe) return;
      const reason = reasonOf(verdictOf(facts));
      const isOver = facts.now >= facts.calledAt + facts.terms.wait * 1000;
      expect(reason === 'Max' || reason === (isOver ? 'Observed' : undefined)).toBe(true);
    });
  });

  it('what is not known never lets it go earlier', () => {
    const lessOf: fc.Arbitrary<(facts: HoldFacts) => HoldFacts> = fc.constantFrom(
      (facts) => ({ ...facts, blindSince: facts.blindSince ?? facts.now }),
      (facts) => ({ ...facts, cause: facts.deletion === undefined ? undefined : facts.cause }),
      (facts) => ({
        ...facts,
        listings: facts.listings.map((each) => ({ ...each, withdrawnAt: undefined })),
      }),
      (facts) => ({ ...facts, listings: [...facts.listings, listing()] }),
      (facts) => ({ ...facts, listings: facts.listings.map((each) => ({ ...each, truncated: true })) }),
      (facts) => ({
        ...facts,
        consumers: facts.consumers.map((each) => ({ ...each, lettingGo: lessKnown(each.lettingGo, facts) })),
      }),
      (facts) => ({ ...facts, consumers: [...facts.consumers, consumer({ by: 'unknown' })] }),
    );
    fc.assert(
      fc.property(anyFacts, lessOf, (facts, less) => {
        // These are decided by time alone, not by what is known.
        const reason = reasonOf(verdictOf(less(facts)));
        if (reason === undefined || reason === 'Max' || reason === 'Observed') return;
        expect(reasonOf(verdictOf(facts))).toBeDefined();
      }),
      runs(2_000),
    );
  });

  it('and nothing changes before the next look', () => {
    fc.assert(
      fc.property(anyFacts, fc.double({ min: 0, max: 0.999, noNaN: true }), (facts, share) => {
        const verdict = verdictOf(facts);
        if ('release' in verdict) return;
        const { now } = facts;
        expect(verdict.nextLookAt).toBeGreaterThan(now);
        const later = now + Math.floor(share * Math.min(verdict.nextLookAt - now, 1e7));
        expect(verdictOf({ ...facts, now: later })).toHaveProperty('waitingFor');
      }),
      runs(2_000),
    );
  });
});

/** The same consumer before it has reported. A lag longer than `initial` outlasts an unknown one. */
function lessKnown(known: LettingGo, { terms: of }: HoldFacts): LettingGo {
  if (known.by === 'word') return { ...known, completeAt: Number.POSITIVE_INFINITY };
  return known.by === 'time' && known.ms > of.initial * 1000 ? known : { by: 'unknown' };
}

/** Follows the verdicts' own times, to the millisecond. */
function firstRelease(facts: HoldFacts): number {
  let [from, to] = [at(-1), facts.now];
  while (from + 1 < to) {
    const middle = Math.floor((from + to) / 2);
    if ('release' in verdictOf({ ...facts, now: middle })) to = middle;
    else from = middle;
  }
  return to;
}

it('30 s of blindness are what the helper itself allows', () => {
  expect(BLIND_MS).toBe(30_000);
});
