import type { LagStage } from '../lag/sample.ts';

/** How an endpoint is listed. Ready wins: with publishNotReadyAddresses it is ready and terminating at once. */
export type EndpointState = 'ready' | 'notReady' | 'terminating';

/**
 * What can happen to an endpoint. `added` and `removed` say that it is listed from here on, or no longer; the others how:
 * an endpoint that appears ready gives `added` and `ready`.
 */
export const CHANGES = ['added', 'ready', 'notReady', 'terminating', 'removed'] as const;
export type ChangeKind = (typeof CHANGES)[number];

/** One address of one pod in one object. */
export interface ListedEndpoint {
  /** Of the pod; undefined: something else, or nothing known, is behind the address. */
  readonly uid: string | undefined;
  readonly pod: string | undefined;
  readonly ip: string;
  readonly state: EndpointState;
}

/** What happened to one endpoint of a Service, in one of the two places where consumers read it. */
export interface EndpointChange extends Omit<ListedEndpoint, 'state'> {
  readonly change: ChangeKind;
  readonly source: LagStage;
  readonly namespace: string;
  /** Undefined: a slice that belongs to no Service. */
  readonly service: string | undefined;
  /** It was ready until now. */
  readonly withdrawn: boolean;
  /** When this process learned of it: milliseconds of the caller's monotonic clock. */
  readonly at: number;
}

/** What leads from one state to the next; undefined: not listed. */
export function changesBetween(
  before: EndpointState | undefined,
  after: EndpointState | undefined,
): readonly ChangeKind[] {
  if (before === after) return [];
  if (after === undefined) return ['removed'];
  if (before !== undefined) return [after];
  return after === 'notReady' ? ['added'] : ['added', after];
}

const RANKS: Readonly<Record<EndpointState, number>> = { notReady: 0, terminating: 1, ready: 2 };

/** How consumers see what several objects, or several entries of one, list: usable where one of them says so. */
export function unionOf(
  a: EndpointState | undefined,
  b: EndpointState | undefined,
): EndpointState | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return RANKS[a] >= RANKS[b] ? a : b;
}
