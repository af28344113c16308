import { z } from 'zod';

const lagFields = {
  samples: z.int().min(0).optional().meta({ description: 'How often it was timed in the last 7 days.' }),
  p50: z.string().optional().meta({ description: 'Half of the lags are at most this, such as 4.9s.' }),
  p99: z.string().optional().meta({ description: '99 % of the lags are at most this.' }),
};

/** metav1.Condition. */
const condition = z.object({
  type: z.string().meta({ description: 'Measured.' }),
  status: z
    .enum(['True', 'False', 'Unknown'])
    .meta({ description: 'True where its lag can be relied on, Unknown where it is too early to say.' }),
  reason: z.string().meta({ description: 'Why, as one word; see docs/consumers.md.' }),
  message: z.string().meta({ description: 'Why, in words.' }),
  lastTransitionTime: z
    .string()
    .meta({ format: 'date-time', description: 'Since when the status is what it is.' }),
  observedGeneration: z
    .int()
    .optional()
    .meta({ description: 'The metadata.generation that this was said of.' }),
});

/** status of a DiscoveryConsumer: written by Linger's leader, and read by people. */
export const discoveryConsumerStatus = z
  .object({
    observedGeneration: z
      .int()
      .optional()
      .meta({ description: 'The metadata.generation that this was said of.' }),
    measure: z.string().optional().meta({ description: 'How its lag is known: declared, reports or probe.' }),
    ...lagFields,
    lastSample: z.string().optional().meta({ format: 'date-time', description: 'When it was timed last.' }),
    additions: z
      .object(lagFields)
      .optional()
      .meta({ description: 'How long it takes until it sends traffic to an endpoint that was added.' }),
    instances: z.int().min(0).optional().meta({ description: 'How many instances report.' }),
    limits: z
      .array(z.string())
      .optional()
      .meta({ description: 'What this way of measuring cannot see, in sentences.' }),
    conditions: z
      .array(condition)
      .optional()
      .meta({
        description: 'How the measuring goes.',
        'x-kubernetes-list-type': 'map',
        'x-kubernetes-list-map-keys': ['type'],
      }),
  })
  .meta({ description: 'What Linger has measured. Written by Linger.' });
export type ConsumerStatus = z.output<typeof discoveryConsumerStatus>;
