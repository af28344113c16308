import type { IncomingMessage } from 'node:http';

/** A body that is not read, and the status that says so. */
export class BodyError extends Error {
  readonly status: 413 | 415;

  constructor(status: 413 | 415, message: string) {
    super(message);
    this.status = status;
  }
}

/**
 * Reads a body whole. Where it is cut short nothing is called: nobody is left to be answered.
 * @param most bytes; what comes after them is left unread
 */
export function readBody(
  request: IncomingMessage,
  most: number,
  done: (body: Buffer | BodyError) => void,
): void {
  const announced = refusalOf(request, most);
  if (announced !== undefined) {
    done(announced);
    return;
  }
  const chunks: Buffer[] = [];
  let bytes = 0;
  const onData = (chunk: Buffer) => {
    bytes += chunk.length;
    chunks.push(chunk);
    if (bytes <= most) return;
    request.off('data', onData).off('end', onEnd).pause();
    done(tooLong(most));
  };
  const onEnd = () => done(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks, bytes));
  request.on('data', onData).on('end', onEnd);
  // A connection that breaks emits an error, which unheard would end the process.
  request.on('error', () => {});
}

/** What the headers alone rule out. */
function refusalOf({ headers }: IncomingMessage, most: number): BodyError | undefined {
  const encoding = headers['content-encoding'] ?? 'identity';
  if (encoding.toLowerCase() !== 'identity') return new BodyError(415, 'compressed bodies are not read');
  return Number(headers['content-length']) > most ? tooLong(most) : undefined;
}

function tooLong(most: number): BodyError {
  return new BodyError(413, `the body is longer than ${most} bytes`);
}
