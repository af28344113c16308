import { isRecord, isString, readEntries } from '../api/index.ts';
import type { RemovalSample } from '../lag/index.ts';

/** What may turn out at the end of a pod, and for how many of each there is room in the log. */
export const TERMINATION_FINDINGS = {
  StoppedTooEarly: 1_000,
  UndeclaredConsumer: 300,
  OpenAtStop: 300,
  SlowStop: 300,
  HoldUnreachable: 300,
} as const satisfies Record<string, number>;
export type TerminationReason = keyof typeof TERMINATION_FINDINGS;

/** What has turned out at the end of a pod. */
export interface TerminationFinding {
  readonly reason: TerminationReason;
  /** When SIGTERM came; of `HoldUnreachable`, when the pod was deleted. Seconds since the epoch. */
  readonly at: number;
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  /** What made the pod, as `Deployment/web`; empty: nothing. */
  readonly owner: string;
  /** Seconds in which requests may have been lost or were still sent, or that the application or pod took; 0 for none. */
  readonly seconds: number;
  /** Of `UndeclaredConsumer` and `OpenAtStop`. */
  readonly connections?: number;
  /** Of `UndeclaredConsumer`: addresses, and whose they are where that is known. */
  readonly from?: readonly string[];
}

/** A pod whose process was stopped before everything that sends it traffic had followed its removal. */
export interface Shortfall extends TerminationFinding {
  readonly reason: 'StoppedTooEarly';
  /** For how long its hook held SIGTERM back. Seconds; 0: it had none. */
  readonly wait: number;
  /** From its deletion until the last list had withdrawn it, and the consumer had followed; `seconds` is lag − wait. */
  readonly lag: number;
  /** The Services that listed it. */
  readonly services: readonly string[];
  /** The slowest consumer that applies, whose 99th percentile is part of the lag; absent: the lists alone. */
  readonly consumer?: string;
}

export function isShortfall(finding: TerminationFinding): finding is Shortfall {
  return finding.reason === 'StoppedTooEarly';
}

/** A full sentence about the pod. */
export function sentenceOf(finding: TerminationFinding): string {
  const { reason, pod, connections = 0, from = [] } = finding;
  const seconds = tenths(finding.seconds);
  const subject = `Pod ${pod}`;
  if (isShortfall(finding)) {
    const { wait, lag, services, consumer } = finding;
    const when = wait === 0 ? 'immediately' : `after ${tenths(wait)}s`;
    const until =
      consumer === undefined
        ? `${services.join(', ')} listed it for ${tenths(lag)}s`
        : `${consumer} follows its removal from ${services.join(', ')} within ${tenths(lag)}s (p99)`;
    return `${subject} got SIGTERM ${when}, but ${until}: requests may have been lost for ${seconds}s.`;
  }
  switch (reason) {
    case 'UndeclaredConsumer':
      return `${subject} got ${counted(connections)} within ${seconds}s after every known consumer had stopped using it, from ${from.join(', ') || 'unknown addresses'}: declare that consumer (DiscoveryConsumer).`;
    case 'OpenAtStop':
      return `${subject} got SIGTERM with ${counted(connections)} open: requests on them are lost unless the application drains them.`;
    case 'SlowStop':
      return `${subject} took ${seconds}s after SIGTERM, longer than its own part of the grace: it ignores SIGTERM, or needs a longer terminationGracePeriodSeconds.`;
    default:
      return `${subject} should have been held, but was gone ${seconds}s after its deletion without calling Linger: its egress to the Hold Service is denied, the helper is missing, or no container was running.`;
  }
}

function counted(connections: number): string {
  return connections === 1 ? '1 connection' : `${connections} connections`;
}

function tenths(seconds: number): number {
  return Math.round(seconds * 10) / 10;
}

/** What is known, at a pod's deletion, of the consumers that send it traffic. */
export interface SendersLag {
  /** The slowest with a known lag: its 99th percentile, in seconds after the control plane's change. */
  readonly slowest: { readonly name: string; readonly seconds: number } | undefined;
  /** Those of which nothing has been measured. */
  readonly unknown: readonly string[];
}

/**
 * For how long a pod's hooks hold SIGTERM back: it serves until its first container stops. Seconds; the bounds differ where
 * a hook cannot be read to the end.
 */
export interface WaitBounds {
  readonly least: number;
  readonly most: number;
}

export const UNKNOWN_WAIT: WaitBounds = { least: 0, most: Number.POSITIVE_INFINITY };

/** What is known of a pod at its deletion. */
export interface StoppingPod {
  readonly owner: string;
  /** The wait of its hooks, Linger's or its author's. */
  readonly wait: WaitBounds;
  /** Of the deletion: it cuts the wait short. Seconds; undefined: not said. */
  readonly grace: number | undefined;
  readonly senders: SendersLag;
}

/** Whether a pod was stopped in time; of `Unknown` ones its wait, or the lag of a consumer, is not known. */
export const TERMINATION_OUTCOMES = ['InTime', 'TooEarly', 'Unknown'] as const;
export type TerminationOutcome = (typeof TERMINATION_OUTCOMES)[number];

/** A pod that has ended, judged. */
export interface JudgedEnd extends Pick<TerminationFinding, 'at' | 'namespace' | 'owner' | 'pod'> {
  readonly outcome: TerminationOutcome;
  /** For how long SIGTERM was held back. Seconds; undefined: not known. */
  readonly waited: number | undefined;
  /** What cut the wait short: `grace 5s`, `Max`; empty: nothing. */
  readonly cutBy: string;
  /** What the wait was compared with. Seconds; undefined: nothing. */
  readonly lag: number | undefined;
  /** The consumer that was the slowest; empty: none is known. */
  readonly consumer: string;
  /** The consumers with no known lag. */
  readonly unmeasured: readonly string[];
}

/** Events of two watches cannot be compared more precisely: see the recorder. Seconds. */
const TOLERANCE = 0.25;

/**
 * Compares a pod's wait with its removal: with the lists that it has just seen, and with the 99th percentile of the
 * slowest consumer that follows them. A pod without any wait is always too early: nothing follows in no time.
 * @param endedAt when the last list withdrew it: seconds since the epoch
 */
export function judgeEnd(
  { namespace, pod, uid, lag: listed, withdrawals }: RemovalSample,
  { owner, wait, grace, senders: { slowest, unknown } }: StoppingPod,
  endedAt: number,
): { readonly end: JudgedEnd; readonly shortfall: Shortfall | undefined } {
  const lag = listed + (slowest?.seconds ?? 0);
  const [least, most] = [Math.min(wait.least, grace ?? wait.least), Math.min(wait.most, grace ?? wait.most)];
  const isTooEarly = most === 0 || lag - most > TOLERANCE;
  const waited = isTooEarly || least === most ? most : undefined;
  const cutBy = grace !== undefined && grace < wait.least ? `grace ${grace}s` : '';
  const at = endedAt - listed + (waited ?? 0);
  const judged = { at, namespace, owner, pod, waited, cutBy, lag, consumer: slowest?.name ?? '' };
  const ended = (outcome: TerminationOutcome): JudgedEnd => ({ ...judged, outcome, unmeasured: unknown });
  if (!isTooEarly) {
    const isCovered = lag - least <= TOLERANCE && unknown.length === 0;
    return { end: ended(isCovered ? 'InTime' : 'Unknown'), shortfall: undefined };
  }
  const late = withdrawals.filter((each) => slowest !== undefined || each.lag > most);
  const services = [...new Set(late.map(({ name }) => name))].toSorted();
  const consumer = slowest && { consumer: slowest.name };
  const shortfall = { reason: 'StoppedTooEarly', at, namespace, pod, uid, owner, ...consumer } as const;
  const short = { ...shortfall, wait: most, lag, seconds: lag - most, services };
  return { end: ended('TooEarly'), shortfall: short };
}

/** The end of a pod with a plan. Instants are seconds of one clock. */
export interface PodEnd {
  readonly deletedAt: number;
  /** When SIGTERM came. */
  readonly stoppedAt: number;
  /** When the API server had forgotten the pod. */
  readonly goneAt: number;
  /** Of the deletion; undefined: not said. */
  readonly grace: number | undefined;
  /** The plan's. */
  readonly planned: { readonly grace: number; readonly baseGrace: number };
}

/** Seconds from the end of the last container until the pod is gone: the kubelet polls (1 s), unmounts and reports. */
const CLEANUP = 3;

/**
 * How long an application took to stop that took longer than its own time, or all that there was: then it was killed.
 * A shortened grace says nothing about the application.
 */
export function slowStopOf({ deletedAt, stoppedAt, goneAt, grace, planned }: PodEnd): number | undefined {
  const whole = grace ?? planned.grace;
  if (whole < planned.grace) return undefined;
  const took = goneAt - stoppedAt;
  const isSlow = took > planned.baseGrace + CLEANUP || goneAt - deletedAt >= whole;
  return isSlow ? took : undefined;
}

/** Seconds. */
export const KEPT_SECONDS = 7 * 86_400;

/** How many findings wait to be sorted in. */
const MOST_UNSORTED = 1_000;

/** The pods of a workload that ended within a minute, as one replica saw them while it led. */
export interface EndedPods {
  /** The minute's beginning: seconds since the epoch. */
  readonly from: number;
  /** The replica that has counted them. */
  readonly by: string;
  readonly namespace: string;
  /** As `Deployment/web`; of a bare pod, `Pod/web`. */
  readonly owner: string;
  readonly ended: number;
  /** Of those, the ones that were stopped too early, and those of which that is not known. */
  readonly tooEarly: number;
  readonly unknown: number;
  /** Without any wait, and with one that was cut short; `cutBy`: by what, the last time. */
  readonly noWait: number;
  readonly cut: number;
  readonly cutBy: string;
  /** The shortest and the longest wait. Seconds; null: none is known. */
  readonly waits: readonly [least: number, most: number] | null;
  /** The longest lag that a wait was compared with, and whose it was. */
  readonly lag: number | null;
  readonly consumer: string;
  /** Consumers that apply and have no known lag. */
  readonly unmeasured: readonly string[];
}

/** For {@link EndedPods}: so many rows are some 350 KB. */
const MOST_ROWS = 1_500;
export const ROW_SECONDS = 60;
const MOST_UNMEASURED = 5;

function rowOf(
  { at, namespace, owner, pod, outcome, waited, cutBy, ...end }: JudgedEnd,
  by: string,
): EndedPods {
  return {
    ...{ from: Math.floor(at / ROW_SECONDS) * ROW_SECONDS, by, namespace, owner: owner || `Pod/${pod}` },
    ...{ ended: 1, tooEarly: Number(outcome === 'TooEarly'), unknown: Number(outcome === 'Unknown') },
    ...{ noWait: Number(waited === 0), cut: Number(cutBy !== ''), cutBy },
    waits: waited === undefined ? null : [waited, waited],
    ...{ lag: end.lag ?? null, consumer: end.consumer, unmeasured: end.unmeasured.slice(0, MOST_UNMEASURED) },
  };
}

/** Both together: of one workload. */
export function sumOfEnded(a: EndedPods, b: EndedPods): EndedPods {
  const waits = [a.waits ?? [], b.waits ?? []].flat();
  const longer = (b.lag ?? -1) > (a.lag ?? -1) ? b : a;
  return {
    ...a,
    from: Math.min(a.from, b.from),
    ended: a.ended + b.ended,
    tooEarly: a.tooEarly + b.tooEarly,
    unknown: a.unknown + b.unknown,
    noWait: a.noWait + b.noWait,
    cut: a.cut + b.cut,
    cutBy: b.cutBy || a.cutBy,
    waits: waits.length === 0 ? null : [Math.min(...waits), Math.max(...waits)],
    lag: longer.lag,
    consumer: longer.consumer,
    unmeasured: [...new Set([...a.unmeasured, ...b.unmeasured])].slice(0, MOST_UNMEASURED),
  };
}

/** What the leader has published of how pods ended. */
export interface TerminationRecord {
  /** Oldest first. */
  readonly findings: readonly TerminationFinding[];
  readonly ended: readonly EndedPods[];
  /** Before this instant there was no room for all rows. Seconds since the epoch. */
  readonly incompleteBefore: number;
}

/** How pods ended in the last week, and what turned out; of very many, the latest. */
export class TerminationLog {
  readonly #by: string;
  #all: readonly TerminationFinding[] = [];
  #added: TerminationFinding[] = [];
  readonly #rows = new Map<string, EndedPods>();
  #incompleteBefore = 0;
  #text: string | undefined;

  /** @param by unique to this replica's process: rows that two replicas have counted are summed */
  constructor(by = '') {
    this.#by = by;
  }

  /**
   * Adding one twice changes nothing: replicas see the same removals. What could not be read back, such as a number that
   * JSON does not have, is left out.
   */
  add(...findings: readonly TerminationFinding[]): void {
    for (const each of findings) if (isFinding(each)) this.#added.push(each);
    this.#text = undefined;
    if (this.#added.length >= MOST_UNSORTED) this.#settle();
  }

  /** Sorted in when they are asked for: a storm adds thousands. */
  #settle(): readonly TerminationFinding[] {
    if (this.#added.length === 0) return this.#all;
    const byKey = new Map<string, TerminationFinding>();
    for (const each of [...this.#all, ...this.#added]) {
      const key = `${each.reason}/${each.uid}`;
      if (!byKey.has(key)) byKey.set(key, each);
    }
    this.#added = [];
    const all = [...byKey.values()].toSorted((a, b) => a.at - b.at);
    const from = (all.at(-1)?.at ?? 0) - KEPT_SECONDS;
    const room: Record<string, number> = {};
    this.#all = all
      .toReversed()
      .filter(({ at, reason }) => {
        room[reason] = (room[reason] ?? TERMINATION_FINDINGS[reason]) - 1;
        return at >= from && room[reason] >= 0;
      })
      .toReversed();
    return this.#all;
  }

  /** Counts a pod that has ended. */
  count(end: JudgedEnd): void {
    const row = rowOf(end, this.#by);
    if (!areEndedPods(row)) return;
    const before = this.#rows.get(keyOfRow(row));
    this.#put(before === undefined ? row : sumOfEnded(before, row));
  }

  #put(row: EndedPods): void {
    const key = keyOfRow(row);
    this.#text = undefined;
    const isNew = !this.#rows.delete(key);
    this.#rows.set(key, row);
    if (!isNew) return;
    for (const [old, { from }] of this.#rows) if (from < row.from - KEPT_SECONDS) this.#rows.delete(old);
    if (this.#rows.size <= MOST_ROWS) return;
    // The namespace with the most rows makes room, so that none can push out the others'.
    const namespaces = [...Map.groupBy(this.#rows.values(), ({ namespace }) => namespace).values()];
    const largest = namespaces.reduce((most, each) => (each.length > most.length ? each : most));
    const oldest = largest.reduce((least, each) => (each.from < least.from ? each : least));
    this.#rows.delete(keyOfRow(oldest));
    this.#incompleteBefore = Math.max(this.#incompleteBefore, oldest.from + ROW_SECONDS);
  }

  /** Oldest first. @param from seconds since the epoch */
  since(from: number): readonly TerminationFinding[] {
    return this.#settle().filter(({ at }) => at >= from);
  }

  get ended(): readonly EndedPods[] {
    return [...this.#rows.values()];
  }

  /** Takes in what {@link text} has said; idempotent. @returns undefined for what it does not say */
  readonly restore = (json: unknown): true | undefined => {
    const record = terminationsIn(json);
    if (record === undefined) return undefined;
    this.add(...record.findings);
    for (const row of record.ended)
      if (row.ended > (this.#rows.get(keyOfRow(row))?.ended ?? 0)) this.#put(row);
    this.#incompleteBefore = Math.max(this.#incompleteBefore, record.incompleteBefore);
    return true;
  };

  /** The same text as long as nothing is added; empty while there is nothing. */
  get text(): string {
    const findings = this.#settle();
    if (findings.length === 0 && this.#rows.size === 0) return '';
    const { ended } = this;
    const incompleteBefore = this.#incompleteBefore;
    this.#text ??= JSON.stringify({ v: 2, findings, ended, incompleteBefore }, rounded);
    return this.#text;
  }
}

function keyOfRow({ from, by, namespace, owner }: EndedPods): string {
  return `${from} ${by} ${namespace} ${owner}`;
}

/** Milliseconds are as fine as it is known. */
function rounded(_member: string, value: unknown): unknown {
  return typeof value === 'number' ? Math.round(value * 1000) / 1000 : value;
}

/** @returns undefined for what {@link TerminationLog.text} does not say; records of older versions have no rows */
export function terminationsIn(json: unknown): TerminationRecord | undefined {
  if (!isRecord(json) || json.v !== 2 || !Array.isArray(json.findings)) return undefined;
  const { ended = [], incompleteBefore = 0 } = json;
  const findings = readEntries(json.findings, (each) => (isFinding(each) ? each : undefined));
  return {
    findings,
    ended: readEntries(ended, (each) => (areEndedPods(each) ? each : undefined)),
    incompleteBefore: Number.isFinite(incompleteBefore) ? (incompleteBefore as number) : 0,
  };
}

function areEndedPods(value: unknown): value is EndedPods {
  if (!isRecord(value)) return false;
  const { from, by, namespace, owner, cutBy, consumer, unmeasured, waits, lag } = value;
  const { ended, tooEarly, unknown, noWait, cut } = value;
  if (![by, namespace, owner, cutBy, consumer].every(isString) || !areTexts(unmeasured)) return false;
  if (![from, ended, tooEarly, unknown, noWait, cut].every(Number.isFinite)) return false;
  if (waits !== null && !(Array.isArray(waits) && waits.length === 2 && waits.every(Number.isFinite)))
    return false;
  return lag === null || Number.isFinite(lag);
}

function isFinding(value: unknown): value is TerminationFinding {
  if (!isRecord(value) || !isString(value.reason)) return false;
  if (!Object.hasOwn(TERMINATION_FINDINGS, value.reason)) return false;
  const { reason, namespace, pod, uid, owner, at, seconds, connections = 0, from = [] } = value;
  if (![namespace, pod, uid, owner].every(isString) || !areTexts(from)) return false;
  if (![at, seconds, connections].every(Number.isFinite)) return false;
  const { wait, lag, services, consumer = '' } = value;
  if (!isString(consumer)) return false;
  return reason !== 'StoppedTooEarly' || ([wait, lag].every(Number.isFinite) && areTexts(services));
}

function areTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every(isString);
}
