import { isRecord, jsonIn, UserError } from '../core/api/index.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure, KubeFailure } from './failure.ts';
import { listSome } from './list.ts';
import { ask, newAgent, readText } from './request.ts';
import type { Resource } from './resource.ts';

/**
 * How long a response may take to begin, and how long each pause in it may be. The API server itself waits this long for a
 * pod that it proxies.
 */
const ANSWER_MS = 30_000;

/** A controller-manager's scrape has half a megabyte, that of a busy API server some tens. */
const LONGEST_ANSWER = 256 * 1024 * 1024;

export type Json = Readonly<Record<string, unknown>>;

/** A command's requests to an API server, over connections that are kept open. Every method throws KubeFailure. */
export class ApiReader {
  readonly connection: KubeConnection;
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #closing = new AbortController();
  readonly #signal: AbortSignal;

  /** @param signal ends all requests, like {@link close} */
  constructor(connection: KubeConnection, signal?: AbortSignal) {
    this.connection = connection;
    this.#agent = newAgent(connection);
    this.#signal = AbortSignal.any([this.#closing.signal, signal ?? []].flat());
  }

  async text(path: string): Promise<string> {
    return (await this.#ask({ path })).text;
  }

  async json(path: string): Promise<Json> {
    return objectIn(await this.text(path));
  }

  /** The objects of a collection, at most `most` of them. */
  list<T>(resource: Resource<T>, most = Number.POSITIVE_INFINITY): Promise<readonly T[]> {
    return listSome(resource, this.connection, { signal: this.#signal, answerMs: ANSWER_MS, most });
  }

  /**
   * Posts an object that is not stored: a review, or a dry run.
   * @returns the answer, and warnings of admission in the format of RFC 7234; empty if there are none
   */
  async post(path: string, object: object): Promise<{ readonly answer: Json; readonly warnings: string }> {
    const body = { contentType: 'application/json', text: JSON.stringify(object) };
    const { text, warning } = await this.#ask({ method: 'POST', path, body });
    return { answer: objectIn(text), warnings: String(warning) };
  }

  async #ask(request: Pick<Parameters<typeof ask>[1], 'method' | 'path' | 'body'>) {
    const response = await ask(this.connection, {
      ...request,
      // The same as `kubectl get --raw` sends for objects and for metrics.
      accept: 'application/json, */*',
      agent: this.#agent,
      signal: this.#signal,
      answerMs: ANSWER_MS,
    });
    const { warning = '' } = response.headers;
    return { text: await readText(response, LONGEST_ANSWER, ANSWER_MS), warning };
  }

  close(): void {
    this.#closing.abort();
    this.#agent.destroy();
  }
}

function objectIn(text: string): Json {
  const value = jsonIn(text);
  if (isRecord(value)) return value;
  throw new KubeFailure('Malformed', `expected an object, got ${text.slice(0, 100)}`);
}

export function messageOf(thrown: unknown): string {
  return oneLine(thrown instanceof UserError ? thrown.message : asFailure(thrown).message);
}

/** Messages of servers end with a newline, and proxies respond with whole pages. */
export function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}
