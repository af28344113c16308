import { z } from 'zod';

/** Limits and alphabet of label keys and values. Source: k8s.io/apimachinery pkg/util/validation. */
const LABEL_NAME = /^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$/;
const DNS_SUBDOMAIN = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

function isLabelKey(key: string): boolean {
  const slash = key.indexOf('/');
  if (slash < 0) return LABEL_NAME.test(key);
  const prefix = key.slice(0, slash);
  return prefix.length <= 253 && DNS_SUBDOMAIN.test(prefix) && LABEL_NAME.test(key.slice(slash + 1));
}

const labelKey = z
  .string()
  .refine(isLabelKey, { error: 'expected a label key such as app.kubernetes.io/name' });
const labelValue = z
  .string({ error: 'expected text; put numbers and true/false in quotes' })
  .refine((value) => value === '' || LABEL_NAME.test(value), {
    error: 'expected a label value: at most 63 letters, digits, "-", "_" or "."',
  });

const requirement = z
  .strictObject({
    key: labelKey,
    operator: z.enum(['In', 'NotIn', 'Exists', 'DoesNotExist']),
    values: z.array(labelValue).optional(),
  })
  .refine(
    ({ operator, values }) => {
      const wantsValues = operator === 'In' || operator === 'NotIn';
      return wantsValues === (values !== undefined && values.length > 0);
    },
    { error: 'expected values with In and NotIn, and none with Exists and DoesNotExist', path: ['values'] },
  );

/** metav1.LabelSelector; the empty selector matches everything. */
export const labelSelector = z.strictObject({
  matchLabels: z.record(labelKey, labelValue).optional(),
  matchExpressions: z.array(requirement).optional(),
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
