import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import { type Arena, observe } from './arena.ts';
import type { Gateway } from './gateway.ts';

export interface SoakOptions {
  readonly durationMs: number;
  /** Milliseconds between changes, on average. */
  readonly changeMs: number;
  /** Milliseconds between faults, on average. */
  readonly faultMs: number;
  /** A seeded source: a failure can be run again. */
  readonly random: () => number;
}

const FAULTS: readonly ((gateway: Gateway) => void)[] = [
  (gateway) => gateway.cut(),
  (gateway) => gateway.endWatches(),
  (gateway) => gateway.silenceWatches(),
  (gateway) => gateway.inject('{"type":"ERROR","object":{"kind":"Status","code":410}}\n'),
  (gateway) => gateway.inject('nonsense\n'),
  (gateway) => {
    gateway.failNext('watch', { status: 429, headers: { 'retry-after': '0' } }, { status: 500 });
    gateway.cut();
  },
  (gateway) => {
    gateway.failNext('list', { status: 503 }, { status: 410 });
    gateway.inject('{"type":"ERROR","object":{"kind":"Status","code":410}}\n');
  },
];

/** Small and seedable; see Steele and Vigna, "SplitMix". */
export function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x9e3779b9) | 0;
    let mixed = Math.imul(state ^ (state >>> 16), 0x21f0aaad);
    mixed = Math.imul(mixed ^ (mixed >>> 15), 0x735a2d97);
    return ((mixed ^ (mixed >>> 15)) >>> 0) / 2 ** 32;
  };
}

/** Changes objects and breaks things at random; then what was seen must come to what is there. */
export async function soak(arena: Arena, options: SoakOptions) {
  const observed = observe(arena, { limits: { silenceMs: 150 } });
  await observed.upToDate();
  const until = performance.now() + options.durationMs;
  await Promise.all([changeAtRandom(arena, until, options), breakAtRandom(arena.gateway, until, options)]);
  await observed.upToDate();
  expect(backwards(observed.events)).toEqual([]);
  expect(
    observed.failures.map(({ message }) => message).filter((each) => each.includes('rolled back')),
  ).toEqual([]);
  expect(observed.watch.stats.handlerErrors).toBe(0);
  const { restarts, lists, events } = observed.watch.stats;
  return {
    restarts: Object.fromEntries(Object.entries(restarts).filter(([, count]) => count > 0)),
    lists,
    events,
  };
}

async function changeAtRandom(arena: Arena, until: number, { changeMs, random }: SoakOptions): Promise<void> {
  for (let count = 0; performance.now() < until; count++) {
    const name = `object-${Math.floor(random() * 40)}`;
    if (random() < 0.3) await arena.remove(name);
    else await arena.put(name, String(count));
    await sleep(2 * changeMs * random());
  }
}

async function breakAtRandom(
  gateway: Gateway,
  until: number,
  { faultMs, random }: SoakOptions,
): Promise<void> {
  while (performance.now() < until) {
    await sleep(2 * faultMs * random());
    FAULTS[Math.floor(random() * FAULTS.length)]?.(gateway);
  }
}

/** Events whose object is older than one told before under the same name. */
function backwards(events: ReturnType<typeof observe>['events']): readonly string[] {
  const latest = new Map<string, number>();
  return events.flatMap((event) => {
    if (event.type === 'deleted') return [];
    const { name, resourceVersion } = event.object;
    const before = latest.get(name) ?? 0;
    const now = Number(resourceVersion);
    latest.set(name, Math.max(before, now));
    return now < before ? [`${name}: ${now} after ${before}`] : [];
  });
}
