import { createHash } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { FOREIGN_LIMITS, isHoldToken } from '../core/api/index.ts';
import { RateLimit } from '../timing/index.ts';
import { helperLine } from './connection-monitor.ts';
import type { HeldPod, HeldPods } from './held-pods.ts';
import type { HeldPodWithTerms, Holds, Waiter } from './holds.ts';

/** @param connections at most this many of all addresses */
export function connectionLimits(connections: number) {
  return {
    connections,
    /** How many of those are kept for addresses of pods with hook Hold. */
    kept: Math.floor(connections / 4),
    /** Connections per address: enough for all pods of a large node reconnecting at once behind the node's address. */
    perSource: Math.floor(connections / 8),
  };
}

/** Counts, and times in milliseconds. */
export const HOLD_LIMITS = {
  ...connectionLimits(16_384),
  /** Connections per pod: its containers, and what reconnecting leaves behind. */
  perPod: 64,
  perPodAndSource: 24,
  /** A pod with many containers may have more: two for each of this many. */
  containers: 128,
  /** Bytes of a line, without its end. */
  line: FOREIGN_LIMITS.helper.bytes,
  /** A helper sends two a second. While a replica stands still they pile up, until the helper hangs up after 15 s. */
  lines: { perSecond: 10, atOnce: 40 },
  /** Until the token must have arrived, and the answer must have been read. */
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
};
export type HoldLimits = Readonly<typeof HOLD_LIMITS>;

/** Which replica holds pods: this one, another, or (undefined) none that is known. */
export type Route = 'here' | { readonly host: string; readonly port: number } | undefined;

/** The state that all connections of a service share. */
export interface CallerHost {
  readonly options: {
    readonly holds: Holds;
    readonly pods: HeldPods;
    readonly route: () => Route;
    /** Monotonic milliseconds. */
    readonly clock: () => number;
  };
  readonly limits: HoldLimits;
  watch(caller: Caller): void;
  remove(caller: Caller): void;
  count(source: string, by: 1 | -1): boolean;
  mayWait(source: string): boolean;
  join(pod: HeldPod, caller: Caller): void;
  part(pod: HeldPod, caller: Caller): void;
  relayLine(source: string, greeting: string): string;
  relayedSource(line: string, greeting: string): string | undefined;
}

/** The states of a connection, and the state after each event. A state ignores the events that it does not list. */
const TRANSITIONS = {
  /** Its first lines are awaited. */
  Greeting: { greeted: 'Waiting', ended: 'Ended' },
  /** It waits for its pod to show, for current watches, or for a leader. */
  Waiting: { found: 'Held', relayed: 'Relayed', answered: 'Answered', ended: 'Ended' },
  Held: { answered: 'Answered', ended: 'Ended' },
  /** Its bytes go to the leader and back. */
  Relayed: { ended: 'Ended' },
  /** It has its answer, and time to read it. */
  Answered: { ended: 'Ended' },
  Ended: {},
} as const satisfies Record<string, Partial<Record<CallerEvent, string>>>;

type CallerState = keyof typeof TRANSITIONS;
type CallerEvent = 'greeted' | 'found' | 'relayed' | 'answered' | 'ended';

/** The token, and for how many milliseconds the helper has been running; older helpers do not say. */
const GREETING = /^linger-hold\/1 (\S{1,64})(?: (\d{1,9}))?$/;
const RELAY = 'linger-hold-relay/';

/** One connection of a helper, or of a replica that relays one. */
export class Caller implements Waiter {
  readonly #service: CallerHost;
  readonly #socket: Socket;
  source: string;
  /** When the helper started, by its own count. */
  startedAt: number;
  #state: CallerState = 'Greeting';
  #text = '';
  /** The line of a relaying replica, until the greeting that it signs has arrived. */
  #relayLine: string | undefined;
  #isRelayed = false;
  #token = '';
  #hash = '';
  #pod: HeldPod | undefined;
  /** When it entered its state. */
  #since: number;
  #upstream: Socket | undefined;
  /** The leader that it is relayed to. */
  #leader = '';
  #dialAt = 0;
  readonly #lines: RateLimit;
  #heardAt: number;
  /** Whether its token may wait for a pod to appear; undefined: that has not been asked yet. */
  #mayWait: boolean | undefined;

  constructor(service: CallerHost, socket: Socket, source: string) {
    this.#service = service;
    this.#socket = socket;
    this.source = source;
    this.#since = service.options.clock();
    this.startedAt = this.#since;
    this.#lines = new RateLimit(service.limits.lines, this.#since);
    this.#heardAt = this.#since;
    socket.on('data', (chunk) => this.#hear(chunk));
    socket.once('close', () => this.end());
  }

  get state(): CallerState {
    return this.#state;
  }

  #go(event: CallerEvent): boolean {
    const next = (TRANSITIONS[this.#state] as Partial<Record<CallerEvent, CallerState>>)[event];
    if (next === undefined) return false;
    const [before, pod] = [this.#state, this.#pod];
    this.#state = next;
    this.#since = this.#service.options.clock();
    if (before === 'Held' && pod !== undefined) {
      this.#service.options.holds.leave(pod, this);
      this.#service.part(pod, this);
    }
    return true;
  }

  /** The final answer. */
  answer(word: 'release' | 'unsure'): void {
    if (!this.#go('answered')) return;
    this.#socket.end(`${word}\n`);
    // A client that does not read the answer must not keep the connection.
    this.#service.watch(this);
  }

  end(): void {
    if (!this.#go('ended')) return;
    this.#service.remove(this);
    this.#socket.destroy();
    this.#upstream?.destroy();
  }

  /** Checks its deadlines, and whether what it waits for is there. */
  advance(now: number): void {
    const { limits } = this.#service;
    const elapsed = now - this.#since;
    if (this.#state === 'Waiting') this.#look(now, elapsed);
    // A deadline, not an idle timeout: an occasional byte must not keep a slot.
    else if (this.#state === 'Greeting' || this.#state === 'Answered') {
      if (elapsed > limits.greeting) this.end();
    }
  }

  /**
   * Repeats the word to a helper that is held. One that waits hears a word that it does not know: after 15 s of silence it
   * would call again, and perhaps meet a replica that is gone.
   */
  sayAgain(now: number): void {
    if (this.#state === 'Waiting') this.#say('waiting');
    // A leader that stands still, or whose node is lost, closes no connection. The helper calls the next one.
    const route = this.#state === 'Relayed' ? this.#service.options.route() : undefined;
    if (typeof route === 'object' && `${route.host} ${route.port}` !== this.#leader) this.end();
    if (this.#state !== 'Held') return;
    if (now - this.#heardAt > this.#service.limits.idle) this.end();
    else this.#say('holding');
  }

  #look(now: number, waited: number): void {
    const { options, limits } = this.#service;
    const route = options.route();
    if (route !== 'here') {
      const canDial = route !== undefined && this.#upstream === undefined && now >= this.#dialAt;
      // Relaying a relayed call could loop, so the relaying replica has to look again.
      if (this.#isRelayed && waited > limits.pending) this.end();
      else if (canDial && !this.#isRelayed) this.#dial(route);
      else if (waited > limits.leaderless) this.end();
    } else if (options.holds.blindSince !== undefined) {
      // Not `unsure`, which ends what an earlier leader has said: the helper may still have to wait 30 s from its loss.
      if (waited > limits.leaderless) this.end();
    } else {
      const pod = options.pods.withToken(this.#hash, this.source);
      const isLate = waited > limits.pending;
      // Counted once.
      if (pod === undefined && !isLate) this.#mayWait ??= this.#service.mayWait(this.source);
      if (pod?.terms !== undefined) this.#hold(pod as HeldPodWithTerms);
      else if (isLate || (pod === undefined && !this.#mayWait)) this.answer('unsure');
    }
  }

  #hold(pod: HeldPodWithTerms): void {
    if (!this.#go('found')) return;
    this.#pod = pod;
    this.#heardAt = this.#since;
    this.#say('holding');
    this.#service.options.holds.call(pod, this);
    this.#service.join(pod, this);
  }

  #hear(chunk: Buffer): void {
    if (this.#state === 'Ended' || this.#state === 'Answered' || this.#state === 'Relayed') return;
    // Lines are ASCII; other bytes cannot form a known line.
    const parts = (this.#text + chunk.toString('latin1')).split('\n');
    this.#text = parts.pop() ?? '';
    const { line: longest } = this.#service.limits;
    const now = this.#service.options.clock();
    this.#heardAt = now;
    if (this.#text.length > longest) this.end();
    for (const part of parts) {
      if (part.length > longest || !this.#lines.take(now)) this.end();
      if (this.#state === 'Greeting') this.#greet(part, now);
      else if (this.#state === 'Held') this.#testify(part, now);
    }
  }

  #testify(line: string, now: number): void {
    const seen = helperLine(line, now);
    if (seen !== undefined && this.#pod !== undefined) this.#service.options.holds.saw(this.#pod, this, seen);
  }

  #greet(line: string, now: number): void {
    if (this.#relayLine === undefined && line.startsWith(RELAY)) {
      this.#relayLine = line;
      return;
    }
    const [, token = '', elapsed = '0'] = GREETING.exec(line) ?? [];
    if (!isHoldToken(token) || (this.#relayLine !== undefined && !this.#adopt(this.#relayLine, line))) {
      this.end();
      return;
    }
    this.#token = token;
    this.#hash = createHash('sha256').update(token).digest('hex');
    this.startedAt = now - Number(elapsed);
    if (this.#go('greeted')) this.#look(now, 0);
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
    this.#leader = `${host} ${port}`;
    this.#dialAt = options.clock() + limits.relayConnect + limits.relayPause;
    const upstream = connect({ host, port, noDelay: true });
    this.#upstream = upstream;
    const timer = setTimeout(() => upstream.destroy(), limits.relayConnect).unref();
    upstream.on('error', () => undefined);
    upstream.once('connect', () => {
      clearTimeout(timer);
      if (!this.#go('relayed')) {
        upstream.destroy();
        return;
      }
      const greeting = `linger-hold/1 ${this.#token} ${Math.round(this.#since - this.startedAt)}`;
      upstream.write(`${this.#service.relayLine(this.source, greeting)}\n${greeting}\n${this.#text}`);
      this.#text = '';
      this.#socket.setTimeout(limits.idle, () => this.end());
      this.#socket.pipe(upstream);
      upstream.pipe(this.#socket);
    });
    upstream.once('close', () => {
      clearTimeout(timer);
      this.#upstream = undefined;
      // The helper reconnects; by then another replica may lead.
      if (this.#state === 'Relayed') this.#socket.destroySoon();
      else this.#dialAt = options.clock() + limits.relayPause;
    });
  }

  #say(word: string): void {
    // A client that does not read counts as gone.
    if (this.#socket.writableLength > 4_096) this.end();
    else this.#socket.write(`${word}\n`);
  }
}
