import { open } from 'node:fs/promises';
import type { Agent, RequestOptions } from 'node:http';
import https from 'node:https';
import { http } from '../cluster/index.ts';
import { pause } from '../timing/index.ts';
import {
  FIRST_PORT,
  type LossKind,
  PORTS,
  type RequestOutcome,
  type TrafficPlan,
  type TrafficReport,
  type Way,
} from './traffic-plan.ts';

/** How often requests are started; each time, all those that have become due. */
const TICK_MS = 5;
const REPORT_MS = 500;
/** How many connections a keep-alive client has. Requests wait for one, which counts towards their time. */
const KEPT_CONNECTIONS = 8;
/** After this many local ports in a row that are in use, none is available. */
const MOST_TRIES = 100;

const KINDS: Readonly<Record<string, LossKind>> = {
  ECONNREFUSED: 'refused',
  ECONNRESET: 'reset',
  EPIPE: 'reset',
  ETIMEDOUT: 'timeout',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
  EAI_AGAIN: 'unreachable',
  ENOTFOUND: 'unreachable',
};
const PORT_TAKEN: ReadonlySet<string | undefined> = new Set(['EADDRINUSE', 'EADDRNOTAVAIL', 'EACCES']);

/** Milliseconds since the epoch; never goes back. */
export const wallClock = (): number => performance.timeOrigin + performance.now();

/**
 * Sends what the plan asks for. Requests start by the clock, however slowly earlier ones are answered, each on a connection
 * and a source port of its own. Resolves when the time is over or the signal has aborted.
 * @param report called twice a second
 * @param random in [0, 1): determines the first port, so that the next run does not begin with the same ports
 */
export async function sendTraffic(
  plan: TrafficPlan,
  report: (each: TrafficReport) => void,
  { signal, random = Math.random }: { readonly signal: AbortSignal; readonly random?: () => number },
): Promise<void> {
  const ports = portsFrom(Math.floor(random() * PORTS));
  const senders = plan.ways.map((way, index) => new WaySender(plan, way, index, ports));
  const startedAt = wallClock();
  let sequence = 0;
  let lateMs = 0;
  const flush = () => {
    const now = wallClock();
    const until = Math.floor(Math.min(now, ...senders.map((each) => each.oldestOpen)));
    const outcomes = senders.flatMap((each) => each.take());
    report({ sequence, until, lateMs: Math.round(lateMs), outcomes });
    sequence += 1;
    lateMs = 0;
  };
  const sending = setInterval(() => {
    const elapsed = wallClock() - startedAt;
    for (const each of senders) lateMs = Math.max(lateMs, each.startDue(elapsed));
  }, TICK_MS);
  const reporting = setInterval(flush, REPORT_MS);
  await pause(plan.seconds * 1_000, signal);
  clearInterval(sending);
  await Promise.all(senders.map((each) => each.settled()));
  clearInterval(reporting);
  flush();
}

export const CONNTRACK = '/proc/net/nf_conntrack';

/**
 * How many unanswered connections through these ClusterIPs are in this machine's conntrack. A client that gets one of their
 * source ports again is sent to the same pod, which may be dead.
 * @returns undefined if conntrack cannot be read: that takes root on a node, and not every kernel allows it
 */
export async function hanging(addresses: readonly string[], file = CONNTRACK): Promise<number | undefined> {
  if (addresses.length === 0) return 0;
  try {
    const table = await open(file);
    let count = 0;
    for await (const line of table.readLines())
      if (line.includes(' SYN_SENT ') && addresses.some((each) => line.includes(` dst=${each} `))) count += 1;
    return count;
  } catch {
    return undefined;
  }
}

function* portsFrom(first: number): Generator<number, undefined> {
  for (let index = 0; index < PORTS; index += 1) yield FIRST_PORT + ((first + index) % PORTS);
  return undefined;
}

class WaySender {
  readonly #plan: TrafficPlan;
  readonly #way: Way;
  readonly #index: number;
  readonly #ports: Generator<number, undefined>;
  readonly #agent: Agent | false;
  readonly #open = new Map<Promise<void>, number>();
  #ended: RequestOutcome[] = [];
  #started = 0;

  constructor(plan: TrafficPlan, way: Way, index: number, ports: Generator<number, undefined>) {
    this.#plan = plan;
    this.#way = way;
    this.#index = index;
    this.#ports = ports;
    const { Agent } = way.url.startsWith('https:') ? https : http;
    this.#agent = way.keepAlive && new Agent({ keepAlive: true, maxSockets: KEPT_CONNECTIONS });
  }

  /** @returns how late the latest of them is, in milliseconds */
  startDue(elapsedMs: number): number {
    const perMs = this.#plan.rate / 1_000;
    let lateMs = 0;
    while (this.#started < Math.floor(elapsedMs * perMs)) {
      this.#started += 1;
      lateMs = Math.max(lateMs, elapsedMs - this.#started / perMs);
      const at = Math.round(wallClock());
      const request = this.#request(at).finally(() => this.#open.delete(request));
      this.#open.set(request, at);
    }
    return lateMs;
  }

  get oldestOpen(): number {
    return Math.min(...this.#open.values());
  }

  take(): readonly RequestOutcome[] {
    const ended = this.#ended;
    this.#ended = [];
    return ended;
  }

  async settled(): Promise<void> {
    await Promise.all(this.#open.keys());
    if (this.#agent !== false) this.#agent.destroy();
  }

  async #request(at: number): Promise<void> {
    const begun = performance.now();
    for (let tries = 0; tries < MOST_TRIES; tries += 1) {
      const localPort = this.#agent === false ? this.#ports.next().value : undefined;
      // All ports have been used once; using one again would measure conntrack's memory.
      if (this.#agent === false && localPort === undefined) return;
      const result = await this.#send(localPort);
      if (result === 'portTaken') continue;
      const tookMs = Math.round(performance.now() - begun);
      this.#ended.push({ way: this.#index, at, tookMs, ...result });
      return;
    }
  }

  #send(localPort: number | undefined): Promise<Pick<RequestOutcome, 'lost' | 'address'> | 'portTaken'> {
    const { url, address, verify } = this.#way;
    const { method, headers, timeoutMs } = this.#plan;
    const target = new URL(url);
    const options: RequestOptions & https.RequestOptions & { autoSelectFamily: boolean } = {
      method,
      agent: this.#agent,
      headers: { host: target.host, 'user-agent': 'linger-prove', ...headers },
      // A second attempt at another address would be a second request.
      autoSelectFamily: false,
      ...(address !== undefined && { hostname: address, servername: target.hostname }),
      ...(localPort !== undefined && { localPort }),
      ...(!verify && { rejectUnauthorized: false }),
    };
    return new Promise((resolve) => {
      let remote: string | undefined;
      let timedOut = false;
      let isOver = false;
      const request = (target.protocol === 'https:' ? https : http).request(target, options);
      const expire = () => {
        if (isOver) return;
        timedOut = true;
        request.destroy(new Error('timeout'));
      };
      // After this process has stalled, its timers run before its sockets are read, so check again after the sockets.
      const timer = setTimeout(() => setImmediate(expire), timeoutMs);
      const settle = () => {
        isOver = true;
        clearTimeout(timer);
      };
      const end = (lost?: LossKind) => {
        settle();
        resolve({ lost, ...(address === undefined && remote !== undefined && { address: remote }) });
      };
      request.on('socket', (socket) => {
        if (!socket.connecting) return;
        socket.once('lookup', (_error, ip: string) => {
          remote = ip;
        });
      });
      request.on('response', (response) => {
        response.resume();
        response.on('end', () => end((response.statusCode ?? 0) >= 500 ? '5xx' : undefined));
        response.on('error', () => end(timedOut ? 'timeout' : 'reset'));
      });
      request.on('error', (error: NodeJS.ErrnoException) => {
        if (PORT_TAKEN.has(error.code) && localPort !== undefined) {
          settle();
          return resolve('portTaken');
        }
        end(timedOut ? 'timeout' : (KINDS[error.code ?? ''] ?? 'malformed'));
      });
      request.end();
    });
  }
}
