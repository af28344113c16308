import { PAGE_FORMAT_NAMES } from '../../../src/core/api/index.ts';
import type { JsonObject } from '../decision/sample-pod.ts';
import type { SpecCase } from './spec-case.ts';

const DECLARED = { declared: { syncInterval: '10s' } };
const measured = (measure: unknown): JsonObject => ({ measure });
const applying = (appliesTo: unknown): JsonObject => ({ appliesTo, measure: DECLARED });
const selecting = (podSelector: unknown): JsonObject => applying({ podSelector });
const labelled = (matchLabels: unknown): JsonObject => selecting({ matchLabels });
const required = (expression: unknown): JsonObject => selecting({ matchExpressions: [expression] });
const interval = (syncInterval: unknown): JsonObject => measured({ declared: { syncInterval } });
const probing = (url: unknown): JsonObject => measured({ probe: { url } });
const inspecting = (inspect: JsonObject): JsonObject => measured({ inspect });
const copying = (copies: string): JsonObject =>
  measured({ endpoints: { kubeconfigFile: 'access.kubeconfig', copies } });
const following = (xds: JsonObject): JsonObject => measured({ xds });
const ISTIOD = { address: 'istiod.istio-system.svc:15012' };
const INSTANCES = { namespaceSelector: {}, port: 9901 };
const ENVOY = { instances: INSTANCES, format: 'Envoy' };
const EUREKA = { url: 'https://eureka.example/apps', format: 'Text', syncInterval: '30s' };
const HTTP = { method: 'PUT', url: 'http://registry:8080/v1/{namespace}/{pod}?at={address}:{port}' };
const SERVER = { url: 'http://eureka:8761/eureka', app: '{label:app}', instance: '{address}:orders:8080' };
const asking = (url: string, eureka: JsonObject = SERVER): JsonObject =>
  deregistering({ eureka }, { measure: { inspect: { ...EUREKA, url } } });
const deregistering = (deregister: unknown, more: JsonObject = {}): JsonObject => ({
  measure: DECLARED,
  deregister,
  ...more,
});
const putting = (more: JsonObject): JsonObject => deregistering({ http: { ...HTTP, ...more } });
const sending = (header: JsonObject): JsonObject => putting({ headers: [header] });
const labels = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`label-${index}`, 'x']));

const DURATION = /expected a duration such as 30s or 1m30s, from 1ms to 168h/;
const EVERY = /expected a duration such as 30s or 1m30s, from 1s to 168h/;
const URL_HINT = /expected an http:\/\/ or https:\/\/ URL/;
const ONE_WAY = /expected exactly one of declared, reports, probe, inspect, endpoints and xds/;
const XDS_ADDRESS = /expected a name or an address with a port, such as istiod/;
const TOKEN_IN_CLEAR = /expected tls beside tokenFile/;
const TOKEN_TO_ANYONE = /expected no insecureSkipVerify beside tokenFile.*caFile/;
const COPIES = /expected NAMESPACE\/NAME, in which/;
const EITHER = /expected exactly one of syncInterval and lag/;
const INSTANCES_OR_URL = /expected exactly one of instances and url/;
const URL_INTERVAL = /expected syncInterval with url, and only there/;
const TLS_OF_URL = /expected a url with https:\/\/ beside tls/;
const ASKED_EVERY = /expected a duration such as 30s or 1m30s, from 100ms to 168h/;
const PATH = /expected a path such as \/clusters/;
const FILE = /expected the name of a file in the folder --inspect-files/;
const SERVER_NAME = /expected a DNS name/;
const URL_TEMPLATE = /with no placeholders but .*, and none in the host/;
const TEMPLATE = /with no placeholders but/;
const CLIMBS = /which lead elsewhere than it says/;
const EUREKA_URL = /expected the http:\/\/ or https:\/\/ URL that clients have as serviceUrl/;
const HEADER = /expected the name of a header/;
const VALUE_OR_FILE = /expected exactly one of value and valueFile/;
const HTTP_OR_EUREKA = /expected exactly one of http and eureka/;
const NAMES_POD = /expected \{address\} or \{pod\} in/;
const MEASURES_REGISTRY = /expected measure.declared or measure.inspect beside deregister/;
const LISTS_WHO_IS_OUT = /expected measure.declared beside deregister.eureka, or a page outside its url/;
const ONE_NAMESPACE = /expected \{address\} or \{namespace\} in the templates of deregister/;
const KEY = /expected a label key/;
const VALUE = /expected a label value/;
const VALUES = /expected values with In and NotIn/;
const UNKNOWN_FIELD = /unknown field/;
/** Any message: the API server and the parser of files word errors of types and sizes differently. */
const ANYHOW = /./;

const taken = (cases: Readonly<Record<string, JsonObject>>): SpecCase[] =>
  Object.entries(cases).map(([name, spec]) => ({ name, spec }));
const refused = (refusal: RegExp, cases: Readonly<Record<string, JsonObject>>): SpecCase[] =>
  Object.entries(cases).map(([name, spec]) => ({ name, spec, refused: refusal }));

/** What every validation of a DiscoveryConsumer must say to these. */
export const CONSUMER_SPECS: readonly SpecCase[] = [
  ...taken({
    'a sync interval': measured(DECLARED),
    'a lag': measured({ declared: { lag: '40s' } }),
    reports: measured({ reports: {} }),
    'one that is only observed': { measure: DECLARED, mode: 'Observe' },
    'one that is enforced, and says so': { measure: DECLARED, mode: 'Enforce' },
    'a probe': probing('https://edge.example/linger'),
    'a probe at a pace of its own': measured({ probe: { url: 'http://edge', every: '1s' } }),
    'pages of instances': inspecting(ENVOY),
    'pages of instances, with all there is': inspecting({
      instances: { ...INSTANCES, podSelector: { matchLabels: { app: 'edge' } }, path: '/a?b=%20;csv' },
      format: 'HAProxy',
      every: '100ms',
      tls: { caFile: 'edge-ca.crt', serverName: 'admin.edge.example', insecureSkipVerify: false },
      tokenFile: 'token_1',
    }),
    'the page of a discovery service': inspecting(EUREKA),
    'one that is verified by its own authority': inspecting({ ...EUREKA, tls: { caFile: 'ca.crt' } }),
    ...Object.fromEntries(
      PAGE_FORMAT_NAMES.map((format) => [
        `the format ${format}`,
        inspecting({ instances: INSTANCES, format }),
      ]),
    ),
    'copies in another cluster': measured({ endpoints: { kubeconfigFile: 'access.kubeconfig' } }),
    'copies that are read late': measured({
      endpoints: { kubeconfigFile: 'access.kubeconfig', syncInterval: '30s' },
    }),
    'istiod in the clear': following({ address: '10.0.0.7:15010' }),
    'istiod at an IPv6 address': following({ address: '[fd00::7]:15010' }),
    'istiod with all there is': following({
      ...ISTIOD,
      tls: { caFile: 'root-cert.pem', serverName: 'istiod.istio-system.svc', insecureSkipVerify: false },
      tokenFile: 'istio-token',
      clusterDomain: 'mesh.example',
      syncInterval: '1s',
    }),
    'copies of other names': copying('access/{namespace}-{service}'),
    'a request that takes a pod out': deregistering({ http: HTTP }),
    'one with all there is': deregistering(
      {
        http: {
          method: 'DELETE',
          url: 'https://[fd00::1]/{label:app.kubernetes.io/name}/{pod}',
          headers: [
            { name: 'Authorization', valueFile: 'registry-token' },
            { name: 'x-pod', value: '{pod} of {namespace}; q="1"' },
          ],
          tls: { caFile: 'ca.crt', serverName: 'registry.example', insecureSkipVerify: false },
          body: '{"ip": "{address}", "more": {"port": {port}}, "none": {}, "end": {',
        },
        port: 8080,
      },
      { appliesTo: { namespaceSelector: {} } },
    ),
    'an address in the body alone': putting({ url: 'http://a', body: '{address}' }),
    'out of the page of a discovery service': deregistering({ http: HTTP }, { measure: { inspect: EUREKA } }),
    'out of service in Eureka': deregistering({ eureka: SERVER }),
    'out of service in Eureka, and asked of another page of that host': asking('http://eureka:8761/up'),
    'out of service in Eureka, and asked where a name only begins like it': asking('http://eureka.up/', {
      ...SERVER,
      url: 'http://eureka',
    }),
    'out of service in Eureka, and asked of the pods of a gateway': deregistering(
      { eureka: SERVER },
      { measure: { inspect: ENVOY } },
    ),
    'an instance of Eureka by the name of its pod': deregistering(
      { eureka: { ...SERVER, instance: '{pod}:orders:{port}' } },
      { appliesTo: { namespaceSelector: { matchLabels: { team: 'a' } } } },
    ),
    'no selectors': applying({}),
    'empty selectors': applying({ namespaceSelector: {}, serviceSelector: {}, podSelector: {} }),
    'labels of all shapes': labelled({ a: '', 'app.kubernetes.io/name': 'web-1', 'x/y': 'A.b_c' }),
    'as many labels as there may be': labelled(labels(32)),
    'a label key with the longest prefix': labelled({ [`${'a'.repeat(253)}/b`]: 'c' }),
    'no labels': selecting({ matchLabels: {}, matchExpressions: [] }),
    In: required({ key: 'a', operator: 'In', values: ['b', ''] }),
    NotIn: required({ key: 'a', operator: 'NotIn', values: ['b'] }),
    Exists: required({ key: 'a', operator: 'Exists' }),
    'Exists with no values': required({ key: 'a', operator: 'Exists', values: [] }),
    DoesNotExist: required({ key: 'a', operator: 'DoesNotExist' }),
    ...Object.fromEntries(
      ['1ms', '0.001s', '.5s', '1.s', '1000us', '1000µs', '1000μs', '1000000ns', '1h30m', '168h', '1m1m'].map(
        (text) => [`the duration ${text}`, interval(text)],
      ),
    ),
    ...Object.fromEntries(
      [
        'http://a',
        'http://edge.example:8080',
        'https://edge.example./?x=1&y=%20',
        'http://10.0.0.1/path/to/it',
        'http://[::1]:80/',
        'http://[2001:db8::1]',
        'http://under_score.example',
        'http://xn--bcher-kva.example/',
        'http://1.example',
        'http://a:65535',
        'http://a/@:"<>|',
        `http://a/${'x'.repeat(2039)}`,
      ].map((url) => [`the URL ${url.slice(0, 40)}`, probing(url)]),
    ),
  }),
  ...refused(ANYHOW, { 'a mode of policies': { measure: DECLARED, mode: 'Audit' } }),
  ...refused(ONE_WAY, {
    'no way of measuring': measured({}),
    'two ways': measured({ ...DECLARED, reports: {} }),
    'three ways': measured({ ...DECLARED, reports: {}, probe: { url: 'http://a' } }),
    'inspect and another': measured({ reports: {}, inspect: ENVOY }),
  }),
  ...refused(COPIES, {
    'copies without a namespace': copying('{service}'),
    'copies that are all one': copying('access/web'),
    'copies of unknown placeholders': copying('access/{pod}-{service}'),
  }),
  ...refused(
    XDS_ADDRESS,
    Object.fromEntries(
      ['istiod', 'http://istiod:15012', 'istiod:0', 'istiod:15012/x', 'u:p@istiod:1', '10.0.0.256:1', ''].map(
        (address) => [`istiod at ${JSON.stringify(address)}`, following({ address })],
      ),
    ),
  ),
  ...refused(TOKEN_IN_CLEAR, { 'a token in the clear': following({ ...ISTIOD, tokenFile: 'istio-token' }) }),
  ...refused(TOKEN_TO_ANYONE, {
    'a token to whoever answers': following({
      ...ISTIOD,
      tls: { insecureSkipVerify: true },
      tokenFile: 'istio-token',
    }),
  }),
  ...refused(FILE, { 'a token of istiod with a path': following({ ...ISTIOD, tls: {}, tokenFile: '../x' }) }),
  ...refused(FILE, { 'a kubeconfig with a path': measured({ endpoints: { kubeconfigFile: '../x' } }) }),
  ...refused(INSTANCES_OR_URL, {
    'neither instances nor a url': inspecting({ format: 'Envoy' }),
    'both of them': inspecting({ ...EUREKA, instances: INSTANCES }),
  }),
  ...refused(HTTP_OR_EUREKA, {
    'no way to take pods out': deregistering({}),
    'two ways to take pods out': deregistering({ http: HTTP, eureka: SERVER }),
  }),
  ...refused(
    URL_TEMPLATE,
    Object.fromEntries(
      [
        'http://{pod}/x',
        'http://{address}:8080/{pod}',
        'http://registry.{namespace}/{pod}/{address}',
        'http://registry:{port}/{address}',
        'http://{label:host}/{address}',
        'http://a{address}',
        'http://a/{ip}',
        'http://a/{address',
        'http://a/{}/{address}',
        'http://a/{label:}/{address}',
        'http://a/{label:a b}/{address}',
        'http://user:password@a/{address}',
        'http://a/{address}#x',
        'http://a/{address}\r\nHost: b',
        'ftp://a/{address}',
      ].map((url) => [`the URL template ${JSON.stringify(url)}`, putting({ url })]),
    ),
  ),
  ...refused(
    CLIMBS,
    Object.fromEntries(
      [
        ...['http://a/{namespace}/../{pod}', 'http://a/{namespace}/..%2f{pod}', 'http://a/{address}/%2e%2e'],
        ...['http://a/{address}/.', 'http://a/{namespace}\\..\\{pod}', 'http://a/{pod}/..?at={address}'],
      ].map((url) => [`the URL template ${JSON.stringify(url)}`, putting({ url })]),
    ),
  ),
  ...refused(CLIMBS, {
    'a Eureka whose path climbs': deregistering({ eureka: { ...SERVER, url: 'http://a/eureka/../x' } }),
  }),
  ...refused(TEMPLATE, {
    'a body with a placeholder that is none': putting({ body: '{ip}' }),
    'a header with a placeholder that is none': sending({ name: 'x', value: '{ip}' }),
    'a header with a line break': sending({ name: 'x', value: 'a\r\nb: c' }),
    'an instance with a path': deregistering({ eureka: { ...SERVER, instance: '../{address}' } }),
    'an application with a path': deregistering({ eureka: { ...SERVER, app: 'a/b' } }),
    'an application with a dot': deregistering({ eureka: { ...SERVER, app: '..' } }),
  }),
  ...refused(EUREKA_URL, {
    'a Eureka with a query': deregistering({ eureka: { ...SERVER, url: 'http://a/eureka?x=1' } }),
    'a Eureka of the pod': deregistering({ eureka: { ...SERVER, url: 'http://a/{pod}' } }),
  }),
  ...refused(
    HEADER,
    Object.fromEntries(
      ['', 'a b', 'a:', 'a\r\n', 'Host', 'HOST', 'transfer-encoding', 'Content-Length', 'Connection'].map(
        (name) => [`the header ${JSON.stringify(name)}`, sending({ name, value: 'x' })],
      ),
    ),
  ),
  ...refused(VALUE_OR_FILE, {
    'a header without a value': sending({ name: 'x' }),
    'a header with two values': sending({ name: 'x', value: 'a', valueFile: 'b' }),
  }),
  ...refused(FILE, {
    'a secret with a path': sending({ name: 'x', valueFile: '../../etc/passwd' }),
    'a secret of another namespace': sending({ name: 'x', valueFile: 'other/token' }),
  }),
  ...refused(NAMES_POD, {
    'a request that is the same for every pod': putting({ url: 'http://a/{namespace}' }),
    'an instance that is the same for every pod': deregistering({
      eureka: { ...SERVER, instance: 'orders' },
    }),
  }),
  ...refused(MEASURES_REGISTRY, {
    'a registry that reports': deregistering({ http: HTTP }, { measure: { reports: {} } }),
    'a registry that is probed': deregistering({ http: HTTP }, { measure: { probe: { url: 'http://a' } } }),
  }),
  ...refused(LISTS_WHO_IS_OUT, {
    'a Eureka that is asked for whom it has taken out of service': asking('http://eureka:8761/eureka/apps'),
    'one that is asked in other letters': asking('http://EUREKA:8761/eureka/apps/ORDERS?x'),
    'one whose url ends in a slash': asking('http://eureka/eureka/vips/orders', {
      ...SERVER,
      url: 'http://eureka/eureka/',
    }),
    'one that is asked without a path': asking('http://eureka', { ...SERVER, url: 'http://eureka' }),
  }),
  ...refused(ONE_NAMESPACE, {
    'a name that pods of any namespace may have': putting({ url: 'http://a/{pod}' }),
    'an instance that pods of any namespace may have': deregistering(
      { eureka: { ...SERVER, instance: '{pod}:orders' } },
      { appliesTo: { podSelector: {} } },
    ),
  }),
  ...refused(ANYHOW, {
    'a method that only reads': putting({ method: 'GET' }),
    'a longer body': putting({ body: 'x'.repeat(4_097) }),
    'too many headers': putting({ headers: Array(17).fill({ name: 'x', value: 'y' }) }),
    'from a pod': deregistering({ http: { ...HTTP, from: 'Pod' } }),
    'a port that is none': deregistering({ http: HTTP, port: 0 }),
  }),
  ...refused(URL_INTERVAL, {
    'a url without an interval': inspecting({ url: 'http://a', format: 'Text' }),
    'instances with an interval': inspecting({ ...ENVOY, syncInterval: '10s' }),
  }),
  ...refused(TLS_OF_URL, { 'tls of a plain url': inspecting({ ...EUREKA, url: 'http://a', tls: {} }) }),
  ...refused(ASKED_EVERY, { 'pages too often': inspecting({ ...ENVOY, every: '99ms' }) }),
  ...refused(
    PATH,
    Object.fromEntries(
      ['', 'clusters', '/a b', '/a#b', '/ä'].map((path) => [
        `the path ${JSON.stringify(path)}`,
        inspecting({ ...ENVOY, instances: { ...INSTANCES, path } }),
      ]),
    ),
  ),
  ...refused(
    FILE,
    Object.fromEntries(
      ['', '../token', '/var/run/token', '.token', 'a/b', '-a'].map((tokenFile) => [
        `the file ${JSON.stringify(tokenFile)}`,
        inspecting({ ...ENVOY, tokenFile }),
      ]),
    ),
  ),
  ...refused(SERVER_NAME, {
    'a server name that is none': inspecting({ ...ENVOY, tls: { serverName: 'a/b' } }),
  }),
  ...refused(URL_HINT, { 'a page that is no URL': inspecting({ ...EUREKA, url: 'eureka.example' }) }),
  ...refused(EITHER, {
    'declared, and nothing in it': measured({ declared: {} }),
    'declared, and both': measured({ declared: { syncInterval: '1s', lag: '1s' } }),
  }),
  ...refused(
    DURATION,
    Object.fromEntries(
      [
        '',
        '0',
        '0s',
        '0.5ms',
        '-1s',
        '+1s',
        '10',
        '1 s',
        '1d',
        's',
        '168h0m1s',
        '169h',
        ' 1s',
        '1s\n',
        '1S',
      ].map((text) => [`the duration ${JSON.stringify(text)}`, interval(text)]),
    ),
  ),
  ...refused(EVERY, { 'a probe too often': measured({ probe: { url: 'http://a', every: '999ms' } }) }),
  ...refused(
    URL_HINT,
    Object.fromEntries(
      [
        '',
        'edge.example',
        'ftp://edge.example',
        'HTTP://edge.example',
        'http:edge.example',
        'http://',
        'http:///path',
        'http://user:password@edge.example',
        'http://edge.example/#fragment',
        'http://edge.example:0',
        'http://edge.example:65536',
        'http://edge.example:port',
        'http://10.0.0.256',
        'http://10.0.0.010',
        'http://[::1',
        'http://[1::2::3]',
        'http://-edge.example',
        'http://edge..example',
        'http://edge.example/a b',
        'http://bücher.example',
        'http://edge.example/é',
        ' http://edge.example',
      ].map((url) => [`the URL ${JSON.stringify(url)}`, probing(url)]),
    ),
  ),
  ...refused(ANYHOW, {
    'pages of no format': inspecting({ instances: INSTANCES }),
    'an unknown format': inspecting({ instances: INSTANCES, format: 'Nginx' }),
    'instances of any namespace': inspecting({ format: 'Envoy', instances: { port: 9901 } }),
    'instances without a port': inspecting({ format: 'Envoy', instances: { namespaceSelector: {} } }),
    'port 0': inspecting({ format: 'Envoy', instances: { ...INSTANCES, port: 0 } }),
    'port 65536': inspecting({ format: 'Envoy', instances: { ...INSTANCES, port: 65_536 } }),
    'a path that is too long': inspecting({
      ...ENVOY,
      instances: { ...INSTANCES, path: `/${'x'.repeat(1024)}` },
    }),
    'a URL that is too long': probing(`http://a/${'x'.repeat(2040)}`),
    'a duration that is too long a text': interval(`${'0'.repeat(63)}1s`),
    'a duration that is a number': interval(10),
    'a URL that is none': probing({}),
    'no URL': measured({ probe: {} }),
    'reports that are a switch': measured({ reports: true }),
    'a selector that is a text': selecting('app=web'),
    'a label value that is a number': labelled({ a: 1 }),
    'a label value that is a boolean': labelled({ a: true }),
    'labels that are a list': labelled(['a']),
    'more labels than there may be': labelled(labels(33)),
    'more requirements than there may be': selecting({
      matchExpressions: Array.from({ length: 17 }, () => ({ key: 'a', operator: 'Exists' })),
    }),
    'more values than there may be': required({
      key: 'a',
      operator: 'In',
      values: Array.from({ length: 65 }, (_, index) => `v${index}`),
    }),
    'an unknown operator': required({ key: 'a', operator: 'Equals', values: ['b'] }),
    'a requirement without a key': required({ operator: 'Exists' }),
    'no measure': { appliesTo: {} },
    nothing: {},
  }),
  ...refused(KEY, {
    'a label key with a space': labelled({ 'a b': 'c' }),
    'an empty label key': labelled({ '': 'c' }),
    'a label key with an upper-case prefix': labelled({ 'Example.com/a': 'c' }),
    'a label key with an empty prefix': labelled({ '/a': 'c' }),
    'a label key with two prefixes': labelled({ 'a/b/c': 'd' }),
    'a label key with a prefix that is too long': labelled({ [`${'a'.repeat(254)}/b`]: 'c' }),
    'a label key that is too long': labelled({ ['a'.repeat(64)]: 'c' }),
    'a requirement of a key that is none': required({ key: '-a', operator: 'Exists' }),
  }),
  ...refused(VALUE, {
    'a label value with a space': labelled({ a: 'b c' }),
    'a label value that ends in a dash': labelled({ a: 'b-' }),
    'a required value that is none': required({ key: 'a', operator: 'In', values: ['b/c'] }),
  }),
  ...refused(ANYHOW, { 'a label value that is too long': labelled({ a: 'b'.repeat(64) }) }),
  ...refused(VALUES, {
    'In without values': required({ key: 'a', operator: 'In' }),
    'NotIn with no value': required({ key: 'a', operator: 'NotIn', values: [] }),
    'Exists with values': required({ key: 'a', operator: 'Exists', values: ['b'] }),
    'DoesNotExist with values': required({ key: 'a', operator: 'DoesNotExist', values: ['b'] }),
  }),
  // The API server by itself drops them and warns; kubectl has it refuse them.
  ...refused(UNKNOWN_FIELD, {
    'an unknown field': { ...measured(DECLARED), applies: {} },
    'a deeper one': measured({ declared: { syncIntervall: '1s', lag: '1s' } }),
    'one in inspect': inspecting({ ...ENVOY, interval: '1s' }),
    'one in reports': measured({ reports: { token: 'x' } }),
    'a way of measuring to come': measured({ ...DECLARED, http: {} }),
    'an unknown selector': applying({ nodeSelector: {} }),
  }),
];
