import { expect, it } from 'vitest';
import { newStats } from '../../src/cluster/resource.ts';
import { DeadWatches } from '../../src/cluster/watch-metrics.ts';

const MINUTE = 60_000;
/** As kubelet probes. */
const PROBE_MS = 10_000;

/** Looks every ten seconds for so long; returns what the last look found. */
function probing(stats: ReturnType<typeof newStats>, forMs: number, each: (now: number) => void = () => {}) {
  const watches = new DeadWatches();
  let found: readonly string[] = [];
  for (let now = 0; now <= forMs; now += PROBE_MS) {
    each(now);
    found = watches.look({ pods: stats }, now);
  }
  return { found, watches };
}

it('a watch that does nothing for more than four minutes is dead', () => {
  expect(probing(newStats(), 4 * MINUTE).found).toEqual([]);
  expect(probing(newStats(), 5 * MINUTE).found).toEqual(['pods']);
});

it.each<[string, (stats: ReturnType<typeof newStats>, now: number) => void]>([
  [
    'reads, however much',
    (stats, now) => {
      stats.bytes = now * 1_000;
    },
  ],
  [
    'fails, again and again',
    (stats, now) => {
      stats.restarts.Unreachable = now;
    },
  ],
  [
    'brings nothing, and is resumed every 70 s',
    (stats, now) => {
      stats.restarts.Silent = Math.floor(now / 70_000);
    },
  ],
  [
    'goes from asking to watching',
    (stats, now) => {
      stats.state = now % (2 * MINUTE) < MINUTE ? 'connecting' : 'watching';
    },
  ],
])('one that %s lives', (_, act) => {
  const stats = newStats();
  expect(probing(stats, 60 * MINUTE, (now) => act(stats, now)).found).toEqual([]);
});

it('a process that stood still does not blame its watches', () => {
  const stats = newStats();
  const { watches } = probing(stats, 2 * MINUTE);
  expect(watches.look({ pods: stats }, 60 * MINUTE)).toEqual([]);
  expect(watches.look({ pods: stats }, 60 * MINUTE + PROBE_MS)).toEqual([]);
});

it('a watch that has begun again lives', () => {
  const stats = newStats();
  const { found, watches } = probing(stats, 5 * MINUTE);
  expect(found).toEqual(['pods']);
  stats.lists += 1;
  expect(watches.look({ pods: stats }, 5 * MINUTE + PROBE_MS)).toEqual([]);
});
