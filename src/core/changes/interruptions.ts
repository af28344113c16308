import type { Stream } from '../lag/events.ts';

/** A time in which a stream told nothing, or told it late. */
export interface Interruption {
  readonly stream: Stream;
  /** Milliseconds of the monotonic clock. */
  readonly since: number;
  /** Undefined: it goes on. */
  readonly until: number | undefined;
  /** Why; undefined: nobody knows. */
  readonly cause: string | undefined;
}

/** Notes when streams are interrupted, from the first time on that each is current. */
export class Interruptions {
  readonly #ended: Interruption[] = [];
  readonly #open = new Map<Stream, Interruption>();
  readonly #begun = new Set<Stream>();

  /** @returns the interruption that this begins */
  broken(stream: Stream, at: number): Interruption | undefined {
    if (!this.#begun.has(stream) || this.#open.has(stream)) return undefined;
    const interruption = { stream, since: at, until: undefined, cause: undefined };
    this.#open.set(stream, interruption);
    return interruption;
  }

  /** Why the stream is interrupted: what is said last before it is current again is forgotten, the first counts. */
  because(stream: Stream, cause: string): void {
    const open = this.#open.get(stream);
    if (open?.cause === undefined && open !== undefined) this.#open.set(stream, { ...open, cause });
  }

  /** @returns the interruption that this ends */
  current(stream: Stream, at: number): Interruption | undefined {
    this.#begun.add(stream);
    const open = this.#open.get(stream);
    if (open === undefined) return undefined;
    this.#open.delete(stream);
    const ended = { ...open, until: at };
    this.#ended.push(ended);
    return ended;
  }

  /** In the order in which they ended; those that go on come last. */
  get all(): readonly Interruption[] {
    return [...this.#ended, ...this.#open.values()];
  }

  /** Whether every stream of these has been current at least once. */
  begun(streams: readonly Stream[]): boolean {
    return streams.every((stream) => this.#begun.has(stream));
  }
}
