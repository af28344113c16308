import { count, rate, span, thousands } from './amounts.ts';
import { meanOf, type QueueActivity } from './controller-activity.ts';
import { WORKER_FLAGS, WRITTEN_BY } from './controller-flags.ts';
import type { Facts } from './facts.ts';

/** `Endpoints and EndpointSlices` */
export function written(queues: readonly QueueActivity[]): string {
  const kinds = queues.map(({ name }) => WRITTEN_BY[name]);
  return kinds.length < 2 ? kinds.join('') : `${kinds.slice(0, -1).join(', ')} and ${kinds.at(-1)}`;
}

export function queueEvidence(queue: QueueActivity, { controller, flags }: Facts): readonly string[] {
  const { name, depth, depthBefore, meanWaitSeconds, meanWorkSeconds, busyWorkers, longestSeconds } = queue;
  const label = `{name="${name}"}`;
  const seconds = controller?.seconds;
  const lines = [
    seconds === undefined || depthBefore === undefined
      ? `workqueue_depth${label} ${thousands(depth)}`
      : `workqueue_depth${label} ${thousands(depthBefore)} → ${thousands(depth)} in ${span(seconds)}; ${rate(queue.adds / seconds)} added, ${rate(queue.done / seconds)} done`,
  ];
  const over = seconds === undefined ? ' since its start' : '';
  if (meanWaitSeconds !== undefined) {
    lines.push(`workqueue_queue_duration_seconds${label} mean ${span(meanWaitSeconds)}${over}`);
  }
  if (meanWorkSeconds !== undefined) {
    const busy =
      busyWorkers === undefined
        ? ''
        : `: ${busyWorkers.toFixed(1)} of ${flags.workers[name]} workers busy (${WORKER_FLAGS[name]}${flags.known ? '' : ', default'})`;
    lines.push(`workqueue_work_duration_seconds${label} mean ${span(meanWorkSeconds)}${over}${busy}`);
  }
  if (longestSeconds >= 1) {
    lines.push(`workqueue_longest_running_processor_seconds${label} ${span(longestSeconds)}`);
  }
  return lines;
}

export function limiterEvidence({ controller }: Facts): readonly string[] {
  const { limiter, server, seconds } = controller ?? {};
  const over = seconds === undefined ? ' since its start' : ` in ${span(seconds)}`;
  const waits = meanOf(limiter);
  const answers = meanOf(server);
  return [
    ...(waits === undefined
      ? []
      : [
          `rest_client_rate_limiter_duration_seconds mean ${span(waits)} over ${count(limiter?.count ?? 0, 'write')}${over}`,
        ]),
    ...(answers === undefined
      ? []
      : [`rest_client_request_duration_seconds without that: mean ${span(answers)}${over}`]),
  ];
}
