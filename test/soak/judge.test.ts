import { expect, it } from 'vitest';
import type { TrueRemoval } from '../cluster-suite/support/endpoint-history.ts';
import { earlyHolds, inventedLags, lagsIn, slopeOf } from './judge.ts';

const removal = (pod: string, lagMs: number): TrueRemoval => ({
  stage: 'EndpointSlice',
  service: 'svc-0/IPv4',
  pod,
  uid: pod,
  start: 10_000,
  end: 10_000 + lagMs,
  bounds: [lagMs - 10, lagMs + 10],
});
const page = (count: number, within: number) => [
  `linger_removal_lag_seconds_bucket{stage="EndpointSlice",le="2"} ${within}`,
  `linger_removal_lag_seconds_bucket{stage="EndpointSlice",le="+Inf"} ${count}`,
  `linger_removal_lag_seconds_count{stage="EndpointSlice"} ${count}`,
];
const NONE = lagsIn(page(0, 0));

it('finds the slope of a line, and how sure it is', () => {
  const points = [0, 1, 2, 3].map((minute) => [60_000 * minute, 5 + minute] as const);
  expect(slopeOf(points)).toMatchObject({ perHour: expect.closeTo(60), error: expect.closeTo(0) });
});

it.each([
  ['all of them', 2, 1, 0],
  ['fewer', 1, 1, 0],
  ['one too many', 3, 2, 1],
  ['a longer one than there was', 2, 0, 1],
])('samples of two removals, one of 3 s: %s', (_, count, within, invented) => {
  const truth = [removal('a', 100), removal('b', 3_000)];
  expect(inventedLags(NONE, lagsIn(page(count, within)), truth)).toHaveLength(invented);
});

const TERMS = { declaredMs: 1_000, syncMs: 1_000, staticMs: 20_000, maxMs: 60_000 };

it.each([
  ['after the declared lag', 11_200, 10_000, 0],
  ['before it', 10_900, 9_000, 1],
  ['before the clients of the page have asked again', 11_200, 10_900, 1],
  ['while the page still shows it', 11_200, undefined, 1],
  ['when the static wait is over', 30_100, undefined, 0],
])('a hold that ends %s', (_, endedAt, goneAt, early) => {
  const held = [{ pod: 'a', address: '198.18.0.1', startedAt: 10_000, endedAt }];
  const gone = new Map(goneAt === undefined ? [] : [['198.18.0.1', goneAt]]);
  expect(earlyHolds(held, [removal('a', 100)], gone, TERMS)).toHaveLength(early);
});
