import {
  API_VERSION,
  type ClusterTerminationPolicy,
  MOST_VALUES,
  NAMESPACE_NAME_LABEL,
  parseDocument,
} from '../api/index.ts';
import type { ClusterSnapshot } from '../decision/index.ts';
import {
  type Audited,
  type AuditReason,
  type AuditSubject,
  type AuditSummary,
  auditWorkload,
  subjectOf,
  summaryOfAudit,
} from './findings.ts';
import type { RelatedObjects } from './related-objects.ts';

/** Fields of a policy's spec. */
type Fields = Readonly<Record<string, unknown>>;

/** The findings that a policy can cure, and how. Others require changes of the workload or the cluster. */
const CURES: Readonly<Partial<Record<AuditReason, Fields>>> = {
  AuditOnly: { mode: 'Enforce' },
  HookTooShort: { existingHook: 'Extend' },
  PartialWait: { existingHook: 'Extend' },
  ExistingHook: { existingHook: 'Extend' },
};

/** Above the priority of any policy that an operator is likely to have. */
const PRIORITY = 1_000;
const NAME = 'linger-suggested';

export interface Suggestion {
  /** Policies to apply; empty: no policy would help. */
  readonly policies: readonly ClusterTerminationPolicy[];
  /** What only a field of the workload can cure: `Deployment shop/web: minReadySeconds: 12`. */
  readonly changes: readonly string[];
  readonly before: AuditSummary;
  /** The summary with these policies applied. */
  readonly after: AuditSummary;
}

/**
 * The smallest set of policies that protects as many workloads as policies can: one policy for each set of fields, selecting
 * the namespaces that need exactly those. Each is tried out with real decisions, and fields that do not help are left out,
 * since a ceiling or an annotation may prevent their effect.
 * @param snapshotWith returns the snapshot with additional ClusterTerminationPolicies
 */
export function suggest(
  subjects: readonly AuditSubject[],
  related: RelatedObjects,
  snapshotWith: (policies: readonly ClusterTerminationPolicy[]) => ClusterSnapshot,
): Suggestion {
  const judge = (of: readonly AuditSubject[], policies: readonly ClusterTerminationPolicy[]) => {
    const snapshot = snapshotWith(policies);
    return of.map((subject) => auditWorkload(subject, snapshot, related));
  };
  const before = judge(subjects, []);
  const inNamespace = Map.groupBy(subjects, ({ namespace }) => namespace);
  const kept = new Map<string, Fields>();
  for (const [namespace, wanted] of wantedBy(before)) {
    const own = inNamespace.get(namespace) ?? [];
    const greenWith = (fields: Fields) =>
      summaryOfAudit(judge(own, policiesFor(new Map([[namespace, fields]])))).verdicts.protected;
    let fields = wanted;
    let green = greenWith(fields);
    for (const name of Object.keys(wanted)) {
      const { [name]: _, ...rest } = fields;
      const without = greenWith(rest);
      if (without >= green) [fields, green] = [rest, without];
    }
    if (Object.keys(fields).length > 0) kept.set(namespace, fields);
  }
  const policies = policiesFor(kept);
  return {
    policies,
    changes: before.flatMap(changesIn),
    before: summaryOfAudit(before),
    after: summaryOfAudit(judge(subjects, policies)),
  };
}

function changesIn({ findings, minReadySeconds }: Audited): readonly string[] {
  const [own] = findings;
  if (own === undefined || minReadySeconds === undefined) return [];
  return [`${subjectOf(own)}: set spec.minReadySeconds to ${minReadySeconds}`];
}

/** By namespace: the fields that its findings ask for. */
function wantedBy(audited: readonly Audited[]): ReadonlyMap<string, Fields> {
  const wanted = new Map<string, Fields>();
  for (const { namespace, verdict, reason } of audited.flatMap(({ findings }) => findings)) {
    const cure = verdict === 'protected' ? undefined : CURES[reason];
    if (cure !== undefined) wanted.set(namespace, { ...wanted.get(namespace), ...cure });
  }
  return wanted;
}

/** One policy for each set of fields, or several if its namespaces do not fit into one selector. */
function policiesFor(fieldsOf: ReadonlyMap<string, Fields>): readonly ClusterTerminationPolicy[] {
  const used = [...fieldsOf].filter(([, fields]) => Object.keys(fields).length > 0);
  const sets = Map.groupBy(used, ([, fields]) => JSON.stringify(fields));
  const specs = [...sets.values()].flatMap((entries) => {
    const namespaces = entries.map(([namespace]) => namespace).toSorted();
    const pieces = Array.from({ length: Math.ceil(namespaces.length / MOST_VALUES) }, (_, index) =>
      namespaces.slice(index * MOST_VALUES, (index + 1) * MOST_VALUES),
    );
    return pieces.map((values) => ({ values, fields: entries[0]?.[1] }));
  });
  return specs.map(({ values, fields }, index) => {
    const selected = { key: NAMESPACE_NAME_LABEL, operator: 'In', values };
    const document = {
      apiVersion: API_VERSION,
      kind: 'ClusterTerminationPolicy',
      metadata: { name: specs.length === 1 ? NAME : `${NAME}-${index + 1}` },
      spec: { priority: PRIORITY, namespaceSelector: { matchExpressions: [selected] }, ...fields },
    };
    // Parsed like a file, so that a change of the schema shows here.
    return parseDocument(document, 'a suggestion') as ClusterTerminationPolicy;
  });
}
