import { meanOf, type QueueActivity } from './controller-activity.ts';
import { MOST_WORKERS, type QueueName, WORKER_FLAGS } from './controller-flags.ts';
import type { Facts } from './facts.ts';
import { SLOW_SECONDS } from './thresholds.ts';

/** What cured S0: 30 s to 2 min became milliseconds. */
const CURED_QPS = 300;
const CURED_BURST = 325;

/** A burst a little over a second of the rate, as in both field reports (325 for 300, 120 for 100). */
const BURST_PER_QPS = CURED_BURST / CURED_QPS;

/** Half of what is worth a finding. */
const WAIT_WANTED_SECONDS = SLOW_SECONDS / 2;

/** The flags that lift the client's limit: S0's, or the double of what is set where that is no less already. */
export function limiterCure({ flags, controller }: Facts, queues: readonly QueueName[]): readonly string[] {
  const qps = flags.qps < CURED_QPS ? CURED_QPS : 2 * flags.qps;
  const burst = Math.ceil(qps * BURST_PER_QPS);
  const server = meanOf(controller?.server) ?? 0;
  // Little's law: to keep `qps` writes of this length going, that many workers are writing at a time.
  const workers = Math.min(MOST_WORKERS, Math.ceil(qps * server));
  const more = queues.filter((queue) => workers > flags.workers[queue]);
  return [
    `--kube-api-qps=${qps}`,
    `--kube-api-burst=${burst}`,
    ...more.map((queue) => `${WORKER_FLAGS[queue]}=${workers}`),
  ];
}

/**
 * The flag that gives a queue enough workers for what comes in, with the client's limits where they would be next.
 *
 * In a burst of so many Services, the mean wait is inversely proportional to the workers: this many bring it down to
 * half a second. In a steady flow, as many are busy as come in a second times the seconds of each.
 */
export function workerCure(queue: QueueActivity, facts: Facts): readonly string[] {
  const { flags, controller } = facts;
  const { name, adds, meanWorkSeconds = 0, meanWaitSeconds = 0 } = queue;
  const present = flags.workers[name];
  if (present >= MOST_WORKERS) return [];
  const forBurst = (present * meanWaitSeconds) / WAIT_WANTED_SECONDS;
  const forFlow = (adds / (controller?.seconds ?? Number.POSITIVE_INFINITY)) * meanWorkSeconds;
  const workers = Math.min(MOST_WORKERS, Math.ceil(Math.max(2 * present, forBurst, forFlow)));
  const limits = workers / meanWorkSeconds > flags.qps ? limiterCure(facts, []) : [];
  return [`${WORKER_FLAGS[name]}=${workers}`, ...limits];
}
