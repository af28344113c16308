import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';

/*
 * The chart's templates are the plain manifests of deploy/ with what a release decides put in: one source for
 * `kubectl apply --kustomize` and for Helm. Each change names the text that it replaces and fails where that is not there.
 */

const DEPLOY = join(import.meta.dirname, '..');

interface Template {
  /** In deploy/. */
  readonly source: string;
  /** The values with which it is left out, as a condition of Helm's. */
  readonly unless?: string;
  readonly when?: string;
  readonly changes?: readonly Change[];
}

type Change = readonly [from: string, to: string];

/** The Secret of a certificate that is not of Linger's making: _helpers.tpl. */
const OWN_CERTIFICATE = '(include "linger.secret" .)';
/** Not there, where the values are those of a chart before it had this one; false, where `off` is not quoted. */
const WITH_REPORTS = 'and .Values.policyReports (ne .Values.policyReports "off")';

/** By the API server's version: _helpers.tpl. */
const WITH_FLOOR = '(include "linger.floor" .)';

/** What the webhook leaves out only where it fails closed. */
function failClosedConditions(): string {
  const text = readFileSync(join(DEPLOY, 'fail-closed', 'webhook.yaml'), 'utf8');
  const patch = parse(text) as { op: string; value: { name: string; expression: string } }[];
  const conditions = patch
    .filter(({ op }) => op === 'add')
    .map(({ value: { name, expression } }) => `      - name: ${name}\n        expression: "${expression}"\n`);
  const about = '      # A cluster must be able to start: see deploy/fail-closed.\n';
  return `      {{- if eq .Values.failurePolicy "Fail" }}\n${about}${conditions.join('')}      {{- end }}\n`;
}

/** The ports that a value names, with the flag and what it is without one. */
const PORTS = [
  ['webhook', 'port', 8443],
  ['admin', 'admin-port', 8080],
  ['canary', 'canary-port', 8081],
  ['hold', 'hold-port', 8445],
] as const;

/** A list or map of values after what stands there, where there is any. */
const more = (values: string, indent: number) =>
  `${' '.repeat(indent)}{{- with ${values} }}\n` +
  `${' '.repeat(indent)}{{- toYaml . | nindent ${indent} }}\n${' '.repeat(indent)}{{- end }}\n`;
const member = (name: string, values: string, indent: number) =>
  `${' '.repeat(indent)}{{- with ${values} }}\n` +
  `${' '.repeat(indent)}${name}: {{ toJson . }}\n${' '.repeat(indent)}{{- end }}\n`;

/** The image, and what a cluster demands of pods. */
const IMAGE: Change = [
  '          image: registry.example/linger:0.1.0\n',
  '          image: {{ include "linger.image" . | quote }}\n' +
    '          imagePullPolicy: {{ .Values.image.pullPolicy }}\n',
];
const POD_SECURITY: Change = [
  '      securityContext:\n        runAsNonRoot: true\n        runAsUser: 65532\n        runAsGroup: 65532\n' +
    '        seccompProfile: {type: RuntimeDefault}\n',
  member('securityContext', '.Values.podSecurityContext', 6),
];
const SECURITY: Change = [
  '          securityContext:\n            allowPrivilegeEscalation: false\n            readOnlyRootFilesystem: true\n' +
    '            capabilities: {drop: [ALL]}\n',
  member('securityContext', '.Values.securityContext', 10),
];

const DEPLOYMENT: readonly Change[] = [
  ['  replicas: 2\n', '  replicas: {{ .Values.replicas }}\n'],
  [
    '    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}\n',
    '    {{- if .Values.hostNetwork }}\n    # Two replicas on one node would need the same ports.\n' +
      '    rollingUpdate: {maxUnavailable: 1, maxSurge: 0}\n    {{- else }}\n' +
      '    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}\n    {{- end }}\n',
  ],
  [
    '    metadata:\n      labels:\n',
    `    metadata:\n${member('annotations', '.Values.podAnnotations', 6)}      labels:\n`,
  ],
  [
    '        linger.dev/inject: "false"\n',
    '        linger.dev/inject: "false"\n        {{- include "linger.podLabels" . | nindent 8 }}\n',
  ],
  ['      priorityClassName: linger\n', member('priorityClassName', '.Values.priorityClassName', 6)],
  IMAGE,
  [
    '      serviceAccountName: linger\n',
    `      serviceAccountName: linger\n${['imagePullSecrets', 'tolerations', 'affinity']
      .map((name) => member(name, `.Values.${name}`, 6))
      .join(
        '',
      )}      {{- if .Values.hostNetwork }}\n      hostNetwork: true\n      dnsPolicy: ClusterFirstWithHostNet\n      {{- end }}\n`,
  ],
  ['      nodeSelector: {kubernetes.io/os: linux}\n', member('nodeSelector', '.Values.nodeSelector', 6)],
  [
    '      terminationGracePeriodSeconds: 30\n',
    '      terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}\n',
  ],
  [
    '      topologySpreadConstraints:\n        - maxSkew: 1\n          topologyKey: kubernetes.io/hostname\n' +
      '          whenUnsatisfiable: ScheduleAnyway\n          labelSelector:\n' +
      '            matchLabels: {app.kubernetes.io/name: linger}\n' +
      '          # Otherwise old pods would count during a rollout, and the new ones could end up on one node.\n' +
      '          matchLabelKeys: [pod-template-hash]\n',
    member('topologySpreadConstraints', '.Values.topologySpreadConstraints', 6),
  ],
  POD_SECURITY,
  SECURITY,
  [
    '            # Replicas make and renew the certificate: see role-certificates.yaml.\n',
    `            {{- if ${OWN_CERTIFICATE} }}\n            - --certs=/etc/linger/certs\n            {{- else }}\n`,
  ],
  [
    '            - --policies=/etc/linger/policies\n',
    '            {{- end }}\n            - --policies=/etc/linger/policies\n',
  ],
  [
    '            - --cluster=required\n',
    '            - --cluster=required\n' +
      PORTS.map(
        ([name, flag, usual]) =>
          `            {{- if ne (int .Values.ports.${name}) ${usual} }}\n` +
          `            - --${flag}={{ .Values.ports.${name} }}\n            {{- end }}\n`,
      ).join('') +
      '            {{- if not .Values.hold.enabled }}\n            - --hold-port=0\n            {{- end }}\n' +
      `            {{- if ${WITH_REPORTS} }}\n            - --policy-reports={{ .Values.policyReports }}\n            {{- end }}\n` +
      '            {{- if .Values.deleteOnNodeShutdown }}\n            - --delete-on-node-shutdown\n            {{- end }}\n' +
      '            {{- range .Values.flags }}\n            - {{ quote . }}\n            {{- end }}\n',
  ],
  ['          ports:\n', `${more('.Values.env', 12)}          ports:\n`],
  ...PORTS.map(
    ([name, , usual]): Change => [
      `{name: ${name}, containerPort: ${usual}}`,
      `{name: ${name}, containerPort: {{ .Values.ports.${name} }}}`,
    ],
  ),
  [
    '          volumeMounts:\n',
    '          volumeMounts:\n' +
      `            {{- if ${OWN_CERTIFICATE} }}\n` +
      '            - {name: certs, mountPath: /etc/linger/certs, readOnly: true}\n            {{- end }}\n' +
      more('.Values.volumeMounts', 12),
  ],
  [
    '      volumes:\n',
    '      volumes:\n' +
      `        {{- with ${OWN_CERTIFICATE} }}\n        - name: certs\n` +
      '          secret: {secretName: {{ quote . }}, defaultMode: 0444}\n        {{- end }}\n' +
      more('.Values.volumes', 8),
  ],
  [
    '            requests: {cpu: 50m, memory: 128Mi}\n            limits: {memory: 512Mi}\n',
    '            {{- toYaml .Values.resources | nindent 12 }}\n',
  ],
];

const NETWORK_POLICY: readonly Change[] = [
  ...PORTS.map(
    ([name, , usual]): Change => [
      `    - ports:\n        - {port: ${usual}, protocol: TCP}\n`,
      `    - ports:\n        - {port: {{ .Values.ports.${name} }}, protocol: TCP}\n${
        name === 'webhook' || name === 'admin' ? member('from', `.Values.networkPolicy.${name}From`, 6) : ''
      }`,
    ],
  ),
  ['  egress:\n', `${more('.Values.networkPolicy.ingress', 4)}  egress:\n`],
  [
    '        - {port: 8081, protocol: TCP}\n        - {port: 8445, protocol: TCP}\n',
    '        - {port: {{ .Values.ports.canary }}, protocol: TCP}\n        - {port: {{ .Values.ports.hold }}, protocol: TCP}\n' +
      more('.Values.networkPolicy.egress', 4),
  ],
];

const NODE_TIMER: readonly Change[] = [
  IMAGE,
  POD_SECURITY,
  SECURITY,
  [
    '      automountServiceAccountToken: false\n',
    `      automountServiceAccountToken: false\n${member('imagePullSecrets', '.Values.imagePullSecrets', 6)}`,
  ],
  [
    '        linger.dev/inject: "false"\n',
    '        linger.dev/inject: "false"\n        {{- include "linger.podLabels" . | nindent 8 }}\n',
  ],
  // On the host network replicas are not what a selector of pods finds: the policy would keep them out.
  [
    '---\n# Only replicas ask',
    '{{- if and .Values.networkPolicy.enabled (not .Values.hostNetwork) }}\n---\n# Only replicas ask',
  ],
  [
    '        - {port: 8081, protocol: TCP}\n',
    '        - {port: {{ .Values.ports.canary }}, protocol: TCP}\n{{- end }}\n',
  ],
];

const LAST_CONDITION =
  '        expression: "!has(object.metadata.annotations) || ' +
  "!('kubernetes.io/config.mirror' in object.metadata.annotations)\"\n";

/** Which pods the webhook is asked about, and the floor stands in for. */
const SELECTORS: readonly Change[] = [
  [
    'values: [kube-system, kube-node-lease]',
    'values: [kube-system, kube-node-lease, {{ quote .Release.Namespace }}]',
  ],
  [
    '    namespaceSelector:\n',
    `    namespaceSelector:\n${member('matchLabels', '(.Values.webhook.namespaceSelector).matchLabels', 6)}`,
  ],
  [
    '        # A namespace opts out by label: Linger is not called for its pods.\n',
    `${more('(.Values.webhook.namespaceSelector).matchExpressions', 8)}        # A namespace opts out by label: Linger is not called for its pods.\n`,
  ],
  ['    objectSelector:\n', '    {{- if .Values.webhook.podsMayOptOut }}\n    objectSelector:\n'],
];

const TEMPLATES: readonly Template[] = [
  { source: 'crds/discoveryconsumers.yaml', when: '.Values.crds.enabled' },
  { source: 'crds/clusterterminationpolicies.yaml', when: '.Values.crds.enabled' },
  { source: 'crds/terminationpolicies.yaml', when: '.Values.crds.enabled' },
  {
    source: 'serviceaccount.yaml',
    changes: [
      [
        'automountServiceAccountToken',
        `${member('annotations', '.Values.serviceAccount.annotations', 2)}automountServiceAccountToken`,
      ],
    ],
  },
  { source: 'annotation-policy.yaml', when: '.Values.annotationPolicy.enabled' },
  { source: 'hold-policy.yaml', when: 'and .Values.annotationPolicy.enabled .Values.hold.enabled' },
  {
    source: 'floor/floor.yaml',
    when: WITH_FLOOR,
    changes: [...SELECTORS, ['    resourceRules:\n', '    {{- end }}\n    resourceRules:\n']],
  },
  { source: 'rbac.yaml' },
  { source: 'rbac-namespace-owners.yaml' },
  { source: 'rbac-view.yaml' },
  { source: 'rbac-hold.yaml', when: '.Values.hold.enabled' },
  { source: 'rbac-audit.yaml' },
  { source: 'rbac-policy-reports.yaml', when: WITH_REPORTS },
  { source: 'rbac-node-shutdown.yaml', when: '.Values.deleteOnNodeShutdown' },
  { source: 'role-publish.yaml' },
  { source: 'role-pods.yaml' },
  { source: 'role-certificates.yaml', unless: OWN_CERTIFICATE },
  {
    source: 'policies.yaml',
    changes: [['      mode: Audit\n', '      mode: {{ .Values.mode | default "Off" }}\n']],
  },
  { source: 'priorityclass.yaml', when: 'eq .Values.priorityClassName "linger"' },
  { source: 'deployment.yaml', changes: DEPLOYMENT },
  { source: 'node-timer.yaml', when: '.Values.timeEveryNode', changes: NODE_TIMER },
  { source: 'service.yaml' },
  {
    source: 'service-canary.yaml',
    changes: [['port: 8081', 'port: {{ .Values.ports.canary }}']],
  },
  { source: 'service-reports.yaml' },
  {
    source: 'service-hold.yaml',
    when: '.Values.hold.enabled',
    changes: [['port: 8445', 'port: {{ .Values.ports.hold }}']],
  },
  { source: 'poddisruptionbudget.yaml' },
  { source: 'networkpolicy.yaml', when: '.Values.networkPolicy.enabled', changes: NETWORK_POLICY },
  {
    source: 'webhook.yaml',
    changes: [
      ['    failurePolicy: Ignore\n', '    failurePolicy: {{ .Values.failurePolicy }}\n'],
      ...SELECTORS,
      ['    timeoutSeconds: 2\n', '    timeoutSeconds: {{ .Values.webhook.timeoutSeconds }}\n'],
      ['    matchConditions:\n', '    {{- end }}\n    matchConditions:\n'],
      [
        '      # No caBundle:',
        '      {{- with .Values.certificates.caBundle }}\n      caBundle: {{ quote . }}\n      {{- end }}\n      # No caBundle:',
      ],
      [
        'webhooks:\n',
        `${member('annotations', '(include "linger.webhookAnnotations" . | fromYaml)', 2)}webhooks:\n`,
      ],
      [LAST_CONDITION, LAST_CONDITION + failClosedConditions()],
    ],
  },
];

/** What monitors Linger, where the Prometheus operator is installed. */
function prometheusRule(): string {
  const text = readFileSync(join(DEPLOY, 'alerts.yaml'), 'utf8');
  const groups = text.slice(text.indexOf('groups:'));
  return [
    HEADER,
    '{{- if .Values.prometheusRule.enabled }}',
    'apiVersion: monitoring.coreos.com/v1',
    'kind: PrometheusRule',
    'metadata:',
    '  name: linger',
    '  namespace: {{ quote .Release.Namespace }}',
    '  labels: {{ toJson (merge (dict "app.kubernetes.io/name" "linger") (.Values.prometheusRule.labels | default dict) (include "linger.labels" . | fromYaml)) }}',
    'spec:',
    escaped(groups)
      .replaceAll(/^(?=.)/gm, '  ')
      .trimEnd(),
    '{{- end }}',
    '',
  ].join('\n');
}

/** The dashboard, where Grafana's sidecar takes it from a ConfigMap. */
function dashboard(): string {
  const text = readFileSync(join(DEPLOY, 'dashboard.json'), 'utf8');
  return [
    HEADER,
    '{{- if .Values.dashboard.enabled }}',
    'apiVersion: v1',
    'kind: ConfigMap',
    'metadata:',
    '  name: linger-dashboard',
    '  namespace: {{ quote .Release.Namespace }}',
    '  labels: {{ toJson (merge (dict "app.kubernetes.io/name" "linger") (.Values.dashboard.labels | default dict) (include "linger.labels" . | fromYaml)) }}',
    'data:',
    '  linger.json: |',
    escaped(text)
      .replaceAll(/^(?=.)/gm, '    ')
      .trimEnd(),
    '{{- end }}',
    '',
  ].join('\n');
}

const HEADER = '{{- /* Generated from deploy/ by `npm run generate`: change that. */ -}}';

function escaped(text: string): string {
  return text.replaceAll(/\{\{|\}\}/g, (braces) => `{{ "${braces}" }}`);
}

function templateText({ source, when, unless, changes = [] }: Template): string {
  const plain = readFileSync(join(DEPLOY, source), 'utf8');
  const isCrd = source.startsWith('crds/');
  let text = escaped(plain).replaceAll(/\bnamespace: linger\b/g, 'namespace: {{ quote .Release.Namespace }}');
  text = labelled(text, source);
  // Upgraded with the chart, and never deleted with it: their objects are people's.
  if (isCrd)
    text = change(
      text,
      ['\nmetadata:\n', '\nmetadata:\n  annotations: {helm.sh/resource-policy: keep}\n'],
      source,
    );
  for (const each of changes) text = change(text, each, source);
  const condition = when ?? (unless === undefined ? undefined : `not ${unless}`);
  if (condition === undefined) return `${HEADER}\n${text}`;
  return `${HEADER}\n{{- if ${condition} }}\n${text}{{- end }}\n`;
}

/** What every release's objects have in common, after the labels of each. */
function labelled(text: string, source: string): string {
  let rest = text.match(/^metadata:$/gm)?.length ?? 0;
  const labels = text
    .replaceAll(/^ {2}labels: \{(.*)\}$/gm, (_, inline: string) =>
      ['  labels:', ...inline.split(', ').map((each) => `    ${each}`)].join('\n'),
    )
    .replaceAll(/^ {2}labels:\n(?: {4}.*\n)+/gm, (block) => {
      rest -= 1;
      return `${block}    {{- include "linger.labels" . | nindent 4 }}\n`;
    });
  if (rest !== 0) throw new Error(`deploy/${source}: an object has no labels`);
  return labels;
}

function change(text: string, [from, to]: Change, source: string): string {
  const [before = '', ...after] = text.split(from);
  if (after.length !== 1)
    throw new Error(`deploy/${source}: expected once, for the chart: ${JSON.stringify(from)}`);
  return before + to + after.join(from);
}

/** Every file of the chart that is made from deploy/. */
export const CHART: readonly { readonly path: string; readonly text: () => string }[] = [
  ...TEMPLATES.map((template) => ({
    path: `deploy/chart/templates/${template.source.replace('crds/', 'crd-').replace('floor/', '')}`,
    text: () => templateText(template),
  })),
  { path: 'deploy/chart/templates/prometheusrule.yaml', text: prometheusRule },
  { path: 'deploy/chart/templates/dashboard.yaml', text: dashboard },
];

/** The manifests of deploy/ that have a template. */
export const IN_CHART: readonly string[] = TEMPLATES.map(({ source }) => source);
