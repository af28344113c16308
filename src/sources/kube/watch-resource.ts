import type { Agent, IncomingMessage } from 'node:http';
import type { KubeConnection } from '../../kube/connection.ts';
import { asFailure, type RestartReason, WatchFailure } from '../../kube/failure.ts';
import { ask, newAgent } from '../../kube/request.ts';
import { pause } from '../pause.ts';
import { Backoff } from './backoff.ts';
import { untilCurrent } from './current.ts';
import type { WatchHandlers } from './handlers.ts';
import { WATCH_LIMITS, type WatchLimits } from './limits.ts';
import { SparingParser } from './managed-fields.ts';
import { listAll, Pages } from './pages.ts';
import { Reception } from './reception.ts';
import { acceptOf, pathOf, type Resource } from './resource.ts';
import { type GrowingStats, newStats, type WatchStats } from './stats.ts';
import { readWatch } from './watch-stream.ts';

export interface WatchOptions {
  readonly signal: AbortSignal;
  /** Monotonic milliseconds, such as `performance.now`. */
  readonly clock: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  /** Default: {@link WATCH_LIMITS}. */
  readonly limits?: Partial<WatchLimits>;
}

/** A list-watch that runs. */
export interface ResourceWatch {
  /** Resolves once the signal has aborted and every connection is closed. Never rejects. */
  readonly ended: Promise<void>;
  /** Grows as the watch goes on. */
  readonly stats: WatchStats;
}

/**
 * Follows a collection until the signal aborts: lists it, watches it from there, and begins again, with a pause,
 * after whatever ends that. A watch is resumed where it stopped; only when the server no longer remembers that, or
 * what came cannot be trusted, is everything listed anew.
 */
export function watchResource<T>(
  resource: Resource<T>,
  connection: KubeConnection,
  handlers: WatchHandlers<T>,
  options: WatchOptions,
): ResourceWatch {
  const stats = newStats();
  const listWatch = new ListWatch(resource, connection, handlers, options, stats);
  return { ended: listWatch.run(), stats };
}

/** After these, the place where the watch stopped is of no use. */
const RELIST: ReadonlySet<RestartReason> = new Set([
  'Expired',
  'Malformed',
  'NotServed',
  'Refused',
  'Internal',
]);

class ListWatch<T> {
  readonly #resource: Resource<T>;
  readonly #connection: KubeConnection;
  readonly #options: WatchOptions;
  readonly #limits: WatchLimits;
  readonly #stats: GrowingStats;
  readonly #reception: Reception<T>;
  readonly #backoff: Backoff;
  /** Where to go on; undefined: with a list. */
  #resourceVersion: string | undefined;
  #heardAt = 0;
  /** Whether the watch has brought nothing but ERROR events since the one before. */
  #errorsOnly = false;

  constructor(
    resource: Resource<T>,
    connection: KubeConnection,
    handlers: WatchHandlers<T>,
    options: WatchOptions,
    stats: GrowingStats,
  ) {
    this.#resource = resource;
    this.#connection = connection;
    this.#options = options;
    this.#limits = { ...WATCH_LIMITS, ...options.limits };
    this.#stats = stats;
    this.#reception = new Reception(resource.project, new SparingParser(resource), handlers, stats);
    this.#backoff = new Backoff(this.#limits, options.random);
  }

  async run(): Promise<void> {
    const { signal } = this.#options;
    while (!signal.aborted) {
      try {
        this.#resourceVersion ??= await this.#list();
        await this.#watch(this.#resourceVersion);
      } catch (thrown) {
        if (signal.aborted) break;
        await this.#recover(thrown);
      }
    }
    this.#stats.state = 'ended';
  }

  async #list(): Promise<string> {
    const { clock, signal } = this.#options;
    const begun = clock();
    const resourceVersion = await listAll(this.#resource, this.#connection, {
      limits: this.#limits,
      signal,
      backoff: new Backoff(this.#limits, this.#options.random),
      onBegin: () => {
        this.#stats.state = 'listing';
        this.#reception.beginList(clock());
      },
      onItems: (items, bytes) => {
        const at = clock();
        this.#stats.bytes += bytes;
        for (const item of items) this.#reception.listed(item, at);
      },
      pause: (failure, pauseMs) => this.#pause(failure, pauseMs),
    });
    this.#stats.lists += 1;
    this.#stats.lastListMs = clock() - begun;
    this.#reception.endList(clock());
    return resourceVersion;
  }

  /** One watch, on a connection of its own. Returns when it was closed, or had nothing to tell, and may go on. */
  async #watch(from: string): Promise<void> {
    const { clock, signal } = this.#options;
    const agent = newAgent(this.#connection);
    const leaving = new AbortController();
    const leave = () => leaving.abort(signal.reason);
    signal.addEventListener('abort', leave, { once: true });
    try {
      signal.throwIfAborted();
      const response = await this.#open(from, agent, leaving.signal);
      const openedAt = clock();
      this.#heardAt = openedAt;
      const becoming = this.#becomeCurrent(leaving.signal).catch((error: unknown) => {
        response.destroy(asFailure(error));
      });
      let ended: 'Ended' | 'Silent';
      try {
        ended = await this.#read(response);
      } finally {
        leaving.abort();
        await becoming;
        if (clock() - openedAt >= this.#limits.healthyMs) this.#backoff.reset();
      }
      await this.#rewatch(ended, clock() - openedAt);
    } finally {
      signal.removeEventListener('abort', leave);
      agent.destroy();
    }
  }

  async #open(from: string, agent: Agent, signal: AbortSignal): Promise<IncomingMessage> {
    const [least, most] = this.#limits.watchSeconds;
    const parameters = {
      watch: 'true',
      allowWatchBookmarks: 'true',
      resourceVersion: from,
      timeoutSeconds: String(Math.round(least + (most - least) * this.#options.random())),
    };
    this.#stats.state = 'connecting';
    const response = await ask(this.#connection, {
      path: pathOf(this.#resource, parameters),
      accept: acceptOf(this.#resource, 'watch'),
      agent,
      signal,
      answerMs: this.#limits.answerMs,
    });
    this.#stats.state = 'watching';
    return response;
  }

  #read(response: IncomingMessage): Promise<'Ended' | 'Silent'> {
    return readWatch(response, {
      clock: this.#options.clock,
      silenceMs: this.#limits.silenceMs,
      onBytes: (bytes, at) => {
        this.#stats.bytes += bytes;
        this.#heardAt = at;
      },
      onLine: (line, at) => {
        this.#resourceVersion = this.#reception.line(line, at);
        this.#errorsOnly = false;
      },
    });
  }

  /** @throws WatchFailure `Expired` when the server has gone back in time: the watch would wait for nothing. */
  async #becomeCurrent(signal: AbortSignal): Promise<void> {
    const { clock } = this.#options;
    const pages = new Pages(this.#resource, this.#connection);
    try {
      const answer = await untilCurrent({
        position: () => ({ resourceVersion: this.#resourceVersion ?? '', heardAt: this.#heardAt }),
        latest: async () => {
          const { answerMs } = this.#limits;
          return (await pages.page(undefined, { limit: 1, signal, answerMs })).resourceVersion;
        },
        limits: this.#limits,
        clock,
        signal,
      });
      if (answer === 'rolledBack') throw new WatchFailure('Expired', "the server's history was rolled back");
      if (answer && !signal.aborted) this.#reception.current(clock());
    } finally {
      pages.close();
    }
  }

  /** A watch that was closed too soon, though in good order, counts as a failure: or a server could make us hammer. */
  async #rewatch(ended: 'Ended' | 'Silent', livedMs: number): Promise<void> {
    const { clock, random, signal } = this.#options;
    if (ended === 'Silent') this.#reception.silent(this.#heardAt, clock());
    else this.#reception.rotated(clock());
    this.#stats.restarts[ended] += 1;
    const well = livedMs >= this.#limits.healthyMs;
    const pauseMs = well ? this.#limits.rewatchMs * random() : this.#backoff.next();
    this.#stats.state = 'pausing';
    await pause(pauseMs, signal);
  }

  async #recover(thrown: unknown): Promise<void> {
    const failure = asFailure(thrown);
    const { reason } = failure;
    // A connection that broke may have been dead for some time.
    this.#reception.broken(reason === 'Cut' ? this.#heardAt : this.#options.clock());
    const stuck = reason === 'ErrorEvent' && this.#errorsOnly;
    this.#errorsOnly = reason === 'ErrorEvent';
    if (stuck || RELIST.has(reason)) this.#resourceVersion = undefined;
    await this.#pause(failure, this.#backoff.next(failure.retryAfterMs));
  }

  async #pause(failure: WatchFailure, pauseMs: number): Promise<void> {
    this.#stats.restarts[failure.reason] += 1;
    this.#stats.state = 'pausing';
    this.#reception.failed(failure, pauseMs);
    await pause(pauseMs, this.#options.signal);
  }
}
