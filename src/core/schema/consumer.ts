import { z } from 'zod';
import { apiRule, celPattern } from './api-rules.ts';
import { durationFrom } from './duration-field.ts';
import { labelSelector } from './selector.ts';
import { HTTP_URL, HTTP_URL_HINT, LONGEST_URL } from './url.ts';

const EITHER = 'expected exactly one of syncInterval and lag';

const declared = z
  .strictObject({
    syncInterval: durationFrom('1ms').optional().meta({
      description:
        'It polls this often: its lag is uniform from 0 to this. A duration such as 10s, at most 168h.',
    }),
    lag: durationFrom('1ms')
      .optional()
      .meta({ description: 'It is always this late. A duration such as 40s, at most 168h.' }),
  })
  .refine(({ syncInterval, lag }) => (syncInterval === undefined) !== (lag === undefined), { error: EITHER })
  .meta({
    ...apiRule('has(self.syncInterval) != has(self.lag)', EITHER),
    description: 'Its lag is known, and said here; nothing is measured. Exactly one of syncInterval and lag.',
  });

const reports = z.strictObject({}).meta({
  description: 'Its instances report their syncs to Linger: POST /v1/consumers/NAME/reports.',
});

const probe = z
  .strictObject({
    url: z
      .string({ error: `expected ${HTTP_URL_HINT}` })
      .refine((text) => text.length <= LONGEST_URL && HTTP_URL.test(text), {
        error: `expected ${HTTP_URL_HINT}`,
      })
      .meta({
        ...apiRule(`self.matches(${celPattern(HTTP_URL)})`, `expected ${HTTP_URL_HINT}`),
        maxLength: LONGEST_URL,
        description: "An http:// or https:// URL that leads through it to Linger's Service linger-canary.",
      }),
    every: durationFrom('1s')
      .optional()
      .meta({ description: 'How often to measure. A duration such as 30s, from 1s to 168h.' }),
  })
  .meta({ description: 'It is measured from outside: the canary, as it is seen through it.' });

const ONE_WAY = 'expected exactly one of declared, reports and probe';

/** How a consumer's lag is known: exactly one way. Strict, so that a later way is an error here and not ignored. */
const measure = z
  .strictObject({ declared: declared.optional(), reports: reports.optional(), probe: probe.optional() })
  .refine((ways) => Object.values(ways).filter((way) => way !== undefined).length === 1, { error: ONE_WAY })
  .meta({
    ...apiRule('[has(self.declared), has(self.reports), has(self.probe)].exists_one(x, x)', ONE_WAY),
    description: 'How its lag is known: exactly one of declared, reports and probe.',
  });

/** spec of a DiscoveryConsumer: something beyond the EndpointSlices that finds endpoints and sends traffic. */
export const discoveryConsumerSpec = z
  .strictObject({
    appliesTo: z
      .strictObject({
        namespaceSelector: labelSelector
          .optional()
          .meta({ description: 'The namespaces of the pods that it sends traffic to; absent: all.' }),
        serviceSelector: labelSelector.optional().meta({
          description:
            'The Services that it sends traffic to; absent: all, or none where there is a podSelector.',
        }),
        podSelector: labelSelector
          .optional()
          .meta({ description: 'Pods that it finds without any Service; absent: none.' }),
      })
      .optional()
      .meta({ description: 'The pods that it sends traffic to; absent: those of every Service.' }),
    measure,
  })
  .meta({
    description: 'Something that finds endpoints and sends traffic to them, and how its lag is known.',
  });
export type DiscoveryConsumerSpec = z.output<typeof discoveryConsumerSpec>;
