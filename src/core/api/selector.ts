// What is allowed in labels. Does not use the schema library, because the command line does without it. Source:
// k8s.io/apimachinery pkg/util/validation.

import { isRecord, listOf, recordsAt, textOf } from './json.ts';

export const LABEL_NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
export const LONGEST_PREFIX = 253;

/** Prefix and name; `isLabelKey` also bounds the prefix. */
export const LABEL_KEY =
  /^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

/** Limited, because the API server rejects rules whose cost it cannot bound. */
export const MOST_EXPRESSIONS = 16;
export const MOST_VALUES = 64;

export function isLabelKey(key: string): boolean {
  return LABEL_KEY.test(key) && key.indexOf('/') <= LONGEST_PREFIX;
}

export function isLabelValue(value: string): boolean {
  return value === '' || LABEL_NAME.test(value);
}

/** metav1.LabelSelectorRequirement. */
export interface LabelRequirement {
  readonly key: string;
  readonly operator: 'In' | 'NotIn' | 'Exists' | 'DoesNotExist';
  /** With In and NotIn: at least one. */
  readonly values?: readonly string[] | undefined;
}

/** metav1.LabelSelector; the empty selector matches everything. */
export interface LabelSelector {
  readonly matchLabels?: Readonly<Record<string, string>> | undefined;
  readonly matchExpressions?: readonly LabelRequirement[] | undefined;
}

/** One requirement, up to the comma or the end. No two parts match the same characters, so matching takes linear time. */
const REQUIREMENT = new RegExp(
  [
    String.raw`\s*(?:!\s*(?<absent>WORD)\s*|(?<key>WORD)\s*`,
    String.raw`(?:(?<equality>==?|!=)\s*(?:(?<value>WORD)\s*)?|`,
    String.raw`(?<=\s)(?<set>in|notin)\s*\(\s*(?<values>[^()\s][^()]*)\)\s*)?)(?<end>,|$)`,
  ]
    .join('')
    .replaceAll('WORD', String.raw`[^\s=!(),<>]+`),
  'y',
);

/**
 * Reads what `kubectl get -l` takes: `app=web,tier!=cache`, `env in (a,b)`, `env notin (a)`, `key`, `!key`. As in kubectl,
 * `!=` and `notin` also select objects without the key. Comparisons of numbers (`<`, `>`) are not read. Source:
 * k8s.io/apimachinery pkg/labels (Parse).
 * @returns undefined for a text that is not a selector, or has keys or values that no label can have
 */
export function parseLabelQuery(text: string): LabelSelector | undefined {
  const matchExpressions: LabelRequirement[] = [];
  REQUIREMENT.lastIndex = 0;
  for (let end: string | undefined = ','; end === ','; ) {
    const groups = REQUIREMENT.exec(text)?.groups;
    if (groups === undefined || matchExpressions.length === MOST_EXPRESSIONS) return undefined;
    matchExpressions.push(requirementOf(groups));
    end = groups.end;
  }
  return matchExpressions.every(isRequirement) ? { matchExpressions } : undefined;
}

/** `key=` requires the empty value, as does `(a,)` beside another value. */
function requirementOf(groups: Partial<Record<string, string>>): LabelRequirement {
  const { absent, key = '', equality, value = '', set, values } = groups;
  if (absent !== undefined) return { key: absent, operator: 'DoesNotExist' };
  if (equality !== undefined) return { key, operator: equality === '!=' ? 'NotIn' : 'In', values: [value] };
  if (values === undefined) return { key, operator: 'Exists' };
  return {
    key,
    operator: set === 'in' ? 'In' : 'NotIn',
    values: values.split(',').map((each) => each.trim()),
  };
}

function isRequirement({ key, values = [] }: LabelRequirement): boolean {
  return isLabelKey(key) && values.length <= MOST_VALUES && values.every(isLabelValue);
}

/** A selector as a query, as the API takes it: `app=web,tier in (a,b)`. */
export function labelQueryOf({ matchLabels = {}, matchExpressions = [] }: LabelSelector): string {
  const equal = Object.entries(matchLabels).map(([key, value]) => `${key}=${value}`);
  const others = matchExpressions.map(({ key, operator, values = [] }) => {
    if (operator === 'Exists') return key;
    if (operator === 'DoesNotExist') return `!${key}`;
    return `${key} ${operator === 'In' ? 'in' : 'notin'} (${values.join(',')})`;
  });
  return [...equal, ...others].join(',');
}

export type Labels = Readonly<Record<string, string>>;
export const NO_LABELS: Labels = {};
/** The selector that matches everything. */
export const EVERYTHING: LabelSelector = {};

/** metav1.LabelSelector semantics: all requirements hold; NotIn also holds where the key is absent. */
export function selects(selector: LabelSelector, labels: Labels): boolean {
  for (const key in selector.matchLabels) {
    if (labelOf(labels, key) !== selector.matchLabels[key]) return false;
  }
  return selector.matchExpressions?.every((each) => holds(each, labels)) ?? true;
}

/** The selectors of a webhook in a configuration, which determine for which objects it is called. */
export interface WebhookSelectors {
  readonly namespaceSelector?: unknown;
  readonly objectSelector?: unknown;
}

/** Whether a webhook's selectors match an object of a namespace. Only the API server can evaluate matchConditions. */
export function isSelected(webhook: WebhookSelectors, namespace: Labels, object: Labels): boolean {
  const takes = (selector: unknown, labels: Labels) =>
    !isRecord(selector) || selects(selector as LabelSelector, labels);
  return takes(webhook.namespaceSelector, namespace) && takes(webhook.objectSelector, object);
}

/** Whether the rules of a webhook include the creation of pods. */
export function isCalledForPods({ rules }: { readonly rules?: unknown }): boolean {
  const has = (list: unknown, ...words: string[]) => words.some((word) => listOf(list).includes(word));
  return recordsAt(rules).some(
    ({ apiGroups, resources, operations, scope }) =>
      has(apiGroups, '', '*') &&
      has(resources, 'pods', 'pods/*', '*', '*/*') &&
      has(operations, 'CREATE', '*') &&
      scope !== 'Cluster',
  );
}

/** Whether one of these patterns matches a name. A pattern with several wildcards (`*`, `?`) is assumed to. */
export function fitsPattern(patterns: unknown, name: string): boolean {
  return listOf(patterns).some((each) => {
    const [start = '', end, ...more] = textOf(each).split(/[*?]/);
    if (end === undefined) return start === name;
    return more.length > 0 || (name.startsWith(start) && name.endsWith(end));
  });
}

function holds({ key, operator, values = [] }: LabelRequirement, labels: Labels): boolean {
  const value = labelOf(labels, key);
  const isOneOf = operator === 'In' || operator === 'NotIn';
  const found = value !== undefined && (!isOneOf || values.includes(value));
  return found === (operator === 'In' || operator === 'Exists');
}

/** Only own members of this foreign JSON count: `constructor` is not a label. */
export function labelOf(labels: Labels, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}
