import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { RemovalSample } from '../../../src/core/lag/events.ts';
import { LagRecorder } from '../../../src/core/lag/recorder.ts';
import { runs } from '../../property/runs.ts';
import {
  type Delivery,
  deliveriesOf,
  GROUP_OF,
  History,
  type Interruptible,
  OBJECTS,
  type ObjectName,
  type Step,
  type Truth,
} from './history.ts';
import { deleted, NAMESPACE, service } from './sample-events.ts';

/** The streams are up to this far apart; below the 250 ms from which on an inversion is discarded. */
const MOST_DELAY = 120;
const INVERSION = 250;

const KINDS: readonly Step['kind'][] = [
  ...Array<Step['kind']>(3).fill('create'),
  ...Array<Step['kind']>(4).fill('write'),
  ...Array<Step['kind']>(5).fill('end'),
  'terminate',
  'delete',
  'reshard',
  'break',
  'rotate',
];
const number = fc.nat({ max: 1_000 });
const step: fc.Arbitrary<Step> = fc.record({
  after: fc.oneof(fc.nat({ max: 30 }), fc.integer({ min: 300, max: 900 })),
  kind: fc.constantFrom(...KINDS),
  pod: number,
  object: number,
  state: number,
  lasting: fc.nat({ max: 600 }),
  delay: fc.nat({ max: MOST_DELAY }),
});

type Group = (typeof GROUP_OF)[ObjectName];
const GROUPS = ['web', 'six', 'Endpoints', 'never'] as const satisfies readonly Group[];

/** What the truth says about one pod and one group. */
interface Verdict {
  readonly verdict: 'must' | 'may' | 'mustNot';
  /** Seconds, where there is an end. */
  readonly lag?: number;
}

/** Knows everything that happened, in its order, and searches it through from the beginning each time. */
class Oracle {
  readonly #history: History;
  readonly #deliveries: readonly Delivery[];

  constructor(history: History, deliveries: readonly Delivery[]) {
    this.#history = history;
    this.#deliveries = deliveries;
  }

  judge(uid: string, group: Group): Verdict {
    const start = this.#history.truths.find((each) => each.stream === 'pods' && each.uid === uid);
    if (start === undefined || group === 'never') return { verdict: 'mustNot' };
    const seenStart = this.#deliveries.find(({ event }) => isEndOf(event, uid));
    if (seenStart === undefined || this.#interrupted('pods', seenStart.at)) return { verdict: 'mustNot' };
    const stream = group === 'Endpoints' ? 'Endpoints' : 'EndpointSlice';

    const changes = this.#readiness(uid, group);
    const withdrawal = changes.find(({ truth, ready }) => !ready && after(this.#history, truth, start));
    const end = withdrawal?.truth;
    const lag = end === undefined ? {} : { lag: (end.t - start.t) / 1000 };
    const close = changes.some(
      ({ truth }) => !after(this.#history, truth, start) && truth.t > start.t - MOST_DELAY - INVERSION - 1,
    );
    if (close || this.#interrupted(stream, seenStart.at)) return { verdict: 'may', ...lag };
    const before = changes.filter(({ truth }) => !after(this.#history, truth, start)).at(-1);
    if (before?.ready !== true || end === undefined) return { verdict: 'mustNot' };

    const seenEnd = this.#deliveries.find(({ truth }) => truth === end);
    // It came with a list.
    if (seenEnd === undefined || this.#interrupted(stream, seenEnd.at)) return { verdict: 'mustNot' };
    const from = Math.min(seenStart.at, seenEnd.at);
    const to = Math.max(seenStart.at, seenEnd.at);
    if (this.#broke('pods', from, to) || this.#broke(stream, from, to)) return { verdict: 'mustNot' };
    const early = this.#order(seenEnd) < this.#order(seenStart);
    // What shows as a flip of readiness before the termination shows is taken for one, also where it is another slice
    // that lists the pod as not ready.
    if (early && withdrawal?.state === 'notReady') return { verdict: 'mustNot' };
    return { verdict: 'must', ...lag };
  }

  /** Each change of "some object of the group lists it as ready", and as what the group lists it then. */
  #readiness(uid: string, group: Group) {
    const states = new Map<ObjectName, Truth['state']>();
    const changes: { truth: Truth; ready: boolean; state: Truth['state'] }[] = [];
    let ready = false;
    for (const truth of this.#history.truths) {
      const { object } = truth;
      if (truth.uid !== uid || object === undefined || GROUP_OF[object] !== group) continue;
      states.set(object, truth.state);
      const listed = new Set(states.values());
      if (listed.has('ready') === ready) continue;
      ready = !ready;
      const state =
        (['ready', 'terminating', 'notReady'] as const).find((each) => listed.has(each)) ?? 'absent';
      changes.push({ truth, ready, state });
    }
    return changes;
  }

  #interrupted(stream: Interruptible, at: number): boolean {
    return this.#history.interruptions.some(
      (each) => each.stream === stream && each.from < at && at <= each.to,
    );
  }

  #broke(stream: Interruptible, from: number, to: number): boolean {
    return this.#history.interruptions.some(
      (each) => each.stream === stream && each.kind === 'break' && each.from < to && each.to > from,
    );
  }

  #order(delivery: Delivery): number {
    return this.#deliveries.indexOf(delivery);
  }
}

function isEndOf(event: Delivery['event'], uid: string): boolean {
  return (event.type === 'PodTerminating' || event.type === 'PodDeleted') && event.pod.uid === uid;
}

function after(history: History, truth: Truth, other: Truth): boolean {
  return history.truths.indexOf(truth) > history.truths.indexOf(other);
}

/** The lags recorded, by pod and group: every delivery from a watch is about one pod. */
function record(deliveries: readonly Delivery[]) {
  const recorder = new LagRecorder();
  const lags = new Map<string, number[]>();
  const fromLists: number[] = [];
  const removals: RemovalSample[] = [];
  for (const { event, truth } of deliveries) {
    const recorded = recorder.apply(event);
    removals.push(...recorded.removals);
    for (const sample of recorded.stages) {
      if (truth === undefined) {
        fromLists.push(sample.lag);
        continue;
      }
      const key = `${truth.uid}/${sample.stage === 'Endpoints' ? 'Endpoints' : sample.name}`;
      lags.set(key, [...(lags.get(key) ?? []), sample.lag]);
    }
  }
  return { lags, fromLists, removals, recorder };
}

const tally = { must: 0, may: 0, mustNot: 0, removals: 0 };

it('against a truth that arrives late, out of order and with interruptions: nothing invented, nothing missing', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 5, maxLength: 60 }), (steps) => {
      const history = new History(steps);
      const deliveries = deliveriesOf(history);
      const oracle = new Oracle(history, deliveries);
      const { lags, fromLists, removals } = record(deliveries);
      expect(fromLists).toEqual([]);
      expect(new Set(removals.map(({ uid }) => uid)).size, 'one for each pod').toBe(removals.length);
      const uids = new Set(history.truths.map(({ uid }) => uid));
      for (const uid of uids) {
        checkPod(uid, oracle, lags);
        checkRemoval(uid, oracle, lags, removals);
      }
    }),
    runs(800),
  );
  // The histories do contain what they are to test.
  expect(tally.must).toBeGreaterThan(1_000);
  expect(tally.mustNot).toBeGreaterThan(500);
  expect(tally.removals).toBeGreaterThan(300);
});

/** Where each group must give a sample, the pod does, and its lag is the longest of them; never another. */
function checkRemoval(
  uid: string,
  oracle: Oracle,
  lags: ReadonlyMap<string, readonly number[]>,
  removals: readonly RemovalSample[],
): void {
  const measured = GROUPS.filter((group) => group !== 'never');
  const seen = measured.flatMap((group) => lags.get(`${uid}/${group}`) ?? []);
  const removal = removals.find((each) => each.uid === uid);
  if (measured.every((group) => oracle.judge(uid, group).verdict === 'must')) {
    tally.removals += 1;
    expect(removal, `no removal: ${uid}`).toBeDefined();
  }
  if (removal === undefined) return;
  expect(removal.lag).toBe(Math.max(...seen));
  expect(removal.withdrawals.map(({ lag }) => lag).toSorted()).toEqual(seen.toSorted());
}

function checkPod(uid: string, oracle: Oracle, lags: ReadonlyMap<string, readonly number[]>): void {
  for (const group of GROUPS) {
    const { verdict, lag } = oracle.judge(uid, group);
    const seen = lags.get(`${uid}/${group}`) ?? [];
    tally[verdict] += 1;
    if (verdict === 'mustNot') expect(seen, `invented: ${uid} ${group}`).toEqual([]);
    else expect(seen.length, `${verdict}: ${uid} ${group}`).toBeLessThanOrEqual(1);
    if (verdict === 'must') expect(seen, `missing: ${uid} ${group}`).toHaveLength(1);
    for (const each of seen) {
      const bound = MOST_DELAY / 1000 + 1e-9;
      // What was withdrawn and listed again within the interleaving of the termination may count as its end.
      if (verdict === 'may' && each <= bound) continue;
      expect(Math.abs(each - Math.max(0, lag ?? 0)), `${uid} ${group}`).toBeLessThanOrEqual(bound);
    }
  }
}

it('after everything has ended nothing is left in memory', () => {
  fc.assert(
    fc.property(fc.array(step, { minLength: 5, maxLength: 60 }), (steps) => {
      const history = new History(steps);
      const { recorder } = record(deliveriesOf(history));
      const at = 1e9;
      for (const uid of new Set(history.truths.map((truth) => truth.uid))) recorder.apply(deleted(at, uid));
      for (const name of OBJECTS) {
        const type = name === 'web' ? 'EndpointsDeleted' : 'SliceDeleted';
        recorder.apply({ type, at, namespace: NAMESPACE, name });
      }
      // Withdrawals are remembered for 10 s.
      recorder.apply(service({}, at + 20_000));
      expect(recorder.size).toEqual({ pods: 0, objects: 0, open: 0 });
    }),
    runs(100),
  );
});
