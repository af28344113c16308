import { messageOf } from '../cluster/index.ts';
import type { Overview, ReplicaStatus } from '../core/api/index.ts';
import type { Inquiry } from './checks.ts';
import { floorState } from './floor.ts';
import { hooksNowIn } from './hooks-now.ts';
import { leaseOf, replicaPods, replicaStatuses, sumOf, UNREACHED_UNKNOWN, unreachedIn } from './replicas.ts';

/** Asks everything on its own, so that a right that is missing costs one line. */
export async function overviewOf(inquiry: Inquiry): Promise<Overview> {
  const unseen: string[] = [];
  const attempt = async <T>(what: string, ask: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await ask();
    } catch (thrown) {
      unseen.push(`${what}: ${messageOf(thrown)}`);
      return undefined;
    }
  };
  const hooks = await hooksNowIn(inquiry);
  const pods = await attempt('replicas', () => replicaPods(inquiry));
  const lease = await attempt('leader', () => leaseOf(inquiry));
  const byReplica = [...((await attempt('status', () => replicaStatuses(inquiry))) ?? [])];
  const statuses = byReplica.map(([, status]) => status);
  const floor = await attempt('floor', () => floorState(inquiry));
  const known = statuses.length > 0;
  const unreached = unreachedIn(statuses);
  if (known && unreached === undefined) unseen.push(UNREACHED_UNKNOWN);
  const audit = statuses.map((each) => each.audit).find((each) => each !== null);
  return {
    hooks,
    replicas: pods && { ready: pods.filter(({ ready }) => ready).length, all: pods.length },
    leader: lease,
    decisions: known
      ? {
          outcomes: sumOf(statuses.map(({ decisions }) => decisions.outcomes)),
          skips: sumOf(statuses.map(({ decisions }) => decisions.skips)),
          started: byReplica
            .map(([replica, { decisions }]) => ({ replica, seconds: decisions.seconds ?? null }))
            .filter(({ seconds }) => seconds === null || seconds < 3_600),
        }
      : undefined,
    held: known ? statuses.reduce((sum, { held }) => sum + (held ?? 0), 0) : undefined,
    unreached,
    audit: audit && { verdicts: audit.verdicts, findings: counted(audit.findings) },
    floor,
    unseen,
  };
}

function counted(findings: NonNullable<ReplicaStatus['audit']>['findings']) {
  const counts = [...Map.groupBy(findings, ({ reason }) => reason)].map(([reason, each]) => ({
    reason,
    workloads: each.reduce((sum, { count }) => sum + count, 0),
    namespaces: each.map(({ namespace }) => namespace),
  }));
  return counts.toSorted((a, b) => b.workloads - a.workloads);
}
