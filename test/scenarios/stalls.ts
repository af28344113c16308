import type { WatchStats } from '../../src/cluster/index.ts';
import { signOfLife } from '../../src/cluster/watch-metrics.ts';

/** Records, while it runs, how long watches go without a sign of life or a restart. */
export function watchForStalls(watches: Readonly<Record<string, WatchStats>>) {
  const signs = new Map<string, { sign: string; since: number }>();
  const longest = new Map<string, number>();
  const look = () => {
    const now = performance.now();
    for (const [name, stats] of Object.entries(watches)) {
      const sign = signOfLife(stats);
      const known = signs.get(name);
      if (known?.sign !== sign) signs.set(name, { sign, since: now });
      const stalled = now - (signs.get(name)?.since ?? now);
      longest.set(name, Math.max(longest.get(name) ?? 0, stalled));
    }
  };
  const timer = setInterval(look, 200);
  return {
    /** Milliseconds, by watch. */
    stop: (): ReadonlyMap<string, number> => {
      clearInterval(timer);
      return longest;
    },
  };
}
