import { messageOf } from '../cluster/index.ts';
import { isString } from '../core/api/index.ts';
import type { MetricSample } from '../telemetry/index.ts';
import type { Inquiry } from './checks.ts';
import { leaseOf, replicaMetrics, replicaPods } from './replicas.ts';

export type Counts = Readonly<Record<string, number>>;

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
  readonly unseen: readonly string[];
}

interface FindingCount {
  readonly reason: string;
  readonly workloads: number;
  readonly namespaces: readonly string[];
}

const DECISIONS = 'linger_recent_decisions';
const HELD = 'linger_hold_pods';
const VERDICTS = 'linger_audited_workloads';
const FINDINGS = 'linger_findings';
const WANTED: ReadonlySet<string> = new Set([DECISIONS, HELD, VERDICTS, FINDINGS]);

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
  const metrics = await attempt('metrics', () => replicaMetrics(inquiry, WANTED));
  const samples = (name: string) => [...(metrics?.values() ?? [])].flatMap((each) => each.get(name) ?? []);
  const known = metrics !== undefined && metrics.size > 0;
  const verdicts = tallied(samples(VERDICTS), 'verdict');
  const decisions = samples(DECISIONS);
  const skips = decisions.filter(({ labels }) => labels.get('outcome') === 'skip');
  return {
    replicas: pods && { ready: pods.filter(({ ready }) => ready).length, all: pods.length },
    leader: lease,
    decisions: known
      ? { outcomes: tallied(decisions, 'outcome'), skips: tallied(skips, 'reason') }
      : undefined,
    held: known ? samples(HELD).reduce((sum, { value }) => sum + value, 0) : undefined,
    audit: Object.keys(verdicts).length > 0 ? { verdicts, findings: counted(samples(FINDINGS)) } : undefined,
    unseen,
  };
}

function tallied(samples: readonly MetricSample[], label: string): Counts {
  const tally: Record<string, number> = {};
  for (const { labels, value } of samples) {
    const key = labels.get(label) ?? '';
    if (value > 0) tally[key] = (tally[key] ?? 0) + value;
  }
  return tally;
}

function counted(samples: readonly MetricSample[]): readonly FindingCount[] {
  const byReason = Map.groupBy(samples, ({ labels }) => labels.get('reason') ?? '');
  const counts = [...byReason].map(([reason, each]) => ({
    reason,
    workloads: each.reduce((sum, { value }) => sum + value, 0),
    namespaces: each.map(({ labels }) => labels.get('namespace')).filter(isString),
  }));
  return counts.toSorted((a, b) => b.workloads - a.workloads);
}
