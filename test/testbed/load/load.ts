import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '../cluster.ts';
import { type Endpoint, trackedSources } from './conntrack.ts';
import { KeepAliveStream } from './keep-alive.ts';
import { PodLives } from './lives.ts';
import { type Source, sourceKey, sources } from './ports.ts';
import { type LoadReport, reportOf, type SentLoss, type Traffic } from './report.ts';
import { sendRequest } from './request.ts';
import { openTarget, type Target, type TargetOptions } from './targets.ts';

export type { LoadReport, Loss, LossCause } from './report.ts';
export { causesBesidesStopped, formatReport } from './report.ts';
export type { LossKind } from './request.ts';
export type { Target, TargetOptions } from './targets.ts';

export interface LoadOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly target: TargetOptions | Target;
  /** Addresses of this machine to connect from, which no other client uses at the same time. Default: all of the cluster's. */
  readonly clientAddresses?: readonly string[];
  /** Label selector of the pods behind the Service, whose lives explain the losses. */
  readonly podSelector: string;
  /** The container that runs the test application. Default `app`. */
  readonly container?: string;
  /** New connections per second. Default 150. */
  readonly perSecond?: number;
  /** Instead: the number of connections that stay, each with one request after the other. */
  readonly keepAlive?: number;
  /** Default 2,000. */
  readonly connectTimeoutMs?: number;
  /** From the established connection to the end of the answer. Default 5,000. */
  readonly answerTimeoutMs?: number;
  /** Default `/`. */
  readonly path?: string;
}

export interface Load {
  /** Stops opening connections, waits for those that are open, explains the losses. */
  stop(): Promise<LoadReport>;
}

/** How often requests are started: each time as many as have become due. */
const TICK_MS = 5;

/** Until the last words of a pod that is going have come through its log. */
const LAST_WORDS_MS = 1_000;

/** With this many unusable ports in a row, the cause is not listeners: the address is not ours. */
const UNUSABLE_SOURCES = 100;

/** Resolves once the first request is about to be sent. Rejects when the cluster cannot be asked. */
export async function startLoad(options: LoadOptions): Promise<Load> {
  const { cluster, namespace, podSelector } = options;
  const lives = new PodLives({ cluster, namespace, podSelector, container: options.container ?? 'app' });
  await lives.start();
  const [target, taken] = await Promise.all([
    'next' in options.target ? options.target : openTarget(cluster, namespace, options.target),
    trackedSources(),
  ]);
  const stream =
    options.keepAlive === undefined
      ? new RequestStream(options, target, sources(options.clientAddresses ?? cluster.clientAddresses, taken))
      : new KeepAliveStream(options, target, options.keepAlive);
  stream.start();
  return {
    stop: async () => {
      try {
        await stream.stop();
        await sleep(LAST_WORDS_MS);
        return reportOf(stream, target, lives);
      } finally {
        target.stop();
        await lives.stop();
      }
    },
  };
}

/** Open loop: requests start by the clock, however slowly earlier ones are answered. */
class RequestStream implements Traffic {
  readonly losses: SentLoss[] = [];
  readonly answersByPod: Record<string, number> = {};
  total = 0;
  answered = 0;
  latestStartMs = 0;
  seconds = 0;
  readonly #options: LoadOptions;
  readonly #target: Target;
  readonly #sources: Generator<Source>;
  readonly #perMs: number;
  readonly #open = new Set<Promise<void>>();
  #startedAt = 0;
  #timer: NodeJS.Timeout | undefined;
  #failure: Error | undefined;

  constructor(options: LoadOptions, target: Target, allSources: Generator<Source>) {
    this.#options = options;
    this.#target = target;
    this.#sources = allSources;
    this.#perMs = (options.perSecond ?? 150) / 1_000;
  }

  start(): void {
    this.#startedAt = performance.now();
    this.#timer = setInterval(() => this.#startDue(), TICK_MS);
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.seconds = Math.round((performance.now() - this.#startedAt) / 100) / 10;
    await Promise.all(this.#open);
    if (this.#failure !== undefined) throw this.#failure;
  }

  #startDue(): void {
    const elapsed = performance.now() - this.#startedAt;
    while (this.total < Math.floor(elapsed * this.#perMs)) {
      const dueAt = (this.total + 1) / this.#perMs;
      this.latestStartMs = Math.max(this.latestStartMs, Math.round(elapsed - dueAt));
      this.total += 1;
      const request = this.#request().finally(() => this.#open.delete(request));
      this.#open.add(request);
    }
  }

  /** One request, from the next source that can be used. */
  async #request(): Promise<void> {
    const sentTo = this.#target.next();
    if (sentTo === undefined) {
      const now = Date.now();
      const nowhere = { kind: 'noEndpoint', detail: 'none listed', source: '', sentTo } as const;
      this.losses.push({ ...nowhere, openedAt: now, failedAt: now });
      return;
    }
    let attempts = 0;
    // By hand: leaving a for…of loop early would end the generator for all requests.
    for (let next = this.#sources.next(); next.done !== true; next = this.#sources.next()) {
      const unusable = await this.#send(sentTo, next.value);
      if (unusable === undefined) return;
      attempts += 1;
      if (attempts === UNUSABLE_SOURCES)
        return this.#fail(`cannot connect from ${sourceKey(next.value)}: ${unusable}`);
    }
    this.#fail('every source port was used once; run for a shorter time or more slowly');
  }

  #fail(message: string): void {
    clearInterval(this.#timer);
    this.#failure ??= new Error(message);
  }

  /** Why the source could not be used, or undefined when it was. */
  async #send(sentTo: Endpoint, source: Source): Promise<string | undefined> {
    const openedAt = Date.now();
    const outcome = await sendRequest({
      target: sentTo,
      source,
      path: this.#options.path ?? '/',
      connectTimeoutMs: this.#options.connectTimeoutMs ?? 2_000,
      answerTimeoutMs: this.#options.answerTimeoutMs ?? 5_000,
    });
    const key = sourceKey(source);
    if (outcome.result === 'notSent') return outcome.detail;
    if (outcome.result === 'answered') this.#answer(outcome.pod, key);
    else this.losses.push({ ...outcome, openedAt, failedAt: Date.now(), source: key, sentTo });
    return undefined;
  }

  #answer(pod: string, source: string): void {
    this.answered += 1;
    this.answersByPod[pod] = (this.answersByPod[pod] ?? 0) + 1;
    this.#target.answered(source);
  }
}
