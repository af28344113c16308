import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { KubeFailure } from '../../src/cluster/index.ts';
import { ELECTION_LIMITS } from '../../src/leader/election.ts';
import { runs } from '../property/runs.ts';
import { anyHost, misfortune, SimulatedElection } from './simulated-election.ts';

const { durationMs, leadMs, lookEveryMs } = ELECTION_LIMITS;

/** The lease's duration, a look, and the pause and requests of a contender that has just failed. */
const ELECTED_WITHIN_MS = durationMs / 0.9 + lookEveryMs[1] + 5_000 + 1_000;

/** Elects one of two; no lease was there, so it takes the lease's duration. */
async function withLeader() {
  const election = new SimulatedElection(1);
  election.join();
  election.join({ rate: 1, skew: -7_200_000 });
  await election.runUntil(() => election.leaders().length === 1, 60_000);
  const [leader] = election.leaders();
  const follower = election.contenders.find((each) => each !== leader);
  if (leader === undefined || follower === undefined) throw new Error('nobody leads');
  await election.runUntil(() => follower.following === leader.identity, 10_000);
  return { election, leader, follower };
}

async function misfortunesOf(seed: number, limits = {}, deletions = true): Promise<SimulatedElection> {
  const election = new SimulatedElection(seed, limits);
  for (let count = 0; count < 3; count++) election.join(anyHost(election.random));
  await misfortune(election, 300_000, deletions);
  return election;
}

describe('whatever happens', () => {
  it('there are never two leaders at one instant, and one soon after it is over', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const election = await misfortunesOf(seed);
        expect(election.mostLeaders).toBeLessThanOrEqual(1);
        // The one that was stopped last runs again.
        await election.run(60_000);
        const tookMs = await election.runUntil(() => election.leaders().length === 1, ELECTED_WITHIN_MS);
        expect(tookMs).toBeLessThan(ELECTED_WITHIN_MS);
        expect(election.mostLeaders).toBe(1);
      }),
      runs(40),
    );
  });

  it('every leader has a higher term than those before, as long as the lease is not deleted', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer(), async (seed) => {
        const { terms } = await misfortunesOf(seed, {}, false);
        for (const [index, { term, identity }] of terms.entries()) {
          const before = terms[index - 1];
          if (before === undefined) continue;
          // A leader that lapsed, and led again before another replica did, is in the same term.
          if (before.identity === identity) expect(term).toBeGreaterThanOrEqual(before.term);
          else expect(term).toBeGreaterThan(before.term);
        }
      }),
      runs(20),
    );
  });

  it.each([
    { name: 'leaders led for longer than others wait', limits: { leadMs: 20_000 } },
    { name: 'others waited for less than leaders lead', limits: { durationMs: 8_000 } },
  ])('this simulation would show it if $name', async ({ limits }) => {
    let most = 0;
    for (let seed = 0; seed < 50 && most < 2; seed++) {
      most = (await misfortunesOf(seed, limits)).mostLeaders;
    }
    expect(most).toBeGreaterThan(1);
  });
});

it('a follower reads every second or two', async () => {
  const { election, leader, follower } = await withLeader();
  const before = follower.requests;
  await election.run(600_000);
  expect(election.terms).toHaveLength(1);
  expect(follower.following).toBe(leader.identity);
  expect(follower.requests - before).toBeGreaterThanOrEqual(600_000 / lookEveryMs[1] - 1);
  expect(follower.requests - before).toBeLessThanOrEqual(600_000 / lookEveryMs[0]);
});

describe('a leader', () => {
  it('is elected once no holder of the deleted lease can still be leading', async () => {
    const election = new SimulatedElection(1);
    election.join();
    await election.run(durationMs - 100);
    expect(election.leaders()).toEqual([]);
    await election.run(lookEveryMs[1] + 200);
    expect(election.leaders()).toHaveLength(1);
    expect(election.lease.record).toMatchObject({ holder: 'replica-0', transitions: 1, durationSeconds: 15 });
  });

  it('leads as long as it renews', async () => {
    const { election, leader, follower } = await withLeader();
    await election.run(600_000);
    expect(election.terms).toHaveLength(1);
    expect(election.leaders()).toEqual([leader]);
    expect(follower.following).toBe(leader.identity);
  });

  it('stops by itself when it cannot renew, before anybody else may lead', async () => {
    const { election, leader } = await withLeader();
    election.lease.fate = () => ({ thereAfter: undefined, backAfter: undefined });
    const tookMs = await election.runUntil(() => leader.leadership?.signal.aborted === true, 60_000);
    expect(tookMs).toBeGreaterThan(leadMs - ELECTION_LIMITS.renewEveryMs - 1_000);
    expect(tookMs).toBeLessThanOrEqual(leadMs + 50);
    expect(leader.following).toBe('');
  });

  it('that is gone without a word is followed by another after the lease’s duration', async () => {
    const { election, leader, follower } = await withLeader();
    leader.process.stopFor(3_600_000);
    const tookMs = await election.runUntil(() => election.leaders().includes(follower), 60_000);
    expect(tookMs).toBeGreaterThan(durationMs - ELECTION_LIMITS.renewEveryMs - 100);
    expect(tookMs).toBeLessThan(durationMs + lookEveryMs[1] + 200);
    expect(election.terms.map(({ term }) => term)).toEqual([1, 2]);
    expect(election.mostLeaders).toBe(1);
  });

  it('that stops releases the lease, and another leads within 2 s', async () => {
    const { election, leader, follower } = await withLeader();
    await election.run(600);
    leader.stop();
    const tookMs = await election.runUntil(() => election.leaders().includes(follower), 60_000);
    expect(tookMs).toBeLessThanOrEqual(lookEveryMs[1] + 200);
    await leader.ended;
    expect(leader.leadership?.signal.aborted).toBe(true);
    expect(election.lease.record).toMatchObject({ holder: follower.identity, transitions: 2 });
  });

  it('that stops is followed by one that knows the cluster, if there is any', async () => {
    const { election, leader, follower } = await withLeader();
    let known = false;
    const others = [0, 1, 2, 3, 4].map(() => election.join(undefined, () => known));
    await election.run(3_600);
    leader.stop();
    await election.runUntil(() => election.leaders().length > 0 && election.terms.length > 1, 60_000);
    expect(election.leaders()).toEqual([follower]);
    await election.run(5_000);
    follower.stop();
    const tookMs = await election.runUntil(() => election.terms.length > 2, 60_000);
    expect(others).toContain(election.leaders()[0]);
    expect(tookMs).toBeGreaterThan(ELECTION_LIMITS.yieldMs);
    expect(tookMs).toBeLessThan(ELECTION_LIMITS.yieldMs + 2 * lookEveryMs[1] + 200);
    known = true;
    await election.run(60_000);
    expect(election.terms).toHaveLength(3);
  });

  it('that stops while it does not lead leaves the lease alone', async () => {
    const { election, leader, follower } = await withLeader();
    follower.stop();
    await follower.ended;
    await election.run(60_000);
    expect(election.leaders()).toEqual([leader]);
    expect(election.terms).toHaveLength(1);
  });

  it('recreates a deleted lease, and keeps leading', async () => {
    const { election, leader } = await withLeader();
    election.lease.delete();
    await election.run(30_000);
    expect(election.terms).toHaveLength(1);
    expect(election.lease.record).toMatchObject({ holder: leader.identity });
    expect(election.lease.record?.transitions).toBeGreaterThanOrEqual(1);
  });

  it('is not unseated by a change of a label', async () => {
    const { election } = await withLeader();
    for (let count = 0; count < 30; count++) {
      election.lease.touch();
      await election.run(1_000);
    }
    expect(election.terms).toHaveLength(1);
  });

  it('is not kept in office by changes of labels', async () => {
    const { election, leader, follower } = await withLeader();
    leader.process.stopFor(3_600_000);
    for (let count = 0; count < 30; count++) {
      election.lease.touch();
      await election.run(1_000);
    }
    expect(election.leaders()).toContain(follower);
  });

  it('raises its term where it has found a higher one', async () => {
    const { election, leader } = await withLeader();
    leader.leadership?.outgrow(41);
    await election.run(5_000);
    expect(leader.leadership?.term).toBe(42);
    expect(election.lease.record?.transitions).toBe(42);
    expect(election.terms).toHaveLength(1);
  });

  it('follows a server’s Retry-After, and lapses meanwhile', async () => {
    const { election, leader } = await withLeader();
    let asked = 0;
    election.lease.fate = () => {
      asked += 1;
      const refusal = new KubeFailure('Throttled', 'throttled', 8_000);
      return { thereAfter: 1, backAfter: 1, refusal };
    };
    await election.run(60_000);
    expect(election.leaders()).toEqual([]);
    expect(leader.following).toBe('');
    // Two contenders, a request each every 8 to 13 s.
    expect(asked).toBeLessThan(18);
  });
});
