import {
  type ClusterTerminationPolicy,
  type HookChoice,
  type LabelSelector,
  type Labels,
  type Mode,
  NAMESPACE_NAME_LABEL,
  type NamespaceRecord,
  NO_LABELS,
  namespaceRecord,
  selects,
  selectsNamespace,
  type TerminationPolicy,
} from '../api/index.ts';
import type { ClusterSnapshot } from './cluster-snapshot.ts';
import { holdObstacle } from './hold-delivery.ts';
import { effectivePolicy } from './policy-merge.ts';
import { type PolicySet, policyOf } from './policy-set.ts';
import type { EffectivePolicy, Field, Leaf } from './policy-values.ts';
import { holdBounds, reasonInWords, waitBehindPlainService } from './wait.ts';

/** What a policy currently leads to for a pod that it selects, without annotations, behind an ordinary Service. */
export interface PolicyView {
  readonly mode: Mode;
  readonly hook: HookChoice;
  /** Whole seconds, before the pod's own grace limits it; undefined where the mode is Off. */
  readonly wait: number | undefined;
  /** How that wait was chosen, such as `initial: 31 of 200 samples, 7h of 24h`; undefined where there is no wait. */
  readonly why: string | undefined;
  /** The shortest and the longest hold, in seconds; undefined: the hook is another. */
  readonly hold: { readonly min: number; readonly max: number } | undefined;
  /** Why pods that it selects get no hook Hold although it asks for it, as ends of sentences; empty: they do. */
  readonly noHold: readonly string[];
  /** The p99 of the lag that the wait is taken from, in seconds; undefined where nothing is known, or the wait is fixed. */
  readonly p99: number | undefined;
  readonly samples: number | undefined;
  /** Fields of the policy that have no effect, each with the reason. */
  readonly ignored: readonly string[];
  /** The origin of the setting that disables the whole policy; undefined: it is not disabled. */
  readonly forbiddenBy: string | undefined;
}

type AnyPolicy = ClusterTerminationPolicy | TerminationPolicy;

/** How many ignored fields are listed: more would not be read. */
const MOST_IGNORED = 16;

export function policyView(policy: AnyPolicy, snapshot: ClusterSnapshot): PolicyView {
  const { values, origin, podSelector } = policyOf(policy);
  const subject = {
    namespace: namespaceOf(policy, snapshot),
    labels: labelsFor(podSelector),
    annotations: NO_LABELS,
  };
  const { policy: merged } = effectivePolicy(snapshot.policies, subject, snapshot.modeLimit);
  const { choice, lag } = waitBehindPlainService(merged, subject, snapshot);
  const mode = merged.mode.value;
  const measured = choice.why === 'fixed' ? undefined : lag.seen;
  const namespaces = merged['overrides.namespaces'];
  const forbidden = policy.kind === 'TerminationPolicy' && !namespaces.value;
  const fields = Object.keys(values) as Field[];
  const said = forbidden
    ? fields.map((field) => `${field}: overrides.namespaces (${namespaces.origin})`)
    : ignoredFields(fields, origin, merged);
  const capped = choice.notes.filter(({ code }) => code === 'CeilingApplied').map(({ text }) => text);
  return {
    mode,
    hook: merged.hook.value,
    wait: mode === 'Off' ? undefined : choice.seconds,
    why: mode === 'Off' ? undefined : reasonInWords(choice.why, merged, lag),
    hold: merged.hook.value === 'Hold' ? holdBounds(merged, choice.seconds) : undefined,
    noHold: merged.hook.value === 'Hold' ? holdObstacles(policy, merged, snapshot) : [],
    p99: measured?.quantile(99),
    samples: measured === undefined ? undefined : lag.samples,
    ignored: [...said, ...capped].slice(0, MOST_IGNORED),
    forbiddenBy: forbidden ? namespaces.origin : undefined,
  };
}

/** For pods without node constraints, in each namespace that the policy selects. */
function holdObstacles(
  policy: AnyPolicy,
  merged: EffectivePolicy,
  snapshot: ClusterSnapshot,
): readonly string[] {
  const selected =
    policy.kind === 'TerminationPolicy'
      ? [namespaceOf(policy, snapshot)]
      : [...snapshot.namespaces.values()].filter(
          (each) => selectsNamespace(policyOf(policy).namespaceSelector, each) === true,
        );
  const delivery = merged['hold.delivery'].value;
  return [...new Set(selected.flatMap(({ name }) => holdObstacle(name, delivery, snapshot) ?? []))];
}

/**
 * Mode, hook and wait of a pod without labels and annotations behind an ordinary Service of a namespace, the reason, and the
 * lag that the wait is taken from.
 */
export function namespaceView(namespace: NamespaceRecord, snapshot: ClusterSnapshot) {
  const subject = { namespace, labels: NO_LABELS, annotations: NO_LABELS };
  const { policy } = effectivePolicy(snapshot.policies, subject, snapshot.modeLimit);
  const { choice, lag } = waitBehindPlainService(policy, subject, snapshot);
  return {
    mode: policy.mode.value,
    hook: policy.hook.value,
    seconds: choice.seconds,
    why: reasonInWords(choice.why, policy, lag),
    /** The shortest and the longest hold, in seconds; undefined: the hook is another. */
    hold: policy.hook.value === 'Hold' ? holdBounds(policy, choice.seconds) : undefined,
    lag,
  };
}

export function policiesSelecting(
  policies: PolicySet,
  namespace: NamespaceRecord,
  labels: Labels,
): readonly string[] {
  const all = [...policies.cluster, ...(policies.byNamespace.get(namespace.name) ?? [])];
  return all
    .filter(
      ({ namespaceSelector, podSelector }) =>
        selectsNamespace(namespaceSelector, namespace) === true && selects(podSelector, labels),
    )
    .map(({ origin }) => origin);
}

/** The policy's own namespace, or, for a ClusterTerminationPolicy, one that it selects. */
function namespaceOf(policy: AnyPolicy, { namespaces }: ClusterSnapshot): NamespaceRecord {
  if (policy.kind === 'TerminationPolicy') {
    const { namespace } = policy.metadata;
    return namespaces.get(namespace) ?? namespaceRecord(namespace, NO_LABELS, NO_LABELS);
  }
  const { namespaceSelector } = policyOf(policy);
  const labels = labelsFor(namespaceSelector);
  const name = labels[NAMESPACE_NAME_LABEL] ?? '';
  return namespaces.get(name) ?? namespaceRecord(name, labels, NO_LABELS);
}

/** Labels that the selector matches, if any labels can. */
function labelsFor({ matchLabels = {}, matchExpressions = [] }: LabelSelector): Labels {
  const labels: Record<string, string> = { ...matchLabels };
  for (const { key, operator, values = [] } of matchExpressions) {
    if (operator === 'In') labels[key] ??= values[0] ?? '';
    if (operator === 'Exists') labels[key] ??= '';
  }
  return labels;
}

function ignoredFields(fields: readonly Field[], origin: string, merged: EffectivePolicy): readonly string[] {
  return fields.flatMap((field) => {
    const leaf: Leaf<unknown> = merged[field];
    const refused = leaf.ignored.find((each) => each.origin === origin);
    if (refused !== undefined) {
      const { because } = refused;
      const by = Object.hasOwn(merged, because) ? ` (${merged[because as Field].origin})` : '';
      return [`${field}: ${because}${by}`];
    }
    return leaf.origin === origin ? [] : [`${field}: ${leaf.origin} wins`];
  });
}
