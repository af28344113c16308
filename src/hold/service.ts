import { createServer, type Server, type Socket } from 'node:net';
import { isProven, proofOf, type SigningKeys } from '../certs/index.ts';
import { canonicalAddress } from '../core/api/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { Caller, type CallerHost, HOLD_LIMITS, type HoldLimits, type Route } from './caller.ts';
import type { HeldPod, HeldPods } from './held-pods.ts';
import type { Holds } from './holds.ts';

interface HoldServiceOptions {
  readonly holds: Holds;
  readonly pods: HeldPods;
  readonly route: () => Route;
  /** The keys with which replicas authenticate to each other. */
  readonly keys: () => SigningKeys;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly logger: Logger;
  readonly limits?: HoldLimits;
}

const RELAYED = /^linger-hold-relay\/2 ([\dA-Fa-f.:]{2,45}) ([\w-]{22})$/;
const TICK_MS = 50;

/**
 * The server that helpers call. It uses plain TCP, because a token only permits waiting, and the answer is one of three
 * words. A follower relays the bytes to the leader.
 */
export class HoldService implements CallerHost {
  readonly options: HoldServiceOptions;
  readonly limits: HoldLimits;
  readonly server: Server;
  /** Oldest first. */
  readonly #callers = new Set<Caller>();
  /** Connections that have a deadline, or wait: they are checked periodically. Oldest first. */
  readonly #pending = new Set<Caller>();
  readonly #perSource = new Map<string, number>();
  readonly #perPod = new Map<HeldPod, Set<Caller>>();
  /** How many unknown tokens each source has sent in this minute. */
  #unknown = new Map<string, number>();
  #unknownSince = 0;
  readonly #once: LogOnce;
  #timer: NodeJS.Timeout | undefined;
  #nextAgain = 0;

  constructor(options: HoldServiceOptions) {
    this.options = options;
    this.limits = options.limits ?? HOLD_LIMITS;
    this.#once = new LogOnce(options.logger);
    this.server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 15_000 }, (socket) =>
      this.#accept(socket),
    );
  }

  get connections(): number {
    return this.#callers.size;
  }

  /** Closes connections, so that helpers reconnect and reach the current leader. */
  hangUp(which = (_: Caller) => true): void {
    for (const caller of this.#callers) if (which(caller)) caller.end();
  }

  close(): void {
    clearInterval(this.#timer);
    this.server.close();
    this.hangUp();
  }

  #accept(socket: Socket): void {
    const source = canonicalAddress(socket.remoteAddress ?? '');
    socket.on('error', () => undefined);
    if (source === undefined || !this.#hasRoom(source) || !this.count(source, 1)) {
      socket.destroy();
      return;
    }
    const caller = new Caller(this, socket, source);
    this.#callers.add(caller);
    this.#pending.add(caller);
    if (this.#timer !== undefined) return;
    this.#timer = setInterval(() => this.#tick(), TICK_MS).unref();
    this.#nextAgain = this.options.clock() + this.limits.again;
  }

  /** Whether there is a free slot. If necessary, frees one by closing a connection that has not sent its token. */
  #hasRoom(source: string): boolean {
    const { connections, kept } = this.limits;
    const places = this.options.pods.hasAddress(source) ? connections : connections - kept;
    if (this.#callers.size < places) return true;
    for (const caller of this.#pending) {
      if (caller.state !== 'Greeting') continue;
      caller.end();
      return true;
    }
    return false;
  }

  /** Starts to check the connection's deadline. */
  watch(caller: Caller): void {
    this.#pending.add(caller);
  }

  /** Forgets a connection that has ended. */
  remove(caller: Caller): void {
    this.#pending.delete(caller);
    if (this.#callers.delete(caller)) this.count(caller.source, -1);
  }

  /** @returns false if the address has too many connections already */
  count(source: string, by: 1 | -1): boolean {
    const count = (this.#perSource.get(source) ?? 0) + by;
    if (count > this.limits.perSource) return false;
    if (count <= 0) this.#perSource.delete(source);
    else this.#perSource.set(source, count);
    return true;
  }

  /** Whether another unknown token from this address may wait for its pod. */
  mayWait(source: string): boolean {
    const now = this.options.clock();
    if (now - this.#unknownSince > 60_000) {
      this.#unknown = new Map();
      this.#unknownSince = now;
    }
    const count = (this.#unknown.get(source) ?? 0) + 1;
    this.#unknown.set(source, count);
    return count <= this.limits.unknownPerMinute;
  }

  /** Adds a connection to the pod's hold. If there are too many, the source with the most loses its oldest one. */
  join(pod: HeldPod, caller: Caller): void {
    const callers = this.#perPod.get(pod) ?? new Set();
    this.#perPod.set(pod, callers.add(caller));
    const { perPod, perPodAndSource, containers } = this.limits;
    const many = 2 * Math.min(pod.terms?.containers ?? 0, containers);
    if (callers.size <= Math.max(perPodAndSource, many)) return;
    const bySource = Map.groupBy(callers, ({ source }) => source);
    const most = [...bySource.values()].reduce((a, b) => (b.length > a.length ? b : a));
    const isFull = callers.size > Math.max(perPod, 2 * many);
    if (isFull || most.length > Math.max(perPodAndSource, many)) most[0]?.end();
  }

  part(pod: HeldPod, caller: Caller): void {
    const callers = this.#perPod.get(pod);
    if (callers?.delete(caller) === true && callers.size === 0) this.#perPod.delete(pod);
  }

  #tick(): void {
    const now = this.options.clock();
    for (const caller of this.#pending) {
      caller.advance(now);
      if (caller.state === 'Held' || caller.state === 'Relayed') this.#pending.delete(caller);
    }
    if (now >= this.#nextAgain) {
      this.#nextAgain = now + this.limits.again;
      for (const caller of this.#callers) caller.sayAgain(now);
    }
    if (this.#callers.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /**
   * The line with which a follower tells the leader which address called. It is valid only for this greeting, and so for as
   * long as the token; it contains no time, because the clocks of nodes differ.
   */
  relayLine(source: string, greeting: string): string {
    return `linger-hold-relay/2 ${source} ${proofOf(this.options.keys()[0], source, greeting)}`;
  }

  /** @returns the address that called, if a replica has relayed this greeting */
  relayedSource(line: string, greeting: string): string | undefined {
    const [, source = '', proof = ''] = RELAYED.exec(line) ?? [];
    const address = canonicalAddress(source);
    if (isProven(proof, this.options.keys(), source, greeting) && address !== undefined) return address;
    this.#once.warn(
      'relay',
      {},
      'relayed connection refused: its proof does not match; all replicas must share one common.key',
    );
    return undefined;
  }
}
