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

const OWN_CERTIFICATE = '.Values.certificates.existingSecret';
/** Not there, where the values are those of a chart before it had this one; false, where `off` is not quoted. */
const WITH_REPORTS = 'and .Values.policyReports (ne .Values.policyReports "off")';

/** What the webhook leaves out only where it fails closed. */
function failClosedConditions(): string {
  const text = readFileSync(join(DEPLOY, 'fail-closed', 'webhook.yaml'), 'utf8');
  const patch = parse(text) as { op: string; value: { name: string; expression: string } }[];
  const conditions = patch
    .filter(({ op }) => op === 'add')
    .map(({ value: { name, expression } }) => `      - name: ${name}\n        expression: "${expression}"\n`);
  const about = '      # So that a cluster can start: see deploy/fail-closed.\n';
  return `      {{- if eq .Values.failurePolicy "Fail" }}\n${about}${conditions.join('')}      {{- end }}\n`;
}

const DEPLOYMENT: readonly Change[] = [
  ['  replicas: 2\n', '  replicas: {{ .Values.replicas }}\n'],
  [
    '          image: registry.example/linger:0.1.0\n',
    '          image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"\n' +
      '          imagePullPolicy: {{ .Values.image.pullPolicy }}\n',
  ],
  [
    '      serviceAccountName: linger\n',
    '      serviceAccountName: linger\n' +
      '      {{- with .Values.imagePullSecrets }}\n      imagePullSecrets: {{ toJson . }}\n      {{- end }}\n' +
      '      {{- with .Values.nodeSelector }}\n      nodeSelector: {{ toJson . }}\n      {{- end }}\n' +
      '      {{- with .Values.tolerations }}\n      tolerations: {{ toJson . }}\n      {{- end }}\n' +
      '      {{- with .Values.affinity }}\n      affinity: {{ toJson . }}\n      {{- end }}\n',
  ],
  [
    '            # Made here, renewed here, and trusted by the webhook configuration: see role-certificates.yaml.\n',
    `            {{- if ${OWN_CERTIFICATE} }}\n            - --certs=/etc/linger/certs\n            {{- else }}\n`,
  ],
  [
    '            - --policies=/etc/linger/policies\n',
    '            {{- end }}\n            - --policies=/etc/linger/policies\n',
  ],
  [
    '            - --cluster=required\n',
    '            - --cluster=required\n' +
      '            {{- if not .Values.hold.enabled }}\n            - --hold-port=0\n            {{- end }}\n' +
      `            {{- if ${WITH_REPORTS} }}\n            - --policy-reports={{ .Values.policyReports }}\n            {{- end }}\n` +
      '            {{- range .Values.flags }}\n            - {{ quote . }}\n            {{- end }}\n',
  ],
  [
    '          volumeMounts:\n',
    '          volumeMounts:\n' +
      `            {{- if ${OWN_CERTIFICATE} }}\n` +
      '            - {name: certs, mountPath: /etc/linger/certs, readOnly: true}\n            {{- end }}\n',
  ],
  [
    '      volumes:\n',
    '      volumes:\n' +
      `        {{- with ${OWN_CERTIFICATE} }}\n        - name: certs\n` +
      '          secret: {secretName: {{ . }}, defaultMode: 0444}\n        {{- end }}\n',
  ],
  [
    '            requests: {cpu: 50m, memory: 128Mi}\n            limits: {memory: 512Mi}\n',
    '            {{- toYaml .Values.resources | nindent 12 }}\n',
  ],
];

const LAST_CONDITION =
  '        expression: "!has(object.metadata.annotations) || ' +
  "!('kubernetes.io/config.mirror' in object.metadata.annotations)\"\n";

const TEMPLATES: readonly Template[] = [
  { source: 'crds/discoveryconsumers.yaml' },
  { source: 'crds/clusterterminationpolicies.yaml' },
  { source: 'crds/terminationpolicies.yaml' },
  { source: 'serviceaccount.yaml' },
  { source: 'rbac.yaml' },
  { source: 'rbac-namespace-owners.yaml' },
  { source: 'rbac-hold.yaml', when: '.Values.hold.enabled' },
  { source: 'rbac-audit.yaml' },
  { source: 'rbac-policy-reports.yaml', when: WITH_REPORTS },
  { source: 'role-publish.yaml' },
  { source: 'role-pods.yaml' },
  { source: 'role-certificates.yaml', unless: OWN_CERTIFICATE },
  {
    source: 'policies.yaml',
    changes: [['      mode: Audit\n', '      mode: {{ .Values.mode | default "Off" }}\n']],
  },
  { source: 'priorityclass.yaml' },
  { source: 'deployment.yaml', changes: DEPLOYMENT },
  { source: 'service.yaml' },
  { source: 'service-canary.yaml' },
  { source: 'service-reports.yaml' },
  { source: 'service-hold.yaml', when: '.Values.hold.enabled' },
  { source: 'poddisruptionbudget.yaml' },
  { source: 'networkpolicy.yaml', when: '.Values.networkPolicy.enabled' },
  {
    source: 'webhook.yaml',
    changes: [
      ['    failurePolicy: Ignore\n', '    failurePolicy: {{ .Values.failurePolicy }}\n'],
      [
        'values: [kube-system, kube-node-lease]',
        'values: [kube-system, kube-node-lease, {{ .Release.Namespace }}]',
      ],
      [
        '      # No caBundle:',
        '      {{- with .Values.certificates.caBundle }}\n      caBundle: {{ . }}\n      {{- end }}\n      # No caBundle:',
      ],
      [
        '  labels: {app.kubernetes.io/name: linger}\nwebhooks:\n',
        '  labels: {app.kubernetes.io/name: linger}\n' +
          '  {{- with .Values.certificates.webhookAnnotations }}\n  annotations: {{ toJson . }}\n  {{- end }}\nwebhooks:\n',
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
    '  namespace: {{ .Release.Namespace }}',
    '  labels: {{ toJson (merge (dict "app.kubernetes.io/name" "linger") .Values.prometheusRule.labels) }}',
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
    '  namespace: {{ .Release.Namespace }}',
    '  labels: {{ toJson (merge (dict "app.kubernetes.io/name" "linger") .Values.dashboard.labels) }}',
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
  let text = escaped(plain).replaceAll(/\bnamespace: linger\b/g, 'namespace: {{ .Release.Namespace }}');
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

function change(text: string, [from, to]: Change, source: string): string {
  const [before = '', ...after] = text.split(from);
  if (after.length !== 1)
    throw new Error(`deploy/${source}: expected once, for the chart: ${JSON.stringify(from)}`);
  return before + to + after.join(from);
}

/** Every file of the chart that is made from deploy/. */
export const CHART: readonly { readonly path: string; readonly text: () => string }[] = [
  ...TEMPLATES.map((template) => ({
    path: `deploy/chart/templates/${template.source.replace('crds/', 'crd-')}`,
    text: () => templateText(template),
  })),
  { path: 'deploy/chart/templates/prometheusrule.yaml', text: prometheusRule },
  { path: 'deploy/chart/templates/dashboard.yaml', text: dashboard },
];

/** The manifests of deploy/ that have a template. */
export const IN_CHART: readonly string[] = TEMPLATES.map(({ source }) => source);
