import { parseDuration } from '../core/api/index.ts';
import {
  bucketsOf,
  chosen,
  type Exposition,
  growthBetween,
  parseExposition,
  type SeriesChoice,
  sumOfSeries,
} from '../telemetry/index.ts';

/** The flags of kube-controller-manager that determine how soon an endpoint is withdrawn. */
export interface ControllerFlags {
  /** Requests a second, for each controller's client; possibly {@link UNLIMITED}. */
  readonly qps: number;
  readonly burst: number;
  /** How many Services each controller works on at a time. */
  readonly workers: Readonly<Record<QueueName, number>>;
  /** How many seconds each deliberately waits for further changes. */
  readonly batchSeconds: Readonly<Record<QueueName, number>>;
  /** Whether the flags were read; otherwise these are the defaults. */
  readonly known: boolean;
}

export const UNLIMITED = Number.POSITIVE_INFINITY;

/** By the `name` label of its work queue in the metrics (read in 1.36.3): what a controller writes, and its flags. */
export const CONTROLLERS = {
  endpoint_slice: {
    writes: 'EndpointSlices',
    workers: '--concurrent-service-endpoint-syncs',
    batch: '--endpointslice-updates-batch-period',
  },
  endpoint: {
    writes: 'Endpoints',
    workers: '--concurrent-endpoint-syncs',
    batch: '--endpoint-updates-batch-period',
  },
  endpoint_slice_mirroring: {
    writes: 'mirrored EndpointSlices',
    workers: '--mirroring-concurrent-service-endpoint-syncs',
    batch: '--mirroring-endpointslice-updates-batch-period',
  },
} as const;

export type QueueName = keyof typeof CONTROLLERS;
export const QUEUES = Object.keys(CONTROLLERS) as readonly QueueName[];

/**
 * The most workers that the controllers of slices allow (options/endpointslicecontroller.go). The other controller has no
 * limit, but does not need more either.
 */
export const MOST_WORKERS = 50;

/**
 * Source: Kubernetes 1.36, RecommendedDefaultGenericControllerManagerConfiguration and those of the three controllers;
 * they have not changed since slices exist.
 */
export const DEFAULT_FLAGS: ControllerFlags = {
  qps: 20,
  burst: 30,
  workers: { endpoint_slice: 5, endpoint: 5, endpoint_slice_mirroring: 5 },
  batchSeconds: { endpoint_slice: 0, endpoint: 0, endpoint_slice_mirroring: 0 },
  known: false,
};

/** @param words see {@link givenFlags} */
export function controllerFlags(words: readonly string[]): ControllerFlags {
  const given = givenFlags(words);
  // With invalid values, the controller-manager would not have started.
  const number = (flag: string, otherwise: number) =>
    Number(given.get(flag)) > 0 ? Number(given.get(flag)) : otherwise;
  const ofQueues = (read: (queue: QueueName) => number) =>
    Object.fromEntries(QUEUES.map((queue) => [queue, read(queue)])) as Record<QueueName, number>;
  // client-go takes a negative rate for no limit (kubernetes/clientset.go); 0 is the default.
  const unlimited = Number(given.get('--kube-api-qps')) < 0;
  return {
    qps: unlimited ? UNLIMITED : number('--kube-api-qps', DEFAULT_FLAGS.qps),
    burst: number('--kube-api-burst', DEFAULT_FLAGS.burst),
    workers: ofQueues((queue) => number(CONTROLLERS[queue].workers, DEFAULT_FLAGS.workers[queue])),
    batchSeconds: ofQueues((queue) => parseDuration(given.get(CONTROLLERS[queue].batch) ?? '') ?? 0),
    known: true,
  };
}

/**
 * The flags on the command line of a kube-controller-manager; if one is repeated, the last one counts, as it does there.
 * @param line its words, possibly including the program; both `--flag=value` and `--flag value` are read
 */
export function givenFlags(line: readonly string[]): ReadonlyMap<string, string> {
  // A shell's -c has all of them in one word.
  const words = line.flatMap((word) => word.trim().split(/\s+/));
  const given = new Map<string, string>();
  for (const [index, word] of words.entries()) {
    if (!word.startsWith('-')) continue;
    const equals = word.indexOf('=');
    const name = equals < 0 ? word : word.slice(0, equals);
    const value = equals < 0 ? (words[index + 1] ?? '') : word.slice(equals + 1);
    given.set(name.replace(/^--?/, '--'), value);
  }
  return given;
}

/** What is read of a histogram. Seconds. */
export interface Tally {
  readonly count: number;
  readonly sum: number;
  /** How many took longer than a second, or than the next bucket boundary above that; never overstated. */
  readonly overSecond: number;
}

const WRITES: ReadonlySet<string> = new Set(['PUT', 'POST', 'PATCH', 'DELETE']);

/** Also read as `…_total`, its newer name. */
const CHANGES = 'endpoint_slice_controller_changes';
const SYNCS = 'endpoint_slice_controller_syncs';

const histogram = (name: string) => [`${name}_bucket`, `${name}_sum`, `${name}_count`];
const LIMITER = 'rest_client_rate_limiter_duration_seconds';
const REQUESTS = 'rest_client_request_duration_seconds';
const WAIT = 'workqueue_queue_duration_seconds';
const WORK = 'workqueue_work_duration_seconds';
const UNFINISHED = 'workqueue_unfinished_work_seconds';

const WANTED: ReadonlySet<string> = new Set([
  ...[LIMITER, REQUESTS, WAIT, WORK].flatMap(histogram),
  ...[CHANGES, SYNCS].flatMap((name) => [name, `${name}_total`]),
  'rest_client_requests_total',
  'workqueue_depth',
  'workqueue_adds_total',
  'workqueue_longest_running_processor_seconds',
  UNFINISHED,
  'process_start_time_seconds',
  'kubernetes_build_info',
  'leader_election_master_status',
]);

/**
 * Metrics that a leading controller-manager always exports, by what they show. A filter in between may have dropped some.
 */
const SHOWN_BY = {
  'whether the client is throttled': histogram(LIMITER),
  'whether the API server is slow': histogram(REQUESTS),
  'whether it rejects requests': ['rest_client_requests_total'],
  'how long Services wait': [...histogram(WAIT), 'workqueue_depth', 'workqueue_adds_total'],
  'whether workers are busy or stuck': [
    ...histogram(WORK),
    UNFINISHED,
    'workqueue_longest_running_processor_seconds',
  ],
};

/**
 * What a scrape cannot show because metrics are missing. The metrics of queues must exist for a queue that is always
 * exported.
 */
function missingIn(scrape: Exposition) {
  const isOurs = named('endpoint_slice');
  return Object.entries(SHOWN_BY).flatMap(([shows, names]) => {
    const missing = names.filter(
      (name) => !(scrape.get(name) ?? []).some(({ labels }) => !labels.has('name') || isOurs(labels)),
    );
    return missing.length === 0 ? [] : [{ shows, metrics: joinedNames(missing) }];
  });
}

/** The name of a histogram alone, if all of its series are missing. */
function joinedNames(names: readonly string[]): readonly string[] {
  const families = [LIMITER, REQUESTS, WAIT, WORK].filter((family) =>
    histogram(family).every((name) => names.includes(name)),
  );
  return [...families, ...names.filter((name) => !families.some((family) => name.startsWith(`${family}_`)))];
}

/** @throws MalformedExposition */
export function readControllerScrape(text: string): Exposition {
  return parseExposition(text, WANTED);
}

const all: SeriesChoice = () => true;
const writes: SeriesChoice = (labels) => WRITES.has(labels.get('verb') ?? '');
const named =
  (name: string): SeriesChoice =>
  (labels) =>
    labels.get('name') === name;

/** The queues that are exported. A provider may leave out some, and a version may no longer write Endpoints. */
export function queuesIn(scrape: Exposition): readonly QueueName[] {
  const series = ['workqueue_depth', `${WORK}_count`].flatMap((metric) => scrape.get(metric) ?? []);
  return QUEUES.filter((name) => series.some(({ labels }) => named(name)(labels)));
}

/** False if another instance leads, so that this one has no queues. Undefined: not exported. */
export function isLeading(scrape: Exposition): boolean | undefined {
  const status = chosen(scrape, 'leader_election_master_status', named('kube-controller-manager'));
  return status.length === 0 ? undefined : status.some(({ value }) => value > 0);
}

function startOf(scrape: Exposition): number | undefined {
  return chosen(scrape, 'process_start_time_seconds')[0]?.value;
}

export interface TakenScrape {
  readonly scrape: Exposition;
  /** Seconds of any clock that both scrapes share. */
  readonly at: number;
  /** Seconds since the epoch; undefined for a file, which does not contain it. */
  readonly epochSeconds?: number | undefined;
}

function tallyOf(exposition: Exposition, name: string, choice: SeriesChoice): Tally | undefined {
  const count = sumOfSeries(exposition, `${name}_count`, choice);
  if (count === undefined) return undefined;
  const sum = sumOfSeries(exposition, `${name}_sum`, choice) ?? 0;
  // If no bucket ends at a second, the next one above counts.
  const [, within = count] = [...bucketsOf(exposition, name, choice)].find(([edge]) => edge >= 1) ?? [];
  return { count, sum, overSecond: Math.max(0, count - within) };
}

export type ControllerActivity = Readonly<ReturnType<typeof activityOf>>;

/**
 * What the controller-manager did between two scrapes or, if only one counts, since its start. What is not exported is
 * undefined.
 * @param first undefined if there is only one scrape
 */
export function activityOf(first: TakenScrape | undefined, last: TakenScrape) {
  const after = last.scrape;
  const elapsed = first === undefined ? 0 : last.at - first.at;
  const restarted = first !== undefined && isAnotherLife(first.scrape, after);
  const before = restarted || elapsed <= 0 ? undefined : first?.scrape;
  const seconds = before === undefined ? undefined : elapsed;
  const growth = before === undefined ? after : growthBetween(before, after);
  const sumOfEither = (name: string, choice: SeriesChoice) =>
    sumOfSeries(growth, name, choice) ?? sumOfSeries(growth, `${name}_total`, choice);
  const limiter = tallyOf(growth, LIMITER, writes);
  const startedAt = startOf(after);
  return {
    /** The time between the scrapes; undefined: only one counts, so there are no rates. */
    seconds,
    /** Whether the process was restarted between the scrapes, or another instance answered. */
    restarted,
    /** Since the process was started, at the end. */
    ageSeconds:
      startedAt === undefined || last.epochSeconds === undefined
        ? undefined
        : Math.max(0, last.epochSeconds - startedAt),
    version: after.get('kubernetes_build_info')?.[0]?.labels.get('git_version'),
    leading: isLeading(after),
    missing: isLeading(after) === false ? [] : missingIn(after),
    queues: queuesIn(after).map((name) => queueActivity(name, { before, growth, after, seconds })),
    /** Writes and their waits for the client's own limiter. */
    limiter,
    limiterLife: tallyOf(after, LIMITER, writes),
    server: withoutLimiter(tallyOf(growth, REQUESTS, writes), limiter),
    answers: answersOf(growth),
    failedSyncs: sumOfEither(SYNCS, (labels) => labels.get('result') !== 'success'),
    changes: sumOfEither(CHANGES, all),
  };
}

/** Answers to all requests of the controller-manager. */
function answersOf(growth: Exposition) {
  const ofCode = (codes: RegExp) =>
    sumOfSeries(growth, 'rest_client_requests_total', (labels) => codes.test(labels.get('code') ?? ''));
  const total = ofCode(/^/);
  if (total === undefined) return undefined;
  return {
    total,
    tooMany: ofCode(/^429$/) ?? 0,
    serverErrors: ofCode(/^5/) ?? 0,
    /** Requests that got no response at all. */
    unanswered: ofCode(/^<error>$/) ?? 0,
  };
}

/** The mean of a tally. @returns undefined when nothing was counted */
export function meanOf(tally: Tally | undefined): number | undefined {
  return tally === undefined || tally.count <= 0 ? undefined : tally.sum / tally.count;
}

/** Whether another process answered: counters only grow, so one that has shrunk was reset. */
function isAnotherLife(before: Exposition, after: Exposition): boolean {
  const [old, now] = [startOf(before), startOf(after)];
  // Compared to the second, because the kernel's clock from which it is computed is slewed.
  if (old !== undefined && now !== undefined && Math.abs(old - now) > 1) return true;
  const present = queuesIn(after);
  return queuesIn(before).some((name) => {
    const shrunk = (metric: string) =>
      (sumOfSeries(after, metric, named(name)) ?? 0) < (sumOfSeries(before, metric, named(name)) ?? 0);
    return !present.includes(name) || shrunk('workqueue_adds_total') || shrunk(`${WORK}_count`);
  });
}

/** From here on, a request of over a second may be the limiter's as well as the API server's. */
const LIMITER_MATTERS_SECONDS = 0.01;

/**
 * Writes without their wait for the client's own limiter. If that wait matters, it is unknown which of the two caused waits
 * of over a second, so their number is 0.
 */
function withoutLimiter(requests: Tally | undefined, limiter: Tally | undefined): Tally | undefined {
  if (requests === undefined) return undefined;
  const matters = (meanOf(limiter) ?? 0) >= LIMITER_MATTERS_SECONDS;
  return {
    count: requests.count,
    sum: Math.max(0, requests.sum - (limiter?.sum ?? 0)),
    overSecond: matters ? 0 : requests.overSecond,
  };
}

export type QueueActivity = Readonly<ReturnType<typeof queueActivity>>;

/**
 * A work queue over the interval. Its workqueue_retries_total is not used: the endpoint controllers add Services with AddAfter,
 * which counts each as a retry (client-go, delaying_queue.go).
 */
function queueActivity(
  name: QueueName,
  {
    before,
    growth,
    after,
    seconds,
  }: {
    readonly before: Exposition | undefined;
    readonly growth: Exposition;
    readonly after: Exposition;
    readonly seconds: number | undefined;
  },
) {
  const read = (exposition: Exposition | undefined, metric: string) =>
    (exposition && sumOfSeries(exposition, metric, named(name))) ?? 0;
  const life = tallyOf(after, WAIT, named(name));
  const work = tallyOf(growth, WORK, named(name));
  const unfinished = read(after, UNFINISHED) - read(before, UNFINISHED);
  return {
    name,
    depth: read(after, 'workqueue_depth'),
    /** Undefined without two scrapes, like the number of busy workers. */
    depthBefore: before && read(before, 'workqueue_depth'),
    longestSeconds: read(after, 'workqueue_longest_running_processor_seconds'),
    adds: read(growth, 'workqueue_adds_total'),
    done: work?.count ?? 0,
    /** How long items waited before they were taken up; undefined if there were none. */
    meanWaitSeconds: meanOf(tallyOf(growth, WAIT, named(name))),
    /** How long finished items took. */
    meanWorkSeconds: meanOf(work),
    // On average. Work counts in full when it finishes, so the part before the interval is subtracted.
    busyWorkers: seconds === undefined ? undefined : Math.max(0, (work?.sum ?? 0) + unfinished) / seconds,
    /**
     * Since the start of the controller-manager: how many items were taken up, and how many of them had waited for more than
     * a second.
     */
    life: { taken: life?.count ?? 0, overSecond: life?.overSecond ?? 0 },
  };
}
