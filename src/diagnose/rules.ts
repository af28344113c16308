import { amount, type Curable, count, percent, rate, span } from '../core/api/index.ts';
import { LAG_METRICS } from '../measurement/index.ts';
import {
  CONTROLLERS,
  MOST_WORKERS,
  meanOf,
  QUEUES,
  type QueueActivity,
  UNLIMITED,
} from './controller-metrics.ts';
import { CONTROLLER_METRICS, type Facts, type StageFacts } from './facts.ts';

/** Critical: endpoints are being withdrawn late now, because of this. Warning: it makes them late. Info: worth knowing. */
export const SEVERITIES = ['critical', 'warning', 'info'] as const;
type Severity = (typeof SEVERITIES)[number];

/** The result of a rule for a cluster. */
interface Found {
  /** One or two full sentences about this cluster. */
  readonly text: string;
  /** The evidence: metrics and their values. */
  readonly evidence: readonly string[];
  /** What to do. A line that begins with `--` is a flag of kube-controller-manager, exactly as it is to be set. */
  readonly cure: readonly string[];
}

/** A rule, which gets the facts and what the rules before it have found. */
type Rule = (facts: Facts, found: readonly Diagnosed[]) => Found | undefined;
interface DiagnosisKind extends Curable {
  readonly severity: Severity;
  readonly rule: Rule;
}

/** Everything that a diagnosis can find, in the order of the report: the worst first. */
export const DIAGNOSES = {
  ClientThrottled: {
    severity: 'critical',
    rule: clientThrottled,
    means:
      "Writes wait for the client's own rate limiter: 100 ms or more, and longer than for the API server. Without its metrics: the queue drains at exactly the limit.",
    cure: '`--kube-api-qps` and `--kube-api-burst`: 300 and 325, or twice the current values. More workers share the same limit.',
  },
  StuckWorker: {
    severity: 'critical',
    rule: stuckWorker,
    means: 'A worker has been busy with one Service for over a minute.',
    cure: "Check the controller-manager's log; a restart frees the worker.",
  },
  TooFewWorkers: {
    severity: 'critical',
    rule: tooFewWorkers,
    means: 'Services wait, but not for the limiter, so all workers are busy.',
    cure: '`--concurrent-service-endpoint-syncs` (slices), `--concurrent-endpoint-syncs` (Endpoints) or the mirroring one: at least twice as many, at most 50.',
  },
  QueueBacklog: {
    severity: 'critical',
    rule: queueBacklog,
    means: 'Services wait, and the cause is unknown: one scrape only, or nothing left the queue.',
    cure: 'Give two scrapes; check that the controller runs.',
  },
  WriteStorm: {
    severity: 'warning',
    rule: writeStorm,
    means: 'A fifth of all Services (at least 100) wait at once, or more arrive than may be written.',
    cure: 'Find what changes so many pods at once. The flags are those of `ClientThrottled`.',
  },
  ApiServerSlow: {
    severity: 'warning',
    rule: apiServerSlow,
    means: 'Writes take 250 ms on average, or 1 % of them over a second, without the limiter.',
    cure: 'Check the API server, etcd, and webhooks on endpoints.',
  },
  ApiServerRejects: {
    severity: 'warning',
    rule: apiServerRejects,
    means: '429, 5xx or no answer, or a queue in the priority level `workload-high`.',
    cure: '`dump_priority_levels` and `dump_requests` show what fills it.',
  },
  SyncErrors: {
    severity: 'warning',
    rule: syncErrors,
    means: "Syncs of slices fail, or find the controller's cache behind.",
    cure: "The controller-manager's log and its events name the Services.",
  },
  BatchPeriod: {
    severity: 'warning',
    rule: batchPeriod,
    means: 'A flag (`--endpointslice-updates-batch-period` and its kin) delays every withdrawal on purpose.',
    cure: 'Set it to 0, or allow for it in the wait.',
  },
  SlowWithdrawals: {
    severity: 'warning',
    rule: slowWithdrawals,
    means: 'Measured during the run: a p99 of a second or more, or a removal pending that long.',
    cure: 'The other findings say why.',
  },
  LeaderChanged: {
    severity: 'warning',
    rule: leaderChanged,
    means: 'It started or took over in the last 15 minutes: every Service is synced once after that.',
    cure: 'Run it again later.',
  },
  NotLeading: {
    severity: 'warning',
    rule: notLeading,
    means: 'The metrics are from a standby instance.',
    cure: "Give the leader's.",
  },
  LagUnexplained: {
    severity: 'warning',
    rule: lagUnexplained,
    means: 'Withdrawals are late, and queues, limiter and workers are not the reason.',
    cure: "Check the pod stage, the controller-manager's watches, and the API server that was watched.",
  },
  ThrottledBefore: {
    severity: 'info',
    rule: throttledBefore,
    means: 'Not now, but 1 % of all writes since its start waited for over a second for the limiter.',
    cure: 'As `ClientThrottled`: the next storm will be throttled again.',
  },
  BacklogBefore: {
    severity: 'info',
    rule: backlogBefore,
    means: 'Not now, but 1 % of all Services since its start waited for over a second in the queue.',
    cure: 'Run it while it happens.',
  },
  SlowBefore: {
    severity: 'info',
    rule: slowBefore,
    means: 'A running Linger has measured late withdrawals since its start.',
    cure: 'Run it while it happens.',
  },
  NeverWithdrawn: {
    severity: 'info',
    rule: neverWithdrawn,
    means: 'Services with `publishNotReadyAddresses` list a terminating pod until it is gone.',
    cure: 'Correct for peers of a StatefulSet; clients need another Service.',
  },
  EndpointsUnread: {
    severity: 'info',
    rule: endpointsUnread,
    means:
      'No Role grants Endpoints by name to anything but the control plane and Linger (general rights such as `view` are not counted).',
    cure: '[`--controllers=*,-endpoints-controller`](operations.md#without-endpoints): half the writes of a storm.',
  },
  ControllerNotSeen: {
    severity: 'info',
    rule: controllerNotSeen,
    means: "The controller-manager's metrics could not be read.",
    cure: 'Use one of the [sources](#the-controller-managers-metrics).',
  },
  MetricsMissing: {
    severity: 'info',
    rule: metricsMissing,
    means: 'Some metrics are missing in the scrape, so what they show is unknown.',
    cure: 'Give the whole, unfiltered scrape.',
  },
  NothingWrong: {
    severity: 'info',
    rule: nothingWrong,
    means: 'No critical finding or warning; it lists what was checked.',
    cure: 'Run it while it happens.',
  },
} as const satisfies Readonly<Record<string, DiagnosisKind>>;

export type DiagnosisCode = keyof typeof DIAGNOSES;

export interface Diagnosed extends Found {
  readonly code: DiagnosisCode;
  readonly severity: Severity;
}

const ENTRIES = Object.entries(DIAGNOSES) as readonly (readonly [DiagnosisCode, DiagnosisKind])[];

/**
 * Why endpoints are withdrawn late in this cluster, and what to do about it. Each code at most once, in the order of
 * the catalogue. Never empty.
 */
export function diagnose(facts: Facts): readonly Diagnosed[] {
  const found: Diagnosed[] = [];
  for (const [code, { severity, rule }] of ENTRIES) {
    const said = rule(facts, found);
    if (said !== undefined) found.push({ code, severity, ...said });
  }
  return found;
}

function finding(text: string, evidence: readonly string[], ...cure: readonly string[]): Found {
  return { text, evidence, cure };
}

// Thresholds of findings. Each is a limit of Kubernetes itself, or the smallest difference that waits in whole seconds can
// show.

/** Waits have whole seconds, so a lag below one makes no difference. */
const SLOW_SECONDS = 1;

/** A backlog that drains within this time is over before any monitoring notices it. */
const SHORT_DRAIN_SECONDS = 1;

/** The depth of a queue at both ends of the interval; twice the default number of workers. */
const LASTING_BACKLOG = 10;

/** With only one scrape there is no rate. At the default of 20 writes a second, 50 Services take 2.5 s. */
const BACKLOG_WITHOUT_RATE = 50;

/** client-go considers a wait for the limiter long from 50 ms on (longThrottleLatency); twice that is not jitter. */
const THROTTLED_SECONDS = 0.1;

/** Kubernetes' own objective for writes is a p99 within 1 s (SIG Scalability, API call latency). */
const SLOW_SHARE = 0.01;

/** With a mean this long, 5 workers write no more than the default of 20 a second. */
const SLOW_MEAN_SECONDS = 0.25;

/** With fewer requests, a single slow one would be more than a hundredth. */
const FEWEST_REQUESTS = 20;

/** The API server's --request-timeout; no healthy request takes longer. */
const STUCK_SECONDS = 60;

/** A fifth of all Services, but at least a hundred, which take 5 s at the default of 20 writes a second. */
const STORM_SHARE = 0.2;
const STORM_SERVICES = 100;

/** After a takeover, every Service is synced once: 13,000 of them (S1) take 11 minutes at the default of 20 a second. */
const SETTLED_SECONDS = 15 * 60;

/**
 * What slows a queue down. `limiter`: the client waits for its own rate limiter or, if that has no metrics, works at exactly
 * the rate of its limit; `workers`: a queue is served as soon as a worker is free, so if Services wait, and not for the
 * limiter, all workers were busy; `stuck`: one of them does not return; `unknown`: nothing came out of the queue, or there
 * is only one scrape.
 */
type Bottleneck = 'limiter' | 'stuck' | 'workers' | 'unknown';

/** @returns undefined if nothing slows it down */
function bottleneckOf(queue: QueueActivity, facts: Facts): Bottleneck | undefined {
  if (queue.longestSeconds >= STUCK_SECONDS && !limiterHolds(facts)) return 'stuck';
  if (!isBehind(queue, facts)) return undefined;
  if (limiterHolds(facts) || goesAtTheLimit(queue, facts)) return 'limiter';
  return facts.controller?.seconds !== undefined && queue.done > 0 ? 'workers' : 'unknown';
}

/** The queues that are slowed down in this way; with undefined, those that are not. */
function heldUpBy(facts: Facts, way: Bottleneck | undefined): readonly QueueActivity[] {
  return (facts.controller?.queues ?? []).filter((queue) => bottleneckOf(queue, facts) === way);
}

/** How long the last Service in the queue will wait; undefined without a rate. */
function drainSeconds(queue: QueueActivity, facts: Facts): number | undefined {
  const seconds = facts.controller?.seconds;
  if (seconds === undefined) return undefined;
  return queue.depth === 0 ? 0 : (queue.depth * seconds) / queue.done;
}

/**
 * Whether Services currently wait long in the queue. Without a rate, only the depth shows that, because means since the
 * start of the process describe the past. With a rate, a queue that was filled just before the end of the interval does not
 * count as behind, because what it did in the calm before does not show what it can do.
 */
function isBehind(queue: QueueActivity, facts: Facts): boolean {
  const drain = drainSeconds(queue, facts);
  if (drain === undefined) return queue.depth >= BACKLOG_WITHOUT_RATE;
  if ((queue.meanWaitSeconds ?? 0) >= SLOW_SECONDS) return true;
  const lasting = Math.min(queue.depthBefore ?? 0, queue.depth) >= LASTING_BACKLOG;
  return lasting && drain >= SHORT_DRAIN_SECONDS;
}

/** Whether writes wait for the limiter, and longer than for the API server. */
function limiterHolds({ controller }: Facts): boolean {
  const waits = meanOf(controller?.limiter) ?? 0;
  return waits >= THROTTLED_SECONDS && waits >= (meanOf(controller?.server) ?? 0);
}

/**
 * The only evidence if the limiter has no metrics: each sync of a changed Service is a write, so the rate of syncs shows the
 * rate of writes.
 */
function goesAtTheLimit(queue: QueueActivity, { controller, flags }: Facts): boolean {
  if (controller?.seconds === undefined || controller.limiter !== undefined) return false;
  const rate = queue.done / controller.seconds;
  return rate >= 0.8 * flags.qps && rate <= 1.2 * flags.qps;
}

/** The value that solved S0, where 30 s to 2 min became milliseconds. */
const CURED_QPS = 300;
const CURED_BURST = 325;

/** A burst of a little more than one second of the rate, as in both field reports (325 for 300, 120 for 100). */
const BURST_PER_QPS = CURED_BURST / CURED_QPS;

/** Half of the delay that is worth a finding. */
const WAIT_WANTED_SECONDS = SLOW_SECONDS / 2;

/** The flags that raise the client's limit: those of S0, or twice the current value if that is not lower already. */
function limiterCure({ flags, controller }: Facts, queues: readonly QueueActivity[]): readonly string[] {
  if (flags.qps === UNLIMITED) return [];
  const qps = flags.qps < CURED_QPS ? CURED_QPS : 2 * flags.qps;
  const burst = Math.ceil(qps * BURST_PER_QPS);
  const server = meanOf(controller?.server) ?? 0;
  // Little's law: to sustain `qps` writes of this length, this many workers must be writing at a time.
  const workers = Math.min(MOST_WORKERS, Math.ceil(qps * server));
  const more = queues.filter(({ name }) => workers > flags.workers[name]);
  const workerFlags = more.map(({ name }) => `${CONTROLLERS[name].workers}=${workers}`);
  return [`--kube-api-qps=${qps}`, `--kube-api-burst=${burst}`, ...workerFlags];
}

/**
 * The flag that gives a queue enough workers for its load, and those of the client's limit if that would be reached next. In
 * a burst, the mean wait is inversely proportional to the number of workers. In a steady flow, the number of busy workers is
 * the number of Services per second times the seconds that each takes.
 */
function workerCure(queue: QueueActivity, facts: Facts): readonly string[] {
  const { flags, controller } = facts;
  const { name, adds, meanWorkSeconds = 0, meanWaitSeconds = 0 } = queue;
  const present = flags.workers[name];
  if (present >= MOST_WORKERS) return [];
  const forBurst = (present * meanWaitSeconds) / WAIT_WANTED_SECONDS;
  const forFlow = (adds / (controller?.seconds ?? Number.POSITIVE_INFINITY)) * meanWorkSeconds;
  const workers = Math.min(MOST_WORKERS, Math.ceil(Math.max(2 * present, forBurst, forFlow)));
  const limits = workers / meanWorkSeconds > flags.qps ? limiterCure(facts, []) : [];
  return [`${CONTROLLERS[name].workers}=${workers}`, ...limits];
}

/** `Endpoints and EndpointSlices` */
function written(queues: readonly QueueActivity[]): string {
  return LIST.format(queues.map(({ name }) => CONTROLLERS[name].writes));
}

/** British lists have no comma before the last item. */
const LIST = new Intl.ListFormat('en-GB');

function lines(...all: readonly (string | false | undefined)[]): readonly string[] {
  return all.filter((line) => line !== undefined && line !== false);
}

function queueEvidence(queue: QueueActivity, { controller, flags }: Facts): readonly string[] {
  const { name, depth, depthBefore, meanWaitSeconds, meanWorkSeconds, busyWorkers, longestSeconds } = queue;
  const label = `{name="${name}"}`;
  const seconds = controller?.seconds;
  const over = seconds === undefined ? ' since its start' : '';
  const workers = `${flags.workers[name]} workers busy (${CONTROLLERS[name].workers}${flags.known ? '' : ', default'})`;
  const busy = busyWorkers === undefined ? '' : `: ${busyWorkers.toFixed(1)} of ${workers}`;
  return lines(
    seconds === undefined || depthBefore === undefined
      ? `workqueue_depth${label} ${amount(depth)}`
      : `workqueue_depth${label} ${amount(depthBefore)} → ${amount(depth)} in ${span(seconds)}; ${rate(queue.adds / seconds)} added, ${rate(queue.done / seconds)} done`,
    meanWaitSeconds !== undefined &&
      `workqueue_queue_duration_seconds${label} mean ${span(meanWaitSeconds)}${over}`,
    meanWorkSeconds !== undefined &&
      `workqueue_work_duration_seconds${label} mean ${span(meanWorkSeconds)}${over}${busy}`,
    longestSeconds >= 1 && `workqueue_longest_running_processor_seconds${label} ${span(longestSeconds)}`,
  );
}

function limiterEvidence({ controller }: Facts): readonly string[] {
  const { limiter, server, seconds } = controller ?? {};
  const over = seconds === undefined ? ' since its start' : ` in ${span(seconds)}`;
  const waits = meanOf(limiter);
  const answers = meanOf(server);
  return lines(
    waits !== undefined &&
      `rest_client_rate_limiter_duration_seconds mean ${span(waits)} over ${count(limiter?.count ?? 0, 'write')}${over}`,
    answers !== undefined &&
      `rest_client_request_duration_seconds without that: mean ${span(answers)}${over}`,
  );
}

// Rules about how much work there is, and who does it.

function writeStorm(facts: Facts, found: readonly Diagnosed[]): Found | undefined {
  const stormy = (facts.controller?.queues ?? []).filter((queue) => isStormy(queue, facts));
  if (stormy.length === 0) return undefined;
  return finding(
    `A write storm: ${stormInWords(stormy, facts)} Every pod deleted meanwhile waits behind them.`,
    stormy.flatMap((queue) => queueEvidence(queue, facts).slice(0, 1)),
    // If something slows the queue down, an earlier rule has found that, together with its cure.
    ...(found.length > 0 ? [] : limiterCure(facts, stormy)),
    'Find what changes so many pods at once: a failed node, a mass rollout, a readiness probe with a shared dependency, a restart of the controller-manager.',
    'Do not lengthen every wait for a rare storm: make the controllers faster.',
  );
}

function isStormy(queue: QueueActivity, { controller, cluster, flags }: Facts): boolean {
  if (deepestOf(queue) >= Math.max(STORM_SERVICES, STORM_SHARE * (cluster?.services ?? 0))) return true;
  const { name, adds } = queue;
  // Everything that is written to Endpoints passes through the mirroring queue, and mostly does not concern it.
  if (controller?.seconds === undefined || name === 'endpoint_slice_mirroring') return false;
  return adds >= STORM_SERVICES && adds / controller.seconds > flags.qps;
}

function stormInWords(stormy: readonly QueueActivity[], { controller, cluster, flags }: Facts): string {
  const deepest = Math.max(...stormy.map(deepestOf));
  const limit = `${count(flags.qps, 'write')} a second${flags.known ? '' : ' (if the default)'}`;
  if (deepest < STORM_SERVICES) {
    const arriving = Math.max(...stormy.map(({ adds }) => adds)) / (controller?.seconds ?? 1);
    return `${rate(arriving)} Services are queued for ${written(stormy)}, above the limit of ${limit}.`;
  }
  const services = cluster?.services === undefined ? '' : ` of ${amount(cluster.services)}`;
  const drained = flags.qps === UNLIMITED ? '' : ` At ${limit} they take ${span(deepest / flags.qps)}.`;
  return `up to ${amount(deepest)}${services} Services are queued at once for ${written(stormy)}.${drained}`;
}

function deepestOf({ depth, depthBefore = 0 }: QueueActivity): number {
  return Math.max(depth, depthBefore);
}

function batchPeriod({ flags }: Facts): Found | undefined {
  const delayed = QUEUES.filter((queue) => flags.batchSeconds[queue] > 0);
  if (delayed.length === 0) return undefined;
  const delays = delayed.map((queue) => `${CONTROLLERS[queue].writes} by ${span(flags.batchSeconds[queue])}`);
  return finding(
    `The controller-manager delays ${delays.join(' and ')} to batch changes. Every withdrawal takes that much longer, even in a calm cluster.`,
    delayed.map((queue) => `${CONTROLLERS[queue].batch}=${flags.batchSeconds[queue]}s`),
    ...delayed.map((queue) => `${CONTROLLERS[queue].batch}=0s`),
    'If this is meant to spare the API server, raise the client’s rate limits instead, or add the delay to the wait.',
  );
}

function leaderChanged({ controller, leader }: Facts): Found | undefined {
  const { restarted, ageSeconds = SETTLED_SECONDS, leading } = controller ?? {};
  const evidence = lines(
    restarted && 'counters were reset, or process_start_time_seconds changed, between the scrapes',
    leading !== false &&
      ageSeconds < SETTLED_SECONDS &&
      `process_start_time_seconds: started ${span(ageSeconds)} ago`,
    leader !== undefined &&
      leader.ageSeconds < SETTLED_SECONDS &&
      `Lease kube-system/kube-controller-manager: ${leader.holder} took over ${span(leader.ageSeconds)} ago, transition ${leader.transitions}`,
  );
  if (evidence.length === 0) return undefined;
  return finding(
    'The controller-manager has just started or taken over. It lists everything and then syncs every Service once. Withdrawals wait behind that, and lags measured meanwhile are not typical.',
    evidence,
    'Run this again in 15 minutes. If it happens often, find out why it restarts: lost leases point to a slow API server or etcd.',
  );
}

function notLeading({ controller }: Facts): Found | undefined {
  if (controller?.leading !== false) return undefined;
  return finding(
    'These are the metrics of a controller-manager on standby. It runs no controllers, so they say nothing about the endpoints.',
    ['leader_election_master_status{name="kube-controller-manager"} 0'],
    'kubectl --namespace kube-system get lease kube-controller-manager --output jsonpath={.spec.holderIdentity} names the leader: use its metrics.',
  );
}

function neverWithdrawn({ cluster }: Facts): Found | undefined {
  const never = cluster?.neverWithdrawn;
  if (never === undefined || never.services === 0) return undefined;
  const share = cluster?.services ? ` (${percent(never.services / cluster.services)})` : '';
  const more = never.services > never.examples.length ? ', …' : '';
  return finding(
    `${count(never.services, 'Service')}${share} with publishNotReadyAddresses: a terminating pod stays ready in their endpoints until it is gone. No controller setting changes that, and no wait is long enough.`,
    [`spec.publishNotReadyAddresses: ${never.examples.join(', ')}${more}`],
    'That is right for peers that find each other (a StatefulSet’s headless Service). Clients should use a second Service without it.',
  );
}

/** KEP-4974: a cluster without this controller conforms from 1.37 on. */
function endpointsUnread({ controller, cluster }: Facts): Found | undefined {
  const writes = controller?.queues.some(({ name }) => name === 'endpoint') === true;
  if (!writes || cluster?.endpointsReaders?.length !== 0) return undefined;
  return finding(
    'The controller-manager writes Endpoints beside EndpointSlices, and no account but those of the control plane and of Linger is granted them by name: they are half of the writes of a storm.',
    [
      'no Role or ClusterRole with a binding names endpoints, apart from cluster-admin, admin, edit, view and system:*',
    ],
    '--controllers=*,-endpoints-controller',
    'First ask the owners of accounts with general rights (cluster-admin, view). It conforms from Kubernetes 1.37 on. The objects stay as they are: delete them afterwards, or clients that still read them use old addresses.',
  );
}

// Rules about what was measured, and about what was not seen.

function slowWithdrawals(facts: Facts): Found | undefined {
  const slow = slowStages(facts);
  if (slow.length === 0) return undefined;
  return finding(
    `Endpoints are withdrawn late: ${slow.map(summaryOf).join('; ')}.`,
    slow.map((stage) => `${facts.lag?.from}: ${evidenceOf(stage)}`),
  );
}

function slowBefore(facts: Facts): Found | undefined {
  if (slowStages(facts).length > 0) return undefined;
  const slow = (facts.lag?.life ?? []).filter(({ p99 = 0 }) => p99 >= SLOW_SECONDS);
  if (slow.length === 0) return undefined;
  const said = slow.map(
    ({ stage, samples, p50 = 0, p99 = 0 }) =>
      `${facts.lag?.from}: ${stage}: p99 ${span(p99)}, p50 ${span(p50)} of ${count(samples, 'removal')}`,
  );
  return finding(
    'Endpoints are not withdrawn late now, but they were since this Linger started. Measured waits reflect that.',
    said,
    `Run this again while ${LAG_METRICS.oldest} is high.`,
  );
}

/** @param causes other findings that would explain it */
function lagUnexplained(facts: Facts, causes: readonly Diagnosed[]): Found | undefined {
  const slow = slowStages(facts);
  const explained = causes.some(({ code, severity }) => severity !== 'info' && code !== 'SlowWithdrawals');
  // Without metrics, nothing can be said about the controllers, which ControllerNotSeen reports.
  if (slow.length === 0 || explained || facts.controller?.seconds === undefined) return undefined;
  const batch =
    'Check the flags --endpoint-updates-batch-period and --endpointslice-updates-batch-period, which delay on purpose.';
  return finding(
    'Endpoints are withdrawn late, but the queues of the controllers are short, their client is not throttled and their workers are not busy. The delay is before the queues or after the write.',
    slow.map(evidenceOf),
    ...(facts.flags.known ? [] : [batch]),
    'Before the queues: the controller-manager’s own watch (its log, "watch of *v1.Pod closed"; its CPU), and its pod stage, which matches each pod against all Services of its namespace and has no metric.',
    'After the write: the watch that measured. Its API server may be behind (apiserver_watch_cache_read_wait_seconds, CPU).',
    'Run this again while it happens.',
  );
}

function controllerNotSeen(facts: Facts): Found | undefined {
  if (facts.controller !== undefined) return undefined;
  const failed = facts.looks.filter(({ what, seen }) => what === CONTROLLER_METRICS && !seen);
  return finding(
    'The controller-manager’s metrics cannot be read, so throttling, long queues and busy workers cannot be distinguished.',
    failed.map(({ text }) => text),
    ...new Set(failed.flatMap(({ remedy }) => (remedy === undefined ? [] : [remedy]))),
  );
}

function metricsMissing({ controller }: Facts): Found | undefined {
  const missing = controller?.missing ?? [];
  if (missing.length === 0) return undefined;
  return finding(
    `Not seen: ${missing.map(({ shows }) => shows).join('; ')}. The scrape lacks these metrics, so it is unknown.`,
    missing.map(({ shows, metrics }) => `${shows}: no ${metrics.join(', ')}`),
    'Provide the complete scrape, not filtered by grep or by the drop rules of a Prometheus or a provider (metric_relabel_configs).',
  );
}

/** @param found everything that the other rules have found */
function nothingWrong(facts: Facts, found: readonly Diagnosed[]): Found | undefined {
  const lags = (facts.lag?.stages ?? []).filter(({ samples }) => samples > 0).map(summaryOf);
  if (found.some(({ severity }) => severity !== 'info')) return undefined;
  if (lags.length === 0 && (facts.controller === undefined || facts.controller.missing.length > 0))
    return undefined;
  const isCounted = facts.lag !== undefined && !facts.lag.uncounted;
  const none = isCounted ? 'No pod was removed meanwhile.' : 'Removals were not observed.';
  const said = lags.length > 0 ? ` Measured: ${lags.join('; ')}.` : ` ${none}`;
  return finding(
    `Nothing was found that delays withdrawals.${said}`,
    facts.looks.filter(({ seen }) => seen).map(({ what, text }) => `${what}: ${text}`),
    'If endpoints are withdrawn late only at times, run this again then.',
  );
}

/** How late removals are now: those that ended during the observation, or those that are still waiting. */
function slowStages({ lag }: Facts): readonly StageFacts[] {
  return (lag?.stages ?? []).filter(
    ({ p99 = 0, oldestSeconds = 0 }) => p99 >= SLOW_SECONDS || oldestSeconds >= SLOW_SECONDS,
  );
}

function summaryOf({ stage, samples, p99, waiting, oldestSeconds }: StageFacts): string {
  const ended =
    p99 === undefined ? 'no removal has ended' : `p99 ${span(p99)} of ${count(samples, 'removal')}`;
  const open = waiting === 0 ? '' : `, ${waiting} still waiting`;
  const oldest = oldestSeconds === undefined ? '' : `, the oldest for ${span(oldestSeconds)}`;
  return `${stage}: ${ended}${open}${oldest}`;
}

function evidenceOf(facts: StageFacts): string {
  const { p50 } = facts;
  return p50 === undefined ? summaryOf(facts) : `${summaryOf(facts)}, p50 ${span(p50)}`;
}

// Rules about the queues of the endpoint controllers, and what slows them down.

function clientThrottled(facts: Facts): Found | undefined {
  const held = heldUpBy(facts, 'limiter');
  if (held.length === 0) return undefined;
  const { controller, flags } = facts;
  const limit = `${amount(flags.qps)} requests a second${flags.known ? '' : ' if the default'}`;
  const waits = meanOf(controller?.limiter);
  const how =
    waits === undefined
      ? `the queue drains at exactly the controller-manager’s rate limit (${limit}); the metric of the wait itself is missing`
      : `each write waits ${span(waits)} for the controller-manager’s own rate limit (${limit}) and ${span(meanOf(controller?.server) ?? 0)} for the API server`;
  return finding(
    `${written(held)} are withdrawn late because ${how}. ${waitOfNext(held, facts)}More workers alone do not help: they share the limit.`,
    [...limiterEvidence(facts), ...held.flatMap((queue) => queueEvidence(queue, facts))],
    ...limiterCure(facts, held),
    'The limit applies to each controller’s client separately. After raising it, watch the API server’s latency.',
  );
}

function tooFewWorkers(facts: Facts): Found | undefined {
  const held = heldUpBy(facts, 'workers');
  if (held.length === 0) return undefined;
  const { flags } = facts;
  const busy = held.map(({ name, meanWorkSeconds = 0 }) => {
    const workers = `${count(flags.workers[name], 'worker')}${flags.known ? '' : ' (if the default)'}`;
    return `${workers} for ${CONTROLLERS[name].writes} at ${span(meanWorkSeconds)} per Service`;
  });
  return finding(
    `${written(held)} are withdrawn late because all workers are busy: ${busy.join(', ')}. The rate limit is not the cause. ${waitOfNext(held, facts)}`.trimEnd(),
    [...held.flatMap((queue) => queueEvidence(queue, facts)), ...limiterEvidence(facts)],
    ...new Set(held.flatMap((queue) => workerCure(queue, facts))),
  );
}

function stuckWorker(facts: Facts): Found | undefined {
  const held = heldUpBy(facts, 'stuck');
  if (held.length === 0) return undefined;
  const longest = Math.max(...held.map(({ longestSeconds }) => longestSeconds));
  return finding(
    `A worker for ${written(held)} has been busy with one Service for ${span(longest)}, although the API server times out after 60 s by default. That Service’s endpoints do not change until the worker returns.`,
    held.flatMap((queue) => queueEvidence(queue, facts)),
    'Check the controller-manager’s log for that time, and whether its connection to the API server is alive (a load balancer that drops idle connections?).',
    'Restarting the controller-manager frees the worker; it then syncs every Service once.',
  );
}

function queueBacklog(facts: Facts): Found | undefined {
  const held = heldUpBy(facts, 'unknown');
  if (held.length === 0) return undefined;
  const why =
    facts.controller?.seconds === undefined
      ? 'One scrape gives no rates, so the cause is unknown: provide two, or let Linger take them.'
      : 'Nothing was finished meanwhile: the controller is not running, or waits for something without a metric.';
  return finding(
    `Services are queued for ${written(held)}. ${waitOfNext(held, facts)}${why}`,
    [...held.flatMap((queue) => queueEvidence(queue, facts)), ...limiterEvidence(facts)],
    'Check the controller-manager’s log and CPU (process_cpu_seconds_total), and whether it reaches the API server.',
  );
}

function throttledBefore(facts: Facts): Found | undefined {
  const life = facts.controller?.limiterLife;
  if (life === undefined || heldUpBy(facts, 'limiter').length > 0) return undefined;
  if (life.count < FEWEST_REQUESTS || life.overSecond < SLOW_SHARE * life.count) return undefined;
  return finding(
    `Not throttled now, but since its start ${amount(life.overSecond)} of ${count(life.count, 'write')} (${percent(life.overSecond / life.count)}) waited more than a second for the controller-manager’s own rate limit. The next storm will throttle it again.`,
    [
      `rest_client_rate_limiter_duration_seconds{verb=~"PUT|POST|PATCH|DELETE"}: ${amount(life.overSecond)} of ${amount(life.count)} over 1 s, mean ${span(meanOf(life) ?? 0)}`,
    ],
    ...limiterCure(facts, []),
  );
}

function backlogBefore(facts: Facts): Found | undefined {
  const past = heldUpBy(facts, undefined).filter(
    ({ life }) => life.taken >= FEWEST_REQUESTS && life.overSecond >= SLOW_SHARE * life.taken,
  );
  if (past.length === 0) return undefined;
  return finding(
    `No backlog now, but since the controller-manager’s start Services have waited more than a second in the queue for ${written(past)}.`,
    past.map(
      ({ name, life }) =>
        `workqueue_queue_duration_seconds{name="${name}"}: ${amount(life.overSecond)} of ${amount(life.taken)} (${percent(life.overSecond / life.taken)}) over 1 s`,
    ),
    'Run this again while it happens: alert on workqueue_depth{name=~"endpoint|endpoint_slice"}.',
  );
}

/** The effect of the backlog on a pod. */
function waitOfNext(held: readonly QueueActivity[], facts: Facts): string {
  const drains = held.map((queue) => drainSeconds(queue, facts) ?? 0);
  const longest = Math.max(0, ...drains);
  if (longest < 1) return '';
  if (!Number.isFinite(longest)) return 'Nothing has left the queue meanwhile. ';
  return `A pod deleted now is withdrawn about ${span(longest)} later. `;
}

// Rules about the API server, as its client sees it, and about writes that fail.

function apiServerSlow({ controller }: Facts): Found | undefined {
  const server = controller?.server;
  const mean = meanOf(server) ?? 0;
  if (controller?.seconds === undefined || server === undefined || server.count < FEWEST_REQUESTS) return;
  const slowShare = server.overSecond / server.count;
  if (mean < SLOW_MEAN_SECONDS && slowShare < SLOW_SHARE) return undefined;
  return finding(
    `The API server took ${span(mean)} on average for a write of the controller-manager, and over a second for ${percent(slowShare)} of them.`,
    [
      `rest_client_request_duration_seconds, without the wait for the client’s own limiter: mean ${span(mean)} over ${count(server.count, 'write')} in ${span(controller.seconds)}; ${amount(server.overSecond)} over 1 s`,
    ],
    'Check the API server and etcd: etcd_disk_wal_fsync_duration_seconds, apiserver_request_duration_seconds, and for webhooks on endpoints apiserver_admission_webhook_admission_duration_seconds.',
    'More workers hide this only as long as the API server can take their load.',
  );
}

function apiServerRejects({ controller, priority }: Facts): Found | undefined {
  const evidence = lines(answerEvidence(controller), priorityEvidence(priority));
  if (evidence.length === 0) return undefined;
  return finding(
    'The API server rejects requests of the controller-manager, fails, or makes them wait for a seat; client-go retries after the given Retry-After, usually 1 s.',
    evidence,
    'kubectl get --raw /debug/api_priority_and_fairness/dump_priority_levels shows which priority level is full; dump_requests shows which clients fill it.',
    'For 5xx answers, see kubectl get events --all-namespaces and the API server’s log.',
  );
}

function answerEvidence(controller: Facts['controller']): string | undefined {
  const { answers, seconds } = controller ?? {};
  if (answers === undefined || seconds === undefined) return undefined;
  const bad = answers.tooMany + answers.serverErrors + answers.unanswered;
  // A single 5xx is no sign of trouble: it may be from a webhook, or from a deleted namespace.
  if (answers.tooMany === 0 && (bad < 2 || bad < SLOW_SHARE * answers.total)) return undefined;
  return `rest_client_requests_total in ${span(seconds)}: ${amount(answers.tooMany)} with code 429, ${amount(answers.serverErrors)} with 5xx, ${amount(answers.unanswered)} without an answer, of ${amount(answers.total)}`;
}

function priorityEvidence(priority: Facts['priority']): string | undefined {
  if (priority === undefined) return undefined;
  const { level, waiting, rejected, timedOut } = priority;
  if (waiting + rejected + timedOut === 0) return undefined;
  return `priority level ${level}: ${count(waiting, 'request')} waiting now, ${amount(rejected)} rejected and ${amount(timedOut)} timed out meanwhile`;
}

function syncErrors({ controller }: Facts): Found | undefined {
  const { failedSyncs, seconds, queues = [] } = controller ?? {};
  if (failedSyncs === undefined || seconds === undefined) return undefined;
  const done = queues.find(({ name }) => name === 'endpoint_slice')?.done ?? 0;
  if (failedSyncs < 2 || failedSyncs < SLOW_SHARE * done) return undefined;
  return finding(
    `${count(failedSyncs, 'sync')} of EndpointSlices failed or found a stale cache. Each is retried after a second, then after twice as long each time.`,
    [
      `endpoint_slice_controller_syncs{result!="success"} +${amount(failedSyncs)} in ${span(seconds)}, with ${count(done, 'sync')} done`,
    ],
    'The controller-manager’s log names the Services and the errors ("Error syncing endpoint slices for service").',
    'kubectl get events --all-namespaces --field-selector reason=FailedToUpdateEndpointSlices',
  );
}
