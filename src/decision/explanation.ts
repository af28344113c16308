import { formatDuration, type Mode } from '../api/index.ts';
import { type Decision, type Injection, isAudit } from './plan.ts';
import { DURATION_FIELDS, type EffectivePolicy, type Field, type IgnoredValue } from './policy.ts';
import { type NoteCode, SKIP_REASONS, type SkipReason } from './reasons.ts';
import { estimateInWords, type WaitEstimate } from './wait.ts';
import type { Workload } from './workload.ts';

/** What is explained: the pods of a workload and what was decided for them. */
export interface Explained {
  readonly workload: Workload;
  readonly namespace: string;
  readonly decision: Decision;
}

/** A decision as `linger explain --output json` prints it. Absent values are null. */
export interface Explanation {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly outcome: 'inject' | 'skip';
  readonly mode: Mode | null;
  readonly reason: SkipReason | null;
  readonly waitSeconds: number | null;
  readonly graceSeconds: number | null;
  readonly baseGraceSeconds: number | null;
  readonly hook: string | null;
  readonly containers: readonly string[];
  /** How the wait came about: fixed, initial, declared, measured or storm. */
  readonly why: string | null;
  /** What has been measured and what the policy makes of it; null where the wait is fixed or nothing is known. */
  readonly estimate: (WaitEstimate & { readonly text: string }) | null;
  readonly fields: readonly ExplainedField[];
  readonly notes: readonly { readonly code: NoteCode; readonly text: string }[];
}

export interface ExplainedField {
  readonly field: string;
  /** Durations as a policy would say them: `30s`. */
  readonly value: unknown;
  readonly origin: string;
  /** Values that would have won but were not allowed to. */
  readonly ignored?: readonly IgnoredValue[];
}

export function explain({ workload, namespace, decision }: Explained): Explanation {
  const plan = decision.outcome === 'inject' ? decision.plan : decision.standing;
  return {
    kind: workload.kind,
    namespace,
    name: workload.name,
    outcome: decision.outcome,
    mode: decision.policy?.mode.value ?? null,
    reason: decision.outcome === 'skip' ? decision.reason : null,
    waitSeconds: plan?.wait ?? null,
    graceSeconds: plan?.grace ?? null,
    baseGraceSeconds: plan?.baseGrace ?? null,
    hook: plan?.hook ?? null,
    containers: plan?.containers ?? [],
    why: plan?.why ?? null,
    estimate: decision.outcome === 'inject' ? shownEstimate(decision) : null,
    fields: decision.policy === undefined ? [] : fieldsOf(decision.policy),
    notes: decision.notes.map(({ code, text }) => ({ code, text })),
  };
}

function shownEstimate({ plan, estimate }: Injection): Explanation['estimate'] {
  return estimate === undefined ? null : { text: estimateInWords(estimate, plan.wait), ...estimate };
}

/** One line for one workload: `Deployment shop/web: wait 30s, grace 30s → 60s, hook Sleep`. */
export function summaryOf(explained: Explained): string {
  const { workload, namespace, decision } = explained;
  const subject = `${workload.kind} ${namespace}/${workload.name}`;
  if (decision.outcome === 'skip')
    return `${subject}: skipped, ${decision.reason}: ${SKIP_REASONS[decision.reason]}`;
  const { wait, baseGrace, grace, hook } = decision.plan;
  const audit = isAudit(decision) ? ' (mode Audit: left unchanged)' : '';
  return `${subject}: wait ${wait}s, grace ${baseGrace}s → ${grace}s, hook ${hook}${audit}`;
}

function fieldsOf(policy: EffectivePolicy): readonly ExplainedField[] {
  return (Object.keys(policy) as Field[])
    .filter((field) => policy[field].value !== undefined)
    .map((field) => {
      const { value, origin, ignored } = policy[field];
      const shown = { field, value: showValue(field, value), origin };
      if (ignored.length === 0) return shown;
      return { ...shown, ignored: ignored.map((each) => ({ ...each, value: showValue(field, each.value) })) };
    });
}

function showValue(field: Field, value: unknown): unknown {
  return DURATION_FIELDS.has(field) && typeof value === 'number' ? formatDuration(value) : value;
}
