import type { IncomingMessage } from 'node:http';
import { FOREIGN_LIMITS } from '../core/api/index.ts';

/** Why a body is not read, with the HTTP status for the answer. */
export class BodyError extends Error {
  readonly status: 413 | 415 | 503;

  constructor(status: 413 | 415 | 503, message: string) {
    super(message);
    this.status = status;
  }
}

/** Bodies up to this length are always read; the limit on connections bounds their total. Reviews have 3 to 20 KB. */
export const SMALL_BODY_BYTES = FOREIGN_LIMITS.review.loopBytes;

/** Room for five of the largest reviews at once. In a process with 512 MiB, there is room to parse them as well. */
const LARGE_BODIES_BYTES = 40 * 1024 * 1024;

interface BodyBeingRead {
  /** The size of its buffer in bytes. */
  held: number;
  /** Abandons a body that is still being read. */
  readonly giveUp: () => void;
}

/**
 * The memory for large bodies that are being read or processed. If there is no room for a body, the one that has been
 * arriving for longest is abandoned: the API server sends a review at once, so that one is the least likely to be a review.
 */
export class LargeBodies {
  #held = 0;
  readonly #arriving = new Set<BodyBeingRead>();

  /** @returns false if there is still no room */
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

  /** Marks a body as complete, after which it is not abandoned. */
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
 * Reads a whole body. If the client disconnects before its end, `done` is not called.
 * @param most bytes; what follows them is not read
 * @param done takes the body; what it returns resolves when the body is no longer needed
 * @param large accounts for bodies longer than {@link SMALL_BODY_BYTES}
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
    // Nearly every body arrives in one piece, which needs no copy. Keeping pieces of one byte each would take a hundred
    // times their length.
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
  // A broken connection emits an error, which would end the process without a listener.
  request.on('data', onData).on('end', onEnd).on('error', ignore);
}

function ignore(): void {}

/**
 * The buffer with a chunk appended after its first `length` bytes. If the chunk does not fit, uses a new buffer of the
 * expected length, or of twice the length.
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

/** Why the headers alone are reason to refuse the body; undefined: they are not. */
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
