import type { Stream } from '../lag/index.ts';
import type { ResourceWatch, WatchOptions } from './reflector.ts';
import type { StreamChange, WatchHandlers } from './resource.ts';

/** A busy machine, or a page of a list, may take this long; a lag can be wrong by as much. */
const TOLERATED_MS = 1_000;

/** Reading what has piled up takes milliseconds: beyond a few hundred events a server ends the watch instead. */
const RECOVERY_MS = 2_000;

/** More often than the tolerance, even when idle: a standstill seems longer than it was by up to this. */
const LOOK_EVERY_MS = 250;

export interface GuardedChange extends StreamChange {
  readonly stream: Stream;
  /** Whether the guard reports it, because this process stood still, and not the stream itself. */
  readonly stoodStill: boolean;
}

type GuardOptions = Pick<WatchOptions, 'signal' | 'clock'>;

/**
 * Keeps a standstill of this process from being measured as a lag: it was stopped (Ctrl-Z), its node or virtual machine
 * slept, its processor was taken away, or a reader of its output blocked it. What arrived meanwhile is read late, with
 * wrong instants. So all streams are reported as broken since the last instant at which the process was awake, and those
 * that are current are reported so again when what has piled up has been read. It looks before each event, and not on a
 * timer alone: after a standstill the event loop brings what has piled up first.
 */
export class StandstillGuard {
  readonly #watches = new Map<Stream, ResourceWatch>();
  readonly #onChange: (change: GuardedChange) => void;
  #lookedAt: number | undefined;
  /** When what has piled up will have been read; undefined: instants can be trusted. */
  #recoversAt: number | undefined;

  /** @param onChange is called with the changes of all streams, in order */
  constructor(onChange: (change: GuardedChange) => void, { clock, signal }: GuardOptions) {
    this.#onChange = onChange;
    if (signal.aborted) return;
    const timer = setInterval(() => this.look(clock()), LOOK_EVERY_MS).unref();
    signal.addEventListener('abort', () => clearInterval(timer), { once: true });
  }

  /**
   * Follows a stream.
   * @param handlers `onStream`, where it is given, gets the stream's own changes only, after `onChange`
   * @param start begins the list-watch, with the handlers that it is given in their place
   */
  follow<T>(
    stream: Stream,
    handlers: Omit<WatchHandlers<T>, 'onStream'> & Partial<WatchHandlers<T>>,
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
        handlers.onStream?.(change);
      },
    });
    this.#watches.set(stream, watch);
    return watch;
  }

  /** @param now an instant at which this process is awake */
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
