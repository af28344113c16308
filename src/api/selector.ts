// What labels may be. Without the schema library, which the command line does without.
// Source: k8s.io/apimachinery pkg/util/validation.

export const LABEL_NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
export const LONGEST_PREFIX = 253;

/** Prefix and name; `isLabelKey` also bounds the prefix. */
export const LABEL_KEY =
  /^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;

/** As much as anybody selects by; the API server refuses rules whose cost it cannot bound. */
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

/** An operator, or a word: a key, a value, `in` or `notin`. */
const TOKEN = /\s*(==|!=|[=!(),]|[^\s=!(),<>]+)\s*/y;

/**
 * Reads what `kubectl get -l` takes: `app=web,tier!=cache`, `env in (a,b)`, `env notin (a)`, `key`, `!key`. As there,
 * `!=` and `notin` also select what does not have the key. Comparisons of numbers (`<`, `>`) are not read.
 * Source: k8s.io/apimachinery pkg/labels (Parse).
 * @returns undefined for a text that is none, or has keys or values that no label can have
 */
export function parseLabelQuery(text: string): LabelSelector | undefined {
  const tokens = tokensOf(text);
  if (tokens === undefined || tokens.length === 0) return undefined;
  const matchExpressions: LabelRequirement[] = [];
  for (;;) {
    const requirement = takeRequirement(tokens);
    if (requirement === undefined) return undefined;
    matchExpressions.push(requirement);
    const next = tokens.shift();
    if (next === undefined) break;
    if (next !== ',') return undefined;
  }
  const allowed = matchExpressions.length <= MOST_EXPRESSIONS && matchExpressions.every(isRequirement);
  return allowed ? { matchExpressions } : undefined;
}

function isRequirement({ key, values = [] }: LabelRequirement): boolean {
  return isLabelKey(key) && values.length <= MOST_VALUES && values.every(isLabelValue);
}

function tokensOf(text: string): string[] | undefined {
  const tokens: string[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const [, token] = TOKEN.exec(text) ?? [];
    if (token === undefined) return undefined;
    tokens.push(token);
  }
  return tokens;
}

const isWord = (token: string | undefined): token is string => token !== undefined && !/^[=!(),]/.test(token);

/** Takes a requirement off the tokens, up to the comma or the end. */
function takeRequirement(tokens: string[]): LabelRequirement | undefined {
  const absent = tokens[0] === '!';
  if (absent) tokens.shift();
  const key = tokens.shift();
  if (!isWord(key)) return undefined;
  if (absent) return { key, operator: 'DoesNotExist' };
  if (tokens.length === 0 || tokens[0] === ',') return { key, operator: 'Exists' };
  const relation = tokens.shift();
  switch (relation) {
    case '=':
    case '==':
      return { key, operator: 'In', values: [takeValue(tokens)] };
    case '!=':
      return { key, operator: 'NotIn', values: [takeValue(tokens)] };
    case 'in':
    case 'notin': {
      const values = takeValues(tokens);
      return values && { key, operator: relation === 'in' ? 'In' : 'NotIn', values };
    }
    default:
      return undefined;
  }
}

/** `key=` asks for the empty value. */
function takeValue(tokens: string[]): string {
  return isWord(tokens[0]) ? (tokens.shift() ?? '') : '';
}

/** `(a,b)`; `(a,)` has the empty value, too. */
function takeValues(tokens: string[]): string[] | undefined {
  if (tokens.shift() !== '(') return undefined;
  if (tokens[0] === ')') return undefined;
  const values: string[] = [];
  for (;;) {
    values.push(takeValue(tokens));
    const next = tokens.shift();
    if (next === ')') return values;
    if (next !== ',') return undefined;
  }
}

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
