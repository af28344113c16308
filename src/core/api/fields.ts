import * as z from 'zod';
import {
  DURATION,
  DURATION_HINT,
  LONGEST_DURATION,
  LONGEST_DURATION_TEXT,
  parseDuration,
} from './duration.ts';
import {
  isLabelKey,
  isLabelValue,
  LABEL_KEY,
  LABEL_NAME,
  LONGEST_PREFIX,
  MOST_EXPRESSIONS,
  MOST_VALUES,
} from './selector.ts';

/**
 * Rules of a CustomResourceDefinition beyond types. Each corresponds to a refinement that rejects the same in files. Members
 * of OpenAPI v3 as Kubernetes reads it; zod's `meta` hands them to the generator of the CRDs.
 *
 * Neither is derived from the other, because a refinement is arbitrary TypeScript, and an evaluator of CEL would be a
 * dependency that every replica and page loads. Instead, both are tested with one table of cases,
 * `test/core/api/policy-specs.ts` and `consumer-specs.ts`: the schema by `policy-schema.test.ts` and
 * `consumer-schema.test.ts`, the rules by a real API server (`test/cluster-suite/policy-crd.test.ts` and
 * `consumer-crd.test.ts`). A rule that rejects no case fails `rules.test.ts`.
 */
export type ApiRules = {
  /** Rules in CEL, each true for what is valid. `self` is the value. */
  readonly 'x-kubernetes-validations': readonly { readonly rule: string; readonly message: string }[];
};

/** @param rule CEL that is true for what is valid @param message as zod's `error` */
export function apiRule(rule: string, message: string): ApiRules {
  return apiRules([rule, message]);
}

export function apiRules(...rules: readonly (readonly [rule: string, message: string])[]): ApiRules {
  return { 'x-kubernetes-validations': rules.map(([rule, message]) => ({ rule, message })) };
}

/**
 * A regular expression as a CEL literal. It must mean the same to Go's RE2, so it must have no look-around and no
 * back-references. A raw literal cannot contain the quote with which it ends.
 */
export function celPattern({ source }: RegExp): string {
  if (source.includes("'")) throw new RangeError(`expected a pattern without ', got ${source}`);
  return `r'${source}'`;
}

declare module 'zod' {
  interface GlobalMeta {
    /** Replaces the field's description in the reference. Markdown, with links relative to docs/reference. */
    readonly reference?: string;
    /** The values of the field for the reference, if the schema does not show them. */
    readonly values?: string;
    /** What the reference says about an absent field. */
    readonly absent?: string;
  }
}

/** A field that may be absent, with what its CRD says of it. */
export function optional<S extends z.ZodType>(schema: S, description: string, meta: z.GlobalMeta = {}) {
  return schema.optional().meta({ ...meta, description });
}

/**
 * A duration in a document: text in, seconds out, not shorter than `least`. Go's `time.ParseDuration`, CEL's
 * `duration()` and parseDuration read the same.
 */
export function durationFrom(least?: string) {
  const leastSeconds = parseDuration(least ?? '0') ?? Number.NaN;
  const bounds = least === undefined ? 'at most' : `from ${least} to`;
  const error = `expected ${DURATION_HINT}, ${bounds} ${LONGEST_DURATION}`;
  const rules = [
    `self.matches(${celPattern(DURATION)})`,
    ...(least === undefined ? [] : [`duration(self) >= duration('${least}')`]),
    `duration(self) <= duration('${LONGEST_DURATION}')`,
  ];
  return z
    .string({ error: least === undefined ? `expected ${DURATION_HINT}` : error })
    .refine((text) => (parseDuration(text) ?? Number.NaN) >= leastSeconds, { error })
    .meta({
      ...apiRule(rules.join(' && '), error),
      maxLength: LONGEST_DURATION_TEXT,
      values: least === undefined ? 'a duration' : `a duration, at least \`${least}\``,
    })
    .transform((text) => parseDuration(text) ?? 0);
}

export const duration = durationFrom();

const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LONGEST_KEY = 317;

const MOST_LABELS = 32;

const KEY_HINT = 'expected a label key such as app.kubernetes.io/name';
const VALUE_HINT = 'expected a label value: at most 63 letters, digits, "-", "_" or "."';
const VALUES_HINT = 'expected values with In and NotIn, and none with Exists and DoesNotExist';

const labelKey = z
  .string()
  .refine(isLabelKey, { error: KEY_HINT })
  .meta({
    ...apiRule(`self.matches(${celPattern(LABEL_KEY)}) && self.indexOf('/') <= ${LONGEST_PREFIX}`, KEY_HINT),
    maxLength: LONGEST_KEY,
  });
const labelValue = z
  .string({ error: 'expected text; put numbers and true/false in quotes' })
  .refine(isLabelValue, { error: VALUE_HINT })
  .meta({ ...apiRule(`self == '' || self.matches(${celPattern(LABEL_NAME)})`, VALUE_HINT), maxLength: 63 });

const requirement = z
  .strictObject({
    key: labelKey.describe('The key of the label.'),
    operator: z
      .enum(['In', 'NotIn', 'Exists', 'DoesNotExist'])
      .describe('How the label is compared with the values.'),
    values: optional(
      z.array(labelValue).max(MOST_VALUES),
      'For In and NotIn: the values, of which one is enough.',
    ),
  })
  .refine(({ operator, values = [] }) => (operator === 'In' || operator === 'NotIn') === values.length > 0, {
    error: VALUES_HINT,
    path: ['values'],
  })
  .meta(
    apiRule(
      "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
      VALUES_HINT,
    ),
  );

/** metav1.LabelSelector; the empty selector matches everything. */
export const labelSelector = z
  .strictObject({
    matchLabels: optional(
      z.record(labelKey, labelValue).refine((labels) => Object.keys(labels).length <= MOST_LABELS, {
        error: `expected at most ${MOST_LABELS} labels`,
      }),
      'Labels that must all be present, with these values.',
      { maxProperties: MOST_LABELS },
    ),
    matchExpressions: optional(
      z.array(requirement).max(MOST_EXPRESSIONS),
      'Requirements that must all be met.',
    ),
  })
  .meta({ values: 'a LabelSelector' });

/** Names of objects. Source: k8s.io/apimachinery IsDNS1123Subdomain / IsDNS1123Label. */
export const objectName = z
  .string()
  .max(253)
  .regex(DNS_SUBDOMAIN, { error: 'expected lower-case letters, digits, "-" and "."' });

export const namespaceName = z
  .string()
  .max(63)
  .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/, { error: 'expected lower-case letters, digits and "-"' });

export const observedGeneration = optional(z.int(), 'The metadata.generation that this describes.', {
  reference: 'The `metadata.generation` that this describes.',
});

const condition = z.object({
  type: z
    .string()
    .describe('What the status is about: Measured for a consumer, Ready or HoldUsable for a policy.'),
  status: z.enum(['True', 'False', 'Unknown']).describe('Unknown where it is too early to say.'),
  reason: z.string().describe('Why, as one word; see docs/reference/policies.md or consumers.md.'),
  message: z.string().describe('Why, in words.'),
  lastTransitionTime: z.string().meta({ format: 'date-time', description: 'When the status last changed.' }),
  observedGeneration,
});

export const conditions = optional(z.array(condition), 'Its state, as conditions.', {
  'x-kubernetes-list-type': 'map',
  'x-kubernetes-list-map-keys': ['type'],
});
