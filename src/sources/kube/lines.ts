import { WatchFailure } from '../../kube/failure.ts';

/**
 * The longest line. etcd takes objects of 1.5 MiB (--max-request-bytes), in protobuf; the same as JSON is a few times
 * as long. 16 MiB is beyond any object there can be.
 */
export const LONGEST_LINE = 16 * 1024 * 1024;

const LINE_FEED = 10;

/** Cuts what arrives into lines, holding at most one that is incomplete. */
export class LineReader {
  readonly #longest: number;
  #held: Buffer[] = [];
  #heldBytes = 0;

  constructor(longest = LONGEST_LINE) {
    this.#longest = longest;
  }

  /**
   * The lines that this chunk completes, without their ends; empty ones are left out. They may be views of the chunk.
   * @throws WatchFailure `Malformed` for a line that is too long
   */
  *push(chunk: Buffer): Generator<Buffer> {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(LINE_FEED, start);
      if (end < 0) break;
      const line = this.#complete(chunk, start, end);
      start = end + 1;
      if (line.length > 0) yield line;
    }
    if (start < chunk.length) this.#hold(chunk.subarray(start));
  }

  /** Whether a line was begun and not ended. */
  get incomplete(): boolean {
    return this.#heldBytes > 0;
  }

  #complete(chunk: Buffer, start: number, end: number): Buffer {
    const last = chunk.subarray(start, end);
    if (this.#heldBytes === 0) return last;
    this.#hold(last);
    const line = Buffer.concat(this.#held, this.#heldBytes);
    this.#held = [];
    this.#heldBytes = 0;
    return line;
  }

  #hold(part: Buffer): void {
    this.#held.push(part);
    this.#heldBytes += part.length;
    if (this.#heldBytes > this.#longest) {
      throw new WatchFailure('Malformed', `a line of more than ${this.#longest} bytes`);
    }
  }
}
