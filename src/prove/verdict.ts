import { type Explained, fewOf, grouped } from '../core/api/index.ts';
import type { LossKind, RequestOutcome } from './traffic-plan.ts';

/** What happened to a pod. Instants in milliseconds since the epoch. */
export interface PodLife {
  readonly name: string;
  node?: string | undefined;
  /** One for each IP family. */
  addresses?: readonly string[];
  createdAt: number;
  deletedAt?: number;
  /** When no EndpointSlice, or no Endpoints object, listed it as ready any more. */
  withdrawnAt?: number;
  endpointsAt?: number;
  /** When it was unready and became ready again. */
  unready?: readonly { readonly from: number; readonly to: number }[];
  /** Computed from its hooks, because the API never shows when SIGTERM is sent. Unknown with Hold. */
  sigtermAt?: number;
  /** When its last container ended, rounded down to the second. */
  endedAt?: number;
  goneAt?: number;
  /** How many seconds its hooks delay SIGTERM. */
  wait: number | 'Hold';
}

/** Why a request was lost. */
export const LOSS_CAUSES = {
  late: {
    means:
      'It was sent to a pod that had got SIGTERM or ended: whatever chose the pod had not followed the withdrawal. A longer wait covers it.',
  },
  inFlight: {
    means: 'It was under way when its pod got SIGTERM: the application did not finish what it had accepted.',
  },
  kept: {
    means:
      'It was sent on a connection that had stayed open since before SIGTERM. No wait covers it: the server must close idle connections before it ends.',
  },
  unready: {
    means:
      'No pod was ending, but one that stayed was not ready: the application or its node was overloaded.',
  },
  ghost: {
    means:
      'No pod was ending, but an earlier rollout was less than two minutes ago: [ghost losses](commands.md#ghost-losses).',
  },
  unexplained: {
    means: 'No pod of the workload that was ending explains it: look for another cause, such as overload.',
  },
} as const satisfies Readonly<Record<string, Explained>>;
export type LossCause = keyof typeof LOSS_CAUSES;

/** A request that was lost, or was answered slowly. */
export interface FailedRequest {
  readonly at: number;
  readonly tookMs: number;
  readonly way: string;
  readonly kind: LossKind | 'slow';
  readonly cause: LossCause;
  /** The pods to which it may have been sent; if there is only one, it was sent to that one. */
  readonly pods: readonly string[];
  /** Of those pods, the latest event before the request of the one withdrawn last, and how many seconds before. */
  readonly after: { readonly event: LifeEvent; readonly seconds: number } | null;
  /** Seconds since the deletion, and since the withdrawal, of the one of them that was deleted first. */
  readonly sinceDeletion: number | null;
  readonly sinceWithdrawal: number | null;
}

export type LifeEvent = 'deleted' | 'withdrawn' | 'withdrawnFromEndpoints' | 'sigterm' | 'ended' | 'gone';

export interface WayVerdict {
  readonly name: string;
  readonly keepAlive: boolean;
  readonly sent: number;
  readonly lost: number;
  readonly slow: number;
  readonly kinds: Readonly<Partial<Record<LossKind, number>>>;
  readonly causes: Readonly<Partial<Record<LossCause, number>>>;
  /** Requests that were sent while a pod was terminating. */
  readonly atRisk: number;
  /** The share of requests at risk that may be lost, at 95 % confidence, if none of them was. */
  readonly upperBound: number | null;
  /** Seconds from the deletion to the last request that went to the pod: the least and the most that it can be. */
  readonly lag: { readonly least: number; readonly most: number } | null;
}

export interface ProveVerdict {
  readonly sent: number;
  readonly lost: number;
  readonly slow: number;
  readonly atRisk: number;
  readonly upperBound: number | null;
  readonly sentence: string;
  /** How many seconds of wait would have lost nothing (with some margin), and how many would have lost 2 %. */
  readonly advice: { readonly wait: number; readonly waitFor98: number } | null;
  readonly ways: readonly WayVerdict[];
  /** The lost requests. */
  readonly failures: readonly FailedRequest[];
  readonly slowAnswers: readonly FailedRequest[];
}

export interface Evidence {
  readonly ways: readonly { readonly name: string; readonly keepAlive: boolean }[];
  readonly outcomes: readonly RequestOutcome[];
  readonly pods: readonly PodLife[];
  /** Answers that take longer than this are slow. */
  readonly slowMs: number;
  /** Whether a pod was replaced in the two minutes before the first request. */
  readonly afterRollout: boolean;
}

/** How much the clocks of watches, nodes and senders may differ. */
const TOLERANCE_MS = 300;
/** Ends are known only in whole seconds of the node's clock. */
const ENDED_EARLY_MS = 2_000;
const UNREADY_MS = 5_000;
/** A way counts as clear of a dead pod once that many answers in a row would be this unlikely otherwise. */
const CLEARED = 0.001;
/** Waits that people would choose. Seconds. */
const STEPS = [1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 40, 50, 60, 75, 90, 120, 150, 180, 240, 300, 420, 600];

/** Explains the losses, and says what they mean. Pure: the same evidence gives the same verdict. */
export function judge(evidence: Evidence): ProveVerdict {
  const { ways, outcomes, pods } = evidence;
  const byWay = ways.map((way, index) => {
    const own = outcomes.filter((each) => each.way === index).toSorted((a, b) => a.at - b.at);
    return judgeWay(way, own, evidence);
  });
  const inOrder = (all: readonly FailedRequest[]) => all.toSorted((a, b) => a.at - b.at);
  const failures = inOrder(byWay.flatMap((each) => each.failures));
  const slowAnswers = inOrder(byWay.flatMap((each) => each.slowAnswers));
  const verdicts = byWay.map((each) => each.verdict);
  const sum = (of: (way: WayVerdict) => number) => verdicts.reduce((total, way) => total + of(way), 0);
  const totals = { sent: sum((way) => way.sent), lost: failures.length, slow: slowAnswers.length };
  const atRisk = sum((way) => way.atRisk);
  const late = byWay.filter((each) => each.verdict.lag !== null);
  const advice =
    late.length === 0
      ? null
      : {
          wait: Math.max(...late.map(({ verdict, episodes }) => covering(verdict.lag?.most ?? 0, episodes))),
          waitFor98: Math.max(...late.map((each) => Math.ceil(quantile(each.ages, 0.98)))),
        };
  const upperBound = failures.length === 0 ? ruleOfThree(atRisk, pods) : null;
  const sentence = sentenceOf({ ...totals, atRisk, upperBound }, verdicts, failures, advice, pods);
  return { ...totals, atRisk, upperBound, sentence, advice, ways: verdicts, failures, slowAnswers };
}

/**
 * The share that may be lost, at 95 % confidence, if none of this many was; null: nothing was sent at risk, or not until all
 * pods had ended.
 */
const ruleOfThree = (tried: number, pods: readonly PodLife[]): number | null =>
  tried === 0 || pods.some(isLeaving) ? null : Math.min(1, 3 / tried);

const isLeaving = ({ deletedAt, goneAt }: PodLife) => deletedAt !== undefined && goneAt === undefined;

/**
 * The wait to advise for the delays that were seen. Of n delays of a consumer that polls, the longest exceeds a share
 * 0.05^(1/n) of its interval with 95 % confidence. So few delays show little, and the advice is the longest delay, enlarged
 * accordingly, but at most threefold.
 */
function covering(seconds: number, episodes: number): number {
  const needed = seconds * Math.min(3, 0.05 ** (-1 / Math.max(1, episodes))) + 0.5;
  return STEPS.find((step) => step >= needed) ?? Math.ceil(needed);
}

const greatest = (values: readonly number[]): number => Math.max(0, quantile(values, 1));

/** Rounds to the millisecond. */
const rounded = (value: number): number => Math.round(value * 1_000) / 1_000;

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? 0;
}

/** A pod that was deleted, and up to when requests of one way may have gone to it. */
interface Suspect {
  readonly life: PodLife & { readonly deletedAt: number };
  /** When it stopped answering, as far as is known. */
  readonly deadAt: number;
  /** The last loss before the way was known to be clear of it. Undefined: there was none. */
  readonly usedUntil: number | undefined;
}

function judgeWay(
  { name, keepAlive }: Evidence['ways'][number],
  outcomes: readonly RequestOutcome[],
  { pods, slowMs, afterRollout }: Evidence,
) {
  const suspects = suspectsOf(pods, outcomes);
  const firstDeath = Math.min(...suspects.map(({ life }) => life.deletedAt));
  const ofPods = new Set(pods.flatMap(({ addresses = [] }) => addresses));
  const explained = ({ at, tookMs, lost, address: to }: RequestOutcome): FailedRequest => {
    const kind = lost ?? 'slow';
    const end = at + tookMs + TOLERANCE_MS;
    // The address of a gateway says nothing about the pod.
    const address = to !== undefined && ofPods.has(to) ? to : undefined;
    const dead = suspects.filter(
      ({ life, deadAt }) => deadAt <= end && (address === undefined || life.addresses?.includes(address)),
    );
    const used = dead.filter(({ usedUntil = 0 }) => at <= usedUntil);
    // If only one of many gateways is late, few requests are lost among many that are answered.
    const possible = used.length > 0 ? used : dead.slice(-1);
    const [first] = possible;
    const inFlight = first !== undefined && possible.every(({ deadAt }) => at < deadAt - TOLERANCE_MS);
    const cause = (): LossCause => {
      if (first === undefined && pods.some((life) => wasUnready(life, at))) return 'unready';
      if (first === undefined) return afterRollout && !(firstDeath <= end) ? 'ghost' : 'unexplained';
      // Only a new connection can be refused.
      if (kind === 'refused') return 'late';
      if (keepAlive) return 'kept';
      return inFlight ? 'inFlight' : 'late';
    };
    const since = (instant: number | undefined) =>
      instant === undefined ? null : Math.round(at - instant) / 1_000;
    const named = possible.map(({ life }) => life.name);
    const lastOne = possible.at(-1)?.life;
    return {
      at,
      tookMs,
      way: name,
      kind,
      cause: cause(),
      pods: named,
      after: lastOne === undefined ? null : lastEvent(lastOne, at),
      sinceDeletion: since(first?.life.deletedAt),
      sinceWithdrawal: since(first?.life.withdrawnAt),
    };
  };
  const failures = outcomes.filter(({ lost }) => lost !== undefined).map(explained);
  const slowAnswers = outcomes
    .filter(({ lost, tookMs }) => lost === undefined && tookMs > slowMs)
    .map(explained);
  const late = failures.filter(({ cause }) => cause === 'late');
  const ages = late.flatMap(({ sinceDeletion }) => sinceDeletion ?? []);
  // Each of these may have gone to the pod that was deleted last, so only the delay since that deletion is certain.
  const least = late.map(({ at, pods: named }) => {
    const lastOne = suspects.findLast(({ life }) => named.includes(life.name));
    return (at - (lastOne?.life.deletedAt ?? at)) / 1_000;
  });
  const used = suspects.flatMap(({ usedUntil }) => usedUntil ?? []);
  const atRisk = outcomes.filter(({ at }) =>
    suspects.some(({ life }) => at >= life.deletedAt && at <= (life.goneAt ?? Number.POSITIVE_INFINITY)),
  ).length;
  const verdict: WayVerdict = {
    name,
    keepAlive,
    sent: outcomes.length,
    lost: failures.length,
    slow: slowAnswers.length,
    kinds: counted(failures.map(({ kind }) => kind)),
    causes: counted(failures.map(({ cause }) => cause)),
    atRisk,
    upperBound: failures.length === 0 ? ruleOfThree(atRisk, pods) : null,
    lag: late.length === 0 ? null : { least: rounded(greatest(least)), most: rounded(greatest(ages)) },
  };
  return { verdict, failures, slowAnswers, ages, episodes: new Set(used).size };
}

/**
 * Whether the pod was unready around that time: requests fail before its probe does, and are still lost for a while after.
 */
function wasUnready({ unready = [], withdrawnAt, deletedAt }: PodLife, at: number): boolean {
  if (deletedAt === undefined && withdrawnAt !== undefined && at >= withdrawnAt - UNREADY_MS) return true;
  return unready.some(({ from, to }) => at >= from - UNREADY_MS && at <= to + UNREADY_MS);
}

/** In order of deletion. */
function suspectsOf(pods: readonly PodLife[], outcomes: readonly RequestOutcome[]): readonly Suspect[] {
  return pods
    .flatMap((life) => (life.deletedAt === undefined ? [] : [{ ...life, deletedAt: life.deletedAt }]))
    .toSorted((a, b) => a.deletedAt - b.deletedAt)
    .map((life) => {
      // SIGTERM may have been sent at any time.
      const deadAt = hasEndedEarly(life)
        ? life.deletedAt
        : (life.sigtermAt ?? life.endedAt ?? life.goneAt ?? life.deletedAt);
      const there = pods.filter(
        (each) => each.createdAt <= deadAt && (each.goneAt ?? Number.POSITIVE_INFINITY) >= deadAt,
      );
      const cleared = Math.ceil(Math.log(CLEARED) / Math.log(1 - 1 / Math.max(2, there.length)));
      return { life, deadAt, usedUntil: usedUntil(deadAt, outcomes, cleared) };
    });
}

/**
 * Whether the pod ended before its hooks would have let SIGTERM through: either a hook has failed, or the application has
 * exited by itself.
 */
function hasEndedEarly({ sigtermAt, endedAt, goneAt }: PodLife): boolean {
  const end = Math.min(endedAt ?? Number.POSITIVE_INFINITY, goneAt ?? Number.POSITIVE_INFINITY);
  return sigtermAt !== undefined && end + ENDED_EARLY_MS < sigtermAt;
}

/** The last loss after an instant that came before enough requests in a row were answered. */
function usedUntil(deadAt: number, outcomes: readonly RequestOutcome[], cleared: number): number | undefined {
  let last: number | undefined;
  let inRow = 0;
  for (const { at, tookMs, lost } of outcomes) {
    if (at + tookMs + TOLERANCE_MS < deadAt) continue;
    if (lost !== undefined) {
      last = at;
      inRow = 0;
    } else if (at >= deadAt) {
      inRow += 1;
      if (inRow >= cleared) return last;
    }
  }
  return last;
}

function lastEvent(life: PodLife, at: number): FailedRequest['after'] {
  const events: readonly (readonly [LifeEvent, number | undefined])[] = [
    ['deleted', life.deletedAt],
    ['withdrawn', life.withdrawnAt],
    ['withdrawnFromEndpoints', life.endpointsAt],
    ['sigterm', life.sigtermAt],
    ['ended', life.endedAt],
    ['gone', life.goneAt],
  ];
  let last: FailedRequest['after'] = null;
  for (const [event, instant] of events) {
    if (instant === undefined || instant > at) continue;
    const seconds = Math.round(at - instant) / 1_000;
    if (last === null || seconds <= last.seconds) last = { event, seconds };
  }
  return last;
}

function counted<K extends string>(keys: readonly K[]): Partial<Record<K, number>> {
  const counts: Partial<Record<K, number>> = {};
  for (const key of keys) counts[key] = (counts[key] ?? 0) + 1;
  return counts;
}

const seconds = (value: number): string => `${Math.round(value * 10) / 10}`;

/** `0.13 %`. It is rounded up, because it is a bound. */
export function percentUp(share: number): string {
  const digits = share < 0.001 ? 1_000 : 100;
  return `${Math.ceil(share * 100 * digits - 1e-9) / digits} %`;
}

type Totals = Pick<ProveVerdict, 'sent' | 'lost' | 'atRisk' | 'upperBound'>;

function sentenceOf(
  { sent, lost, atRisk, upperBound }: Totals,
  ways: readonly WayVerdict[],
  failures: readonly FailedRequest[],
  advice: ProveVerdict['advice'],
  pods: readonly PodLife[],
): string {
  const head = `${grouped(lost)} of ${grouped(sent)} requests lost`;
  if (lost === 0) {
    if (atRisk === 0) return `${head}, but none was sent while a pod was terminating: this proves nothing.`;
    if (upperBound === null)
      return `${head}, but pods were still terminating at the end: this proves nothing; raise --for, which a high --rate limits.`;
    return `${head}; ${grouped(atRisk)} were sent while a pod was terminating: with 95 % confidence at most ${percentUp(upperBound)} of such requests are lost.`;
  }
  const losing = ways.filter((way) => way.lost > 0);
  const through = losing.map((way) => `${grouped(way.lost)} through ${way.name}`).join(', ');
  const all = ways.length > 1 ? `, all through ${losing[0]?.name}` : '';
  const waits = pods.filter(({ deletedAt }) => deletedAt !== undefined).map(({ wait }) => wait);
  const parts = losing.flatMap((way) => partsOf(way, failures, waits));
  const early = pods.filter(hasEndedEarly).length;
  if (early > 0)
    parts.push(
      `${early} of ${waits.length} pods ended before their wait had passed: a hook failed (Event FailedPreStopHook), their grace was cut, or the application quit by itself`,
    );
  const text = [`${head}${losing.length === 1 ? all : ` (${through})`}`, ...parts].join('; ');
  if (advice === null) return `${text}.`;
  const most = advice.waitFor98 < advice.wait ? ` (98 %: ${advice.waitFor98} s)` : '';
  return `${text}. ${advice.wait} s would have covered it${most}.`;
}

/** What to say about losses that a longer wait would not prevent. */
const UNCOVERED: Readonly<Record<Exclude<LossCause, 'late'>, string>> = {
  inFlight: 'under way at SIGTERM: the application must finish what it has accepted',
  kept: 'on connections that stayed open: no wait covers these, the server must close idle connections before it ends',
  unready: 'while a pod that stayed was not ready: the application or its node was overloaded',
  ghost:
    'before any pod ended: conntrack may still lead to the pods of an earlier rollout; wait two minutes and repeat',
  unexplained: 'that no ending pod explains: look for another cause, such as overload',
};

/** What to say about one way that lost requests. */
function partsOf(
  { name, lag, causes }: WayVerdict,
  failures: readonly FailedRequest[],
  waits: readonly PodLife['wait'][],
): readonly string[] {
  const late = failures.filter(({ way, cause }) => way === name && cause === 'late');
  const isKnown = late.every(({ sinceWithdrawal }) => sinceWithdrawal !== null);
  const ages = late.flatMap((each) => (isKnown ? each.sinceWithdrawal : each.sinceDeletion) ?? []);
  const first = ages.reduce((one, other) => Math.min(one, other), Number.POSITIVE_INFINITY);
  const [from, to] = [seconds(first), seconds(greatest(ages))];
  const { least = 0, most = 0 } = lag ?? {};
  const upTo = least < most - 1 ? `${seconds(least)} to ${Math.ceil(most)} s` : `up to ${Math.ceil(most)} s`;
  const wait = [...new Set(waits)].map((each) => (each === 'Hold' ? 'Hold' : `${seconds(each)} s`));
  const span = first < 0 ? `${seconds(-first)} s before to ${to}` : from === to ? from : `${from} to ${to}`;
  const follows = `${span} s after the ${isKnown ? 'withdrawal' : 'deletion'}: ${name} follows ${upTo} late, the wait was ${fewOf(wait)}`;
  const others = Object.entries(UNCOVERED).flatMap(([cause, text]) => {
    const count = causes[cause as LossCause] ?? 0;
    return count === 0 ? [] : [`${grouped(count)} through ${name} ${text}`];
  });
  return late.length === 0 ? others : [follows, ...others];
}
