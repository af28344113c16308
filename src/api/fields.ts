import { z } from 'zod';
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
 * What a CustomResourceDefinition says beyond types, put beside the refinement that says the same to files, so that
 * both refuse the same. Members of OpenAPI v3 as Kubernetes reads it; zod hands them on (`meta`) to what generates the
 * CRDs, and nothing else here reads them.
 */
export type ApiRules = {
  /** Rules in CEL, each true for what is valid. `self` is the value. */
  readonly 'x-kubernetes-validations': readonly { readonly rule: string; readonly message: string }[];
};

/** @param rule CEL that is true for what is valid @param message as zod's `error` */
export function apiRule(rule: string, message: string): ApiRules {
  return apiRules([rule, message]);
}

/** Several rules of one value. */
export function apiRules(...rules: readonly (readonly [rule: string, message: string])[]): ApiRules {
  return { 'x-kubernetes-validations': rules.map(([rule, message]) => ({ rule, message })) };
}

/**
 * A regular expression as a CEL literal. It must mean the same to Go's RE2: no look-around and no back-references.
 * A raw literal cannot hold the quote that it ends with.
 */
export function celPattern({ source }: RegExp): string {
  if (source.includes("'")) throw new RangeError(`expected a pattern without ', got ${source}`);
  return `r'${source}'`;
}

/** A duration in a document: text in, seconds out. */
export const duration = z
  .string({ error: `expected ${DURATION_HINT}` })
  .refine((text) => parseDuration(text) !== undefined, {
    error: `expected ${DURATION_HINT}, at most ${LONGEST_DURATION}`,
  })
  .meta({
    ...apiRule(
      `self.matches(${celPattern(DURATION)}) && duration(self) <= duration('${LONGEST_DURATION}')`,
      `expected ${DURATION_HINT}, at most ${LONGEST_DURATION}`,
    ),
    maxLength: LONGEST_DURATION_TEXT,
  })
  .transform((text) => parseDuration(text) ?? 0);

/**
 * A duration that is not shorter than this. Both are read as Go's `time.ParseDuration` reads them, which is also what
 * CEL's `duration()` does.
 */
export function durationFrom(least: string) {
  const leastSeconds = parseDuration(least) ?? Number.NaN;
  const error = `expected ${DURATION_HINT}, from ${least} to ${LONGEST_DURATION}`;
  const rule = `self.matches(${celPattern(DURATION)}) && duration(self) >= duration('${least}') && duration(self) <= duration('${LONGEST_DURATION}')`;
  return z
    .string({ error })
    .refine((text) => (parseDuration(text) ?? Number.NaN) >= leastSeconds, { error })
    .meta({ ...apiRule(rule, error), maxLength: LONGEST_DURATION_TEXT })
    .transform((text) => parseDuration(text) ?? 0);
}

const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const LONGEST_KEY = 317;

/** As much as anybody selects by; the API server refuses rules whose cost it cannot bound. */
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
    key: labelKey.meta({ description: 'The key of the label.' }),
    operator: z
      .enum(['In', 'NotIn', 'Exists', 'DoesNotExist'])
      .meta({ description: 'How the label is compared with the values.' }),
    values: z
      .array(labelValue)
      .max(MOST_VALUES)
      .optional()
      .meta({ description: 'For In and NotIn: the values, of which one is enough.' }),
  })
  .refine(
    ({ operator, values }) => {
      const wantsValues = operator === 'In' || operator === 'NotIn';
      return wantsValues === (values !== undefined && values.length > 0);
    },
    { error: VALUES_HINT, path: ['values'] },
  )
  .meta(
    apiRule(
      "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
      VALUES_HINT,
    ),
  );

/** metav1.LabelSelector; the empty selector matches everything. */
export const labelSelector = z.strictObject({
  matchLabels: z
    .record(labelKey, labelValue)
    .refine((labels) => Object.keys(labels).length <= MOST_LABELS, {
      error: `expected at most ${MOST_LABELS} labels`,
    })
    .optional()
    .meta({ description: 'Labels that must all be there, with these values.', maxProperties: MOST_LABELS }),
  matchExpressions: z
    .array(requirement)
    .max(MOST_EXPRESSIONS)
    .optional()
    .meta({ description: 'Requirements that must all be met.' }),
});

/** Names of objects. Source: k8s.io/apimachinery IsDNS1123Subdomain / IsDNS1123Label. */
export const objectName = z
  .string()
  .max(253)
  .regex(DNS_SUBDOMAIN, { error: 'expected lower-case letters, digits, "-" and "."' });

export const namespaceName = z
  .string()
  .max(63)
  .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/, { error: 'expected lower-case letters, digits and "-"' });

/** metav1.Condition. */
const condition = z.object({
  type: z.string().meta({ description: 'What is true or not: Measured of a consumer, Ready of a policy.' }),
  status: z.enum(['True', 'False', 'Unknown']).meta({ description: 'Unknown where it is too early to say.' }),
  reason: z.string().meta({ description: 'Why, as one word; see docs/reference.md.' }),
  message: z.string().meta({ description: 'Why, in words.' }),
  lastTransitionTime: z
    .string()
    .meta({ format: 'date-time', description: 'Since when the status is what it is.' }),
  observedGeneration: z
    .int()
    .optional()
    .meta({ description: 'The metadata.generation that this was said of.' }),
});

/** The conditions of a status. */
export const conditions = z
  .array(condition)
  .optional()
  .meta({
    description: 'How it stands.',
    'x-kubernetes-list-type': 'map',
    'x-kubernetes-list-map-keys': ['type'],
  });
