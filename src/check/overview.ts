import { messageOf } from '../cluster/index.ts';
import type { ReplicaStatus } from '../core/api/index.ts';
import type { Inquiry } from './checks.ts';
import { type FloorState, floorState } from './floor.ts';
import { type Counts, leaseOf, replicaPods, replicaStatuses, sumOf } from './replicas.ts';

/** A running Linger at a glance. What is undefined could not be read; `unseen` says why. */
export interface Overview {
  readonly replicas: { readonly ready: number; readonly all: number } | undefined;
  /** The replica that leads, and how many seconds ago it renewed its lease. */
  readonly leader: { readonly name: string; readonly renewedSeconds: number } | undefined;
  /** Decisions of the last hour, on all replicas together: by outcome, and skips by reason. */
  readonly decisions: { readonly outcomes: Counts; readonly skips: Counts } | undefined;
  /** Pods that are held now. */
  readonly held: number | undefined;
  /** The last audit: workloads by verdict, and findings by reason and namespace. */
  readonly audit: { readonly verdicts: Counts; readonly findings: readonly FindingCount[] } | undefined;
  /** Whether pods get a wait of the API server while Linger is down. */
  readonly floor: FloorState | undefined;
  readonly unseen: readonly string[];
}

interface FindingCount {
  readonly reason: string;
  readonly workloads: number;
  readonly namespaces: readonly string[];
}

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
  const pods = await attempt('replicas', () => replicaPods(inquiry));
  const lease = await attempt('leader', () => leaseOf(inquiry));
  const statuses = [...((await attempt('status', () => replicaStatuses(inquiry)))?.values() ?? [])];
  const floor = await attempt('floor', () => floorState(inquiry));
  const known = statuses.length > 0;
  const audit = statuses.map((each) => each.audit).find((each) => each !== null);
  return {
    replicas: pods && { ready: pods.filter(({ ready }) => ready).length, all: pods.length },
    leader: lease,
    decisions: known
      ? {
          outcomes: sumOf(statuses.map(({ decisions }) => decisions.outcomes)),
          skips: sumOf(statuses.map(({ decisions }) => decisions.skips)),
        }
      : undefined,
    held: known ? statuses.reduce((sum, { held }) => sum + (held ?? 0), 0) : undefined,
    audit: audit && { verdicts: audit.verdicts, findings: counted(audit.findings) },
    floor,
    unseen,
  };
}

function counted(findings: NonNullable<ReplicaStatus['audit']>['findings']): readonly FindingCount[] {
  const counts = [...Map.groupBy(findings, ({ reason }) => reason)].map(([reason, each]) => ({
    reason,
    workloads: each.reduce((sum, { count }) => sum + count, 0),
    namespaces: each.map(({ namespace }) => namespace),
  }));
  return counts.toSorted((a, b) => b.workloads - a.workloads);
}
