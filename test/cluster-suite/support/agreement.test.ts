import { expect, it } from 'vitest';
import type { StageSample } from '../../../src/core/lag/index.ts';
import { agreement } from './agreement.ts';
import type { TrueRemoval } from './endpoint-history.ts';

/** A removal from the Service `web`, in milliseconds. */
const removal = (uid: string, start: number, end: number | undefined): TrueRemoval => ({
  stage: 'EndpointSlice',
  service: 'web',
  pod: `pod ${uid}`,
  uid,
  start,
  end,
  bounds: [(end ?? 0) - start - 10, (end ?? 0) - start + 10],
});

const sample = (uid: string, start: number, at: number): StageSample => ({
  stage: 'EndpointSlice',
  namespace: 'shop',
  name: 'web',
  uid,
  lag: (at - start) / 1000,
  at,
  version: undefined,
});

const found = (samples: readonly StageSample[], removals: readonly TrueRemoval[]) => {
  const { pairs, missing, invented } = agreement(samples, removals, 2_000);
  return {
    pairs: pairs.map(({ truth, difference }) => [truth.uid, Math.round(difference)]),
    missing: missing.map(({ uid }) => uid),
    invented: invented.map(({ uid }) => uid),
  };
};

it('tells pods apart that are deleted in the same moment, and withdrawn by different writes', () => {
  const removals = [removal('a', 0, 13), removal('b', 13, 434)];
  // Both deletions arrived in one piece.
  const samples = [sample('a', 25, 30), sample('b', 25, 436)];
  expect(found(samples, removals)).toEqual({
    pairs: [
      ['a', -8],
      ['b', -10],
    ],
    missing: [],
    invented: [],
  });
});

it('of the same pod, takes the removal that ended at that time', () => {
  const removals = [removal('a', 0, 500), removal('a', 0, 40)];
  expect(found([sample('a', 1, 42), sample('a', 1, 501)], removals).pairs).toEqual([
    ['a', 1],
    ['a', 0],
  ]);
});

it('says what is missing and what did not happen', () => {
  const removals = [removal('a', 0, 40), removal('b', 0, 40), removal('c', 0, undefined)];
  const samples = [sample('a', 0, 4_000), sample('b', 0, 41), sample('d', 0, 40)];
  expect(found(samples, removals)).toEqual({
    pairs: [['b', 1]],
    missing: ['a'],
    invented: ['a', 'd'],
  });
});
