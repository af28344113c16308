import type { CommandName, VERBS } from '../../src/cli/commands.ts';
import { flagName } from '../../src/cli/flags.ts';

/** One flag: what it is worth by default, some ways to write it, and what is refused. */
export interface Row {
  readonly byDefault: unknown;
  /** Written → read. */
  readonly reads: readonly (readonly [written: string, value: unknown])[];
  readonly refuses: readonly string[];
}

/** One for each flag. */
type Rows<C extends CommandName> = Readonly<Record<keyof (typeof VERBS)[C]['flags'], Row>>;

const DEVELOPMENT_NAMES = ['localhost', '127.0.0.1', '::1'];
const PORTS: Omit<Row, 'byDefault'> = {
  reads: [
    ['0', 0],
    ['1', 1],
    ['65535', 65_535],
    ['08080', 8080],
  ],
  refuses: ['', 'http', '-1', '65536', '80.5', '1e3', '0x50', ' 80', '80 ', '٣', '99999999999999999999'],
};
const MODES: Row = {
  byDefault: 'Enforce',
  reads: [
    ['Enforce', 'Enforce'],
    ['audit', 'Audit'],
    ['OFF', 'Off'],
  ],
  refuses: ['', 'None', 'Enforced', 'Audit,Off', 'constructor'],
};
const TEXT = (byDefault: unknown): Row => ({
  byDefault,
  reads: [['some/where', 'some/where']],
  refuses: ['', '  '],
});

const NAMES: Row = {
  byDefault: DEVELOPMENT_NAMES,
  reads: [
    ['a.example', ['a.example']],
    ['a.example, 10.0.0.1,::1', ['a.example', '10.0.0.1', '::1']],
    ['a,,b,', ['a', 'b']],
  ],
  refuses: ['', ',', ' , '],
};

const SERVE: Rows<'serve'> = {
  port: { byDefault: 8443, ...PORTS },
  adminPort: { byDefault: 8080, ...PORTS },
  pagePort: { byDefault: undefined, ...PORTS },
  host: {
    byDefault: '127.0.0.1',
    reads: [
      ['::', '::'],
      ['0.0.0.0', '0.0.0.0'],
    ],
    refuses: ['', ' '],
  },
  policies: TEXT(undefined),
  strict: { byDefault: false, reads: [], refuses: [] },
  certs: TEXT('certs'),
  certNames: NAMES,
  certsSecret: TEXT(undefined),
  webhookConfiguration: TEXT('linger'),
  clientCa: TEXT(undefined),
  modeLimit: MODES,
  auditWarnings: { byDefault: false, reads: [], refuses: [] },
  logLevel: {
    byDefault: 'info',
    reads: ['trace', 'debug', 'info', 'warn', 'error', 'silent'].map((level) => [level.toUpperCase(), level]),
    refuses: ['', 'verbose', 'fatal', '30'],
  },
  drain: {
    byDefault: 15,
    reads: [
      ['0', 0],
      ['0s', 0],
      ['1m30s', 90],
      ['250ms', 0.25],
      ['168h', 604_800],
    ],
    refuses: ['', '15', '-1s', '1d', '1s ', 'soon', '168h1s'],
  },
  connectionCloseProbability: {
    byDefault: 0.01,
    reads: [
      ['0', 0],
      ['1', 1],
      ['0.5', 0.5],
      ['1e-3', 0.001],
    ],
    refuses: ['', ' ', '-0.1', '1.1', '50%', 'NaN', 'Infinity', '0,5'],
  },
  cluster: {
    byDefault: 'auto',
    reads: [
      ['required', 'required'],
      ['OFF', 'off'],
    ],
    refuses: ['', 'on', 'true', 'https://10.96.0.1'],
  },
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  syncTimeout: {
    byDefault: 30,
    reads: [
      ['0s', 0],
      ['2m', 120],
    ],
    refuses: ['', '30', 'never'],
  },
  namespace: TEXT(undefined),
  identity: TEXT(undefined),
  canaryPort: { byDefault: 8081, ...PORTS },
  canaryEvery: {
    byDefault: 60,
    reads: [
      ['0', 0],
      ['1m30s', 90],
    ],
    refuses: ['', '60', '-1s', 'never'],
  },
  probeAllowLinkLocal: { byDefault: false, reads: [], refuses: [] },
  inspectFiles: TEXT(undefined),
  podIp: TEXT(undefined),
  reportsAudience: TEXT('linger.dev/reports'),
  holdPort: { byDefault: 8445, ...PORTS },
  holdAddress: {
    byDefault: undefined,
    reads: [
      ['10.0.0.7:8445', '10.0.0.7:8445'],
      ['[fd00::7]:1', '[fd00::7]:1'],
    ],
    refuses: [
      '',
      '10.0.0.7',
      'linger-hold:8445',
      'fd00::7:8445',
      '[::ffff:1.2.3.4]:80',
      '10.0.0.7:0',
      '1.2.3:80',
      '[fe80::1%eth0]:80',
      '10.0.0.7:65536',
    ],
  },
  holdImage: TEXT(undefined),
  holdTestImage: TEXT(undefined),
  auditEvery: {
    byDefault: 600,
    reads: [
      ['0', 0],
      ['1m', 60],
    ],
    refuses: ['', '-1s', 'often'],
  },
  endpoints: {
    byDefault: 'Auto',
    reads: [
      ['Ignore', 'Ignore'],
      ['ignore', 'Ignore'],
    ],
    refuses: ['', 'off'],
  },
  deleteOnNodeShutdown: { byDefault: false, reads: [], refuses: [] },
  policyReports: {
    byDefault: 'off',
    reads: [
      ['wgpolicyk8s.io', 'wgpolicyk8s.io'],
      ['openreports.io', 'openreports.io'],
    ],
    refuses: ['', 'on', 'policyreports'],
  },
};
const SWITCH: Row = { byDefault: false, reads: [], refuses: [] };
const OUTPUT: Row = {
  byDefault: 'table',
  reads: [
    ['json', 'json'],
    ['YAML', 'yaml'],
    ['Table', 'table'],
    ['wide', 'wide'],
  ],
  refuses: ['', 'xml'],
};
const CHECK: Rows<'check'> = {
  policies: TEXT(undefined),
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  pre: SWITCH,
  namespace: TEXT('default'),
  lingerNamespace: TEXT(undefined),
  webhookConfiguration: TEXT('linger'),
  output: OUTPUT,
  failOn: {
    byDefault: undefined,
    reads: [['Warning,unknown', ['warning', 'unknown']]],
    refuses: ['', 'failure'],
  },
};

const SELECTOR: Row = {
  byDefault: undefined,
  reads: [
    ['app=web', { matchExpressions: [{ key: 'app', operator: 'In', values: ['web'] }] }],
    ['!job', { matchExpressions: [{ key: 'job', operator: 'DoesNotExist' }] }],
  ],
  refuses: ['', ' ', 'app=web tier=front', 'replicas>3', 'app in ()'],
};
const MANIFESTS = {
  filename: {
    byDefault: undefined,
    reads: [
      ['a.yaml', ['a.yaml']],
      ['a.yaml,-', ['a.yaml', '-']],
    ],
    refuses: ['', ','],
  },
  recursive: SWITCH,
  namespace: TEXT('default'),
  selector: SELECTOR,
} as const satisfies Readonly<Record<string, Row>>;
const UNINJECT: Rows<'uninject'> = { ...MANIFESTS, allowRemote: SWITCH, inPlace: SWITCH, diff: SWITCH };
const INJECT: Rows<'inject'> = { ...UNINJECT, policies: TEXT(undefined), refresh: SWITCH };
const EXPLAIN: Rows<'explain'> = {
  ...MANIFESTS,
  allowRemote: SWITCH,
  namespace: { ...MANIFESTS.namespace, byDefault: undefined },
  policies: TEXT(undefined),
  modeLimit: MODES,
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  lingerNamespace: TEXT(undefined),
  output: OUTPUT,
  failOn: {
    byDefault: undefined,
    reads: [
      ['Job', ['Job']],
      ['Job,NotServing', ['Job', 'NotServing']],
    ],
    refuses: ['', ','],
  },
};
const DURATION: Row = {
  byDefault: undefined,
  reads: [
    ['0s', 0],
    ['1m30s', 90],
    ['250ms', 0.25],
  ],
  refuses: ['', '15', '-1s', 'soon'],
};
const AUDIT: Rows<'audit'> = {
  ...MANIFESTS,
  allowRemote: SWITCH,
  allowEmpty: SWITCH,
  baseline: TEXT(undefined),
  namespace: { ...MANIFESTS.namespace, byDefault: undefined },
  allNamespaces: SWITCH,
  policies: TEXT(undefined),
  modeLimit: MODES,
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  lingerNamespace: TEXT(undefined),
  since: { ...DURATION, byDefault: undefined },
  webhook: SWITCH,
  suggest: SWITCH,
  serverDryRun: SWITCH,
  output: {
    byDefault: 'table',
    reads: ['table', 'wide', 'json', 'yaml', 'sarif', 'github', 'junit', 'markdown'].map((each) => [
      each,
      each,
    ]),
    refuses: ['', 'xml', 'constructor'],
  },
  failOn: EXPLAIN.failOn,
};
const SIMULATE: Rows<'simulate'> = {
  policies: TEXT(undefined),
  namespace: TEXT('default'),
  output: {
    byDefault: 'table',
    reads: [['JSON', 'json']],
    refuses: ['', 'yaml'],
  },
};
const CERTS: Rows<'certs'> = { dns: NAMES, out: TEXT('certs') };

const SOME_NAMES: Row = { ...NAMES, byDefault: undefined };
const WATCH: Rows<'watch'> = {
  kubeconfig: TEXT(undefined),
  context: SOME_NAMES,
  namespace: SOME_NAMES,
  service: SOME_NAMES,
  pod: TEXT(undefined),
  allNamespaces: SWITCH,
  selector: SELECTOR,
  source: {
    byDefault: ['EndpointSlice', 'Endpoints'],
    reads: [
      ['endpoints', ['Endpoints']],
      ['Endpoints, EndpointSlice', ['Endpoints', 'EndpointSlice']],
    ],
    refuses: ['', ',', 'Pods', 'Endpoints Pods'],
  },
  change: {
    byDefault: ['added', 'ready', 'notReady', 'terminating', 'removed'],
    reads: [
      ['removed', ['removed']],
      ['NOTREADY,removed', ['notReady', 'removed']],
    ],
    refuses: ['', ',', 'deleted', 'removed,gone'],
  },
  minLag: DURATION,
  initial: SWITCH,
  output: OUTPUT,
  for: DURATION,
  failOnLag: DURATION,
  quiet: SWITCH,
};

const DIAGNOSE: Rows<'diagnose'> = {
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  controllerMetrics: {
    byDefault: undefined,
    reads: [
      ['-', ['-']],
      ['a.prom, b.prom', ['a.prom', 'b.prom']],
      ['https://127.0.0.1:10257/metrics', ['https://127.0.0.1:10257/metrics']],
      ['HTTP://p/federate?match[]={a="b",c="d"}', ['HTTP://p/federate?match[]={a="b",c="d"}']],
    ],
    refuses: ['', ',', ' '],
  },
  controllerMetricsCa: TEXT(undefined),
  controllerMetricsTokenFile: TEXT(undefined),
  controllerMetricsInsecure: SWITCH,
  controllerFlags: TEXT(undefined),
  linger: TEXT(undefined),
  lag: {
    byDefault: 'watch',
    reads: [
      ['watch', 'watch'],
      ['OFF', 'off'],
    ],
    refuses: ['', 'on', '10s'],
  },
  interval: { ...DURATION, byDefault: 10 },
  output: EXPLAIN.output,
  failOn: {
    byDefault: undefined,
    reads: [
      ['any', ['any']],
      ['ClientThrottled,WriteStorm', ['ClientThrottled', 'WriteStorm']],
    ],
    refuses: ['', ','],
  },
};

const { selector: _, ...SHOWN_MANIFESTS } = MANIFESTS;
const DASHBOARD: Rows<'dashboard'> = {
  demo: SWITCH,
  allowRemote: SWITCH,
  ...SHOWN_MANIFESTS,
  namespace: { ...MANIFESTS.namespace, byDefault: undefined },
  policies: TEXT(undefined),
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  lingerNamespace: TEXT(undefined),
  port: { byDefault: 8089, ...PORTS },
  noOpen: SWITCH,
};

const TIMELINE: Rows<'timeline'> = {
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  namespace: TEXT(undefined),
  allNamespaces: SWITCH,
  lingerNamespace: TEXT(undefined),
  since: DURATION,
  watch: SWITCH,
  svg: TEXT(undefined),
  output: OUTPUT,
  failOn: {
    byDefault: undefined,
    reads: [['Sent,unknown', ['sent', 'unknown']]],
    refuses: ['', 'lost'],
  },
};

const CONSUMERS: Rows<'consumers'> = {
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  lingerNamespace: TEXT(undefined),
  filename: EXPLAIN.filename,
  recursive: SWITCH,
  allowRemote: SWITCH,
  apply: SWITCH,
  output: { ...EXPLAIN.output, byDefault: undefined },
  failOn: {
    byDefault: undefined,
    reads: [
      ['any', ['any']],
      ['Stale,Unreachable', ['Stale', 'Unreachable']],
    ],
    refuses: ['', ','],
  },
};

const TIME: Row = {
  byDefault: undefined,
  reads: [
    ['2026-11-21T17:35:00Z', 1_795_282_500],
    ['2026-11-21T18:35+01:00', 1_795_282_500],
  ],
  refuses: ['', 'yesterday', '17:35', '2026-11-21', '2026-11-21T17:35:00', '2026-13-21T17:35:00Z'],
};

const WITNESS: Rows<'witness'> = {
  listen: TEXT(':8446'),
  page: TEXT(undefined),
  format: {
    byDefault: 'Envoy',
    reads: [
      ['HAProxy', 'HAProxy'],
      ['haproxy', 'HAProxy'],
      ['text', 'Text'],
    ],
    refuses: ['', 'Nginx', 'Envoy,Text'],
  },
};

const STATUS: Rows<'status'> = {
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  lingerNamespace: TEXT(undefined),
  watch: SWITCH,
  output: EXPLAIN.output,
};

const HISTORY: Rows<'history'> = {
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  lingerNamespace: TEXT(undefined),
  from: TIME,
  to: TIME,
  namespace: TEXT(undefined),
  consumer: TEXT(undefined),
  output: EXPLAIN.output,
};

const HOLD: Rows<'hold'> = {
  watch: SWITCH,
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  namespace: SOME_NAMES,
  lingerNamespace: TEXT(undefined),
  output: EXPLAIN.output,
};

const COUNT = (byDefault: number): Row => ({
  byDefault,
  reads: [
    ['0', 0],
    ['250', 250],
  ],
  refuses: ['', '-1', '1.5', 'many', '1e3', '10000000'],
});
const SPAN = (byDefault: number): Row => ({ ...DURATION, byDefault });

const PROVE: Rows<'prove'> = {
  kubeconfig: TEXT(undefined),
  context: TEXT(undefined),
  namespace: TEXT(undefined),
  rollout: SWITCH,
  deleteOne: SWITCH,
  evict: SWITCH,
  scale: {
    byDefault: undefined,
    reads: [
      ['4,2', [4, 2]],
      ['20,1', [20, 1]],
    ],
    refuses: ['', '4', '2,4', '4,4', 'a,b', '4,2,1'],
  },
  drain: TEXT(undefined),
  service: TEXT(undefined),
  urlsOnly: SWITCH,
  url: SOME_NAMES,
  urlFrom: { byDefault: 'here', reads: [['Cluster', 'cluster']], refuses: ['', 'there'] },
  insecure: SWITCH,
  rate: COUNT(50),
  keepAlive: SWITCH,
  method: TEXT('GET'),
  path: TEXT('/'),
  header: SOME_NAMES,
  timeout: SPAN(3),
  slow: SPAN(1),
  calm: SPAN(5),
  quiet: SPAN(12),
  for: SPAN(600),
  image: TEXT(undefined),
  lingerNamespace: TEXT(undefined),
  compare: SWITCH,
  copySecrets: SWITCH,
  yes: SWITCH,
  maxLost: COUNT(0),
  svg: TEXT(undefined),
  output: {
    byDefault: 'table',
    reads: [
      ['json', 'json'],
      ['JUnit', 'junit'],
    ],
    refuses: ['', 'wide', 'sarif'],
  },
};

/** Every flag of every command. */
export const COMMANDS: Readonly<Record<string, Readonly<Record<string, Row>>>> = {
  serve: SERVE,
  inject: INJECT,
  uninject: UNINJECT,
  explain: EXPLAIN,
  audit: AUDIT,
  dashboard: DASHBOARD,
  timeline: TIMELINE,
  check: CHECK,
  status: STATUS,
  simulate: SIMULATE,
  certs: CERTS,
  watch: WATCH,
  diagnose: DIAGNOSE,
  consumers: CONSUMERS,
  witness: WITNESS,
  'node-timer': { clusterIp: TEXT(undefined), port: { byDefault: 8447, ...PORTS } },
  history: HISTORY,
  hold: HOLD,
  prove: PROVE,
  'prove-keep': { kubeconfig: TEXT(undefined), context: TEXT(undefined), namespace: TEXT('default') },
  'prove-traffic': { plan: TEXT('{}') },
  completion: {},
  version: {
    output: {
      byDefault: 'table',
      reads: [
        ['json', 'json'],
        ['yaml', 'yaml'],
      ],
      refuses: ['', 'wide'],
    },
  },
};

export const rows = Object.entries(COMMANDS).flatMap(([command, flags]) =>
  Object.entries(flags).map(([key, row]) => ({ command, key, flag: `--${flagName(key)}`, ...row })),
);
