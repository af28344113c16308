import type { ResourceWatch, StreamChange, WatchHandlers, WatchOptions } from '../cluster/index.ts';
import type { Stream } from '../core/lag/index.ts';
import { tick } from '../timing/index.ts';

/**
 * How long the process may be blocked: a busy machine or a page of a list may block it for this long, and a lag may be wrong
 * by as much.
 */
const TOLERATED_MS = 1_000;

/** Reading the backlog takes milliseconds: if it has more than a few hundred events, a server ends the watch instead. */
const RECOVERY_MS = 2_000;

/** Less than the tolerance even if the process is idle, because a pause seems longer than it was by up to this time. */
const LOOK_EVERY_MS = 250;

export interface GuardedChange extends StreamChange {
  readonly stream: Stream;
  /** The guard reports this change because the process was paused; the stream itself did not change. */
  readonly stoodStill: boolean;
}

type GuardOptions = Pick<WatchOptions, 'signal' | 'clock'>;

/**
 * Prevents a pause of this process from being measured as a lag. It may have been stopped (Ctrl-Z), its node or virtual
 * machine may have slept, it may have got no processor time, or a reader of its output may have blocked it. What arrived in
 * the meantime is read late, with wrong times. So all streams are reported as broken from the last instant at which the
 * process was running, and as current again once the backlog has been read. This is checked before each event and not just
 * by a timer, because after a pause the event loop delivers the backlog first.
 */
export class ProcessPauseGuard {
  readonly #watches = new Map<Stream, ResourceWatch>();
  readonly #onChange: (change: GuardedChange) => void;
  #lookedAt: number | undefined;
  /** When the backlog will have been read; undefined: times can be trusted. */
  #recoversAt: number | undefined;

  /** @param onChange called with the changes of state of all streams, in order */
  constructor(onChange: (change: GuardedChange) => void, { clock, signal }: GuardOptions) {
    this.#onChange = onChange;
    void this.#lookRegularly(clock, signal);
  }

  async #lookRegularly(clock: () => number, signal: AbortSignal): Promise<void> {
    while (await tick(LOOK_EVERY_MS, signal)) this.look(clock());
  }

  /**
   * Follows a stream.
   * @param start begins the list-watch with the wrapped handlers that it is given
   */
  follow<T>(
    stream: Stream,
    handlers: Omit<WatchHandlers<T>, 'onStream'>,
    start: (handlers: WatchHandlers<T>) => ResourceWatch,
  ): ResourceWatch {
    const watch = start({
      ...handlers,
      onEvent: (event) => {
        this.look(event.at);
        handlers.onEvent(event);
      },
      onStream: (change) => {
        const withheld = this.#recoversAt !== undefined && change.type === 'StreamCurrent';
        if (!withheld) this.#onChange({ ...change, stream, stoodStill: false });
      },
    });
    this.#watches.set(stream, watch);
    return watch;
  }

  /** @param now an instant at which this process is running */
  look(now: number): void {
    const since = this.#lookedAt ?? now;
    this.#lookedAt = now;
    const stoodStill = true;
    if (now - since > TOLERATED_MS) {
      this.#recoversAt = now + RECOVERY_MS;
      for (const stream of this.#watches.keys())
        this.#onChange({ type: 'StreamBroken', at: since, stream, stoodStill });
    } else if (this.#recoversAt !== undefined && now >= this.#recoversAt) {
      this.#recoversAt = undefined;
      for (const [stream, { stats }] of this.#watches)
        if (stats.current) this.#onChange({ type: 'StreamCurrent', at: now, stream, stoodStill });
    }
  }

  /** Resolves once the signal has aborted and every connection is closed. */
  async ended(): Promise<void> {
    await Promise.all([...this.#watches.values()].map(({ ended }) => ended));
  }
}
