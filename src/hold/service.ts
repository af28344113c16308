import { createHash } from 'node:crypto';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { FOREIGN_LIMITS, isHoldToken } from '../api/index.ts';
import { canonicalAddress, isProven, proofOf, type SigningKeys } from '../measurement/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { RateLimit } from '../timing/index.ts';
import type { HeldPod, HeldPods } from './held-pods.ts';
import type { Holds, TermedPod, Waiter } from './holds.ts';
import { witnessLine } from './quiet.ts';

/** Counts, and times in milliseconds. */
export const HOLD_LIMITS = {
  connections: 16_384,
  /** Connections per address: enough for all pods of a large node reconnecting at once behind the node's address. */
  perSource: 2_048,
  /** Connections per pod: its containers, and what reconnecting leaves behind. */
  perPod: 64,
  perPodAndSource: 24,
  /** Bytes of a line, without its end. */
  line: FOREIGN_LIMITS.witness.bytes,
  /** A helper sends two lines a second. */
  lines: { perSecond: 10, atOnce: 10 },
  /** Until the first line must have arrived. */
  greeting: 5_000,
  /** Without a byte from a held helper, which sends lines twice a second, or at least once in 2 s. */
  idle: 60_000,
  /** How long an unknown token waits for its pod to appear in the watch. */
  pending: 2_000,
  /** How many unknown tokens of one address may wait in a minute; further ones are answered at once. */
  unknownPerMinute: 120,
  /** How often `holding` is repeated. */
  again: 5_000,
  /**
   * How long a follower looks for a leader, and a leader for what its watches have missed: a lease that is not renewed
   * lasts 15 s, and is looked at every 2 s.
   */
  leaderless: 25_000,
  relayConnect: 1_000,
  relayPause: 250,
  /** How long a relay's statement of who called is valid: generous, because the clocks of nodes differ. */
  relayAge: 60_000,
};
export type HoldLimits = Readonly<typeof HOLD_LIMITS>;

/** Which replica holds pods: this one, another, or (undefined) none that is known. */
export type Route = 'here' | { readonly host: string; readonly port: number } | undefined;

interface HoldServiceOptions {
  readonly holds: Holds;
  readonly pods: HeldPods;
  readonly route: () => Route;
  /** By which replicas authenticate to each other. */
  readonly keys: () => SigningKeys;
  readonly clock: () => number;
  /** Milliseconds since the epoch. */
  readonly wall: () => number;
  readonly logger: Logger;
  readonly limits?: HoldLimits;
}

const GREETING = /^linger-hold\/1 (\S{1,64})$/;
const RELAYED = /^linger-hold-relay\/1 ([\dA-Fa-f.:]{2,45}) (\d{1,15}) ([\w-]{22})$/;
const TICK_MS = 50;

/**
 * The server that helpers call. It speaks plain TCP: a token is good for nothing but waiting, and what is answered is one
 * of three words. A replica that does not lead passes the bytes on to the one that does.
 */
export class HoldService {
  readonly options: HoldServiceOptions;
  readonly limits: HoldLimits;
  readonly server: Server;
  readonly #callers = new Set<Caller>();
  readonly #perSource = new Map<string, number>();
  readonly #perPod = new Map<HeldPod, Set<Caller>>();
  /** Unknown tokens by source, of this minute. */
  #unknown = new Map<string, number>();
  #unknownSince = 0;
  /** Callers that wait for their pod, for current watches or for a leader; checked periodically. */
  readonly #pending = new Set<Caller>();
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

  /** Ends every connection, so that helpers reconnect and reach the current leader. */
  hangUp(): void {
    for (const caller of this.#callers) caller.end();
  }

  close(): void {
    clearInterval(this.#timer);
    this.server.close();
    this.hangUp();
  }

  #accept(socket: Socket): void {
    const source = canonicalAddress(socket.remoteAddress ?? '');
    socket.on('error', () => undefined);
    if (source === undefined || this.#callers.size >= this.limits.connections || !this.count(source, 1)) {
      socket.destroy();
      return;
    }
    const caller = new Caller(this, socket, source);
    this.#callers.add(caller);
    socket.once('close', () => {
      caller.closed();
      this.#callers.delete(caller);
      this.#pending.delete(caller);
      this.count(caller.source, -1);
    });
    if (this.#timer !== undefined) return;
    this.#timer = setInterval(() => this.#tick(), TICK_MS).unref();
    this.#nextAgain = this.options.clock() + this.limits.again;
  }

  /** @returns false where the address has too many connections already */
  count(source: string, by: 1 | -1): boolean {
    const count = (this.#perSource.get(source) ?? 0) + by;
    if (count > this.limits.perSource) return false;
    if (count <= 0) this.#perSource.delete(source);
    else this.#perSource.set(source, count);
    return true;
  }

  /** Whether one more unknown token of this address may wait for its pod. */
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

  pend(caller: Caller): void {
    this.#pending.add(caller);
  }

  /** Adds a connection to the pod's hold; where there are too many, the source with the most loses its oldest. */
  join(pod: HeldPod, caller: Caller): void {
    const callers = this.#perPod.get(pod) ?? new Set();
    this.#perPod.set(pod, callers.add(caller));
    const bySource = Map.groupBy(callers, ({ source }) => source);
    const most = [...bySource.values()].reduce((a, b) => (b.length > a.length ? b : a));
    const { perPod, perPodAndSource } = this.limits;
    if (callers.size > perPod || most.length > perPodAndSource) most[0]?.end();
  }

  part(pod: HeldPod, caller: Caller): void {
    const callers = this.#perPod.get(pod);
    if (callers?.delete(caller) === true && callers.size === 0) this.#perPod.delete(pod);
  }

  #tick(): void {
    for (const caller of this.#pending)
      if (caller.isPending) caller.advance();
      else this.#pending.delete(caller);
    const now = this.options.clock();
    if (now >= this.#nextAgain) {
      this.#nextAgain = now + this.limits.again;
      for (const caller of this.#callers) caller.sayAgain(now);
    }
    if (this.#callers.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** The line by which a follower tells the leader who called, authenticated as a replica. */
  relayLine(source: string, greeting: string): string {
    const at = String(Math.round(this.options.wall()));
    return `linger-hold-relay/1 ${source} ${at} ${proofOf(this.options.keys()[0], source, at, greeting)}`;
  }

  /** @returns who called, where a replica has relayed the greeting */
  relayedSource(line: string, greeting: string): string | undefined {
    const [, source = '', at = '', proof = ''] = RELAYED.exec(line) ?? [];
    const address = canonicalAddress(source);
    const isGood =
      isProven(proof, this.options.keys(), source, at, greeting) &&
      Math.abs(this.options.wall() - Number(at)) <= this.limits.relayAge;
    if (isGood && address !== undefined) return address;
    this.#once.warn(
      'relay',
      {},
      'a relayed connection was refused: replicas must share their certificate, and their clocks',
    );
    return undefined;
  }
}

type CallerState = 'greeting' | 'pending' | 'held' | 'relayed' | 'ended';

/** One connection. */
class Caller implements Waiter {
  readonly #service: HoldService;
  readonly #socket: Socket;
  source: string;
  #state: CallerState = 'greeting';
  #text = '';
  /** The line of a relaying replica, until the greeting that it vouches for has arrived. */
  #relayLine: string | undefined;
  #isRelayed = false;
  #greeting = '';
  #token = '';
  #pod: HeldPod | undefined;
  #since: number;
  #upstream: Socket | undefined;
  #dialAt = 0;
  readonly #lines: RateLimit;
  #heardAt: number;
  /** Whether its token may wait for a pod to appear; undefined: that has not been asked yet. */
  #mayWait: boolean | undefined;

  constructor(service: HoldService, socket: Socket, source: string) {
    this.#service = service;
    this.#socket = socket;
    this.source = source;
    this.#since = service.options.clock();
    this.#lines = new RateLimit(service.limits.lines, this.#since);
    this.#heardAt = this.#since;
    socket.setTimeout(service.limits.greeting, () => this.end());
    socket.on('data', (chunk) => this.#hear(chunk));
  }

  /** The hold's final answer. */
  answer(word: 'release' | 'unsure'): void {
    if (this.#state === 'ended') return;
    this.#state = 'ended';
    this.#part();
    this.#socket.end(`${word}\n`);
    // A client that does not read the answer must not keep the connection.
    this.#socket.setTimeout(this.#service.limits.greeting, () => this.#socket.destroy());
  }

  end(): void {
    this.#state = 'ended';
    this.#part();
    this.#socket.destroy();
  }

  closed(): void {
    this.#part();
    this.#state = 'ended';
    this.#upstream?.destroy();
  }

  sayAgain(now: number): void {
    if (this.#state !== 'held') return;
    if (now - this.#heardAt > this.#service.limits.idle) this.end();
    else this.#say('holding');
  }

  get isPending(): boolean {
    return this.#state === 'pending';
  }

  /** Checks whether what it waits for is there. */
  advance(): void {
    const { options, limits } = this.#service;
    const now = options.clock();
    const waited = now - this.#since;
    const route = options.route();
    if (route !== 'here') {
      const canDial = route !== undefined && this.#upstream === undefined && now >= this.#dialAt;
      // Relaying a relayed call could loop, so the relaying replica has to look again.
      if (this.#isRelayed && waited > limits.pending) this.end();
      else if (canDial && !this.#isRelayed) this.#dial(route);
      else if (waited > limits.leaderless) this.answer('unsure');
    } else if (options.holds.blindSince !== undefined) {
      // `unsure`: the helper may have been held by another leader before, and then goes by what that one said.
      if (waited > limits.leaderless) this.answer('unsure');
    } else {
      const pod = options.pods.withToken(this.#token);
      const isLate = waited > limits.pending;
      // Counted once.
      if (pod === undefined && !isLate) this.#mayWait ??= this.#service.mayWait(this.source);
      if (pod?.terms !== undefined) this.#hold(pod as TermedPod);
      else if (isLate || (pod === undefined && !this.#mayWait)) this.answer('unsure');
    }
  }

  #hold(pod: TermedPod): void {
    const { options } = this.#service;
    this.#state = 'held';
    this.#pod = pod;
    this.#heardAt = options.clock();
    this.#say('holding');
    options.holds.call(pod, this);
    this.#service.join(pod, this);
  }

  #hear(chunk: Buffer): void {
    if (this.#state === 'ended' || this.#state === 'relayed') return;
    // Lines are ASCII; other bytes cannot form a known line.
    const parts = (this.#text + chunk.toString('latin1')).split('\n');
    this.#text = parts.pop() ?? '';
    const { line: longest } = this.#service.limits;
    if (this.#text.length > longest) {
      this.end();
      return;
    }
    const now = this.#service.options.clock();
    this.#heardAt = now;
    for (const part of parts) {
      if (part.length > longest || !this.#lines.take(now)) this.end();
      else this.#take(part, now);
      if (this.#hasEnded()) return;
    }
  }

  #hasEnded(): boolean {
    return this.#state === 'ended';
  }

  #take(line: string, now: number): void {
    const seen = this.#pod && witnessLine(line, now);
    if (this.#state === 'greeting') this.#greet(line, now);
    else if (seen !== undefined && this.#pod !== undefined)
      this.#service.options.holds.saw(this.#pod, this, seen);
  }

  #greet(line: string, now: number): void {
    if (this.#relayLine === undefined && line.startsWith('linger-hold-relay/1 ')) {
      this.#relayLine = line;
      return;
    }
    const [, token = ''] = GREETING.exec(line) ?? [];
    if (!isHoldToken(token) || (this.#relayLine !== undefined && !this.#adopt(this.#relayLine, line))) {
      this.end();
      return;
    }
    this.#greeting = line;
    this.#token = createHash('sha256').update(token).digest('hex');
    this.#state = 'pending';
    this.#since = now;
    this.#socket.setTimeout(this.#service.limits.idle, () => this.end());
    this.#service.pend(this);
    this.advance();
  }

  /** Takes on the source of the caller that the relaying replica names. */
  #adopt(relayLine: string, greeting: string): boolean {
    const source = this.#service.relayedSource(relayLine, greeting);
    if (source === undefined || !this.#service.count(source, 1)) return false;
    this.#service.count(this.source, -1);
    this.source = source;
    this.#isRelayed = true;
    return true;
  }

  #dial({ host, port }: { readonly host: string; readonly port: number }): void {
    const { options, limits } = this.#service;
    this.#dialAt = options.clock() + limits.relayConnect + limits.relayPause;
    const upstream = connect({ host, port, noDelay: true });
    this.#upstream = upstream;
    const timer = setTimeout(() => upstream.destroy(), limits.relayConnect).unref();
    let isThrough = false;
    upstream.on('error', () => undefined);
    upstream.once('connect', () => {
      clearTimeout(timer);
      if (!this.isPending) {
        upstream.destroy();
        return;
      }
      isThrough = true;
      this.#state = 'relayed';
      const relayLine = this.#service.relayLine(this.source, this.#greeting);
      upstream.write(`${relayLine}\n${this.#greeting}\n${this.#text}`);
      this.#text = '';
      this.#socket.pipe(upstream);
      upstream.pipe(this.#socket);
    });
    upstream.once('close', () => {
      clearTimeout(timer);
      this.#upstream = undefined;
      // The helper reconnects; by then another replica may lead.
      if (isThrough) this.#socket.destroySoon();
      else this.#dialAt = options.clock() + limits.relayPause;
    });
  }

  #say(word: string): void {
    // A client that does not read counts as gone.
    if (this.#socket.writableLength > 4_096) this.end();
    else this.#socket.write(`${word}\n`);
  }

  #part(): void {
    const pod = this.#pod;
    if (pod === undefined) return;
    this.#pod = undefined;
    this.#service.options.holds.leave(pod, this);
    this.#service.part(pod, this);
  }
}
