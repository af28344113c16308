import { count, percent, span, thousands } from './amounts.ts';
import { drainSeconds, heldUpBy } from './bottleneck.ts';
import { meanOf, type QueueActivity } from './controller-activity.ts';
import { WRITTEN_BY } from './controller-flags.ts';
import { limiterCure, workerCure } from './cures.ts';
import { limiterEvidence, queueEvidence, written } from './evidence.ts';
import type { Facts } from './facts.ts';
import { type Finding, finding } from './findings.ts';
import { FEWEST_REQUESTS, SLOW_SHARE } from './thresholds.ts';

/** Rules about the queues of the endpoint controllers, and what holds them up. */

export function clientThrottled(facts: Facts): Finding | undefined {
  const held = heldUpBy(facts, 'limiter', 'limiter?');
  if (held.length === 0) return undefined;
  const { controller, flags } = facts;
  const limit = `${thousands(flags.qps)} requests a second${flags.known ? '' : ' if the default'}`;
  const waits = meanOf(controller?.limiter);
  const how =
    waits === undefined
      ? `they come out at just the rate that its limit allows (${limit}); its own metric of the wait is not there`
      : `each write waits ${span(waits)} for the controller-manager’s own limit (${limit}), and ${span(meanOf(controller?.server) ?? 0)} for the API server`;
  return finding(
    'ClientThrottled',
    `${written(held)} are withdrawn late because ${how}. ${waitOfNext(held, facts)}More workers alone do not help: they share the limit.`,
    [...limiterEvidence(facts), ...held.flatMap((queue) => queueEvidence(queue, facts))],
    [
      ...limiterCure(
        facts,
        held.map(({ name }) => name),
      ),
      'The limit counts for each controller’s client by itself; after raising it, watch the API server’s own latency.',
    ],
  );
}

export function tooFewWorkers(facts: Facts): Finding | undefined {
  const held = heldUpBy(facts, 'workers');
  if (held.length === 0) return undefined;
  const { flags } = facts;
  const busy = held.map(({ name, meanWorkSeconds = 0 }) => {
    const workers = `${count(flags.workers[name], 'worker')}${flags.known ? '' : ' (if the default)'}`;
    return `${workers} for ${WRITTEN_BY[name]} with ${span(meanWorkSeconds)} for each Service`;
  });
  return finding(
    'TooFewWorkers',
    `${written(held)} are withdrawn late because all workers are busy: ${busy.join(', ')}. They do not wait for a rate limit. ${waitOfNext(held, facts)}`.trimEnd(),
    [...held.flatMap((queue) => queueEvidence(queue, facts)), ...limiterEvidence(facts)],
    [...new Set(held.flatMap((queue) => workerCure(queue, facts)))],
  );
}

export function stuckWorker(facts: Facts): Finding | undefined {
  const held = heldUpBy(facts, 'stuck');
  if (held.length === 0) return undefined;
  const longest = Math.max(...held.map(({ longestSeconds }) => longestSeconds));
  return finding(
    'StuckWorker',
    `A worker that writes ${written(held)} has been at one Service for ${span(longest)}; the API server gives up after 60 s by default. That Service’s endpoints do not change until it comes back.`,
    held.flatMap((queue) => queueEvidence(queue, facts)),
    [
      'Look into the controller-manager’s log for that time, and whether its connection to the API server is alive (a load balancer that drops idle connections?).',
      'Restarting the controller-manager frees the worker; every Service is then synced once.',
    ],
  );
}

export function queueBacklog(facts: Facts): Finding | undefined {
  const held = heldUpBy(facts, 'unknown');
  if (held.length === 0) return undefined;
  const why =
    facts.controller?.seconds === undefined
      ? 'One scrape has no rates, so what holds them up cannot be told: give two, or let them be taken.'
      : 'Nothing was finished meanwhile: the controller does not run, or waits for something that has no metric.';
  return finding(
    'QueueBacklog',
    `${written(held)}: Services wait to be written. ${waitOfNext(held, facts)}${why}`,
    [...held.flatMap((queue) => queueEvidence(queue, facts)), ...limiterEvidence(facts)],
    [
      'Look at the controller-manager’s log and its CPU (process_cpu_seconds_total), and whether it reaches the API server.',
    ],
  );
}

export function throttledBefore(facts: Facts): Finding | undefined {
  const life = facts.controller?.limiterLife;
  if (life === undefined || heldUpBy(facts, 'limiter').length > 0) return undefined;
  if (life.count < FEWEST_REQUESTS || life.overSecond < SLOW_SHARE * life.count) return undefined;
  return finding(
    'ThrottledBefore',
    `Not now, but since it was started ${thousands(life.overSecond)} of ${count(life.count, 'write')} (${percent(life.overSecond / life.count)}) waited for more than a second for the controller-manager’s own rate limit. The next storm will bring that back.`,
    [
      `rest_client_rate_limiter_duration_seconds{verb=~"PUT|POST|PATCH|DELETE"}: ${thousands(life.overSecond)} of ${thousands(life.count)} over 1 s, mean ${span(meanOf(life) ?? 0)}`,
    ],
    limiterCure(facts, []),
  );
}

export function backlogBefore(facts: Facts): Finding | undefined {
  const queues = facts.controller?.queues ?? [];
  const held = new Set(heldUpBy(facts, 'limiter', 'limiter?', 'workers', 'stuck', 'unknown'));
  const past = queues.filter(
    (queue) =>
      !held.has(queue) &&
      queue.life.taken >= FEWEST_REQUESTS &&
      queue.life.overSecond >= SLOW_SHARE * queue.life.taken,
  );
  if (past.length === 0) return undefined;
  return finding(
    'BacklogBefore',
    `Not now, but since the controller-manager was started Services have waited for more than a second in the queue of ${written(past)}.`,
    past.map(
      ({ name, life }) =>
        `workqueue_queue_duration_seconds{name="${name}"}: ${thousands(life.overSecond)} of ${thousands(life.taken)} (${percent(life.overSecond / life.taken)}) over 1 s`,
    ),
    [
      'Run this again while it happens. An alert on workqueue_depth{name=~"endpoint|endpoint_slice"} says when.',
    ],
  );
}

/** What the backlog means for a pod. */
function waitOfNext(held: readonly QueueActivity[], facts: Facts): string {
  const drains = held.map((queue) => drainSeconds(queue, facts) ?? 0);
  const longest = Math.max(0, ...drains);
  if (longest < 1) return '';
  if (!Number.isFinite(longest)) return 'Nothing has come out of the queue meanwhile. ';
  return `A pod that is deleted now is withdrawn about ${span(longest)} later. `;
}
