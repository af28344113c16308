import { percentileOf } from '../../cluster-suite/support/agreement.ts';
import { trueRemovals } from '../../cluster-suite/support/endpoint-history.ts';
import { type Cluster, readAudit } from '../../testbed/cluster.ts';
import type { PodLife } from '../../testbed/load/lives.ts';
import { duration } from '../table.ts';

/** How one pod ended. Milliseconds since the epoch. */
export interface Ending {
  readonly pod: string;
  readonly address: string;
  readonly deletedAt: number;
  /** When the last of what listed it had withdrawn it, by the API server's audit log. */
  readonly withdrawnAt: number;
  readonly sigtermAt: number;
}

/** Those pods of a namespace that have ended, in the order of their deletion. */
export function endingsOf(cluster: Cluster, namespace: string, lives: readonly PodLife[]): readonly Ending[] {
  const removals = trueRemovals(readAudit(cluster.auditLog ?? '', namespace));
  const byPod = Map.groupBy(removals, ({ pod }) => pod);
  return lives
    .flatMap(({ pod, address = '', deletedAt, sigtermAt }) => {
      const own = byPod.get(pod) ?? [];
      if (deletedAt === undefined || sigtermAt === undefined || own.length === 0) return [];
      const start = Math.min(...own.map((each) => each.start));
      const withdrawnAt = Math.max(...own.map(({ end = Number.NaN }) => end));
      return [{ pod, address, deletedAt: start, withdrawnAt, sigtermAt }];
    })
    .toSorted((a, b) => a.deletedAt - b.deletedAt);
}

/** When the last of what listed a pod had withdrawn it, by its name. Milliseconds since the epoch. */
export function withdrawals(cluster: Cluster, namespace: string): ReadonlyMap<string, number> {
  const removals = trueRemovals(readAudit(cluster.auditLog ?? '', namespace));
  const byPod = Map.groupBy(removals, ({ pod }) => pod);
  return new Map([...byPod].map(([pod, own]) => [pod, Math.max(...own.map(({ end = Number.NaN }) => end))]));
}

/** `p50 1.2 s, p99 3 s, longest 3.1 s` */
export function spread(milliseconds: readonly number[]): string {
  const at = (percentile: number) => duration(percentileOf(milliseconds, percentile));
  const least = duration(Math.min(...milliseconds));
  return `${least} to ${duration(Math.max(...milliseconds))}, median ${at(50)}, p90 ${at(90)}`;
}
