import { type FailureReason, type KubeConnection, oneLine, type WatchOptions } from '../cluster/index.ts';
import { count, span } from '../core/api/index.ts';
import {
  ENDPOINT_SOURCES,
  type EndpointSource,
  STREAMS,
  type StageSample,
  type Stream,
} from '../core/lag/index.ts';
import { type EndpointScope, EndpointWatch, type EndpointWatchHandlers } from '../informers/index.ts';
import { LAG_METRICS, type WaitingByStage, waitingByStage } from '../measurement/index.ts';
import {
  bucketsOf,
  chosen,
  type Exposition,
  growthBetween,
  parseExposition,
  type SeriesChoice,
} from '../telemetry/index.ts';
import { pause, withSignal } from '../timing/index.ts';
import {
  isAddress,
  metricsIn,
  type Observation,
  type Observed,
  observeTwice,
  readMetricsAddress,
  readMetricsFile,
} from './controller-observation.ts';
import type { LagFacts, Look, StageFacts } from './facts.ts';

type Sample = Pick<StageSample, 'stage' | 'lag'>;

const REFUSED: ReadonlySet<FailureReason> = new Set(['Forbidden', 'Unauthorized', 'NotServed', 'Refused']);

const ALL = undefined;
const EVERYTHING: EndpointScope = { namespace: ALL, services: ALL, sources: ENDPOINT_SOURCES, selector: ALL };

/** Watches removals as they happen, for as long as a diagnosis takes. */
export function watchLag(connection: KubeConnection, options: WatchOptions) {
  /** The watches that have never been current, each with its last failure, if there was one. */
  const late = new Map<Stream, string | undefined>(STREAMS.map((stream) => [stream, undefined]));
  const current = Promise.withResolvers<boolean>();
  const handlers: EndpointWatchHandlers = {
    onStartFailure: (stream, { reason, message }) => {
      if (late.has(stream)) late.set(stream, oneLine(message));
      if (REFUSED.has(reason)) current.resolve(false);
    },
    onCurrent: (stream) => {
      late.delete(stream);
      if (late.size === 0) current.resolve(true);
    },
  };
  const watch = new EndpointWatch(EVERYTHING, connection, handlers, { ...options, initial: false });
  return {
    late,
    /**
     * Resolves with true once every watch delivers events as they happen, or with false once one is refused; may never
     * resolve.
     */
    current: current.promise,
    /** Resolves once the signal has aborted and every connection is closed. */
    ended: () => watch.ended(),
    /** The removals that have ended since the last call. */
    takeSamples: (): readonly Sample[] =>
      watch.observer
        .takeAll()
        .flatMap(({ source, lag }) => (lag === undefined ? [] : [{ stage: source, lag }])),
    /** Removals that have begun and not ended. */
    waiting: () => waitingByStage(watch.observer.unresolved(), options.clock()),
  };
}

const WHAT = 'measured lag';

/**
 * A list-watch of 150,000 pods takes some 10 s. In a cluster where it takes longer than this, it is better to ask a running
 * Linger.
 */
const CURRENT_MS = 60_000;

/**
 * The metrics of a running Linger.
 * @param from a URL, a file or `-`
 * @throws LingerError `metrics-unreadable`, `metrics-invalid`
 */
export async function observeLinger(
  from: string,
  stdin: NodeJS.ReadableStream,
): Promise<Observation<LagFacts>> {
  const observed = (first: Exposition | undefined, last: Exposition, failure = ''): Observed<LagFacts> => {
    const how = first === undefined ? `one scrape${failure}` : 'twice';
    const look = { what: WHAT, seen: true, text: `Linger at ${from}, ${how}` };
    return { facts: scrapedLag(from, first, last), looks: [look] };
  };
  if (isAddress(from))
    return observeTwice(async () => scrapeOf(await readMetricsAddress({ from }), from), observed);
  return observed(undefined, scrapeOf(await readMetricsFile(from, stdin), from));
}

/**
 * Removals during the observation, seen by a watch of this process. Resolves once the watch is current, is refused, or takes
 * too long.
 * @param signal ends the watch
 */
export async function observeRemovals(
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<Observation<LagFacts>> {
  const clock = () => performance.now();
  const watch = watchLag(connection, { signal, clock, random: Math.random });
  const isCurrent = await withSignal({ signal }, (until, over) =>
    Promise.race([watch.current, pause(CURRENT_MS, until).then(() => false)]).finally(over),
  );
  if (!isCurrent) return { facts: undefined, looks: [lateLook(watch)] };
  // Counting starts now, so discard earlier samples.
  watch.takeSamples();
  const begun = clock();
  return async () => {
    const from = `watched for ${span((clock() - begun) / 1000)}`;
    const facts = watchedLag(from, watch.takeSamples(), watch.waiting());
    const removals = facts.stages.reduce((sum, { samples }) => sum + samples, 0);
    return { facts, looks: [{ what: WHAT, seen: true, text: `${from}, ${count(removals, 'removal')}` }] };
  };
}

function lateLook({ late }: Pick<ReturnType<typeof watchLag>, 'late'>): Look {
  const why = [...late].map(([stream, message]) =>
    message === undefined ? stream : `${stream} (${message})`,
  );
  return {
    what: WHAT,
    seen: false,
    text: `watching removals failed, or did not start within ${span(CURRENT_MS / 1000)}: ${why.join(', ')}`,
    remedy:
      'This needs the right to list and watch pods, services, endpoints and endpointslices; or give the metrics of a running Linger with --linger',
  };
}

function scrapeOf(text: string, from: string): Exposition {
  return metricsIn(text, from, `a Linger that measures, with ${LAG}`, readLagScrape);
}

export function watchedLag(from: string, samples: readonly Sample[], waiting: WaitingByStage): LagFacts {
  const stages = ENDPOINT_SOURCES.map((stage): StageFacts => {
    const mine = samples.filter((sample) => sample.stage === stage);
    const lags = mine.map(({ lag }) => lag).toSorted((a, b) => a - b);
    // The nearest rank, so with few samples the p99 is the longest.
    const quantile = (share: number) => lags[Math.ceil(share * lags.length) - 1];
    const [p50, p99] = [quantile(0.5), quantile(0.99)];
    return { stage, samples: lags.length, p50, p99, ...waitingOf(waiting[stage]) };
  });
  return { from, stages, life: [] };
}

const { lag: LAG, unresolved: UNRESOLVED, oldest: OLDEST } = LAG_METRICS;

/**
 * Reads what /metrics of a Linger shows about lags.
 * @returns undefined for the metrics of another program, or of a Linger that measures nothing
 * @throws MalformedExposition
 */
export function readLagScrape(text: string): Exposition | undefined {
  const exposition = parseExposition(text, new Set([`${LAG}_bucket`, UNRESOLVED, OLDEST]));
  return exposition.has(`${LAG}_bucket`) ? exposition : undefined;
}

/** @param first undefined: there is only one scrape, so only waiting removals are known */
export function scrapedLag(from: string, first: Exposition | undefined, last: Exposition): LagFacts {
  const growth = first === undefined ? new Map() : growthBetween(first, last);
  return {
    from,
    ...(first === undefined && { uncounted: true }),
    stages: ENDPOINT_SOURCES.map((stage) => scrapedStage(stage, growth, last)),
    life: ENDPOINT_SOURCES.map((stage) => scrapedStage(stage, last, last)),
  };
}

/** @param ended the exposition that shows which removals have ended @param now the one that shows which are waiting */
function scrapedStage(stage: EndpointSource, ended: Exposition, now: Exposition): StageFacts {
  const mine: SeriesChoice = (labels) => labels.get('stage') === stage;
  const all: SeriesChoice = (labels) => mine(labels) && labels.get('le')?.endsWith('Inf') === true;
  const within = bucketsOf(ended, LAG, mine);
  // A file may contain the scrapes of several replicas. Each sees every removal, so the maximum counts.
  const most = (of: Exposition, name: string, choice = mine) =>
    Math.max(0, ...chosen(of, name, choice).map(({ value }) => value));
  return {
    stage,
    samples: most(ended, `${LAG}_bucket`, all),
    p50: quantileOf(within, 0.5),
    p99: quantileOf(within, 0.99),
    ...waitingOf({ count: most(now, UNRESOLVED), oldestSeconds: most(now, OLDEST) }),
  };
}

/** Interpolated within its bucket, as Prometheus' histogram_quantile does. @returns undefined without samples */
function quantileOf(within: ReadonlyMap<number, number>, share: number): number | undefined {
  const total = within.get(Number.POSITIVE_INFINITY) ?? 0;
  if (total <= 0) return undefined;
  const rank = share * total;
  let [lower, below] = [0, 0];
  for (const [edge, count] of within) {
    if (count >= rank) {
      if (edge === Number.POSITIVE_INFINITY) return lower;
      return lower + ((edge - lower) * (rank - below)) / (count - below);
    }
    [lower, below] = [edge, count];
  }
  return lower;
}

function waitingOf({ count, oldestSeconds }: WaitingByStage[EndpointSource]) {
  return { waiting: count, oldestSeconds: count > 0 ? oldestSeconds : undefined };
}
