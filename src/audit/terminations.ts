import { z } from 'zod';
import { type Curable, FairLog, isRecord, listOf } from '../core/api/index.ts';
import type { RemovalSample } from '../core/lag/index.ts';
import { isTermination, MOST_USERS, type Termination } from '../core/timeline/index.ts';

/**
 * What may be found at the end of a pod, with how many characters of the log each kind may take: about 1,000 entries of the
 * first kind, and 200 of each other.
 */
export const TERMINATION_FINDINGS = {
  StoppedTooEarly: {
    characters: 250_000,
    means:
      'The pod got SIGTERM while it was still listed, or before the slowest consumer had followed (p99): requests may have been lost.',
    cure: 'A longer wait, faster controllers ([diagnose](#diagnose)), or [Hold](../concepts.md#hold).',
  },
  UndeclaredConsumer: {
    characters: 50_000,
    means:
      'At least two [held](../concepts.md#hold) pods got connections from one address after every known consumer had stopped. The Event names only the address. One connection in a hundred may come from a consumer measured by a probe.',
    cure: 'Declare the sender as a DiscoveryConsumer. `(node NAME)`: a gateway with `hostNetwork`, or the kubelet.',
  },
  OpenAtStop: {
    characters: 40_000,
    means: 'Connections were open when a held pod got SIGTERM: keep-alive clients, which no wait closes.',
    cure: 'The application must drain on SIGTERM.',
  },
  SlowStop: {
    characters: 40_000,
    means: 'After SIGTERM, a pod with a plan used more than its own part of the grace, or all of it.',
    cure: 'It ignores SIGTERM, or `terminationGracePeriodSeconds` is too short. With Hold it lives that much longer.',
  },
  HoldUnreachable: {
    characters: 40_000,
    means:
      'A listed pod with hook Hold ended without a call from its hook: its wait was the static one, or none.',
    cure: "Allow egress to port 8445 of Linger's namespace; is [the helper](operations.md#the-helper-of-hold) there?",
  },
} as const satisfies Readonly<Record<string, Curable & { readonly characters: number }>>;
export type TerminationReason = keyof typeof TERMINATION_FINDINGS;

const TEXTS = z.array(z.string()).readonly();

const FINDING = z.object({
  reason: z.enum(Object.keys(TERMINATION_FINDINGS) as TerminationReason[]),
  /** When SIGTERM was sent; for `HoldUnreachable`, when the pod was deleted. Seconds since the epoch. */
  at: z.number(),
  namespace: z.string(),
  pod: z.string(),
  uid: z.string(),
  /** The workload of the pod, as `Deployment/web`; empty: it has none. */
  owner: z.string(),
  /**
   * For how many seconds requests may have been lost or were still sent, or how long the application or the pod took; 0 if
   * that does not apply.
   */
  seconds: z.number(),
  /** Present for `UndeclaredConsumer` and `OpenAtStop`. */
  connections: z.number().exactOptional(),
  /** Present for `UndeclaredConsumer`: addresses, with their owners if these are known. */
  from: TEXTS.exactOptional(),
});

const SHORTFALL = FINDING.extend({
  reason: z.literal('StoppedTooEarly'),
  /** How long its hook delayed SIGTERM. Seconds; 0: it had none. */
  wait: z.number(),
  /** From its deletion until the last list had withdrawn it and the consumer had followed; `seconds` is lag − wait. */
  lag: z.number(),
  /** The first Services that listed it, and how many more there were. */
  services: TEXTS,
  omitted: z.int().exactOptional(),
  /**
   * The slowest consumer that applies, whose 99th percentile is part of the lag; absent: the lag consists of the lists
   * alone.
   */
  consumer: z.string().exactOptional(),
});

/** Something that was found at the end of a pod. */
export type TerminationFinding = Readonly<z.infer<typeof FINDING>>;

/** A pod whose process was stopped before everything that sends it traffic had followed its removal. */
export type Shortfall = Readonly<z.infer<typeof SHORTFALL>>;

export function isShortfall(finding: TerminationFinding): finding is Shortfall {
  return finding.reason === 'StoppedTooEarly';
}

/** A full sentence about the pod. */
export function sentenceOf(finding: TerminationFinding): string {
  const { reason, pod, connections = 0, from = [] } = finding;
  const seconds = tenths(finding.seconds);
  const subject = `Pod ${pod}`;
  if (isShortfall(finding)) {
    const { wait, lag, omitted = 0, consumer } = finding;
    const services = [...finding.services, ...(omitted > 0 ? [`${omitted} more`] : [])].join(', ');
    const when = wait === 0 ? 'immediately' : `after ${tenths(wait)}s`;
    const until =
      consumer === undefined
        ? `${services} listed it for ${tenths(lag)}s`
        : `${consumer} follows its removal from ${services} within ${tenths(lag)}s (p99)`;
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

/** What is known, at a pod's deletion, about the consumers that send it traffic. */
export interface SendersLag {
  /** The slowest consumer with a known lag: its 99th percentile, in seconds after the control plane's change. */
  readonly slowest: { readonly name: string; readonly seconds: number } | undefined;
  /** The consumers of which nothing has been measured. */
  readonly unknown: readonly string[];
}

/**
 * How long a pod's hooks delay SIGTERM, until its first container stops. Seconds; the bounds differ if a hook cannot be read
 * completely.
 */
export interface WaitBounds {
  readonly least: number;
  readonly most: number;
}

export const UNKNOWN_WAIT: WaitBounds = { least: 0, most: Number.POSITIVE_INFINITY };

/** What is known of a pod at its deletion. */
export interface StoppingPod {
  readonly owner: string;
  /** The wait of its hooks, whether Linger's or its author's. */
  readonly wait: WaitBounds;
  /** The grace period in the deletion, which may cut the wait short. Seconds; undefined: it had none. */
  readonly grace: number | undefined;
  readonly senders: SendersLag;
}

/** Whether a pod was stopped in time. `Unknown`: its wait, or the lag of a consumer, is unknown. */
export const TERMINATION_OUTCOMES = ['InTime', 'TooEarly', 'Unknown'] as const;
export type TerminationOutcome = (typeof TERMINATION_OUTCOMES)[number];

/** A pod that has ended, judged. */
export interface JudgedEnd extends Pick<TerminationFinding, 'at' | 'namespace' | 'owner' | 'pod'> {
  readonly outcome: TerminationOutcome;
  /** How long SIGTERM was delayed. Seconds; undefined: not known. */
  readonly waited: number | undefined;
  /** What cut the wait short: `grace 5s`, `Max`; empty: nothing did. */
  readonly cutBy: string;
  /** The lag with which the wait was compared. Seconds; undefined: none. */
  readonly lag: number | undefined;
  /** The slowest consumer; empty: none is known. */
  readonly consumer: string;
  /** The consumers without a known lag. */
  readonly unmeasured: readonly string[];
}

/** Events of two watches cannot be compared more precisely than this: see the recorder. Seconds. */
const TOLERANCE = 0.25;

/**
 * Compares a pod's wait with its removal: with the lists, whose lag has just been measured, plus the 99th percentile of the
 * slowest consumer, which follows them. A pod without any wait always stopped too early, because nothing follows in no time.
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
  const omitted = services.length > MOST_USERS && { omitted: services.length - MOST_USERS };
  const named = { services: services.slice(0, MOST_USERS), ...omitted };
  return {
    end: ended('TooEarly'),
    shortfall: { ...shortfall, wait: most, lag, seconds: lag - most, ...named },
  };
}

/** The end of a pod with a plan. Instants are seconds of one clock. */
export interface PodEnd {
  readonly deletedAt: number;
  /** When SIGTERM was sent. */
  readonly stoppedAt: number;
  /** When the pod was gone from the API server. */
  readonly goneAt: number;
  /** The grace period in the deletion; undefined: it had none. */
  readonly grace: number | undefined;
  /** The graces in the plan. */
  readonly planned: { readonly grace: number; readonly baseGrace: number };
}

/** Seconds from the end of the last container until the pod is gone: the kubelet polls (1 s), unmounts and reports. */
const CLEANUP = 3;

/**
 * How long an application took to stop, if that was longer than its own time, or all the time that there was, after which it
 * was killed. Undefined if the grace was shortened, which says nothing about the application.
 */
export function slowStopOf({ deletedAt, stoppedAt, goneAt, grace, planned }: PodEnd): number | undefined {
  const whole = grace ?? planned.grace;
  if (whole < planned.grace) return undefined;
  const took = goneAt - stoppedAt;
  const isSlow = took > planned.baseGrace + CLEANUP || goneAt - deletedAt >= whole;
  return isSlow ? took : undefined;
}

/** Seconds that entries are kept. */
export const KEPT_SECONDS = 7 * 86_400;

const ENDED_PODS = z.object({
  /** The beginning of the minute: seconds since the epoch. */
  from: z.number(),
  /** The replica that counted them. */
  by: z.string(),
  namespace: z.string(),
  /** As `Deployment/web`; for a bare pod, `Pod/web`. */
  owner: z.string(),
  ended: z.number(),
  /** How many of them were stopped too early, and for how many that is unknown. */
  tooEarly: z.number(),
  unknown: z.number(),
  /** How many had no wait, and how many one that was cut short; `cutBy`: what cut the latest of these. */
  noWait: z.number(),
  cut: z.number(),
  cutBy: z.string(),
  /** The shortest and the longest wait. Seconds; null: none is known. */
  waits: z.tuple([z.number(), z.number()]).readonly().nullable(),
  /** The longest lag with which a wait was compared, and the consumer whose lag it was. */
  lag: z.number().nullable(),
  consumer: z.string(),
  /** Consumers that apply, but have no known lag. */
  unmeasured: TEXTS,
});

/** The pods of a workload that ended within one minute, as counted by one replica while it led. */
export type EndedPods = Readonly<z.infer<typeof ENDED_PODS>>;

/** The longest entry: names have at most 253 characters, and {@link MOST_USERS} of each kind are kept. */
const LONGEST = 8_000;
/** Characters for {@link EndedPods}, which is enough for some 1,500. All logs together fit into a ConfigMap of 1 MiB. */
const ROOM_FOR_ROWS = 350_000;
/** Characters for the latest terminations, which is enough for some 200. */
const ROOM_FOR_TERMINATIONS = 150_000;
export const ROW_SECONDS = 60;
const MOST_UNMEASURED = 5;

function rowOf(
  { at, namespace, owner, pod, outcome, waited, cutBy, ...end }: JudgedEnd,
  by: string,
): EndedPods {
  return {
    from: Math.floor(at / ROW_SECONDS) * ROW_SECONDS,
    by,
    namespace,
    owner: owner || `Pod/${pod}`,
    ended: 1,
    tooEarly: Number(outcome === 'TooEarly'),
    unknown: Number(outcome === 'Unknown'),
    noWait: Number(waited === 0),
    cut: Number(cutBy !== ''),
    cutBy,
    waits: waited === undefined ? null : [waited, waited],
    lag: end.lag ?? null,
    consumer: end.consumer,
    unmeasured: end.unmeasured.slice(0, MOST_UNMEASURED),
  };
}

/** The sum of two entries of one workload. */
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

/** What the leader has published about how pods ended. */
export interface TerminationRecord {
  /** Oldest first. */
  readonly findings: readonly TerminationFinding[];
  readonly ended: readonly EndedPods[];
  /** Rows from before this instant are incomplete for lack of room. Seconds since the epoch. */
  readonly incompleteBefore: number;
  /** The instants of the latest terminations. */
  readonly terminations: readonly Termination[];
}

/** How pods ended in the last week, and what was found. If there were very many, the latest of each namespace. */
export class TerminationLog {
  readonly #by: string;
  readonly #findings = new Map(
    Object.entries(TERMINATION_FINDINGS).map(([reason, { characters }]) => [
      reason,
      new FairLog<TerminationFinding>({ characters, longest: LONGEST }, ({ at }) => at),
    ]),
  );
  readonly #rows = new FairLog<EndedPods>(
    { characters: ROOM_FOR_ROWS, longest: LONGEST },
    ({ from }) => from,
  );
  readonly #recent = new FairLog<Termination>(
    { characters: ROOM_FOR_TERMINATIONS, longest: LONGEST },
    ({ deletedAt }) => deletedAt,
  );
  #incompleteBefore = 0;
  #newest = 0;
  #text: string | undefined;

  /** @param by identifies this replica's process, because rows that two replicas have counted are added up */
  constructor(by = '') {
    this.#by = by;
  }

  /**
   * Adds findings. Adding one twice changes nothing, since replicas see the same removals. Findings that could not be read
   * back, such as one with a number that JSON does not have, are left out.
   */
  add(...findings: readonly TerminationFinding[]): void {
    for (const finding of findings.flatMap(findingIn)) {
      const log = this.#findings.get(finding.reason);
      if (log === undefined || log.get(finding.uid) !== undefined) continue;
      const dropped = log.put(finding.uid, finding);
      this.#changed(finding.at, isShortfall(finding) ? dropped.map(({ at }) => at) : []);
    }
  }

  /** Counts a pod that has ended. */
  count(end: JudgedEnd): void {
    const { data: row } = ENDED_PODS.safeParse(rowOf(end, this.#by));
    if (row === undefined) return;
    const before = this.#rows.get(keyOfRow(row));
    this.#put(before === undefined ? row : sumOfEnded(before, row));
  }

  /** Stores the instants of a termination, as far as there is room. */
  keep(termination: Termination): void {
    if (this.#recent.get(termination.uid) !== undefined || !isTermination(termination)) return;
    this.#recent.put(termination.uid, termination);
    this.#text = undefined;
  }

  #put(row: EndedPods): void {
    const dropped = this.#rows.put(keyOfRow(row), row);
    this.#changed(
      row.from,
      dropped.map(({ from }) => from + ROW_SECONDS),
    );
  }

  /** @param dropped the instants up to which counts are now too low */
  #changed(at: number, dropped: readonly number[]): void {
    this.#text = undefined;
    this.#newest = Math.max(this.#newest, at);
    this.#incompleteBefore = Math.max(this.#incompleteBefore, ...dropped);
  }

  /** Oldest first. @param from seconds since the epoch */
  since(from: number): readonly TerminationFinding[] {
    const oldest = Math.max(from, this.#newest - KEPT_SECONDS);
    const all = [...this.#findings.values()].flatMap((log) => log.all);
    return all.filter(({ at }) => at >= oldest).toSorted((a, b) => a.at - b.at);
  }

  get ended(): readonly EndedPods[] {
    return this.#rows.all.filter(({ from }) => from >= this.#newest - KEPT_SECONDS);
  }

  /** Merges what another log's {@link text} contains; idempotent. @returns undefined for anything else */
  readonly restore = (json: unknown): true | undefined => {
    const record = terminationsIn(json);
    if (record === undefined) return undefined;
    this.add(...record.findings);
    for (const row of record.ended)
      if (row.ended > (this.#rows.get(keyOfRow(row))?.ended ?? 0)) this.#put(row);
    this.#incompleteBefore = Math.max(this.#incompleteBefore, record.incompleteBefore);
    for (const each of record.terminations) this.keep(each);
    return true;
  };

  /** The same string while nothing is added; empty while there is nothing. */
  get text(): string {
    this.#text ??= this.#rendered();
    return this.#text;
  }

  #rendered(): string {
    const { ended } = this;
    const findings = this.since(0);
    const terminations = this.#recent.all;
    if (findings.length + ended.length + terminations.length === 0) return '';
    const incompleteBefore = this.#incompleteBefore;
    return JSON.stringify({ v: 2, findings, ended, incompleteBefore, terminations }, rounded);
  }
}

function keyOfRow({ from, by, namespace, owner }: EndedPods): string {
  return `${from} ${by} ${namespace} ${owner}`;
}

/** Rounds numbers to milliseconds, because they are not known more precisely. */
function rounded(_member: string, value: unknown): unknown {
  return typeof value === 'number' ? Math.round(value * 1000) / 1000 : value;
}

/** @returns undefined for anything other than {@link TerminationLog.text}; records of older versions have no rows */
export function terminationsIn(json: unknown): TerminationRecord | undefined {
  if (!isRecord(json) || json.v !== 2 || !Array.isArray(json.findings)) return undefined;
  const { findings, ended, incompleteBefore = 0, terminations } = json;
  return {
    findings: listOf(findings).flatMap(findingIn),
    ended: listOf(ended).flatMap((each) => ENDED_PODS.safeParse(each).data ?? []),
    incompleteBefore: Number.isFinite(incompleteBefore) ? (incompleteBefore as number) : 0,
    terminations: listOf(terminations).filter(isTermination),
  };
}

function findingIn(value: unknown): readonly TerminationFinding[] {
  const isShort = isRecord(value) && value.reason === 'StoppedTooEarly';
  const { data } = (isShort ? SHORTFALL : FINDING).safeParse(value);
  return data === undefined ? [] : [data];
}
