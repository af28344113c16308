import { expect, it } from 'vitest';
import { type Forgotten, forgottenText } from '../../src/leader/codec.ts';
import { recordForgotten } from '../../src/leader/store.ts';
import type { ApiObject, ModelApi } from './model-api.ts';
import {
  annotationsOf,
  HISTORY,
  leads,
  Measured,
  openApi,
  p99,
  soon,
  startReplica,
  wall,
  withLeader,
} from './replica.ts';

const NOTE = 'linger.dev/forgotten';

const forget = (api: ModelApi, forgotten: Forgotten) =>
  recordForgotten({ server: api.url, credentials: async () => ({}) }, 'linger', forgotten, wall.now, {
    signal: new AbortController().signal,
    withinMs: 10_000,
  });

/** A leader and a follower that have measured 300 lags of 4 s, and half an hour later a storm of 3,000 lags of 40 s. */
async function withStorm() {
  const { api, leader } = await withLeader();
  // What it has measured before it restores the leader's history is not counted twice.
  const calm = new Measured();
  calm.record(4);
  const follower = startReplica(api, 'b', {}, calm);
  await follower.restored;
  await soon('the other to follow', () => follower.status.holder === leader.status.holder);
  wall.now += 1_800;
  const writes = api.writes(HISTORY);
  const storm = { from: wall.now - 60, to: wall.now + 60 };
  for (const { measured } of [leader, follower]) measured.record(40, 3_000);
  wall.now += 1_800;
  await soon('the storm in force', () => (p99(follower.measured) ?? 0) > 30);
  await soon('the storm in the history', () => api.writes(HISTORY) > writes);
  return { api, leader, follower, storm };
}

const samplesOf = ({ measured }: Awaited<ReturnType<typeof withStorm>>['leader']) =>
  measured.estimator.cluster.samples;

it('a span that is forgotten is gone from every replica, and from those that start with an older history', async () => {
  const { api, leader, follower, storm } = await withStorm();
  expect([samplesOf(leader), samplesOf(follower)]).toEqual([3_300, 3_300]);
  const before = api.objects.get(HISTORY) as ApiObject;
  await forget(api, storm);
  await soon(
    'the waits without it',
    () => (p99(follower.measured) ?? 99) < 6 && (p99(leader.measured) ?? 99) < 6,
  );
  expect([samplesOf(leader), samplesOf(follower)]).toEqual([300, 300]);
  await soon('the history without it', () => annotationsOf(api, HISTORY)[NOTE] === forgottenText([storm]));
  expect(leader.lines).toContainEqual(expect.objectContaining({ msg: 'span removed from the history' }));

  await follower.stop();
  await leader.stop();
  api.put(HISTORY, before);
  const next = startReplica(api, 'c');
  await next.restored;
  await leads(next);
  await soon('the lags without it', () => samplesOf(next) === 300);
});

it('a span that is forgotten while curves are computed is not in them for ten minutes', async () => {
  const gate = Promise.withResolvers<void>();
  let isHeld = false;
  class Slow extends Measured {
    override async next(...of: Parameters<Measured['next']>) {
      const next = await super.next(...of);
      if (p99({ table: next } as Measured) === p99(this) || isHeld) return next;
      isHeld = this.estimator.cluster.samples > 300;
      if (isHeld) await gate.promise;
      return next;
    }
  }
  const api = await openApi();
  const leader = startReplica(api, 'a', {}, new Slow());
  leader.measured.record(4);
  await soon('the lags in force', () => p99(leader.measured) !== undefined);
  wall.now += 1_800;
  const storm = { from: wall.now - 60, to: wall.now + 60 };
  leader.measured.record(40, 3_000);
  wall.now += 1_800;
  await soon('curves with the storm', () => isHeld);
  await forget(api, storm);
  await soon('the storm to be forgotten', () => samplesOf(leader) === 300);
  gate.resolve();
  const { steps } = leader.measured;
  await soon('further steps', () => leader.measured.steps > steps + 5);
  expect(p99(leader.measured)).toBeLessThan(6);
});

it('a history that was written without the span is restored as it is', async () => {
  const { api, leader, follower, storm } = await withStorm();
  await follower.stop();
  await leader.stop();
  const { metadata, ...object } = api.objects.get(HISTORY) as ApiObject;
  const annotations = { ...metadata.annotations, [NOTE]: forgottenText([storm]) };
  api.put(HISTORY, { ...object, metadata: { ...metadata, annotations } });
  await forget(api, storm);
  const next = startReplica(api, 'c');
  await leads(next);
  await next.restored;
  await soon('the lags', () => samplesOf(next) > 0);
  expect(samplesOf(next)).toBe(3_300);
});

it('what is forgotten of one namespace stays everywhere else', async () => {
  const { api, leader, storm } = await withStorm();
  leader.measured.record(40, 3_000, 'other');
  await forget(api, { ...storm, namespace: 'shop' });
  const { namespaces } = leader.measured.estimator;
  await soon('the namespace without it', () => namespaces.get('shop')?.samples === 300);
  expect(samplesOf(leader)).toBe(6_300);
});

it('of two people that forget at the same time, both are heard', async () => {
  const { api, storm } = await withStorm();
  const early = { from: storm.from - 900, to: storm.from };
  await Promise.all([forget(api, storm), forget(api, early)]);
  const noted = annotationsOf(api, HISTORY.replace('history', 'planned'))[NOTE] ?? '';
  expect(JSON.parse(noted)).toHaveLength(2);
});

it('nothing is published while no curve moves, though removals go on', async () => {
  const { api, leader } = await withLeader();
  const writes = () => api.writes(HISTORY.replace('history', 'planned'));
  const before = writes();
  for (let slice = 0; slice < 12; slice += 1) {
    wall.now += 900;
    leader.measured.record(4, 50);
    const { steps } = leader.measured;
    await soon('some steps', () => leader.measured.steps > steps + 3);
  }
  expect(writes()).toBe(before);
});

it('the next test begins at noon again, in whatever file: they may run in one process', () => {
  expect(new Date(wall.now * 1000).toISOString()).toBe('2026-11-21T12:00:00.000Z');
});
