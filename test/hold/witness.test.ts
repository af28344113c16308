import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { HoldPlan } from '../../src/core/decision/index.ts';
import type { Waiter } from '../../src/hold/holds.ts';
import { Arena, REPORTING, snapshotWith } from './arena.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance', 'Date'] }));
afterEach(() => void vi.useRealTimers());

const POD_IP = '10.0.1.7';
const GATEWAY_IP = '10.0.9.9';

/** No instance is waited for: the consumer stops at the withdrawal itself, and later connections are from another one. */
const reports = () => ({
  taken: { waitingFor: () => [], hasSilent: () => false } as never,
  since: Number.NEGATIVE_INFINITY,
});

/** A held pod, and what its helper counts. Instants are milliseconds since the deletion. */
class Story {
  readonly arena = new Arena({ snapshot: snapshotWith({ consumers: [REPORTING] }), reports });
  readonly #waiters = new Map<string, Waiter>();
  releasedAt: number | undefined;
  #opens = 1_000;

  constructor(plan: Partial<HoldPlan & { wait: number }> = {}) {
    this.arena.admit('web-1', { min: 2, max: 60, initial: 0, ...plan });
    this.arena.address('web-1', POD_IP);
  }

  get pod() {
    return this.arena.pods.withUid('web-1') as never;
  }

  /** A stranger with the pod's token waits. */
  call(source: string, startedAt = performance.now()): Waiter {
    const waiter: Waiter = {
      source,
      startedAt,
      answer: () => {
        if (source === POD_IP) this.releasedAt ??= performance.now() - this.begun;
      },
    };
    this.#waiters.set(source, waiter);
    this.arena.holds.call(this.pod, waiter);
    return waiter;
  }

  testify(
    waiter: Waiter,
    opened: number,
    remotes: readonly string[] = [],
    established = 0,
    canCount = true,
  ): void {
    this.#opens += opened;
    const loopback = canCount ? 0 : undefined;
    const line = { opens: BigInt(this.#opens), established, loopback, remotes };
    this.arena.holds.saw(this.pod, waiter, { at: performance.now(), ...line });
  }

  begun = 0;
  delete(): void {
    this.arena.delete('web-1');
    this.begun = performance.now();
  }

  /** Runs until the pod's hold is released. @param each called twice a second, as often as the helper samples */
  async run(each: (now: number) => void, until = 90_000): Promise<void> {
    for (let now = 0; now <= until && this.releasedAt === undefined; now += 500) {
      each(now);
      await vi.advanceTimersByTimeAsync(500);
    }
  }

  get told() {
    const [release] = this.arena.released;
    if (release === undefined) throw new Error('nothing was let go');
    return release;
  }
}

/** The gateway's, and another's that the helper writes out in full. */
const SPELLINGS = [GATEWAY_IP, `::ffff:${GATEWAY_IP}`, 'fd00:0:0:0:0:0:0:7'];

/** Connections of half a second. */
const perHalf = (rate: number) => rate / 2;

describe('an inspected gateway that is itself held', () => {
  const WITHDRAWN = 2_000;

  it.each([
    ['nobody else sends to', undefined, WITHDRAWN],
    ['a sender goes on connecting to', 9_000, 9_000],
  ])('%s: Linger’s own page requests are no traffic', async (_, last, truth) => {
    const story = new Story();
    story.delete();
    const helper = story.call(POD_IP);
    await story.run((now) => {
      if (now === WITHDRAWN) story.arena.withdraw('web-1');
      // Once a second a page is asked for, which the counter counts in this line or the next.
      const isAsked = now % 1_000 === 0;
      const late = now % 3_000 === 0;
      if (isAsked) story.arena.holds.connected(POD_IP);
      const pages = (isAsked && !late) || (now >= 500 && (now - 500) % 3_000 === 0) ? 1 : 0;
      story.testify(helper, pages + (last !== undefined && now <= last ? perHalf(8) : 0));
    });
    expect(story.told.reason).toBe('Gone');
    expect(story.releasedAt).toBeGreaterThanOrEqual(truth);
    expect(story.releasedAt).toBeLessThan(truth + 6_000);
    expect(story.told.undeclared === undefined).toBe(last === undefined);
    // Counts the sender's 8 connections a second from the withdrawal on, and not the page requests beside them.
    if (last !== undefined) expect(story.told.undeclared?.connections).toBeLessThanOrEqual(4 * 2 * 7);
  });
});

describe('a helper that calls again, as after a change of leader', () => {
  it.each([
    ['right after', 100],
    ['two seconds after, as on a busy node', 2_000],
  ])('is let go no sooner, where its first line comes %s', async (_, late) => {
    const story = new Story();
    story.delete();
    let helper = story.call(POD_IP);
    await story.run((now) => {
      if (now === 2_000) story.arena.withdraw('web-1');
      if (now === 15_000) {
        story.arena.holds.end();
        helper = story.call(POD_IP, story.begun);
      }
      if (now < 15_000 || now >= 15_000 + late) story.testify(helper, now <= 30_000 ? perHalf(8) : 0);
    });
    expect(story.releasedAt).toBeGreaterThanOrEqual(30_000);
    expect(story.releasedAt).toBeLessThan(36_000);
  });

  it('is let go no sooner where it is the other of two containers that was counted, and has ended', async () => {
    const story = new Story();
    story.delete();
    const counted = story.call(POD_IP);
    const other = story.call(POD_IP);
    await story.run((now) => {
      if (now === 2_000) story.arena.withdraw('web-1');
      if (now < 15_000) story.testify(counted, perHalf(8));
      if (now === 15_000) story.arena.holds.leave(story.pod, counted);
      else story.testify(other, now <= 30_000 ? perHalf(8) : 0);
    });
    expect(story.releasedAt).toBeGreaterThanOrEqual(30_000);
    expect(story.releasedAt).toBeLessThan(36_000);
  });

  it('and says nothing is not waited for', async () => {
    const story = new Story();
    story.delete();
    story.call(POD_IP);
    await story.run((now) => {
      if (now === 500) story.arena.withdraw('web-1');
      if (now === 1_500) story.call(POD_IP, story.begun);
    });
    expect(story.releasedAt).toBeLessThan(7_000);
  });

  it('is none of another address', async () => {
    const story = new Story();
    story.delete();
    story.call(POD_IP);
    await story.run((now) => {
      if (now === 500) story.arena.withdraw('web-1');
      story.call('10.0.66.6', story.begun - 60_000);
    });
    expect(story.releasedAt).toBeLessThan(3_100);
  });
});

it('a helper that calls again counts, though its old connection was never closed', async () => {
  const story = new Story();
  story.delete();
  const lost = story.call(POD_IP);
  let again: Waiter | undefined;
  await story.run((now) => {
    if (now === 2_000) story.arena.withdraw('web-1');
    // With the node that relayed it; the helper hears nothing for some seconds, and calls again.
    if (now === 12_000) again = story.call(POD_IP);
    const sends = now <= 30_000 ? perHalf(8) : 0;
    if (now <= 4_000) story.testify(lost, sends);
    else if (again !== undefined) story.testify(again, sends);
  });
  expect(story.releasedAt).toBeGreaterThanOrEqual(30_000);
  expect(story.releasedAt).toBeLessThan(36_000);
});

describe('an undeclared sender goes on until 9.5 s after the withdrawal', () => {
  const WITHDRAWN = 3_000;
  const LAST = WITHDRAWN + 9_500;

  it('beside the kubelet’s probes, and a thief of the token who testifies that no connections come', async () => {
    const story = new Story({ probes: 1 });
    story.delete();
    const thief = story.call('10.0.66.6');
    const helper = story.call(POD_IP);
    await story.run((now) => {
      if (now === WITHDRAWN) story.arena.withdraw('web-1');
      const probe = now % 1_000 === 0 ? 1 : 0;
      const sends = now <= LAST ? perHalf(20) : 0;
      story.testify(thief, 0);
      story.testify(helper, sends + probe, now === 6_000 ? SPELLINGS : [], now <= LAST ? 4 : 0);
    });
    // Silence at 20 a second shows within a second or two.
    expect(story.releasedAt).toBeGreaterThanOrEqual(LAST);
    expect(story.releasedAt).toBeLessThan(LAST + 2_500);
    const { reason, lag, undeclared, open } = story.told;
    expect([reason, open]).toEqual(['Gone', 0]);
    // Lines come twice a second, and do not say when in between.
    expect(Math.abs((lag ?? Number.NaN) - 9.5)).toBeLessThanOrEqual(0.5);
    expect(undeclared?.remotes).toEqual([GATEWAY_IP, 'fd00::7']);
    expect(undeclared?.connections).toBeGreaterThan(150);
    expect(undeclared?.connections).toBeLessThanOrEqual(190);
    expect(story.arena.strangers.every((each) => each === '10.0.66.6')).toBe(true);
    expect(story.arena.strangers.length).toBeGreaterThan(20);
  });

  it('is seen by a pod that only observes, which waits no longer for it', async () => {
    const story = new Story({ wait: 20, observe: true });
    story.delete();
    const helper = story.call(POD_IP);
    await story.run((now) => {
      if (now === WITHDRAWN) story.arena.withdraw('web-1');
      story.testify(helper, now <= LAST ? perHalf(20) : 0, [], 2);
    });
    expect(story.releasedAt).toBeGreaterThanOrEqual(20_000);
    expect(story.releasedAt).toBeLessThan(20_600);
    expect(story.told).toMatchObject({ reason: 'Observed', open: 2 });
    expect(story.told.lag).toBeCloseTo(9.5, 0);
    expect(story.told.undeclared?.seconds).toBeCloseTo(9.5, 0);
  });
});

it('a pod is held for as long as it takes to tell, however short hold.min is', async () => {
  const story = new Story({ min: 1, probes: 1 });
  story.delete();
  story.arena.withdraw('web-1');
  let helper: Waiter | undefined;
  await story.run((now) => {
    const sends = now <= 9_500 ? 2 : 0;
    // The kubelet takes a second to begin the hook.
    if (now === 1_000) helper = story.call(POD_IP);
    if (helper !== undefined) story.testify(helper, sends + (now % 1_000 === 0 ? 1 : 0));
  });
  expect(story.releasedAt).toBeGreaterThanOrEqual(9_500);
  expect(story.told.lag).toBeGreaterThanOrEqual(8.7);
  expect(story.told.lag).toBeLessThanOrEqual(10.1);
});

it.each([
  ['throughout', 0],
  ['until long after the withdrawal', 6_000],
] as const)('a helper that cannot count %s gives no sample', async (_, from) => {
  const story = new Story({ min: 12 });
  story.delete();
  const helper = story.call(POD_IP);
  await story.run((now) => {
    if (now === 1_000) story.arena.withdraw('web-1');
    story.testify(helper, now < 5_000 ? 10 : 0, [], 0, from > 0 && now >= from);
  });
  expect(story.told).toMatchObject({ reason: 'Gone', lag: undefined });
});

it('says when each consumer had stopped, and when the last connection came', async () => {
  const story = new Story({ min: 5 });
  story.delete();
  const helper = story.call(POD_IP);
  await story.run((now) => {
    if (now === 2_000) story.arena.withdraw('web-1');
    story.testify(helper, now <= 3_000 ? 5 : 0);
  });
  const { consumers, counted } = story.told;
  expect(consumers).toMatchObject([{ name: 'edge', by: 'word' }]);
  expect((consumers[0]?.at ?? 0) - story.begun).toBeGreaterThanOrEqual(2_000);
  expect((consumers[0]?.at ?? 0) - story.begun).toBeLessThanOrEqual(3_000);
  expect((counted?.lastAt ?? 0) - story.begun).toBeGreaterThanOrEqual(2_500);
  expect((counted?.lastAt ?? 0) - story.begun).toBeLessThanOrEqual(3_500);
});

it('of a helper that cannot count, the last connection is not known', async () => {
  const story = new Story({ min: 5 });
  story.delete();
  const helper = story.call(POD_IP);
  await story.run((now) => {
    if (now === 1_000) story.arena.withdraw('web-1');
    story.testify(helper, 0, [], 0, false);
  });
  expect(story.told.counted).toBeUndefined();
});

describe('no finding', () => {
  it.each([
    ['of probes', 1, (now: number) => (now % 1_000 === 0 ? 1 : 0)],
    ['of what came before the withdrawal', 0, (now: number) => (now < 3_000 ? 10 : 0)],
  ] as const)('%s', async (_, probes, opened) => {
    const story = new Story({ probes, min: 8 });
    story.delete();
    const helper = story.call(POD_IP);
    await story.run((now) => {
      if (now === 3_000) story.arena.withdraw('web-1');
      story.testify(helper, opened(now));
    });
    expect(story.told).toMatchObject({ reason: 'Gone', undeclared: undefined });
    expect(story.told.lag).toBeLessThanOrEqual(0.5);
  });
});

describe('there is no sample', () => {
  it.each<[string, (story: Story, helper: Waiter, now: number) => void]>([
    ['without a witness', (story, _helper, now) => now === 1_000 && story.arena.withdraw('web-1')],
    [
      'of a witness that fell silent',
      (story, helper, now) => {
        if (now === 1_000) story.arena.withdraw('web-1');
        if (now < 2_000) story.testify(helper, 5);
      },
    ],
    [
      'of a witness that has counted for half a second',
      (story, helper, now) => {
        if (now === 11_000) story.arena.withdraw('web-1');
        story.testify(helper, 0, [], 0, now >= 11_500);
      },
    ],
    ['where nothing was withdrawn', (story, helper) => story.testify(helper, 5)],
  ])('%s', async (_, each) => {
    const story = new Story({ min: 8, max: 12 });
    story.delete();
    const helper = story.call(POD_IP);
    await story.run((now) => each(story, helper, now));
    expect(story.told.lag).toBeUndefined();
  });
});

describe('a thief of a token', () => {
  it('cannot hold the pod longer: its untrue counters are left out', async () => {
    const story = new Story();
    story.delete();
    const thief = story.call('10.0.66.6');
    story.call(POD_IP);
    await story.run((now) => {
      if (now === 1_000) story.arena.withdraw('web-1');
      story.testify(thief, 50);
    });
    expect(story.releasedAt).toBeLessThan(3_100);
  });

  it('cannot start the clock of a pod that only waits', async () => {
    const story = new Story({ wait: 20, observe: true });
    story.call('10.0.66.6');
    await vi.advanceTimersByTimeAsync(15_000);
    story.delete();
    story.call(POD_IP);
    story.arena.withdraw('web-1');
    await story.run(() => undefined);
    expect(story.releasedAt).toBeGreaterThanOrEqual(20_000);
  });

  it('is distinguished from the pod in any spelling of its address, but not where no address is known', async () => {
    const story = new Story();
    story.delete();
    const mapped = story.call('::ffff:10.0.1.7');
    story.testify(mapped, 1);
    const other = story.call('fd00::66');
    story.testify(other, 1);
    expect(story.arena.strangers).toEqual([]);
    for (const stranger of ['::ffff:10.0.66.6', '::FFFF:a00:4206', '10.0.66.6'])
      story.testify(story.call(stranger), 1);
    expect(story.arena.strangers).toEqual(['::ffff:10.0.66.6', '::FFFF:a00:4206', '10.0.66.6']);
  });
});
