import { setTimeout as sleep } from 'node:timers/promises';
import {
  type EndpointScope,
  EndpointWatch,
  type EndpointWatchHandlers,
  type FailureReason,
  type KubeConnection,
} from '../cluster/index.ts';
import { LAG_STAGES, STREAMS, type StageSample, type Stream } from '../lag/index.ts';
import { type WaitingByStage, waitingByStage } from '../measurement/index.ts';
import { count, span } from './amounts.ts';
import type { Exposition } from './controller-metrics.ts';
import {
  isAddress,
  metricsIn,
  type Observation,
  type Observed,
  observeTwice,
  oneLine,
  readMetricsAddress,
  readMetricsFile,
} from './controller-observation.ts';
import { type LagFacts, type Look, readLagScrape, scrapedLag, watchedLag } from './facts.ts';

interface LagWatchOptions {
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly signal: AbortSignal;
  /** In [0, 1). */
  readonly random: () => number;
}

const REFUSED: ReadonlySet<FailureReason> = new Set(['Forbidden', 'Unauthorized', 'NotServed', 'Refused']);

const ALL = undefined;
const EVERYTHING: EndpointScope = { namespace: ALL, services: ALL, sources: LAG_STAGES, selector: ALL };

/** Removals as they happen, for as long as a diagnosis takes. */
export class LagWatch {
  readonly #watch: EndpointWatch;
  readonly #clock: () => number;
  readonly #samples: Pick<StageSample, 'stage' | 'lag'>[] = [];
  /** The watches that have never been current, each with its last failure, where there was one. */
  readonly late = new Map<Stream, string | undefined>(STREAMS.map((stream) => [stream, undefined]));
  readonly #current = Promise.withResolvers<boolean>();

  constructor(connection: KubeConnection, options: LagWatchOptions) {
    this.#clock = options.clock;
    const handlers: EndpointWatchHandlers = {
      onStartFailure: (stream, { reason, message }) => {
        if (this.late.has(stream)) this.late.set(stream, oneLine(message));
        if (REFUSED.has(reason)) this.#current.resolve(false);
      },
      onCurrent: (stream) => {
        this.late.delete(stream);
        if (this.late.size === 0) this.#current.resolve(true);
      },
    };
    this.#watch = new EndpointWatch(EVERYTHING, connection, handlers, { ...options, initial: false });
  }

  /** Resolves once the signal has aborted and every connection is closed. */
  ended(): Promise<void> {
    return this.#watch.ended();
  }

  /**
   * Resolves with true once every watch brings events when they happen, with false once one is refused: rights do not
   * come by themselves. It may do neither for long.
   */
  get current(): Promise<boolean> {
    return this.#current.promise;
  }

  /** Begins to count: what came before is forgotten. */
  begin(): void {
    this.#watch.observer.takeAll();
    this.#samples.length = 0;
  }

  get samples(): readonly Pick<StageSample, 'stage' | 'lag'>[] {
    for (const { source, lag } of this.#watch.observer.takeAll())
      if (lag !== undefined) this.#samples.push({ stage: source, lag });
    return this.#samples;
  }

  /** Removals that have begun and not ended. */
  waiting(): WaitingByStage {
    return waitingByStage(this.#watch.observer.unresolved(), this.#clock());
  }
}

const WHAT = 'measured lag';

/** 150,000 pods take a list-watch some 10 s; a cluster that takes longer than this is better asked by its Linger. */
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
 * Removals during the observation, seen by a watch of our own: once that is current, is refused, or takes too long.
 * @param signal ends the watch
 */
export async function observeRemovals(
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<Observation<LagFacts>> {
  const clock = () => performance.now();
  const watch = new LagWatch(connection, { signal, clock, random: Math.random });
  const waiting = new AbortController();
  const late = sleep(CURRENT_MS, false, { signal: waiting.signal }).catch(() => false);
  const isCurrent = await Promise.race([watch.current, late]);
  waiting.abort();
  if (!isCurrent) return { facts: undefined, looks: [lateLook(watch)] };
  watch.begin();
  const begun = clock();
  return async () => {
    const from = `watched for ${span((clock() - begun) / 1000)}`;
    const facts = watchedLag(from, watch.samples, watch.waiting());
    const removals = facts.stages.reduce((sum, { samples }) => sum + samples, 0);
    return { facts, looks: [{ what: WHAT, seen: true, text: `${from}, ${count(removals, 'removal')}` }] };
  };
}

function lateLook({ late }: LagWatch): Look {
  const why = [...late].map(([stream, message]) =>
    message === undefined ? stream : `${stream} (${message})`,
  );
  return {
    what: WHAT,
    seen: false,
    text: `removals cannot be watched, or not within ${span(CURRENT_MS / 1000)}: ${why.join(', ')}`,
    remedy:
      'It takes the right to list and watch pods, services, endpoints and endpointslices; or give the metrics of a running Linger: --linger',
  };
}

function scrapeOf(text: string, from: string): Exposition {
  return metricsIn(text, from, 'a Linger that measures, with linger_removal_lag_seconds', readLagScrape);
}
