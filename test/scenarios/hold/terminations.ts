import { percentileOf } from '../../cluster-suite/support/agreement.ts';
import { trueRemovals } from '../../cluster-suite/support/endpoint-history.ts';
import { type Cluster, readAudit } from '../../testbed/cluster.ts';
import type { PodLife } from '../../testbed/load/lives.ts';
import { duration } from '../table.ts';

/** A pod's removal by the API server's audit log. Milliseconds since the epoch. */
interface Removal {
  readonly deletedAt: number;
  /** When the last object that listed it had withdrawn it: the response to that write. */
  readonly withdrawnAt: number;
  /** When that write arrived: watches may show it at once, while on a busy machine its response takes seconds. */
  readonly withdrawnFrom: number;
}

/** How one pod ended. Milliseconds since the epoch. */
export interface Ending extends Removal {
  readonly pod: string;
  readonly address: string;
  readonly sigtermAt: number;
}

/** The terminated pods of a namespace, in the order of their deletion. */
export function endingsOf(cluster: Cluster, namespace: string, lives: readonly PodLife[]): readonly Ending[] {
  const known = removals(cluster, namespace);
  return lives
    .flatMap(({ pod, address = '', sigtermAt }) => {
      const own = known.get(pod);
      return own === undefined || sigtermAt === undefined ? [] : [{ pod, address, sigtermAt, ...own }];
    })
    .toSorted((a, b) => a.deletedAt - b.deletedAt);
}

/** Those of a namespace, by the name of the pod. */
export function removals(cluster: Cluster, namespace: string): ReadonlyMap<string, Removal> {
  const all = trueRemovals(readAudit(cluster.auditLog ?? '', namespace));
  const byPod = Map.groupBy(all, ({ pod }) => pod);
  return new Map(
    [...byPod].map(([pod, own]) => {
      const withdrawnAt = Math.max(...own.map(({ end = Number.NaN }) => end));
      const withdrawnFrom = Math.max(...own.map(({ start, bounds: [least] }) => start + least));
      return [pod, { deletedAt: Math.min(...own.map(({ start }) => start)), withdrawnAt, withdrawnFrom }];
    }),
  );
}

/** `p50 1.2 s, p99 3 s, longest 3.1 s` */
export function spread(milliseconds: readonly number[]): string {
  const at = (percentile: number) => duration(percentileOf(milliseconds, percentile));
  const least = duration(Math.min(...milliseconds));
  return `${least} to ${duration(Math.max(...milliseconds))}, median ${at(50)}, p90 ${at(90)}`;
}
