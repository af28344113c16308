/**
 * The pod as a witness: whether new connections still come, by its own counters.
 *
 * They show connections that no consumer has been declared for. What the kubelet's probes and the pod's own containers
 * open is not meant: probes are told by their rate, in-pod connections by their addresses. UDP is left out: an answer to
 * a question of the pod's own is a datagram like any other.
 */

/** What a helper says of its network namespace; undefined: it could not be read. */
export interface WitnessLine {
  /** When it arrived: milliseconds of a monotonic clock. */
  readonly at: number;
  /** Tcp PassiveOpens: wraps at 2^32 or 2^64. */
  readonly opens: bigint | undefined;
  /** Connections established on listening ports, those of the pod itself left out. */
  readonly established: number | undefined;
  /** Connections of the pod with itself that are new since the line before. */
  readonly loopback: number | undefined;
  /** Addresses that are new since the line before. */
  readonly remotes: readonly string[];
}

const LINE = /^w (\d{1,20}|-) (\d{1,20}|-) (\d{1,9}|-) (\S{1,480})(?: (\d{1,9}|-))?$/;
const ADDRESS = /^[\dA-Fa-f.:]{2,45}$/;
const MOST_REMOTES = 16;

/** @returns undefined for what is no witness line */
export function witnessLine(text: string, at: number): WitnessLine | undefined {
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
 * - `Off`: hold.min is 0, so all consumers are declared.
 * - `Unknown`: the witness says nothing, or nothing recent.
 * - `Rare`: connections come too rarely to tell within 5 s.
 * - `Sending`: they have been absent for no longer than chance explains, or nobody has looked for as long as it takes to tell.
 */
export type QuietVerdict = 'Off' | 'Unknown' | 'Rare' | 'Sending' | 'Quiet';

/** How long silence is waited for at most; and over how long a rate is taken. Milliseconds. */
const LONGEST_QUIET_MS = 5_000;
const RATE_MS = 5_000;
/** Rates of shorter times show who comes more rarely than those who have let go. */
const SHORTER_MS = [2_000, 1_000];

/** Silence is to last for so many times the longest gap before it. */
const GAPS = 2;

/** Lines come twice a second; after this long the helper is gone. */
const SILENT_MS = 3_000;
/** Two lines further apart say nothing of the time in between. */
const GAP_MS = 2_500;
/** More in one line's time is a counter that was reset. */
const MOST_OPENS = 1_000_000n;

/**
 * The expectation λ for which so few events or none have a probability of 1 %: with λ = rate × quiet, silence is no
 * chance. With probes one connection may be either, so one is tolerated: e^−λ (1 + λ) = 0.01.
 */
const EXPECTED_OF_NONE = -Math.log(0.01);
const EXPECTED_OF_ONE = 6.638;

/** How long a history the rule looks at. Milliseconds. */
const KEPT_MS = RATE_MS + LONGEST_QUIET_MS + GAP_MS;

/** Connections between two lines. */
interface Step {
  readonly from: number;
  readonly to: number;
  readonly opened: number;
}

/** What a pod's lines come to. */
export interface Testimony {
  readonly verdict: QuietVerdict;
  /** The line until which connections came that no probe explains; undefined: the lines tell of none, or nothing recent. */
  readonly busyUntil: number | undefined;
}

/**
 * What one helper has said of late. Thousands talk at once, twice a second: whatever is kept of a line outlives the young
 * generation, so that it is whole numbers, which V8 keeps in their place.
 */
export class Witness {
  /** When lines came, from the last gap on: what cannot be counted is no silence. And what opened before each but the first. */
  readonly #times: number[] = [];
  readonly #opened: number[] = [];
  #opens: bigint | undefined;
  #open: number | undefined;
  #countsSince = Number.POSITIVE_INFINITY;
  #begunAt: number | undefined;
  #hasCounted = false;

  /** @returns connections that others have opened since the line before; undefined: that cannot be told */
  hear(line: WitnessLine): number | undefined {
    const at = Math.round(line.at);
    this.#begunAt ??= at;
    const before = this.#times.at(-1);
    const opened = before === undefined ? undefined : openedBetween(this.#opens, line);
    this.#opens = line.opens;
    this.#open = line.established;
    if (before === undefined || opened === undefined || at - before > GAP_MS) {
      this.#times.splice(0, this.#times.length, at);
      this.#opened.length = 0;
      this.#countsSince = at;
      return opened;
    }
    this.#times.push(at);
    this.#opened.push(opened);
    this.#hasCounted = true;
    const old = this.#times.findIndex((time) => at - time <= KEPT_MS);
    if (old > 0) {
      this.#times.splice(0, old);
      this.#opened.splice(0, old);
    }
    return opened;
  }

  /** When the last line came. */
  get heardAt(): number | undefined {
    return this.#times.at(-1);
  }

  /** From when on no connection has gone by uncounted. */
  get countsSince(): number {
    return this.#countsSince;
  }

  /** Connections that are open on the pod's listening ports. */
  get open(): number | undefined {
    return this.#open;
  }

  /**
   * Whether new connections have been absent for long enough at the rate at which they came.
   * @param probes connections a second that are the kubelet's
   */
  testimony({ now, probes, min }: Readonly<Record<'now' | 'probes' | 'min', number>>): Testimony {
    const steps = this.#steps();
    const end = steps.at(-1)?.to;
    const { busy, quietFrom } = silenceIn(steps, end ?? now, probes);
    const busyUntil = busy.at(-1)?.to;
    if (min === 0) return { verdict: 'Off', busyUntil };
    if (now - (this.heardAt ?? 0) > SILENT_MS) return { verdict: 'Unknown', busyUntil };
    // The hook begins with the deletion: what came before, no line tells, nor what came while it could not count.
    const since = this.#hasCounted ? this.#countsSince : (this.#begunAt ?? 0);
    if (busyUntil === undefined && now - since < LONGEST_QUIET_MS) return { verdict: 'Sending', busyUntil };
    if (end === undefined) return { verdict: 'Unknown', busyUntil };
    return { verdict: quietVerdict(busy, end - quietFrom, probes), busyUntil };
  }

  /**
   * When the last connection came that no probe explains: to half a second, mostly. It takes a tenth of a millisecond.
   * @param probes connections a second that are the kubelet's
   * @returns undefined where the lines tell of none, or nothing recent
   */
  lastConnection(probes: number): number | undefined {
    const steps = this.#steps();
    const { busy, silence } = silenceIn(steps, steps.at(-1)?.to ?? 0, probes);
    return lastOf(busy, silence, probes);
  }

  #steps(): readonly Step[] {
    return this.#opened.map((opened, index) => {
      const [from = 0, to = 0] = [this.#times[index], this.#times[index + 1]];
      return { from, to, opened };
    });
  }
}

/** The silence: the longest time until the end that holds no more than probes explain, or one more. And what was before it. */
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
  return { busy: steps.slice(0, last), silence: steps.slice(last), quietFrom };
}

/** How many instants of the first probe are tried. */
const PHASES = 100;
/** Lines and probes are not punctual: a probe so near a line may have come before or after it. Milliseconds. */
const NEAR_MS = 15;
/** How likely it is all the same that a step holds one more, or one fewer. */
const ODD = 0.1;

/** So rarely, at least, connections are taken to have come. A second. */
const LEAST_RATE = 0.2;

/**
 * When the last connection came that no probe explains: in the mean of what is likely. The silence may hold connections, too,
 * that might be probes. But probes come evenly, and connections came at a rate: for each instant at which the first probe may
 * have come, and each step that may hold the last connection, Bayes' rule says how likely the steps are as they were counted.
 * Several containers' probes are taken for one evenly spaced train.
 */
function lastOf(busy: readonly Step[], silence: readonly Step[], probes: number): number | undefined {
  const last = busy.at(-1);
  if (last === undefined) return undefined;
  if (probes === 0) return middleOf(last);
  const perMs = Math.max(LEAST_RATE, rateBefore(busy, last.to, RATE_MS, probes)) / 1000;
  const period = 1000 / probes;
  const others = new Int32Array(silence.length);
  let [sum, weights] = [0, 0];
  const weigh = (step: Step, likely: number) => {
    const weight = Math.exp(likely);
    sum += weight * middleOf(step);
    weights += weight;
  };
  for (let phase = 0; phase < period; phase += period / PHASES) {
    // First as if none came in the silence, then step by step as if the last came in it.
    let likely = 0;
    for (const [index, step] of silence.entries()) {
      const count = othersIn(step, last.to + phase, period);
      others[index] = count;
      likely += Math.abs(count) * Math.log(ODD);
    }
    weigh(last, likely);
    for (const [index, step] of silence.entries()) {
      const count = others[index] as number;
      if (count >= 0) likely += logPoisson(count, perMs * (step.to - step.from)) - count * Math.log(ODD);
      if (step.opened > 0) weigh(step, likely);
    }
  }
  return sum / weights;
}

/** The connections of a step that no probe explains; fewer than 0: probes that are missing. @param first when one probe came */
function othersIn({ from, to, opened }: Step, first: number, period: number): number {
  const probesIn = (begin: number, end: number) =>
    Math.floor((end - first) / period) - Math.floor((begin - first) / period);
  const most = probesIn(from - NEAR_MS, to + NEAR_MS);
  if (opened > most) return opened - most;
  return Math.min(0, opened - probesIn(from + NEAR_MS, to - NEAR_MS));
}

const middleOf = ({ from, to }: Step) => (from + to) / 2;

/** The logarithm of the probability of so many where so many are expected. */
function logPoisson(count: number, expected: number): number {
  let log = count * Math.log(expected) - expected;
  for (let each = 2; each <= count; each += 1) log -= Math.log(each);
  return log;
}

function quietVerdict(busy: readonly Step[], quietMs: number, probes: number): QuietVerdict {
  const expected = probes > 0 ? EXPECTED_OF_ONE : EXPECTED_OF_NONE;
  const until = busy.at(-1)?.to;
  if (until === undefined) return 'Rare';
  const whole = rateBefore(busy, until, RATE_MS, probes);
  // Chance may have brought fewer than the rate says: by its square root, as often as not.
  const likely = (whole * LONGEST_QUIET_MS) / 1000;
  if (likely + Math.sqrt(likely) < expected) return 'Rare';
  const rates = SHORTER_MS.map((span) => rateBefore(busy, until, span, probes)).filter((rate) => rate > 0);
  const byChance = (1000 * expected) / Math.min(whole, ...rates);
  // Connections that come in bursts are rarer than their number says, and the rule looks again and again.
  const needed = Math.max(byChance, GAPS * longestGap(busy, probes));
  return quietMs >= Math.min(LONGEST_QUIET_MS, needed) ? 'Quiet' : 'Sending';
}

/** The longest time without a connection that no probe explains, between two with one. */
function longestGap(steps: readonly Step[], probes: number): number {
  let longest = 0;
  let gap = 0;
  for (const { from, to, opened } of steps) {
    gap = opened > probesWithin(to - from, probes) ? 0 : gap + to - from;
    longest = Math.max(longest, gap);
  }
  return longest;
}

/** The connections that no probe made, a second, of the last so many milliseconds before an instant. */
function rateBefore(steps: readonly Step[], until: number, spanMs: number, probes: number): number {
  const counted = steps.filter(({ to }) => to > until - spanMs);
  const spanned = until - (counted[0]?.from ?? until);
  if (spanned <= 0) return 0;
  const opened = counted.reduce((sum, step) => sum + step.opened, 0);
  return Math.max(0, (1000 * opened) / spanned - probes);
}

function probesWithin(milliseconds: number, probes: number): number {
  return Math.ceil((probes * milliseconds) / 1000);
}

/** Connections that others opened since the counter stood there. @returns undefined where that cannot be told */
export function openedBetween(before: bigint | undefined, after: WitnessLine): number | undefined {
  if (before === undefined || after.opens === undefined || after.loopback === undefined) return undefined;
  let opened = after.opens - before;
  if (opened < 0n) opened += before < 1n << 32n ? 1n << 32n : 1n << 64n;
  if (opened < 0n || opened > MOST_OPENS) return undefined;
  return Math.max(0, Number(opened) - after.loopback);
}
