import { isRecord, jsonIn } from '../../core/schema/shape.ts';
import type { KubeConnection } from '../../kube/connection.ts';
import { asFailure, WatchFailure } from '../../kube/failure.ts';
import { ask, newAgent, readText } from '../../kube/request.ts';

/** For an answer to begin, and for each pause in it. The API server itself waits this long for a pod that it proxies. */
const ANSWER_MS = 30_000;

/** A controller-manager's scrape has half a megabyte, a busy API server's some tens. */
const LONGEST_ANSWER = 256 * 1024 * 1024;

/** Reads from a server over one connection. */
export class ApiReader {
  readonly #connection: KubeConnection;
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #signal: AbortSignal;

  constructor(connection: KubeConnection, signal: AbortSignal) {
    this.#connection = connection;
    this.#agent = newAgent(connection);
    this.#signal = signal;
  }

  /** @throws WatchFailure for anything but an answer of status 200; the signal's reason once that has aborted */
  async text(path: string, accept = '*/*'): Promise<string> {
    const request = { path, accept, agent: this.#agent, signal: this.#signal, answerMs: ANSWER_MS };
    return readText(await ask(this.#connection, request), LONGEST_ANSWER, ANSWER_MS);
  }

  /** @throws WatchFailure */
  async json(path: string): Promise<Readonly<Record<string, unknown>>> {
    const text = await this.text(path, 'application/json');
    const value: unknown = jsonIn(text);
    if (isRecord(value)) return value;
    throw new WatchFailure('Malformed', `expected an object, got ${text.slice(0, 100)}`);
  }

  close(): void {
    this.#agent.destroy();
  }
}

/** What went wrong, as one line. @throws the signal's reason once that has aborted */
export function messageOf(thrown: unknown, signal: AbortSignal): string {
  signal.throwIfAborted();
  return oneLine(asFailure(thrown).message);
}

/** Servers end their words with a newline, and proxies answer with pages. */
export function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}
