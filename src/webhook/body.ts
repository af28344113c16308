import type { IncomingMessage } from 'node:http';
import { FOREIGN_LIMITS } from '../core/api/index.ts';

/** Why a body is not read, with the HTTP status of the answer. */
export class BodyError extends Error {
  readonly status: 413 | 415 | 503;

  constructor(status: 413 | 415 | 503, message: string) {
    super(message);
    this.status = status;
  }
}

/** Bodies up to this length are always read: with the limit of connections, that bounds them. Reviews take 3 to 20 KB. */
export const SMALL_BODY_BYTES = FOREIGN_LIMITS.review.loopBytes;

/** Five of the largest reviews at once. With 512 MiB for the process, there is room for them to be parsed as well. */
const LARGE_BODIES_BYTES = 40 * 1024 * 1024;

interface BodyBeingRead {
  /** The size of its buffer in bytes. */
  held: number;
  /** Drops a body that is still being read. */
  readonly giveUp: () => void;
}

/**
 * The memory for large bodies that are being read or processed. A body that finds no room takes it from the one that has
 * been arriving for longest: the API server sends a review at once, so that one is the least likely to be a review.
 */
export class LargeBodies {
  #held = 0;
  readonly #arriving = new Set<BodyBeingRead>();

  /** @returns false when there is no room for it even then */
  hold(reading: BodyBeingRead, bytes: number): boolean {
    this.#held += bytes - reading.held;
    reading.held = bytes;
    this.#arriving.add(reading);
    for (const oldest of this.#arriving) {
      if (this.#held <= LARGE_BODIES_BYTES || oldest === reading) break;
      oldest.giveUp();
    }
    return this.#held <= LARGE_BODIES_BYTES;
  }

  /** The body is complete, and can no longer be dropped. */
  arrived(reading: BodyBeingRead): void {
    this.#arriving.delete(reading);
  }

  release(reading: BodyBeingRead): void {
    this.#arriving.delete(reading);
    this.#held -= reading.held;
    reading.held = 0;
  }
}

/**
 * Reads a whole body. Where the client disconnects before its end, `done` is not called.
 * @param most bytes; what comes after them is left unread
 * @param done what it returns ends when the body is no longer needed
 * @param large where bodies beyond {@link SMALL_BODY_BYTES} are accounted for
 */
export function readBody(
  request: IncomingMessage,
  most: number,
  done: (body: Buffer | BodyError) => Promise<void> | void,
  large = new LargeBodies(),
): void {
  const refusal = refusalOf(request, most);
  if (refusal !== undefined) return void done(refusal);
  const expected = Math.min(Number(request.headers['content-length']), SMALL_BODY_BYTES);
  let buffer: Buffer | undefined;
  let length = 0;
  const refuse = (error: BodyError) => {
    request.off('data', onData).off('end', onEnd).off('close', onClose).pause();
    buffer = undefined;
    large.release(reading);
    void done(error);
  };
  const reading: BodyBeingRead = { held: 0, giveUp: () => refuse(busy()) };
  const onData = (chunk: Buffer) => {
    if (length + chunk.length > most) return refuse(tooLong(most));
    // Nearly every body comes in one piece, which needs no copy. Pieces of a byte each would take a hundred times
    // their length if they were kept.
    buffer = buffer === undefined ? chunk : appended(buffer, length, chunk, expected, most);
    length += chunk.length;
    if (buffer.length <= SMALL_BODY_BYTES || buffer.length === reading.held) return;
    if (reading.held === 0) request.on('close', onClose);
    if (!large.hold(reading, buffer.length)) refuse(busy());
  };
  const onEnd = () => {
    if (reading.held > 0) {
      request.off('close', onClose);
      large.arrived(reading);
    }
    const ended = done(buffer?.subarray(0, length) ?? Buffer.alloc(0));
    if (reading.held > 0) void Promise.resolve(ended).finally(() => large.release(reading));
  };
  const onClose = () => large.release(reading);
  // A connection that breaks emits an error, which would end the process if it had no listener.
  request.on('data', onData).on('end', onEnd).on('error', ignore);
}

function ignore(): void {}

/**
 * The buffer with a chunk after its first `length` bytes; where it does not fit, in one of the expected length, or of
 * twice the length.
 */
function appended(buffer: Buffer, length: number, chunk: Buffer, expected: number, most: number): Buffer {
  const needed = length + chunk.length;
  if (needed <= buffer.length) {
    chunk.copy(buffer, length);
    return buffer;
  }
  const size = needed <= expected ? expected : Math.min(most, Math.max(2 * needed, 4096));
  const larger = Buffer.allocUnsafeSlow(size);
  buffer.copy(larger, 0, 0, length);
  chunk.copy(larger, length);
  return larger;
}

/** The refusal that the headers alone justify, if any. */
function refusalOf({ headers }: IncomingMessage, most: number): BodyError | undefined {
  const encoding = headers['content-encoding'] ?? 'identity';
  if (encoding.toLowerCase() !== 'identity') return new BodyError(415, 'compressed bodies are not read');
  return Number(headers['content-length']) > most ? tooLong(most) : undefined;
}

function tooLong(most: number): BodyError {
  return new BodyError(413, `the body is longer than ${most} bytes`);
}

function busy(): BodyError {
  return new BodyError(503, `too many bodies over ${SMALL_BODY_BYTES} bytes at once; send it again`);
}
