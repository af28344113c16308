import { taken } from '../api/index.ts';
import {
  type ClusterSnapshot,
  type Explanation,
  explain,
  floorEntry,
  floorWaits,
  isAudit,
  type Pod,
  SKIP_REASONS,
} from '../decision/index.ts';
import { auditWorkload, misplacedIn, type RelatedObjects, relatedObjectsIn } from '../judge/index.ts';
import { readDocuments, readManifests } from '../manifest/index.ts';
import {
  type FoundWorkload,
  type ManifestText,
  planOf,
  type Reading,
  type Selection,
  type Surveyed,
  workloadsIn,
} from './workloads.ts';

/** The decision for a workload’s pods, where its template can be read. */
export type WorkloadExplanation = Omit<Explanation, 'outcome'> & {
  /** `unknown`: the template of its pods was not found, or is none that can be read. */
  readonly outcome: Explanation['outcome'] | 'unknown';
  readonly floor?: FloorShown | null;
};

/** With the place of the workload; lines from 1. */
export type ManifestExplanation = WorkloadExplanation & { readonly file: string; readonly line: number };

/** The most that its pods get of the floor while Linger is down. */
export interface FloorShown {
  readonly hook: string;
  readonly waitSeconds: number;
  readonly laterSeconds: number;
}

/** Reports what cannot be read to `reading`. @param hasFloor the floor stands in the cluster */
export function explanationsIn(
  inputs: readonly ManifestText[],
  surveyed: Surveyed,
  snapshot: ClusterSnapshot,
  selection: Selection,
  reading: Reading,
  hasFloor = false,
): readonly ManifestExplanation[] {
  const plans: ManifestExplanation[] = [];
  const related = relatedIn(inputs, selection.namespace);
  for (const input of inputs)
    for (const document of readDocuments(input.text, input.name))
      for (const found of workloadsIn(document, input, selection, surveyed, reading))
        plans.push({
          ...explanationOf(found, snapshot, related, hasFloor),
          file: input.name,
          line: found.object.line,
        });
  return plans;
}

export function explanationOf(
  found: FoundWorkload,
  snapshot: ClusterSnapshot,
  related: RelatedObjects,
  hasFloor = false,
): WorkloadExplanation {
  const planned = planOf(found, snapshot);
  const { notes, ...known } = explain(planned);
  // If the template cannot be read, the decision of the webhook is unknown.
  const isOpen =
    found.refused !== undefined || (found.unknown !== undefined && known.reason === 'InvalidPod');
  const explained = isOpen ? { ...known, outcome: 'unknown' as const, reason: null } : known;
  const { value } = found.object;
  const judged = auditWorkload({ ...found, object: value }, snapshot, related).findings;
  const said = judged.flatMap(({ reason, text }) =>
    OF_JUDGE.filter((code) => code === reason).map((code) => ({ code, text })),
  );
  const also = [...said, ...misplacedIn(found.workload, value).map(({ code, text }) => ({ code, text }))];
  const unknown =
    found.refused !== undefined
      ? [{ code: 'InvalidObject' as const, text: found.refused }]
      : found.unknown === undefined
        ? []
        : [{ code: 'UnknownKind' as const, text: unknownText(found.unknown, isOpen) }];
  const floor = hasFloor ? floorShown(planned, snapshot) : undefined;
  return {
    ...explained,
    ...(floor !== undefined && { floor }),
    notes: [...(isOpen ? [] : notes), ...unknown, ...also],
  };
}

/** What the judge of audits says that no decision does, of the traffic and the probes of pods. */
const OF_JUDGE = ['LivenessRestart', 'UndeclaredConsumer'] as const;

/** Texts without any of these words have nothing that those findings read. */
const AROUND = /\b(InferencePool|ServiceEntry|HorizontalPodAutoscaler|ScaledObject)\b/;

function relatedIn(inputs: readonly ManifestText[], namespace: string): RelatedObjects {
  const objects = inputs
    .filter(({ text }) => AROUND.test(text))
    .flatMap(({ text, name }) => readManifests(text, name).objects.map(({ value }) => value));
  return relatedObjectsIn(objects, namespace);
}

function unknownText(unknown: string, isOpen: boolean): string {
  const webhook = isOpen ? 'the decision of the webhook is unknown' : 'the webhook would decide as above';
  return `${unknown}: ${webhook}; inject leaves the object unchanged`;
}

/** @returns null: its pods get nothing; undefined: not known, since other rules hold for what is skipped */
export function floorShown(
  { workload, namespace, decision }: ReturnType<typeof planOf>,
  snapshot: ClusterSnapshot,
): FloorShown | null | undefined {
  if (decision.outcome !== 'inject' || isAudit(decision)) return undefined;
  const entry = taken(floorEntry(namespace, snapshot));
  if (entry === undefined) return null;
  // The decision has read it.
  const { hook, atFirst, later } = floorWaits(workload.pod as Pod, workload.ownerKind, entry);
  return later < 1 ? null : { hook, waitSeconds: atFirst, laterSeconds: later };
}

const WHY: Readonly<Record<string, string>> = {
  fixed: 'A policy or an annotation fixes the wait.',
  initial: 'Not enough is measured here: until then, the wait is the policy’s wait.initial.',
  measured: 'The wait is measured.',
  storm: 'The wait is measured; the tail lies beyond the policy’s wait.max.',
};

/** Why the pods wait, or do not, in one sentence. */
export function becauseOf({
  reason,
  why,
  outcome,
}: Pick<WorkloadExplanation, 'reason' | 'why' | 'outcome'>): string {
  if (outcome === 'unknown') return 'Its pod template was not found, or cannot be read.';
  if (reason !== null) return SKIP_REASONS[reason].means;
  return WHY[why ?? ''] ?? why ?? '';
}
