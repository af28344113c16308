import { z } from 'zod';
import { CONSUMER_MODES, PAGE_FORMATS } from './choices.ts';
import {
  apiRule,
  apiRules,
  celPattern,
  conditions,
  durationFrom,
  labelSelector,
  observedGeneration,
  optional,
} from './fields.ts';

// Which URLs Linger calls. One regular expression for files and for the API server, whose own functions for URLs
// (Go's net/url) and ours (WHATWG's) differ at the edges. Whatever matches, `new URL` can read, but for names with
// invalid punycode (`xn--…`).

const HEX = '[0-9A-Fa-f]{1,4}';
const OCTET = '(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])';
const IPV4 = `(${OCTET}\\.){3}${OCTET}`;
const IPV6 = [
  `(${HEX}:){7}${HEX}`,
  `(${HEX}:){1,7}:`,
  ...[1, 2, 3, 4, 5, 6].map((before) => `(${HEX}:){1,${before}}(:${HEX}){1,${7 - before}}`),
  `:(:${HEX}){1,7}`,
  '::',
].join('|');
/** A DNS label of at most 63 characters. Underscores are not in the standard but are common. */
const LABEL = '[A-Za-z0-9_]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?';
/** The last label begins with a letter: otherwise it would be read as an address. */
const NAME = `(${LABEL}\\.)*[A-Za-z]([-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?\\.?`;
const PORT = '([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])';

/**
 * `http://` or `https://`, a name or an address, perhaps a port, a path and a query, in printable ASCII. No user and
 * password, which would be shown wherever the URL is; no fragment, which is never sent.
 */
export const HTTP_URL = new RegExp(`^https?://(${NAME}|${IPV4}|\\[(${IPV6})\\])(:${PORT})?([/?][!"$-~]*)?$`);

const LONGEST_URL = 2048;

const HTTP_URL_HINT =
  'an http:// or https:// URL in ASCII, at most 2048 characters, without credentials and without a #fragment';

const EITHER = 'expected exactly one of syncInterval and lag';

const declared = z
  .strictObject({
    syncInterval: optional(
      durationFrom('1ms'),
      'It polls this often: its lag is uniform from 0 to this. A duration such as 10s, at most 168h.',
    ),
    lag: optional(durationFrom('1ms'), 'It is always this late. A duration such as 40s, at most 168h.'),
  })
  .refine(({ syncInterval, lag }) => (syncInterval === undefined) !== (lag === undefined), { error: EITHER })
  .meta(apiRule('has(self.syncInterval) != has(self.lag)', EITHER));

const URL_ERROR = `expected ${HTTP_URL_HINT}`;

const httpUrl = (description: string) =>
  z
    .string({ error: URL_ERROR })
    .refine((text) => text.length <= LONGEST_URL && HTTP_URL.test(text), { error: URL_ERROR })
    .meta({
      ...apiRule(`self.matches(${celPattern(HTTP_URL)})`, URL_ERROR),
      maxLength: LONGEST_URL,
      description,
    });

const probe = z.strictObject({
  url: httpUrl("An http:// or https:// URL that leads through it to Linger's Service linger-canary."),
  every: optional(durationFrom('1s'), 'How often to measure. A duration such as 30s, from 1s to 168h.'),
});

const PATH = /^\/[!"$-~]*$/;
const PATH_ERROR = 'expected a path such as /clusters, in ASCII, at most 1024 characters';
const LONGEST_PATH = 1024;

const pagePath = z
  .string({ error: PATH_ERROR })
  .refine((text) => text.length <= LONGEST_PATH && PATH.test(text), { error: PATH_ERROR })
  .meta({ ...apiRule(`self.matches(${celPattern(PATH)})`, PATH_ERROR), maxLength: LONGEST_PATH });

/** The pods that serve a page, by their labels. */
const instances = z.strictObject({
  // Required: otherwise a label on a pod of any namespace would make it an instance, which could stall all removals.
  namespaceSelector: labelSelector.describe(
    'The namespaces of its pods; kubernetes.io/metadata.name is the name of one.',
  ),
  podSelector: optional(labelSelector, 'Its pods in them; absent: all.'),
  port: z.int().min(1).max(65_535).describe('The port of each pod that serves the page.'),
  path: optional(pagePath, 'Path and query of the page; absent: where its format is usually found.'),
});

const FILE = /^[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}$/;
const FILE_ERROR = 'expected the name of a file in the folder --inspect-files, without a path';

/** A name and no path: what may be sent to a page is what the operator has put there for that. */
function fileName(description: string) {
  const name = z
    .string({ error: FILE_ERROR })
    .refine((text) => FILE.test(text), { error: FILE_ERROR })
    .meta({ ...apiRule(`self.matches(${celPattern(FILE)})`, FILE_ERROR), maxLength: 128 });
  return optional(name, description);
}

const SERVER_NAME = /^[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?$/;
const SERVER_NAME_ERROR = 'expected a DNS name such as admin.gateway.example';

const INSTANCES_OR_URL = 'expected exactly one of instances and url';
const URL_INTERVAL = 'expected syncInterval with url, and only there: how often its clients poll it';
const TLS_OF_URL = 'expected a url with https:// beside tls';

const inspect = z
  .strictObject({
    instances: optional(instances, 'The pods that are asked, each for its own list of upstreams.'),
    url: optional(
      httpUrl('A page of a discovery service.'),
      'A discovery service that its clients poll, asked instead of them.',
    ),
    format: z
      .enum(PAGE_FORMATS)
      .describe('How the page says that an address is in use; Witness: it is `linger witness` that answers.'),
    every: optional(
      durationFrom('100ms'),
      'While a removal is under way, each instance is asked at most this often; absent: 1s.',
    ),
    syncInterval: optional(
      durationFrom('1ms'),
      'With url: how often its clients poll it. A duration such as 10s.',
    ),
    tls: optional(
      z.strictObject({
        caFile: fileName('The certificates of authorities to trust: a file in the folder --inspect-files.'),
        serverName: optional(
          z
            .string({ error: SERVER_NAME_ERROR })
            .refine((text) => SERVER_NAME.test(text), { error: SERVER_NAME_ERROR })
            .meta({
              ...apiRule(`self.matches(${celPattern(SERVER_NAME)})`, SERVER_NAME_ERROR),
              maxLength: 253,
            }),
          'The name that certificates must be for; absent: the address of the pod, or the host of the url.',
        ),
        insecureSkipVerify: optional(z.boolean(), 'Do not verify certificates.'),
      }),
      'Instances serve the page with TLS; of a url, how it is verified.',
    ),
    tokenFile: fileName('A token to send as `Authorization: Bearer`: a file in the folder --inspect-files.'),
  })
  .refine(({ instances: pods, url }) => (pods === undefined) !== (url === undefined), {
    error: INSTANCES_OR_URL,
  })
  .refine(({ url, syncInterval }) => (url === undefined) === (syncInterval === undefined), {
    error: URL_INTERVAL,
  })
  .refine(({ url, tls }) => url === undefined || tls === undefined || url.startsWith('https:'), {
    error: TLS_OF_URL,
  })
  .meta(
    apiRules(
      ['has(self.instances) != has(self.url)', INSTANCES_OR_URL],
      ['has(self.url) == has(self.syncInterval)', URL_INTERVAL],
      ["!has(self.url) || !has(self.tls) || self.url.startsWith('https:')", TLS_OF_URL],
    ),
  );
export type InspectSpec = z.output<typeof inspect>;

const ONE_WAY = 'expected exactly one of declared, reports, probe and inspect';

/** How a consumer's lag is known: exactly one way. Strict, so that a later way is an error here and not ignored. */
const measure = z
  .strictObject({
    declared: optional(
      declared,
      'Its lag is known, and said here; nothing is measured. Exactly one of syncInterval and lag.',
    ),
    reports: optional(
      z.strictObject({}),
      'Its instances report their syncs to Linger: POST /v1/consumers/NAME/reports.',
    ),
    probe: optional(probe, 'It is measured from outside: the canary, as it is seen through it.'),
    inspect: optional(
      inspect,
      'Its instances are asked whether they still use an address, while a removal is under way.',
    ),
  })
  .refine((ways) => Object.values(ways).filter((way) => way !== undefined).length === 1, { error: ONE_WAY })
  .meta({
    ...apiRule(
      '[has(self.declared), has(self.reports), has(self.probe), has(self.inspect)].exists_one(x, x)',
      ONE_WAY,
    ),
    description: 'How its lag is known: exactly one of declared, reports, probe and inspect.',
  });

/** spec of a DiscoveryConsumer: something beyond the EndpointSlices that finds endpoints and sends traffic. */
export const discoveryConsumerSpec = z
  .strictObject({
    appliesTo: optional(
      z.strictObject({
        namespaceSelector: optional(
          labelSelector,
          'The namespaces of the pods that it sends traffic to; absent: all.',
        ),
        serviceSelector: optional(
          labelSelector,
          'The Services that it sends traffic to; absent: all, or none where there is a podSelector.',
        ),
        podSelector: optional(labelSelector, 'Pods that it finds without any Service; absent: none.'),
      }),
      'The pods that it sends traffic to; absent: those of every Service.',
    ),
    measure,
    mode: optional(
      z.enum(CONSUMER_MODES),
      'Enforce: waits and Hold count on its lag. Observe: it is measured and reported, and changes no wait. Absent: Enforce.',
    ),
  })
  .describe('Something that finds endpoints and sends traffic to them, and how its lag is known.');
export type DiscoveryConsumerSpec = z.output<typeof discoveryConsumerSpec>;

const lagFields = {
  samples: optional(z.int().min(0), 'How often it was timed in the last 7 days.'),
  p50: optional(z.string(), 'Half of the lags are at most this, such as 4.9s.'),
  p99: optional(z.string(), '99 % of the lags are at most this.'),
};

/** status of a DiscoveryConsumer: written by Linger's leader, and read by people. */
export const discoveryConsumerStatus = z
  .object({
    observedGeneration,
    measure: optional(z.string(), 'How its lag is known: declared, reports, probe or inspect.'),
    ...lagFields,
    lastSample: optional(z.string(), 'When it was timed last.', { format: 'date-time' }),
    additions: optional(
      z.object(lagFields),
      'How long it takes until it sends traffic to an endpoint that was added.',
    ),
    services: optional(z.int().min(0), 'How many Services it applies to.'),
    instances: optional(z.int().min(0), 'How many instances report, or are asked.'),
    limits: optional(z.array(z.string()), 'What this way of measuring cannot see, in sentences.'),
    conditions,
  })
  .describe('What Linger has measured. Written by Linger.');
export type ConsumerStatus = z.output<typeof discoveryConsumerStatus>;
