import { MODES } from '../core/schema/choices.ts';
import { LOG_LEVELS } from '../telemetry/logs.ts';
import { flag, optional, type Values } from './flag.ts';
import { list, oneOf, port, probability, seconds, text, toggle } from './readers.ts';

const policies = optional(
  text('<path>'),
  'folder or file of linger.dev policies, Namespaces and Services (*.yaml, *.yml, *.json); without it, the built-in policy',
);
const modeLimit = flag(oneOf(MODES), 'Enforce', 'caps the mode of every policy and annotation');
const namespace = flag(text('<name>'), 'default', 'namespace of the objects that name none');
const DEVELOPMENT_NAMES = 'localhost,127.0.0.1,::1';

/** `auto`: where there are credentials; `required`: not without; `off`: not at all. */
export const CLUSTER_CHOICES = ['auto', 'required', 'off'] as const;
const kubeconfig = optional(text('<file>'), 'kubeconfig of the cluster; in a pod, its ServiceAccount is used');
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
