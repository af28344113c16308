import http from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Endpoint } from './conntrack.ts';
import { type Source, sourceKey } from './ports.ts';
import type { SentLoss, Traffic } from './report.ts';
import { sendRequest } from './request.ts';
import type { Target } from './targets.ts';

export interface KeepAliveOptions {
  readonly connectTimeoutMs?: number;
  readonly answerTimeoutMs?: number;
  readonly path?: string;
}

/** Between an answer and the next request on the same connection. */
const PAUSE_MS = 50;

/**
 * Clients with a connection each that they keep for as long as the other side lets them, and one request at a time on
 * it. None is sent again: what a client would do that repeats a request is for the reader to say.
 */
export class KeepAliveStream implements Traffic {
  readonly losses: SentLoss[] = [];
  readonly answersByPod: Record<string, number> = {};
  total = 0;
  answered = 0;
  /** A request waits for the one before it, so none has a time of its own to be late for. */
  readonly latestStartMs = 0;
  seconds = 0;
  readonly #options: KeepAliveOptions;
  readonly #target: Target;
  readonly #clients: number;
  readonly #stopping = new AbortController();
  #running: Promise<unknown> = Promise.resolve();
  #startedAt = 0;

  constructor(options: KeepAliveOptions, target: Target, clients: number) {
    this.#options = options;
    this.#target = target;
    this.#clients = clients;
  }

  start(): void {
    this.#startedAt = performance.now();
    this.#running = Promise.all(Array.from({ length: this.#clients }, () => this.#client()));
  }

  async stop(): Promise<void> {
    this.#stopping.abort();
    this.seconds = Math.round((performance.now() - this.#startedAt) / 100) / 10;
    await this.#running;
  }

  async #client(): Promise<void> {
    const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
    const sentTo = this.#target.next();
    if (sentTo === undefined) throw new Error('there is no endpoint to begin with');
    // The latest known source: a connection that the other side has just closed no longer knows its own.
    let source: Source | undefined;
    const connected = (from: Source) => {
      if (from.port !== 0) source = from;
    };
    while (!this.#stopping.signal.aborted) {
      const loss = await this.#request(sentTo, agent, connected);
      if (loss !== undefined) this.losses.push({ ...loss, source: source ? sourceKey(source) : '' });
      await sleep(PAUSE_MS);
    }
    agent.destroy();
  }

  async #request(
    sentTo: Endpoint,
    agent: http.Agent,
    connected: (source: Source) => void,
  ): Promise<Omit<SentLoss, 'source'> | undefined> {
    const openedAt = Date.now();
    this.total += 1;
    const outcome = await sendRequest({
      target: sentTo,
      agent,
      path: this.#options.path ?? '/',
      connectTimeoutMs: this.#options.connectTimeoutMs ?? 2_000,
      answerTimeoutMs: this.#options.answerTimeoutMs ?? 5_000,
      connected,
    });
    if (outcome.result === 'answered') {
      this.answered += 1;
      this.answersByPod[outcome.pod] = (this.answersByPod[outcome.pod] ?? 0) + 1;
      return undefined;
    }
    const kind = outcome.result === 'lost' ? outcome.kind : 'unreachable';
    return { kind, detail: outcome.detail, openedAt, failedAt: Date.now(), sentTo };
  }
}
