import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  type InspectSpec,
  type PageFindings,
  pageReader,
  unseenNamespace,
} from '../../src/core/api/index.ts';
import { PodAddresses } from '../../src/core/lag/index.ts';
import { Inspection, type InspectionOptions } from '../../src/measurement/inspect/inspect.ts';
import type { Inspected } from '../../src/measurement/inspect/inspected.ts';
import { type Problem, problem } from '../../src/measurement/requests/probe.ts';
import { leading } from './following.ts';

const clock = () => performance.now();
/** A busy machine is given its time. */
const WITHIN = { timeout: 20_000, interval: 20 };
const SPEC: InspectSpec = {
  instances: { namespaceSelector: {}, port: 9901 },
  format: 'Text',
  every: 0.02,
};

/** Gateways whose pages are lists of addresses, and a Service `web` of their upstreams. */
class Gateways {
  /** By gateway, what its page shows; undefined: it does not answer. */
  readonly pages = new Map<string, readonly string[] | undefined>();
  readonly asked: { readonly at: number; readonly gateway: string; readonly url: URL }[] = [];
  readonly lags: number[] = [];
  readonly counted: string[] = [];
  /** Ports of the Service. */
  ports: readonly number[] = [8080];
  answerMs = 0;
  bytes = 100;
  /** Whether all instances are asked. */
  isWhole = true;
  unrouted: readonly string[] = [];
  /** Why the instances cannot be listed. */
  unlistable: Problem | undefined;
  render = (addresses: readonly string[]): string => addresses.join('\n');
  readonly addresses = new PodAddresses(({ name }) => name.startsWith('web'));
  readonly inspection: Inspection;
  readonly #consumer: Inspected;
  readonly #ending = new AbortController();
  #version = 0;

  constructor(spec: Partial<InspectSpec> = {}, limits: InspectionOptions['limits'] = {}) {
    const inspect = { ...SPEC, ...spec };
    this.#consumer = { name: 'edge', inspect };
    this.inspection = new Inspection({
      clock,
      addresses: this.addresses,
      sendersTo: (services) => (services.some(({ name }) => name.startsWith('web')) ? [this.#consumer] : []),
      instancesOf: () =>
        Promise.resolve(
          this.unlistable ?? {
            pages: [...this.pages.keys()].map((name) => ({
              name,
              address: '10.9.9.9',
              url: new URL('http://gateway/clusters'),
            })),
            isWhole: this.isWhole,
            unrouted: this.unrouted,
          },
        ),
      ask: async ({ inspect }, { name: gateway }, { url, wanted }) => {
        this.asked.push({ at: clock(), gateway, url });
        const shown = this.pages.get(gateway);
        if (this.answerMs > 0) await new Promise((done) => setTimeout(done, this.answerMs));
        if (shown === undefined) return { outcome: problem('Unreachable', 'is refused'), bytes: 0 };
        const reader = pageReader(inspect.format ?? 'Envoy', wanted);
        reader.write(this.render(shown));
        return { outcome: reader.end() as PageFindings, bytes: this.bytes };
      },
      lagOf: () => undefined,
      isReused: () => Promise.resolve(false),
      onStale: () => undefined,
      onSkipped: () => undefined,
      onLag: (_, seconds) => this.lags.push(seconds),
      count: {
        page: (_, result) => this.counted.push(result),
        lost: () => this.counted.push('lost'),
      },
      limits: { listing: 50, idleListing: 50, calm: 200, ...limits },
    });
    this.inspection.keep([this.#consumer]);
  }

  start(): void {
    void this.inspection.run(this.#ending.signal);
  }

  stop(): void {
    this.#ending.abort();
  }

  /** What the slice of the Service says. */
  lists(...pods: readonly (readonly [uid: string, address: string, ready: boolean])[]): void {
    this.listsIn('web', ...pods);
  }

  listsIn(
    service: string,
    ...pods: readonly (readonly [uid: string, address: string, ready: boolean])[]
  ): void {
    const endpoints = pods.map(([uid, address, ready]) => ({
      targetUid: uid,
      targetName: uid,
      addresses: [address],
      ready,
    }));
    this.#version += 1;
    const slice = {
      namespace: 'shop',
      name: `${service}-1`,
      serviceName: service,
      addressType: 'IPv4',
      version: String(this.#version),
      ports: this.ports,
      endpoints,
    };
    this.inspection.observe({ type: 'Slice', at: clock(), slice });
  }

  /** The pod `a` starts terminating. */
  terminate(uid = 'a'): void {
    const pod = { uid, namespace: 'shop', name: uid };
    this.inspection.observe({ type: 'PodTerminating', at: clock(), pod });
  }

  /** The pod `a` terminates and is withdrawn, and `b` stays. @returns when */
  withdraw(): number {
    this.terminate();
    this.lists(['a', '10.0.0.1', false], ['b', '10.0.0.2', true]);
    const at = clock();
    this.inspection.removed({ uid: 'a', at });
    return at;
  }
}

const BOTH = ['10.0.0.1:8080', '10.0.0.2:8080'];
const OTHER = ['10.0.0.2:8080'];

describe('an inspected consumer', () => {
  let gateways: Gateways;
  const begin = (...of: ConstructorParameters<typeof Gateways>) => {
    gateways = new Gateways(...of);
    gateways.pages.set('g1', BOTH);
    gateways.lists(['a', '10.0.0.1', true], ['b', '10.0.0.2', false]);
    gateways.lists(['a', '10.0.0.1', true], ['b', '10.0.0.2', true]);
    gateways.start();
  };
  beforeEach(() => begin());
  afterEach(() => gateways.stop());

  it('is asked once while nothing is removed', async () => {
    await sleep(150);
    expect(gateways.asked).toHaveLength(1);
  });

  it('gives the lag from the withdrawal to the first page without the pod', async () => {
    const at = gateways.withdraw();
    await sleep(120);
    gateways.pages.set('g1', OTHER);
    const gone = clock();
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
    const lag = (gateways.lags[0] ?? 0) * 1000;
    expect(lag).toBeGreaterThanOrEqual(gone - at);
    expect(lag).toBeLessThan(gone - at + 80);
    const asked = gateways.asked.length;
    await sleep(100);
    expect(gateways.asked.length).toBe(asked);
  });

  it.each(['PodTerminating', 'PodDeleted'] as const)(
    'asks no more on a %s once it has the lag',
    async (type) => {
      await vi.waitFor(() => expect(gateways.asked).toHaveLength(1));
      gateways.withdraw();
      gateways.pages.set('g1', OTHER);
      await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
      await sleep(100);
      const asked = gateways.asked.length;
      const pod = { uid: 'a', namespace: 'shop', name: 'a' };
      gateways.inspection.observe({ type, at: clock(), pod });
      await sleep(150);
      expect(gateways.asked).toHaveLength(asked);
      expect(gateways.counted).not.toContain('lost');
    },
  );

  it('answers about a settled pod that is wanted later', async () => {
    gateways.withdraw();
    gateways.pages.set('g1', OTHER);
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
    await sleep(100);
    gateways.inspection.want({ namespace: 'shop', uid: 'a' });
    await vi.waitFor(() => expect(gateways.inspection.usersOf('edge', 'a', 0)).toEqual([]));
    expect(gateways.lags).toHaveLength(1);
  });

  it('looks at a Service once for each page, however many of its pods terminate', async () => {
    const pods = [...Array(100).keys()].map((at) => [`p${at}`, `10.0.1.${at}`, at >= 50] as const);
    gateways.pages.set('g1', ['10.0.1.99:8080']);
    const looks = vi.spyOn(gateways.addresses, 'in');
    gateways.lists(...pods);
    for (const [uid] of pods.slice(0, 50)) {
      const pod = { uid, namespace: 'shop', name: uid };
      gateways.inspection.observe({ type: 'PodTerminating', at: clock(), pod });
      gateways.inspection.removed({ uid, at: clock() });
    }
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(50));
    expect(looks.mock.calls.length).toBeLessThanOrEqual(gateways.asked.length);
  });

  it('says how often its pages listed nothing', async () => {
    gateways.pages.set('g1', []);
    gateways.withdraw();
    const trouble = () => gateways.inspection.states().get('edge')?.trouble;
    await vi.waitFor(() => expect(trouble()?.reason).toBe('ListsNothing'));
    expect(trouble()?.message).toMatch(
      /^Asked [1-9]0 times, it has listed none of 1 terminating pods: check/,
    );
    gateways.pages.set('g1', OTHER);
    await vi.waitFor(() => expect(trouble()).toBeUndefined());
  });

  it('counts from 0 where the pod was let go before it was withdrawn', async () => {
    gateways.terminate();
    await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(1));
    gateways.pages.set('g1', OTHER);
    gateways.lists(['b', '10.0.0.2', true]);
    await sleep(60);
    gateways.inspection.removed({ uid: 'a', at: clock() });
    await vi.waitFor(() => expect(gateways.lags).toEqual([0]));
  });

  it('waits for the slowest instance', async () => {
    gateways.pages.set('g2', BOTH);
    await vi.waitFor(() => expect(gateways.asked.map(({ gateway }) => gateway)).toContain('g2'));
    gateways.pages.set('g1', OTHER);
    const at = gateways.withdraw();
    await sleep(150);
    expect(gateways.lags).toEqual([]);
    gateways.pages.set('g2', OTHER);
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
    expect((gateways.lags[0] ?? 0) * 1000).toBeGreaterThan(149);
    expect((gateways.lags[0] ?? 0) * 1000).toBeLessThan(clock() - at);
  });

  it('does not wait for an instance that is gone', async () => {
    gateways.pages.set('g2', BOTH);
    gateways.pages.set('g1', OTHER);
    await sleep(80);
    gateways.withdraw();
    await sleep(60);
    gateways.pages.delete('g2');
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
  });

  it('takes absence for nothing on a page that shows neither the pod nor another of its Service', async () => {
    gateways.pages.set('g1', ['10.5.5.5:80']);
    gateways.stop();
    begin({}, { silent: 100 });
    gateways.pages.set('g1', ['10.5.5.5:80']);
    gateways.inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.withdraw();
    await sleep(60);
    expect(gateways.inspection.usersOf('edge', 'a', 0)).toBe('unknown');
    await vi.waitFor(() => expect(gateways.counted).toContain('lost'));
    expect(gateways.lags).toEqual([]);
  });

  describe('that has not heard of a pod before its end, as it is told late, and shows another of the Service', () => {
    const OLDER = ['10.0.0.3:8080'];
    const pod = { namespace: 'shop', uid: 'a' };
    const users = () => gateways.inspection.usersOf('edge', 'a', 0);
    const start = (limits: InspectionOptions['limits'] = {}) => {
      gateways.stop();
      gateways = new Gateways({}, limits);
      gateways.pages.set('g1', OLDER);
      gateways.lists(['c', '10.0.0.3', true]);
      gateways.start();
    };
    beforeEach(() => start());

    /** The pod `a` becomes ready, and ends at once. */
    const begins = () => {
      gateways.lists(['c', '10.0.0.3', true], ['a', '10.0.0.1', true]);
      gateways.inspection.want(pod);
      gateways.terminate();
      gateways.lists(['c', '10.0.0.3', true]);
      gateways.inspection.removed({ uid: 'a', at: clock() });
    };

    it('is unknown: it may still begin to send to it, and is in use once it does', async () => {
      begins();
      await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(3), WITHIN);
      expect(users()).toBe('unknown');
      gateways.pages.set('g1', [...OLDER, '10.0.0.1:8080']);
      await vi.waitFor(() => expect(users()).toEqual(['g1']), WITHIN);
      gateways.pages.set('g1', OLDER);
      await vi.waitFor(() => expect(users()).toEqual([]), WITHIN);
      expect(gateways.lags).toHaveLength(1);
    });

    it.each([
      ['is done with it where a page for another pod showed it', false, []],
      ['but not where it became ready once more since', true, 'unknown'],
    ])('%s', async (_, again, expected) => {
      const listed = (ready: boolean) =>
        gateways.lists(['c', '10.0.0.3', true], ['a', '10.0.0.1', ready], ['d', '10.0.0.4', true]);
      listed(true);
      gateways.pages.set('g1', [...OLDER, '10.0.0.1:8080', '10.0.0.4:8080']);
      gateways.terminate('d');
      await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(1), WITHIN);
      gateways.pages.set('g1', OLDER);
      if (again) for (const ready of [false, true]) listed(ready);
      gateways.inspection.want(pod);
      gateways.terminate();
      gateways.lists(['c', '10.0.0.3', true]);
      const asked = gateways.asked.length;
      await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(asked + 2), WITHIN);
      expect(users()).toEqual(expected);
    });

    it('is done with it once it shows a pod that became ready later', async () => {
      begins();
      gateways.lists(['c', '10.0.0.3', true], ['b', '10.0.0.2', true]);
      await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(3), WITHIN);
      expect(users()).toBe('unknown');
      gateways.pages.set('g1', [...OLDER, ...OTHER]);
      await vi.waitFor(() => expect(users()).toEqual([]), WITHIN);
    });

    it('is done with it where it was ready for as long as any consumer is followed', async () => {
      start({ endless: 400 });
      begins();
      await vi.waitFor(() => expect(users()).toEqual([]), WITHIN);
    });

    it('is done with one that was never ready: nobody was told of it', async () => {
      gateways.lists(['c', '10.0.0.3', true], ['a', '10.0.0.1', false]);
      gateways.inspection.want(pod);
      gateways.terminate();
      await vi.waitFor(() => expect(users()).toEqual([]), WITHIN);
    });

    it('remembers of each Service when it became ready there', async () => {
      gateways.listsIn('web-2', ['a', '10.0.0.1', true]);
      gateways.lists(['c', '10.0.0.3', true], ['a', '10.0.0.1', true]);
      gateways.inspection.want(pod);
      gateways.terminate();
      // The other Service still lists it.
      gateways.listsIn('web-2', ['a', '10.0.0.1', false]);
      gateways.lists(['c', '10.0.0.3', true]);
      await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(3), WITHIN);
      expect(users()).toBe('unknown');
    });

    it('counts from the last time that the pod became ready', async () => {
      gateways.lists(['c', '10.0.0.3', true], ['a', '10.0.0.1', true]);
      gateways.lists(['c', '10.0.0.3', true], ['a', '10.0.0.1', false], ['b', '10.0.0.2', true]);
      gateways.pages.set('g1', [...OLDER, ...OTHER]);
      gateways.lists(['c', '10.0.0.3', true], ['a', '10.0.0.1', true], ['b', '10.0.0.2', true]);
      gateways.inspection.want(pod);
      gateways.terminate();
      gateways.lists(['c', '10.0.0.3', true], ['b', '10.0.0.2', true]);
      await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(3), WITHIN);
      expect(users()).toBe('unknown');
    });
  });

  it('takes absence for what it is on a page that showed the pod before', async () => {
    gateways.pages.set('g1', ['10.0.0.1:8080']);
    gateways.lists(['a', '10.0.0.1', true]);
    gateways.terminate();
    await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(1));
    await sleep(40);
    gateways.pages.set('g1', ['10.5.5.5:80']);
    gateways.lists();
    gateways.inspection.removed({ uid: 'a', at: clock() });
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
  });

  it('gives no sample while an instance does not answer, and says so', async () => {
    gateways.pages.set('g2', undefined);
    gateways.pages.set('g1', OTHER);
    await sleep(80);
    gateways.withdraw();
    await sleep(100);
    expect(gateways.lags).toEqual([]);
    const { trouble, instances } = gateways.inspection.states().get('edge') ?? {};
    expect(instances).toBe(2);
    expect(trouble).toEqual({ reason: 'Unreachable', message: 'The page of g2 is refused.' });
  });

  it('says who uses a pod that is wanted, and when that changes', async () => {
    const changes: string[] = [];
    gateways.inspection.onChange((uid) => changes.push(uid));
    gateways.pages.set('g2', OTHER);
    await sleep(80);
    expect(gateways.inspection.usersOf('edge', 'a', 0)).toBeUndefined();
    gateways.inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.withdraw();
    await vi.waitFor(() => expect(gateways.inspection.usersOf('edge', 'a', 0)).toEqual(['g1']));
    expect(gateways.inspection.usersOf('other', 'a', 0)).toBeUndefined();
    changes.length = 0;
    gateways.pages.set('g1', OTHER);
    await vi.waitFor(() => expect(changes).toContain('a'));
    expect(gateways.inspection.usersOf('edge', 'a', 0)).toEqual([]);
    // Back again: it is still asked, though seldom.
    gateways.pages.set('g1', BOTH);
    await vi.waitFor(() => expect(gateways.inspection.usersOf('edge', 'a', 0)).toEqual(['g1']));
    gateways.inspection.done('a');
    expect(gateways.inspection.usersOf('edge', 'a', 0)).toBeUndefined();
  });

  it('takes no page from before the withdrawal for an answer', async () => {
    const { inspection, pages } = gateways;
    // It has not heard of the pod yet.
    pages.set('g1', OTHER);
    inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.terminate();
    await vi.waitFor(() => expect(inspection.usersOf('edge', 'a', 0)).toEqual([]));
    pages.set('g1', BOTH);
    const at = gateways.withdraw();
    expect(inspection.usersOf('edge', 'a', at)).toBe('unknown');
    await vi.waitFor(() => expect(inspection.usersOf('edge', 'a', at)).toEqual(['g1']));
  });

  it('tells of the first page after the withdrawal, though it says what those before said', async () => {
    const { inspection } = gateways;
    gateways.pages.set('g1', OTHER);
    inspection.want({ namespace: 'shop', uid: 'a' });
    await vi.waitFor(() => expect(inspection.usersOf('edge', 'a', 0)).toEqual([]));
    const told: string[] = [];
    inspection.onChange((uid) => told.push(uid));
    const at = gateways.withdraw();
    await vi.waitFor(() => expect(told).toContain('a'));
    expect(inspection.usersOf('edge', 'a', at)).toEqual([]);
  });

  it('knows nothing of an instance that used the pod and has fallen silent', async () => {
    gateways.stop();
    begin({}, { unheard: 60 });
    gateways.inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.withdraw();
    await vi.waitFor(() => expect(gateways.inspection.usersOf('edge', 'a', 0)).toEqual(['g1']));
    gateways.pages.set('g1', undefined);
    await vi.waitFor(() => expect(gateways.inspection.usersOf('edge', 'a', 0)).toBe('unknown'));
  });

  it('adds the interval of the clients of a discovery service', async () => {
    gateways.stop();
    begin({ syncInterval: 0.2 });
    const changes: number[] = [];
    gateways.inspection.onChange(() => changes.push(clock()));
    gateways.inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.withdraw();
    await sleep(60);
    gateways.pages.set('g1', OTHER);
    const gone = clock();
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
    expect(gateways.inspection.usersOf('edge', 'a', 0)).toEqual(['g1']);
    await vi.waitFor(() => expect(gateways.inspection.usersOf('edge', 'a', 0)).toEqual([]));
    expect(clock() - gone).toBeGreaterThan(199);
    await vi.waitFor(() => expect((changes.at(-1) ?? 0) - gone).toBeGreaterThan(199));
    expect(gateways.lags[0]).toBeGreaterThan(0.2);
  });

  it('has no instances to ask', async () => {
    gateways.pages.clear();
    await sleep(100);
    expect(gateways.inspection.states().get('edge')?.trouble?.reason).toBe('NoInstances');
    gateways.inspection.want({ namespace: 'shop', uid: 'a' });
    expect(gateways.inspection.usersOf('edge', 'a', 0)).toBe('unknown');
  });

  it('says which addresses of its host lead nowhere from here', async () => {
    gateways.unrouted = ['2001:db8::1'];
    await vi.waitFor(() =>
      expect(gateways.inspection.states().get('edge')?.limits[0]).toBe(
        'Not asked, nor waited for: 2001:db8::1. Nothing leads from here to such addresses.',
      ),
    );
  });

  it('does not know what instances beyond those that are asked do', async () => {
    gateways.pages.set('g2', BOTH);
    gateways.isWhole = false;
    const { inspection } = gateways;
    await vi.waitFor(() =>
      expect(inspection.states().get('edge')?.trouble).toEqual({
        reason: 'TooManyInstances',
        message: expect.stringMatching(/^There are more than the 2 instances that are asked: /),
      }),
    );
    inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.withdraw();
    await vi.waitFor(() => expect(inspection.usersOf('edge', 'a', 0)).toEqual(['g1', 'g2']));
    for (const name of ['g1', 'g2']) gateways.pages.set(name, OTHER);
    await vi.waitFor(() => expect(inspection.usersOf('edge', 'a', 0)).toBe('unknown'));
    await sleep(100);
    expect(gateways.lags).toEqual([]);
    const changed = new Promise((done) => inspection.onChange(done));
    gateways.isWhole = true;
    await changed;
    expect(inspection.usersOf('edge', 'a', 0)).toEqual([]);
    expect(inspection.states().get('edge')?.trouble).toBeUndefined();
  });

  it.each([
    ['for a moment', 60_000, [], undefined],
    ['for longer', 50, 'unknown', 'Its current instances are not known: the query for them is refused.'],
  ] as const)('cannot list its instances %s', async (_, silent, users, message) => {
    gateways.stop();
    begin({}, { silent });
    gateways.pages.set('g2', BOTH);
    const { inspection } = gateways;
    await vi.waitFor(() => expect(inspection.states().get('edge')?.instances).toBe(2));
    gateways.unlistable = problem('Unreachable', 'is refused');
    inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.withdraw();
    for (const name of ['g1', 'g2']) gateways.pages.set(name, OTHER);
    await sleep(300);
    expect(inspection.usersOf('edge', 'a', 0)).toEqual(users);
    expect(inspection.states().get('edge')?.trouble?.message).toBe(message);
    gateways.unlistable = undefined;
    await vi.waitFor(() => expect(inspection.usersOf('edge', 'a', 0)).toEqual([]));
  });

  it('stays within its pages a second, and asks the one that waited longest', async () => {
    gateways.stop();
    begin({}, { pages: 10 });
    for (let n = 0; n < 30; n += 1) gateways.pages.set(`g${n}`, BOTH);
    gateways.inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.withdraw();
    await sleep(2_400);
    const starts = gateways.asked.map(({ at }) => at);
    const most = Math.max(
      ...starts.map((at) => starts.filter((each) => each >= at && each < at + 995).length),
    );
    expect(most).toBeLessThanOrEqual(10);
    expect(starts.length).toBeGreaterThanOrEqual(20);
    expect(new Set(gateways.asked.map(({ gateway }) => gateway)).size).toBeGreaterThanOrEqual(20);
  });

  it('stays within its bytes a second', async () => {
    gateways.stop();
    begin({}, { bytes: 1_000_000 });
    gateways.bytes = 500_000;
    gateways.inspection.want({ namespace: 'shop', uid: 'a' });
    gateways.withdraw();
    await sleep(1_500);
    // One second's worth at once, then what time allows.
    expect(gateways.asked.length).toBeLessThanOrEqual(7);
    expect(gateways.asked.length).toBeGreaterThanOrEqual(4);
  });

  it('learns the clusters of Envoy from a whole page, and asks for those', async () => {
    gateways.stop();
    begin({ format: 'Envoy' });
    gateways.render = (shown) =>
      shown.map((each) => `web.v1::${each}::health_flags::healthy\nweb.v1::${each}::priority::0\n`).join('');
    gateways.withdraw();
    await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(3));
    const filters = gateways.asked.map(({ url }) => url.searchParams.get('filter'));
    expect(filters[0]).toBeNull();
    expect(filters.at(-1)).toBe('^(web\\.v1)$');
    gateways.pages.set('g1', OTHER);
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
  });

  it('concludes nothing about pods that did not fit into what a witness was asked', async () => {
    gateways.stop();
    begin({ format: 'Witness' });
    gateways.ports = [80, 81, 82];
    const pods = Array.from({ length: 40 }, (_, n) => [`p${n}`, `10.0.1.${n}`, false] as const);
    gateways.lists(...pods);
    // All of them are in use all the time.
    gateways.render = () => {
      const names = gateways.asked.at(-1)?.url.pathname.split('/').at(-1)?.split(',') ?? [];
      return JSON.stringify(Object.fromEntries(names.map((name) => [name, 'using'])));
    };
    const said = () => pods.map(([uid]) => gateways.inspection.usersOf('edge', uid, 0));
    for (const [uid] of pods) gateways.inspection.want({ namespace: 'shop', uid });
    while (said().some((users) => users === 'unknown')) {
      expect(said()).not.toContainEqual([]);
      await sleep(20);
    }
    expect(said()).toEqual(pods.map(() => ['g1']));
  });

  it('asks a witness for the pod and others of its Service', async () => {
    gateways.stop();
    begin({ format: 'Witness' });
    gateways.render = (shown) =>
      JSON.stringify({ '10.0.0.1:8080': shown.length > 1 ? 'using' : 'absent', '10.0.0.2:8080': 'using' });
    gateways.withdraw();
    await vi.waitFor(() => expect(gateways.asked.length).toBeGreaterThan(1));
    expect(gateways.asked.at(-1)?.url.pathname).toBe('/clusters/10.0.0.1:8080,10.0.0.2:8080');
    gateways.pages.set('g1', OTHER);
    await vi.waitFor(() => expect(gateways.lags).toHaveLength(1));
  });
});

it('asks what is in memory although pages have to wait', async () => {
  const followed = { what: 'copies in', limits: [] };
  const consumers: readonly Inspected[] = [
    { name: 'edge', inspect: SPEC },
    { name: 'copies', inspect: { every: 0.02 }, followed },
  ];
  const url = new URL('http://gateway/clusters');
  let asked = 0;
  const inspection = new Inspection({
    clock,
    addresses: new PodAddresses(() => true),
    sendersTo: () => consumers,
    instancesOf: async () => ({
      pages: ['g1', 'g2'].map((name) => ({ name, address: '10.9.9.9', url })),
      isWhole: true,
    }),
    ask: ({ name }) => {
      // Pages never come.
      if (name === 'edge') return new Promise(() => undefined);
      asked += 1;
      return Promise.resolve({ outcome: problem('Unreachable', 'are not followed'), bytes: 0 });
    },
    lagOf: () => undefined,
    isReused: () => Promise.resolve(false),
    onStale: () => undefined,
    onSkipped: () => undefined,
    onLag: () => undefined,
    count: { page: () => undefined, lost: () => undefined },
    limits: { atOnce: 1, every: 20 },
  });
  inspection.keep(consumers);
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  void inspection.run(ending.signal);
  await vi.waitFor(() => expect(asked).toBeGreaterThan(5), WITHIN);
});

it('pods of namespaces that are not selected take no instance’s place', async () => {
  const gateways = ['edge-1', 'edge-2', 'edge-3', 'edge-4', 'edge-5'];
  const inspect: InspectSpec = {
    format: 'Text',
    instances: { namespaceSelector: { matchLabels: { edge: 'yes' } }, port: 1 },
  };
  const { inspection } = await leading('edge', { inspect }, undefined, (cluster) => {
    const put = (namespace: string, name: string, podIP: string) =>
      cluster.put('pods', { metadata: { namespace, name }, status: { phase: 'Running', podIP } });
    for (let n = 0; n < 250; n++) put('a-tenant', `pod-${n}`, `10.1.0.${n}`);
    for (const [n, namespace] of gateways.entries()) put(namespace, 'gateway', `127.0.0.${n + 1}`);
    const labelled = gateways.map(
      (name) => [name, { ...unseenNamespace(name), labels: { edge: 'yes' } }] as const,
    );
    return { namespaces: new Map(labelled) };
  });
  const count = () => [...inspection.instances()].map(([, answering, silent]) => answering + silent);
  await vi.waitFor(() => expect(count()).toEqual([gateways.length]), WITHIN);
});

it('lists addresses less and less often while the API server refuses it', async () => {
  let asked = 0;
  const { run } = await leading('edge', { inspect: SPEC }, undefined, (cluster) => {
    cluster.refuse = (what) => {
      if (what === 'endpointslices') asked += 1;
      return 503;
    };
    return { namespaces: new Map([['shop', unseenNamespace('shop')]]) };
  });
  void run();
  await vi.waitFor(() => expect(asked).toBeGreaterThan(0), WITHIN);
  await sleep(5_500);
  expect(asked).toBeLessThan(5);
});
