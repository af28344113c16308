import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it, onTestFinished, test, vi } from 'vitest';
import { ConnectionMonitor } from '../../src/hold/connection-monitor.ts';
import { Arena, clock, FakeHelper, holdOf, until } from './arena.ts';

/** What tenants have tried against the Hold Service, and what must not come of it. */

const OWN = '127.0.0.2';

describe('a pod with a forged plan and forged lines', () => {
  it('takes constant time, however many probes and lines it claims', () => {
    const monitors = Array.from({ length: 100 }, () => new ConnectionMonitor());
    const begun = clock();
    for (let at = 0; at < 20_000; at += 100)
      for (const monitor of monitors) {
        monitor.hear({ at, opens: BigInt(at), established: 0, loopback: 0, remotes: [] });
        if (at % 1_000 === 0) monitor.observe({ now: at, probes: 1_000, min: 5 });
      }
    // 100 pods for 20 s: a replica has 20 s for it, and needs less than a tenth of a second.
    expect(clock() - begun).toBeLessThan(1_000);
  });

  it.each([0, 1, 1_000])('gives finite numbers for lines of one millisecond, with %d probes', (probes) => {
    const monitor = new ConnectionMonitor();
    let counted = 0;
    for (const at of [0, 500, 500, 500.2, 500.4, 1_000, 1_000, 1_500, 2_000])
      counted +=
        monitor.hear({ at, opens: BigInt(Math.round(at)), established: 0, loopback: 0, remotes: [] }) ?? 0;
    // A connection of a line that is left out is counted with the next.
    expect(counted).toBe(2_000);
    const { lastAt } = monitor.observe({ now: 2_000, probes, min: 5 });
    if (lastAt !== undefined) expect(lastAt).toBeCloseTo(1_750);
  });

  it('cannot keep the looks at other pods waiting', async () => {
    const arena = await new Arena().start();
    const many = Array.from({ length: 200 }, (_, index) => arena.admit(`evil-${index}`, { min: 5 }));
    const token = arena.admit('web-1');
    const others = many.map((each) => arena.call(each));
    const helper = arena.call(token);
    for (const each of [...others, helper]) await each.hears('holding');
    const touching = setInterval(() => {
      for (const index of many.keys()) arena.holds.touch(`evil-${index}`);
    }, 5);
    onTestFinished(() => clearInterval(touching));
    arena.delete('web-1');
    arena.withdraw('web-1');
    const before = process.threadCpuUsage();
    await helper.hears('release');
    // Processor time, which other work on the machine does not lengthen.
    const { user, system } = process.threadCpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(500);
  });
});

describe('a replica whose clock is ahead', () => {
  it.each([20_000, 70_000, 86_400_000])('by %d ms releases nothing early', async (ahead) => {
    const arena = await new Arena({ ahead }).start();
    const token = arena.admit('web-1', { max: 4 });
    const helper = arena.call(token);
    arena.delete('web-1');
    const called = await helper.hears('holding');
    const released = await helper.hears('release');
    // 2 s are what the kubelet may have taken to start the hook.
    expect(released - called).toBeGreaterThanOrEqual(1_900);
    expect(arena.released).toMatchObject([{ reason: 'Max' }]);
  });

  it('counts from the start of the hook, which another leader may have held before', async () => {
    const arena = await new Arena({ ahead: 70_000 }).start();
    const token = arena.admit('web-1', { max: 60 });
    arena.delete('web-1');
    const helper = new FakeHelper(arena.port).greet(token, ' 59500');
    const called = await helper.hears('holding');
    expect((await helper.hears('release')) - called).toBeLessThan(4_000);
    expect(arena.released).toMatchObject([{ reason: 'Max' }]);
  });

  it('relays nevertheless: a relayed connection carries no time', async () => {
    const leader = await new Arena({ ahead: 600_000 }).start();
    const follower = await new Arena({ route: () => ({ host: '127.0.0.1', port: leader.port }) }).start();
    await follower.call(leader.admit('web-1')).hears('holding');
  });
});

describe('connections that occupy places', () => {
  const slow = async (port: number, localAddress: string) => {
    const socket = connect({ port, host: '127.0.0.1', localAddress });
    socket.on('error', () => undefined);
    onTestFinished(() => void socket.destroy());
    await once(socket, 'connect');
    const dripping = setInterval(() => socket.write('l'), 50);
    onTestFinished(() => clearInterval(dripping));
    return socket;
  };

  it('end when their token is late, although bytes keep coming', async () => {
    const arena = await new Arena({ limits: { greeting: 300 } }).start();
    const begun = clock();
    const socket = await slow(arena.port, '127.0.0.3');
    await once(socket, 'close');
    expect(clock() - begun).toBeLessThan(1_500);
    expect(arena.service.connections).toBe(0);
  });

  it('give way to others as long as they have sent no token', async () => {
    const arena = await new Arena({ limits: { connections: 8, kept: 2, perSource: 100 } }).start();
    const token = arena.admit('web-1');
    const greeters: Socket[] = [];
    for (let index = 0; index < 6; index += 1) greeters.push(await slow(arena.port, '127.0.0.3'));
    await arena.call(token, '127.0.0.4').hears('holding');
    await until('the oldest to give way', () => greeters[0]?.destroyed);
    expect(arena.service.connections).toBe(6);
  });

  it('leave places to pods with hook Hold, even where all have sent a token', async () => {
    const arena = await new Arena({
      limits: { connections: 8, kept: 2, perSource: 100, pending: 60_000 },
    }).start();
    const token = arena.admit('web-1');
    arena.address('web-1', OWN);
    const lookUps = vi.spyOn(arena.pods, 'withToken');
    const unknown = Array.from({ length: 6 }, (_, index) => arena.call(`${index}`.repeat(22), '127.0.0.3'));
    // A connection whose token has not been read yet would give up its place.
    await until('all to wait', () => new Set(lookUps.mock.calls.map(([hash]) => hash)).size === 6);
    await arena.call(token, '127.0.0.4').closes();
    await arena.call(token, OWN).hears('holding');
    expect(unknown.every(({ closedAt }) => closedAt === undefined)).toBe(true);
  });
});

describe('a copied token', () => {
  it.each(['first', 'last'] as const)('of the same second belongs to its pod, listed %s', async (order) => {
    const arena = await new Arena({ limits: { pending: 300 } }).start();
    const token = 'AAAAAAAAAAAAAAAAAAAAAA';
    for (const name of order === 'first' ? ['web-1', 'copy'] : ['copy', 'web-1']) {
      arena.put(name, holdOf(token));
      arena.list(name);
    }
    // Before an address tells the pods apart, the token belongs to neither.
    await arena.call(token, OWN).hears('unsure');
    arena.address('web-1', OWN);
    arena.address('copy', '127.0.0.3');
    arena.delete('copy');
    arena.withdraw('copy');
    arena.delete('web-1');
    const helper = arena.call(token, OWN);
    await helper.hears('holding');
    await sleep(300);
    expect(helper.words).toEqual(['holding']);
    arena.withdraw('web-1');
    await helper.hears('release');
    expect(arena.released.at(-1)).toMatchObject({ pod: { name: 'web-1' } });
  });
});

it('a pod with 40 containers holds all its connections', async () => {
  const arena = await new Arena().start();
  const token = 'AAAAAAAAAAAAAAAAAAAAAA';
  const { hold, plan } = holdOf(token);
  const containers = Array.from({ length: 40 }, (_, index) => `c${index}`);
  arena.put('web-1', { hold, plan: JSON.stringify({ ...JSON.parse(plan ?? ''), containers }) });
  arena.list('web-1');
  arena.delete('web-1');
  const helpers = containers.map(() => arena.call(token, OWN));
  for (const helper of helpers) await helper.hears('holding');
  await sleep(200);
  expect(helpers.filter(({ closedAt }) => closedAt !== undefined)).toEqual([]);
});

test('an event that leaves the plan of a pod as it is parses nothing', async () => {
  const arena = await new Arena().start();
  arena.admit('web-1');
  const parse = vi.spyOn(JSON, 'parse');
  onTestFinished(() => parse.mockRestore());
  for (let event = 0; event < 10; event += 1) arena.delete('web-1');
  expect(parse).not.toHaveBeenCalled();
});
