import { isRecord, jsonIn, UserError } from '../core/api/index.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure, KubeFailure } from './failure.ts';
import { listSome } from './list.ts';
import { ask, newAgent, readText } from './request.ts';
import type { Resource } from './resource.ts';

/** For an answer to begin, and for each pause in it. The API server itself waits this long for a pod that it proxies. */
const ANSWER_MS = 30_000;

/** A controller-manager's scrape has half a megabyte, a busy API server's some tens. */
const LONGEST_ANSWER = 256 * 1024 * 1024;

export type Json = Readonly<Record<string, unknown>>;

/** Requests of a command to a server, over connections that it keeps. Every method throws KubeFailure. */
export class ApiReader {
  readonly connection: KubeConnection;
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #closing = new AbortController();
  readonly #signal: AbortSignal;

  /** @param signal ends all requests, as {@link close} does */
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

  /** The objects of a collection, `most` of them at the most. */
  list<T>(resource: Resource<T>, most = Number.POSITIVE_INFINITY): Promise<readonly T[]> {
    return listSome(resource, this.connection, { signal: this.#signal, answerMs: ANSWER_MS, most });
  }

  /**
   * Posts what stores nothing: a review, or a dry run.
   * @returns the answer, and the warnings of admission as RFC 7234 writes them; empty if there are none
   */
  async post(path: string, object: object): Promise<{ readonly answer: Json; readonly warnings: string }> {
    const body = { contentType: 'application/json', text: JSON.stringify(object) };
    const { text, warning } = await this.#ask({ method: 'POST', path, body });
    return { answer: objectIn(text), warnings: String(warning) };
  }

  async #ask(request: Pick<Parameters<typeof ask>[1], 'method' | 'path' | 'body'>) {
    const response = await ask(this.connection, {
      ...request,
      // As `kubectl get --raw` asks for objects and for metrics.
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

/** Messages of servers end with a newline, and proxies answer with pages. */
export function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').trim();
}
