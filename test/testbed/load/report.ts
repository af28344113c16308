import type { Endpoint } from './conntrack.ts';
import type { PodLife, PodLives } from './lives.ts';
import type { LossKind } from './request.ts';
import type { Target } from './targets.ts';

/** Why a request was lost: what had happened to the pod that it was sent to. */
export type LossCause =
  /** The pod had had SIGTERM before the connection was opened: somebody still sent to it. */
  | 'afterSigterm'
  /** SIGTERM came while the connection was open: the application dropped it. */
  | 'cutBySigterm'
  /** The pod was gone, or on its way out, without a SIGTERM in its log. */
  | 'terminating'
  /** The pod was alive and not asked to go: not a matter of endpoints. */
  | 'alive'
  /** It was sent to an address of no pod that the client knows. */
  | 'unknownPod'
  /** No pod was chosen: there was no endpoint. */
  | 'noEndpoint'
  /** The client could not find out who was chosen. */
  | 'unknown';

export interface Loss {
  /** RFC 3339: when the connection was opened. */
  readonly at: string;
  readonly kind: LossKind;
  readonly cause: LossCause;
  readonly detail: string;
  /** `address:port` on the client's side. */
  readonly source: string;
  /** Milliseconds from opening to failure. */
  readonly tookMs: number;
  /** `address:port` that it was sent to, when known. */
  readonly backend: string | undefined;
  readonly pod: string | undefined;
  /** Milliseconds from the pod's deletion to the opening; negative: the connection came first. */
  readonly sinceDeletionMs: number | undefined;
  /** Milliseconds from the pod's SIGTERM to the opening. */
  readonly sinceSigtermMs: number | undefined;
}

export interface LoadReport {
  /** Which client this is: every count of losses is that of one kind of client. */
  readonly client: string;
  readonly seconds: number;
  readonly total: number;
  readonly answered: number;
  readonly lost: number;
  readonly byKind: Readonly<Partial<Record<LossKind, number>>>;
  readonly byCause: Readonly<Partial<Record<LossCause, number>>>;
  /** Answers per pod. */
  readonly byPod: Readonly<Record<string, number>>;
  readonly firstLosses: readonly Loss[];
  /** The longest that a request was started after its time, in milliseconds: how well the client itself kept up. */
  readonly latestStartMs: number;
  /** What keeps losses from being explained; empty when nothing does. */
  readonly notes: readonly string[];
}

/** A loss as it happened, before it is explained. */
export interface RawLoss {
  readonly openedAt: number;
  readonly failedAt: number;
  readonly kind: LossKind;
  readonly detail: string;
  readonly source: string;
}

/** A loss, and where the client was to send the request. */
export interface SentLoss extends RawLoss {
  readonly sentTo: Endpoint | undefined;
}

/** What came of all requests. */
export interface Traffic {
  readonly losses: readonly SentLoss[];
  readonly answersByPod: Readonly<Record<string, number>>;
  readonly total: number;
  readonly answered: number;
  readonly latestStartMs: number;
  readonly seconds: number;
}

/** Where a request went: to an endpoint, to none, or undefined when that is not known. */
export type Backend = Endpoint | 'none' | undefined;

/** Decides why a request was lost, from its backend and that pod's life. */
export function causeOf(loss: RawLoss, backend: Backend, life: PodLife | undefined): LossCause {
  if (backend === undefined) return 'unknown';
  if (backend === 'none') return 'noEndpoint';
  if (life === undefined) return 'unknownPod';
  if (life.sigtermAt !== undefined && life.sigtermAt <= loss.openedAt) return 'afterSigterm';
  if (life.sigtermAt !== undefined && life.sigtermAt <= loss.failedAt) return 'cutBySigterm';
  return life.deletedAt !== undefined && life.deletedAt <= loss.failedAt ? 'terminating' : 'alive';
}

export function explainLoss(raw: RawLoss, backend: Backend, life: PodLife | undefined): Loss {
  const since = (instant: number | undefined) => (instant === undefined ? undefined : raw.openedAt - instant);
  return {
    at: new Date(raw.openedAt).toISOString(),
    kind: raw.kind,
    cause: causeOf(raw, backend, life),
    detail: raw.detail,
    source: raw.source,
    tookMs: raw.failedAt - raw.openedAt,
    backend: typeof backend === 'object' ? `${backend.address}:${backend.port}` : undefined,
    pod: life?.pod,
    sinceDeletionMs: since(life?.deletedAt),
    sinceSigtermMs: since(life?.sigtermAt),
  };
}

/**
 * Why requests to a deleted pod are lost. Its log may end before its last line, which tells of SIGTERM, has been read: then a
 * loss is only known to have come after the deletion (`terminating`).
 */
const STOPPED: ReadonlySet<string> = new Set<LossCause>(['afterSigterm', 'cutBySigterm', 'terminating']);

/** The causes of losses that no deleted pod explains. */
export function causesBesidesStopped({ byCause }: Pick<LoadReport, 'byCause'>): readonly string[] {
  return Object.keys(byCause).filter((cause) => !STOPPED.has(cause));
}

const FIRST_LOSSES = 20;

/** Explains what was lost by where it went, and what had happened there. */
export function reportOf(traffic: Traffic, target: Target, lives: PodLives): LoadReport {
  const losses = traffic.losses.map((loss) => {
    const backend = loss.sentTo === undefined ? 'none' : target.backendOf(loss.source, loss.sentTo);
    const life = typeof backend === 'object' ? lives.at(backend.address) : undefined;
    return explainLoss({ ...loss, kind: target.kindOf?.(loss.source) ?? loss.kind }, backend, life);
  });
  const { seconds, total, answered, answersByPod, latestStartMs } = traffic;
  return {
    client: target.description,
    seconds,
    total,
    answered,
    lost: losses.length,
    byKind: countBy(losses.map(({ kind }) => kind)),
    byCause: countBy(losses.map(({ cause }) => cause)),
    byPod: answersByPod,
    firstLosses: losses.slice(0, FIRST_LOSSES),
    latestStartMs,
    notes: [...target.notes(), ...lateness(latestStartMs)],
  };
}

/** Beyond this the client itself, not what it measures, may be why a request came late. */
const LATE_MS = 250;

function lateness(latestStartMs: number): string[] {
  return latestStartMs < LATE_MS
    ? []
    : [`this machine was busy: requests started up to ${latestStartMs} ms late`];
}

/** How many of each, for a key of every loss. */
export function countBy<K extends string>(keys: readonly K[]): Partial<Record<K, number>> {
  const counts: Partial<Record<K, number>> = {};
  for (const key of keys) counts[key] = (counts[key] ?? 0) + 1;
  return counts;
}

/** The report as a few lines of text, for a log. */
export function formatReport(report: LoadReport): string {
  const counts = (record: object) =>
    Object.entries(record)
      .map(([name, count]) => `${count} ${name}`)
      .join(', ');
  const ms = (value: number | undefined) => (value === undefined ? '?' : `${value} ms`);
  return [
    `${report.client}: ${report.total} requests in ${report.seconds} s, ${report.lost} lost`,
    ...(report.lost > 0
      ? [`  by kind: ${counts(report.byKind)}`, `  by cause: ${counts(report.byCause)}`]
      : []),
    ...report.firstLosses.map(
      ({ at, kind, cause, pod, backend, sinceDeletionMs, sinceSigtermMs }) =>
        `  ${at} ${kind} (${cause}) ${pod ?? backend ?? 'no backend'}, ` +
        `${ms(sinceDeletionMs)} after deletion, ${ms(sinceSigtermMs)} after SIGTERM`,
    ),
    ...report.notes.map((note) => `  note: ${note}`),
  ].join('\n');
}
