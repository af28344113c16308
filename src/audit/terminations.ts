import { isRecord, isString, readEntries } from '../api/index.ts';
import type { RemovalSample } from '../lag/index.ts';

/** What may turn out at the end of a pod, and for how many of each there is room in the log. */
export const TERMINATION_FINDINGS = {
  StoppedTooEarly: 2_000,
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

/** A pod whose process was stopped before its endpoint had been withdrawn everywhere. */
export interface Shortfall extends TerminationFinding {
  readonly reason: 'StoppedTooEarly';
  /** For how long its hook held SIGTERM back. Seconds; 0: it had none. */
  readonly wait: number;
  /** From its deletion until the last list had withdrawn it; `seconds` is lag − wait. */
  readonly lag: number;
  /** The Services whose lists came late. */
  readonly services: readonly string[];
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
    const { wait, lag, services } = finding;
    const when = wait === 0 ? 'at once' : `after ${wait}s`;
    return `${subject} got SIGTERM ${when}, and ${services.join(', ')} listed it for ${tenths(lag)}s: for ${seconds}s requests may have been lost.`;
  }
  switch (reason) {
    case 'UndeclaredConsumer':
      return `${subject} got ${counted(connections)} within ${seconds}s after every consumer that is known had let go of it, from ${from.join(', ') || 'addresses not known'}: declare that consumer (DiscoveryConsumer).`;
    case 'OpenAtStop':
      return `${subject} got SIGTERM with ${counted(connections)} open: their clients lose what they send unless the application drains them.`;
    case 'SlowStop':
      return `${subject} took ${seconds}s after SIGTERM, longer than its own part of the grace: it ignores SIGTERM, or needs a longer terminationGracePeriodSeconds.`;
    default:
      return `${subject} was to be held, and was gone ${seconds}s after its deletion without a call: the Hold Service cannot be reached from it (egress denied?), the helper is missing, or none of its containers was running.`;
  }
}

function counted(connections: number): string {
  return connections === 1 ? '1 connection' : `${connections} connections`;
}

function tenths(seconds: number): number {
  return Math.round(seconds * 10) / 10;
}

/** What is known of a pod at its deletion. */
export interface StoppingPod {
  readonly owner: string;
  /** The wait of its hook, Linger's or its author's. Seconds; undefined: not known. */
  readonly wait: number | undefined;
  /** Of the deletion: it cuts the wait short. Seconds; undefined: not said. */
  readonly grace: number | undefined;
}

/** Events of two watches cannot be compared more precisely: see the recorder. Seconds. */
const TOLERANCE = 0.25;

/**
 * Compares a removal with its pod's wait. Consumers follow after the control plane, so the shortfall is a lower bound.
 * @param endedAt when the last list withdrew it: seconds since the epoch
 * @returns undefined where its process was not stopped too early, or where that is not known
 */
export function shortfallOf(
  { namespace, pod, uid, lag, withdrawals }: RemovalSample,
  { owner, wait, grace }: StoppingPod,
  endedAt: number,
): Shortfall | undefined {
  if (wait === undefined) return undefined;
  const held = Math.min(wait, grace ?? wait);
  const seconds = lag - held;
  if (seconds <= TOLERANCE) return undefined;
  const late = withdrawals.filter((each) => each.lag > held).map(({ name }) => name);
  const services = [...new Set(late)].toSorted();
  const at = endedAt - seconds;
  return { reason: 'StoppedTooEarly', at, namespace, pod, uid, owner, wait: held, lag, seconds, services };
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

/** The findings of the last week; of very many, the latest. */
export class TerminationLog {
  #all: readonly TerminationFinding[] = [];
  #added: TerminationFinding[] = [];
  #text: string | undefined;

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
    const byKey = new Map([...this.#added, ...this.#all].map((each) => [`${each.reason}/${each.uid}`, each]));
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

  /** Oldest first. @param from seconds since the epoch */
  since(from: number): readonly TerminationFinding[] {
    return this.#settle().filter(({ at }) => at >= from);
  }

  /** Takes in what {@link text} has said. @returns undefined for what it does not say */
  readonly restore = (json: unknown): true | undefined => {
    const findings = terminationsIn(json);
    if (findings === undefined) return undefined;
    this.add(...findings);
    return true;
  };

  /** The same text as long as nothing is added; empty while there is nothing. */
  get text(): string {
    const findings = this.#settle();
    this.#text ??= findings.length === 0 ? '' : JSON.stringify({ v: 2, findings }, rounded);
    return this.#text;
  }
}

/** Milliseconds are as fine as it is known. */
function rounded(_member: string, value: unknown): unknown {
  return typeof value === 'number' ? Math.round(value * 1000) / 1000 : value;
}

/** @returns undefined for what {@link TerminationLog.text} does not say */
export function terminationsIn(json: unknown): readonly TerminationFinding[] | undefined {
  if (!isRecord(json) || json.v !== 2 || !Array.isArray(json.findings)) return undefined;
  return readEntries(json.findings, findingIn);
}

function findingIn(value: unknown): TerminationFinding | undefined {
  return isFinding(value) ? value : undefined;
}

function isFinding(value: unknown): value is TerminationFinding {
  if (!isRecord(value) || !isString(value.reason)) return false;
  if (!Object.hasOwn(TERMINATION_FINDINGS, value.reason)) return false;
  const { reason, namespace, pod, uid, owner, at, seconds, connections = 0, from = [] } = value;
  if (![namespace, pod, uid, owner].every(isString) || !areTexts(from)) return false;
  if (![at, seconds, connections].every(Number.isFinite)) return false;
  const { wait, lag, services } = value;
  return reason !== 'StoppedTooEarly' || ([wait, lag].every(Number.isFinite) && areTexts(services));
}

function areTexts(value: unknown): value is readonly string[] {
  return Array.isArray(value) && value.every(isString);
}
