import type { LabelRequirement, LabelSelector } from '../schema/selector.ts';

export type Labels = Readonly<Record<string, string>>;
export const NO_LABELS: Labels = {};
/** The selector that everything matches. */
export const EVERYTHING: LabelSelector = {};

/** metav1.LabelSelector semantics: all requirements hold; NotIn also holds where the key is absent. */
export function selects(selector: LabelSelector, labels: Labels): boolean {
  for (const key in selector.matchLabels) {
    if (labelOf(labels, key) !== selector.matchLabels[key]) return false;
  }
  return (
    selector.matchExpressions === undefined || selector.matchExpressions.every((each) => holds(each, labels))
  );
}

function holds({ key, operator, values = [] }: LabelRequirement, labels: Labels): boolean {
  const value = labelOf(labels, key);
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
  }
}

/** Labels come from JSON that others wrote: only own members count, or `constructor` would be a label. */
export function labelOf(labels: Labels, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}
