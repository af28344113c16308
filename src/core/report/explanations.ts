import { taken } from '../api/index.ts';
import {
  type ClusterSnapshot,
  type Explanation,
  explain,
  floorEntry,
  floorWaits,
  isAudit,
  NOTES,
  type Pod,
  SKIP_REASONS,
} from '../decision/index.ts';
import {
  AUDIT_FINDINGS,
  type AuditLevel,
  type AuditSubject,
  auditWorkload,
  isFinding,
  misplacedIn,
  type RelatedObjects,
  relatedTo,
} from '../judge/index.ts';
import {
  type ManifestText,
  partsIn,
  planOf,
  planOfRunning,
  type Reading,
  type Selection,
  type Surveyed,
  withEmbedded,
} from './workloads.ts';

/** The decision for a workload’s pods. */
export type WorkloadExplanation = Omit<Explanation, 'outcome' | 'notes'> & {
  /** The decision's notes and the audit's findings. */
  readonly notes: readonly { readonly code: string; readonly text: string }[];
  /** `unknown`: the pod template was not found or cannot be read. */
  readonly outcome: Explanation['outcome'] | 'unknown';
  readonly floor?: FloorShown | null;
};

/** An explanation with the place of the workload; lines count from 1. */
export type ManifestExplanation = WorkloadExplanation & { readonly file: string; readonly line: number };

/** The longest waits that its pods get from the floor while Linger is down. */
export interface FloorShown {
  readonly hook: string;
  readonly waitSeconds: number;
  readonly laterSeconds: number;
}

/** Reports objects that cannot be read to `reading`. @param hasFloor whether the floor is installed in the cluster */
export function explanationsIn(
  inputs: readonly ManifestText[],
  surveyed: Surveyed,
  snapshot: ClusterSnapshot,
  selection: Selection,
  reading: Reading,
  hasFloor = false,
): readonly ManifestExplanation[] {
  const subjects: (AuditSubject & { readonly file: string; readonly line: number })[] = [];
  const objects: { readonly value: unknown; readonly origin: string }[] = [];
  for (const input of inputs)
    for (const part of partsIn(input, selection, surveyed, reading)) {
      objects.push(...part.objects.flatMap(withEmbedded).map(({ value }) => ({ value, origin: input.name })));
      for (const { object, ...found } of part.workloads)
        subjects.push({ ...found, object: object.value, file: input.name, line: object.line });
    }
  // With the same related pods and objects as in an audit.
  const related = relatedTo(subjects, objects, selection.namespace);
  return subjects.map((subject) => ({
    ...explanationOf(subject, snapshot, related, { hasFloor }),
    file: subject.file,
    line: subject.line,
  }));
}

/**
 * @param given `isRunning`: decide as if the pods of a running workload were created today; `hasFloor`: the floor is
 * installed in the cluster
 */
export function explanationOf(
  subject: AuditSubject,
  snapshot: ClusterSnapshot,
  related: RelatedObjects,
  given: { readonly isRunning?: boolean; readonly hasFloor?: boolean } = {},
): WorkloadExplanation {
  const { workload, object } = subject;
  const planned = given.isRunning ? planOfRunning(subject, snapshot) : planOf(subject, snapshot);
  const { notes, ...known } = explain(planned);
  // If the template cannot be read, the decision of the webhook is unknown.
  const isOpen =
    subject.refused !== undefined || (subject.unknown !== undefined && known.reason === 'InvalidPod');
  const explained = isOpen ? { ...known, outcome: 'unknown' as const, reason: null } : known;
  const judged = auditWorkload(subject, snapshot, related).findings;
  const noted = new Set<string>(notes.map(({ code }) => code));
  const said = judged
    .filter(({ reason, level }) => isExplained(reason, level) && !noted.has(reason))
    .map(({ reason, text }) => ({ code: reason, text }));
  const also = [...said, ...misplacedIn(workload, object).map(({ code, text }) => ({ code, text }))];
  const unknown =
    subject.refused !== undefined
      ? [{ code: 'InvalidObject' as const, text: subject.refused }]
      : subject.unknown === undefined
        ? []
        : [{ code: 'UnknownKind' as const, text: unknownText(subject.unknown, isOpen) }];
  const floor = given.hasFloor ? floorShown(planned, snapshot) : undefined;
  return {
    ...explained,
    ...(floor !== undefined && { floor }),
    notes: [...(isOpen ? [] : notes), ...unknown, ...also],
  };
}

function isExplained(reason: string, level: AuditLevel | null): boolean {
  const when = isFinding(reason) ? AUDIT_FINDINGS[reason].explained : 'never';
  return when === 'always' || (when !== 'never' && level === 'warning');
}

/** The codes of all notes that an explanation may have. */
export const EXPLAINED: readonly string[] = [
  ...Object.keys(NOTES),
  ...Object.entries(AUDIT_FINDINGS).flatMap(([code, { explained }]) =>
    code in NOTES || explained === 'never' || explained === 'running' ? [] : [code],
  ),
];

function unknownText(unknown: string, isOpen: boolean): string {
  const webhook = isOpen ? 'the decision of the webhook is unknown' : 'the webhook would decide as above';
  return `${unknown}: ${webhook}; inject leaves the object unchanged`;
}

/** @returns null: its pods get no wait; undefined: not known, because other rules apply to skipped pods */
export function floorShown(
  { workload, namespace, decision }: ReturnType<typeof planOf>,
  snapshot: ClusterSnapshot,
): FloorShown | null | undefined {
  if (decision.outcome !== 'inject' || isAudit(decision)) return undefined;
  const entry = taken(floorEntry(namespace, snapshot));
  if (entry === undefined) return null;
  // The cast is safe: the decision has validated the pod.
  const { hook, atFirst, later } = floorWaits(workload.pod as Pod, workload.ownerKind, entry);
  return later < 1 ? null : { hook, waitSeconds: atFirst, laterSeconds: later };
}

/** Why the pods wait, or do not, in one sentence. */
export function becauseOf({
  reason,
  evidence,
  outcome,
}: Pick<WorkloadExplanation, 'reason' | 'evidence' | 'outcome'>): string {
  if (outcome === 'unknown') return 'Its pod template was not found, or cannot be read.';
  if (reason !== null) return SKIP_REASONS[reason].means;
  return evidence === null ? '' : `The wait is ${evidence.text}.`;
}
