import { z } from 'zod';
import { duration } from './duration-field.ts';
import { labelSelector } from './selector.ts';

const positive = duration.refine((seconds) => seconds > 0, { error: 'expected more than 0s' });

const declared = z
  .strictObject({ syncInterval: positive.optional(), lag: positive.optional() })
  .refine(({ syncInterval, lag }) => (syncInterval === undefined) !== (lag === undefined), {
    error: 'expected exactly one of syncInterval and lag',
  });

const probe = z.strictObject({
  url: z.url({ protocol: /^https?$/, error: 'expected an http:// or https:// URL' }),
  every: positive.optional(),
});

/** How a consumer's lag is known: exactly one way. Strict, so that a later way is an error here and not ignored. */
const measure = z
  .strictObject({
    declared: declared.optional(),
    reports: z.strictObject({}).optional(),
    probe: probe.optional(),
  })
  .refine((ways) => Object.values(ways).filter((way) => way !== undefined).length === 1, {
    error: 'expected exactly one of declared, reports and probe',
  });

/** spec of a DiscoveryConsumer: something beyond the EndpointSlices that finds endpoints and sends traffic. */
export const discoveryConsumerSpec = z.strictObject({
  appliesTo: z
    .strictObject({
      namespaceSelector: labelSelector.optional(),
      serviceSelector: labelSelector.optional(),
      podSelector: labelSelector.optional(),
    })
    .optional(),
  measure,
});
export type DiscoveryConsumerSpec = z.output<typeof discoveryConsumerSpec>;
