import { describe, expect, it } from 'vitest';
import type { SigningKeys } from '../../src/certs/index.ts';
import type { DiscoveryConsumerSpec } from '../../src/core/api/index.ts';
import type { HoldPlan } from '../../src/core/decision/index.ts';
import { consumerOf } from '../../src/core/lag/index.ts';
import type { Route } from '../../src/hold/caller.ts';
import type { PodState } from '../../src/hold/holds.ts';
import {
  Arena,
  clock,
  FakeHelper,
  holdOf,
  REPLICAS_OWN,
  REPORTING,
  snapshotWith,
  stall,
  until,
} from './arena.ts';
import { pass, simulateTime } from './simulated-time.ts';

simulateTime();

/** The service looks every 50 ms, and a hold at most 40 ms after a change. */
const SOON_MS = 100;

describe('a pod that terminates', () => {
  it('is held until everything that lists it has withdrawn it', async () => {
    const arena = await new Arena().start();
    const token = arena.admit('web-1');
    const helper = arena.call(token);
    await helper.hears('holding');
    arena.delete('web-1');
    await pass(300);
    expect(helper.words).toEqual(['holding']);
    const withdrawn = arena.withdraw('web-1');
    const released = await helper.hears('release');
    expect(released - withdrawn).toBeLessThan(SOON_MS);
    await helper.closes();
    expect(arena.released).toMatchObject([{ pod: { name: 'web-1' }, reason: 'Gone' }]);
    expect(arena.holds.size).toBe(0);
  });

  it('is held no longer where Endpoints are not followed', async () => {
    const arena = await new Arena({ endpoints: 'Ignore' }).start();
    const helper = arena.call(arena.admit('web-1'));
    arena.delete('web-1');
    const withdrawn = arena.withdraw('web-1');
    expect((await helper.hears('release')) - withdrawn).toBeLessThan(SOON_MS);
  });

  it('is held for `initial` after that where a consumer is not known', async () => {
    const arena = await new Arena().start();
    const helper = arena.call(arena.admit('web-1', { initial: 1 }));
    arena.delete('web-1');
    const withdrawn = arena.withdraw('web-1');
    const released = await helper.hears('release');
    expect(released - withdrawn).toBeGreaterThanOrEqual(1_000);
    expect(released - withdrawn).toBeLessThan(1_000 + SOON_MS);
  });

  it('is let go at once where nothing listed it', async () => {
    const arena = await new Arena().start();
    const token = arena.admit('web-1');
    arena.withdraw('web-1');
    await pass(1_100);
    arena.delete('web-1');
    await arena.call(token).hears('release');
    expect(arena.released).toMatchObject([{ reason: 'NotServing' }]);
  });

  it('counts as withdrawn when all had been read, where it had been before', async () => {
    const readAt = clock();
    const arena = await new Arena({ readAt }).start();
    const token = arena.admit('web-1', { initial: 1 });
    arena.delete('web-1', 91);
    arena.forget('web-1');
    const released = await arena.call(token).hears('release');
    expect(released - readAt).toBeGreaterThanOrEqual(1_000);
    expect(released - readAt).toBeLessThan(1_000 + SOON_MS);
    expect(arena.released).toMatchObject([{ reason: 'Gone' }]);
  });

  it('counts from the deletion: a hook that is run again is let go at once', async () => {
    const arena = await new Arena().start();
    const token = arena.admit('web-1', { max: 1 });
    arena.delete('web-1');
    await arena.call(token).hears('release');
    const again = Date.now();
    await arena.call(token).hears('release');
    expect(Date.now() - again).toBeLessThan(SOON_MS);
    // Reported once.
    expect(arena.released).toMatchObject([{ reason: 'Max' }]);
  });

  it('is reported at hold.max, though its helper has counted the same seconds and gone before', async () => {
    const arena = await new Arena().start();
    // Instants of the clock are larger than any span that is compared.
    await pass(10_000);
    const helper = arena.call(arena.admit('web-1', { max: 1 }));
    await helper.hears('holding');
    arena.delete('web-1');
    await pass(800);
    helper.socket.destroy();
    await until('the report', () => arena.released.length > 0);
    expect(arena.released).toMatchObject([{ reason: 'Max' }]);
  });

  it('is not reported at hold.max where its helper had gone long before', async () => {
    const arena = await new Arena().start();
    const helper = arena.call(arena.admit('web-1', { max: 8 }));
    await helper.hears('holding');
    arena.delete('web-1');
    helper.socket.destroy();
    await pass(20_000);
    expect(arena.released).toEqual([]);
  });

  it('does not wait for longer where its process has got no processor for a second', async () => {
    let stalls = 1;
    const arena = await new Arena({
      onRelease: () => {
        if (stalls-- > 0) stall(1_000);
      },
    }).start();
    const helpers = ['web-1', 'web-2'].map((name) => {
      const helper = arena.call(arena.admit(name));
      arena.delete(name);
      return helper;
    });
    for (const helper of helpers) await helper.hears('holding');
    for (const name of ['web-1', 'web-2']) arena.withdraw(name);
    const withdrawn = clock();
    for (const helper of helpers) await helper.hears('release');
    // Four times as long a pause would end after five.
    expect(clock() - withdrawn).toBeLessThan(3_000);
  });

  it('has one hold for all its containers, and for those that call again', async () => {
    const arena = await new Arena().start();
    const token = arena.admit('web-1');
    arena.delete('web-1');
    const helpers = [arena.call(token), arena.call(token), arena.call(token)];
    for (const helper of helpers) await helper.hears('holding');
    helpers[0]?.socket.destroy();
    const again = arena.call(token);
    await again.hears('holding');
    expect(arena.holds.size).toBe(1);
    arena.withdraw('web-1');
    for (const helper of [...helpers.slice(1), again]) await helper.hears('release');
    expect(arena.released).toHaveLength(1);
  });

  it('keeps its own time where the grace is cut meanwhile', async () => {
    const arena = await new Arena().start();
    const helper = arena.call(arena.admit('web-1'));
    arena.delete('web-1', 90);
    await helper.hears('holding');
    const cut = arena.delete('web-1', 2);
    const released = await helper.hears('release');
    expect(released - cut).toBeLessThan(1_000 + SOON_MS);
    expect(arena.released).toMatchObject([{ reason: 'Max' }]);
  });
});

describe('a pod that shows no deletion', () => {
  it('is asked about, and let go where a container only restarts', async () => {
    const arena = await new Arena({ lookUp: async () => ({ found: 'Restart' }) }).start();
    const begun = clock();
    const released = await arena.call(arena.admit('web-1')).hears('release');
    expect(released - begun).toBeLessThan(2_000);
    expect(arena.released).toMatchObject([{ reason: 'NotTerminating' }]);
  });

  it.each<[string, Partial<HoldPlan>, PodState | undefined]>([
    ['its static wait had passed', { observe: true }, undefined],
    ['its static wait had passed after a restart', { observe: true }, { found: 'Restart' }],
    ['hold.max had passed', { max: 1 }, undefined],
  ])('counts its next stop from its next hook, where it was released as %s', async (_, terms, state) => {
    const arena = await new Arena({ lookUp: async () => state }).start();
    const token = arena.admit('web-1', terms);
    await arena.call(token).hears('release');
    // Where it has not become clear why, it is no less known that a hook has called.
    expect(arena.pods.withUid('web-1')?.calledAt === undefined).toBe(state !== undefined);
    await pass(200);
    const called = clock();
    const helper = arena.call(token);
    // The hook calls before the watch shows the deletion.
    await helper.hears('holding');
    await pass(50);
    arena.delete('web-1');
    expect((await helper.hears('release')) - called).toBeGreaterThanOrEqual(900);
  });

  it('is held once its deletion has been found', async () => {
    const arena = await new Arena({
      lookUp: async () => ({
        found: 'Deleted',
        timestamp: new Date(Date.now() + 90_000).toISOString(),
        graceSeconds: 90,
      }),
    }).start();
    const helper = arena.call(arena.admit('web-1'));
    await until('its deletion to be known', () => arena.holds.list()[0]?.deleted);
    expect(helper.words).toEqual(['holding']);
    arena.withdraw('web-1');
    await helper.hears('release');
    expect(arena.released).toMatchObject([{ reason: 'Gone' }]);
  });

  it('is not asked about where the deletion shows in time', async () => {
    const arena = await new Arena().start();
    const helper = arena.call(arena.admit('web-1'));
    await helper.hears('holding');
    arena.delete('web-1');
    await pass(500);
    expect(arena.asked).toEqual([]);
  });

  it('is asked about again where the API server did not answer', async () => {
    let failures = 0;
    const lookUp = async () => {
      failures += 1;
      return failures === 1 ? undefined : ({ found: 'Restart' } as const);
    };
    const arena = await new Arena({ lookUp }).start();
    await arena.call(arena.admit('web-1')).hears('release');
    expect(arena.asked).toHaveLength(2);
  });
});

describe('instances of consumers', () => {
  it('are waited for until they have acknowledged the withdrawal', async () => {
    let still: readonly string[] = ['edge-1'];
    const asked: unknown[] = [];
    const taken = {
      waitingFor: (_: string, versions: unknown) => {
        asked.push(versions);
        return still;
      },
      hasSilent: () => false,
    } as never;
    const arena = await new Arena({
      snapshot: snapshotWith({ consumers: [REPORTING] }),
      reports: () => ({ taken, since: Number.NEGATIVE_INFINITY }),
    }).start();
    const helper = arena.call(arena.admit('web-1'));
    arena.delete('web-1');
    arena.withdraw('web-1', '4711');
    await pass(400);
    expect(helper.words).toEqual(['holding']);
    expect(arena.holds.list()).toMatchObject([{ waitingFor: [{ consumer: 'edge', instances: ['edge-1'] }] }]);
    expect(asked.at(-1)).toEqual({ EndpointSlice: '4711' });
    still = [];
    const said = clock();
    arena.holds.heard('edge');
    expect((await helper.hears('release')) - said).toBeLessThan(SOON_MS);
  });

  it('are waited for from when their registry no longer has the pod', async () => {
    let outAt: number | undefined;
    const declared = consumerOf('edge', {
      measure: { declared: { lag: 1 } },
      deregister: { http: { method: 'PUT', url: 'http://registry/{address}' } },
    } as DiscoveryConsumerSpec);
    const arena = await new Arena({
      snapshot: snapshotWith({ consumers: [declared] }),
      outAt: () => outAt,
    }).start();
    const helper = arena.call(arena.admit('web-1', { initial: 30 }));
    arena.delete('web-1');
    arena.withdraw('web-1');
    await pass(1_500);
    expect(arena.holds.list()).toMatchObject([
      { waitingFor: [{ consumer: 'edge', instances: ['its registry still has the pod'] }] },
    ]);
    outAt = clock();
    arena.holds.touch('web-1');
    const heldFor = (await helper.hears('release')) - outAt;
    expect(heldFor).toBeGreaterThan(990);
    expect(heldFor).toBeLessThan(1_000 + SOON_MS);
    expect(arena.released.map(({ reason }) => reason)).toEqual(['Gone']);
  });

  it('are unknown to a leader that has just begun: `initial` counts from its first call, not the withdrawal', async () => {
    const arena = await new Arena({
      snapshot: snapshotWith({
        consumers: [{ ...REPORTING, measure: { kind: 'inspect', inspect: {} as never } }],
      }),
      usersOf: () => 'unknown',
    }).start();
    const token = arena.admit('web-1', { initial: 1 });
    arena.delete('web-1');
    arena.withdraw('web-1');
    // Held meanwhile by another leader, to which an instance has said that it uses the pod.
    await pass(1_200);
    const helper = arena.call(token);
    const held = await helper.hears('holding');
    expect((await helper.hears('release')) - held).toBeGreaterThan(900);
  });

  it('that an inspection shows are waited for', async () => {
    let users: readonly string[] | 'unknown' = ['envoy-0'];
    const arena = await new Arena({
      snapshot: snapshotWith({
        consumers: [{ ...REPORTING, measure: { kind: 'inspect', inspect: {} as never } }],
      }),
      usersOf: () => users,
    }).start();
    const helper = arena.call(arena.admit('web-1', { initial: 30 }));
    arena.delete('web-1');
    arena.withdraw('web-1');
    await pass(300);
    expect(arena.holds.list()).toMatchObject([
      { waitingFor: [{ consumer: 'edge', instances: ['envoy-0'] }] },
    ]);
    expect([...arena.wanted]).toEqual(['web-1']);
    users = [];
    arena.holds.touch('web-1');
    await helper.hears('release');
    expect([...arena.wanted]).toEqual([]);
  });
});

describe('callers', () => {
  it('with an unknown token get `unsure`, once its pod has had time to show', async () => {
    const arena = await new Arena({ limits: { pending: 300 } }).start();
    const helper = arena.call('AAAAAAAAAAAAAAAAAAAAAA');
    await helper.hears('unsure');
    await helper.closes();
    expect(helper.words).toEqual(['unsure']);
  });

  it('may come before their pod has shown', async () => {
    const arena = await new Arena().start();
    const token = 'AAAAAAAAAAAAAAAAAAAAAA';
    const helper = arena.call(token);
    await pass(200);
    arena.put('web-1', holdOf(token));
    await helper.hears('holding');
  });

  it('wait without an answer while the watches are not current', async () => {
    const arena = await new Arena({ limits: { pending: 100 } }).start();
    const token = arena.admit('web-1');
    expect(arena.holds.blindSince).toBeUndefined();
    arena.current = false;
    expect(arena.holds.blindSince).toBeUndefined();
    await pass(3_100);
    const helper = arena.call(token);
    await pass(300);
    expect(helper.words).toEqual([]);
    arena.current = true;
    await helper.hears('holding');
  });

  it('wait without an answer until all has been read', async () => {
    const arena = await new Arena({ limits: { pending: 100 }, current: false }).start();
    const helpers = [arena.call(arena.admit('web-1')), arena.call('AAAAAAAAAAAAAAAAAAAAAA')];
    await pass(300);
    expect(helpers.flatMap(({ words }) => words)).toEqual([]);
    arena.current = true;
    await helpers[0]?.hears('holding');
    await helpers[1]?.hears('unsure');
  });

  it.each([
    ['says something else first', 'GET / HTTP/1.1\r\n\r\n'],
    ['has a token of another form', 'linger-hold/1 short\n'],
    ['never ends its line', 'x'.repeat(600)],
    [
      'pretends to relay',
      'linger-hold-relay/1 10.0.0.9 1 AAAAAAAAAAAAAAAAAAAAAA\nlinger-hold/1 AAAAAAAAAAAAAAAAAAAAAA\n',
    ],
  ])('is hung up on who %s', async (_, text) => {
    const arena = await new Arena().start();
    const helper = new FakeHelper(arena.port);
    helper.socket.write(text);
    await helper.closes();
    expect(helper.words).toEqual([]);
  });

  it('who say nothing are hung up on', async () => {
    const arena = await new Arena({ limits: { greeting: 200 } }).start();
    await new FakeHelper(arena.port).closes();
  });

  it('who say too much are hung up on, and others of the pod are not', async () => {
    const arena = await new Arena().start();
    const token = arena.admit('web-1');
    arena.delete('web-1');
    const [quiet, loud] = [arena.call(token), arena.call(token)];
    await quiet.hears('holding');
    await loud.hears('holding');
    loud.socket.write('w 1 1 1 - 0\n'.repeat(200));
    await loud.closes();
    expect(quiet.closedAt).toBeUndefined();
    arena.withdraw('web-1');
    await quiet.hears('release');
  });

  it('whose lines of 15 s are read at once, as after a standstill, are not', async () => {
    const arena = await new Arena().start();
    const helper = arena.call(arena.admit('web-1'));
    await helper.hears('holding');
    helper.socket.write('w 1 1 1 - 0\n'.repeat(30));
    await until('the lines', () => arena.holds.list()[0]?.open === 1);
    await pass(100);
    expect(helper.closedAt).toBeUndefined();
  });

  it('of one address are so many at most, and others have room', async () => {
    const arena = await new Arena({ limits: { perSource: 3 } }).start();
    const token = arena.admit('web-1');
    const first = [0, 1, 2].map(() => arena.call(token));
    for (const helper of first) await helper.hears('holding');
    await arena.call(token).closes();
    await arena.call(token, '127.0.0.2').hears('holding');
    expect(arena.service.connections).toBe(4);
  });

  it('with one token cannot crowd out the pod itself', async () => {
    const arena = await new Arena({ limits: { perPodAndSource: 4, perPod: 6 } }).start();
    const token = arena.admit('web-1');
    arena.delete('web-1');
    const own = arena.call(token, '127.0.0.2');
    await own.hears('holding');
    const thieves = Array.from({ length: 20 }, () => arena.call(token));
    for (const thief of thieves) await until('an answer', () => thief.words.length > 0 || thief.closedAt);
    await until('the oldest to go', () => arena.service.connections <= 6);
    expect(own.closedAt).toBeUndefined();
    arena.withdraw('web-1');
    await own.hears('release');
  });
});

describe('a replica that does not lead', () => {
  it('releases nothing where its Lease has run out and nothing has noticed yet', async () => {
    const arena = await new Arena().start();
    const helper = arena.call(arena.admit('web-1'));
    arena.delete('web-1');
    await helper.hears('holding');
    arena.leads = false;
    arena.withdraw('web-1');
    await pass(300);
    expect([helper.words, arena.released]).toEqual([['holding'], []]);
    // It was only late to renew it.
    arena.leads = true;
    await helper.hears('release');
    expect(arena.released).toHaveLength(1);
  });

  it('relays to the one that does, and tells it who called', async () => {
    const leader = await new Arena({ limits: { perSource: 1 } }).start();
    const follower = await new Arena({ route: () => ({ host: '127.0.0.1', port: leader.port }) }).start();
    const tokens = ['web-1', 'web-2'].map((name) => leader.admit(name));
    for (const name of ['web-1', 'web-2']) leader.delete(name);
    const [first = '', second = ''] = tokens;
    // Two connections of the follower, and one of each caller.
    const one = follower.call(first, '127.0.0.2');
    await one.hears('holding');
    const two = follower.call(second, '127.0.0.3');
    await two.hears('holding');
    await follower.call(second, '127.0.0.3').closes();
    leader.withdraw('web-1');
    await one.hears('release');
    await one.closes();
    expect(two.words).toEqual(['holding']);
  });

  it('takes an IPv4 address for one, however the follower has spelled it', async () => {
    const { service } = new Arena();
    const relayed = (source: string) => service.relayedSource(service.relayLine(source, 'hello'), 'hello');
    expect(relayed('::ffff:10.0.0.9')).toBe('10.0.0.9');
    expect(relayed('10.0.0.999')).toBeUndefined();
  });

  it('passes on what the pod sees', async () => {
    const leader = await new Arena().start();
    const follower = await new Arena({ route: () => ({ host: '127.0.0.1', port: leader.port }) }).start();
    const token = leader.admit('web-1');
    leader.delete('web-1');
    const helper = follower.call(token);
    await helper.hears('holding');
    helper.socket.write('w 10 0 7 - 0\n');
    await pass(100);
    leader.withdraw('web-1');
    await helper.hears('release');
    expect(leader.released).toMatchObject([{ open: 7 }]);
  });

  it('is refused where it has another key', async () => {
    const leader = await new Arena().start();
    const route = () => ({ host: '127.0.0.1', port: leader.port });
    const follower = await new Arena({ route, keys: () => [Buffer.from('another')] }).start();
    const helper = follower.call(leader.admit('web-1'));
    await helper.closes();
    expect(helper.words).toEqual([]);
  });

  it('is taken while the key changes: the follower has the new one first, and then the leader', async () => {
    let keys: SigningKeys = [REPLICAS_OWN];
    const leader = await new Arena({ keys: () => keys }).start();
    const route = () => ({ host: '127.0.0.1', port: leader.port });
    const next = Buffer.from('the next');
    keys = [next, REPLICAS_OWN];
    for (const its of [[next, REPLICAS_OWN], [REPLICAS_OWN]] as const) {
      const follower = await new Arena({ route, keys: () => its }).start();
      await follower.call(leader.admit('web-1')).hears('holding');
    }
  });

  it('looks for a leader for a while, and then hangs up: the helper keeps what an earlier leader said', async () => {
    let route: 'here' | undefined;
    const arena = await new Arena({ route: () => route, limits: { leaderless: 600 } }).start();
    const token = arena.admit('web-1');
    const [early, late] = [arena.call(token), arena.call(token)];
    await pass(200);
    expect([...early.words, ...late.words]).toEqual([]);
    route = 'here';
    await early.hears('holding');
    route = undefined;
    const last = arena.call(token);
    await last.closes();
    expect(last.words).toEqual([]);
  });

  it('keeps its connection while it looks, and is held on it by the replica that comes to lead', async () => {
    let route: 'here' | undefined;
    const arena = await new Arena({ route: () => route, limits: { again: 100 } }).start();
    const helper = arena.call(arena.admit('web-1'));
    await until('three words', () => helper.words.length >= 3);
    // A helper that hears nothing for 15 s calls again.
    expect(new Set(helper.words)).toEqual(new Set(['waiting']));
    arena.service.hangUp(({ state }) => state === 'Relayed');
    route = 'here';
    await helper.hears('holding');
    expect(helper.closedAt).toBeUndefined();
  });

  it('never relays what was relayed to it', async () => {
    const route: () => Route = () => ({ host: '127.0.0.1', port: arena.port });
    const arena: Arena = await new Arena({ route, limits: { pending: 300 } }).start();
    const helper = arena.call(arena.admit('web-1'));
    await helper.closes();
    expect(helper.words).toEqual([]);
  });
});
