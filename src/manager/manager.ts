import { Counter, type Registry } from '@prometheus-io/client';
import type { WatchStats } from '../cluster/index.ts';
import { asError, type OwnStatus } from '../core/api/index.ts';
import type { ClusterEvent } from '../core/lag/index.ts';
import type { Logger } from '../telemetry/index.ts';
import { Backoff, pause } from '../timing/index.ts';
import type { Leadership, PodEvent, Runnable } from './runnable.ts';

interface ManagerOptions {
  readonly registry: Registry;
  readonly logger: Logger;
  /** Milliseconds, monotonic. */
  readonly clock: () => number;
  readonly random: () => number;
  /** Aborts when the process ends. */
  readonly signal: AbortSignal;
}

/** Where a runnable has failed. `listener`: in code that handles another runnable's results. */
type Call = 'metrics' | 'status' | 'event' | 'pod' | 'listener' | 'run' | 'lead' | 'close';

/** The pauses before failed work is started again. */
const RETRY = { firstPauseMs: 1_000, longestPauseMs: 60_000 };

/** A handler that fails at every event of a storm is logged only once in this time; the metric counts each failure. */
const LOG_AGAIN_MS = 60_000;

/** The values of members for which no part of the server is running. */
export const NO_STATUS: OwnStatus = {
  synced: null,
  watches: {},
  trusted: null,
  decisions: { outcomes: {}, skips: {}, seconds: 0 },
  held: null,
  unreached: null,
  flips: null,
  audit: null,
};

/**
 * Runs the parts of a server, as controller-runtime's manager does: starts them, passes each event to each of them, runs
 * their leader's work while this replica leads, and closes them. A failure in one is counted and logged, and does not affect
 * the others.
 *
 * Each is added after what it needs. Starts and terms follow that order. Events and closing go in reverse: a part has
 * handled an event before a part that it needs draws conclusions from it or forgets its object.
 */
export class Manager {
  readonly #options: ManagerOptions;
  readonly #runnables: Runnable[] = [];
  #usersFirst: readonly Runnable[] = [];
  /** The work of each runnable's latest term. */
  readonly #leading = new Map<Runnable, Promise<void>>();
  readonly #loggedAt = new Map<string, number>();
  readonly #failures: Counter<'runnable' | 'call'>;
  #leadership: Leadership | undefined;
  #leadsSince = 0;

  constructor(options: ManagerOptions) {
    this.#options = options;
    this.#failures = registerManagerMetrics(options.registry);
  }

  /** Adds what {@link start} will start, each after what it needs. */
  add(...runnables: readonly (Runnable | undefined)[]): void {
    this.#runnables.push(...runnables.filter((each) => each !== undefined));
    this.#usersFirst = this.#runnables.toReversed();
  }

  start(): void {
    const { registry, signal } = this.#options;
    for (const each of this.#runnables) {
      this.#attempt(each.name, 'metrics', () => each.metrics?.(registry));
      if (each.run !== undefined) void this.#work(each.name, 'run', () => each.run?.(signal), signal);
    }
  }

  /** Passes on an event of the cluster's watches. Never throws. */
  readonly event = (event: ClusterEvent): void => {
    for (const each of this.#usersFirst)
      if (each.onEvent !== undefined) this.#attempt(each.name, 'event', () => each.onEvent?.(event));
  };

  /** Passes on an event of the pods' watch. Never throws. */
  readonly pod = (event: PodEvent): void => {
    for (const each of this.#usersFirst)
      if (each.onPod !== undefined) this.#attempt(each.name, 'pod', () => each.onPod?.(event));
  };

  /** Call this whenever this replica begins to lead. */
  readonly lead = (leadership: Leadership): void => {
    this.#leadership = leadership;
    this.#leadsSince = this.#options.clock();
    for (const each of this.#runnables) {
      if (each.lead === undefined) continue;
      const before = this.#leading.get(each);
      const work = () => this.#work(each.name, 'lead', () => each.lead?.(leadership), leadership.signal);
      // At once if nothing is left of an earlier term, because connections may be waiting.
      this.#leading.set(each, before === undefined ? work() : before.then(work));
    }
  };

  /** Whether this replica leads. */
  readonly leads = (): boolean => this.#leadership?.holds() ?? false;

  /** Since when this replica has led, by the clock; undefined: it does not lead. */
  readonly leadsSince = (): number | undefined => (this.leads() ? this.#leadsSince : undefined);

  /** Resolves once the work of all past terms has ended. */
  async idle(): Promise<void> {
    await Promise.all(this.#leading.values());
  }

  /** The list-watches of all runnables. */
  readonly watches = (): Readonly<Record<string, WatchStats>> =>
    Object.assign({}, ...this.#runnables.map((each) => each.watches?.()));

  /** The status of this replica, as reported by all runnables, and which of its watches are current. */
  readonly status = (): OwnStatus => {
    const watches = Object.entries(this.watches()).map(([name, { current }]) => [name, current] as const);
    const status = { ...NO_STATUS, watches: Object.fromEntries(watches) };
    for (const each of this.#runnables)
      this.#attempt(each.name, 'status', () => Object.assign(status, each.status?.()));
    return status;
  };

  /** Closes the runnables, the last one first; resolves once all are closed. Never rejects. */
  async close(): Promise<void> {
    const closing = this.#usersFirst.map(async (each) => {
      try {
        await each.close?.();
      } catch (thrown) {
        this.#failed(each.name, 'close', thrown);
      }
    });
    await Promise.all(closing);
  }

  /** @returns listeners to results of the runnable of this name; one that throws affects neither it nor the others */
  listeners<Heard extends readonly unknown[]>(name: string): Listeners<Heard> {
    return new Listeners(this.listenerFailed(name));
  }

  /** @returns a function that counts and logs the failure of a listener */
  listenerFailed(name: string): (thrown: unknown) => void {
    return (thrown) => this.#failed(name, 'listener', thrown);
  }

  #attempt(name: string, call: Call, action: () => void): void {
    try {
      action();
    } catch (thrown) {
      this.#failed(name, call, thrown);
    }
  }

  /** Does work until it is done or the signal aborts. Work that throws is started again. */
  async #work(name: string, call: Call, work: () => unknown, signal: AbortSignal): Promise<void> {
    const backoff = new Backoff(RETRY, this.#options.random);
    while (!signal.aborted) {
      try {
        await work();
        return;
      } catch (thrown) {
        if (signal.aborted) return;
        const pauseMs = Math.round(backoff.next());
        this.#failed(name, call, thrown, pauseMs);
        await pause(pauseMs, signal);
      }
    }
  }

  #failed(runnable: string, call: Call, thrown: unknown, pauseMs?: number): void {
    const { clock, logger } = this.#options;
    this.#failures.inc({ runnable, call });
    const key = `${runnable}/${call}`;
    const now = clock();
    if (now - (this.#loggedAt.get(key) ?? Number.NEGATIVE_INFINITY) < LOG_AGAIN_MS) return;
    this.#loggedAt.set(key, now);
    const members = { runnable, call, err: asError(thrown) };
    if (pauseMs === undefined)
      logger.error(members, 'runnable failed, all others continue; this is a bug in Linger');
    else logger.error({ ...members, pauseMs }, 'runnable failed, restarting it; this is a bug in Linger');
  }
}

export function registerManagerMetrics(registry: Registry): Counter<'runnable' | 'call'> {
  return new Counter({
    name: 'linger_runnable_failures_total',
    help: 'Errors that a part of Linger has thrown, by part and call: always a bug. The other parts are not affected.',
    reference:
      'Errors that a part of Linger has thrown: a bug, logged as `runnable failed`. `call`: `metrics`, `status`, `event`, `pod`, `listener`, `run`, `lead` or `close`; `run` and `lead` are restarted.',
    labelNames: ['runnable', 'call'] as const,
    registers: [registry],
  });
}

/** Listeners are called in the order in which they were added, even if some of them throw. */
export class Listeners<Heard extends readonly unknown[]> {
  readonly #all: ((...heard: Heard) => void)[] = [];
  readonly #onError: (thrown: unknown) => void;

  /** @param onError called with what a listener throws; by default it ends the process */
  constructor(onError: (thrown: unknown) => void = throwLater) {
    this.#onError = onError;
  }

  readonly add = (listener: (...heard: Heard) => void): void => {
    this.#all.push(listener);
  };

  readonly call = (...heard: Heard): void => {
    for (const listener of this.#all)
      try {
        listener(...heard);
      } catch (thrown) {
        this.#onError(thrown);
      }
  };
}

function throwLater(thrown: unknown): void {
  queueMicrotask(() => {
    throw thrown;
  });
}
