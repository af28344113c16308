import { meanOf } from './controller-activity.ts';
import { MOST_WORKERS, type QueueName, WORKER_FLAGS } from './controller-flags.ts';
import type { Facts } from './facts.ts';

/** What cured S0: 30 s to 2 min became milliseconds. */
const CURED_QPS = 300;
const CURED_BURST = 325;

/** A burst a little over a second of the rate, as in both field reports (325 for 300, 120 for 100). */
const BURST_PER_QPS = CURED_BURST / CURED_QPS;

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
 * The flag that gives a queue enough workers for what comes in.
 * @param neededWorkers how many would be busy
 */
export function workerCure(queue: QueueName, neededWorkers: number, { flags }: Facts): readonly string[] {
  const present = flags.workers[queue];
  if (present >= MOST_WORKERS) return [];
  const workers = Math.min(MOST_WORKERS, Math.max(2 * present, Math.ceil(neededWorkers)));
  return [`${WORKER_FLAGS[queue]}=${workers}`];
}
