import { count, percent, rate, span, thousands } from './amounts.ts';
import type { QueueActivity } from './controller-activity.ts';
import { BATCH_FLAGS, QUEUES, WRITTEN_BY } from './controller-flags.ts';
import { limiterCure } from './cures.ts';
import { queueEvidence, written } from './evidence.ts';
import type { Facts } from './facts.ts';
import { type Finding, finding } from './findings.ts';
import { SETTLED_SECONDS, STORM_SERVICES, STORM_SHARE } from './thresholds.ts';

/** Rules about how much there is to do, and who does it. */

export function writeStorm(facts: Facts, found: readonly Finding[]): Finding | undefined {
  const stormy = (facts.controller?.queues ?? []).filter((queue) => isStormy(queue, facts));
  if (stormy.length === 0) return undefined;
  const names = stormy.map(({ name }) => name);
  return finding(
    'WriteStorm',
    `A storm: ${stormInWords(stormy, facts)} Every pod that is deleted meanwhile stands behind them.`,
    stormy.flatMap((queue) => queueEvidence(queue, facts).slice(0, 1)),
    [
      // What holds the queue up was found before this, and its cure with it.
      ...(found.length > 0 ? [] : limiterCure(facts, names)),
      'Find what changes so many pods at once: a node that fails, a mass rollout, a readiness probe that depends on one thing, a restart of the controller-manager.',
      'Rare storms are not worth a longer wait for every pod: faster controllers are the cure.',
    ],
  );
}

function isStormy(queue: QueueActivity, { controller, cluster, flags }: Facts): boolean {
  if (deepestOf(queue) >= Math.max(STORM_SERVICES, STORM_SHARE * (cluster?.services ?? 0))) return true;
  const { name, adds } = queue;
  // Whatever is written to Endpoints comes by in the mirroring queue, and is mostly none of its business.
  if (controller?.seconds === undefined || name === 'endpoint_slice_mirroring') return false;
  return adds >= STORM_SERVICES && adds / controller.seconds > flags.qps;
}

function stormInWords(stormy: readonly QueueActivity[], { controller, cluster, flags }: Facts): string {
  const deepest = Math.max(...stormy.map(deepestOf));
  const limit = `${count(flags.qps, 'write')} a second${flags.known ? '' : ' (if the default)'}`;
  if (deepest < STORM_SERVICES) {
    const arriving = Math.max(...stormy.map(({ adds }) => adds)) / (controller?.seconds ?? 1);
    return `${rate(arriving)} Services come in to be written as ${written(stormy)}, and the limit is ${limit}.`;
  }
  const services = cluster?.services === undefined ? '' : ` of ${thousands(cluster.services)}`;
  return `up to ${thousands(deepest)}${services} Services wait at once to be written as ${written(stormy)}. At ${limit} that many take ${span(deepest / flags.qps)}.`;
}

function deepestOf({ depth, depthBefore = 0 }: QueueActivity): number {
  return Math.max(depth, depthBefore);
}

export function batchPeriod({ flags }: Facts): Finding | undefined {
  const delayed = QUEUES.filter((queue) => flags.batchSeconds[queue] > 0);
  if (delayed.length === 0) return undefined;
  const delays = delayed.map((queue) => `${WRITTEN_BY[queue]} by ${span(flags.batchSeconds[queue])}`);
  return finding(
    'BatchPeriod',
    `The controller-manager is told to delay ${delays.join(' and ')}, to join changes. Every withdrawal takes that much longer, in calm times too.`,
    delayed.map((queue) => `${BATCH_FLAGS[queue]}=${flags.batchSeconds[queue]}s`),
    [
      ...delayed.map((queue) => `${BATCH_FLAGS[queue]}=0s`),
      'Where it is there to spare the API server, raise the client’s limits instead, or count the delay into the wait.',
    ],
  );
}

export function leaderChanged({ controller, leader }: Facts): Finding | undefined {
  const evidence = [
    ...(controller?.restarted
      ? ['its counters began anew, or process_start_time_seconds changed, between the scrapes']
      : []),
    ...(controller?.ageSeconds !== undefined &&
    controller.leading !== false &&
    controller.ageSeconds < SETTLED_SECONDS
      ? [`process_start_time_seconds: started ${span(controller.ageSeconds)} ago`]
      : []),
    ...(leader !== undefined && leader.ageSeconds < SETTLED_SECONDS
      ? [
          `Lease kube-system/kube-controller-manager: ${leader.holder} took over ${span(leader.ageSeconds)} ago, transition ${leader.transitions}`,
        ]
      : []),
  ];
  if (evidence.length === 0) return undefined;
  return finding(
    'LeaderChanged',
    'The controller-manager has just started or taken over. It lists everything first and then syncs every Service once: withdrawals wait behind that, and what was measured meanwhile says little about calm times.',
    evidence,
    [
      'Look again in a quarter of an hour. If it happens often, find out why it restarts: lost leases are a sign of a slow API server or etcd.',
    ],
  );
}

export function notLeading({ controller }: Facts): Finding | undefined {
  if (controller?.leading !== false) return undefined;
  return finding(
    'NotLeading',
    'These are the metrics of an instance of the controller-manager that stands by for the leader. It runs no controllers, whatever happens.',
    ['leader_election_master_status{name="kube-controller-manager"} 0'],
    [
      'kubectl --namespace kube-system get lease kube-controller-manager --output jsonpath={.spec.holderIdentity} names the leader: give its metrics.',
    ],
  );
}

export function neverWithdrawn({ cluster }: Facts): Finding | undefined {
  const never = cluster?.neverWithdrawn;
  if (never === undefined || never.services === 0) return undefined;
  const share = cluster?.services ? ` (${percent(never.services / cluster.services)})` : '';
  const more = never.services > never.examples.length ? ', …' : '';
  return finding(
    'NeverWithdrawn',
    `${count(never.services, 'Service')}${share} with publishNotReadyAddresses: a terminating pod stays ready in their endpoints until it is gone. No controller setting changes that, and no wait is long enough.`,
    [`spec.publishNotReadyAddresses: ${never.examples.join(', ')}${more}`],
    [
      'That is right for peers that find each other (a StatefulSet’s headless Service). Clients should use a second Service without it.',
    ],
  );
}
