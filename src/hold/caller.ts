import { createHash } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { FOREIGN_LIMITS, isHoldToken } from '../core/api/index.ts';
import { RateLimit } from '../timing/index.ts';
import { helperLine } from './connection-monitor.ts';
import type { HeldPod, HeldPods } from './held-pods.ts';
import type { HeldPodWithTerms, Holds, Waiter } from './holds.ts';

/** Limits that follow from the total number of connections. @param connections the most from all addresses together */
export function connectionLimits(connections: number) {
  return {
    connections,
    /** How many connections are reserved for addresses of pods with hook Hold. */
    kept: Math.floor(connections / 4),
    /**
     * Connections from one address: enough for all pods of a large node that reconnect at once through the node's address.
     */
    perSource: Math.floor(connections / 8),
  };
}

/** Counts, and times in milliseconds. */
export const HOLD_LIMITS = {
  ...connectionLimits(16_384),
  /** Connections of one pod: one for each container, and what remains of old connections after reconnecting. */
  perPod: 64,
  perPodAndSource: 24,
  /** How many containers of a pod count: a pod with many containers may have two connections for each of up to this many. */
  containers: 128,
  /** Bytes of a line, without its line end. */
  line: FOREIGN_LIMITS.helper.bytes,
  /** A helper sends two lines a second. While a replica stalls, they pile up until the helper hangs up after 15 s. */
  lines: { perSecond: 10, atOnce: 40 },
  /** How long a client may take to send its token, and to read its answer. */
  greeting: 5_000,
  /** How long a held helper may be silent. It sends lines twice a second, and at least one in 2 s. */
  idle: 60_000,
  /** How long an unknown token waits for the watch to show its pod. */
  pending: 2_000,
  /** How many unknown tokens of one address may wait in a minute; more are answered at once. */
  unknownPerMinute: 120,
  /** How often a held helper is sent `holding` again. */
  again: 5_000,
  /**
   * How long a follower keeps looking for a leader, and a leader waits for its watches to catch up. A Lease that is not
   * renewed expires after 15 s, and replicas look at it every 2 s.
   */
  leaderless: 25_000,
  relayConnect: 1_000,
  relayPause: 250,
};
export type HoldLimits = Readonly<typeof HOLD_LIMITS>;

/** Which replica holds pods: this one, another, or (undefined) none that is known. */
export type Route = 'here' | { readonly host: string; readonly port: number } | undefined;

/** What all connections of a service share. */
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
  /** Its first lines have not arrived yet. */
  Greeting: { greeted: 'Waiting', ended: 'Ended' },
  /** It waits for its pod to appear in the watch, for watches to be current, or for a leader. */
  Waiting: { found: 'Held', relayed: 'Relayed', answered: 'Answered', ended: 'Ended' },
  Held: { answered: 'Answered', ended: 'Ended' },
  /** Its bytes are relayed to the leader and back. */
  Relayed: { ended: 'Ended' },
  /** It has been answered, and has some time to read the answer. */
  Answered: { ended: 'Ended' },
  Ended: {},
} as const satisfies Record<string, Partial<Record<CallerEvent, string>>>;

type CallerState = keyof typeof TRANSITIONS;
type CallerEvent = 'greeted' | 'found' | 'relayed' | 'answered' | 'ended';

/** The token, and for how many milliseconds the helper has been running, which older helpers do not send. */
const GREETING = /^linger-hold\/1 (\S{1,64})(?: (\d{1,9}))?$/;
const RELAY = 'linger-hold-relay/';

/** One connection of a helper, or of a replica that relays one. */
export class Caller implements Waiter {
  readonly #service: CallerHost;
  readonly #socket: Socket;
  source: string;
  /** When the helper started, according to the helper. */
  startedAt: number;
  #state: CallerState = 'Greeting';
  #text = '';
  /** The signature line of a relaying replica, kept until the greeting that it signs has arrived. */
  #relayLine: string | undefined;
  #isRelayed = false;
  #token = '';
  #hash = '';
  #pod: HeldPod | undefined;
  /** When it entered its current state. */
  #since: number;
  #upstream: Socket | undefined;
  /** The leader to which it is relayed. */
  #leader = '';
  #dialAt = 0;
  readonly #lines: RateLimit;
  #heardAt: number;
  /** Whether its unknown token may wait for a pod to appear; undefined: not decided yet. */
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

  /** Sends the final answer. */
  answer(word: 'release' | 'unsure'): void {
    if (!this.#go('answered')) return;
    this.#socket.end(`${word}\n`);
    // Watched, because a client that does not read the answer must not keep the connection.
    this.#service.watch(this);
  }

  end(): void {
    if (!this.#go('ended')) return;
    this.#service.remove(this);
    this.#socket.destroy();
    this.#upstream?.destroy();
  }

  /** Checks the connection's deadlines, and whether what it waits for has arrived. */
  advance(now: number): void {
    const { limits } = this.#service;
    const elapsed = now - this.#since;
    if (this.#state === 'Waiting') this.#look(now, elapsed);
    // A deadline rather than an idle timeout, so that an occasional byte cannot keep the slot.
    else if (this.#state === 'Greeting' || this.#state === 'Answered') {
      if (elapsed > limits.greeting) this.end();
    }
  }

  /**
   * Repeats the word to a helper that is held. A helper that still waits gets a word unknown to it, just to hear something:
   * after 15 s of silence it would call again, and might reach a replica that no longer exists.
   */
  sayAgain(now: number): void {
    if (this.#state === 'Waiting') this.#say('waiting');
    // A leader that hangs, or whose node is lost, closes no connections. End it, so that the helper calls the next leader.
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
      // A relayed call must not be relayed again, because that could loop; the relaying replica has to find the leader.
      if (this.#isRelayed && waited > limits.pending) this.end();
      else if (canDial && !this.#isRelayed) this.#dial(route);
      else if (waited > limits.leaderless) this.end();
    } else if (options.holds.blindSince !== undefined) {
      // Not `unsure`: that would override what an earlier leader said, and the helper may still have to wait 30 s from
      // losing it.
      if (waited > limits.leaderless) this.end();
    } else {
      const pod = options.pods.withToken(this.#hash, this.source);
      const isLate = waited > limits.pending;
      // Decided only once, so that each connection counts once.
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
    // Lines are ASCII; a line with other bytes matches nothing.
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

  /** Takes over the source address that the relaying replica states. */
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
      // When the helper reconnects, another replica may lead.
      if (this.#state === 'Relayed') this.#socket.destroySoon();
      else this.#dialAt = options.clock() + limits.relayPause;
    });
  }

  #say(word: string): void {
    // A client that does not read is treated as gone.
    if (this.#socket.writableLength > 4_096) this.end();
    else this.#socket.write(`${word}\n`);
  }
}
