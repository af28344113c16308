import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { emptyDirectory, pathWithLinger, ROOT } from '../cli/linger.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { CHART, helmOf, objectsIn } from './support/helm.ts';
import { lingerImageArchive } from './support/linger-image.ts';
import { type PodObject, pod } from './support/manifests.ts';
import { hookOf } from './support/outcome.ts';

const RELEASE = 'quiet';
/** A number in YAML, unless it is quoted. */
const NAMESPACE = '1e3';
const IN_NAMESPACE = ['--namespace', NAMESPACE];

interface Manifest extends KubernetesObject {
  readonly webhooks?: readonly {
    readonly namespaceSelector: { readonly matchExpressions: { values: string[] }[] };
  }[];
}

/** What Helm makes of the chart, and a first installation. What takes minutes: test/scenarios/helm.test.ts. */
describe('the chart', async () => {
  const cluster: Cluster = await openCluster();
  const { helm, must, remove } = helmOf(cluster);
  const kubectl = (...args: string[]) => cluster.mustKubectl(args, { timeoutMs: 120_000 });
  const set = (values: readonly string[]) => values.flatMap((each) => ['--set', each]);
  const template = (...values: string[]) => helm(['template', RELEASE, CHART, ...set(values)]);
  let namespace = '';

  beforeAll(async () => {
    // Builds it, where that has not been done.
    await must('version');
    if (!cluster.own) return;
    await cluster.importImages(await lingerImageArchive());
    namespace = await cluster.namespace('chart');
  }, 900_000);

  afterAll(async () => {
    if (cluster.own) await remove(RELEASE, NAMESPACE);
    await cluster.close();
  }, 180_000);

  const onOurOwn = it.runIf(cluster.own);

  it('has nothing that helm lint finds', { timeout: 60_000 }, async () => {
    expect(await must('lint', '--strict', CHART)).toContain('0 chart(s) failed');
  });

  it.each([
    ['kubectl apply --kustomize applies', ['--set', 'floor=false'], 'resources: [DEPLOY]'],
    [
      'it applies with fail-closed',
      ['--set', 'floor=false', '--set', 'failurePolicy=Fail'],
      'resources: [DEPLOY]\ncomponents: [DEPLOY/fail-closed]',
    ],
    [
      'it applies with the floor',
      ['--kube-version', 'v1.37.2'],
      'resources: [DEPLOY]\ncomponents: [DEPLOY/floor]',
    ],
  ])('renders what %s', { timeout: 60_000 }, async (_, values, kustomization) => {
    const directory = mkdtempSync(join(tmpdir(), 'linger-kustomize-'));
    const deploy = relative(directory, join(ROOT, 'deploy'));
    writeFileSync(join(directory, 'kustomization.yaml'), kustomization.replaceAll('DEPLOY', deploy));
    const rendered = objectsIn(await must('template', 'linger', CHART, '--namespace', 'linger', ...values));
    const plain = objectsIn(await kubectl('kustomize', directory));
    rmSync(directory, { recursive: true });
    const named = (objects: readonly Manifest[]) =>
      new Map(objects.map((object) => [`${object.kind} ${object.metadata.name}`, object]));
    const [ours, theirs] = [named(rendered), named(plain)];
    theirs.delete('Namespace linger');
    expect([...ours.keys()].toSorted()).toEqual([...theirs.keys()].toSorted());
    for (const [name, object] of theirs)
      expect([name, comparable(ours.get(name))]).toEqual([name, comparable(object)]);
  });

  it.each([
    ['v1.35.4', 'auto', false],
    ['v1.36.3', 'auto', false],
    ['v1.37.2', 'auto', true],
    ['v1.37.0-eks-3025e55', 'auto', true],
    ['v1.38.0-gke.1200', 'auto', true],
    ['v1.35.4', 'true', false],
    ['v1.36.3', 'true', true],
    ['v1.37.2', 'false', false],
    // As with the values of an older chart.
    ['v1.36.3', 'null', false],
    ['v1.37.2', 'null', true],
  ])('on %s with floor=%s: has the floor? %s', { timeout: 60_000 }, async (version, floor, expected) => {
    const text = await must('template', RELEASE, CHART, '--kube-version', version, '--set', `floor=${floor}`);
    const ours = objectsIn(text).filter(({ metadata }) => metadata.name === 'linger-floor');
    const kinds = ['MutatingAdmissionPolicy', 'MutatingAdmissionPolicyBinding'];
    expect(ours.map(({ kind }) => kind)).toEqual(expected ? kinds : []);
  });

  it('has the floor by default where the API server is 1.37 or later', { timeout: 60_000 }, async () => {
    const rendered = (version: string) => must('template', RELEASE, CHART, '--kube-version', version);
    expect(await rendered('v1.37.2')).toContain('kind: MutatingAdmissionPolicyBinding');
    expect(await rendered('v1.36.3')).not.toContain('kind: MutatingAdmissionPolicy');
  });

  it.each([
    [['mode=Enfroce'], /mode/],
    [['replicas=two'], /replicas/],
    [['imagge.tag=1'], /imagge/],
    [['flags={drain}'], /flags/],
    [['flags={--nonsense}'], /flags/],
    [['flags={--drain}'], /flags/],
    [['certificates.existingSecret=UPPER_case!'], /existingSecret/],
    [['resources.limitz.cpu=1'], /limitz/],
    [['resources.limits.memory=much'], /memory/],
    [['tolerations[0].foo=bar'], /foo/],
    [['affinity.nodeAfinity.x=1'], /nodeAfinity/],
    [['topologySpreadConstraints[0].maxSkew=1'], /topologyKey/],
    [['volumes[0].name=policies', 'volumes[0].emptyDir.medium=Memory'], /volumes/],
    [['volumes[0].name=own', 'volumes[0].configmap.name=x'], /configmap/],
    [['volumeMounts[0].name=own'], /mountPath/],
    [['env[0].value=x'], /env/],
    [['podSecurityContext.runAsuser=1'], /runAsuser/],
    [['securityContext.capabilities.dorp={ALL}'], /dorp/],
    [['networkPolicy.webhookFrom[0].ipblock.cidr=x'], /ipblock/],
    [['networkPolicy.egress[0].port=80'], /port/],
    [['podLabels.app\\.kubernetes\\.io/name=mine'], /podLabels/],
    [['image.digest=sha256:abc'], /digest/],
    [['ports.webhook=99999'], /webhook/],
    [['ports.admin=8443'], /ports: expected four different ones, got 8443, 8443, 8081, 8445/],
    [['webhook.timeoutSeconds=31'], /timeoutSeconds/],
    [['terminationGracePeriodSeconds=10'], /terminationGracePeriodSeconds/],
    [['serviceMonitor.interval=often'], /interval/],
    [['failurePolicy=Maybe'], /failurePolicy/],
    [['floor=on'], /floor/],
  ])('names a value that is wrong: %s', { timeout: 60_000 }, async (values, named) => {
    const { code, stderr } = await template(...values);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(named);
  });

  it('is not rendered for kube-system', { timeout: 60_000 }, async () => {
    const { code, stderr } = await helm(['template', RELEASE, CHART, '--namespace=kube-system']);
    expect(code).not.toBe(0);
    expect(stderr).toContain('--namespace kube-system: Linger may patch any pod of its own namespace');
  });

  it.each([
    ['mode', 'mode: Off'],
    ['policyReports', '--policy-reports='],
  ])('takes off without quotes, which is false in YAML: %s', { timeout: 60_000 }, async (value, text) => {
    const { code, stdout } = await template(`${value}=false`);
    expect(code).toBe(0);
    expect(stdout.includes(text)).toBe(value === 'mode');
    expect(stdout).not.toContain('mode: false');
    expect(stdout).not.toContain('linger-policy-reports');
  });

  const values = parse(readFileSync(join(CHART, 'values.yaml'), 'utf8')) as Record<string, unknown>;
  const members = Object.entries(values).flatMap(([name, value]) => [
    name,
    ...(isMap(value)
      ? Object.keys(value).map((member) => `${name}.${member.replaceAll('.', String.raw`\.`)}`)
      : []),
  ]);
  it.each(members)(
    'without %s, as with the values of an older chart, renders or names it',
    { timeout: 60_000 },
    async (name) => {
      const { code, stdout, stderr } = await template(`${name}=null`);
      if (code !== 0) expect(stderr).toContain(`missing property '${name.split('.').at(-1)}'`);
      const text = JSON.stringify(objectsIn(stdout));
      expect(text).not.toMatch(/:null\b|"--[\w-]+="|no value/);
    },
  );

  it.each([
    [['existingSecret=mine'], /existingSecret: .* would not trust it/],
    [['existingSecret=mine', 'webhookAnnotations.team=shop'], /existingSecret: .* would not trust it/],
    [['caBundle=bWluZQ=='], /caBundle: only with certificates\.existingSecret/],
  ])('refuses certificates without trust: %s', { timeout: 60_000 }, async (values, named) => {
    const closed = 'failurePolicy=Fail';
    const { code, stderr } = await template(closed, ...values.map((each) => `certificates.${each}`));
    expect([code, stderr]).toEqual([1, expect.stringMatching(named)]);
  });

  it('has cert-manager issue a certificate', { timeout: 60_000 }, async () => {
    const manager = ['certManager.enabled=true', 'certManager.issuerRef.name=internal'];
    const { stdout } = await template(...manager.map((each) => `certificates.${each}`));
    const objects = objectsIn<Manifest & { spec?: unknown }>(stdout);
    expect(objects.find(({ kind }) => kind === 'Certificate')?.spec).toEqual({
      secretName: 'linger-tls',
      dnsNames: ['linger.default.svc', 'linger-reports.default.svc'],
      issuerRef: { name: 'internal' },
    });
    const configuration = objects.find(({ kind }) => kind === 'MutatingWebhookConfiguration');
    expect(configuration?.metadata.annotations).toEqual({
      'cert-manager.io/inject-ca-from': 'default/linger',
    });
    expect(stdout).toContain('secretName: "linger-tls"');
    expect(stdout).not.toMatch(/certs-secret|linger-certificates/);
    expect((await template('certificates.certManager.enabled=true')).stderr).toMatch(/issuerRef/);
  });

  it('leaves the authority to cert-manager', { timeout: 60_000 }, async () => {
    const annotation = 'certificates.webhookAnnotations.cert-manager\\.io/inject-ca-from=linger/linger';
    const { code, stdout } = await template('certificates.existingSecret=mine', annotation);
    const configuration = objectsIn(stdout).find(({ kind }) => kind === 'MutatingWebhookConfiguration');
    expect([code, configuration?.metadata.annotations]).toEqual([
      0,
      { 'cert-manager.io/inject-ca-from': 'linger/linger' },
    ]);
  });

  it('takes a certificate of one’s own, and monitoring', { timeout: 60_000 }, async () => {
    const { code, stdout: text } = await template(
      'certificates.existingSecret=mine',
      'certificates.caBundle=bWluZQ==',
      'serviceMonitor.enabled=true',
      'dashboard.enabled=true',
      'hold.enabled=false',
      'prometheusRule.enabled=true',
      'prometheusRule.labels.release=prometheus',
      'networkPolicy.enabled=false',
    );
    expect(code).toBe(0);
    const objects = objectsIn<Manifest>(text);
    const kinds = new Set(objects.map(({ kind }) => kind));
    expect(kinds).toContain('ServiceMonitor');
    const dashboard = objects.find(({ metadata }) => metadata.name === 'linger-dashboard');
    expect(dashboard).toMatchObject({ metadata: { labels: { grafana_dashboard: '1' } } });
    const { data } = dashboard as unknown as { data: Record<string, string> };
    expect(data['linger.json']).toBe(readFileSync(join(ROOT, 'deploy/dashboard.json'), 'utf8'));
    expect(text).toContain('--hold-port=0');
    expect(text).not.toContain('name: linger-hold');
    expect(kinds).toContain('PrometheusRule');
    expect(kinds).not.toContain('NetworkPolicy');
    expect(text).toContain('secretName: "mine"');
    expect(text).not.toMatch(/certs-secret|linger-certificates/);
  });

  it('post-renders with the plugin of the examples', { timeout: 60_000 }, async () => {
    const home = await emptyDirectory();
    const env = { HELM_DATA_HOME: join(home, 'data'), PATH: await pathWithLinger() };
    const withPlugin = (...args: string[]) => helm(args, env);
    expect(await withPlugin('plugin', 'install', join(ROOT, 'examples', 'helm-post-renderer'))).toMatchObject(
      { code: 0 },
    );
    expect(await withPlugin('create', join(home, 'web'))).toMatchObject({ code: 0 });
    const template = ['template', RELEASE, join(home, 'web'), '--post-renderer', 'linger'];
    const { stdout } = await withPlugin(...template, '--post-renderer-args=--namespace=shop');
    const plain = objectsIn((await withPlugin('template', RELEASE, join(home, 'web'))).stdout);
    const rendered = objectsIn(stdout);
    expect(rendered.map(({ kind }) => kind)).toEqual(plain.map(({ kind }) => kind));
    expect(
      rendered
        .filter((object) => JSON.stringify(object).includes('"preStop":{"sleep"'))
        .map(({ kind }) => kind),
    ).toEqual(['Deployment']);
    const failed = await withPlugin(...template, '--post-renderer-args=--policies=nowhere');
    expect(failed).toMatchObject({ code: 1, stdout: '' });
  });

  const labelled = (labels: Readonly<Record<string, string>> | undefined) => Object.keys(labels ?? {});

  it('labels every object, and changes no selector', { timeout: 60_000 }, async () => {
    const everything = ['serviceMonitor', 'prometheusRule', 'dashboard'].map(
      (each) => `${each}.enabled=true`,
    );
    const { stdout } = await template(...everything, 'commonLabels.team=edge', 'podLabels.tier=infra');
    const standard = [
      'app.kubernetes.io/instance',
      'app.kubernetes.io/managed-by',
      'app.kubernetes.io/version',
    ];
    const objects = objectsIn<Manifest & DeploymentLabels>(stdout);
    for (const { kind, metadata } of objects)
      expect([kind, metadata.name, labelled(metadata.labels)]).toEqual([
        kind,
        metadata.name,
        expect.arrayContaining(['app.kubernetes.io/name', ...standard, 'helm.sh/chart', 'team']),
      ]);
    const deployment = objects.find(({ kind }) => kind === 'Deployment');
    expect(deployment?.spec.selector.matchLabels).toEqual({ 'app.kubernetes.io/name': 'linger' });
    const pods = labelled(deployment?.spec.template.metadata.labels);
    expect(pods).toEqual(expect.arrayContaining([...standard, 'team', 'tier']));
    // Else every new chart would restart all replicas.
    expect(pods).not.toContain('helm.sh/chart');
  });

  it('keeps no replica on the host network from node timers', { timeout: 60_000 }, async () => {
    const policies = async (...values: string[]) =>
      objectsIn((await template('timeEveryNode=true', ...values)).stdout)
        .filter(({ kind }) => kind === 'NetworkPolicy')
        .map(({ metadata }) => metadata.name);
    expect(await policies()).toEqual(['linger', 'linger-node-timer']);
    expect(await policies('hostNetwork=true')).toEqual(['linger']);
  });

  it('passes on what its values say', { timeout: 60_000 }, async () => {
    const file = join(await emptyDirectory(), 'values.yaml');
    writeFileSync(file, EVERY_VALUE);
    const objects = objectsIn(await must('template', RELEASE, CHART, '--values', file));
    const named = (kind: string, name = 'linger') =>
      objects.find((each) => each.kind === kind && each.metadata.name === name);
    expect(named('Deployment')).toMatchObject(EXPECTED.deployment);
    expect(named('NetworkPolicy')).toMatchObject(EXPECTED.networkPolicy);
    expect(named('MutatingWebhookConfiguration')).toMatchObject(EXPECTED.configuration);
    expect(JSON.stringify(named('MutatingWebhookConfiguration'))).not.toContain('objectSelector');
    expect(named('ServiceAccount')).toMatchObject({ metadata: { annotations: { role: 'a' } } });
    expect(named('ServiceMonitor')).toMatchObject({ spec: { endpoints: [{ interval: '30s' }] } });
    expect(named('Service', 'linger-hold')).toMatchObject({ spec: { ports: [{ port: 18445 }] } });
    for (const kind of ['PriorityClass', 'CustomResourceDefinition'])
      expect(objects.map((each) => each.kind)).not.toContain(kind);
    // What the API server says of them, where it can be asked.
    if (!cluster.own) return;
    const text = await must('template', RELEASE, CHART, '--namespace', namespace, '--values', file);
    const stdin = objectsIn(text)
      .filter(({ kind }) => kind !== 'ServiceMonitor')
      .map((each) => JSON.stringify(each))
      .join('\n');
    const apply = ['apply', '--server-side', '--dry-run=server', '--validate=strict', '--filename', '-'];
    expect(await cluster.kubectl(apply, { stdin })).toMatchObject({ code: 0, stderr: '' });
  });

  const isProtected = async (name: string) => {
    const { spec } = await cluster.create<PodObject>(pod(namespace, name, {}), { dryRun: true });
    return spec.containers.map(hookOf).join() !== '-';
  };

  onOurOwn('installs, upgrades and goes', { timeout: 240_000 }, async () => {
    const ready = () => kubectl(...IN_NAMESPACE, 'rollout', 'status', 'deployment/linger', '--timeout=100s');
    await must('install', RELEASE, CHART, ...IN_NAMESPACE, '--create-namespace');
    await ready();
    expect(await isProtected('audited')).toBe(false);
    const upgrade = ['upgrade', RELEASE, CHART, ...IN_NAMESPACE, '--reset-then-reuse-values'];
    // An upgrade without a change changes nothing: no spec, and where there is no generation, no version.
    const manifest = await must('get', 'manifest', RELEASE, ...IN_NAMESPACE);
    const versions = async () => {
      const { items } = JSON.parse(
        await cluster.mustKubectl([...IN_NAMESPACE, 'get', '--filename', '-', '--output=json'], {
          stdin: manifest,
        }),
      ) as { items: readonly { kind: string; metadata: Readonly<Record<string, string | number>> }[] };
      return items.map(
        ({ kind, metadata }) => `${kind} ${metadata.name} ${metadata.generation ?? metadata.resourceVersion}`,
      );
    };
    const before = await versions();
    await must(...upgrade);
    expect(await versions()).toEqual(before);
    expect(before.length).toBeGreaterThan(30);
    // With a new flag, so that replicas do not wait for the kubelet to bring the policy.
    await must(...upgrade, ...set(['mode=Enforce', 'flags={--log-level=warn}']));
    await ready();
    // IPv4 is what everything else goes by.
    for (const port of [8443, 8080, 8081, 8445]) {
      const call = `net.connect(${port}, "::1").on("connect", () => process.exit()).on("error", (e) => { throw e })`;
      await kubectl(...IN_NAMESPACE, 'exec', 'deployment/linger', '--', '/bin/node', '--eval', call);
    }
    await waitUntil('a pod to be protected', () => isProtected('enforced'), { timeoutMs: 30_000 });
    // The drain of a node takes the only replica, too.
    await must(...upgrade, ...set(['replicas=1']));
    const allowed = [
      'get',
      'pdb',
      'linger',
      '--output=jsonpath={.status.expectedPods} {.status.disruptionsAllowed}',
    ];
    await waitUntil('one replica', async () => (await kubectl(...IN_NAMESPACE, ...allowed)) === '1 1');
    const [node = ''] = (await kubectl('get', 'nodes', '--output=name')).trim().split('\n');
    const drain = ['drain', node, '--pod-selector=app.kubernetes.io/name=linger', '--dry-run=server'];
    expect(await kubectl(...drain)).toMatch(/ drained \(server dry run\)/);
    await must('uninstall', RELEASE, ...IN_NAMESPACE);
    // The API server notices a second later that the floor is gone.
    await waitUntil('a pod to be left alone', async () => !(await isProtected('afterwards')));
  });
});

interface DeploymentLabels {
  readonly spec: {
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly template: { readonly metadata: { readonly labels: Readonly<Record<string, string>> } };
  };
}

const isMap = (value: unknown): value is object =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

const EVERY_VALUE = `
image: {digest: "sha256:${'a'.repeat(64)}"}
env: [{name: NODE_EXTRA_CA_CERTS, value: /etc/own/ca.crt}]
volumes: [{name: own, configMap: {name: own}}]
volumeMounts: [{name: own, mountPath: /etc/own, readOnly: true}]
flags: ["--client-ca=/etc/own/ca.crt", "--drain=60s", "--audit-warnings"]
terminationGracePeriodSeconds: 75
podAnnotations: {a: b}
serviceAccount: {annotations: {role: a}}
priorityClassName: system-cluster-critical
topologySpreadConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {}}]
podSecurityContext: {runAsUser: null, runAsGroup: null}
securityContext: {capabilities: {add: [NET_BIND_SERVICE]}}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [infra]}]}]
tolerations: [{key: infra, operator: Exists, effect: NoSchedule}]
hostNetwork: true
ports: {webhook: 10250, hold: 18445}
webhook:
  timeoutSeconds: 5
  namespaceSelector:
    matchLabels: {mesh: "on"}
    matchExpressions: [{key: tenant, operator: Exists}]
  podsMayOptOut: false
networkPolicy:
  webhookFrom: [{ipBlock: {cidr: 192.0.2.0/24}}]
  adminFrom: [{namespaceSelector: {matchLabels: {name: monitoring}}}]
  ingress: [{from: [{podSelector: {}}], ports: [{port: 9000}]}]
  egress: [{to: [{ipBlock: {cidr: 192.0.2.9/32}}], ports: [{port: 9901, protocol: TCP}]}]
crds: {enabled: false}
serviceMonitor: {enabled: true, interval: 30s}
`;
const EXPECTED = {
  deployment: {
    spec: {
      strategy: { rollingUpdate: { maxUnavailable: 1, maxSurge: 0 } },
      template: {
        metadata: { annotations: { a: 'b' } },
        spec: {
          hostNetwork: true,
          dnsPolicy: 'ClusterFirstWithHostNet',
          priorityClassName: 'system-cluster-critical',
          terminationGracePeriodSeconds: 75,
          topologySpreadConstraints: [{ topologyKey: 'zone' }],
          securityContext: { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
          tolerations: [{ key: 'infra' }],
          volumes: [{ name: 'own' }, { name: 'policies' }],
          containers: [
            {
              image: `registry.example/linger@sha256:${'a'.repeat(64)}`,
              args: expect.arrayContaining([
                '--port=10250',
                '--hold-port=18445',
                '--client-ca=/etc/own/ca.crt',
                '--drain=60s',
                '--audit-warnings',
              ]),
              env: expect.arrayContaining([{ name: 'NODE_EXTRA_CA_CERTS', value: '/etc/own/ca.crt' }]),
              ports: expect.arrayContaining([{ name: 'webhook', containerPort: 10250 }]),
              securityContext: { capabilities: { add: ['NET_BIND_SERVICE'], drop: ['ALL'] } },
              volumeMounts: [{ name: 'own' }, { name: 'policies' }],
            },
          ],
        },
      },
    },
  },
  networkPolicy: {
    spec: {
      ingress: [
        { ports: [{ port: 10250 }], from: [{ ipBlock: { cidr: '192.0.2.0/24' } }] },
        { ports: [{ port: 8080 }], from: [{ namespaceSelector: {} }] },
        { ports: [{ port: 8081 }] },
        { ports: [{ port: 18445 }] },
        { ports: [{ port: 9000 }] },
      ],
      egress: expect.arrayContaining([
        expect.objectContaining({ ports: [{ port: 9901, protocol: 'TCP' }] }),
        expect.objectContaining({
          ports: [
            { port: 8081, protocol: 'TCP' },
            { port: 18445, protocol: 'TCP' },
          ],
        }),
      ]),
    },
  },
  configuration: {
    webhooks: [
      {
        timeoutSeconds: 5,
        namespaceSelector: {
          matchLabels: { mesh: 'on' },
          matchExpressions: expect.arrayContaining([{ key: 'tenant', operator: 'Exists' }]),
        },
      },
    ],
  },
};

/** Without what a release adds by itself. */
function comparable(object: Manifest | undefined): unknown {
  interface Labelled {
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  }
  interface Selecting {
    namespaceSelector?: { matchExpressions: { values: string[] }[] };
  }
  const copy = structuredClone(object) as unknown as {
    kind: string;
    metadata: Labelled & { namespace?: string };
    spec?: {
      template?: { metadata: Labelled; spec?: { containers: { imagePullPolicy?: string }[] } };
      matchConstraints?: Selecting;
    };
    webhooks?: Selecting[];
  };
  // To this kubectl's kustomize the kinds are unknown, and so ones of namespaces; kubectl apply leaves the namespace out.
  if (/^(Validating|Mutating)AdmissionPolicy/.test(copy.kind)) delete copy.metadata.namespace;
  if (copy.metadata.annotations?.['helm.sh/resource-policy'] !== undefined) delete copy.metadata.annotations;
  for (const { labels } of [copy.metadata, copy.spec?.template?.metadata ?? {}])
    for (const name of ['instance', 'version', 'managed-by', 'chart'])
      delete labels?.[name === 'chart' ? 'helm.sh/chart' : `app.kubernetes.io/${name}`];
  for (const container of copy.spec?.template?.spec?.containers ?? []) delete container.imagePullPolicy;
  for (const { namespaceSelector } of [...(copy.webhooks ?? []), copy.spec?.matchConstraints ?? {}])
    for (const expression of namespaceSelector?.matchExpressions ?? [])
      expression.values = expression.values.filter(
        (value) => value !== 'linger' || expression.values.length === 1,
      );
  return copy;
}
