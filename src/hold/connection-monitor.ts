import { FOREIGN_LIMITS } from '../core/api/index.ts';

/**
 * Judges from the counters that a pod's helper reports whether the pod still gets new connections.
 *
 * This reveals consumers that have not been declared. The kubelet's probes and the pod's connections to itself do not count:
 * probes are recognised by their rate, the pod's own connections by their addresses. UDP is ignored, because an answer to
 * one of the pod's own requests looks like any other datagram.
 */

/** What a helper reports of its network namespace. A member is undefined if the helper could not read it. */
export interface HelperLine {
  /** When it arrived: milliseconds of a monotonic clock. */
  readonly at: number;
  /** The counter Tcp PassiveOpens, which wraps at 2^32 or 2^64. */
  readonly opens: bigint | undefined;
  /** Established connections on listening ports, except those of the pod to itself. */
  readonly established: number | undefined;
  /** New connections of the pod to itself since the previous line. */
  readonly loopback: number | undefined;
  /** Addresses that appeared since the previous line. */
  readonly remotes: readonly string[];
}

const LINE = /^w (\d{1,20}|-) (\d{1,20}|-) (\d{1,9}|-) (\S{1,480})(?: (\d{1,9}|-))?$/;
const ADDRESS = /^[\dA-Fa-f.:]{2,45}$/;
const MOST_REMOTES = FOREIGN_LIMITS.helper.parts.most;

/** @returns undefined for any other text */
export function helperLine(text: string, at: number): HelperLine | undefined {
  const [, opens, , established, remotes = '-', loopback = '-'] = LINE.exec(text) ?? [];
  if (opens === undefined) return undefined;
  const addresses = remotes === '-' ? [] : remotes.split(',');
  if (addresses.length > MOST_REMOTES || !addresses.every((each) => ADDRESS.test(each))) return undefined;
  return {
    at,
    opens: opens === '-' ? undefined : BigInt(opens),
    established: numberOf(established),
    loopback: numberOf(loopback),
    remotes: addresses,
  };
}

function numberOf(text: string | undefined): number | undefined {
  return text === undefined || text === '-' ? undefined : Number(text);
}

/**
 * - `Off`: hold.min is 0, which means that all consumers are declared.
 * - `Unknown`: there are no helper lines, or no recent ones.
 * - `Rare`: there were no connections, or only single ones.
 * - `Quiet`: connections have been absent for longer than chance explains.
 * - `Sending`: they have not, or have not been counted for long enough to tell.
 */
export type QuietVerdict = 'Off' | 'Unknown' | 'Rare' | 'Sending' | 'Quiet';

/** The longest silence that the rule waits for, and the span over which a rate is taken. Milliseconds. */
const LONGEST_QUIET_MS = 5_000;
const RATE_MS = 5_000;
/** The rate is also taken over shorter spans: that reveals a slow sender among fast ones that have since stopped. */
const SHORTER_MS = [2_000, 1_000];

/** Silence must last this many times the longest gap before it. */
const GAPS = 2;

/**
 * Lines come twice a second. A helper that falls silent is short of processor time (or its whole node is, or Linger): its
 * last line remains valid for this long.
 */
const SILENT_MS = 10_000;
/** Two lines further apart than this show nothing about the time between them. */
const GAP_MS = 2_500;
/** Helpers send a line every half second, so if two arrive closer together than this, the first was delayed. */
const LATE_MS = 50;
/** More connections than this between two lines mean that the counter was reset. */
const MOST_OPENS = 1_000_000n;

/**
 * Expected numbers λ of events at which seeing none has a certain small probability: with λ = rate × silence, the silence is
 * then not chance. If the kubelet probes the pod, any one connection may or may not be a probe, so one is tolerated; that
 * probability is e^−λ (1 + λ).
 *
 * A pod is judged again after each of its connections until it is released. To release too early at most once in a thousand
 * pods, each judgement may be wrong only once in ten thousand.
 */
const EXPECTED_OF_NONE = -Math.log(0.0001);
const EXPECTED_OF_ONE = 11.756;

/**
 * A single connection within {@link RATE_MS} gives no rate, so a scrape every 15 s does not hold a pod. The extra half
 * allows for an inexact number of probes.
 */
const FEWEST = 1.5;

/** Lines come twice a second, so a connection of Linger's that no line has counted by then was refused. Milliseconds. */
const OWN_COUNTED_MS = 2_000;
/** How many of them are remembered: each instance is asked once a second for each consumer. */
const MOST_OWN = 100;

/** How much history the rule needs. Milliseconds. */
const KEPT_MS = RATE_MS + LONGEST_QUIET_MS + GAP_MS;

/** Helpers send two lines a second; the Hold Service accepts ten. */
const MOST_LINES = 130;

/** Connections between two lines. */
interface Step {
  readonly from: number;
  readonly to: number;
  readonly opened: number;
}

/** What the helper lines of a pod show. */
interface Observation {
  readonly verdict: QuietVerdict;
  /** When the last connection came that probes do not explain (the middle of its step); undefined: none came recently. */
  readonly lastAt: number | undefined;
}

/**
 * The recent helper lines of one helper. Thousands of helpers send two lines a second, and what is kept of each outlives
 * V8's young generation. So only small integers are kept, which need no heap objects.
 */
export class ConnectionMonitor {
  /** Arrival times of the lines since the last gap, and how many connections were opened before each except the first. */
  readonly #times: number[] = [];
  readonly #opened: number[] = [];
  #opens: bigint | undefined;
  /** Connections that are open on the pod's listening ports. */
  open: number | undefined;
  /** The instant from which every connection has been counted. */
  countsSince = Number.POSITIVE_INFINITY;
  #begunAt: number | undefined;
  #hasCounted = false;
  /** When Linger itself connected to the pod, for connections that no line has counted yet. */
  #ownAt: readonly number[] = [];

  /** Records that Linger itself has connected to the pod. */
  connected(at: number): void {
    if (this.heardAt !== undefined) this.#ownAt = [...this.#ownAt, at].slice(-MOST_OWN);
  }

  /** @returns the connections that others have opened since the previous line; undefined: not known */
  hear(line: HelperLine): number | undefined {
    const at = Math.round(line.at);
    this.#begunAt ??= at;
    const before = this.#times.at(-1);
    this.open = line.established;
    // Lines that piled up while a process was stalled: their connections would all seem to have come in the next half
    // second.
    const isPiled = before !== undefined && this.#opened.length === 0 && at - before < LATE_MS;
    // Two lines of the same millisecond have no rate, so the next line counts for both.
    if (before !== undefined && at <= before && !isPiled) return 0;
    const opened = this.#withoutOwn(before === undefined ? undefined : openedBetween(this.#opens, line), at);
    this.#opens = line.opens;
    if (before === undefined || opened === undefined || isPiled || at - before > GAP_MS) {
      this.#times.splice(0, this.#times.length, at);
      this.#opened.length = 0;
      this.countsSince = at;
      return opened;
    }
    this.#times.push(at);
    this.#opened.push(opened);
    this.#hasCounted = true;
    while (at - (this.#times[0] ?? at) > KEPT_MS || this.#times.length > MOST_LINES) {
      this.#times.shift();
      this.#opened.shift();
    }
    return opened;
  }

  /**
   * Subtracts Linger's own connections. A line may have been written before such a connection, which is then left for the
   * next line.
   */
  #withoutOwn(opened: number | undefined, at: number): number | undefined {
    const own = this.#ownAt.filter((each) => at - each <= OWN_COUNTED_MS);
    const counted = opened === undefined ? own.length : Math.min(own.length, opened);
    this.#ownAt = own.slice(counted);
    return opened === undefined ? undefined : opened - counted;
  }

  /** When the last line arrived. */
  get heardAt(): number | undefined {
    return this.#times.at(-1);
  }

  /**
   * Whether new connections have been absent for long enough, considering the rate at which they came before.
   * @param probes connections a second that come from the kubelet
   */
  observe({ now, probes, min }: Readonly<Record<'now' | 'probes' | 'min', number>>): Observation {
    const steps = this.#steps();
    const end = steps.at(-1)?.to;
    const { busy, quietFrom } = silenceIn(steps, end ?? now, probes);
    const last = busy.at(-1);
    const lastAt = last && (last.from + last.to) / 2;
    if (min === 0) return { verdict: 'Off', lastAt };
    if (now - (this.heardAt ?? 0) > SILENT_MS) return { verdict: 'Unknown', lastAt };
    // The hook starts only with the deletion: there are no lines from before it, nor from times when the helper could not
    // count.
    const since = this.#hasCounted ? this.countsSince : (this.#begunAt ?? 0);
    const verdict = end === undefined ? 'Unknown' : quietVerdict(busy, end - quietFrom, probes);
    // A single connection proves as little as none, because the next may be about to come.
    const isSeldom = last === undefined || verdict === 'Rare';
    if (isSeldom && (end ?? now) - since < LONGEST_QUIET_MS) return { verdict: 'Sending', lastAt };
    return { verdict, lastAt };
  }

  #steps(): readonly Step[] {
    return this.#opened.map((opened, index) => {
      const [from = 0, to = 0] = [this.#times[index], this.#times[index + 1]];
      return { from, to, opened };
    });
  }
}

/**
 * The silence (the longest time up to the end with at most one connection more than probes explain), and the history before
 * it.
 */
function silenceIn(steps: readonly Step[], end: number, probes: number) {
  const tolerated = probes > 0 ? 1 : 0;
  let quietFrom = end;
  let opened = 0;
  let last = steps.length;
  for (let index = steps.length - 1; index >= 0; index -= 1) {
    const { from, opened: ofStep } = steps[index] as Step;
    opened += ofStep;
    if (opened > probesWithin(end - from, probes) + tolerated) break;
    quietFrom = from;
    last = index;
  }
  return { busy: steps.slice(0, last), quietFrom };
}

function quietVerdict(busy: readonly Step[], quietMs: number, probes: number): QuietVerdict {
  const expected = probes > 0 ? EXPECTED_OF_ONE : EXPECTED_OF_NONE;
  const until = busy.at(-1)?.to;
  if (until === undefined) return 'Rare';
  const whole = sentBefore(busy, until, RATE_MS, probes);
  if (whole.count < FEWEST) return 'Rare';
  const shorter = SHORTER_MS.map((span) => sentBefore(busy, until, span, probes).rate);
  const byChance = (1000 * expected) / Math.min(whole.rate, ...shorter.filter((rate) => rate > 0));
  // If connections come in bursts, gaps between them are longer than their number suggests, and the rule is applied many
  // times.
  const needed = Math.max(byChance, GAPS * longestGap(busy, probes));
  return quietMs >= Math.min(LONGEST_QUIET_MS, needed) ? 'Quiet' : 'Sending';
}

/** The longest time between two connections that probes do not explain. */
function longestGap(steps: readonly Step[], probes: number): number {
  let longest = 0;
  let gap = 0;
  for (const { from, to, opened } of steps) {
    gap = opened > probesWithin(to - from, probes) ? 0 : gap + to - from;
    longest = Math.max(longest, gap);
  }
  return longest;
}

/** The number of connections that are not probes in a span before an instant, and their rate per second. */
function sentBefore(steps: readonly Step[], until: number, spanMs: number, probes: number) {
  const counted = steps.filter(({ to }) => to > until - spanMs);
  const spanned = until - (counted[0]?.from ?? until);
  const opened = counted.reduce((sum, step) => sum + step.opened, 0);
  const count = Math.max(0, opened - (probes * spanned) / 1000);
  return { count, rate: spanned <= 0 ? 0 : (1000 * count) / spanned };
}

function probesWithin(milliseconds: number, probes: number): number {
  return Math.ceil((probes * milliseconds) / 1000);
}

/** How many connections others have opened since the counter had this value. @returns undefined where that is not known */
export function openedBetween(before: bigint | undefined, after: HelperLine): number | undefined {
  if (before === undefined || after.opens === undefined || after.loopback === undefined) return undefined;
  let opened = after.opens - before;
  if (opened < 0n) opened += before < 1n << 32n ? 1n << 32n : 1n << 64n;
  if (opened < 0n || opened > MOST_OPENS) return undefined;
  return Math.max(0, Number(opened) - after.loopback);
}
