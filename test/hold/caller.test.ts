import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { HOLD_LIMITS, type Route } from '../../src/hold/caller.ts';
import { HoldService } from '../../src/hold/service.ts';
import { Arena, clock, FakeHelper, until } from './arena.ts';
import { pass, simulateTime } from './simulated-time.ts';

simulateTime();

const UNKNOWN = 'AAAAAAAAAAAAAAAAAAAAAA';

describe('a helper that is held', () => {
  it('hears `holding` again and again', async () => {
    const arena = await new Arena({ limits: { again: 100 } }).start();
    const helper = arena.call(arena.admit('web-1'));
    await until('three words', () => helper.words.length >= 3);
    expect(new Set(helper.words)).toEqual(new Set(['holding']));
    const [, second, third] = helper.heard.map(({ at }) => at);
    expect((third ?? 0) - (second ?? 0)).toBeGreaterThan(90);
  });

  it('is gone after a long silence, and not while it sends lines', async () => {
    const arena = await new Arena({ limits: { again: 50, idle: 800 } }).start();
    const token = arena.admit('web-1');
    const [silent, alive] = [arena.call(token), arena.call(token)];
    const held = await silent.hears('holding');
    const lines = setInterval(() => alive.socket.write('w 100 0 0 - 0\n'), 150);
    onTestFinished(() => clearInterval(lines));
    expect((await silent.closes()) - held).toBeGreaterThan(750);
    expect(alive.closedAt).toBeUndefined();
    expect(arena.holds.list()).toMatchObject([{ hooks: 1 }]);
  });

  it('reconnects when its replica hangs up', async () => {
    const arena = await new Arena().start();
    const token = arena.admit('web-1');
    const helper = arena.call(token);
    await helper.hears('holding');
    arena.service.hangUp();
    await helper.closes();
    expect([helper.words, arena.service.connections]).toEqual([['holding'], 0]);
    await arena.call(token).hears('holding');
  });

  it('counts from the start that it tells, also without a deletion', async () => {
    const arena = await new Arena().start();
    const helper = new FakeHelper(arena.port).greet(arena.admit('web-1'), ' 5000');
    await helper.hears('holding');
    const [held] = arena.holds.list();
    expect(held?.heldMs).toBeGreaterThanOrEqual(5_000);
    expect(held?.heldMs).toBeLessThan(15_000);
  });
});

describe('unknown tokens', () => {
  it('beyond some of one address are answered at once', async () => {
    const arena = await new Arena({ limits: { unknownPerMinute: 2, pending: 60_000 } }).start();
    const waiting = [arena.call(UNKNOWN), arena.call(UNKNOWN)];
    await until('both to wait', () => arena.service.connections === 2);
    await pass(200);
    await arena.call(UNKNOWN).hears('unsure');
    const other = arena.call(UNKNOWN, '127.0.0.2');
    await pass(200);
    expect([...waiting, other].flatMap(({ words }) => words)).toEqual([]);
  });

  it('may wait again in the next minute', () => {
    let now = 100_000;
    const { options } = new Arena().service;
    const limits = { ...HOLD_LIMITS, unknownPerMinute: 1 };
    const service = new HoldService({ ...options, clock: () => now, limits });
    const mayWait = () => service.mayWait('10.0.0.9');
    expect([mayWait(), mayWait()]).toEqual([true, false]);
    now += 59_000;
    expect(mayWait()).toBe(false);
    now += 2_000;
    expect([mayWait(), mayWait()]).toEqual([true, false]);
  });
});

describe('a follower', () => {
  const closedPort = async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    await new Promise((resolve) => server.close(resolve));
    return port;
  };

  it('tries again where the leader cannot be reached, with pauses', async () => {
    const leader = await new Arena().start();
    const dead = { host: '127.0.0.1', port: await closedPort() };
    let [route, looks]: [Route, number] = [dead, 0];
    const follower = await new Arena({
      route: () => {
        looks += 1;
        return route;
      },
      limits: { relayPause: 200 },
    }).start();
    const helper = follower.call(leader.admit('web-1'));
    await until('some looks', () => looks > 10);
    expect([helper.words, helper.closedAt]).toEqual([[], undefined]);
    route = { host: '127.0.0.1', port: leader.port };
    await helper.hears('holding');
  });

  it('dials once in a pause', async () => {
    let dials = 0;
    const port = await closedPort();
    const route: Route = {
      get host() {
        dials += 1;
        return '127.0.0.1';
      },
      port,
    };
    const follower = await new Arena({ route: () => route, limits: { relayPause: 400 } }).start();
    follower.call(UNKNOWN);
    await until('a dial', () => dials > 0);
    await pass(1_000);
    expect(dials).toBeGreaterThan(1);
    expect(dials).toBeLessThanOrEqual(4);
  });

  it('passes on what came before it had reached the leader, and hangs up when the leader does', async () => {
    const leader = await new Arena().start();
    let route: Route;
    const follower = await new Arena({ route: () => route }).start();
    const helper = new FakeHelper(follower.port);
    helper.socket.write(`linger-hold/1 ${leader.admit('web-1')}\nw 10 0`);
    await until('its connection', () => follower.service.connections === 1);
    await pass(100);
    route = { host: '127.0.0.1', port: leader.port };
    await helper.hears('holding');
    helper.socket.write(' 7 - 0\n');
    await until('its line', () => leader.holds.list()[0]?.open === 7);
    leader.service.hangUp();
    await helper.closes();
    await until('no connection', () => follower.service.connections === 0);
  });

  it('hangs up when its connection to the leader is reset', async () => {
    const leader = createServer((socket) => socket.once('data', () => socket.resetAndDestroy()));
    leader.listen(0, '127.0.0.1');
    onTestFinished(() => void leader.close());
    await once(leader, 'listening');
    const { port } = leader.address() as AddressInfo;
    const follower = await new Arena({ route: () => ({ host: '127.0.0.1', port }) }).start();
    await follower.call(UNKNOWN).closes();
  });

  it('hangs up when another leads, though the leader that it relays to closes nothing', async () => {
    const standing = createServer().listen(0, '127.0.0.1');
    onTestFinished(() => void standing.close());
    await once(standing, 'listening');
    const leader = await new Arena().start();
    let { port } = standing.address() as AddressInfo;
    const follower = await new Arena({
      route: () => ({ host: '127.0.0.1', port }),
      limits: { again: 100 },
    }).start();
    const token = leader.admit('web-1');
    const helper = follower.call(token);
    await pass(500);
    expect([helper.words, helper.closedAt]).toEqual([[], undefined]);
    ({ port } = leader);
    await helper.closes();
    await follower.call(token).hears('holding');
  });

  it('counts a relayed caller from the start that its helper tells', async () => {
    const leader = await new Arena().start();
    const follower = await new Arena({ route: () => ({ host: '127.0.0.1', port: leader.port }) }).start();
    const begun = clock();
    await new FakeHelper(follower.port).greet(leader.admit('web-1'), ' 5000').hears('holding');
    const heldMs = leader.holds.list()[0]?.heldMs ?? 0;
    expect(heldMs).toBeGreaterThanOrEqual(5_000);
    expect(heldMs).toBeLessThan(5_200 + clock() - begun);
  });
});

describe('the hold of a pod', () => {
  it('shows who has connected to it, without replicas', async () => {
    const arena = await new Arena().start();
    const helper = arena.call(arena.admit('web-1'));
    await helper.hears('holding');
    const from = () => arena.holds.list()[0]?.from ?? [];
    helper.socket.write('w 100 0 1 10.9.9.9,::ffff:10.1.1.1 0\n');
    await until('one of them', () => from().length > 0);
    expect(from()).toEqual(['10.1.1.1']);
  });

  it('keeps 64 addresses that have connected', async () => {
    const arena = await new Arena().start();
    const helper = arena.call(arena.admit('web-1'));
    await helper.hears('holding');
    for (let batch = 0; batch < 18; batch += 1) {
      const four = [0, 1, 2, 3].map((each) => `10.0.${batch}.${each}`);
      helper.socket.write(`w 100 0 ${batch} ${four.join(',')} 0\n`);
      await pass(110);
    }
    await until('the last line', () => arena.holds.list()[0]?.open === 17);
    expect(arena.holds.list()[0]?.from).toHaveLength(64);
  });
});
