import { MODES, PAGE_FORMAT_NAMES } from '../core/api/index.ts';
import { CHANGES, ENDPOINT_SOURCES, ENDPOINTS_CHOICES } from '../core/lag/index.ts';
import { AFTER_SIGTERM } from '../core/timeline/index.ts';
import { LOG_LEVELS } from '../telemetry/index.ts';
import {
  addressOrFiles,
  count,
  countPair,
  documented,
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

const policies = documented(
  optional(
    text('<path>'),
    'folder or file of linger.dev policies, Namespaces and Services (*.yaml, *.yml, *.json); without it, the built-in policy',
  ),
  'Folder or file of [policies](policies.md), Namespaces and Services: `*.yaml`, `*.yml`, `*.json`, not recursive. Without it: the built-in policy.',
);
const policiesReadOnce = documented(policies, 'As in `serve`, read once.');
const policiesOfCluster = documented(
  policies,
  'As in `serve`, read once. With a cluster, and without this flag: its ConfigMap `linger-policies`.',
);
const modeLimit = documented(
  flag(oneOf(MODES), 'Enforce', 'caps the mode of every policy and annotation'),
  '`Enforce`, `Audit` or `Off`: caps the mode of every policy and annotation.',
);
const namespace = documented(
  flag(name, 'default', 'namespace of the objects that name none', 'n'),
  'The namespace of objects that name none.',
);

const OUTPUT_FORMATS = ['table', 'wide', 'json', 'yaml'] as const;
export type OutputFormat = (typeof OUTPUT_FORMATS)[number];
const output = (what: string) => flag(oneOf(OUTPUT_FORMATS), 'table', `how to print ${what}`, 'o');

/** Flags that select the manifests to read, as kubectl has them. */
const MANIFEST_FLAGS = {
  filename: documented(
    optional(list('<path,...>'), 'manifests to read: files, folders, or - for standard input', 'f'),
    'Files and folders (`*.yaml`, `*.yml`, `*.json`); `-` is standard input. Repeatable.',
  ),
  recursive: documented(toggle('also read the folders in the folders named', 'R'), 'Also read subfolders.'),
  namespace,
  selector: documented(
    optional(labelQuery, 'only objects with these labels', 'l'),
    'Only objects with these labels, as for `kubectl get -l`; the others pass unchanged.',
  ),
};
const DEVELOPMENT_NAMES = 'localhost,127.0.0.1,::1';

const POLICY_REPORTS = ['off', 'wgpolicyk8s.io', 'openreports.io'] as const;

const SERVE_FLAGS = {
  port: documented(
    flag(port, '8443', 'port of the webhook (HTTPS); 0 chooses a free one'),
    'Port of the webhook, HTTPS.',
  ),
  adminPort: documented(
    flag(port, '8080', 'port of /healthz, /readyz and /metrics (HTTP); 0 chooses a free one'),
    'Port of [health, metrics and status](http.md#the-admin-port), plain HTTP.',
  ),
  pagePort: documented(
    optional(port, 'port of the page for manifests (HTTP, on 127.0.0.1 only); without it, there is none'),
    'Port of the [page](#the-page), on 127.0.0.1 only. Without it there is none.',
  ),
  host: documented(
    flag(text('<address>'), '127.0.0.1', 'address to listen on; in a pod, ::, which includes IPv4'),
    'Address that all ports listen on. In a pod use `::` (IPv6 and IPv4).',
  ),
  policies,
  strict: documented(
    toggle('do not start while a policy document cannot be used'),
    'Do not start while a policy document cannot be used. Without it, [the others are in force](operations.md#reload-of-policies).',
  ),
  certs: documented(
    flag(folder, 'certs', 'folder of tls.crt and tls.key; made there, with a CA, where there are none'),
    "Folder of `tls.crt` and `tls.key`. Without them, or once Linger's own have expired, it makes a pair for a year.",
  ),
  certNames: documented(
    flag(
      list('<name...>'),
      DEVELOPMENT_NAMES,
      'DNS names and addresses in the certificate that is made where there is none, beside --host',
    ),
    'Names in the certificate that Linger makes, besides `--host`.',
  ),
  certsSecret: documented(
    optional(
      name,
      "Secret of Linger's namespace in which replicas keep the certificate that they make, and renew it; in place of --certs",
    ),
    'Secret in which replicas [keep and renew their certificate](operations.md#certificates), in place of `--certs`. Needs a cluster and `--cert-names`.',
  ),
  webhookConfiguration: documented(
    flag(
      name,
      'linger',
      'MutatingWebhookConfiguration that is made to trust the certificate of --certs-secret',
    ),
    'MutatingWebhookConfiguration whose `caBundle` is kept, with `--certs-secret`.',
  ),
  clientCa: documented(
    optional(
      file,
      'certificates of authorities: /mutate answers only clients with a certificate from one of them',
    ),
    'PEM of authorities: `/mutate` answers [only clients with a certificate](operations.md#only-the-api-server) from one of them.',
  ),
  modeLimit,
  auditWarnings: documented(
    toggle('in mode Audit, also warn the creator of a pod of what would have been done'),
    "In mode Audit, also warn the pod's creator of what would have been done.",
  ),
  logLevel: documented(
    flag(oneOf(LOG_LEVELS), 'info', 'how much to log; debug has a line for each decision'),
    '`trace`, `debug` (a line for each decision), `info`, `warn`, `error` or `silent`.',
  ),
  drain: documented(
    flag(
      seconds,
      '15s',
      'after SIGTERM, how long to keep answering while unready before closing connections',
    ),
    "After SIGTERM: how long to keep answering, unready. The pod's own grace must be longer.",
  ),
  connectionCloseProbability: documented(
    flag(
      probability,
      '0.01',
      'share of answers after which the connection is closed, so that API servers spread over the replicas again',
    ),
    'Share of answers after which the connection is closed, so that API servers [rebalance](../decisions/0006-connection-close-probability.md).',
  ),
  cluster: documented(
    flag(
      oneOf(['auto', 'required', 'off']),
      'auto',
      'whether to read the cluster and measure its lag; auto: if there is a kubeconfig or a ServiceAccount token',
    ),
    'Whether to [follow a cluster](operations.md#following-the-cluster). `auto`: if there is a `--kubeconfig` or a ServiceAccount token; `required`: or do not start; `off`.',
  ),
  kubeconfig: documented(
    optional(file, 'kubeconfig of the cluster; in a pod, its ServiceAccount is used'),
    'Kubeconfig of the cluster, outside of it; [plugins](errors.md#credential-plugins) are run.',
  ),
  context: documented(
    optional(name, 'context of the kubeconfig, if not the current one'),
    'Context of the kubeconfig. Without it, its current one.',
  ),
  syncTimeout: documented(
    flag(seconds, '30s', 'how long to stay unready until the cluster has been read; then serve anyway'),
    'How long to stay unready until the cluster has been read; then ready with what is known.',
  ),
  namespace: documented(
    optional(
      name,
      'namespace of Linger itself, where replicas share measurements; in a pod, that of its ServiceAccount',
    ),
    "Linger's own namespace, in which replicas [share what they measure](operations.md#what-replicas-share). Without it: the pod's; with `--kubeconfig` none.",
  ),
  identity: documented(
    optional(name, 'name of this replica, such as its pod; without it, the host name'),
    "This replica's name there. Without it: the host's.",
  ),
  canaryPort: documented(
    flag(port, '8081', 'port on which replicas identify themselves to the canary (HTTP); the same for all'),
    'Port of [the canary](../measuring.md#the-canary), plain HTTP, the same for all replicas.',
  ),
  canaryEvery: documented(
    flag(
      seconds,
      '60s',
      'how often the leader takes a replica out of the Service linger-canary and back to measure consumers; 0: never',
    ),
    'How often the leader [flips a replica](../measuring.md#what-the-canary-costs) to time consumers (more often at first); `0`: never. Probes have their own `every`.',
  ),
  probeAllowLinkLocal: documented(
    toggle('let the URLs of probes and of pages lead to link-local addresses and those of cloud metadata'),
    'Let `probe` and `inspect` reach link-local addresses and those at which clouds serve credentials (such as `169.254.169.254`).',
  ),
  inspectFiles: documented(
    optional(
      folder,
      'folder of the files that DiscoveryConsumers may name: tokens, authorities and kubeconfigs',
    ),
    'Folder of the only files that DiscoveryConsumers may name: tokens, authorities, kubeconfigs; usually a mounted Secret.',
  ),
  podIp: documented(
    optional(
      text('<address>'),
      'address of this replica, for the connections that others relay to it; without it, --host or the first of this machine',
    ),
    "This replica's address, to which others relay hooks' connections. Without it: `--host`, or the first that is not loopback.",
  ),
  reportsAudience: documented(
    flag(
      text('<audience>'),
      'linger.dev/reports',
      'audience of the tokens with which instances of consumers report',
    ),
    'Audience of the tokens with which gateways [report](../gateways.md#who-may-report).',
  ),
  holdPort: documented(
    flag(port, '8445', 'port on which the helpers of hook Hold call (TCP); 0: no pod gets Hold'),
    'Port on which the helpers of hook `Hold` call, TCP. `0`: no pod gets `Hold`.',
  ),
  holdAddress: documented(
    optional(
      literalAddress,
      'where helpers call, such as 10.0.0.7:8445 or [fd00::7]:8445; without it, the ClusterIP of the Service linger-hold and --hold-port',
    ),
    'Where helpers call, such as `10.0.0.7:8445` or `[fd00::7]:8445`, never a name. Without it: the ClusterIP of the Service `linger-hold`.',
  ),
  holdImage: documented(
    optional(
      text('<image>'),
      'image with the helpers, for policies that have them delivered as an image volume',
    ),
    'Image with the helpers, for delivery `Image`.',
  ),
  holdTestImage: documented(
    optional(
      text('<image>'),
      'image of the pods that try the helper on each kind of node; without it, that of this replica’s own pod',
    ),
    "Image of the pods that [test the helper](operations.md#the-helper-of-hold). Without it: this replica's.",
  ),
  deleteOnNodeShutdown: documented(
    toggle('delete the pods of a node that is shutting down, so that their endpoints are withdrawn'),
    'Delete the pods of [nodes that shut down](operations.md#nodes-that-shut-down).',
  ),
  endpoints: documented(
    flag(
      oneOf(ENDPOINTS_CHOICES),
      'Auto',
      'whether Endpoints objects count beside EndpointSlices. Auto: while a controller maintains them; Ignore: never, where nothing else reads them',
    ),
    'Whether Endpoints objects count: `Auto`, [while a controller maintains them](operations.md#without-endpoints), or `Ignore`.',
  ),
  auditEvery: documented(
    flag(seconds, '10m', 'how often the leader audits the workloads of the cluster; 0: never'),
    'How often the leader [audits the workloads](operations.md#findings); `0`: never.',
  ),
  policyReports: documented(
    flag(
      oneOf(POLICY_REPORTS),
      'off',
      'API group of the reports with audit findings that the leader writes, one per namespace',
    ),
    "API group of the [reports](operations.md#policy-reports) of the leader's findings: `wgpolicyk8s.io` or `openreports.io`.",
  ),
};

const allowRemote = documented(
  toggle(
    'let a kustomization that is rendered fetch what it names from the network; without it, such a one is refused',
  ),
  'Let a kustomization fetch what it names from the network. Without it, [such a one is refused](#input-that-is-not-plain-manifests).',
);

const EDIT_FLAGS = {
  inPlace: documented(
    toggle('write each file in its place, and print nothing'),
    'Write each file in place, and print nothing.',
  ),
  diff: documented(
    toggle('print what would change, as a unified diff, and not the manifests'),
    'Print a unified diff instead of the manifests.',
  ),
};

const INJECT_FLAGS = {
  ...MANIFEST_FLAGS,
  policies: policiesReadOnce,
  allowRemote,
  refresh: documented(
    toggle('decide again for workloads that have been injected before'),
    'Decide again for workloads that carry a plan.',
  ),
  ...EDIT_FLAGS,
};

const UNINJECT_FLAGS = { ...MANIFEST_FLAGS, allowRemote, ...EDIT_FLAGS };

const lingerNamespace = documented(
  optional(name, 'namespace in which Linger runs; without it, where its webhook leads'),
  "Namespace in which Linger runs. Without it: the webhook configuration's, or `linger`.",
);

const EXPLAIN_FLAGS = {
  ...MANIFEST_FLAGS,
  allowRemote,
  namespace: documented(
    optional(
      name,
      'namespace of the objects that name none; of objects of the cluster, without it, that of the context',
      'n',
    ),
    'The namespace of objects that name none (`default`); for `deployment/web` without it that of the context.',
  ),
  policies: policiesOfCluster,
  modeLimit,
  kubeconfig: documented(
    optional(
      file,
      'kubeconfig of a cluster to read Namespaces, Services, versions, policies and the planned lags from; without it and --context, none is read',
    ),
    'Kubeconfig of a cluster to ask; [plugins](errors.md#credential-plugins) are run.',
  ),
  context: documented(
    optional(name, 'context of the kubeconfig; without --kubeconfig, of the one kubectl would use'),
    'Context of that kubeconfig, or of the one that kubectl would use.',
  ),
  lingerNamespace,
  output: documented(
    output('the decisions'),
    '`table`; `wide`: with every field of the policy; `json` or `yaml`.',
  ),
  failOn: documented(
    optional(
      list('<code,...>'),
      'exit 3 when a decision has one of these skip reasons or note codes; "skip" stands for every reason',
    ),
    'Exit 3 on one of these [reasons or notes](reasons.md); `skip` stands for every reason.',
  ),
};

const CLUSTER_FLAGS = {
  kubeconfig: documented(
    optional(
      file,
      'kubeconfig to use; without it $KUBECONFIG, else ~/.kube/config, else in a pod its ServiceAccount',
    ),
    'Kubeconfig to use. Without it `KUBECONFIG`, then `~/.kube/config`, then in a pod its ServiceAccount.',
  ),
  context: documented(
    optional(name, "context of the kubeconfig; without it, the kubeconfig's current one"),
    'Context of the kubeconfig. Without it, its current one.',
  ),
};

const AUDIT_FORMATS = [...OUTPUT_FORMATS, 'sarif', 'github', 'junit', 'markdown', 'name'] as const;

const AUDIT_FLAGS = {
  ...CLUSTER_FLAGS,
  kubeconfig: documented(
    CLUSTER_FLAGS.kubeconfig,
    'As in `explain`; without files, the one that kubectl would use.',
  ),
  filename: MANIFEST_FLAGS.filename,
  recursive: MANIFEST_FLAGS.recursive,
  allowRemote,
  namespace: documented(
    optional(
      name,
      'of a cluster, only this namespace; of manifests, the namespace of the objects that name none',
      'n',
    ),
    'In a cluster: only this namespace. In manifests: the namespace of objects that name none (`default`).',
  ),
  allNamespaces: documented(
    toggle('all namespaces of the cluster, as without --namespace', 'A'),
    'All namespaces, as without `--namespace`.',
  ),
  selector: documented(MANIFEST_FLAGS.selector, 'Only workloads with these labels.'),
  policies: policiesOfCluster,
  modeLimit,
  lingerNamespace,
  since: documented(
    optional(
      seconds,
      'review the terminations within this time, such as 2h, in a cluster in which Linger runs',
    ),
    'Instead: [which pods were stopped too early](#termination-review) in that time, such as `2h`.',
  ),
  webhook: documented(
    toggle('of manifests: assume that Linger’s webhook runs where they are applied'),
    "For manifests: Linger's webhook [is there](#with-the-webhook-and-without).",
  ),
  suggest: documented(
    toggle('instead: print the smallest policies that protect what can be protected, with their cost'),
    'Instead: print the smallest policies that protect what policies can, with what they change and cost. Implies `--webhook`.',
  ),
  baseline: documented(
    optional(
      text('<file|commit>'),
      'leave out the findings of this earlier audit (-o json), or of the same files at this commit of git',
    ),
    'Leave out the findings of an earlier audit: a file of `-o json`, or a commit, such as `origin/main`.',
  ),
  allowEmpty: documented(
    toggle('with --fail-on: an input without any workload is no failure'),
    'With `--fail-on`: an input without any workload is no failure.',
  ),
  serverDryRun: documented(
    toggle(
      'also check by dry run whether the cluster accepts the pods with their waits; needs the permission to create pods',
    ),
    'Also [test](#server-side-dry-run) whether the cluster would take the pods with their waits.',
  ),
  output: documented(
    flag(oneOf(AUDIT_FORMATS), 'table', 'how to print the findings', 'o'),
    '`table`; `wide`: with what is skipped, and every finding in full; `json`, `yaml`, `name`, `sarif`, `github`, `junit`, `markdown`.',
  ),
  failOn: documented(
    optional(
      list('<code,...>'),
      'exit 3 when a workload has one of these verdicts, findings or skip reasons; "any" stands for unprotected',
    ),
    'Exit 3 on one of these verdicts, findings or skip reasons; `any` stands for `unprotected`.',
  ),
};

const DASHBOARD_FLAGS = {
  ...CLUSTER_FLAGS,
  demo: documented(
    toggle('show a recording of a test cluster, which runs again and again'),
    'Show a recording of a test cluster, and none of yours.',
  ),
  filename: documented(MANIFEST_FLAGS.filename, 'Show these manifests, and no cluster.'),
  recursive: MANIFEST_FLAGS.recursive,
  allowRemote,
  namespace: AUDIT_FLAGS.namespace,

  policies: policiesOfCluster,
  lingerNamespace,
  port: documented(
    flag(port, '8089', 'port of the page on 127.0.0.1; 0 chooses a free one'),
    'Port of the page, on 127.0.0.1.',
  ),
  noOpen: documented(toggle('only print the address; do not open a browser'), 'Only print the address.'),
};

const TIMELINE_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: optional(name, 'namespace of the pods; without it, that of the context', 'n'),
  allNamespaces: toggle('pods of all namespaces', 'A'),
  lingerNamespace,
  since: documented(
    optional(seconds, 'only terminations within this time, such as 10m; without it, all that are known'),
    'Only terminations within this time, such as `10m`.',
  ),
  watch: documented(
    toggle('also those that are to come, until interrupted', 'w'),
    'Also those that are to come, until Ctrl-C.',
  ),
  svg: documented(optional(file, 'also draw them, into this file'), 'Also draw it into this file.'),
  output: documented(
    output('the terminations; wide: all, and not only the latest ten'),
    '`table`, `wide` (all, and not only the latest ten), `json`, `yaml`.',
  ),
  failOn: documented(
    optional(
      someOf(AFTER_SIGTERM),
      'exit 3 when this is so for a termination: something may have sent to the pod after SIGTERM, or that is not known',
    ),
    'Exit 3 when `afterSigterm` of a termination is one of these: `sent`, `unknown`, `clear`.',
  ),
};

const CHECK_FLAGS = {
  policies: documented(policies, 'Folder or file of [policies](policies.md).'),
  ...CLUSTER_FLAGS,
  pre: documented(
    toggle('of a cluster: whether Linger can be installed there, and not how it runs'),
    'Check whether Linger can be installed, not how it runs.',
  ),
  namespace: documented(
    flag(name, 'default', 'of a cluster: the namespace in which a pod is tried, as a dry run', 'n'),
    'Namespace for the dry run of a pod.',
  ),
  lingerNamespace: documented(lingerNamespace, 'Namespace in which Linger runs, or will run.'),
  webhookConfiguration: flag(name, 'linger', 'name of its MutatingWebhookConfiguration'),
  output: documented(output('what was found'), '`table`, `wide`, `json` or `yaml`.'),
  failOn: documented(
    optional(
      someOf(['warning', 'unknown']),
      'of a cluster: exit 3 when there is no failure but one of these',
    ),
    '`warning`, `unknown` or both: exit 3.',
  ),
};

const SIMULATE_FLAGS = {
  policies: policiesReadOnce,
  namespace: flag(name, 'default', 'namespace of the pods whose wait is printed', 'n'),
  output: documented(
    flag(oneOf(['table', 'json']), 'table', 'how to print the waits', 'o'),
    '`table` or `json`.',
  ),
};

const CERTS_FLAGS = {
  dns: documented(
    flag(list('<name...>'), DEVELOPMENT_NAMES, 'DNS names and addresses that the certificate is for'),
    'DNS names and addresses that the certificate is for; in `deploy/`, `linger.linger.svc`.',
  ),
  out: documented(
    flag(folder, 'certs', 'folder for ca.crt, tls.crt and tls.key; kept while they are valid'),
    'Folder for `ca.crt`, `tls.crt` and `tls.key`.',
  ),
};

const WATCH_FLAGS = {
  ...CLUSTER_FLAGS,
  context: documented(
    optional(
      list('<name...>'),
      "contexts of the kubeconfig, each a cluster to watch; without it, the kubeconfig's current one",
    ),
    'Contexts of the kubeconfig, each a cluster to watch.',
  ),
  namespace: documented(
    optional(list('<name...>'), 'namespaces to watch; without it, all', 'n'),
    'Namespaces to watch. Without it, all.',
  ),
  allNamespaces: documented(
    toggle('watch all namespaces, whatever --namespace says', 'A'),
    'All namespaces, overriding `--namespace`.',
  ),
  service: documented(
    optional(list('<name...>'), 'Services to watch; without it, all'),
    'Services to watch. Without it, all.',
  ),
  pod: documented(
    optional(text('<pattern>'), 'only pods of this name; * and ? stand for any characters and any one'),
    'Only pods of this name; `*` and `?` are wildcards.',
  ),
  selector: documented(
    optional(labelQuery, 'only pods with these labels, as kubectl get pods -l selects them', 'l'),
    'Only [pods with these labels](#pods-by-their-labels).',
  ),
  source: documented(
    flag(someOf(ENDPOINT_SOURCES), ENDPOINT_SOURCES.join(','), 'where endpoints are read'),
    'Where endpoints are read. With one, the other is not watched.',
  ),
  change: documented(
    flag(someOf(CHANGES), CHANGES.join(','), 'which changes to print'),
    'Which changes to print. The summary counts all.',
  ),
  minLag: documented(
    optional(seconds, 'print only changes with a lag of at least this'),
    'Print only changes with a lag of at least this.',
  ),
  initial: documented(
    toggle('also print what is there at the beginning'),
    'Also print existing endpoints at the start, as if added.',
  ),
  output: documented(
    output('changes; json: one object a line; yaml: one document each'),
    '`table`; `wide`: with dates and namespaces; `json`: one object a line; `yaml`: one document each.',
  ),
  for: documented(
    optional(seconds, 'how long to watch; without it, until Ctrl-C'),
    'How long to watch. Without it, until Ctrl-C.',
  ),
  failOnLag: documented(
    optional(seconds, 'exit 3 when a removal took longer than this, or is still under way after it'),
    'Exit 3 when a removal took longer than this, or is still pending after it.',
  ),
  quiet: documented(toggle('print changes only: no notes and no summary'), 'Print changes only.'),
};

const CONSUMERS_FLAGS = {
  ...CLUSTER_FLAGS,
  lingerNamespace,
  filename: documented(
    optional(
      list('<path,...>'),
      'discover: manifests to search instead of the cluster: files, folders, or - for standard input',
      'f',
    ),
    '`discover`: manifests to search instead of the cluster.',
  ),
  recursive: documented(
    toggle('discover: also read the folders in the folders named', 'R'),
    '`discover`: also read subfolders.',
  ),
  allowRemote,
  apply: documented(
    toggle('discover: create what was found, with mode Observe; what exists stays as it is'),
    '`discover`: create what is not declared yet, with `mode: Observe`.',
  ),
  output: documented(
    optional(
      oneOf(OUTPUT_FORMATS),
      'how to print the consumers; without it table, and discover prints YAML to apply',
      'o',
    ),
    '`table`, `wide` (with `ADDED P99`), `json` or `yaml`; `discover` prints YAML.',
  ),
  failOn: documented(
    optional(
      list('<reason,...>'),
      'exit 3 when a condition has one of these reasons; "any" stands for every reason that makes the lag unreliable',
    ),
    'Exit 3 on one of these [reasons](consumers.md#conditions); `any`: all with status False.',
  ),
};

const WITNESS_FLAGS = {
  listen: documented(
    flag(text('<[address]:port>'), ':8446', 'where to answer (HTTP)'),
    'Where to answer, plain HTTP.',
  ),
  page: documented(
    optional(
      text('<url|unix:path>'),
      'where the gateway lists its upstreams: a URL, or the path of a Unix socket',
    ),
    'Where the gateway lists its upstreams: a URL, or `unix:/path/of/a.sock` (Envoy: HTTP; HAProxy: commands).',
  ),
  format: documented(
    flag(oneOf(PAGE_FORMAT_NAMES), 'Envoy', 'how the page says that an address is in use'),
    '[How the page says](../gateways.md#a-gateway-that-is-asked-what-it-still-uses) that an address is in use.',
  ),
};

const NODE_TIMER_FLAGS = {
  clusterIp: documented(
    optional(text('<address>'), 'ClusterIP of the Service linger-canary; its port is 80'),
    'ClusterIP of the Service `linger-canary`. Required.',
  ),
  port: documented(
    flag(port, '8447', 'port on which the leader fetches what was timed (HTTP)'),
    'Port on which the leader fetches what was timed, plain HTTP.',
  ),
};

const STATUS_FLAGS = {
  ...CLUSTER_FLAGS,
  lingerNamespace,
  watch: documented(
    toggle('print it again whenever it changes, until interrupted', 'w'),
    'Print it again whenever it changes, until Ctrl-C.',
  ),
  output: documented(output('what is seen'), '`table`, `wide`, `json` or `yaml`.'),
};

const HISTORY_FLAGS = {
  ...CLUSTER_FLAGS,
  lingerNamespace,
  from: documented(
    optional(instant, 'forget: from when on'),
    '`forget`: from when on, such as `2026-11-21T17:30:00Z`.',
  ),
  to: documented(optional(instant, 'forget: until when'), '`forget`: until when.'),
  namespace: documented(
    optional(name, 'forget: only what was measured of this namespace', 'n'),
    "`forget`: only this namespace's samples.",
  ),
  consumer: documented(
    optional(name, 'forget: only what was measured of this consumer'),
    "`forget`: only this consumer's samples.",
  ),
  output: documented(output('the episodes'), '`table`, `wide`, `json` or `yaml`.'),
};

const HOLD_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: documented(
    optional(
      list('<name...>'),
      'list: only pods of these namespaces; manifest: namespaces that are to have the helper, without it none is named',
      'n',
    ),
    '`list`: only pods of these namespaces. `manifest`: the namespaces that need the helper.',
  ),
  lingerNamespace: documented(
    lingerNamespace,
    "Namespace in which Linger runs. Without it: the webhook configuration's, or `linger`.",
  ),
  watch: documented(
    toggle('list: print again every two seconds, until interrupted', 'w'),
    '`list`: print every two seconds.',
  ),
  output: documented(
    output('the result; manifest: YAML, or JSON where that is asked for'),
    '`table`, `wide`, `json` or `yaml`; `manifest` prints YAML.',
  ),
};

const DIAGNOSE_FLAGS = {
  ...CLUSTER_FLAGS,
  controllerMetrics: documented(
    optional(
      addressOrFiles('<url|file,...>'),
      'metrics of the kube-controller-manager: a URL, or one or two saved scrapes, the older first; - is standard input; without it, by way of the API server',
    ),
    'Metrics of kube-controller-manager: a URL, or one or two saved scrapes, the older first. Without it: [through the API server](#the-controller-managers-metrics).',
  ),
  controllerMetricsCa: documented(
    optional(file, 'CA of the certificate at that URL'),
    'File with the CA of the certificate there.',
  ),
  controllerMetricsTokenFile: documented(
    optional(file, 'file with a token for that URL'),
    "File with a token for that URL, instead of the kubeconfig's client certificate.",
  ),
  controllerMetricsInsecure: documented(
    toggle('do not verify the certificate at that URL'),
    'Do not verify the certificate there, and send no token.',
  ),
  controllerFlags: documented(
    optional(
      text('<flags>'),
      'flags of the kube-controller-manager, in one argument; without it, those of its pod',
    ),
    'Its flags, in one argument, if its pod does not show them.',
  ),
  linger: documented(
    optional(text('<url|file>'), 'metrics of a running Linger, for the lag it has measured'),
    'Metrics of a running Linger: a URL, a file or `-`.',
  ),
  lag: documented(
    flag(
      oneOf(['watch', 'off']),
      'watch',
      'whether to watch removals meanwhile, where --linger is not given',
    ),
    '`watch`: watch removals meanwhile, without `--linger`; or `off`.',
  ),
  interval: documented(
    flag(seconds, '10s', 'between two looks; 0 looks once. Of two saved scrapes: how far they are apart'),
    'Time between two readings, or two saved scrapes; `0` reads once.',
  ),
  output: documented(output('the findings'), '`table`; `wide`: unwrapped; `json` or `yaml`.'),
  failOn: documented(
    optional(
      list('<code,...>'),
      'exit 3 when one of these is found; "any" stands for every one that is critical or a warning',
    ),
    'Exit 3 on one of these [findings](#what-a-diagnosis-finds); `any`: critical or a warning.',
  ),
};

const PROVE_FORMATS = ['table', 'json', 'yaml', 'junit', 'markdown'] as const;

const PROVE_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: documented(
    optional(name, 'namespace of the workload; without it, that of the context', 'n'),
    'Namespace of the workload. Without it, that of the context.',
  ),
  rollout: documented(
    toggle('restart the workload, as kubectl rollout restart does: the default'),
    'Restart the workload: the default.',
  ),
  deleteOne: documented(toggle('delete the oldest ready pod'), 'Delete the oldest ready pod.'),
  evict: documented(toggle('evict the oldest ready pod'), 'Evict the oldest ready pod.'),
  scale: documented(
    optional(countPair, 'scale to the first number beforehand, and then to the second; restored at the end'),
    '`FROM,TO`: scale to `FROM`, then to `TO` under traffic, and back at the end.',
  ),
  drain: documented(
    optional(name, 'cordon this node and evict the pods of the workload from it; uncordoned at the end'),
    "Cordon this node and evict the workload's pods from it; uncordon it at the end.",
  ),
  service: documented(
    optional(text('<name[:port]>'), 'Service to send through; without it, the one that selects the pods'),
    '`NAME` or `NAME:PORT`. Without it, the one that selects the pods.',
  ),
  urlsOnly: documented(
    toggle('send through no Service, only through each --url'),
    'Send only through each `--url`.',
  ),
  url: documented(
    optional(
      list('<[name=]url>'),
      'also send through this gateway, such as edge=https://shop.example; may be repeated',
    ),
    '`URL` or `NAME=URL`: also send through this gateway. Repeatable.',
  ),
  urlFrom: documented(
    flag(oneOf(['here', 'cluster']), 'here', 'where requests through each --url come from'),
    'Where those come from: `here` (this machine) or `cluster`.',
  ),
  insecure: documented(
    toggle('do not verify the certificate at a --url'),
    "Do not verify the certificate at a `--url` (a Service's never is).",
  ),
  rate: documented(
    flag(count, '50', 'requests a second through each way, each on a new connection'),
    'Requests a second through each way in, each on a new connection; 716 in all at most.',
  ),
  keepAlive: documented(
    toggle('also send at the same rate on connections that stay open'),
    'Also send at that rate on 8 connections per sender that stay open.',
  ),
  method: documented(flag(text('<method>'), 'GET', 'HTTP method'), 'HTTP method of the requests.'),
  path: documented(
    flag(text('<path>'), '/', 'path, where a --url has none of its own'),
    'Path, unless a `--url` has one.',
  ),
  header: documented(
    optional(list('<name:value>'), 'header of each request; visible in the Job while it runs'),
    "`NAME:VALUE`, repeatable. The namespace's readers see it in the Job.",
  ),
  timeout: documented(
    flag(seconds, '3s', 'after which a request is lost'),
    'After which a request is lost; 10 ms to 1 min.',
  ),
  slow: documented(
    flag(seconds, '1s', 'after which an answer is slow'),
    'After which an answer is `slow`: explained, not counted as lost.',
  ),
  calm: flag(seconds, '5s', 'how long to send before the disturbance'),
  quiet: documented(
    flag(seconds, '12s', 'for how long nothing may be lost afterwards until all counts as quiet'),
    "The run ends once nothing has been lost for this long: longer than the slowest gateway's interval.",
  ),
  for: documented(
    flag(seconds, '10m', 'at most, from the disturbance on'),
    'At most this long after the disturbance; 1 h at most, less at high rates (69 s at 500).',
  ),
  image: documented(
    optional(
      text('<image>'),
      'image of Linger to send traffic from; without it, that of the Linger that runs here',
    ),
    'Image that sends traffic. Without it, that of the Linger in the cluster.',
  ),
  lingerNamespace: documented(
    optional(name, 'namespace in which Linger runs, for its image; without it, linger'),
    'Where Linger runs, for its image (`linger`).',
  ),
  compare: documented(
    toggle('disturb two copies in namespaces of their own, with and without the waits of Linger'),
    'Disturb [two copies](#prove---compare) instead, with and without waits. Not with `--url` or `--drain`.',
  ),
  copySecrets: documented(
    toggle('with --compare: also copy the Secrets that the pods use'),
    'With `--compare`: also copy the Secrets that the pods name.',
  ),
  yes: documented(toggle('do not ask before anything is touched', 'y'), 'Do not ask.'),
  maxLost: documented(
    flag(count, '0', 'exit 3 when more requests than this were lost'),
    'Exit 3 if more requests were lost (`--compare`: by the copy with waits).',
  ),
  svg: documented(
    optional(file, 'also draw the run into this file: each way with its requests, each pod that ended'),
    'Also draw the run into this file.',
  ),
  output: documented(
    flag(oneOf(PROVE_FORMATS), 'table', 'how to print the result', 'o'),
    '`table`, `json`, `yaml`, `junit` or `markdown`.',
  ),
};

const PROVE_KEEP_FLAGS = {
  ...CLUSTER_FLAGS,
  namespace: documented(flag(name, 'default', 'namespace to remove'), 'The namespace.'),
};

const PROVE_TRAFFIC_FLAGS = {
  plan: documented(
    flag(text('<json>'), '{}', 'what to send, as prove writes it'),
    'What to send, as `prove` writes it.',
  ),
};

const VERSION_FLAGS = {
  output: documented(
    flag(oneOf(['table', 'json', 'yaml'] as const), 'table', 'how to print it', 'o'),
    '`table`, `json` or `yaml`.',
  ),
};

/** The headings of the help. */
const GROUPS = {
  manifests: 'Manifests, and workloads of a cluster:',
  running: 'Linger in a cluster:',
  measuring: 'Measuring and proving:',
  serving: 'What runs as a server:',
  others: 'Others:',
} as const;

/** The heading under which commander lists its own `help`. */
export const OTHERS = GROUPS.others;

export interface Verb<F extends Flags = Flags> {
  /** Its heading in the help. `internal`: Linger runs it in pods of its own, so it appears in no help and no completion. */
  readonly group: (typeof GROUPS)[keyof typeof GROUPS] | 'internal';
  /** Its line in the help. */
  readonly about: string;
  /** Its row in the reference: Markdown, whose links are relative to docs/reference. */
  readonly reference: string;
  readonly flags: F;
  /** The operands: their name and description in the help, and the words to choose from, if limited. */
  readonly operands?: readonly [argument: string, about: string, choices?: readonly string[]];
  /** Command lines for a shell, each with what it does. */
  readonly examples: readonly (readonly [line: string, does: string])[];
}

/** Returns the entry, and lets TypeScript infer the type of its flags. */
function verb<F extends Flags>(entry: Verb<F>): Verb<F> {
  return entry;
}

const MANIFESTS = ['[files...]', 'manifests; - is standard input'] as const;
const POLICIES = [
  '[paths...]',
  'folders and files of policies, as for --policies; without any, the cluster is asked',
] as const;
const EVENTS = ['[file]', 'events, one JSON object a line; - is standard input'] as const;

/** All commands, in the order in which the help lists them. A new one also has its line in run.ts. */
export const VERBS = {
  audit: verb({
    group: GROUPS.manifests,
    about: 'Find workloads that lose requests when their pods terminate, in a cluster or in manifests.',
    reference: 'Shows which workloads of a cluster, or of manifests, lose requests, and why.',
    flags: AUDIT_FLAGS,
    operands: MANIFESTS,
    examples: [
      ['linger audit', 'Judge the workloads of the current context'],
      [
        'linger audit -f deploy/ -R --fail-on any',
        'Judge manifests in CI: exit code 3 when requests would be lost',
      ],
    ],
  }),
  explain: verb({
    group: GROUPS.manifests,
    about: 'Explain the decision for the pods of manifests or of a live workload.',
    reference: 'Shows what pods get, and why: of manifests, or of `deployment/web` in a cluster.',
    flags: EXPLAIN_FLAGS,
    operands: MANIFESTS,
    examples: [
      [
        'linger explain deployment/web -n shop',
        'Show what the pods of a running Deployment get today, and what they got',
      ],
      ['helm template chart/ | linger explain -', 'Show what the pods of a chart would get'],
    ],
  }),
  inject: verb({
    group: GROUPS.manifests,
    about: 'Add hooks and grace to manifests.',
    reference: 'Adds hooks and grace to manifests.',
    flags: INJECT_FLAGS,
    operands: MANIFESTS,
    examples: [
      ['linger inject -f web.yaml | kubectl apply -f -', 'Apply manifests with hooks and grace periods'],
      ['linger inject -f deploy/ -R --diff', 'Show what would change'],
    ],
  }),
  uninject: verb({
    group: GROUPS.manifests,
    about: 'Remove from manifests what inject has added.',
    reference: 'Removes what `inject` has added.',
    flags: UNINJECT_FLAGS,
    operands: MANIFESTS,
    examples: [
      ['linger uninject -f web.yaml | kubectl apply -f -', 'Apply manifests without what inject has added'],
      ['linger uninject -f deploy/ -R --in-place', 'Remove it from the files themselves'],
    ],
  }),
  check: verb({
    group: GROUPS.running,
    about: 'Check whether Linger works in a cluster or can be installed there, or validate policies.',
    reference:
      'Checks whether Linger works, or (`--pre`) can be installed; with paths, whether [policies](policies.md) can be used.',
    flags: CHECK_FLAGS,
    operands: POLICIES,
    examples: [
      ['linger check --pre', 'Check whether Linger can be installed in the cluster'],
      ['linger check policies/', 'Check whether files of policies can be used'],
    ],
  }),
  status: verb({
    group: GROUPS.running,
    about: 'Show the state of a running Linger: modes, waits, decisions, holds, findings.',
    reference: 'Shows on one screen what a running Linger does.',
    flags: STATUS_FLAGS,
    examples: [
      ['linger status', 'Show what Linger does in the current context'],
      ['linger status -o json | jq .headline', 'Print its first line alone'],
    ],
  }),
  dashboard: verb({
    group: GROUPS.running,
    about: 'Show in a browser which workloads lose requests, and what is being removed and held now.',
    reference: 'Shows what `audit` finds in a browser, with removals, holds, lags and consumers.',
    flags: DASHBOARD_FLAGS,
    examples: [
      ['linger dashboard --demo', 'Show a recording of a test cluster in it'],
      ['linger dashboard -f deploy/ -R', 'Show manifests in it'],
    ],
  }),
  timeline: verb({
    group: GROUPS.running,
    about: 'Show when everything happened in the last terminations, and what sent to a pod after SIGTERM.',
    reference: 'Shows what happened when in the latest terminations. Needs Linger in the cluster.',
    flags: TIMELINE_FLAGS,
    operands: ['[KIND/NAME...]', 'workloads or pods, such as deployment/web or pod/web-1; without any, all'],
    examples: [
      ['linger timeline deployment/web -n shop', 'Show the latest terminations of a Deployment'],
      [
        'linger timeline -A --since 10m --fail-on sent',
        'Exit with code 3 when a pod got traffic after SIGTERM',
      ],
    ],
  }),
  consumers: verb({
    group: GROUPS.running,
    about: 'Show the measured lag of each consumer, and its problems.',
    reference: 'Shows what is measured of each consumer; `discover` finds consumers.',
    flags: CONSUMERS_FLAGS,
    operands: [
      '[action]',
      'list (the default), or discover: find what sends traffic to pods and declare it',
      ['list', 'discover'],
    ],
    examples: [
      ['linger consumers', 'Show the measured lag of each consumer'],
      ['linger consumers discover --apply', 'Declare what sends traffic to pods, with mode Observe'],
    ],
  }),
  history: verb({
    group: GROUPS.running,
    about: 'List episodes (storms, bad releases) that raise the waits, or remove one.',
    reference: 'Lists the storms and releases that raise waits, and forgets one.',
    flags: HISTORY_FLAGS,
    operands: ['[action]', 'list (the default) or forget', ['list', 'forget']],
    examples: [
      ['linger history', 'List the episodes that raise waits'],
      [
        'linger history forget --from 2026-11-21T17:30:00Z --to 2026-11-21T18:00:00Z',
        'Forget what was measured in half an hour',
      ],
    ],
  }),
  hold: verb({
    group: GROUPS.running,
    about: 'List the pods held by hook Hold, or print the ConfigMap with its helper.',
    reference: "Shows the pods that are held now, or prints the helper's ConfigMap.",
    flags: HOLD_FLAGS,
    operands: [
      '[action]',
      'list (the default), or manifest: the ConfigMap, for kubectl apply',
      ['list', 'manifest'],
    ],
    examples: [
      ['linger hold list --watch', 'Follow which pods are held'],
      ['linger hold manifest -n shop | kubectl apply -f -', 'Bring the helper into a namespace'],
    ],
  }),
  watch: verb({
    group: GROUPS.measuring,
    about: 'Print endpoint changes as they happen, with their lag.',
    reference: 'Prints endpoint changes as they happen, with their lag.',
    flags: WATCH_FLAGS,
    examples: [
      ['linger watch -n shop --for 10m', 'Print the endpoint changes of a namespace for ten minutes'],
      [
        'linger watch --change removed --fail-on-lag 5s',
        'Exit with code 3 when a removal took longer than 5 s',
      ],
    ],
  }),
  diagnose: verb({
    group: GROUPS.measuring,
    about: 'Diagnose why endpoints are withdrawn late, and suggest flags.',
    reference: 'Shows why endpoints are withdrawn late, and which flags to set.',
    flags: DIAGNOSE_FLAGS,
    examples: [
      ['linger diagnose', 'Find out why endpoints are withdrawn late'],
      [
        'linger diagnose --controller-metrics before.txt,after.txt --interval 30s',
        'Do so from two saved scrapes',
      ],
    ],
  }),
  simulate: verb({
    group: GROUPS.measuring,
    about: 'Replay recorded removals and print the waits that Linger would have planned.',
    reference: 'Shows which waits recorded removals would have led to.',
    flags: SIMULATE_FLAGS,
    operands: EVENTS,
    examples: [
      [
        'linger simulate events.jsonl --policies policies/',
        'Print the waits that recorded removals would have led to',
      ],
      ['gunzip -c events.jsonl.gz | linger simulate -', 'Do so for a compressed file'],
    ],
  }),
  prove: verb({
    group: GROUPS.measuring,
    about: 'Send traffic to a workload, disturb it once, and show what was lost and why.',
    reference: 'Sends traffic to a workload, disturbs it once, and shows what was lost and why.',
    flags: PROVE_FLAGS,
    operands: ['[kind/name]', 'the workload, such as deployment/web'],
    examples: [
      ['linger prove deployment/web -n shop', 'Restart a Deployment under traffic, and show what was lost'],
      ['linger prove deployment/web -n shop --compare', 'Compare two copies of it, with and without waits'],
    ],
  }),
  serve: verb({
    group: GROUPS.serving,
    about: 'Serve the admission webhook.',
    reference: 'Serves the admission webhook until SIGTERM.',
    flags: SERVE_FLAGS,
    examples: [
      ['linger serve --page-port 8088', 'Serve the webhook, and the page for manifests'],
      [
        'linger serve --policies policies/ --cluster off --log-level debug',
        'Serve files of policies, without a cluster',
      ],
    ],
  }),
  witness: verb({
    group: GROUPS.serving,
    about: 'Run beside a gateway and report whether it uses an address.',
    reference: 'Runs beside a gateway, and answers whether it uses an address.',
    flags: WITNESS_FLAGS,
    examples: [
      ['linger witness --page http://127.0.0.1:9901/clusters', 'Answer for the Envoy beside it'],
      ['linger witness --page unix:/run/haproxy.sock --format HAProxy', 'Answer for the HAProxy beside it'],
    ],
  }),
  'node-timer': verb({
    group: GROUPS.serving,
    about: 'Run on every node and time its kube-proxy for the leader; the DaemonSet runs this.',
    reference: 'Runs on every node, and times its kube-proxy.',
    flags: NODE_TIMER_FLAGS,
    examples: [
      ['linger node-timer --cluster-ip 10.96.31.7', 'Time the kube-proxy of this node'],
      ['linger node-timer --cluster-ip fd00::7 --port 9447', 'Do so with another port for the leader'],
    ],
  }),
  certs: verb({
    group: GROUPS.others,
    about: 'Make a CA and a serving certificate; print the caBundle.',
    reference: 'Makes an authority and a serving certificate.',
    flags: CERTS_FLAGS,
    examples: [
      ['linger certs --dns linger.linger.svc --out certs', 'Make a certificate for the webhook in deploy/'],
      ['linger certs', 'Make one for a webhook on this machine'],
    ],
  }),
  completion: verb({
    group: GROUPS.others,
    about: 'Print a shell completion script.',
    reference: 'Prints a completion script for `bash`, `zsh` or `fish`.',
    flags: {},
    operands: ['<shell>', 'the shell', ['bash', 'zsh', 'fish']],
    examples: [
      ['source <(linger completion bash)', 'Complete commands in this bash'],
      ['linger completion fish > ~/.config/fish/completions/linger.fish', 'Complete them in every fish'],
    ],
  }),
  version: verb({
    group: GROUPS.others,
    about: 'Print the version.',
    reference: 'Prints the version, that of Node.js and, where it is known, the commit.',
    flags: VERSION_FLAGS,
    examples: [
      ['linger version', 'Print the version'],
      ['linger version -o json', 'Print it for a program'],
    ],
  }),
  'prove-traffic': verb({
    group: 'internal',
    about: 'Send the traffic of prove; its pods run this.',
    reference: 'Sends the traffic of `prove`: its pods run this.',
    flags: PROVE_TRAFFIC_FLAGS,
    examples: [],
  }),
  'prove-keep': verb({
    group: 'internal',
    about: 'Remove the namespace of a copy of prove when it ends; its pods run this.',
    reference: 'Removes a copy of `prove --compare`: a pod runs this.',
    flags: PROVE_KEEP_FLAGS,
    examples: [],
  }),
};

export type CommandName = keyof typeof VERBS;

export interface Operands {
  readonly operands: readonly string[];
}

export type Settings<C extends CommandName> = Values<(typeof VERBS)[C]['flags']> & Operands;
