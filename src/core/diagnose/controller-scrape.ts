import { QUEUES, type QueueName } from './controller-flags.ts';
import { type Exposition, type MetricSample, parseExposition } from './exposition.ts';

/** A histogram, as far as it is read here. Spans in seconds. */
export interface Tally {
  readonly count: number;
  readonly sum: number;
  /** How many were longer than a second, or than the next bucket's edge above it. */
  readonly overSecond: number;
}

/**
 * A work queue of the controller-manager. Its workqueue_retries_total is of no use: the endpoint controllers add
 * Services with AddAfter, which counts each as a retry (client-go, delaying_queue.go).
 */
export interface QueueScrape {
  /** Services that wait. */
  readonly depth: number;
  readonly adds: number;
  /** Of the work that is under way: the longest, and all of it together. */
  readonly longestSeconds: number;
  readonly unfinishedSeconds: number;
  /** From being added to being taken up. */
  readonly wait: Tally;
  readonly work: Tally;
}

/** Answers to all requests of the controller-manager. */
export interface Answers {
  readonly total: number;
  /** 429. */
  readonly tooMany: number;
  /** 5xx. */
  readonly serverErrors: number;
  /** No answer at all. */
  readonly unanswered: number;
}

/** What one scrape says. Undefined: this version or this provider does not export it. */
export interface ControllerScrape {
  readonly version: string | undefined;
  /** Seconds since the epoch. */
  readonly startedAt: number | undefined;
  /** False where another instance is the leader: this one then has no queues. */
  readonly leading: boolean | undefined;
  readonly queues: ReadonlyMap<QueueName, QueueScrape>;
  /** Writes: how long they waited for the client's own rate limiter. */
  readonly limiter: Tally | undefined;
  /** Writes, from beginning to end: client-go counts the wait for the limiter in (rest/request.go). */
  readonly requests: Tally | undefined;
  readonly answers: Answers | undefined;
  /** Syncs of EndpointSlices that failed or found its cache stale, and are tried again. */
  readonly failedSyncs: number | undefined;
  /** EndpointSlices written. */
  readonly changes: number | undefined;
}

const WRITES: ReadonlySet<string> = new Set(['PUT', 'POST', 'PATCH', 'DELETE']);

/** `…_changes` was renamed to `…_changes_total`; both are read. */
const CHANGES = ['endpoint_slice_controller_changes', 'endpoint_slice_controller_changes_total'];
const SYNCS = ['endpoint_slice_controller_syncs', 'endpoint_slice_controller_syncs_total'];

const histogram = (name: string) => [`${name}_bucket`, `${name}_sum`, `${name}_count`];
const LIMITER = 'rest_client_rate_limiter_duration_seconds';
const REQUESTS = 'rest_client_request_duration_seconds';
const WAIT = 'workqueue_queue_duration_seconds';
const WORK = 'workqueue_work_duration_seconds';

const WANTED: ReadonlySet<string> = new Set([
  ...[LIMITER, REQUESTS, WAIT, WORK].flatMap(histogram),
  ...CHANGES,
  ...SYNCS,
  'rest_client_requests_total',
  'workqueue_depth',
  'workqueue_adds_total',
  'workqueue_longest_running_processor_seconds',
  'workqueue_unfinished_work_seconds',
  'process_start_time_seconds',
  'kubernetes_build_info',
  'leader_election_master_status',
]);

/**
 * Reads what /metrics of a kube-controller-manager says.
 * @throws MalformedExposition
 */
export function readControllerScrape(text: string): ControllerScrape {
  const exposition = parseExposition(text, WANTED);
  const present = QUEUES.flatMap((name) => {
    const queue = queueOf(exposition, name);
    return queue === undefined ? [] : [[name, queue] as const];
  });
  const written = (labels: MetricSample['labels']) => WRITES.has(labels.get('verb') ?? '');
  const [start] = finite(exposition, 'process_start_time_seconds');
  const [build] = exposition.get('kubernetes_build_info') ?? [];
  return {
    version: build?.labels.get('git_version'),
    startedAt: start?.value,
    leading: leadingOf(exposition),
    queues: new Map(present),
    limiter: tallyOf(exposition, LIMITER, written),
    requests: tallyOf(exposition, REQUESTS, written),
    answers: answersOf(exposition),
    failedSyncs: sumOf(exposition, SYNCS, (labels) => labels.get('result') !== 'success'),
    changes: sumOf(exposition, CHANGES, () => true),
  };
}

type Choice = (labels: MetricSample['labels']) => boolean;

/** NaN is what a gauge says that has nothing to say, and would make everything that it is added to NaN. */
function finite(exposition: Exposition, name: string): readonly MetricSample[] {
  return (exposition.get(name) ?? []).filter(({ value }) => Number.isFinite(value));
}

/** @returns undefined when there is no series of these names; 0 when there are, but none that is chosen */
function sumOf(exposition: Exposition, names: readonly string[], choice: Choice): number | undefined {
  const samples = names.flatMap((name) => finite(exposition, name));
  if (samples.length === 0) return undefined;
  return samples.reduce((sum, { labels, value }) => (choice(labels) ? sum + value : sum), 0);
}

function tallyOf(exposition: Exposition, name: string, choice: Choice): Tally | undefined {
  const count = sumOf(exposition, [`${name}_count`], choice);
  if (count === undefined) return undefined;
  return {
    count,
    sum: sumOf(exposition, [`${name}_sum`], choice) ?? 0,
    overSecond: Math.max(0, count - withinSecond(exposition, `${name}_bucket`, choice, count)),
  };
}

/** How many took a second at most. Where no bucket ends at a second, the next one above: it may only understate. */
function withinSecond(exposition: Exposition, name: string, choice: Choice, otherwise: number): number {
  const within = new Map<number, number>();
  for (const { labels, value } of finite(exposition, name)) {
    if (!choice(labels)) continue;
    const edge = Number(labels.get('le'));
    if (edge >= 1) within.set(edge, (within.get(edge) ?? 0) + value);
  }
  return within.get(Math.min(...within.keys())) ?? otherwise;
}

function queueOf(exposition: Exposition, name: QueueName): QueueScrape | undefined {
  const mine: Choice = (labels) => labels.get('name') === name;
  const gauge = (metric: string) => sumOf(exposition, [metric], mine) ?? 0;
  const series = [...(exposition.get('workqueue_depth') ?? []), ...(exposition.get(`${WORK}_count`) ?? [])];
  if (!series.some(({ labels }) => mine(labels))) return undefined;
  const none: Tally = { count: 0, sum: 0, overSecond: 0 };
  return {
    depth: gauge('workqueue_depth'),
    adds: gauge('workqueue_adds_total'),
    longestSeconds: gauge('workqueue_longest_running_processor_seconds'),
    unfinishedSeconds: gauge('workqueue_unfinished_work_seconds'),
    wait: tallyOf(exposition, WAIT, mine) ?? none,
    work: tallyOf(exposition, WORK, mine) ?? none,
  };
}

function answersOf(exposition: Exposition): Answers | undefined {
  const ofCode = (is: (code: string) => boolean) =>
    sumOf(exposition, ['rest_client_requests_total'], (labels) => is(labels.get('code') ?? ''));
  const total = ofCode(() => true);
  if (total === undefined) return undefined;
  return {
    total,
    tooMany: ofCode((code) => code === '429') ?? 0,
    serverErrors: ofCode((code) => code.startsWith('5')) ?? 0,
    unanswered: ofCode((code) => code === '<error>') ?? 0,
  };
}

function leadingOf(exposition: Exposition): boolean | undefined {
  const election: Choice = (labels) => labels.get('name') === 'kube-controller-manager';
  const status = finite(exposition, 'leader_election_master_status').filter(({ labels }) => election(labels));
  return status.length === 0 ? undefined : status.some(({ value }) => value > 0);
}
