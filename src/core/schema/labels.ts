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
