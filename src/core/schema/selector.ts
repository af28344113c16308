import { z } from 'zod';
import { apiRule, celPattern } from './api-rules.ts';
import {
  isLabelKey,
  isLabelValue,
  LABEL_KEY,
  LABEL_NAME,
  LONGEST_PREFIX,
  MOST_EXPRESSIONS,
  MOST_VALUES,
} from './labels.ts';

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

export type LabelSelector = z.output<typeof labelSelector>;
export type LabelRequirement = z.output<typeof requirement>;

/** Names of objects. Source: k8s.io/apimachinery IsDNS1123Subdomain / IsDNS1123Label. */
export const objectName = z
  .string()
  .max(253)
  .regex(DNS_SUBDOMAIN, { error: 'expected lower-case letters, digits, "-" and "."' });

export const namespaceName = z
  .string()
  .max(63)
  .regex(/^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/, { error: 'expected lower-case letters, digits and "-"' });
