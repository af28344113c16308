import { MODES, PAGE_FORMATS } from '../core/api/index.ts';
import { CHANGES, ENDPOINTS_CHOICES, LAG_STAGES } from '../core/lag/index.ts';
import { AFTER_SIGTERM } from '../core/timeline/index.ts';
import { LOG_LEVELS } from '../telemetry/index.ts';
import {
  addressOrFiles,
  count,
  countPair,
  type Flags,
  flag,
  instant,
  labelQuery,
  list,
  literalAddress,
  oneOf,
  optional,
  port,
  probability,
  seconds,
  someOf,
  text,
  toggle,
  type Values,
} from './flags.ts';

const name = text('<name>');
const file = text('<file>');
const folder = text('<folder>');

const policies = optional(
  text('<path>'),
  'folder or file of linger.dev policies, Namespaces and Services (*.yaml, *.yml, *.json); without it, the built-in policy',
);
const modeLimit = flag(oneOf(MODES), 'Enforce', 'caps the mode of every policy and annotation');
const namespace = flag(name, 'default', 'namespace of the objects that name none', 'n');

const OUTPUT_FORMATS = ['table', 'wide', 'json', 'yaml'] as const;
export type OutputFormat = (typeof OUTPUT_FORMATS)[number];
const output = (what: string) => flag(oneOf(OUTPUT_FORMATS), 'table', `how to print ${what}`, 'o');

/** Which manifests are read: as kubectl takes them. */
const MANIFEST_FLAGS = {
  filename: optional(list('<path,...>'), 'manifests to read: files, folders, or - for standard input', 'f'),
  recursive: toggle('also read the folders in the folders named', 'R'),
  namespace,
  selector: optional(labelQuery, 'only objects with these labels', 'l'),
};
const DEVELOPMENT_NAMES = 'localhost,127.0.0.1,::1';

const POLICY_REPORTS = ['off', 'wgpolicyk8s.io', 'openreports.io'] as const;

const SERVE_FLAGS = {
  port: flag(port, '8443', 'port of the webhook (HTTPS); 0 chooses a free one'),
  adminPort: flag(port, '8080', 'port of /healthz, /readyz and /metrics (HTTP); 0 chooses a free one'),
  pagePort: optional(
    port,
    'port of the page that explains pasted manifests (HTTP, on 127.0.0.1 only); without it, there is none',
  ),
  host: flag(text('<address>'), '127.0.0.1', 'address to listen on; in a pod, ::, which includes IPv4'),
  policies,
  strict: toggle('do not start while a policy document cannot be used'),
  certs: flag(folder, 'certs', 'folder of tls.crt and tls.key; made there, with a CA, where there are none'),
  certNames: flag(
    list('<name...>'),
    DEVELOPMENT_NAMES,
    'DNS names and addresses in the certificate that is made where there is none, beside --host',
  ),
  certsSecret: optional(
    name,
    "Secret of Linger's namespace in which replicas keep the certificate that they make, and renew it; in place of --certs",
  ),
  webhookConfiguration: flag(
    name,
    'linger',
    'MutatingWebhookConfiguration that is made to trust the certificate of --certs-secret',
  ),
  clientCa: optional(
    file,
    'certificates of authorities: /mutate answers only clients with a certificate from one of them',
  ),
  modeLimit,
  auditWarnings: toggle('in mode Audit, also warn the creator of a pod of what would have been done'),
  logLevel: flag(oneOf(LOG_LEVELS), 'info', 'how much to log; debug has a line for each decision'),
  drain: flag(
    seconds,
    '15s',
    'after SIGTERM, how long to keep answering while unready before closing connections',
  ),
  connectionCloseProbability: flag(
    probability,
    '0.001',
    'share of answers after which the connection is closed, so that API servers spread over the replicas again',
  ),
  cluster: flag(
    oneOf(['auto', 'required', 'off']),
    'auto',
    'whether to read the cluster and measure its lag; auto: if there is a kubeconfig or a ServiceAccount token',
  ),
  kubeconfig: optional(file, 'kubeconfig of the cluster; in a pod, its ServiceAccount is used'),
  context: optional(name, 'context of the kubeconfig, if not the current one'),
  syncTimeout: flag(
    seconds,
    '30s',
    'how long to stay unready until the cluster has been read; then serve anyway',
  ),
  namespace: optional(
    name,
    'namespace of Linger itself, where replicas share measurements; in a pod, that of its ServiceAccount',
  ),
  identity: optional(name, 'name of this replica, such as its pod; without it, the host name'),
  canaryPort: flag(
    port,
    '8081',
    'port on which replicas identify themselves to the canary (HTTP); the same for all',
  ),
  canaryEvery: flag(
    seconds,
    '60s',
    'how often the leader takes a replica out of the Service linger-canary and back to measure consumers; 0: never',
  ),
  probeAllowLinkLocal: toggle(
    'let the URLs of probes and of pages lead to link-local addresses and those of cloud metadata',
  ),
  inspectFiles: optional(
    folder,
    'folder of the files that DiscoveryConsumers may name: tokens, authorities and kubeconfigs',
  ),
  podIp: optional(
    text('<address>'),
    'address of this replica, for the connections that others relay to it; without it, --host or the first of this machine',
  ),
  reportsAudience: flag(
    text('<audience>'),
    'linger.dev/reports',
    'audience of the tokens with which instances of consumers report',
  ),
  holdPort: flag(port, '8445', 'port on which the helpers of hook Hold call (TCP); 0: no pod gets Hold'),
  holdAddress: optional(
    literalAddress,
    'where helpers call, such as 10.0.0.7:8445 or [fd00::7]:8445; without it, the ClusterIP of the Service linger-hold and --hold-port',
  ),
  holdImage: optional(
    text('<image>'),
    'image with the helpers, for policies that have them delivered as an image volume',
  ),
  holdTestImage: optional(
    text('<image>'),
    'image of the pods that try the helper on each kind of node; without it, that of this replica’s own pod',
  ),
  deleteOnNodeShutdown: toggle(
    'delete the pods of a node that is shutting down, so that their endpoints are withdrawn',
  ),
  endpoints: flag(
    oneOf(ENDPOINTS_CHOICES),
    'Auto',
    'whether Endpoints objects count beside EndpointSlices. Auto: while a controller maintains them; Ignore: never, where nothing else reads them',
  ),
  auditEvery: flag(seconds, '10m', 'how often the leader audits the workloads of the cluster; 0: never'),
  policyReports: flag(
    oneOf(POLICY_REPORTS),
    'off',
    'API group of the reports with audit findings that the leader writes, one per namespace',
  ),
};

const allowRemote = toggle(
  'let a kustomization that is rendered fetch what it names from the network; without it, such a one is refused',
);

const EDIT_FLAGS = {
  inPlace: toggle('write each file in its place, and print nothing'),
  diff: toggle('print what would change, as a unified diff, and not the manifests'),
};

const INJECT_FLAGS = {
  ...MANIFEST_FLAGS,
  policies,
  allowRemote,
  refresh: toggle('decide again for workloads that have been injected before'),
  ...EDIT_FLAGS,
};

const UNINJECT_FLAGS = { ...MANIFEST_FLAGS, allowRemote, ...EDIT_FLAGS };

const lingerNamespace = optional(name, 'namespace in which Linger runs; without it, where its webhook leads');

const EXPLAIN_FLAGS = {
  ...MANIFEST_FLAGS,
  allowRemote,
  namespace: optional(
    name,
    'namespace of the objects that name none; of objects of the cluster, without it, that of the context',
    'n',
  ),
  policies,
  modeLimit,
  kubeconfig: optional(
    file,
    'kubeconfig of a cluster to read Namespaces, Services, versions, policies and the planned lags from; without it and --context, none is read',
  ),
  context: optional(name, 'context of the kubeconfig; without --kubeconfig, of the one kubectl would use'),
  lingerNamespace,
  output: output('the decisions'),
  failOn: optional(
    list('<code,...>'),
    'exit 3 when a decision has one of these skip reasons or note codes; "skip" stands for every reason',
  ),
};

const CLUSTER_FLAGS = {
  kubeconfig: optional(
    file,
    'kubeconfig to use; without it $KUBECONFIG, else ~/.kube/config, else in a pod its ServiceAccount',
  ),
  context: optional(name, "context of the kubeconfig; without it, the kubeconfig's current one"),
};

const AUDIT_FORMATS = [...OUTPUT_FORMATS, 'sarif', 'github', 'junit', 'markdown'] as const;

const AUDIT_FLAGS = {
  ...CLUSTER_FLAGS,
  filename: MANIFEST_FLAGS.filename,
  recursive: MANIFEST_FLAGS.recursive,
  allowRemote,
  namespace: optional(
    name,
    'of a cluster, only this namespace; of manifests, the namespace of the objects that name none',
    'n',
  ),
  allNamespaces: toggle('all namespaces of the cluster, as without --namespace', 'A'),
  selector: MANIFEST_FLAGS.selector,
  policies,
  modeLimit,
  lingerNamespace,
  since: optional(
    seconds,
    'review the terminations within this time, such as 2h, in a cluster in which Linger runs',
  ),
  webhook: toggle('of manifests: assume that Linger’s webhook runs where they are applied'),
  suggest: toggle('instead: print the smallest policies that protect what can be protected, with their cost'),
  baseline: optional(
    text('<file|commit>'),
    'leave out the findings of this earlier audit (-o json), or of the same files at this commit of git',
  ),
  allowEmpty: toggle('with --fail-on: an input without any workload is no failure'),
  serverDryRun: toggle(
    'also check by dry run whether the cluster accepts the pods with their waits; needs the right to create pods',
  ),
  output: flag(oneOf(AUDIT_FORMATS), 'table', 'how to print the findings', 'o'),
  failOn: optional(
    list('<code,...>'),
    'exit 3 when a workload has one of these verdicts, findings or skip reasons; "any" stands for unprotected',
  ),
};

const DASHBOARD_FLAGS = {
  ...CLUSTER_FLAGS,
  filename: MANIFEST_FLAGS.filename,
  recursive: MANIFEST_FLAGS.recursive,
  allowRemote,
  namespace: optional(
    name,
    'of a cluster, only this namespace; of manifests, the namespace of the objects that name none',
    'n',
  ),
  policies,
  lingerNamespace,
  port: flag(port, '8089', 'port of the page on 127.0.0.1; 0 chooses a free one'),
  noOpen: toggle('only print the address; do not open a browser'),
};

const TIMELINE_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: optional(name, 'namespace of the pods; without it, that of the context', 'n'),
  allNamespaces: toggle('pods of all namespaces', 'A'),
  lingerNamespace,
  since: optional(seconds, 'only terminations within this time, such as 10m; without it, all that are known'),
  svg: optional(file, 'also draw them, into this file'),
  output: output('the terminations; wide: all, and not only the latest ten'),
  failOn: optional(
    someOf(AFTER_SIGTERM),
    'exit 3 when this is so for a termination: something may have sent to the pod after SIGTERM, or that is not known',
  ),
};

const CHECK_FLAGS = {
  policies,
  ...CLUSTER_FLAGS,
  pre: toggle('of a cluster: whether Linger can be installed there, and not how it runs'),
  namespace: flag(name, 'default', 'of a cluster: the namespace in which a pod is tried, as a dry run', 'n'),
  lingerNamespace,
  webhookConfiguration: flag(name, 'linger', 'name of its MutatingWebhookConfiguration'),
  output: output('what was found'),
  failOn: optional(
    someOf(['warning', 'unknown']),
    'of a cluster: exit 3 when there is no failure but one of these',
  ),
};

const SIMULATE_FLAGS = {
  policies,
  namespace: flag(name, 'default', 'namespace of the pods whose wait is printed', 'n'),
  output: flag(oneOf(['table', 'json']), 'table', 'how to print the waits', 'o'),
};

const CERTS_FLAGS = {
  dns: flag(list('<name...>'), DEVELOPMENT_NAMES, 'DNS names and addresses that the certificate is for'),
  out: flag(folder, 'certs', 'folder for ca.crt, tls.crt and tls.key; kept while they are valid'),
};

const WATCH_FLAGS = {
  ...CLUSTER_FLAGS,
  context: optional(
    list('<name...>'),
    "contexts of the kubeconfig, each a cluster to watch; without it, the kubeconfig's current one",
  ),
  namespace: optional(list('<name...>'), 'namespaces to watch; without it, all', 'n'),
  allNamespaces: toggle('watch all namespaces, whatever --namespace says', 'A'),
  service: optional(list('<name...>'), 'Services to watch; without it, all'),
  pod: optional(text('<pattern>'), 'only pods of this name; * and ? stand for any characters and any one'),
  selector: optional(labelQuery, 'only pods with these labels, as kubectl get pods -l selects them', 'l'),
  source: flag(someOf(LAG_STAGES), LAG_STAGES.join(','), 'where endpoints are read'),
  change: flag(someOf(CHANGES), CHANGES.join(','), 'which changes to print'),
  minLag: optional(seconds, 'print only changes with a lag of at least this'),
  initial: toggle('also print what is there at the beginning'),
  output: output('changes; json: one object a line; yaml: one document each'),
  for: optional(seconds, 'how long to watch; without it, until Ctrl-C'),
  failOnLag: optional(seconds, 'exit 3 when a removal took longer than this, or is still under way after it'),
  quiet: toggle('print changes only: no notes and no summary'),
};

const CONSUMERS_FLAGS = {
  ...CLUSTER_FLAGS,
  lingerNamespace,
  filename: optional(
    list('<path,...>'),
    'discover: manifests to search instead of the cluster: files, folders, or - for standard input',
    'f',
  ),
  recursive: toggle('discover: also read the folders in the folders named', 'R'),
  allowRemote,
  apply: toggle('discover: create what was found, with mode Observe; what exists stays as it is'),
  output: optional(
    oneOf(OUTPUT_FORMATS),
    'how to print the consumers; without it table, and discover prints YAML to apply',
    'o',
  ),
  failOn: optional(
    list('<reason,...>'),
    'exit 3 when a condition has one of these reasons; "any" stands for every reason that makes the lag unreliable',
  ),
};

const WITNESS_FLAGS = {
  listen: flag(text('<[address]:port>'), ':8446', 'where to answer (HTTP)'),
  page: optional(
    text('<url|unix:path>'),
    'where the gateway lists its upstreams: a URL, or the path of a Unix socket',
  ),
  format: flag(oneOf(PAGE_FORMATS), 'Envoy', 'how the page says that an address is in use'),
};

const NODE_TIMER_FLAGS = {
  clusterIp: optional(text('<address>'), 'ClusterIP of the Service linger-canary; its port is 80'),
  port: flag(port, '8447', 'port on which the leader fetches what was timed (HTTP)'),
};

const STATUS_FLAGS = { ...CLUSTER_FLAGS, lingerNamespace, output: output('what is seen') };

const HISTORY_FLAGS = {
  ...CLUSTER_FLAGS,
  lingerNamespace,
  from: optional(instant, 'forget: from when on'),
  to: optional(instant, 'forget: until when'),
  namespace: optional(name, 'forget: only what was measured of this namespace', 'n'),
  consumer: optional(name, 'forget: only what was measured of this consumer'),
  output: output('the episodes'),
};

const HOLD_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: optional(
    list('<name...>'),
    'list: only pods of these namespaces; manifest: namespaces that are to have the helper, without it none is named',
    'n',
  ),
  lingerNamespace,
  watch: toggle('list: print again every two seconds, until interrupted', 'w'),
  output: output('the result; manifest: YAML, or JSON where that is asked for'),
};

const DIAGNOSE_FLAGS = {
  ...CLUSTER_FLAGS,
  controllerMetrics: optional(
    addressOrFiles('<url|file,...>'),
    'metrics of the kube-controller-manager: a URL, or one or two saved scrapes, the older first; - is standard input; without it, by way of the API server',
  ),
  controllerMetricsCa: optional(file, 'CA of the certificate at that URL'),
  controllerMetricsTokenFile: optional(file, 'file with a token for that URL'),
  controllerMetricsInsecure: toggle('do not verify the certificate at that URL'),
  controllerFlags: optional(
    text('<flags>'),
    'flags of the kube-controller-manager, in one argument; without it, those of its pod',
  ),
  linger: optional(text('<url|file>'), 'metrics of a running Linger, for the lag it has measured'),
  lag: flag(
    oneOf(['watch', 'off']),
    'watch',
    'whether to watch removals meanwhile, where --linger is not given',
  ),
  interval: flag(
    seconds,
    '10s',
    'between two looks; 0 looks once. Of two saved scrapes: how far they are apart',
  ),
  output: output('the findings'),
  failOn: optional(
    list('<code,...>'),
    'exit 3 when one of these is found; "any" stands for every one that is critical or a warning',
  ),
};

const PROVE_FORMATS = ['table', 'json', 'yaml', 'junit', 'markdown'] as const;

const PROVE_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: optional(name, 'namespace of the workload; without it, that of the context', 'n'),
  rollout: toggle('restart the workload, as kubectl rollout restart does: the default'),
  deleteOne: toggle('delete the oldest ready pod'),
  evict: toggle('evict the oldest ready pod'),
  scale: optional(
    countPair,
    'scale to the first number beforehand, and then to the second; restored at the end',
  ),
  drain: optional(name, 'cordon this node and evict the pods of the workload from it; uncordoned at the end'),
  service: optional(
    text('<name[:port]>'),
    'Service to send through; without it, the one that selects the pods',
  ),
  urlsOnly: toggle('send through no Service, only through each --url'),
  url: optional(
    list('<[name=]url>'),
    'also send through this gateway, such as edge=https://shop.example; may be repeated',
  ),
  urlFrom: flag(oneOf(['here', 'cluster']), 'here', 'where requests through each --url come from'),
  insecure: toggle('do not verify the certificate at a --url'),
  rate: flag(count, '50', 'requests a second through each way, each on a new connection'),
  keepAlive: toggle('also send at the same rate on connections that stay open'),
  method: flag(text('<method>'), 'GET', 'HTTP method'),
  path: flag(text('<path>'), '/', 'path, where a --url has none of its own'),
  header: optional(list('<name:value>'), 'header of each request; visible in the Job while it runs'),
  timeout: flag(seconds, '3s', 'after which a request is lost'),
  slow: flag(seconds, '1s', 'after which an answer is slow'),
  calm: flag(seconds, '5s', 'how long to send before the disturbance'),
  quiet: flag(seconds, '12s', 'for how long nothing may be lost afterwards until all counts as quiet'),
  for: flag(seconds, '10m', 'at most, from the disturbance on'),
  image: optional(
    text('<image>'),
    'image of Linger to send traffic from; without it, that of the Linger that runs here',
  ),
  lingerNamespace: optional(name, 'namespace in which Linger runs, for its image; without it, linger'),
  compare: toggle('disturb two copies in namespaces of their own, with and without the waits of Linger'),
  copySecrets: toggle('with --compare: also copy the Secrets that the pods use'),
  yes: toggle('do not ask before anything is touched', 'y'),
  maxLost: flag(count, '0', 'exit 3 when more requests than this were lost'),
  svg: optional(file, 'also draw the run into this file: each way with its requests, each pod that ended'),
  output: flag(oneOf(PROVE_FORMATS), 'table', 'how to print the result', 'o'),
};

const PROVE_KEEP_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: flag(name, 'default', 'namespace to remove'),
};

const PROVE_TRAFFIC_FLAGS = { plan: flag(text('<json>'), '{}', 'what to send, as prove writes it') };

export interface Verb<F extends Flags = Flags> {
  readonly about: string;
  readonly flags: F;
  /** The operands: their name and description in the help, and the words that they choose from. Undefined: none. */
  readonly operands: OperandsOf | undefined;
}

type OperandsOf = readonly [argument: string, about: string, choices?: readonly string[]];

function verb<F extends Flags>(about: string, flags: F, operands?: OperandsOf): Verb<F> {
  return { about, flags, operands };
}

const MANIFESTS = ['[files...]', 'manifests; - is standard input'] as const;
const POLICIES = [
  '[paths...]',
  'folders and files of policies, as for --policies; without any, the cluster is asked',
] as const;
const EVENTS = ['[file]', 'events, one JSON object a line; - is standard input'] as const;

/** All commands, in the order in which the help lists them. A new one also has its line in run.ts. */
export const VERBS = {
  serve: verb('Serve the admission webhook.', SERVE_FLAGS),
  inject: verb('Add hooks and grace to manifests.', INJECT_FLAGS, MANIFESTS),
  uninject: verb('Remove from manifests what inject has added.', UNINJECT_FLAGS, MANIFESTS),
  explain: verb(
    'Explain the decision for the pods of manifests or of a live workload.',
    EXPLAIN_FLAGS,
    MANIFESTS,
  ),
  audit: verb(
    'Find workloads that lose requests when their pods terminate, in a cluster or in manifests.',
    AUDIT_FLAGS,
    MANIFESTS,
  ),
  dashboard: verb(
    'Show in a browser which workloads lose requests, and what is being removed and held now.',
    DASHBOARD_FLAGS,
  ),
  timeline: verb(
    'Show when everything happened in the last terminations, and what sent to a pod after SIGTERM.',
    TIMELINE_FLAGS,
    ['[KIND/NAME...]', 'workloads or pods, such as deployment/web or pod/web-1; without any, all'],
  ),
  check: verb(
    'Check whether Linger works in a cluster or can be installed there, or validate policies.',
    CHECK_FLAGS,
    POLICIES,
  ),
  status: verb('Show the state of a running Linger: modes, waits, decisions, holds, findings.', STATUS_FLAGS),
  simulate: verb(
    'Replay recorded removals and print the waits that Linger would have planned.',
    SIMULATE_FLAGS,
    EVENTS,
  ),
  certs: verb('Make a CA and a serving certificate; print the caBundle.', CERTS_FLAGS),
  watch: verb('Print endpoint changes as they happen, with their lag.', WATCH_FLAGS),
  diagnose: verb('Diagnose why endpoints are withdrawn late, and suggest flags.', DIAGNOSE_FLAGS),
  consumers: verb('Show the measured lag of each consumer, and its problems.', CONSUMERS_FLAGS, [
    '[action]',
    'list (the default), or discover: find what sends traffic to pods and declare it',
    ['list', 'discover'],
  ]),
  witness: verb('Run beside a gateway and report whether it uses an address.', WITNESS_FLAGS),
  'node-timer': verb(
    'Run on every node and time its kube-proxy for the leader; the DaemonSet runs this.',
    NODE_TIMER_FLAGS,
  ),
  history: verb('List episodes (storms, bad releases) that raise the waits, or remove one.', HISTORY_FLAGS, [
    '[action]',
    'list (the default) or forget',
    ['list', 'forget'],
  ]),
  hold: verb('List the pods held by hook Hold, or print the ConfigMap with its helper.', HOLD_FLAGS, [
    '[action]',
    'list (the default), or manifest: the ConfigMap, for kubectl apply',
    ['list', 'manifest'],
  ]),
  prove: verb('Send traffic to a workload, disturb it once, and show what was lost and why.', PROVE_FLAGS, [
    '[kind/name]',
    'the workload, such as deployment/web',
  ]),
  'prove-traffic': verb('Send the traffic of prove; its pods run this.', PROVE_TRAFFIC_FLAGS),
  'prove-keep': verb(
    'Remove the namespace of a copy of prove when it ends; its pods run this.',
    PROVE_KEEP_FLAGS,
  ),
  completion: verb('Print a shell completion script.', {}, ['<shell>', 'the shell', ['bash', 'zsh', 'fish']]),
};

export type CommandName = keyof typeof VERBS;

export interface Operands {
  readonly operands: readonly string[];
}

export type Settings<C extends CommandName> = Values<(typeof VERBS)[C]['flags']> & Operands;
