import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import type { Heartbeat, HeartbeatStream } from '../../../src/core/lag/events.ts';
import { heartbeatOf, heartbeatText, WatchDelay } from '../../../src/core/lag/watch-delay.ts';
import { runs } from '../../property/runs.ts';
import { type Delays, LateCluster, LateReplica, sendHeartbeatsFrom } from './late-streams.ts';
import { marker, slice, terminating } from './sample-events.ts';

const UNTIL = 60_000;

/** The first replica leads, the others follow. */
function sendAllHeartbeats(cluster: LateCluster, until: number, writeMs = () => 20): void {
  for (const [index, replica] of cluster.replicas.entries()) {
    const silentMs = index === 0 ? 0 : 2_500;
    sendHeartbeatsFrom(cluster, replica, { writeMs, until, life: `r${index}`, silentMs });
  }
}

/** One removal, seen by a leader that writes heartbeats and a follower, each with streams as late as this. */
function removed(
  lags: { readonly slices: number; readonly endpoints: number },
  { leader = {}, follower = {} }: { leader?: Partial<Delays>; follower?: Partial<Delays> },
  heartbeats = true,
) {
  const [leading, following] = [
    new LateReplica(leader, { heartbeats }),
    new LateReplica(follower, { heartbeats, skew: 5e6 }),
  ];
  const cluster = new LateCluster([leading, following]);
  cluster.removal('a', 10_000, lags);
  if (heartbeats) sendAllHeartbeats(cluster, UNTIL);
  cluster.run(UNTIL);
  const of = ({ removals, recorder }: LateReplica) => ({
    lags: removals.map(({ lag }) => lag),
    late: recorder.discarded.Late,
  });
  return { leader: of(leading), follower: of(following) };
}

describe('a watch that is alive may still be behind', () => {
  const late = { lags: [], late: expect.any(Number) };
  const onTime = (lag: number) => ({ lags: [expect.closeTo(lag, 1)], late: 0 });
  const NOW = { slices: 50, endpoints: 50 };
  const SLOW = { slices: 5_000, endpoints: 4_000 };

  it.each([
    ['slices 15 s late: no lag of 15.05 s, but none', NOW, { EndpointSlice: 15_000 }, 15.05],
    ['Endpoints 15 s late', NOW, { Endpoints: 15_000 }, 15.05],
    ['pods 1.8 s late: no lag of 3.2 s instead of 5 s, but none', SLOW, { pods: 1_800 }, 3.2],
    ['pods 4 s late', { slices: 9_000, endpoints: 9_000 }, { pods: 4_000 }, 5],
    ['slices 0.4 s late', { slices: 3_000, endpoints: 100 }, { EndpointSlice: 400 }, 3.4],
    ['Endpoints 0.4 s late', { slices: 100, endpoints: 3_000 }, { Endpoints: 400 }, 3.4],
  ])('%s', (_, lags, delays, wrong) => {
    // What the recorder makes of it without heartbeats.
    expect(removed(lags, { leader: delays }, false).leader).toEqual(onTime(wrong));
    const { leader } = removed(lags, { leader: delays });
    expect(leader).toEqual(late);
    expect(leader.late).toBeGreaterThan(0);
  });

  it('each replica by itself: the leader’s streams are in time, the follower’s pods are not', () => {
    const { leader, follower } = removed(SLOW, { follower: { pods: 1_800 } });
    expect(leader).toEqual(onTime(5));
    expect(follower).toEqual(late);
  });

  it('and where the leader has no removal open, the follower writes heartbeats', () => {
    const { leader, follower } = removed(NOW, { follower: { EndpointSlice: 15_000 } });
    expect([leader, follower]).toEqual([onTime(0.05), late]);
    expect(follower.late).toBe(1);
  });

  it('all streams late alike: the lag is right', () => {
    const all = { pods: 3_000, EndpointSlice: 3_000, Endpoints: 3_000 };
    expect(removed(SLOW, { leader: all, follower: all })).toEqual({ leader: onTime(5), follower: onTime(5) });
  });

  it('up to 250 ms, and 2 % of a long lag, are in time', () => {
    expect(removed(SLOW, { leader: { pods: 200 } }).leader).toEqual(onTime(4.8));
    expect(removed({ slices: 40_000, endpoints: 40_000 }, { leader: { pods: 600 } }).leader).toEqual(
      onTime(39.4),
    );
    expect(removed({ slices: 10_000, endpoints: 10_000 }, { leader: { pods: 600 } }).leader).toEqual(late);
  });

  it('calm removals are not stamped, and their samples come at once', () => {
    const replica = new LateReplica();
    const cluster = new LateCluster([replica]);
    cluster.removal('a', 10_000, { slices: 50, endpoints: 80 });
    for (let now = 0; now <= 20_000; now += 10) {
      cluster.run(now);
      expect(replica.recorder.wantsHeartbeat(now, '')).toBe(false);
    }
    expect(replica.removals).toMatchObject([{ lag: 0.08 }]);
  });

  it.each([1_050, 1_500, 4_000])('all streams of a replica, and the pods’ by %d ms less', (less) => {
    for (const pods of [1_000, 6_500, 15_000]) {
      const behind = { pods, EndpointSlice: pods + less, Endpoints: pods + less };
      const now = { slices: 0, endpoints: 0 };
      expect(removed(now, { follower: behind }, false).follower).toEqual(onTime(less / 1000));
      expect(removed(now, { follower: behind }).follower).toEqual(late);
      expect(removed(now, { leader: behind }).leader).toEqual(late);
    }
  });

  it('where no leader writes heartbeats, a sample comes ten seconds later', () => {
    const replica = new LateReplica();
    const cluster = new LateCluster([replica]);
    cluster.removal('a', 10_000, { slices: 3_000, endpoints: 50 });
    cluster.removal('b', 22_999, { slices: 50, endpoints: 50 });
    cluster.run(22_999);
    expect([replica.removals, replica.recorder.wantsHeartbeat(22_999, '')]).toEqual([[], true]);
    cluster.run(25_000);
    expect(replica.removals).toMatchObject([{ uid: 'a', lag: 3, at: 13_000 }, { uid: 'b' }]);
  });

  it('many samples that wait do not make each event slow', () => {
    const replica = new LateReplica();
    const ready = Object.fromEntries(Array.from({ length: 3_000 }, (_, at) => [`p${at}`, 'ready'] as const));
    replica.apply(slice(0, ready));
    for (const uid of Object.keys(ready)) replica.apply(terminating(1_000, uid));
    replica.apply(slice(5_000, {}));
    // Written but not delivered: until it is, no sample can be verified.
    replica.recorder.heartbeatWritten('', 'pods', { number: 1, at: 5_000 });
    const lateness = vi.spyOn(WatchDelay.prototype, 'lateness');
    for (let at = 16_000; at < 17_000; at += 1) replica.apply(slice(at, {}, { name: 'other' }));
    expect(lateness.mock.calls.length).toBeLessThan(20_000);
    expect(replica.recorder.wantsHeartbeat(17_000, '')).toBe(true);
    lateness.mockRestore();
  });

  it('what was late before its watch broke does not make a later removal late', () => {
    const replica = new LateReplica();
    const none = { number: 0, at: 0 };
    const heartbeat = (
      from: HeartbeatStream,
      number: number,
      at: number,
      more: Partial<Heartbeat['acknowledged']> = {},
    ) => {
      const acknowledged = { pods: none, EndpointSlice: none, Endpoints: none, ...more };
      replica.apply({
        type: 'Heartbeat',
        at,
        from,
        heartbeat: { life: '', number, sentAt: at, acknowledged },
      });
    };
    heartbeat('pods', 1, 1_000);
    replica.recorder.heartbeatWritten('', 'EndpointSlice', { number: 1, at: 2_000 });
    heartbeat('EndpointSlice', 1, 9_000);
    replica.apply(marker(9_050, 'StreamBroken', 'EndpointSlice'));
    replica.apply(marker(9_100, 'StreamCurrent', 'EndpointSlice'));
    replica.apply(slice(9_150, { a: 'ready' }));
    replica.apply(terminating(9_200, 'a'));
    replica.apply(slice(10_400, {}));
    heartbeat('EndpointSlice', 2, 10_500);
    heartbeat('pods', 2, 10_600, { EndpointSlice: { number: 2, at: 10_500 } });
    heartbeat('pods', 3, 11_600, { pods: { number: 2, at: 10_600 } });
    expect([replica.stages, replica.recorder.discarded.Late]).toMatchObject([[{ uid: 'a', lag: 1.2 }], 0]);
  });

  it('a new leader’s heartbeats are not compared with the former’s', () => {
    const [first, second] = [new LateReplica(), new LateReplica({}, { skew: -7e6 })];
    const cluster = new LateCluster([first, second]);
    cluster.removal('a', 10_000, { slices: 5_000, endpoints: 50 });
    cluster.removal('b', 21_000, { slices: 5_000, endpoints: 50 });
    sendHeartbeatsFrom(cluster, first, { writeMs: () => 20, until: 20_000, life: 'first' });
    cluster.at(20_000, () =>
      sendHeartbeatsFrom(cluster, second, { writeMs: () => 20, until: UNTIL, life: 'second' }),
    );
    cluster.run(UNTIL);
    for (const { removals } of [first, second]) expect(removals.map(({ lag }) => lag)).toEqual([5, 5]);
  });
});

describe('whatever the streams and the leader’s writes are like', () => {
  const delay = fc.oneof(fc.nat(40), fc.integer({ min: 300, max: 20_000 }));
  const delays = fc.record({ pods: delay, EndpointSlice: delay, Endpoints: delay });
  const lag = fc.integer({ min: 0, max: 30_000 });
  const removals = fc.array(
    fc.record({ at: fc.integer({ min: 1_000, max: 40_000 }), slices: lag, endpoints: lag }),
    {
      minLength: 1,
      maxLength: 12,
    },
  );

  const live = (
    replicas: readonly LateReplica[],
    all: readonly { at: number; slices: number; endpoints: number }[],
    writes: readonly number[],
  ) => {
    const cluster = new LateCluster(replicas);
    for (const [index, { at, ...lags }] of all.entries()) cluster.removal(`p${index}`, at, lags);
    let next = 0;
    const writeMs = () => writes[next++ % writes.length] ?? 20;
    sendAllHeartbeats(cluster, 110_000, writeMs);
    cluster.run(120_000);
  };
  const writes = fc.array(fc.integer({ min: 2, max: 400 }), { minLength: 1, maxLength: 20 });

  it('a withdrawal after more than a second is within 250 ms or 2 % of the truth, or gives no sample', () => {
    let samples = 0;
    fc.assert(
      fc.property(delays, removals, (of, all) => {
        const leader = new LateReplica();
        const replica = new LateReplica(of, { skew: 1e6 });
        live([leader, replica], all, [20]);
        for (const { uid, stage, lag: measured } of replica.stages) {
          // What seems to be shorter is not stamped.
          if (measured <= 1) continue;
          samples += 1;
          const { slices, endpoints } = all[Number(uid.slice(1))]!;
          const truth = (stage === 'Endpoints' ? endpoints : slices) / 1000;
          expect(Math.abs(measured - truth)).toBeLessThanOrEqual(Math.max(0.25, 0.02 * measured) + 0.05);
        }
      }),
      runs(300),
    );
    expect(samples).toBeGreaterThan(100);
  });

  it('streams in time are never taken for late ones, however slow and uneven the leader’s writes are', () => {
    fc.assert(
      fc.property(removals, writes, fc.nat(60), (all, slow, even) => {
        const leader = new LateReplica();
        const replica = new LateReplica({ pods: even, EndpointSlice: even / 2 }, { skew: -4e5 });
        live([leader, replica], all, slow);
        expect([leader.recorder.discarded.Late, replica.recorder.discarded.Late]).toEqual([0, 0]);
        expect(leader.removals).toHaveLength(all.length);
      }),
      runs(200),
    );
  });
});

describe('a heartbeat', () => {
  const acknowledged = {
    pods: { number: 3, at: 900 },
    EndpointSlice: { number: 2, at: 850 },
    Endpoints: { number: 0, at: 0 },
  };
  const heartbeat: Heartbeat = { life: 'x-_9', number: 4, sentAt: 1_000, acknowledged };

  it('is read as it was written', () => {
    expect(heartbeatText(heartbeat)).toBe('x-_9:4@1000:3@900,2@850,0@0');
    expect(heartbeatOf(heartbeatText(heartbeat))).toEqual(heartbeat);
  });

  it.each([
    undefined,
    '',
    'x',
    'x:4@1000:3@900,2@850',
    'x:-1@0:0@0,0@0,0@0',
    `x:${'9'.repeat(16)}@0:0@0,0@0,0@0`,
  ])('is not %j', (text) => expect(heartbeatOf(text)).toBeUndefined());

  it('that an object shows again with another change of it is not taken for a new one', () => {
    const watchDelay = new WatchDelay();
    watchDelay.heartbeat('pods', heartbeat, 1_010, true);
    watchDelay.heartbeat('EndpointSlice', { ...heartbeat, number: 3, sentAt: 1_020 }, 1_030, true);
    watchDelay.heartbeat('pods', heartbeat, 9_000, true);
    const next = { ...acknowledged, pods: { number: 4, at: 1_010 } };
    watchDelay.heartbeat(
      'EndpointSlice',
      { ...heartbeat, number: 4, sentAt: 1_040, acknowledged: next },
      1_050,
      true,
    );
    expect(watchDelay.lateness('pods', 1_005)).toBe(0);
    // An event that came together with the heartbeat is judged by it.
    expect(watchDelay.lateness('pods', 1_010)).toBe(0);
    expect(watchDelay.lateness('pods', 8_000)).toBeUndefined();
    expect(watchDelay.behind('pods', 9_000)).toBe(0);
  });
});
