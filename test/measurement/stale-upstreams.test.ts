import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { type PageFindings, pageReader } from '../../src/core/api/index.ts';
import { PodAddresses } from '../../src/core/lag/index.ts';
import { Inspection, type InspectionOptions } from '../../src/measurement/inspect/inspect.ts';
import type { Inspected } from '../../src/measurement/inspect/inspected.ts';
import { problem } from '../../src/measurement/requests/probe.ts';
import { randomOf } from '../property/random.ts';

const clock = () => performance.now();
const MINUTE = 60_000;

interface Pod {
  readonly uid: string;
  readonly address: string;
  ready: boolean;
}

/** Gateways in front of a Service `web`, and the pods behind it, in simulated time. */
class Arena {
  pods: readonly Pod[] = [];
  /** By gateway, the addresses on its page; undefined: it does not answer. */
  readonly pages = new Map<string, ReadonlySet<string> | undefined>();
  readonly asked: number[] = [];
  readonly named: string[] = [];
  readonly skipped: string[] = [];
  readonly addresses = new PodAddresses(({ name }) => name === 'web');
  readonly inspection: Inspection;
  lag: number | undefined;
  reused: boolean | undefined = false;
  #version = 0;
  readonly #ending = new AbortController();

  constructor(format: 'Text' | 'Witness' = 'Text') {
    const inspect = { instances: { namespaceSelector: {}, port: 9901 }, format, every: 5 };
    const consumer: Inspected = { name: 'edge', inspect };
    const options: InspectionOptions = {
      clock,
      addresses: this.addresses,
      sendersTo: () => [consumer],
      instancesOf: () =>
        Promise.resolve({
          pages: [...this.pages.keys()].map((name) => ({
            name,
            address: '10.9.9.9',
            url: new URL('http://gateway/x'),
          })),
          isWhole: true,
        }),
      ask: (_, { name }, { wanted }) => {
        this.asked.push(clock());
        const shown = this.pages.get(name);
        if (shown === undefined)
          return Promise.resolve({ outcome: problem('Unreachable', 'is refused'), bytes: 0 });
        const reader = pageReader('Text', wanted);
        reader.write([...shown].join('\n'));
        return Promise.resolve({ outcome: reader.end() as PageFindings, bytes: 100 });
      },
      lagOf: () => this.lag,
      isReused: () => Promise.resolve(this.reused),
      onStale: ({ instance, departed }) => this.named.push(`${instance} ${departed.address}`),
      onSkipped: (_, instance, is) => this.skipped.push(`${instance} ${is}`),
      onLag: () => undefined,
      count: { page: () => undefined, lost: () => undefined },
    };
    this.inspection = new Inspection(options);
    this.inspection.keep([consumer]);
    void this.inspection.run(this.#ending.signal);
  }

  stop(): void {
    this.#ending.abort();
  }

  list(pods: readonly Pod[], others: readonly string[] = []): void {
    this.pods = pods;
    this.#version += 1;
    const endpoints = [
      ...pods.map(({ uid, address, ready }) => ({
        targetUid: uid,
        targetName: uid,
        addresses: [address],
        ready,
      })),
      ...others.map((address) => ({
        targetUid: undefined,
        targetName: undefined,
        addresses: [address],
        ready: true,
      })),
    ];
    const slice = {
      namespace: 'shop',
      name: 'web-1',
      serviceName: 'web',
      addressType: 'IPv4',
      ports: [8080],
      version: String(this.#version),
      endpoints,
    };
    this.inspection.observe({ type: 'Slice', at: clock(), slice });
  }

  /** The pod terminates, and slices list it as not ready. @param timed whether its withdrawal gives a sample */
  withdraw(uid: string, timed = true): void {
    this.inspection.observe({ type: 'PodTerminating', at: clock(), pod: podKey(uid) });
    this.list(this.pods.map((each) => (each.uid === uid ? { ...each, ready: false } : each)));
    if (timed) this.inspection.removed({ uid, at: clock() });
  }

  /** Its processes have ended. */
  end(uid: string): void {
    this.list(this.pods.filter((each) => each.uid !== uid));
    this.inspection.observe({ type: 'PodDeleted', at: clock(), pod: podKey(uid) });
  }

  async remove(uid: string): Promise<void> {
    this.withdraw(uid);
    await vi.advanceTimersByTimeAsync(2_000);
    this.end(uid);
  }

  get trouble(): string | undefined {
    return this.inspection.states().get('edge')?.trouble?.message;
  }
}

const podKey = (uid: string) => ({ uid, namespace: 'shop', name: uid });
const pod = (uid: string, address: string): Pod => ({ uid, address, ready: true });
const A = '10.0.0.1:8080';
const B = '10.0.0.2:8080';

describe('an instance', () => {
  let arena: Arena;
  beforeEach(async () => {
    vi.useFakeTimers();
    arena = new Arena();
    arena.pages.set('gw-0', new Set([A, B]));
    arena.pages.set('gw-1', new Set([A, B]));
    arena.list([pod('a', '10.0.0.1'), pod('b', '10.0.0.2')]);
    await vi.advanceTimersByTimeAsync(MINUTE);
  });
  afterEach(() => {
    arena.stop();
    vi.useRealTimers();
  });

  it('that keeps a dead address is named within 3 minutes, once, and until it has let go', async () => {
    arena.pages.set('gw-1', new Set([B]));
    await arena.remove('a');
    await vi.advanceTimersByTimeAsync(3 * MINUTE);
    expect(arena.named).toEqual(['gw-0 10.0.0.1']);
    expect(arena.trouble).toBe(
      'gw-0 still sends to 10.0.0.1 (of Service shop/web), which no slice lists: restart it, and see why it does not follow.',
    );
    await vi.advanceTimersByTimeAsync(60 * MINUTE);
    expect(arena.named).toHaveLength(1);
    expect(
      [...arena.inspection.stale()].map(([consumer, name, kept]) => [consumer, name, kept.length]),
    ).toEqual([['edge', 'gw-0', 1]]);
    arena.pages.set('gw-0', new Set([B]));
    await vi.advanceTimersByTimeAsync(25_000);
    expect([arena.trouble, [...arena.inspection.stale()]]).toEqual([undefined, []]);
    const asked = arena.asked.length;
    await vi.advanceTimersByTimeAsync(60 * MINUTE);
    expect(arena.asked).toHaveLength(asked);
  });

  it('that is no slower than it may be is not', async () => {
    arena.lag = 300;
    await arena.remove('a');
    await vi.advanceTimersByTimeAsync(4 * MINUTE);
    for (const name of arena.pages.keys()) arena.pages.set(name, new Set([B]));
    await vi.advanceTimersByTimeAsync(60 * MINUTE);
    expect(arena.named).toEqual([]);
  });

  const lookUp = (reused: boolean | undefined) => () => Object.assign(arena, { reused });
  it.each<[string, () => void]>([
    ['has another pod', lookUp(true)],
    ['cannot be looked up', lookUp(undefined)],
    ['is listed again', () => arena.list([pod('b', '10.0.0.2'), pod('c', '10.0.0.1')])],
    ['is listed as an endpoint of no pod', () => arena.list([pod('b', '10.0.0.2')], ['10.0.0.1'])],
  ])('that keeps an address which %s is not', async (_title, happens) => {
    await arena.remove('a');
    happens();
    await vi.advanceTimersByTimeAsync(30 * MINUTE);
    expect(arena.named).toEqual([]);
    // In the meantime it is not asked without end.
    expect(arena.asked.length).toBeLessThan(400);
  });

  const hold = async (uid: string, release: 'kept' | 'let go', timed = true) => {
    arena.list([...arena.pods, pod(uid, `10.0.1.${uid}`)]);
    const address = `10.0.1.${uid}:8080`;
    arena.pages.set('gw-0', new Set([B, address]));
    arena.pages.set('gw-1', new Set([B, address]));
    arena.inspection.want({ namespace: 'shop', uid });
    const at = clock();
    arena.withdraw(uid, timed);
    await vi.advanceTimersByTimeAsync(37_000);
    arena.pages.set('gw-1', new Set([B]));
    if (release === 'let go') arena.pages.set('gw-0', new Set([B]));
    await vi.advanceTimersByTimeAsync(10_000);
    const users = arena.inspection.usersOf('edge', uid, at);
    arena.inspection.done(uid);
    arena.end(uid);
    return users;
  };

  it('that has kept three held pods in a row is not waited for, until it lets go of one', async () => {
    expect([await hold('1', 'kept'), await hold('2', 'kept')]).toEqual([['gw-0'], ['gw-0']]);
    expect(await hold('3', 'let go')).toEqual([]);
    for (const uid of ['4', '5', '6']) expect(await hold(uid, 'kept')).toEqual(['gw-0']);
    expect(arena.inspection.skipped('edge')).toEqual(['gw-0']);
    expect(arena.inspection.states().get('edge')?.limits[0]).toMatch(/^Hold does not wait for gw-0: /);
    expect(await hold('7', 'kept')).toEqual([]);
    expect(await hold('8', 'let go')).toEqual([]);
    expect(arena.skipped).toEqual(['gw-0 true', 'gw-0 false']);
    expect(await hold('9', 'kept')).toEqual(['gw-0']);
  });

  it('is not waited for either where a busy machine could not time the withdrawals', async () => {
    for (const uid of ['1', '2', '3']) expect(await hold(uid, 'kept', false)).toEqual(['gw-0']);
    expect(arena.skipped).toEqual(['gw-0 true']);
  });
});

it('an instance among the addresses that a held pod has seen is one that sends', async () => {
  vi.useFakeTimers();
  const arena = new Arena();
  arena.pages.set('gw-0', new Set());
  await vi.advanceTimersByTimeAsync(MINUTE + 1_000);
  const seen = (...remotes: string[]) => [
    ...arena.inspection.seenAmong([{ namespace: 'shop', name: 'web' }], remotes),
  ];
  expect(seen('10.9.9.9', '10.1.1.1')).toEqual([['edge', true]]);
  expect(seen('10.1.1.1')).toEqual([['edge', false]]);
  arena.stop();
  vi.useRealTimers();
});

it('a week of churn gives no false alarm, and one frozen gateway in it is named', {
  timeout: 120_000,
}, async () => {
  vi.useFakeTimers();
  const arena = new Arena();
  const random = randomOf(7);
  const free = Array.from({ length: 40 }, (_, index) => `10.0.2.${index}`);
  const shown = new Map(['gw-0', 'gw-1', 'gw-2'].map((name) => [name, new Set<string>()]));
  for (const [name, page] of shown) arena.pages.set(name, page);
  const lags: number[] = [];
  /** Most within ten seconds, one in three hundred as slow as half a minute. */
  const lagMs = () => (random() < 1 / 300 ? 28_000 : 10_000) * random();
  let next = 0;
  const add = () => {
    const address = free.shift() ?? '';
    arena.list([...arena.pods, pod(`p${next++}`, address)]);
    for (const page of shown.values()) page.add(`${address}:8080`);
  };
  const frozen = new Set<string>();
  const remove = async ({ uid, address }: Pod) => {
    for (const [name, page] of shown) {
      const late = lagMs();
      lags.push(late / 1000);
      setTimeout(() => {
        // A new pod may have the address by then.
        const isBack = arena.pods.some((each) => each.address === address && each.uid !== uid);
        if (!isBack && !frozen.has(name)) page.delete(`${address}:8080`);
      }, late);
    }
    await arena.remove(uid);
    // The newest address is the first to be used again.
    free.splice(Math.floor(random() * 3), 0, address);
  };
  for (let count = 0; count < 6; count++) add();
  for (let at = 0; at < 7 * 24 * 60; at += 20) {
    arena.lag = lags.toSorted((a, b) => a - b)[Math.floor(lags.length * 0.999)];
    for (const each of arena.pods.slice(0, 2)) {
      add();
      await remove(each);
    }
    await vi.advanceTimersByTimeAsync(20 * MINUTE);
  }
  expect(lags.length).toBeGreaterThan(2_500);
  expect(arena.named).toEqual([]);
  frozen.add('gw-2');
  const [victim] = arena.pods;
  await remove(victim!);
  await vi.advanceTimersByTimeAsync(3 * MINUTE);
  expect(arena.named).toEqual([`gw-2 ${victim!.address}`]);
  arena.stop();
  vi.useRealTimers();
});
