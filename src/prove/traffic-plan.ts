import { z } from 'zod';
import { isRecord, isString, jsonIn } from '../core/api/index.ts';

/** How a request was lost. */
export const LOSS_KINDS = ['refused', 'reset', 'timeout', 'unreachable', '5xx', 'malformed'] as const;
export type LossKind = (typeof LOSS_KINDS)[number];

/** Requests a second through one way, over all pods; more would measure the client rather than the cluster. */
export const MOST_RATE = 1_000;
/** Including the calm time before the disturbance. Seconds. */
export const LONGEST_RUN = 3_600;
/**
 * Each source port is used only once: conntrack remembers a connection for 120 s, and would send one with the same port to
 * the same, perhaps dead, pod.
 */
export const FIRST_PORT = 1_024;
export const PORTS = 65_536 - FIRST_PORT;

/** Time for all senders to start, and until requests through new pods succeed. Seconds. */
const BEFORE_CALM = 120;
/** How long a sender runs if nothing ends it. @param longest seconds from the disturbance on */
export const runSeconds = (calm: number, longest: number): number => calm + longest + BEFORE_CALM;

const way = z.strictObject({
  name: z.string().min(1).max(253),
  url: z.url({ protocol: /^https?$/ }).max(2_048),
  /** Where to connect to instead of the URL's host: a ClusterIP. */
  address: z.string().max(253).optional(),
  /** Whether requests share connections that are kept open. */
  keepAlive: z.boolean(),
  /** Whether to verify the certificate. */
  verify: z.boolean(),
});
/** One way by which requests reach the pods: the Service, or a gateway. */
export type Way = z.infer<typeof way>;

/** What a sender of traffic should do. */
export const trafficPlan = z.strictObject({
  ways: z.array(way).min(1).max(16),
  /** Requests a second through each way. */
  rate: z.number().positive().max(MOST_RATE),
  /** How many seconds to run if nothing ends it earlier. */
  seconds: z
    .number()
    .positive()
    .max(LONGEST_RUN + BEFORE_CALM),
  timeoutMs: z.number().int().min(10).max(60_000),
  method: z.string().regex(/^[A-Z]{1,20}$/),
  headers: z.record(z.string().max(256), z.string().max(4_096)),
});
export type TrafficPlan = z.infer<typeof trafficPlan>;

/** A request that has ended. Instants in milliseconds since the epoch. */
export interface RequestOutcome {
  /** Index in the plan. */
  readonly way: number;
  readonly at: number;
  readonly tookMs: number;
  /** Undefined: it was answered. */
  readonly lost?: LossKind | undefined;
  /**
   * The address to which a name was resolved, if the sender resolved it: that of a pod of a headless Service, or of a
   * gateway.
   */
  readonly address?: string | undefined;
}

/** A report of a sender, made twice a second. */
export interface TrafficReport {
  readonly sequence: number;
  /** Every request that started before this instant has ended, and is in this report or an earlier one. */
  readonly until: number;
  /** How late the latest request was started, in milliseconds, which shows whether the sender keeps up. */
  readonly lateMs: number;
  readonly outcomes: readonly RequestOutcome[];
}

/** A report as one line of a sender's log, with 12 bytes for each request. */
export function lineOf({ sequence, until, lateMs, outcomes }: TrafficReport): string {
  const base = outcomes[0]?.at ?? until;
  const rows = outcomes.map(({ way, at, tookMs, lost, address }) => {
    const kind = lost === undefined ? [] : [LOSS_KINDS.indexOf(lost)];
    const to = address === undefined || lost === undefined ? [] : [address];
    return [way, at - base, tookMs, ...kind, ...to];
  });
  return JSON.stringify({ sequence, until, late: lateMs, base, rows });
}

/** @returns undefined for a line that is not a report, such as a warning of the runtime */
export function readLine(line: string): TrafficReport | undefined {
  const said = jsonIn(line);
  if (!isRecord(said)) return undefined;
  const { sequence, until, late, base, rows } = said;
  if (![sequence, until, late, base].every(Number.isFinite) || !Array.isArray(rows)) return undefined;
  const outcomes = rows.flatMap((row: unknown): RequestOutcome[] => {
    if (!Array.isArray(row)) return [];
    const [way, at, tookMs, kind, address] = row as readonly unknown[];
    if (![way, at, tookMs].every(Number.isFinite)) return [];
    // A kind of loss that only a newer image knows is still a loss.
    const lost = kind === undefined ? undefined : (LOSS_KINDS[Number(kind)] ?? 'malformed');
    const to = isString(address) ? { address } : {};
    return [{ way: Number(way), at: Number(base) + Number(at), tookMs: Number(tookMs), lost, ...to }];
  });
  return { sequence: Number(sequence), until: Number(until), lateMs: Number(late), outcomes };
}
