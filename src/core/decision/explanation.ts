import { formatDuration } from '../api/index.ts';
import type { Evidence } from './evidence.ts';
import { type Decision, type HoldPlan, isAudit, longestWait, type Plan, promiseOf } from './plan.ts';
import {
  DURATION_FIELDS,
  digestOf,
  type EffectivePolicy,
  type Field,
  type IgnoredValue,
} from './policy-values.ts';
import { type Note, note, SKIP_REASONS } from './reasons.ts';
import { estimateInWords } from './wait.ts';
import type { Workload } from './workload.ts';

export interface Explained {
  readonly workload: Workload;
  readonly namespace: string;
  readonly decision: Decision;
  /** Consumers in mode Observe that send traffic to its pods. */
  readonly observers?: readonly string[];
  /** What the lag is based on. */
  readonly evidence?: Evidence;
}

/** A decision as `linger explain --output json` prints it. Absent values are null; times are whole seconds. */
export type Explanation = ReturnType<typeof explain>;

export interface ExplainedField {
  readonly field: string;
  /** Durations are texts, as in a policy: `30s`. */
  readonly value: unknown;
  readonly origin: string;
  /** Values of later layers that were refused. */
  readonly ignored?: readonly IgnoredValue[];
}

/** @param running the plans of the workload's running pods */
export function explain(
  { workload: { kind, name }, namespace, decision, observers = [], evidence }: Explained,
  running: readonly Plan[] = [],
) {
  const { outcome, policy, notes } = decision;
  const plan = outcome === 'inject' ? decision.plan : decision.standing;
  const estimate = outcome === 'inject' ? decision.estimate : undefined;
  return {
    kind,
    namespace,
    name,
    outcome,
    mode: policy?.mode.value ?? null,
    /** The digest of the effective policy. Plan annotations carry the digest of the policy that applied at admission. */
    digest: policy === undefined ? null : digestOf(policy),
    reason: outcome === 'skip' ? decision.reason : null,
    waitSeconds: plan?.wait ?? null,
    graceSeconds: plan?.grace ?? null,
    baseGraceSeconds: plan?.baseGrace ?? null,
    hook: plan?.hook ?? null,
    /** The terms of the hold; null with any other hook. */
    hold: plan?.hold ? holdOf(plan.hold) : null,
    /** For manifests: the plan that its pods get at admission: `Hold 5s..120s, fallback Sleep 30s, grace 150s`. */
    admitted: outcome === 'inject' && decision.hold ? promiseOf(decision) : null,
    containers: plan?.containers ?? [],
    why: plan?.why ?? null,
    /** The measurement behind the wait; null where the wait is fixed or nothing is known. */
    estimate: estimate && plan ? { text: estimateInWords(estimate, plan.wait), ...estimate } : null,
    /** The current evidence for the lag; null: the wait does not depend on it. */
    evidence: outcome === 'inject' ? (evidence ?? null) : null,
    /** Consumers in mode Observe: measured, but in no wait. */
    observers,
    fields: policy === undefined ? [] : fieldsOf(policy),
    notes: [...notes, ...cutAfterwards(decision, running)].map(({ code, text }) => ({ code, text })),
  };
}

/**
 * Finds running pods whose wait was shortened after admission: their plans have the current policy's digest, but a shorter
 * wait. Measured waits are excluded, since they change by themselves.
 */
function cutAfterwards(decision: Decision, running: readonly Plan[]): readonly Note[] {
  if (decision.outcome !== 'inject') return [];
  const { plan, policy } = decision;
  const isCut = ({ why, digest, baseGrace, ...each }: Plan) =>
    why === plan.why &&
    digest === digestOf(policy) &&
    baseGrace === plan.baseGrace &&
    each.grace < plan.grace;
  const cut = plan.why === 'measured' || plan.why === 'storm' ? undefined : running.find(isCut);
  if (cut === undefined) return [];
  const text = `running pods wait ${longestWait(cut)}s instead of ${longestWait(plan)}s: something in the cluster has cut their grace from ${plan.grace}s to ${cut.grace}s; linger audit --server-dry-run names it, and a restart changes nothing`;
  return [note('WaitShrunk', text)];
}

/** One line for one workload: `Deployment shop/web: wait 30s, grace 30s → 60s, hook Sleep`. */
export function summaryOf(explained: Explained): string {
  const { workload, namespace, decision } = explained;
  const subject = `${workload.kind} ${namespace}/${workload.name}`;
  if (decision.outcome === 'skip')
    return `${subject}: skipped, ${decision.reason}: ${SKIP_REASONS[decision.reason].means}`;
  const { wait, baseGrace, grace, hook, hold } = decision.plan;
  const audit = isAudit(decision) ? ' (mode Audit: left unchanged)' : '';
  return `${subject}: wait ${wait}s, grace ${baseGrace}s → ${grace}s, hook ${hook}${hold ? ` for ${hold.min}s to ${hold.max}s` : ''}${audit}`;
}

function holdOf({ min, max, observe }: HoldPlan) {
  return { minSeconds: min, maxSeconds: max, observe: observe === true };
}

function fieldsOf(policy: EffectivePolicy): readonly ExplainedField[] {
  return (Object.keys(policy) as Field[]).flatMap((field) => {
    const { value, origin, ignored } = policy[field];
    if (value === undefined) return [];
    const refused = ignored.map((each) => ({ ...each, value: showValue(field, each.value) }));
    const shown = { field, value: showValue(field, value), origin };
    return refused.length === 0 ? shown : { ...shown, ignored: refused };
  });
}

function showValue(field: Field, value: unknown): unknown {
  return DURATION_FIELDS.has(field) && typeof value === 'number' ? formatDuration(value) : value;
}
