import { CHANGES } from '../core/changes/change.ts';
import { LAG_STAGES } from '../core/lag/sample.ts';
import { MODES } from '../core/schema/choices.ts';
import { LOG_LEVELS } from '../telemetry/logs.ts';
import { abbreviated, flag, optional, type Values } from './flag.ts';
import {
  addressOrFiles,
  labelQuery,
  list,
  oneOf,
  port,
  probability,
  seconds,
  someOf,
  text,
  toggle,
} from './readers.ts';

const policies = optional(
  text('<path>'),
  'folder or file of linger.dev policies, Namespaces and Services (*.yaml, *.yml, *.json); without it, the built-in policy',
);
const modeLimit = flag(oneOf(MODES), 'Enforce', 'caps the mode of every policy and annotation');
const namespace = flag(text('<name>'), 'default', 'namespace of the objects that name none');
const DEVELOPMENT_NAMES = 'localhost,127.0.0.1,::1';

/** `auto`: where there are credentials; `required`: not without; `off`: not at all. */
export const CLUSTER_CHOICES = ['auto', 'required', 'off'] as const;
const kubeconfig = optional(
  text('<file>'),
  'kubeconfig of the cluster; in a pod, its ServiceAccount is used',
);
const context = optional(text('<name>'), 'context of the kubeconfig, where not its current one');

export const SERVE_FLAGS = {
  port: flag(port, '8443', 'port of the webhook (HTTPS); 0 chooses a free one'),
  adminPort: flag(port, '8080', 'port of /healthz, /readyz and /metrics (HTTP); 0 chooses a free one'),
  host: flag(text('<address>'), '127.0.0.1', 'address to listen on; in a pod, :: or 0.0.0.0'),
  policies,
  certs: flag(
    text('<folder>'),
    'certs',
    'folder of tls.crt and tls.key; made there, with a CA, where there are none',
  ),
  certNames: flag(
    list('<name...>'),
    DEVELOPMENT_NAMES,
    'DNS names and addresses in the certificate that is made where there is none',
  ),
  modeLimit,
  auditWarnings: flag(
    toggle,
    'false',
    'in mode Audit, also tell whoever creates a pod what would have been done',
  ),
  logLevel: flag(oneOf(LOG_LEVELS), 'info', 'how much to log; debug has a line for each decision'),
  drain: flag(
    seconds,
    '15s',
    'after SIGTERM, how long to go on answering, unready, before connections are closed',
  ),
  connectionCloseProbability: flag(
    probability,
    '0.001',
    'share of answers after which the connection is closed, so that API servers spread over the replicas again',
  ),
  cluster: flag(
    oneOf(CLUSTER_CHOICES),
    'auto',
    'whether to read the cluster and measure its lag; auto: where there is a kubeconfig or a ServiceAccount token',
  ),
  kubeconfig,
  context,
  syncTimeout: flag(
    seconds,
    '30s',
    'how long to stay unready until the cluster has been read; after that, ready with what is known',
  ),
  namespace: optional(
    text('<name>'),
    'namespace of Linger itself, where replicas share what they measure; in a pod, that of its ServiceAccount',
  ),
  identity: optional(text('<name>'), 'name of this replica, such as its pod; without it, the host name'),
  canaryPort: flag(
    port,
    '8081',
    'port on which replicas say who they are to the canary (HTTP); the same for all',
  ),
  canaryEvery: flag(
    seconds,
    '60s',
    'how often the leader takes a replica out of the Service linger-canary and back, to time who follows; 0: never',
  ),
  reportsAudience: flag(
    text('<audience>'),
    'linger.dev/reports',
    'audience of the tokens with which instances of consumers report',
  ),
} as const;
export type ServeSettings = Values<typeof SERVE_FLAGS>;

interface Inputs {
  /** Manifests to read; `-` is standard input. */
  readonly files: readonly string[];
}

export const INJECT_FLAGS = { policies, namespace } as const;
export type InjectSettings = Values<typeof INJECT_FLAGS> & Inputs;

export const OUTPUT_FORMATS = ['table', 'json', 'yaml'] as const;
export type OutputFormat = (typeof OUTPUT_FORMATS)[number];

export const EXPLAIN_FLAGS = {
  policies,
  namespace,
  modeLimit,
  kubeconfig: optional(
    text('<file>'),
    'kubeconfig of a cluster to read Namespaces, Services, versions and the planned lags from; without it and --context, none is read',
  ),
  context: optional(
    text('<name>'),
    'context of the kubeconfig; without --kubeconfig, of the one kubectl would use',
  ),
  lingerNamespace: flag(text('<name>'), 'linger', 'namespace of that cluster in which Linger runs'),
  output: flag(oneOf(OUTPUT_FORMATS), 'table', 'how to print the decisions'),
  failOn: optional(
    list('<code,...>'),
    'exit 3 when a decision has one of these skip reasons or note codes; "skip" stands for every reason',
  ),
} as const;
export type ExplainSettings = Values<typeof EXPLAIN_FLAGS> & Inputs;

export const CERTS_FLAGS = {
  dns: flag(list('<name...>'), DEVELOPMENT_NAMES, 'DNS names and addresses that the certificate is for'),
  out: flag(
    text('<folder>'),
    'certs',
    'folder for ca.crt, ca.key, tls.crt and tls.key; kept and renewed if there',
  ),
} as const;
export type CertsSettings = Values<typeof CERTS_FLAGS>;

/** Where the cluster is, for the commands that people run against one. */
export const CLUSTER_FLAGS = {
  kubeconfig: optional(
    text('<file>'),
    'kubeconfig to use; without it $KUBECONFIG, else ~/.kube/config, else in a pod its ServiceAccount',
  ),
  context: optional(text('<name>'), "context of the kubeconfig; without it, the kubeconfig's current one"),
} as const;

export const WATCH_OUTPUTS = ['table', 'json'] as const;
export type WatchOutput = (typeof WATCH_OUTPUTS)[number];

export const WATCH_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: abbreviated('n', optional(list('<name...>'), 'namespaces to watch; without it, all')),
  service: optional(list('<name...>'), 'Services to watch; without it, all'),
  pod: optional(text('<pattern>'), 'only pods of this name; * and ? stand for any characters and any one'),
  selector: abbreviated(
    'l',
    optional(labelQuery, 'only pods with these labels, as kubectl get pods -l selects them'),
  ),
  source: flag(someOf(LAG_STAGES), LAG_STAGES.join(','), 'where endpoints are read'),
  change: flag(someOf(CHANGES), CHANGES.join(','), 'which changes to print'),
  minLag: optional(seconds, 'print only changes with a lag of at least this'),
  initial: flag(toggle, 'false', 'also print what is there at the beginning'),
  output: flag(oneOf(WATCH_OUTPUTS), 'table', 'how to print changes; json: one object a line'),
  for: optional(seconds, 'how long to watch; without it, until Ctrl-C'),
  failOnLag: optional(seconds, 'exit 3 when a removal took longer than this, or is still under way after it'),
  quiet: flag(toggle, 'false', 'print changes only: no notes and no summary'),
} as const;
export type WatchSettings = Values<typeof WATCH_FLAGS>;

export const CONSUMERS_FLAGS = {
  ...CLUSTER_FLAGS,
  lingerNamespace: flag(text('<name>'), 'linger', 'namespace in which Linger runs'),
  output: flag(oneOf(OUTPUT_FORMATS), 'table', 'how to print the consumers'),
  failOn: optional(
    list('<reason,...>'),
    'exit 3 when a condition has one of these reasons; "any" stands for every one by which the lag cannot be relied on',
  ),
} as const;
export type ConsumersSettings = Values<typeof CONSUMERS_FLAGS>;

/** `watch`: removals that happen meanwhile; `off`: none. */
export const LAG_CHOICES = ['watch', 'off'] as const;

export const DIAGNOSE_FLAGS = {
  ...CLUSTER_FLAGS,
  controllerMetrics: optional(
    addressOrFiles('<url|file,...>'),
    'metrics of the kube-controller-manager: a URL, or one or two saved scrapes, the older first; - is standard input; without it, by way of the API server',
  ),
  controllerMetricsCa: optional(text('<file>'), 'CA of the certificate at that URL'),
  controllerMetricsTokenFile: optional(text('<file>'), 'file with a token for that URL'),
  controllerMetricsInsecure: flag(toggle, 'false', 'do not verify the certificate at that URL'),
  controllerFlags: optional(
    text('<flags>'),
    'flags of the kube-controller-manager, in one argument; without it, those of its pod',
  ),
  linger: optional(text('<url|file>'), 'metrics of a running Linger, for the lag it has measured'),
  lag: flag(oneOf(LAG_CHOICES), 'watch', 'whether to watch removals meanwhile, where --linger is not given'),
  interval: flag(
    seconds,
    '10s',
    'between two looks; 0 looks once. Of two saved scrapes: how far they are apart',
  ),
  output: flag(oneOf(OUTPUT_FORMATS), 'table', 'how to print the findings'),
  failOn: optional(
    list('<code,...>'),
    'exit 3 when one of these is found; "any" stands for every one that is critical or a warning',
  ),
} as const;
export type DiagnoseSettings = Values<typeof DIAGNOSE_FLAGS>;

/** By command. */
export const COMMAND_FLAGS = {
  serve: SERVE_FLAGS,
  inject: INJECT_FLAGS,
  explain: EXPLAIN_FLAGS,
  certs: CERTS_FLAGS,
  watch: WATCH_FLAGS,
  diagnose: DIAGNOSE_FLAGS,
  consumers: CONSUMERS_FLAGS,
} as const;
export type CommandName = keyof typeof COMMAND_FLAGS;
