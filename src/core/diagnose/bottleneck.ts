import { meanOf, type QueueActivity } from './controller-activity.ts';
import type { Facts } from './facts.ts';
import {
  BACKLOG_WITHOUT_RATE,
  LASTING_BACKLOG,
  SHORT_DRAIN_SECONDS,
  SLOW_SECONDS,
  STUCK_SECONDS,
  THROTTLED_SECONDS,
} from './thresholds.ts';

/**
 * What holds a queue up. `limiter`: the client waits for its own rate limiter; `limiter?`: its metrics are not there,
 * but its rate is just the limit; `workers`: a queue hands out as soon as a worker is free, so where Services wait, and
 * not for the limiter, all workers were busy meanwhile; `stuck`: one of them does not come back; `unknown`: nothing came
 * out of the queue, or there is but one scrape.
 */
export type Bottleneck = 'limiter' | 'limiter?' | 'stuck' | 'workers' | 'unknown';

/** @returns undefined when nothing is held up */
export function bottleneckOf(queue: QueueActivity, facts: Facts): Bottleneck | undefined {
  if (queue.longestSeconds >= STUCK_SECONDS && !limiterHolds(facts)) return 'stuck';
  if (!isBehind(queue, facts)) return undefined;
  if (limiterHolds(facts)) return 'limiter';
  if (facts.controller?.limiter === undefined && goesAtTheLimit(queue, facts)) return 'limiter?';
  return facts.controller?.seconds !== undefined && queue.done > 0 ? 'workers' : 'unknown';
}

/** The queues that are held up in this way. */
export function heldUpBy(facts: Facts, ...ways: readonly Bottleneck[]): readonly QueueActivity[] {
  const queues = facts.controller?.queues ?? [];
  return queues.filter((queue) => {
    const way = bottleneckOf(queue, facts);
    return way !== undefined && ways.includes(way);
  });
}

/** How long the last Service in the queue will wait; undefined without a rate. */
export function drainSeconds(queue: QueueActivity, facts: Facts): number | undefined {
  const seconds = facts.controller?.seconds;
  if (seconds === undefined) return undefined;
  return queue.depth === 0 ? 0 : (queue.depth * seconds) / queue.done;
}

/**
 * Whether Services wait for long in the queue now. Without a rate only the depth says so: means since the start of the
 * process are the past. With one, a queue that was filled just before its end is not behind yet: what it did in the
 * calm before says nothing of what it can do.
 */
function isBehind(queue: QueueActivity, facts: Facts): boolean {
  const drain = drainSeconds(queue, facts);
  if (drain === undefined) return queue.depth >= BACKLOG_WITHOUT_RATE;
  if ((queue.meanWaitSeconds ?? 0) >= SLOW_SECONDS) return true;
  const lasting = Math.min(queue.depthBefore ?? 0, queue.depth) >= LASTING_BACKLOG;
  return lasting && drain >= SHORT_DRAIN_SECONDS;
}

/** Writes wait for the limiter, and longer than for the API server. */
function limiterHolds({ controller }: Facts): boolean {
  const waits = meanOf(controller?.limiter) ?? 0;
  return waits >= THROTTLED_SECONDS && waits >= (meanOf(controller?.server) ?? 0);
}

/** Every sync of a Service that has changed is a write. */
function goesAtTheLimit(queue: QueueActivity, { controller, flags }: Facts): boolean {
  if (controller?.seconds === undefined) return false;
  const rate = queue.done / controller.seconds;
  return rate >= 0.8 * flags.qps && rate <= 1.2 * flags.qps;
}
