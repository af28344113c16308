import { KubeFailure } from '../../src/cluster/index.ts';
import {
  campaign,
  ELECTION_LIMITS,
  type ElectionEvents,
  type ElectionLimits,
  type LeaseLeadership,
} from '../../src/leader/election.ts';
import { randomOf } from '../property/random.ts';
import { type Fate, SimulatedLease } from './simulated-lease.ts';
import { type SimulatedHost, SimulatedProcess, SimulatedTime } from './simulated-time.ts';

export interface Contender {
  readonly identity: string;
  readonly process: SimulatedProcess;
  /** The last one, which may be over. */
  leadership: LeaseLeadership | undefined;
  following: string | undefined;
  /** How many of its requests have succeeded. */
  requests: number;
  ended: Promise<void>;
  readonly stop: () => void;
}

/** A beginning of a term, in true time. */
export interface Term {
  readonly at: number;
  readonly identity: string;
  readonly term: number;
}

/** Contenders for one lease, in simulated time. */
export class SimulatedElection {
  readonly time = new SimulatedTime();
  readonly lease = new SimulatedLease(this.time);
  readonly contenders: Contender[] = [];
  readonly terms: Term[] = [];
  /** How many led at the worst instant. */
  mostLeaders = 0;
  readonly random: () => number;
  readonly #limits: ElectionLimits;

  constructor(seed: number, limits: Partial<ElectionLimits> = {}) {
    this.random = randomOf(seed);
    this.#limits = { ...ELECTION_LIMITS, ...limits };
  }

  join(host: SimulatedHost = { rate: 1, skew: 0 }, ready = () => true): Contender {
    const identity = `replica-${this.contenders.length}`;
    const process = new SimulatedProcess(this.time, host, this.random);
    const stopping = new AbortController();
    const events: ElectionEvents = {
      onLeading: (leadership) => {
        contender.leadership = leadership;
        contender.following = undefined;
        this.terms.push({ at: this.time.now, identity, term: leadership.term });
      },
      onFollowing: (holder) => {
        contender.following = holder;
      },
      onHandOver: async () => undefined,
      onSeen: () => undefined,
      onRequest: () => {
        contender.requests += 1;
      },
      onFailure: () => undefined,
    };
    // Before it begins, for its first events come at once.
    const contender: Contender = {
      identity,
      process,
      leadership: undefined,
      following: undefined,
      requests: 0,
      stop: () => stopping.abort(),
      ended: Promise.resolve(),
    };
    contender.ended = campaign({
      identity,
      store: this.lease.storeOf(process, this.#limits.requestMs),
      limits: this.#limits,
      time: process,
      signal: stopping.signal,
      events,
      ready,
    });
    this.contenders.push(contender);
    return contender;
  }

  /** Who believes so right now, whether or not the process can act on it. */
  leaders(): readonly Contender[] {
    return this.contenders.filter(({ leadership }) => leadership?.holds() === true);
  }

  /** For this long from now. */
  async run(milliseconds: number): Promise<void> {
    await this.time.run(this.time.now + milliseconds, () => {
      this.mostLeaders = Math.max(this.mostLeaders, this.leaders().length);
    });
  }

  /** For at most this long from now. @returns how long it took */
  async runUntil(reached: () => boolean, milliseconds: number): Promise<number> {
    const begun = this.time.now;
    while (!reached() && this.time.now - begun < milliseconds) await this.run(50);
    return this.time.now - begun;
  }
}

/** A number from a range, more often a small one. */
const upTo = (most: number, random: () => number) => most * random() ** 3;

/**
 * Everything goes wrong: requests are slow, come into effect a minute later, get lost on either way, are refused; the
 * server is away for a while; processes stop and come back, end in good order, are replaced; another client writes a label on
 * the lease, or deletes it.
 */
export async function misfortune(
  election: SimulatedElection,
  durationMs: number,
  deletions: boolean,
): Promise<void> {
  const { random, lease, contenders } = election;
  const until = election.time.now + durationMs;
  let awayUntil = 0;
  const throttled = new KubeFailure('Throttled', 'throttled', 1_000);
  lease.fate = (): Fate => {
    const away = election.time.now < awayUntil;
    const lost = random();
    if (away) return { thereAfter: undefined, backAfter: undefined };
    return {
      thereAfter: lost < 0.03 ? undefined : upTo(random() < 0.1 ? 60_000 : 2_000, random),
      backAfter: lost > 0.97 ? undefined : upTo(random() < 0.1 ? 10_000 : 2_000, random),
      ...(random() < 0.03 ? { refusal: throttled } : {}),
    };
  };
  while (election.time.now < until) {
    await election.run(upTo(30_000, random));
    const what = random();
    const who = contenders[Math.floor(random() * contenders.length)];
    if (what < 0.4) who?.process.stopFor(upTo(40_000, random));
    else if (what < 0.6) awayUntil = election.time.now + upTo(40_000, random);
    else if (what < 0.7) lease.touch();
    else if (what < 0.75 && deletions) lease.delete();
    else if (what < 0.85) {
      who?.stop();
      election.join(anyHost(random));
    }
  }
  lease.fate = () => ({ thereAfter: upTo(200, random), backAfter: upTo(200, random) });
}

/** Clocks that run at different rates, and whose walls are hours apart. */
export function anyHost(random: () => number): SimulatedHost {
  const hours = 3_600_000;
  return { rate: 0.9 + 0.2 * random(), skew: (random() - 0.5) * 10 * hours };
}
