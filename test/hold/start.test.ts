import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Registry } from '@prometheus-io/client';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { KubeConnection } from '../../src/cluster/index.ts';
import type { PodMetadata } from '../../src/core/lag/index.ts';
import { HEARTBEAT_STREAMS } from '../../src/core/lag/index.ts';
import type { Release } from '../../src/hold/holds.ts';
import { startHold } from '../../src/hold/start.ts';
import { consumerInstances } from '../../src/measurement/index.ts';
import type { Logger } from '../../src/telemetry/index.ts';
import { clock, FakeHelper, holdOf, REPLICAS_OWN, SLICES, snapshotWith, until } from './arena.ts';

type Context = Parameters<typeof startHold>[0];
type OnChange = Parameters<Context['measurement']['onChange']>[0];

const ADDRESS = '127.0.0.1:8445';
const TOKEN = 'AAAAAAAAAAAAAAAAAAAAAA';
/** Calls with the pod's token, and is not the pod. */
const STRANGER = '127.0.0.9';

/** The hold of one replica, with everything around it simulated. */
class Replica {
  readonly released: Release[] = [];
  readonly told: { readonly reason: string }[] = [];
  readonly measured: unknown[] = [];
  readonly warnings: object[] = [];
  /** What inspected consumers are said to have sent from. */
  readonly held: unknown[] = [];
  readonly registry = new Registry();
  readonly hold: ReturnType<typeof startHold>;
  leader: string | undefined;
  now = clock;
  listing = true;
  supply: ReturnType<typeof snapshotWith>['hold'];
  readonly #signal = new AbortController();
  readonly #changed: OnChange[] = [];
  readonly #inspected: ((uid: string) => void)[] = [];
  readonly #deregistered: ((uid: string) => void)[] = [];
  readonly #connected: ((address: string) => void)[] = [];

  constructor(address = ADDRESS) {
    const warn = (members: object, message: string) => void this.warnings.push({ message, ...members });
    this.hold = startHold({
      relay: { address, keys: () => [REPLICAS_OWN] },
      connections: 64,
      snapshot: () => ({ ...snapshotWith(), hold: this.supply }),
      current: () => true,
      instances: consumerInstances({}),
      onRelease: (release) => void this.released.push(release),
      clock: () => this.now(),
      connection: { server: new URL('http://127.0.0.1:1') } as unknown as KubeConnection,
      inspecting: {
        onChange: (listener) => void this.#inspected.push(listener),
        onConnect: (listener) => void this.#connected.push(listener),
        seenAmong: (groups, remotes) => new Map([['edge', { groups, remotes }]]) as never,
      },
      measurement: {
        listing: () => (this.listing ? [SLICES] : []),
        withdraws: () => true,
        hasUnread: () => false,
        onChange: (listener) => void this.#changed.push(listener),
        consumers: {
          record: (sample: unknown) => void this.measured.push(sample),
          held: (consumer: string, seen: unknown) => void this.held.push([consumer, seen]),
        } as unknown as Context['measurement']['consumers'],
      },
      deregistrations: {
        outAt: () => undefined,
        onSettled: (listener) => void this.#deregistered.push(listener),
      },
      events: { tell: (event: { reason: string }) => void this.told.push(event) } as never,
      leader: () => this.leader,
      nodeBudgetOf: () => undefined,
      registry: this.registry,
      logger: { info: () => undefined, warn } as unknown as Logger,
      signal: this.#signal.signal,
    });
    for (const stream of HEARTBEAT_STREAMS)
      this.hold.runnable.onEvent({ type: 'ListEnds', at: Number.NEGATIVE_INFINITY, stream });
  }

  async listen(): Promise<this> {
    const { server, runnable } = this.hold;
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    onTestFinished(() => {
      this.#signal.abort();
      runnable.close();
    });
    return this;
  }

  get port(): number {
    return (this.hold.server.address() as AddressInfo).port;
  }

  /** @returns ends the term */
  lead(holds = () => true): () => void {
    const term = new AbortController();
    this.hold.runnable.lead({ signal: term.signal, holds });
    onTestFinished(() => term.abort());
    return () => term.abort();
  }

  call(localAddress?: string): FakeHelper {
    return new FakeHelper(this.port, '127.0.0.1', localAddress).greet(TOKEN);
  }

  /** Leads, and holds the pod `web-1` for a helper. */
  async holds({ own, from }: { readonly own?: string; readonly from?: string } = {}): Promise<FakeHelper> {
    this.lead();
    this.put();
    if (own !== undefined) this.address(own);
    const helper = this.call(from);
    await helper.hears('holding');
    return helper;
  }

  /** Shows the pod `web-1`, which a slice lists. */
  put(deleted = false, terms?: Parameters<typeof holdOf>[2]): void {
    const identity = { namespace: 'shop', name: 'web-1', uid: 'web-1' };
    const deletionTimestamp = deleted ? new Date(Date.now() + 90_000).toISOString() : undefined;
    const object: PodMetadata = {
      ...identity,
      labels: { app: 'web' },
      heartbeat: undefined,
      ...holdOf(TOKEN, 1, terms),
      deletionTimestamp,
      deletionGracePeriodSeconds: deleted ? 90 : undefined,
    };
    this.hold.runnable.onPod({ type: 'modified', listed: false, at: this.now(), identity, object });
    if (!deleted) this.#change(undefined, 'ready', '100');
  }

  /** A slice shows the pod's address. */
  address(address: string): void {
    const endpoints = [{ targetUid: 'web-1', addresses: [address], ready: true }];
    const managedBy = 'endpointslice-controller.k8s.io';
    const slice = { namespace: 'shop', name: 'web-x', addressType: 'IPv4', endpoints, managedBy };
    this.hold.runnable.onEvent({ type: 'Slice', at: this.now(), slice });
  }

  withdraw(): void {
    this.listing = false;
    this.#change('ready', 'terminating', '200');
  }

  #change(before: 'ready' | undefined, after: 'ready' | 'terminating', version: string): void {
    const change = { uid: 'web-1', group: SLICES, before, after, address: undefined };
    for (const listener of this.#changed) listener(change, this.now(), version);
  }

  /** What else than the watches may end a hold. */
  settled(by: 'inspected' | 'deregistered', uid: string): void {
    for (const listener of by === 'inspected' ? this.#inspected : this.#deregistered) listener(uid);
  }

  /** Linger itself has connected to the address. */
  connected(address: string): void {
    for (const listener of this.#connected) listener(address);
  }

  async metric(name: string): Promise<number | undefined> {
    const text = await this.registry.metrics();
    const value = text.split('\n').find((line) => line.startsWith(`${name} `));
    return value === undefined ? undefined : Number(value.split(' ')[1]);
  }
}

describe('the replica that leads', () => {
  it('holds a pod, and reports its release everywhere', async () => {
    const replica = await new Replica().listen();
    const helper = await replica.holds();
    replica.put(true);
    expect(await replica.metric('linger_hold_pods')).toBe(1);
    replica.withdraw();
    await helper.hears('release');
    expect(replica.released).toMatchObject([{ reason: 'Gone', pod: { name: 'web-1' } }]);
    expect(replica.told).toMatchObject([{ reason: 'HoldGone' }]);
    expect(await replica.metric('linger_hold_released_total{reason="Gone"}')).toBe(1);
    expect(await replica.metric('linger_hold_pods')).toBe(0);
  });

  it('measures the pod’s own lag for its Service, and which gateways have sent to it', async () => {
    const replica = await new Replica().listen();
    const helper = await replica.holds({ own: '127.0.0.1' });
    replica.put(true);
    helper.socket.write('w 10 0 0 10.0.0.7 0\n');
    await sleep(100);
    helper.socket.write('w 11 0 0 10.0.0.8 0\n');
    await sleep(100);
    replica.withdraw();
    await helper.hears('release');
    expect(replica.measured).toEqual([{ consumer: 'witness/shop/web', direction: 'removal', lag: 0 }]);
    const groups = [{ namespace: 'shop', name: 'web' }];
    expect(replica.held).toEqual([['edge', { groups, remotes: replica.released[0]?.remotes }]]);
    expect(replica.released[0]?.remotes).toEqual(['10.0.0.7', '10.0.0.8']);
  });

  it('measures nothing, nor asks who has sent, where no helper was heard', async () => {
    const replica = await new Replica().listen();
    const helper = await replica.holds();
    replica.put(true);
    replica.withdraw();
    await helper.hears('release');
    expect([replica.measured, replica.held]).toEqual([[], []]);
  });

  it('lists what it holds once helpers have had the time to call again', async () => {
    const replica = await new Replica().listen();
    let now = 1_000;
    replica.now = () => now;
    const known = () => [replica.hold.list(), replica.hold.runnable.status().held];
    expect(known()).toEqual([undefined, null]);
    const end = replica.lead();
    now += 3_999;
    expect(known()).toEqual([undefined, null]);
    now += 1;
    expect(known()).toEqual([[], 0]);
    end();
    expect(known()).toEqual([undefined, null]);
  });

  it('counts and lists a pod whose hook has left for as long as the hook may call again', async () => {
    const replica = await new Replica().listen();
    let later = 0;
    replica.now = () => clock() + later;
    const helper = await replica.holds();
    const heldNow = async () => [
      await replica.metric('linger_hold_pods'),
      replica.hold.runnable.status().held,
      replica.hold.list()?.map(({ pod }) => pod),
    ];
    later = 4_000;
    expect(await heldNow()).toEqual([1, 1, ['web-1']]);
    helper.socket.destroy();
    await until('its end to show', () => replica.hold.list()?.[0]?.hooks === 0);
    later += 3_000;
    expect(await heldNow()).toEqual([1, 1, ['web-1']]);
    later += 1_000;
    expect(await heldNow()).toEqual([0, 0, []]);
    await replica.call().hears('holding');
    expect(await heldNow()).toEqual([1, 1, ['web-1']]);
  });

  it('neither lists nor releases once its Lease has expired, though nobody has told it', async () => {
    const replica = await new Replica().listen();
    let valid = true;
    replica.lead(() => valid);
    replica.put();
    const helper = replica.call();
    await helper.hears('holding');
    replica.put(true);
    valid = false;
    replica.withdraw();
    await sleep(300);
    expect([helper.words, replica.released, replica.hold.list()]).toEqual([['holding'], [], undefined]);
    valid = true;
    await helper.hears('release');
  });

  it('counts running pods that call an address where the Hold Service is not', async () => {
    const replica = new Replica();
    const terms = { min: 0, max: 60, percentile: 99, initial: 0, probes: 0 };
    const counted = async () => {
      const { unreached } = replica.hold.runnable.status();
      expect(await replica.metric('linger_hold_pods_unreached')).toBe(unreached);
      return unreached;
    };
    replica.put(false, { ...terms, address: '10.201.0.7:8445' });
    expect(await counted()).toBe(0);
    const supply = { digest: '', namespaces: new Set(''), tested: new Set(''), architectures: new Set('') };
    replica.supply = { ...supply, address: '10.201.0.7:8445' };
    expect(await counted()).toBe(0);
    replica.supply = { ...supply, address: '10.201.0.9:8445' };
    expect(await counted()).toBe(1);
    replica.supply = { why: 'there is no Service linger/linger-hold with an address' };
    expect(await counted()).toBe(1);
    // It ends now, and has called already.
    replica.put(true, { ...terms, address: '10.201.0.7:8445' });
    expect(await counted()).toBe(0);
  });

  it('holds who waits when its term begins, and hangs up when it ends, so that helpers call whoever leads', async () => {
    const replica = await new Replica().listen();
    replica.put();
    const early = replica.call();
    await sleep(50);
    const end = replica.lead();
    const helper = replica.call();
    for (const each of [early, helper]) await each.hears('holding');
    end();
    for (const each of [early, helper]) await each.closes();
    expect([early.words, helper.words]).toEqual([['holding'], ['holding']]);
    expect(await replica.metric('linger_hold_pods')).toBe(0);
  });

  it('goes on leading where the term before ends late', async () => {
    const replica = await new Replica().listen();
    const endFirst = replica.lead();
    replica.lead();
    endFirst();
    replica.put();
    await replica.call().hears('holding');
  });

  it('lets a pod go in the time that a node leaves when it shuts down', async () => {
    const replica = await new Replica().listen();
    const helper = await replica.holds();
    replica.hold.nodeShutsDown('web-1', 3);
    replica.hold.nodeShutsDown('another', 3);
    expect(replica.hold.pod('web-1')?.nodeBudget).toBe(3);
    await helper.hears('release');
    expect(replica.released).toMatchObject([{ reason: 'NodeShutdown' }]);
  });

  it.each([
    ['counts a connection', false],
    ['does not count a connection of Linger itself', true],
  ])('%s', async (_, own) => {
    const replica = await new Replica().listen();
    const helper = await replica.holds({ own: '127.0.0.1' });
    replica.put(true);
    helper.socket.write('w 10 0 0 - 0\n');
    await sleep(100);
    if (own) replica.connected('127.0.0.1');
    helper.socket.write('w 11 0 0 - 0\n');
    await sleep(100);
    replica.withdraw();
    await helper.hears('release');
    const lastAt = own ? undefined : expect.any(Number);
    expect(replica.released[0]?.counted).toEqual({ lastAt });
  });

  it.each(['inspected', 'deregistered'] as const)('looks at a pod again when it has been %s', async (by) => {
    const replica = await new Replica().listen();
    replica.lead();
    replica.put();
    replica.put(true);
    const helper = replica.call();
    await helper.hears('holding');
    // The time for the next look never comes.
    const now = clock();
    replica.now = () => now;
    await sleep(100);
    const pod = replica.hold.pod('web-1');
    if (pod !== undefined) pod.nodeBudget = 0;
    await sleep(100);
    expect(helper.words).toEqual(['holding']);
    replica.settled(by, 'web-1');
    await helper.hears('release');
  });

  it('ignores what another address than the pod’s says of its connections, and warns of it once', async () => {
    const replica = await new Replica().listen();
    const helper = await replica.holds({ own: '127.0.0.1', from: STRANGER });
    helper.socket.write('w 10 0 7 10.0.0.7 0\nw 11 0 7 10.0.0.7 0\n');
    await until('both lines', () => replica.warnings.length > 0);
    expect(replica.warnings).toEqual([
      {
        message: 'helper called from an address that is not its pod’s; its counters are ignored',
        namespace: 'shop',
        pod: 'web-1',
        source: STRANGER,
      },
    ]);
    expect(await replica.metric('linger_hold_stranger_lines_total')).toBe(2);
  });
});

describe('a replica that does not lead', () => {
  it('relays to the one that does', async () => {
    const leader = await new Replica().listen();
    leader.lead();
    leader.put();
    const follower = await new Replica('127.0.0.1:9999').listen();
    follower.leader = `127.0.0.1:${leader.port}`;
    const helper = follower.call();
    await helper.hears('holding');
    leader.put(true);
    leader.withdraw();
    await helper.hears('release');
    expect([leader.released.length, follower.released.length]).toEqual([1, 0]);
  });

  it('speaks IPv6 to it', async () => {
    const follower = await new Replica().listen();
    follower.leader = '[::1]:9';
    // Nothing listens there: it goes on looking for a leader.
    const helper = follower.call();
    await sleep(300);
    expect(helper.words).toEqual([]);
    expect(helper.closedAt).toBeUndefined();
  });

  it.each([
    ['no Lease names one', undefined],
    ['the Lease is of an earlier process at its own address', ADDRESS],
    ['the Lease holds something else', 'linger-7d9c-x2x'],
  ])('waits for one where %s', async (_, leader) => {
    const follower = await new Replica().listen();
    follower.leader = leader;
    follower.put();
    const helper = follower.call();
    await sleep(300);
    expect(helper.words).toEqual([]);
    expect(helper.closedAt).toBeUndefined();
    follower.lead();
    await follower.call().hears('holding');
  });

  it('does not take the requests of the replica that led before for traffic', async () => {
    const replica = await new Replica('10.9.9.9:8445').listen();
    replica.leader = '10.9.9.8:8445';
    replica.call();
    await sleep(50);
    const helper = await replica.holds({ own: '127.0.0.1' });
    helper.socket.write('w 10 0 0 10.9.9.9,10.9.9.8,10.9.9.7 0\n');
    replica.put(true);
    await sleep(100);
    replica.withdraw();
    await helper.hears('release');
    expect(replica.released[0]?.remotes).toEqual(['10.9.9.7']);
  });
});
