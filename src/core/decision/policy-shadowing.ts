import { type ClusterTerminationPolicy, EVERYTHING, type TerminationPolicy } from '../api/index.ts';
import { TIGHTENING, type Tighter } from './policy-merge.ts';
import { inLayerOrder, type Policy, policyOf } from './policy-set.ts';
import type { Field, Origin, PolicyValues } from './policy-values.ts';

/** A policy without effect, and those that override it. */
export interface ShadowedPolicy {
  readonly policy: Origin;
  readonly by: readonly Origin[];
}

/**
 * The policies without any effect: for all pods that they select, later policies of the same layer set each of their fields.
 * Finds only those that are overridden by policies with the same selectors, or with none.
 */
export function shadowedPolicies(
  documents: readonly (ClusterTerminationPolicy | TerminationPolicy)[],
): readonly ShadowedPolicy[] {
  const layers = Map.groupBy(documents.map(policyOf), ({ namespace }) => namespace);
  return [...layers.values()].flatMap((all) => {
    const ofSelectors = Map.groupBy(all.toSorted(inLayerOrder), selectorsInWords);
    const ofAll = ofSelectors.get(
      selectorsInWords({ namespaceSelector: EVERYTHING, podSelector: EVERYTHING }),
    );
    return all.flatMap((policy) => {
      const own = ofSelectors.get(selectorsInWords(policy)) ?? [];
      const later = [...own, ...(ofAll ?? [])].filter((each) => inLayerOrder(policy, each) < 0);
      const fields = Object.keys(policy.values) as Field[];
      const by = fields.map(
        (field) => later.find((each) => hides(each.values, policy.values, field))?.origin,
      );
      if (by.length === 0 || by.includes(undefined)) return [];
      return [{ policy: policy.origin, by: [...new Set(by)].filter((each) => each !== undefined) }];
    });
  });
}

function hides<F extends Field>(
  later: Partial<PolicyValues>,
  values: Partial<PolicyValues>,
  field: F,
): boolean {
  if (!(field in later)) return false;
  const isTighter: Tighter<PolicyValues[F]> | undefined = TIGHTENING[field];
  return !isTighter?.(values[field] as PolicyValues[F], later[field] as PolicyValues[F]);
}

/** A canonical text: equal for selectors that differ in order only. */
function selectorsInWords({
  namespaceSelector,
  podSelector,
}: Pick<Policy, 'namespaceSelector' | 'podSelector'>) {
  const words = [namespaceSelector, podSelector].map(({ matchLabels = {}, matchExpressions = [] }) => [
    ...Object.entries(matchLabels).map((label) => label.join('=')),
    ...matchExpressions.map(({ key, operator, values = [] }) =>
      [key, operator, ...values.toSorted()].join(' '),
    ),
  ]);
  return JSON.stringify(words.map((each) => each.toSorted()));
}
