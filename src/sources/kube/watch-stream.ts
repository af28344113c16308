import type { IncomingMessage } from 'node:http';
import { WatchFailure } from '../../kube/failure.ts';
import { LineReader } from './lines.ts';

export interface WatchStreamOptions {
  /** Called with each line, and when its chunk arrived. What it throws ends the watch. */
  readonly onLine: (line: Buffer, at: number) => void;
  readonly onBytes: (bytes: number, at: number) => void;
  readonly silenceMs: number;
  readonly clock: () => number;
}

/**
 * Reads a watch's answer to its end; its connection is gone then.
 * @returns `Ended`: the server has closed it in good order; `Silent`: nothing came for too long
 * @throws WatchFailure `Cut` or `Malformed`, or what `onLine` threw
 */
export async function readWatch(
  response: IncomingMessage,
  options: WatchStreamOptions,
): Promise<'Ended' | 'Silent'> {
  const { onLine, onBytes, silenceMs, clock } = options;
  const lines = new LineReader();
  const silent = Promise.withResolvers<'Silent'>();
  const silence = new SilenceTimer(silenceMs, clock, () => silent.resolve('Silent'));
  try {
    const ended = new Promise<'Ended'>((resolve, reject) => {
      response.on('data', (chunk: Buffer) => {
        const at = clock();
        silence.heard(at);
        onBytes(chunk.length, at);
        try {
          for (const line of lines.push(chunk)) onLine(line, at);
        } catch (error) {
          reject(error);
          response.destroy();
        }
      });
      response.on('end', () => {
        if (lines.incomplete) reject(new WatchFailure('Cut', 'the answer ended in the middle of a line'));
        else resolve('Ended');
      });
      response.on('error', (error) =>
        reject(error instanceof WatchFailure ? error : new WatchFailure('Cut', error.message)),
      );
      response.on('close', () => reject(new WatchFailure('Cut', 'the connection was closed')));
    });
    return await Promise.race([ended, silent.promise]);
  } finally {
    silence.stop();
    response.destroy();
  }
}

/** Looks at the end of a silence whether it was one: setting a timer anew with each chunk would cost more. */
class SilenceTimer {
  readonly #silenceMs: number;
  readonly #clock: () => number;
  readonly #onSilence: () => void;
  #heardAt: number;
  #timer: NodeJS.Timeout;

  constructor(silenceMs: number, clock: () => number, onSilence: () => void) {
    this.#silenceMs = silenceMs;
    this.#clock = clock;
    this.#onSilence = onSilence;
    this.#heardAt = clock();
    this.#timer = this.#after(silenceMs);
  }

  heard(at: number): void {
    this.#heardAt = at;
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #after(ms: number): NodeJS.Timeout {
    return setTimeout(() => this.#look(), ms).unref();
  }

  #look(): void {
    const left = this.#heardAt + this.#silenceMs - this.#clock();
    // Timers are rounded down to whole milliseconds.
    if (left > 1) this.#timer = this.#after(left);
    else this.#onSilence();
  }
}
