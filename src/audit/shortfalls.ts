import { isRecord, isString } from '../api/index.ts';
import type { RemovalSample } from '../lag/index.ts';

/** A pod whose process was stopped before everybody had been told that its endpoint is gone. */
export interface Shortfall {
  /** When SIGTERM came: seconds since the epoch. */
  readonly at: number;
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  /** What made the pod, as `Deployment/web`; empty: nothing. */
  readonly owner: string;
  /** For how long its hook held SIGTERM back. Seconds; 0: it had none. */
  readonly wait: number;
  /** From its deletion until the last list had withdrawn it. Seconds. */
  readonly lag: number;
  /** For how long requests may have been sent to a process that was stopping: lag − wait. Seconds. */
  readonly seconds: number;
  /** The Services whose lists came late. */
  readonly services: readonly string[];
}

/** What is known of a pod at its deletion. */
export interface StoppingPod {
  readonly owner: string;
  /** Its hook's wait, whoever wrote it. Seconds; undefined: it cannot be told. */
  readonly wait: number | undefined;
  /** Of the deletion: it cuts the wait short. Seconds; undefined: not said. */
  readonly grace: number | undefined;
}

/** Two watches cannot be told apart by less: see the recorder. Seconds. */
const TOLERANCE = 0.25;

/**
 * Holds a removal against the wait of its pod. Consumers take longer than the control plane, so what is told is the least.
 * @param endedAt when the last list withdrew it: seconds since the epoch
 * @returns undefined where its process was stopped in time, or nobody can say
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
  return { at: endedAt - seconds, namespace, pod, uid, owner, wait: held, lag, seconds, services };
}

/** At 200 to 300 bytes each, well within a ConfigMap. */
const MOST_KEPT = 2_000;
/** Longer than anybody asks: seconds. */
const KEPT_SECONDS = 7 * 86_400;

/** The shortfalls of the last week; of very many, the latest. */
export class ShortfallLog {
  #all: readonly Shortfall[] = [];
  #text: string | undefined;

  /** Adding one twice changes nothing: replicas see the same removals. */
  add(...shortfalls: readonly Shortfall[]): void {
    const known = new Set(this.#all.map(({ uid }) => uid));
    const added = shortfalls.filter(({ uid }) => !known.has(uid));
    if (added.length === 0) return;
    const all = [...this.#all, ...added].toSorted((a, b) => a.at - b.at);
    const from = (all.at(-1)?.at ?? 0) - KEPT_SECONDS;
    this.#all = all.filter(({ at }) => at >= from).slice(-MOST_KEPT);
    this.#text = undefined;
  }

  /** Oldest first. @param from seconds since the epoch */
  since(from: number): readonly Shortfall[] {
    return this.#all.filter(({ at }) => at >= from);
  }

  /** Takes in what {@link text} has said. @returns undefined for what it does not say */
  readonly restore = (json: unknown): true | undefined => {
    const shortfalls = shortfallsIn(json);
    if (shortfalls === undefined) return undefined;
    this.add(...shortfalls);
    return true;
  };

  /** The same text as long as nothing is added; empty while there is nothing. */
  get text(): string {
    if (this.#all.length === 0) return '';
    this.#text ??= JSON.stringify({ v: 1, shortfalls: this.#all.map(rounded) });
    return this.#text;
  }
}

/** Milliseconds are as fine as it is known. */
function rounded(shortfall: Shortfall): Shortfall {
  const { at, wait, lag, seconds } = shortfall;
  const round = (value: number) => Math.round(value * 1000) / 1000;
  return { ...shortfall, at: round(at), wait: round(wait), lag: round(lag), seconds: round(seconds) };
}

/** @returns undefined for what {@link ShortfallLog.text} does not say */
export function shortfallsIn(json: unknown): readonly Shortfall[] | undefined {
  if (!isRecord(json) || json.v !== 1 || !Array.isArray(json.shortfalls)) return undefined;
  const all: readonly unknown[] = json.shortfalls;
  return all.every(isShortfall) ? all : undefined;
}

function isShortfall(value: unknown): value is Shortfall {
  if (!isRecord(value) || !Array.isArray(value.services) || !value.services.every(isString)) return false;
  const { at, namespace, pod, uid, owner, wait, lag, seconds } = value;
  return [namespace, pod, uid, owner].every(isString) && [at, wait, lag, seconds].every(Number.isFinite);
}
