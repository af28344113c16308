import * as z from 'zod';
import { CONSUMER_MODES } from './choices.ts';
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
import { PAGE_FORMAT_NAMES, usualPath } from './page-formats/page-formats.ts';
import { PLACEHOLDER } from './template.ts';

// Which URLs Linger calls. One regular expression for files and for the API server, because the API server's functions for
// URLs (Go's net/url) differ from WHATWG's in edge cases. Whatever matches, `new URL` can read, but for names with invalid
// punycode (`xn--…`).

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
 * password, because they would appear wherever the URL does; no fragment, because it is never sent.
 */
const NAME_OR_ADDRESS = `(${NAME}|${IPV4}|\\[(${IPV6})\\])`;
const HOST = `^https?://${NAME_OR_ADDRESS}(:${PORT})?`;
export const HTTP_URL = new RegExp(`${HOST}([/?][!"$-~]*)?$`);
/** {@link HTTP_URL}, with placeholders behind the host and nowhere else. */
const URL_TEMPLATE = new RegExp(`${HOST}([/?]([!"$-z|~]|${PLACEHOLDER})*)?$`);

const LONGEST_URL = 2048;

const HTTP_URL_HINT =
  'an http:// or https:// URL in ASCII, at most 2048 characters, without credentials and without a #fragment';

const EITHER = 'expected exactly one of syncInterval and lag';

const declared = z
  .strictObject({
    syncInterval: optional(
      durationFrom('1ms'),
      'It polls this often: its lag is uniform from 0 to this. A duration such as 10s, at most 168h.',
      { reference: 'Its poll interval: lags are uniform from 0 to this.' },
    ),
    lag: optional(durationFrom('1ms'), 'It is always this late. A duration such as 40s, at most 168h.', {
      reference: 'It is always this late.',
    }),
  })
  .refine(({ syncInterval, lag }) => (syncInterval === undefined) !== (lag === undefined), { error: EITHER })
  .meta(apiRule('has(self.syncInterval) != has(self.lag)', EITHER));

const URL_ERROR = `expected ${HTTP_URL_HINT}`;

/** Text that matches a pattern, for files and for the API server. */
const matching = (pattern: RegExp, longest: number, error: string) =>
  z
    .string({ error })
    .refine((text) => text.length <= longest && pattern.test(text), { error })
    .meta({ ...apiRule(`self.matches(${celPattern(pattern)})`, error), maxLength: longest });

const PORT_VALUES = '1 to 65535';
const URL_VALUES = 'an `http://` or `https://` URL';

const httpUrl = (description: string, reference = description) =>
  matching(HTTP_URL, LONGEST_URL, URL_ERROR).meta({ description, reference, values: URL_VALUES });

const probe = z.strictObject({
  url: httpUrl(
    "An http:// or https:// URL that leads through it to Linger's Service linger-canary.",
    "A URL that leads through it to Linger's canary, without credentials.",
  ),
  every: optional(durationFrom('1s'), 'How often to measure. A duration such as 30s, from 1s to 168h.', {
    reference: 'How often to measure.',
  }),
});

const PATH = /^\/[!"$-~]*$/;
const PATH_ERROR = 'expected a path such as /clusters, in ASCII, at most 1024 characters';
const LONGEST_PATH = 1024;

const pagePath = matching(PATH, LONGEST_PATH, PATH_ERROR).meta({ values: 'a path, optionally with a query' });

const instances = z.strictObject({
  // Required, because otherwise a label on a pod of any namespace would make it an instance, which could stall all removals.
  namespaceSelector: labelSelector.meta({
    description: 'The namespaces of its pods; kubernetes.io/metadata.name is the name of one.',
    reference: 'The namespaces of its pods. `kubernetes.io/metadata.name` names one.',
  }),
  podSelector: optional(labelSelector, 'Its pods in them; absent: all.', {
    reference: 'Its pods in them; absent: all. At most 200.',
  }),
  port: z
    .int()
    .min(1)
    .max(65_535)
    .meta({ values: PORT_VALUES })
    .describe('The port of each pod that serves the page.'),
  path: optional(pagePath, 'Path and query of the page; absent: where its format is usually found.', {
    reference: `Absent: ${PAGE_FORMAT_NAMES.map((format) => `\`${usualPath(format)}\` (${format})`).join(', ')}.`,
  }),
});

const FILE = /^[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}$/;
const FILE_ERROR = 'expected the name of a file in the folder --inspect-files, without a path';

const FILE_VALUES = 'the name of a file in `--inspect-files`';

/** A name without a path, because only files that the operator has put into that folder may be sent to a page. */
function fileName(description: string, reference = description, values = FILE_VALUES) {
  return optional(matching(FILE, 128, FILE_ERROR), description, { reference, values });
}

const SERVER_NAME = /^[A-Za-z0-9]([-A-Za-z0-9.]{0,251}[A-Za-z0-9])?$/;
const SERVER_NAME_ERROR = 'expected a DNS name such as admin.gateway.example';

const tls = z.strictObject({
  caFile: fileName(
    'The certificates of authorities to trust: a file in the folder --inspect-files.',
    "Authorities to trust instead of Node.js' own.",
  ),
  serverName: optional(
    matching(SERVER_NAME, 253, SERVER_NAME_ERROR).meta({ values: 'a DNS name' }),
    'The name that certificates must be for; absent: the address of the pod, or the host of the url.',
    {
      reference: 'The name that certificates must be for; absent: the address or host.',
    },
  ),
  insecureSkipVerify: optional(z.boolean(), 'Do not verify certificates.'),
});

const INSTANCES_OR_URL = 'expected exactly one of instances and url';
const URL_INTERVAL = 'expected syncInterval with url, and only there: how often its clients poll it';
const TLS_OF_URL = 'expected a url with https:// beside tls';

const inspect = z
  .strictObject({
    instances: optional(instances, 'The pods that are asked, each for its own list of upstreams.'),
    url: optional(
      httpUrl('A page of a discovery service.'),
      'A discovery service that its clients poll, asked instead of them.',
      {
        reference:
          'Instead of instances: the page of a discovery service that clients poll, at every address of its host.',
      },
    ),
    format: z.enum(PAGE_FORMAT_NAMES).meta({
      description: 'How the page shows that an address is in use; Witness: `linger witness` answers.',
      reference:
        '[How the page says](../gateways.md#a-gateway-that-is-asked-what-it-still-uses) that an address is in use.',
    }),
    every: optional(
      durationFrom('100ms'),
      'While a removal is under way, each instance is asked at most this often; absent: 1s.',
      {
        reference: 'How often at most; absent: `1s`.',
      },
    ),
    syncInterval: optional(
      durationFrom('1ms'),
      'With url: how often its clients poll it. A duration such as 10s.',
      { reference: 'With `url`: how often clients poll it; it is added.' },
    ),
    tls: optional(tls, 'Instances serve the page with TLS; with url: how it is verified.'),
    tokenFile: fileName(
      'A token to send as `Authorization: Bearer`: a file in the folder --inspect-files.',
      'A token to send as `Authorization: Bearer`. Reread for each page.',
    ),
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

const COPIES =
  /^([-a-z0-9]|\{namespace\}|\{service\})+\/([-a-z0-9.]|\{namespace\}|\{service\})*\{service\}[-a-z0-9.]*$/;
const COPIES_ERROR =
  'expected NAMESPACE/NAME, in which {namespace} and {service} stand for those of the Service here, and the name has {service}';

const endpoints = z.strictObject({
  kubeconfigFile: matching(FILE, 128, FILE_ERROR).meta({
    values: FILE_VALUES,
    description:
      'The kubeconfig of the other cluster: a file in the folder --inspect-files, where a Secret is mounted.',
    reference:
      'The kubeconfig of the [other cluster](../gateways.md#copies-in-another-cluster), without `exec`, `auth-provider` and names of files.',
  }),
  copies: optional(
    matching(COPIES, 512, COPIES_ERROR).meta({
      values:
        '`NAMESPACE/NAME` with the placeholders `{namespace}` and `{service}`; the name has `{service}`',
    }),
    'The Service there that has the copy, such as access/{namespace}-{service}; absent: the same namespace and name.',
    { reference: 'The Service there that has the copy; absent: the same namespace and name.' },
  ),
  syncInterval: optional(
    durationFrom('1ms'),
    'How long after the copies their readers may follow; absent: 1s, as long as kube-proxy gathers changes.',
    {
      reference: 'How far readers of the copies may be behind; absent: `1s`.',
    },
  ),
});
export type EndpointsSpec = z.output<typeof endpoints>;

const XDS_ADDRESS = new RegExp(`^${NAME_OR_ADDRESS}:${PORT}$`);
const XDS_ADDRESS_ERROR = 'expected a name or an address with a port, such as istiod.istio-system.svc:15012';
const TOKEN_IN_CLEAR = 'expected tls beside tokenFile: a token is not sent in the clear';
const TOKEN_TO_ANYONE =
  'expected no insecureSkipVerify beside tokenFile: the token would go to whoever answers; name the authority in caFile (istio-ca-root-cert has it), and the name of the certificate in serverName';

const xds = z
  .strictObject({
    address: matching(XDS_ADDRESS, 320, XDS_ADDRESS_ERROR).meta({
      values: '`HOST:PORT`, at most 320 characters',
      description:
        'Where istiod listens, such as istiod.istio-system.svc:15012; each address of a name is followed.',
      reference:
        'Where [istiod](../gateways.md#istio) listens; each address of a name is followed, at most 20.',
    }),
    tls: optional(tls, 'Its port expects TLS, as 15012 does; absent: plaintext, as on 15010.'),
    tokenFile: fileName(
      'A token of a ServiceAccount with the audience istio-ca: a file in the folder --inspect-files.',
      'A token with the audience `istio-ca`. Reread for each stream.',
      `${FILE_VALUES}; only with \`tls\``,
    ),
    clusterDomain: optional(
      matching(SERVER_NAME, 253, SERVER_NAME_ERROR).meta({ values: 'a DNS name' }),
      'The domain of the Services; absent: cluster.local.',
      { reference: 'The domain of the Services; absent: `cluster.local`.' },
    ),
    syncInterval: optional(
      durationFrom('1ms'),
      'How long after a push of istiod the proxies may apply it; absent: 250ms.',
      {
        reference: 'How long proxies may take to apply a push; absent: `250ms`.',
      },
    ),
  })
  .refine(({ tls: trust, tokenFile }) => tokenFile === undefined || trust !== undefined, {
    error: TOKEN_IN_CLEAR,
  })
  .refine(({ tls: trust, tokenFile }) => tokenFile === undefined || trust?.insecureSkipVerify !== true, {
    error: TOKEN_TO_ANYONE,
  })
  .meta(
    apiRules(
      ['!has(self.tokenFile) || has(self.tls)', TOKEN_IN_CLEAR],
      [
        '!has(self.tokenFile) || !has(self.tls) || !has(self.tls.insecureSkipVerify) || !self.tls.insecureSkipVerify',
        TOKEN_TO_ANYONE,
      ],
    ),
  );
export type XdsSpec = z.output<typeof xds>;

const ONE_WAY = 'expected exactly one of declared, reports, probe, inspect, endpoints and xds';

/**
 * How a consumer's lag is determined: in exactly one way. Strict, so that a way added by a later version is an error here
 * instead of being ignored.
 */
const measure = z
  .strictObject({
    declared: optional(
      declared,
      'Its lag is known and declared here; nothing is measured. Exactly one of syncInterval and lag.',
    ),
    reports: optional(
      z.strictObject({}).meta({ values: '`{}`' }),
      'Its instances report their syncs to Linger: POST /v1/consumers/NAME/reports.',
      { reference: 'Its instances report their syncs.' },
    ),
    probe: optional(probe, 'It is measured from outside: the canary, as seen through it.'),
    inspect: optional(
      inspect,
      'Its instances are asked whether they still use an address, while a removal is under way.',
    ),
    endpoints: optional(
      endpoints,
      'It reads copies of the endpoints in another cluster: an address that is gone from the copy has been dropped.',
    ),
    xds: optional(
      xds,
      "Its proxies follow istiod, and so does Linger: an address that istiod's pushes no longer contain has been dropped.",
    ),
  })
  .refine((ways) => Object.values(ways).filter((way) => way !== undefined).length === 1, { error: ONE_WAY })
  .meta({
    ...apiRule(
      '[has(self.declared), has(self.reports), has(self.probe), has(self.inspect), has(self.endpoints), has(self.xds)].exists_one(x, x)',
      ONE_WAY,
    ),
    description: 'How its lag is known: exactly one of declared, reports, probe, inspect, endpoints and xds.',
  });

const TEMPLATE_HINT = 'with no placeholders but {address}, {port}, {pod}, {namespace} and {label:KEY}';
const URL_TEMPLATE_ERROR = `expected ${HTTP_URL_HINT}, ${TEMPLATE_HINT}, and none in the host`;

const HEADER_NAME = /^[A-Za-z0-9][-A-Za-z0-9_.]{0,63}$/;
/** Headers that determine where a request goes and where it ends, which the author of a consumer must not control. */
const OWN_HEADERS = [
  ...['host', 'connection', 'keep-alive', 'content-length', 'transfer-encoding', 'te', 'trailer', 'upgrade'],
  ...['expect', 'proxy-connection', 'proxy-authorization'],
];
const HEADER_NAME_ERROR = `expected the name of a header such as X-Token, other than ${OWN_HEADERS.join(', ')}`;
const HEADER_VALUE = new RegExp(`^([ -z|~]|${PLACEHOLDER})*$`);
const HEADER_VALUE_ERROR = `expected printable ASCII, at most 1024 characters, ${TEMPLATE_HINT}`;
const VALUE_OR_FILE = 'expected exactly one of value and valueFile';

const headers = z
  .array(
    z
      .strictObject({
        name: z
          .string({ error: HEADER_NAME_ERROR })
          .refine((name) => HEADER_NAME.test(name) && !OWN_HEADERS.includes(name.toLowerCase()), {
            error: HEADER_NAME_ERROR,
          })
          .meta({
            ...apiRule(
              `self.matches(${celPattern(HEADER_NAME)}) && !(self.lowerAscii() in ${JSON.stringify(OWN_HEADERS)})`,
              HEADER_NAME_ERROR,
            ),
            maxLength: 64,
            description: 'Its name.',
          }),
        value: optional(matching(HEADER_VALUE, 1024, HEADER_VALUE_ERROR), 'Its value, a template.'),
        valueFile: fileName(
          'The whole value is a secret: a file in the folder --inspect-files, where a Secret is mounted.',
        ),
      })
      .refine(({ value, valueFile }) => (value === undefined) !== (valueFile === undefined), {
        error: VALUE_OR_FILE,
      })
      .meta(apiRule('has(self.value) != has(self.valueFile)', VALUE_OR_FILE)),
  )
  .max(16)
  .meta({ values: 'at most 16 of `{name, value}` or `{name, valueFile}`' });

const BODY = new RegExp(`^([^{]|${PLACEHOLDER}|\\{([^a-z]|$))*$`);
const BODY_ERROR = `expected text of at most 4096 characters, ${TEMPLATE_HINT}`;
const EUREKA_NAME = new RegExp(`^([A-Za-z0-9]|${PLACEHOLDER})([-A-Za-z0-9_.:]|${PLACEHOLDER})*$`);
const EUREKA_NAME_ERROR = `expected a name such as {pod}:orders:8080, ${TEMPLATE_HINT}`;
const EUREKA_URL = new RegExp(`${HOST}(/[!"$->@-z|~]*)?$`);
const EUREKA_URL_ERROR =
  'expected the http:// or https:// URL that clients have as serviceUrl, without a query';

/** Matches what leads out of a path, since the parts that name the pod's address or namespace would then have no effect. */
const CLIMBS = /^[^?]*(\\|%(2[eEfF]|5[cC])|\/\.{1,2}([/?]|$))/;
const CLIMBS_ERROR =
  'expected a path without . and .. and without an encoded dot, slash or backslash, which lead elsewhere than it says';
const climbFree = (pattern: RegExp, error: string) =>
  matching(pattern, LONGEST_URL, error)
    .refine((url) => !CLIMBS.test(url), { error: CLIMBS_ERROR })
    .meta(
      apiRules(
        [`self.matches(${celPattern(pattern)})`, error],
        [`!self.matches(${celPattern(CLIMBS)})`, CLIMBS_ERROR],
      ),
    );

const NAMES_POD = 'expected {address} or {pod} in the url or the body, or every pod would take out the same';
const NAMES_INSTANCE = 'expected {address} or {pod} in instance, or every pod would take out the same one';
const HTTP_OR_EUREKA = 'expected exactly one of http and eureka';
type Placeholder = '{address}' | '{pod}' | '{namespace}';
const names = (texts: readonly string[], ...wanted: readonly Placeholder[]) =>
  texts.some((text) => wanted.some((each) => text.includes(each)));
/** {@link names} as a CEL expression. */
const celNames = (texts: readonly string[], ...wanted: readonly Placeholder[]) =>
  `[${texts.join(', ')}].exists(x, ${wanted.map((each) => `x.contains('${each}')`).join(' || ')})`;
const celHttp = (http: string) => [`${http}.url`, `has(${http}.body) ? ${http}.body : ''`];

const more = {
  headers: optional(headers, 'Headers to send, such as Authorization.', {
    reference:
      '`value` is a template; `valueFile` a file in `--inspect-files` with the whole value, a secret. Not those that decide where a request goes or ends.',
  }),
  tls: optional(tls, 'How a registry with https:// is verified.'),
};

const deregister = z
  .strictObject({
    http: optional(
      z
        .strictObject({
          method: z.enum(['DELETE', 'PATCH', 'POST', 'PUT']).meta({
            description: 'The method.',
            reference: 'The method of the [request](#deregistration) that takes a pod out of a registry.',
          }),
          url: climbFree(URL_TEMPLATE, URL_TEMPLATE_ERROR).meta({
            values: URL_VALUES,
            description: 'The URL to send it to; a template after the host.',
            reference: 'Where to. Behind the host it is a template.',
          }),
          ...more,
          body: optional(
            matching(BODY, 4096, BODY_ERROR).meta({ values: 'text, at most 4,096 characters' }),
            'The body, a template; application/json unless a header says otherwise.',
            { reference: 'A template, `application/json` by default.' },
          ),
        })
        .refine(({ url, body = '' }) => names([url, body], '{address}', '{pod}'), { error: NAMES_POD })
        .meta(apiRule(celNames(celHttp('self'), '{address}', '{pod}'), NAMES_POD)),
      'A request to the registry. It may be sent more than once. 2xx: the pod has been taken out; 404 and 410: it was not registered.',
    ),
    eureka: optional(
      z
        .strictObject({
          url: climbFree(EUREKA_URL, EUREKA_URL_ERROR).meta({
            values: `${URL_VALUES} without a query`,
            description: 'The URL that clients have as serviceUrl, such as http://eureka:8761/eureka.',
            reference:
              'What clients have as `serviceUrl`: `PUT URL/apps/APP/INSTANCE/status?value=OUT_OF_SERVICE`.',
          }),
          app: matching(EUREKA_NAME, 512, EUREKA_NAME_ERROR).meta({
            values: 'letters, digits, `-`, `_`, `.`, `:` and placeholders',
            description: 'The name of the application, such as ORDERS or {label:app}.',
            reference: 'The name of the application: `ORDERS`, or `{label:app}`.',
          }),
          instance: matching(EUREKA_NAME, 512, EUREKA_NAME_ERROR).meta({
            values: 'letters, digits, `-`, `_`, `.`, `:` and placeholders',
            description: "The instance's ID, such as {pod}:orders:8080.",
            reference: "The instance's ID: `{pod}:orders:8080`.",
          }),
          ...more,
        })
        .refine(({ instance }) => names([instance], '{address}', '{pod}'), { error: NAMES_INSTANCE })
        .meta(apiRule(celNames(['self.instance'], '{address}', '{pod}'), NAMES_INSTANCE)),
      'Eureka: sets OUT_OF_SERVICE, which lasts whatever the instance reports in its heartbeats.',
    ),
    port: optional(
      z.int().min(1).max(65_535).meta({ values: PORT_VALUES }),
      'What {port} stands for; absent: the first port that a container of the pod declares.',
      { reference: 'What `{port}` is; absent: the first declared port.' },
    ),
  })
  .refine(({ http, eureka }) => (http === undefined) !== (eureka === undefined), { error: HTTP_OR_EUREKA })
  .meta(apiRule('has(self.http) != has(self.eureka)', HTTP_OR_EUREKA));
export type DeregisterSpec = z.output<typeof deregister>;

type DeregisterRequest = NonNullable<DeregisterSpec['http']>;

/** The request, with its templates not filled yet. For Eureka, the request that its short form stands for. */
export function deregisterRequest({ http, eureka }: DeregisterSpec): DeregisterRequest {
  if (http !== undefined) return http;
  const { url = '', app, instance, ...rest } = eureka ?? {};
  const path = `/apps/${app}/${instance}/status?value=OUT_OF_SERVICE`;
  return { ...rest, method: 'PUT', url: `${url.replace(/(?<!\/)\/+$/, '')}${path}` };
}

const MEASURES_REGISTRY =
  'expected measure.declared or measure.inspect beside deregister: nothing else follows what pods register';
const LISTS_WHO_IS_OUT =
  'expected measure.declared beside deregister.eureka, or a page outside its url: Eureka goes on listing who is OUT_OF_SERVICE, so pods would be held to the maximum';
const ONE_NAMESPACE =
  'expected {address} or {namespace} in the templates of deregister, or appliesTo.namespaceSelector: pods of other namespaces may have the same name';

/**
 * Whether the request contains the pod's address or namespace, without which it could mean a pod of the same name elsewhere.
 */
function namesNamespace(spec: DeregisterSpec): boolean {
  const { url, body = '' } = deregisterRequest(spec);
  return names([url, body], '{address}', '{namespace}');
}

const celNamesNamespace = [
  ['http', celHttp('self.deregister.http')] as const,
  ['eureka', ['self.deregister.eureka.app', 'self.deregister.eureka.instance']] as const,
].map(([way, texts]) => `(has(self.deregister.${way}) && ${celNames(texts, '{address}', '{namespace}')})`);

/** Whether the inspected page belongs to the same Eureka, whose pages all list instances whatever their status. */
function asksEureka({ eureka }: DeregisterSpec, { inspect: page }: z.output<typeof measure>): boolean {
  if (eureka === undefined || page?.url === undefined) return false;
  return `${page.url}/`.toLowerCase().startsWith(`${eureka.url.toLowerCase().replace(/\/$/, '')}/`);
}

const EUREKA_URL_IN_CEL = 'self.deregister.eureka.url';
const celAsksEureka = [
  'has(self.deregister.eureka) && has(self.measure.inspect) && has(self.measure.inspect.url)',
  `(self.measure.inspect.url + '/').lowerAscii().startsWith(${EUREKA_URL_IN_CEL}.lowerAscii() + (${EUREKA_URL_IN_CEL}.endsWith('/') ? '' : '/'))`,
].join(' && ');

/** The spec of a DiscoveryConsumer: something that discovers endpoints and sends traffic to them. */
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
          {
            reference:
              'The Services that it sends traffic to, by their labels; absent: all, or none with a `podSelector`.',
          },
        ),
        podSelector: optional(labelSelector, 'Pods that it finds without any Service; absent: none.', {
          reference:
            'Pods that it finds without a Service, by its own discovery; absent: none. They count as [serving](policies.md#serving).',
        }),
      }),
      'The pods that it sends traffic to; absent: those of every Service.',
    ),
    measure,
    mode: optional(
      z.enum(CONSUMER_MODES),
      'Enforce: waits and Hold take its lag into account. Observe: it is measured and reported, and changes no wait. Absent: Enforce.',
      {
        reference: '`Observe`: it is measured and reported, and changes no decision. Absent: `Enforce`.',
      },
    ),
    deregister: optional(
      deregister,
      'Its registry, in which pods register themselves: how Linger takes one out when its termination begins.',
    ),
  })
  .refine(({ deregister: out, measure: by }) => out === undefined || Boolean(by.declared ?? by.inspect), {
    error: MEASURES_REGISTRY,
  })
  .refine(({ deregister: out, measure: by }) => out === undefined || !asksEureka(out, by), {
    error: LISTS_WHO_IS_OUT,
  })
  .refine(
    ({ deregister: out, appliesTo }) =>
      out === undefined || appliesTo?.namespaceSelector !== undefined || namesNamespace(out),
    { error: ONE_NAMESPACE },
  )
  .meta(
    apiRules(
      ['!has(self.deregister) || has(self.measure.declared) || has(self.measure.inspect)', MEASURES_REGISTRY],
      [`!has(self.deregister) || !(${celAsksEureka})`, LISTS_WHO_IS_OUT],
      [
        `!has(self.deregister) || (has(self.appliesTo) && has(self.appliesTo.namespaceSelector)) || ${celNamesNamespace.join(' || ')}`,
        ONE_NAMESPACE,
      ],
    ),
  )
  .describe('Something that finds endpoints and sends traffic to them, and how its lag is known.');
export type DiscoveryConsumerSpec = z.output<typeof discoveryConsumerSpec>;

const lagFields = {
  samples: optional(z.int().min(0), 'How often it was timed in the last 7 days.'),
  p50: optional(z.string(), 'Half of the lags are at most this, such as 4.9s.', {
    reference: 'Half of the lags are at most this, such as `4.9s`.',
  }),
  p99: optional(z.string(), '99 % of the lags are at most this.'),
};

/** status of a DiscoveryConsumer: written by Linger's leader, and read by people. */
export const discoveryConsumerStatus = z
  .object({
    observedGeneration,
    measure: optional(
      z.string(),
      'How its lag is known: declared, reports, probe, inspect, endpoints or xds.',
      {
        reference: 'How its lag is known: `declared`, `reports`, `probe`, `inspect`, `endpoints` or `xds`.',
      },
    ),
    ...lagFields,
    lastSample: optional(z.string(), 'When it was last timed.', { format: 'date-time' }),
    additions: optional(
      z.object(lagFields),
      'How long it takes until it sends traffic to an endpoint that was added.',
    ),
    services: optional(
      z.int().min(0),
      'How many Services it applies to; absent where it finds pods without Services.',
    ),
    instances: optional(z.int().min(0), 'How many instances report, or are asked.'),
    limits: optional(z.array(z.string()), 'What this way of measuring cannot see, in sentences.'),
    conditions: conditions.meta({
      ...conditions.meta(),
      reference: 'One, [`Measured`](#conditions); conditions of others stay.',
    }),
  })
  .describe('What Linger has measured. Written by Linger.');
export type ConsumerStatus = z.output<typeof discoveryConsumerStatus>;
