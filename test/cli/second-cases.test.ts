import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { emptyDirectory, linger, ROOT } from './linger.ts';

// The second set of inputs in the style of public bug reports, 30 to 51, each with other inputs of its kind.

const DEPLOYMENT = (name: string, app: string) =>
  `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: ${name}}\nspec: {replicas: 2, template: {metadata: {labels: {app: ${app}}}, spec: {containers: [{name: a, ports: [{containerPort: 80}]}]}}}\n`;

const CASES = join(ROOT, 'test', 'testdata', 'cases');
const at = (name: string) => join(CASES, name);
const textOf = (name: string) => readFile(at(name), 'utf8');

async function audited(args: readonly string[], stdin?: string) {
  const options = stdin === undefined ? {} : { stdin };
  const { code, stdout, stderr } = await linger(['audit', '-o', 'json', ...args], options);
  const { findings, summary } = JSON.parse(stdout) as AuditReport;
  const rows = Object.fromEntries(
    Object.entries(Object.groupBy(findings, ({ kind, name }) => `${kind} ${name}`)).map(([key, all = []]) => [
      key,
      `${all[0]?.verdict} ${all.map(({ reason }) => reason).join(',')}`,
    ]),
  );
  const said = (reason: string) => findings.filter((each) => each.reason === reason).map(({ text }) => text);
  return { code, stderr, findings, summary, rows, said };
}

const audit = (name: string, ...flags: string[]) => audited(['--webhook', '-f', at(name), ...flags]);
/** Audits an input in which texts have been replaced. */
async function auditWith(name: string, ...replaced: readonly (readonly [RegExp | string, string])[]) {
  let text = await textOf(name);
  for (const [from, to] of replaced) {
    expect(text).toMatch(from);
    text = text.replaceAll(from, to);
  }
  return audited(['--webhook', '-'], text);
}

describe.concurrent('one judge', () => {
  it('30: a plan that is there is judged as one that is to come', async () => {
    const webhook = await audit('30-injected-partial.yaml');
    const { stdout } = await linger(['inject', '-f', at('30-injected-partial.yaml')]);
    const injected = await audited(['--fail-on', 'any,unknown', '-'], stdout);
    expect(webhook.rows).toEqual({
      'Deployment front': 'unprotected PartialWait',
      'Deployment back': 'unknown ExistingHook',
    });
    expect([injected.code, injected.rows]).toEqual([3, webhook.rows]);
    expect(injected.findings.map(({ exposureSeconds }) => exposureSeconds)).toEqual([25, 0]);
  });

  it.each(['13-native-sidecar-prestop.yaml'])('%s: after inject, too', async (name) => {
    const { stdout } = await linger(['inject', '-f', at(name)]);
    const { rows } = await audited(['-'], stdout);
    expect(Object.values(rows).join()).toContain('SidecarHook');
  });
});

describe.concurrent('all pods behind a Service, and within a budget', () => {
  it('38: two budgets', async () => {
    const { said, rows } = await audit('38-two-budgets.yaml');
    expect(rows).toEqual({ 'Deployment web': 'protected Injected,DrainRefused' });
    expect(said('DrainRefused')[0]).toContain('web, front-tier select the same pods');
  });

  it.each([
    [
      'only one of them selects it',
      [['{matchLabels: {tier: front}}', '{matchLabels: {tier: back}}']],
      'protected Injected',
    ],
    [
      'the other is of another namespace',
      [['front-tier, namespace: shop', 'front-tier, namespace: x']],
      'protected Injected',
    ],
    ['one pod', [['replicas: 4', 'replicas: 1']], 'protected Injected,DrainRefused'],
    [
      'one budget that is given twice, as for two versions of the API',
      [
        ['front-tier', 'web'],
        ['minAvailable: 1', 'maxUnavailable: 1'],
      ],
      'protected Injected',
    ],
  ] as const)('38: %s', async (_, replaced, verdict) => {
    const { rows } = await auditWith('38-two-budgets.yaml', ...replaced);
    expect(rows['Deployment web']).toBe(verdict);
  });

  it.each([
    ['minAvailable: 1', true],
    ['minAvailable: 0', false],
    ['maxUnavailable: 1', true],
    ['minAvailable: "50%"', true],
  ])('38: the budget of a pod without a controller: %s', async (spec, isRefused) => {
    const pod =
      'apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {app: a}}\nspec: {containers: [{name: a, ports: [{containerPort: 80}]}]}';
    const budget = `apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a}\nspec: {${spec}, selector: {matchLabels: {app: a}}}`;
    const { said } = await audited(['--webhook', '-'], `${pod}\n---\n${budget}\n`);
    expect(said('DrainRefused')).toHaveLength(isRefused ? 1 : 0);
  });

  it('40: with a traffic router, a canary keeps its stable pods', async () => {
    const { rows } = await audit('40-canary-with-router.yaml');
    expect(rows).toEqual({ 'Rollout pay': 'protected Injected,NoOtherEndpoint' });
  });

  it.each([
    ['no router', 'trafficRouting: {nginx: {stableIngress: pay}}', 'antiAffinity: {}'],
    ['it scales them down', 'trafficRouting:', 'dynamicStableScale: true\n      trafficRouting:'],
  ])('40: but not with %s', async (_, from, to) => {
    const { rows } = await auditWith('40-canary-with-router.yaml', [from, to]);
    expect(rows['Rollout pay']).toBe('unprotected NoOtherEndpoint');
  });

  it.each(['istio: {}', 'alb: {ingress: pay, servicePort: 80}', 'plugins: {argoproj-labs/gatewayAPI: {}}'])(
    '40: whatever routes: %s',
    async (router) => {
      const { rows } = await auditWith('40-canary-with-router.yaml', ['nginx: {stableIngress: pay}', router]);
      expect(rows['Rollout pay']).toBe('protected Injected,NoOtherEndpoint');
    },
  );

  it('48: pods of three workloads behind one Service', async () => {
    const { rows, said } = await audit('48-one-service-three-workloads.yaml');
    expect(new Set(Object.values(rows))).toEqual(new Set(['protected Injected,RollsTogether']));
    expect(said('RollsTogether')[0]).toContain('One kubectl apply may roll all of them at once');
  });

  it.each([
    [
      'a Service for each',
      ['selector: {app: ingester}, ports', 'selector: {app: ingester, zone: a}, ports'],
      'zone-a',
      'unprotected NoOtherEndpoint',
    ],
    [
      'a budget that lets none go',
      ['minAvailable: 2', 'minAvailable: 3'],
      'zone-b',
      'protected Injected,RollsTogether,DrainRefused',
    ],
    [
      'more than there are',
      ['minAvailable: 2', 'minAvailable: 100%'],
      'zone-b',
      'protected Injected,RollsTogether,DrainRefused',
    ],
    ['one of them without pods', ['replicas: 1', 'replicas: 0'], 'zone-b', 'skipped NoReplicas'],
  ] as const)('48: %s', async (_, replaced, zone, verdict) => {
    const { rows } = await auditWith('48-one-service-three-workloads.yaml', replaced);
    expect(rows[`StatefulSet ingester-${zone}`]).toBe(verdict);
  });

  it('48: blue beside green, of which one has no pods', async () => {
    const one = (name: string, replicas: number) =>
      `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: ${name}}\nspec: {replicas: ${replicas}, strategy: {type: Recreate}, template: {metadata: {labels: {app: web, of: ${name}}}, spec: {containers: [{name: a, ports: [{containerPort: 80}]}]}}}\n---\n`;
    const service =
      'apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n';
    const rowsOf = async (green: number) =>
      (await audited(['--webhook', '-'], one('blue', 2) + one('green', green) + service)).rows[
        'Deployment blue'
      ];
    expect(await rowsOf(2)).toBe('protected Injected,RollsTogether');
    expect(await rowsOf(0)).toBe('unprotected NoOtherEndpoint');
  });
});

describe.concurrent('48: a port by its name', () => {
  const one = (name: string, ports: string) =>
    `apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: ${name}}\nspec: {replicas: 1, template: {metadata: {labels: {app: web, of: ${name}}}, spec: ${ports}}}\n---\n`;
  const containers = (...ports: readonly string[]) =>
    `{containers: [{name: a, ports: [${ports.join(', ')}]}]}`;
  const sidecar = `{initContainers: [{name: p, restartPolicy: Always, ports: [{name: grpc, containerPort: 90}]}], containers: [{name: a, ports: [{name: http, containerPort: 80}]}]}`;
  const service = (...ports: readonly string[]) =>
    `apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [${ports.join(', ')}]}\n`;
  const HTTP = '{name: http, containerPort: 80}';
  const GRPC = '{name: grpc, containerPort: 90}';
  const TO_HTTP = '{name: http, port: 80, targetPort: http}';
  const TO_GRPC = '{name: grpc, port: 90, targetPort: grpc}';
  const ALONE = 'unprotected NoOtherEndpoint';
  const BESIDE = 'protected Injected,RollsTogether';
  it.each([
    ['both have all', containers(HTTP, GRPC), containers(HTTP, GRPC), [TO_HTTP, TO_GRPC], BESIDE, BESIDE],
    ['one has all', containers(HTTP, GRPC), containers(HTTP), [TO_HTTP, TO_GRPC], ALONE, BESIDE],
    ['each has its own', containers(GRPC), containers(HTTP), [TO_HTTP, TO_GRPC], ALONE, ALONE],
    ['a number beside', containers(GRPC), containers(HTTP), [TO_GRPC, '{name: n, port: 80}'], ALONE, BESIDE],
    ['numbers', containers(GRPC), containers(HTTP), ['{port: 80, targetPort: 80}'], BESIDE, BESIDE],
    ['of a sidecar', sidecar, containers(HTTP, GRPC), [TO_HTTP, TO_GRPC], BESIDE, BESIDE],
    [
      'of another protocol',
      containers(GRPC),
      containers('{name: grpc, containerPort: 90, protocol: UDP}'),
      [TO_GRPC],
      ALONE,
      BESIDE,
    ],
  ] as const)('%s', async (_, a, b, ports, ofA, ofB) => {
    const { rows } = await audited(['--webhook', '-'], one('a', a) + one('b', b) + service(...ports));
    expect(rows).toEqual({ 'StatefulSet a': ofA, 'StatefulSet b': ofB });
  });

  it.each([
    ['of no container', service('{port: 80, targetPort: web}'), 'unknown NoService'],
    ['of one', service('{port: 80, targetPort: http}'), 'unprotected NotInjected'],
    ['beside a number', service('{port: 80, targetPort: web}', '{port: 90}'), 'unprotected NotInjected'],
    [
      'of no container, with a headless Service, by whose names clients find pods',
      service('{port: 80, targetPort: web}').replace('spec: {', 'spec: {clusterIP: None, '),
      'unprotected NotInjected',
    ],
  ])('%s', async (_, text, verdict) => {
    const deployment = one('a', containers(HTTP)).replace('StatefulSet', 'Deployment');
    const { rows } = await audited(['-'], deployment.replace('replicas: 1', 'replicas: 2') + text);
    expect(rows).toEqual({ 'Deployment a': verdict });
  });
});

describe.concurrent('what is known of the clients', () => {
  it('49: a Service for metrics alone', async () => {
    const { rows, said } = await audit('49-only-metrics.yaml');
    expect(rows).toEqual({ 'Deployment notifier': 'protected Injected,MetricsOnly' });
    expect(said('MetricsOnly')[0]).toContain('no request of a client is lost');
    const { rows: bare } = await audited(['-f', at('49-only-metrics.yaml')]);
    expect(bare).toEqual({ 'Deployment notifier': 'protected MetricsOnly' });
  });

  const ROUTE =
    '---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a, namespace: cd}\nspec: {defaultBackend: {service: {name: notifier-metrics, port: {number: 9001}}}}\n';
  it.each([
    ['http-metrics', [['name: metrics, port', 'name: http-metrics, port']], true],
    ['a port without a name, of what is called metrics', [['name: metrics, port', 'port']], true],
    ['kubebuilder’s https', [['name: metrics, port', 'name: https, port']], true],
    [
      'a port for clients beside it',
      [['ports: [{name: metrics, port', 'ports: [{name: http, port: 80}, {name: metrics, port']],
      false,
    ],
    [
      'one of another name',
      [
        ['notifier-metrics', 'notifier'],
        ['name: metrics, port', 'name: web, port'],
      ],
      false,
    ],
    [
      'one that serves the metrics of others',
      [
        ['notifier-metrics', 'metrics-server'],
        ['name: metrics, port', 'name: https, port'],
      ],
      false,
    ],
    ['a route to it', [[/$(?![\s\S])/g, ROUTE]], false],
    [
      'a load balancer',
      [['selector: {app: notifier}, ports', 'type: LoadBalancer, selector: {app: notifier}, ports']],
      false,
    ],
  ] as const)('49: %s', async (_, replaced, isOnly) => {
    const { rows } = await auditWith('49-only-metrics.yaml', ...replaced);
    expect(rows['Deployment notifier']?.startsWith('unprotected')).toBe(!isOnly);
    expect(rows['Deployment notifier']?.includes('MetricsOnly')).toBe(isOnly);
  });

  it('a port that no Service of the namespace selects is unknown, not unprotected', async () => {
    const text = (await textOf('49-only-metrics.yaml')).replaceAll(
      'app: notifier}, ports',
      'app: other}, ports',
    );
    const { rows } = await audited(['-'], text);
    expect(rows).toEqual({ 'Deployment notifier': 'unknown NoService,LivenessRestart' });
  });
});

describe.concurrent('objects around pods', () => {
  it('32: every group of workers', async () => {
    const { rows, said } = await audit('32-worker-groups.yaml');
    expect(rows).toEqual({
      'RayCluster ray (headGroupSpec)': 'unknown UnknownKind',
      'RayCluster ray (workerGroupSpecs[0])': 'unknown UnknownKind',
    });
    expect(said('FieldMisplaced')).toEqual([]);
    const { stdout } = await linger(['explain', '-f', at('32-worker-groups.yaml')]);
    expect(stdout).not.toContain('FieldMisplaced');
  });

  it('32: a group whose hook eats its grace is judged', async () => {
    const { rows } = await auditWith('32-worker-groups.yaml', [
      /\[\/bin\/sh, -c, ray stop\]\}\}\}\}\]\n$/g,
      '[sleep, "90"]}}}}]\n',
    ]);
    expect(rows['RayCluster ray (workerGroupSpecs[0])']).toBe('unprotected GraceEaten');
  });

  const POD =
    'spec: {containers: [{name: a, image: x, ports: [{containerPort: 80}], lifecycle: {preStop: {exec: {command: [sleep, "60"]}}}}]}';
  it.each([
    [
      'LeaderWorkerSet',
      `apiVersion: leaderworkerset.x-k8s.io/v1\nkind: LeaderWorkerSet\nmetadata: {name: l}\nspec: {leaderWorkerTemplate: {leaderTemplate: {${POD}}, workerTemplate: {${POD}}}}`,
      2,
    ],
    [
      'JobSet',
      `apiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\nmetadata: {name: j}\nspec: {replicatedJobs: [{name: a, template: {spec: {template: {${POD}}}}}]}`,
      1,
    ],
    [
      'ManifestWork',
      `apiVersion: work.open-cluster-management.io/v1\nkind: ManifestWork\nmetadata: {name: w}\nspec: {workload: {manifests: [{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2, template: {${POD}}}}]}}`,
      1,
    ],
    [
      'Object',
      `apiVersion: kubernetes.crossplane.io/v1alpha2\nkind: Object\nmetadata: {name: o}\nspec: {forProvider: {manifest: {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2, template: {${POD}}}}}}`,
      1,
    ],
    [
      'Policy',
      `apiVersion: policy.open-cluster-management.io/v1\nkind: Policy\nmetadata: {name: p}\nspec: {policy-templates: [{objectDefinition: {apiVersion: policy.open-cluster-management.io/v1, kind: ConfigurationPolicy, metadata: {name: c}, spec: {object-templates: [{complianceType: musthave, objectDefinition: {apiVersion: apps/v1, kind: Deployment, metadata: {name: d}, spec: {replicas: 2, template: {${POD}}}}}]}}}]}`,
      1,
    ],
  ])('33: every template of a %s', async (_, text, count) => {
    const { rows } = await audited(['--webhook', '-'], `${text}\n`);
    expect(Object.values(rows)).toEqual(Array(count).fill('unprotected GraceEaten'));
  });

  it('32: templates to which an operator adds the image', async () => {
    const text =
      'apiVersion: elasticsearch.k8s.elastic.co/v1\nkind: Elasticsearch\nmetadata: {name: es}\nspec: {nodeSets: [{name: a, podTemplate: {spec: {containers: [{name: elasticsearch, lifecycle: {preStop: {exec: {command: [sleep, "90"]}}}}]}}}, {name: b, podTemplate: {spec: {containers: [{name: elasticsearch}]}}}]}\n';
    const { rows } = await audited(['--webhook', '-'], text);
    expect(rows).toEqual({
      'Elasticsearch es (nodeSets[0].podTemplate)': 'unprotected GraceEaten',
      'Elasticsearch es (nodeSets[1].podTemplate)': 'unknown UnknownKind',
    });
  });

  it('33: both Deployments of a Template', async () => {
    const { rows, stderr, findings } = await audit('33-template-of-two.yaml');
    expect(rows).toEqual({
      'Deployment web': 'protected OwnHook',
      'Deployment api': 'unprotected GraceEaten',
    });
    expect(stderr).toContain(`oc process --local -f ${at('33-template-of-two.yaml')}`);
    expect(findings.map(({ line }) => line).toSorted()).toEqual([10, 21]);
    const { stdout } = await linger(['inject', '-f', at('33-template-of-two.yaml')]);
    expect(stdout).toBe(await textOf('33-template-of-two.yaml'));
  });

  it.each(['audit', 'explain'])('39: %s of a namespace that is a boolean', async (verb) => {
    const { stdout } = await linger([verb, '-f', at('39-namespace-no.yaml')]);
    expect(stdout).toContain('metadata.namespace: expected a string, got boolean false');
    expect(stdout).not.toMatch(/^protected|outcome {2}inject/m);
  });

  it.each([
    [
      'a number as name',
      'name: web, namespace: no',
      'name: 80',
      'metadata.name: expected a string, got number 80',
    ],
    ['a label', 'namespace: no', 'labels: {a: 1}', 'metadata.labels: expected a map of strings, got a (1)'],
    [
      'replicas in quotes',
      'namespace: no}\nspec:\n  replicas: 2',
      'labels: {}}\nspec:\n  replicas: "2"',
      'spec.replicas: expected a whole number, got string 2',
    ],
    [
      'a strategy without its type',
      'namespace: no}\nspec:',
      'labels: {}}\nspec:\n  strategy: Recreate',
      'spec.strategy: expected an object, got string Recreate',
    ],
  ])('39: %s', async (_, from, to, expected) => {
    const { said, rows } = await auditWith('39-namespace-no.yaml', [from, to]);
    expect(Object.values(rows)).toEqual(['unknown InvalidObject']);
    expect(said('InvalidObject')[0]).toContain(expected);
  });

  it('39: whatever else is found in it', async () => {
    const { rows } = await auditWith('39-namespace-no.yaml', [
      'replicas: 2',
      'replicas: 2\n  strategy: {type: Recreate}',
    ]);
    expect(Object.values(rows)).toEqual(['unknown InvalidObject']);
  });

  it('39: inject leaves it unchanged', async () => {
    const { stdout, stderr } = await linger(['inject', '-f', at('39-namespace-no.yaml')]);
    expect([stdout, stderr]).toEqual([
      await textOf('39-namespace-no.yaml'),
      expect.stringContaining('left unchanged'),
    ]);
  });

  it('51: fields of the workload in the pod', async () => {
    const { said } = await audit('51-strategy-in-the-pod.yaml');
    expect(said('FieldMisplaced')[0]).toContain(
      'spec.template.spec.strategy, spec.template.spec.minReadySeconds has no effect',
    );
    const { stdout } = await linger(['explain', '-f', at('51-strategy-in-the-pod.yaml')]);
    expect(stdout).toContain('note FieldMisplaced');
  });

  it.each([
    [
      'kind: Deployment',
      'kind: StatefulSet',
      '  replicas: 2',
      '  strategy: {type: Recreate}',
      'calls it updateStrategy',
    ],
    [
      'kind: Deployment',
      'kind: Deployment',
      '  replicas: 2',
      '  updateStrategy: {type: OnDelete}',
      'calls it strategy',
    ],
    [
      'kind: Deployment',
      'kind: Deployment',
      '  replicas: 2',
      '  rollingUpdate: {maxUnavailable: 1}',
      'spec.rollingUpdate has no effect: it belongs in strategy',
    ],
    [
      'kind: Deployment',
      'kind: Deployment',
      '  replicas: 2',
      '  min_ready_seconds: 5',
      'it is spelt minReadySeconds',
    ],
    [
      'kind: Deployment',
      'kind: Deployment',
      '  replicas: 2',
      '  maxUnavailable: 1',
      'spec.maxUnavailable has no effect: it belongs in rollingUpdate',
    ],
    [
      'kind: Deployment',
      'kind: Deployment',
      'minReadySeconds: 20',
      'replicas: 3',
      'spec.template.spec.replicas',
    ],
    [
      'kind: Deployment',
      'kind: Deployment',
      '  replicas: 2',
      '  strategy: {minReadySeconds: 5}',
      'spec.strategy.minReadySeconds',
    ],
    [
      'kind: Deployment',
      'kind: Deployment',
      '  replicas: 2',
      '  strategy: {rollingUpdate: {maxUnavailable: 0, minReadySeconds: 5}}',
      'spec.strategy.rollingUpdate.minReadySeconds',
    ],
    [
      'kind: Deployment',
      'kind: StatefulSet',
      '  replicas: 2',
      '  updateStrategy: {type: RollingUpdate, maxUnavailable: 1}',
      'spec.updateStrategy.maxUnavailable has no effect: it belongs in rollingUpdate of updateStrategy',
    ],
    [
      'apps/v1\nkind: Deployment',
      'argoproj.io/v1alpha1\nkind: Rollout',
      '  replicas: 2',
      '  strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 0}}',
      'spec.strategy.rollingUpdate has no effect: it belongs in strategy, where a Rollout calls it canary',
    ],
  ])('51: by the schema of the object: %s %s %s %s', async (kind, other, from, to, expected) => {
    const { said } = await auditWith('51-strategy-in-the-pod.yaml', [kind, other], [from, to]);
    expect(said('FieldMisplaced')[0]).toContain(expected);
  });

  it.each([
    [
      'of a canary',
      'argoproj.io/v1alpha1',
      'Rollout',
      'strategy: {canary: {maxSurge: 1, maxUnavailable: 0, steps: [{setWeight: 5}]}}',
    ],
    [
      'of a StatefulSet',
      'apps/v1',
      'StatefulSet',
      'minReadySeconds: 5, updateStrategy: {rollingUpdate: {maxUnavailable: 1, partition: 0}}',
    ],
    [
      'of a CloneSet',
      'apps.kruise.io/v1alpha1',
      'CloneSet',
      'minReadySeconds: 5, lifecycle: {preDelete: {}}, updateStrategy: {maxUnavailable: 1, maxSurge: 0}',
    ],
    [
      'of a StatefulSet of OpenKruise',
      'apps.kruise.io/v1beta1',
      'StatefulSet',
      'updateStrategy: {rollingUpdate: {maxUnavailable: 1, minReadySeconds: 5}}',
    ],
  ])('51: not where they belong: %s', async (_, apiVersion, kind, spec) => {
    const pod =
      'template: {spec: {terminationGracePeriodSeconds: 40, containers: [{name: a, ports: [{containerPort: 80}]}]}}';
    const { said } = await audited(
      ['--webhook', '-'],
      `apiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: {name: a}\nspec: {replicas: 3, ${spec}, ${pod}}\n`,
    );
    expect(said('FieldMisplaced')).toEqual([]);
  });
});

// Not concurrent: a folder is removed at the end of its test.
describe('real repositories', () => {
  it.each(['audit', 'explain'])(
    '36: %s goes on beside a kustomization that cannot be rendered',
    async (verb) => {
      const { code, stdout, stderr } = await linger([verb, '-R', '-f', at('36-one-bad-kustomization')]);
      expect([code, stdout, stderr]).toEqual([
        1,
        expect.stringMatching(/web[\s\S]*GraceEaten/),
        expect.stringMatching(/needs-a-step.*names all\.yaml, which is not there/),
      ]);
    },
  );

  it('37: a source of GitOps is named, and unknown', async () => {
    const { code, rows, said } = await audited([
      '--webhook',
      '-R',
      '-f',
      at('37-gitops-sources'),
      '--fail-on',
      'unknown',
    ]);
    expect([code, rows]).toEqual([
      3,
      { 'HelmRelease shop': 'unknown NotRendered', 'Deployment web': 'protected OwnHook' },
    ]);
    expect(said('NotRendered')[0]).toContain('helm template');
  });

  it.each([
    ['kustomize.toolkit.fluxcd.io/v1', 'Kustomization', 'flux build'],
    ['argoproj.io/v1alpha1', 'Application', 'argocd app manifests'],
    ['argoproj.io/v1alpha1', 'ApplicationSet', 'argocd'],
    ['helm.cattle.io/v1', 'HelmChart', 'helm template'],
    ['fleet.cattle.io/v1alpha1', 'GitRepo', 'fleet apply'],
    ['core.oam.dev/v1beta1', 'Application', 'vela dry-run'],
    ['apps.open-cluster-management.io/v1', 'Subscription', 'kubectl kustomize'],
    ['addons.cluster.x-k8s.io/v1alpha1', 'HelmChartProxy', 'helm template'],
    ['config.projectsveltos.io/v1beta1', 'ClusterProfile', 'helm template'],
  ])('37: %s %s', async (apiVersion, kind, how) => {
    const text = `apiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: {name: a}\nspec: {source: {chart: x}}\n`;
    const { rows, said } = await audited(['-'], text);
    expect(rows).toEqual({ [`${kind} a`]: 'unknown NotRendered' });
    expect(said('NotRendered')[0]).toContain(how);
    const { stdout, stderr } = await linger(['inject', '-'], { stdin: text });
    expect([stdout, stderr]).toEqual([text, '']);
  });

  const FLUX = (path: string, kind: string, name = 'a') =>
    `apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a}\nspec: {path: ${path}, sourceRef: {kind: ${kind}, name: ${name}}}\n`;
  const ARGO = (sources: string) =>
    `apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\nspec: {${sources}}\n`;
  it.each([
    ['its folder', FLUX('./cluster/apps', 'GitRepository'), false],
    ['without a dot', FLUX('cluster/apps/', 'GitRepository'), false],
    ['another folder', FLUX('./cluster/other', 'GitRepository'), true],
    ['a folder that is not at the root', FLUX('./apps', 'GitRepository'), true],
    ['all', FLUX('./', 'GitRepository'), true],
    ['what another repository pushes', FLUX('./cluster/apps', 'OCIRepository'), true],
    ['what is pushed from here', FLUX('./cluster/apps', 'OCIRepository', 'flux-system'), false],
    ['an artifact', FLUX('./cluster/apps', 'ExternalArtifact'), true],
    ['an Application', ARGO('source: {repoURL: x, path: cluster/apps}'), false],
    ['one of a chart', ARGO('source: {repoURL: x, chart: cluster/apps}'), true],
    [
      'one of a chart and values from here',
      ARGO('sources: [{repoURL: x, chart: c}, {repoURL: x, ref: values}]'),
      true,
    ],
    [
      'one of two folders',
      ARGO('sources: [{repoURL: x, path: cluster/apps}, {repoURL: x, path: cluster/more}]'),
      true,
    ],
  ])('37: whether what is applied is here: %s', async (_, source, isUnknown) => {
    const folder = await emptyDirectory();
    await mkdir(join(folder, 'cluster', 'apps'), { recursive: true });
    await writeFile(join(folder, 'readme.yaml'), DEPLOYMENT('other', 'other'));
    await writeFile(join(folder, 'cluster', 'source.yaml'), source);
    await writeFile(join(folder, 'cluster', 'apps', 'web.yaml'), DEPLOYMENT('web', 'web'));
    const { rows } = await audited(['-R', '-f', folder]);
    expect(Object.values(rows).includes('unknown NotRendered')).toBe(isUnknown);
    expect(rows['Deployment web']).toBeDefined();
  });

  it('a kustomization beside files that install the same relates to its own Services alone', async () => {
    const folder = await emptyDirectory();
    const service = (port: string) =>
      `---\napiVersion: v1\nkind: Service\nmetadata: {name: web-${port}}\nspec: {selector: {app: web}, ports: [{name: ${port}, port: 80}]}\n`;
    await mkdir(join(folder, 'built'));
    await writeFile(join(folder, 'built', 'web.yaml'), DEPLOYMENT('web', 'web') + service('http'));
    await writeFile(join(folder, 'built', 'kustomization.yaml'), 'resources: [web.yaml]\n');
    await writeFile(join(folder, 'web.yaml'), DEPLOYMENT('web', 'web') + service('metrics'));
    await writeFile(join(folder, 'other.yaml'), DEPLOYMENT('other', 'web'));
    const { findings } = await audited(['-R', '-f', folder]);
    const reasons = findings.map(({ name, source, reason }) => `${source ? 'built ' : ''}${name} ${reason}`);
    expect(reasons.toSorted()).toEqual(['built web NotInjected', 'other NotInjected', 'web MetricsOnly']);
  });

  it.each([
    ['chart: {spec: {chart: ./charts/web, sourceRef: {kind: GitRepository, name: a}}}', './charts/web with'],
    ['chartRef: {kind: OCIRepository, name: web}', 'that of OCIRepository web'],
    ['chartRef: {kind: HelmChart, name: web}', 'that of HelmChart web'],
    ['chartRef: {kind: ExternalArtifact, name: web}', 'that of ExternalArtifact web'],
  ])('37: a HelmRelease with %s says what to render', async (spec, how) => {
    const text = `apiVersion: helm.toolkit.fluxcd.io/v2\nkind: HelmRelease\nmetadata: {name: a}\nspec: {${spec}}\n`;
    expect((await audited(['-'], text)).said('NotRendered')[0]).toContain(how);
  });

  it('37: what is no manifest in a folder of a repository is passed over', async () => {
    const folder = await emptyDirectory();
    await mkdir(join(folder, '.github'), { recursive: true });
    await writeFile(join(folder, 'people.json'), '[{"name": "a"}]');
    await writeFile(join(folder, 'values.yaml'), 'a: %{ if x }\n');
    await writeFile(join(folder, '.github', 'a.yaml'), 'apiVersion: v1\nkind: [\n');
    await writeFile(join(folder, 'web.yaml'), DEPLOYMENT('web', 'web'));
    expect(await audited(['-R', '-f', folder])).toMatchObject({ code: 0, stderr: '' });
    // What is named itself is read.
    expect(await audited(['-f', join(folder, 'people.json')])).toMatchObject({ code: 1 });
    await writeFile(join(folder, 'broken.yaml'), 'apiVersion: v1\nkind: [\n');
    expect(await audited(['-R', '-f', folder])).toMatchObject({ code: 1 });
  });

  const serviceOf = (app: string) =>
    `---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: ${app}}, ports: [{port: 80}]}\n`;
  it('one Service for each of two places: pods of both serve', async () => {
    const text = `${DEPLOYMENT('a', 'a')}${serviceOf('a')}---\n${DEPLOYMENT('b', 'b')}${serviceOf('b')}`;
    const { rows } = await audited(['--webhook', '-'], text);
    expect(rows).toEqual({ 'Deployment a': 'protected Injected', 'Deployment b': 'protected Injected' });
  });

  it('a pod that ends serves beside nobody', async () => {
    const test =
      '---\napiVersion: v1\nkind: Pod\nmetadata: {name: test, labels: {app: web}}\nspec: {restartPolicy: Never, containers: [{name: t}]}\n';
    const alone = DEPLOYMENT('web', 'web').replace('replicas: 2', 'replicas: 2, strategy: {type: Recreate}');
    const { rows } = await audited(['--webhook', '-'], alone + serviceOf('web') + test);
    expect(rows['Deployment web']).toBe('unprotected NoOtherEndpoint');
  });

  it.each([
    [[], 1],
    [['--allow-empty'], 0],
  ])('37: --fail-on over nothing %j: %i', async (flags, expected) => {
    const stdin = 'apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {}\n';
    const { code } = await audited(['--fail-on', 'any', ...flags, '-'], stdin);
    expect(code).toBe(expected);
  });

  it('47: places are files of the repository', async () => {
    const file = /testdata\/cases\/47-kustomize-places\/base\/web\.yaml/;
    const { findings } = await audit('47-kustomize-places', '-R');
    expect(findings).toMatchObject([{ name: 'prod-web', file: expect.stringMatching(file), line: 1 }]);
    for (const output of ['github', 'sarif', 'junit', 'table']) {
      const { stdout } = await linger(['audit', '-R', '-f', at('47-kustomize-places'), '-o', output]);
      expect(stdout).toMatch(file);
    }
  });
});

describe.concurrent('31: what sends to the pods of a Service', () => {
  const WEB = `${DEPLOYMENT('web', 'web')}---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n`;
  const sender = (apiVersion: string, kind: string, spec: string, metadata = '') =>
    `---\napiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: {name: r${metadata}}\nspec: ${spec}\n`;
  const INGRESS = (name: string, annotations = '{}') =>
    sender(
      'networking.k8s.io/v1',
      'Ingress',
      `{ingressClassName: ${name}, defaultBackend: {service: {name: web, port: {number: 80}}}}`,
      `, annotations: ${annotations}`,
    );
  const GATEWAY = (name: string) =>
    sender('gateway.networking.k8s.io/v1', 'Gateway', `{gatewayClassName: ${name}, listeners: []}`) +
    sender(
      'gateway.networking.k8s.io/v1',
      'HTTPRoute',
      '{parentRefs: [{name: r}], rules: [{backendRefs: [{name: web, port: 80}]}]}',
    );
  it.each([
    [
      'a binding of EKS Auto Mode',
      sender('eks.amazonaws.com/v1', 'TargetGroupBinding', '{serviceRef: {name: web}}'),
      'aws-target-groups',
    ],
    [
      'a binding',
      sender('elbv2.k8s.aws/v1beta1', 'TargetGroupBinding', '{targetType: ip, serviceRef: {name: web}}'),
      'aws-target-groups',
    ],
    [
      'a binding of instances',
      sender(
        'elbv2.k8s.aws/v1beta1',
        'TargetGroupBinding',
        '{targetType: instance, serviceRef: {name: web}}',
      ),
      undefined,
    ],
    ['an ALB', INGRESS('alb'), 'aws-target-groups'],
    ['an ALB to instances', INGRESS('alb', '{alb.ingress.kubernetes.io/target-type: instance}'), undefined],
    ['an internal load balancer of GKE', INGRESS('gce-internal'), 'gke-neg'],
    ['a Gateway of GKE', GATEWAY('gke-l7-global-external-managed'), 'gke-neg'],
    ['a Gateway of many clusters', GATEWAY('gke-l7-rilb-mc'), 'gke-neg'],
    ['Tailscale, which sends to the ClusterIP', INGRESS('tailscale'), undefined],
    [
      'a page for errors',
      sender('traefik.io/v1alpha1', 'Middleware', '{errors: {service: {name: web, port: 80}}}'),
      'traefik',
    ],
    [
      'another Middleware',
      sender('traefik.io/v1alpha1', 'Middleware', '{stripPrefix: {prefixes: [/a]}}'),
      undefined,
    ],
    [
      'an ExtensionService',
      sender('projectcontour.io/v1alpha1', 'ExtensionService', '{services: [{name: web, port: 80}]}'),
      'contour',
    ],
    [
      'a VirtualService of the mesh',
      sender(
        'networking.istio.io/v1',
        'VirtualService',
        '{hosts: [web], http: [{route: [{destination: {host: web}}]}]}',
      ),
      'istio-sidecars',
    ],
    [
      'one of a gateway',
      sender(
        'networking.istio.io/v1beta1',
        'VirtualService',
        '{gateways: [a/b], http: [{route: [{destination: {host: web}}]}]}',
      ),
      'istio-gateway',
    ],
    [
      'one of Gloo',
      sender(
        'gateway.solo.io/v1',
        'VirtualService',
        '{virtualHost: {routes: [{routeAction: {single: {kube: {ref: {name: web}}}}}]}}',
      ),
      'VirtualService',
    ],
    [
      'a route table of Gloo',
      sender(
        'gateway.solo.io/v1',
        'RouteTable',
        '{routes: [{routeAction: {multi: {destinations: [{destination: {kube: {ref: {name: web, namespace: default}}}}]}}}]}',
      ),
      'RouteTable',
    ],
    [
      'a TrafficSplit',
      sender(
        'split.smi-spec.io/v1alpha4',
        'TrafficSplit',
        '{service: a, backends: [{service: web, weight: 1}]}',
      ),
      'TrafficSplit',
    ],
    [
      'a route of a mesh',
      sender(
        'gateway.networking.k8s.io/v1',
        'GRPCRoute',
        '{parentRefs: [{group: "", kind: Service, name: web}], rules: [{backendRefs: [{name: web}]}]}',
      ),
      'GRPCRoute',
    ],
    [
      'Cilium',
      sender('cilium.io/v2', 'CiliumClusterwideEnvoyConfig', '{services: [{name: web, namespace: default}]}'),
      'CiliumClusterwideEnvoyConfig',
    ],
    [
      'who authorises',
      sender('getambassador.io/v3alpha1', 'AuthService', '{auth_service: "web.default:80"}'),
      'AuthService',
    ],
    [
      'who limits',
      sender('getambassador.io/v2', 'RateLimitService', '{service: "http://web:80"}'),
      'RateLimitService',
    ],
    ['another Service', sender('getambassador.io/v2', 'Mapping', '{service: "other:80"}'), undefined],
  ])('%s', async (_, object, who) => {
    const { said } = await audited(['--webhook', '-'], WEB + object);
    expect(said('UndeclaredConsumer')).toEqual(who === undefined ? [] : [expect.stringContaining(who)]);
  });

  const OTHER =
    '---\napiVersion: v1\nkind: Service\nmetadata: {name: o}\nspec: {selector: {app: o}, ports: [{port: 80}]}\n';
  it.each([
    ['Flagger makes its Services', '{targetRef: {kind: Deployment, name: web}}', 'unprotected NotInjected'],
    ['those of another', '{targetRef: {kind: Deployment, name: other}}', 'unknown NoService'],
  ])('%s', async (_, spec, verdict) => {
    const canary = sender('flagger.app/v1beta1', 'Canary', spec);
    const { rows } = await audited(['-'], DEPLOYMENT('web', 'web') + OTHER + canary);
    expect(rows['Deployment web']).toBe(verdict);
  });

  it('a redirection of Cilium finds pods by their labels', async () => {
    const policy = sender(
      'cilium.io/v2',
      'CiliumLocalRedirectPolicy',
      '{redirectBackend: {localEndpointSelector: {matchLabels: {app: web}}}}',
    );
    const { said } = await audited(['--webhook', '-'], DEPLOYMENT('web', 'web') + OTHER + policy);
    expect(said('UndeclaredConsumer')[0]).toContain('CiliumLocalRedirectPolicy default/r');
  });
});

describe.concurrent('what is not known, or not trusted', () => {
  it('31: a load balancer that sends to the pods themselves', async () => {
    const { stdout } = await linger(['consumers', 'discover', '-f', at('31-nlb-to-pods.yaml')]);
    expect(stdout).toContain('kind: DiscoveryConsumer\nmetadata:\n  name: aws-target-groups');
    expect(stdout).not.toContain('nothing to declare');
    const { said } = await audit('31-nlb-to-pods.yaml');
    expect(said('UndeclaredConsumer')[0]).toContain('aws-target-groups');
  });

  it('31: an Ingress of EKS Auto Mode', async () => {
    const stdin =
      'apiVersion: networking.k8s.io/v1\nkind: IngressClass\nmetadata: {name: auto}\nspec: {controller: eks.amazonaws.com/alb}\n---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: a}\nspec: {ingressClassName: auto, defaultBackend: {service: {name: web, port: {number: 80}}}}\n';
    const { stdout } = await linger(['consumers', 'discover', '-f', '-'], { stdin });
    expect(stdout).toContain('name: aws-target-groups');
  });

  const TYPE = 'service.beta.kubernetes.io/aws-load-balancer-nlb-target-type: ip';
  it.each([
    [
      'its older form',
      [
        [TYPE, 'a: b'],
        ['aws-load-balancer-type: external', 'aws-load-balancer-type: nlb-ip'],
      ],
      true,
    ],
    [
      'EKS Auto Mode',
      [
        [TYPE, 'a: b'],
        ['service.k8s.aws/nlb', 'eks.amazonaws.com/nlb'],
      ],
      true,
    ],
    ['instances', [[TYPE, TYPE.replace(': ip', ': instance')]], false],
    [
      'instances in Auto Mode',
      [
        [TYPE, TYPE.replace(': ip', ': instance')],
        ['service.k8s.aws/nlb', 'eks.amazonaws.com/nlb'],
      ],
      false,
    ],
  ] as const)('31: %s', async (_, replaced, isDeclared) => {
    let text = await textOf('31-nlb-to-pods.yaml');
    for (const [from, to] of replaced) text = text.replaceAll(from, to);
    const { stdout } = await linger(['consumers', 'discover', '-f', '-'], { stdin: text });
    expect(stdout.includes('name: aws-target-groups')).toBe(isDeclared);
  });

  it('34: the sleep of a pod for Windows', async () => {
    const { rows, said } = await audit('34-windows-author-sleep.yaml');
    expect(rows).toEqual({ 'Deployment iis': 'unprotected HookTooShort' });
    expect(said('HookTooShort')[0]).toContain('no image for Windows has the program sleep');
  });

  it.each([
    ['command: [sleep, "40"]', 'command: [/bin/sleep, "40"]', 'unprotected HookTooShort'],
    ['command: [sleep, "40"]', 'command: [sh, -c, sleep 40]', 'unknown ExistingHook'],
    ['command: [sleep, "40"]', 'command: [powershell, Start-Sleep, "40"]', 'unknown ExistingHook'],
    ['preStop: {exec: {command: [sleep, "40"]}}', 'preStop: {sleep: {seconds: 40}}', 'protected OwnHook'],
    ['nodeSelector: {kubernetes.io/os: windows}', 'os: {name: windows}', 'unprotected HookTooShort'],
    ['kubernetes.io/os: windows', 'kubernetes.io/os: linux', 'protected OwnHook'],
  ])('34: %s → %s', async (from, to, verdict) => {
    const { rows } = await auditWith('34-windows-author-sleep.yaml', [from, to]);
    expect(rows['Deployment iis']).toBe(verdict);
  });

  it.each([
    ['gcr.io/distroless/java17', 'unprotected HookTooShort'],
    ['gcr.io/distroless/java17:debug', 'protected OwnHook'],
    ['mirror.example/google/distroless/java21-debian12:nonroot', 'unprotected HookTooShort'],
    ['mirror.example/google/distroless/base-debian12:debug-nonroot', 'protected OwnHook'],
    ['ghcr.io/distroless/busybox', 'protected OwnHook'],
  ])('34: a shell in %s', async (image, verdict) => {
    const { rows } = await auditWith(
      '34-windows-author-sleep.yaml',
      ['nodeSelector: {kubernetes.io/os: windows}', 'nodeSelector: {}'],
      ['registry.example/iis:ltsc2022', image],
      ['[sleep, "40"]', '[sh, -c, sleep 40]'],
    );
    expect(rows['Deployment iis']).toBe(verdict);
  });

  it('35: a sidecar that is added when the pod is admitted', async () => {
    const { rows } = await audit('35-sidecar-comes-later.yaml');
    expect(rows).toEqual({
      'Deployment orders': 'protected Injected',
      'Deployment orders-short': 'unprotected PartialWait',
    });
    const { stdout } = await linger(['inject', '-f', at('35-sidecar-comes-later.yaml')]);
    const injected = await audited(['-'], stdout);
    expect(injected.rows).toEqual({
      'Deployment orders': 'protected AlreadyInjected,SidecarAddedLater',
      'Deployment orders-short': 'unprotected PartialWait,SidecarAddedLater',
    });
    expect(injected.said('SidecarAddedLater').join()).toMatch(
      /without any wait[\s\S]*a wait of 10s, shorter/,
    );
  });

  it.each([
    ['Istio', 'linkerd.io/inject: enabled}', 'sidecar.istio.io/inject: "true"}', true],
    [
      'a native one of Istio',
      'linkerd.io/inject: enabled}',
      'sidecar.istio.io/inject: "true", sidecar.istio.io/nativeSidecar: "true"}',
      false,
    ],
    ['Dapr', 'linkerd.io/inject: enabled}', 'dapr.io/enabled: "true"}', true],
    [
      'Dapr that waits itself',
      'linkerd.io/inject: enabled}',
      'dapr.io/enabled: "true", dapr.io/block-shutdown-duration: 0m35s}',
      false,
    ],
    [
      'a native one of Linkerd',
      'linkerd.io/inject: enabled}',
      'linkerd.io/inject: enabled, config.beta.linkerd.io/proxy-enable-native-sidecar: "true"}',
      false,
    ],
    ['none', 'linkerd.io/inject: enabled}', 'linkerd.io/inject: disabled}', false],
  ])('35: %s', async (_, from, to, isNamed) => {
    const [text = ''] = (await textOf('35-sidecar-comes-later.yaml')).split('---\n');
    const { stdout } = await linger(['inject', '-'], { stdin: text.replace(from, to) });
    const { rows } = await audited(['-'], stdout);
    expect(rows['Deployment orders']?.includes('SidecarAddedLater')).toBe(isNamed);
  });

  it('35: by the annotation of its Namespace', async () => {
    const [text = ''] = (await textOf('35-sidecar-comes-later.yaml')).split('---\n');
    const namespace =
      '---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {linkerd.io/inject: enabled}}\n';
    const stdin = text.replace(', annotations: {linkerd.io/inject: enabled}', '') + namespace;
    const { stdout } = await linger(['inject', '-'], { stdin });
    expect((await audited(['-'], stdout)).said('SidecarAddedLater')).toHaveLength(1);
  });

  it.each([
    [
      'a wait of Linkerd’s',
      'annotations: {linkerd.io/inject: enabled, config.alpha.linkerd.io/proxy-wait-before-exit-seconds: "40"}',
      0,
    ],
    ['a revision of Istio', 'labels: {istio.io/rev: canary}', 1],
    ['a revision, and injection disabled', 'labels: {istio.io/rev: canary, istio-injection: disabled}', 0],
  ])('35: by %s of its Namespace', async (_, marks, count) => {
    const [text = ''] = (await textOf('35-sidecar-comes-later.yaml')).split('---\n');
    const namespace = `---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, ${marks}}\n`;
    const stdin = text.replace(', annotations: {linkerd.io/inject: enabled}', '') + namespace;
    const { stdout } = await linger(['inject', '-'], { stdin });
    expect((await audited(['-'], stdout)).said('SidecarAddedLater')).toHaveLength(count);
  });

  it('42: a liveness probe of the only replica', async () => {
    const { said } = await audit('42-liveness.yaml');
    const { stdout } = await linger(['explain', '-f', at('42-liveness.yaml')]);
    expect(said('LivenessRestart')[0]).toContain('is restarted 30s later, and this is its only replica');
    expect(stdout).toContain(`note LivenessRestart: ${said('LivenessRestart')[0]}`);
  });

  it.each([
    ['replicas: 1', 'replicas: 2', 0],
    ['periodSeconds: 2,', 'terminationGracePeriodSeconds: 5,', 0],
    ['livenessProbe', 'startupProbe', 1],
    ['livenessProbe', 'readinessProbe', 0],
    ['  replicas: 1\n', '', 1],
  ])('42: %s → %s', async (from, to, count) => {
    const { said } = await auditWith('42-liveness.yaml', [from, to]);
    expect(said('LivenessRestart')).toHaveLength(count);
  });

  it('43: a hook that never ends', async () => {
    const { rows, said } = await audit('43-endless-hook.yaml');
    expect(rows).toEqual({ 'Deployment worker': 'unprotected GraceEaten' });
    expect(said('GraceEaten')[0]).toMatch(/let the hook end, or remove it/);
    expect(said('GraceEaten')[0]).not.toContain('raise terminationGracePeriodSeconds');
  });

  it('43: nor does a sleep of a year', async () => {
    const { said } = await auditWith('43-endless-hook.yaml', ['[sleep, infinity]', '[sleep, 365d]']);
    expect(said('GraceEaten')[0]).toContain('let the hook end, or remove it');
  });

  it.each([
    ['[tail, -f, /dev/null]', 'unprotected GraceEaten'],
    ['[sh, -c, "tail -f /dev/null"]', 'unprotected GraceEaten'],
    ['[sh, -c, "while true; do sleep 1; done"]', 'unprotected GraceEaten'],
    ['[bash, -c, "while :\\ndo\\n  sleep 5\\ndone\\n"]', 'unprotected GraceEaten'],
    ['[sh, -c, "until false; do :; done"]', 'unprotected GraceEaten'],
    ['[sh, -c, "while true; do curl -f localhost || break; sleep 1; done"]', 'unknown ExistingHook'],
    ['[sh, -c, "while [ -f /tmp/busy ]; do sleep 1; done"]', 'unknown ExistingHook'],
    ['[sh, -c, "while true; do sleep 1; done & exit 0"]', 'unknown ExistingHook'],
    ['[tail, -f, /var/log/app.log]', 'unknown ExistingHook'],
  ])('43: %s', async (command, verdict) => {
    const { rows } = await auditWith('43-endless-hook.yaml', ['[sleep, infinity]', command]);
    expect(rows['Deployment worker']).toBe(verdict);
  });

  it('44: a pool of nodes that go away', async () => {
    const { rows, said } = await audit('44-spot-by-nodepool.yaml');
    expect(rows).toEqual({ 'Deployment web': 'protected Injected,NodeBudgetShort' });
    expect(said('NodeBudgetShort')[0]).toContain('330s is more than the node grants');
  });

  const AFFINITY =
    'affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: karpenter.sh/nodepool, operator: In, values: [cheap]}]}]}}}';
  it.each([
    ['by affinity', 'nodeSelector: {karpenter.sh/nodepool: cheap}', AFFINITY, 1],
    ['of spot alone', 'terminationGracePeriod: 60s\n', 'expireAfter: 1h\n', 1],
    ['another one', 'nodepool: cheap}', 'nodepool: dear}', 0],
    ['with time enough', 'terminationGracePeriod: 60s', 'terminationGracePeriod: 60m', 1],
    ['that stays', 'values: [spot]', 'values: [on-demand]', 1],
    ['by what its nodes are', '{karpenter.sh/nodepool: cheap}', '{karpenter.sh/capacity-type: spot}', 1],
    ['of EKS', '{karpenter.sh/nodepool: cheap}', '{eks.amazonaws.com/capacityType: SPOT}', 1],
    ['of EKS on demand', '{karpenter.sh/nodepool: cheap}', '{eks.amazonaws.com/capacityType: ON_DEMAND}', 0],
    [
      'that the rest excludes',
      'nodepool: cheap}',
      'nodepool: cheap, karpenter.sh/capacity-type: on-demand}',
      0,
    ],
    ['a short grace', 'terminationGracePeriodSeconds: 300', 'terminationGracePeriodSeconds: 20', 0],
  ])('44: %s', async (_, from, to, count) => {
    const { said } = await auditWith('44-spot-by-nodepool.yaml', [from, to]);
    expect(said('NodeBudgetShort')).toHaveLength(count);
  });

  const POOL = (name: string, type: string) =>
    `\n---\napiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: ${name}}\nspec: {template: {spec: {requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [${type}]}]}}}\n`;
  it.each([
    ['spot', 1],
    ['on-demand', 0],
  ])('44: one of two pools, of which the other is %s', async (type, count) => {
    const text = (await textOf('44-spot-by-nodepool.yaml')).replace(
      'nodeSelector: {karpenter.sh/nodepool: cheap}',
      AFFINITY.replace('[cheap]', '[cheap, other]'),
    );
    const { said } = await audited(['--webhook', '-'], text + POOL('other', type));
    expect(said('NodeBudgetShort')).toHaveLength(count);
  });

  const ON = (nodeSelector: string) =>
    [
      ['{karpenter.sh/nodepool: cheap}', nodeSelector],
      ['terminationGracePeriodSeconds: 300', 'terminationGracePeriodSeconds: 60'],
    ] as const;
  it.each([
    ['{cloud.google.com/gke-spot: "true"}', 'unknown NodeBudgetShort', 5, 25],
    ['{cloud.google.com/gke-provisioning: spot}', 'unknown NodeBudgetShort', 5, 25],
    ['{cloud.google.com/gke-provisioning: preemptible}', 'unknown NodeBudgetShort', 5, 25],
    ['{cloud.google.com/gke-preemptible: "true"}', 'unknown NodeBudgetShort', 5, 25],
    ['{kubernetes.azure.com/scalesetpriority: spot}', 'unknown NodeBudgetShort', 10, 20],
    ['{linger.dev/node-budget: "45"}', 'unknown NodeBudgetShort', 15, 15],
    ['{cloud.google.com/gke-provisioning: standard}', 'protected Injected', 30, 0],
    ['{kubernetes.azure.com/scalesetpriority: regular}', 'protected Injected', 30, 0],
    ['{eks.amazonaws.com/capacityType: SPOT}', 'protected Injected', 30, 0],
    ['{lifecycle: Ec2Spot}', 'protected Injected', 30, 0],
  ])('44: the notice of %s bounds the wait', async (selector, verdict, wait, open) => {
    const { rows, findings } = await auditWith('44-spot-by-nodepool.yaml', ...ON(selector));
    expect(rows['Deployment web']).toBe(verdict);
    expect(findings[0]).toMatchObject({ waitSeconds: wait, exposureSeconds: open });
  });

  it('44: what is declared is more than the notice leaves', async () => {
    const policy =
      '\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: shop, annotations: {linger.dev/wait: 40s}}\n';
    const { rows, findings } = await auditWith(
      '44-spot-by-nodepool.yaml',
      ...ON('{cloud.google.com/gke-spot: "true"}'),
      [/$(?![\s\S])/g, policy],
    );
    expect(rows['Deployment web']).toBe('unprotected NodeBudgetShort');
    expect(findings[0]).toMatchObject({ exposureSeconds: 35, evidence: { basis: 'declared' } });
  });

  it.each([
    [
      'to which it may go, and need not',
      'nodeSelector: {karpenter.sh/nodepool: cheap}',
      'tolerations: [{key: cloud.google.com/gke-spot, operator: Equal, value: "true", effect: NoSchedule}]',
    ],
    [
      'that it prefers',
      'nodeSelector: {karpenter.sh/nodepool: cheap}',
      AFFINITY.replace('karpenter.sh/nodepool', 'cloud.google.com/gke-spot')
        .replace('[cheap]', '["true"]')
        .replace(
          'requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions',
          'preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions',
        )
        .replace('}]}]}}}', '}]}}]}}'),
    ],
  ])('44: spot nodes %s', async (_, from, to) => {
    const { rows } = await auditWith('44-spot-by-nodepool.yaml', [from, to]);
    expect(rows['Deployment web']).toBe('protected Injected');
  });

  const MADE = (apiVersion: string, kind: string, spec: string) =>
    `\n---\napiVersion: ${apiVersion}\nkind: ${kind}\nmetadata: {name: pool}\nspec: ${spec}\n`;
  const MACHINES = (provider: string) =>
    MADE(
      'machine.openshift.io/v1beta1',
      'MachineSet',
      `{template: {spec: {metadata: {labels: {tier: cheap}}, providerSpec: {value: ${provider}}}}}`,
    );
  it.each([
    [
      '{kops.k8s.io/instancegroup: pool}',
      MADE('kops.k8s.io/v1alpha2', 'InstanceGroup', '{maxPrice: "0.1"}'),
      '120s',
    ],
    [
      '{kops.k8s.io/instancegroup: pool}',
      MADE(
        'kops.k8s.io/v1alpha2',
        'InstanceGroup',
        '{mixedInstancesPolicy: {onDemandBase: 0, onDemandAboveBase: 0}}',
      ),
      '120s',
    ],
    [
      '{kops.k8s.io/instancegroup: pool}',
      MADE('kops.k8s.io/v1alpha2', 'InstanceGroup', '{mixedInstancesPolicy: {onDemandAboveBase: 50}}'),
      undefined,
    ],
    [
      '{cloud.google.com/compute-class: pool}',
      MADE('cloud.google.com/v1', 'ComputeClass', '{priorities: [{spot: true}, {spot: true}]}'),
      '15s',
    ],
    [
      '{cloud.google.com/compute-class: pool}',
      MADE('cloud.google.com/v1', 'ComputeClass', '{priorities: [{spot: true}, {spot: false}]}'),
      undefined,
    ],
    [
      '{cloud.google.com/gke-nodepool: pool}',
      MADE(
        'container.cnrm.cloud.google.com/v1beta1',
        'ContainerNodePool',
        '{nodeConfig: {preemptible: true}}',
      ),
      '15s',
    ],
    ['{tier: cheap}', MACHINES('{spotMarketOptions: {}}'), '120s'],
    ['{tier: cheap}', MACHINES('{spotVMOptions: {}}'), '30s'],
    ['{tier: cheap}', MACHINES('{preemptible: true}'), '30s'],
    ['{tier: cheap}', MACHINES('{}'), undefined],
    [
      '{eks.amazonaws.com/nodegroup: pool}',
      MADE('infrastructure.cluster.x-k8s.io/v1beta2', 'AWSManagedMachinePool', '{capacityType: spot}'),
      '120s',
    ],
    [
      '{kubernetes.azure.com/agentpool: pool}',
      MADE('infrastructure.cluster.x-k8s.io/v1beta1', 'AzureManagedMachinePool', '{scaleSetPriority: Spot}'),
      '30s',
    ],
    [
      '{karpenter.sh/nodepool: pool}',
      MADE(
        'karpenter.sh/v1',
        'NodePool',
        '{template: {spec: {nodeClassRef: {group: karpenter.azure.com}, requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]}}}',
      ),
      '30s',
    ],
    [
      '{karpenter.sh/provisioner-name: pool}',
      MADE(
        'karpenter.sh/v1alpha5',
        'Provisioner',
        '{requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [spot]}]}',
      ),
      '120s',
    ],
  ])('44: on %s of an object that makes nodes', async (selector, pool, notice) => {
    const { said } = await auditWith(
      '44-spot-by-nodepool.yaml',
      ['{karpenter.sh/nodepool: cheap}', selector],
      [/$(?![\s\S])/g, pool],
    );
    expect(said('NodeBudgetShort')).toEqual(
      notice === undefined ? [] : [expect.stringContaining(`gone ${notice} after the notice`)],
    );
  });

  it('46: what an echo prints stops nothing', async () => {
    const { rows } = await audit('46-a-word-in-an-echo.yaml');
    expect(rows).toEqual({
      'Deployment fits': 'protected OwnHook',
      'Deployment eaten': 'unprotected GraceEaten',
    });
  });

  it('50: a pool is traffic', async () => {
    const { code, rows, said } = await audit('50-pool-instead-of-service.yaml', '--fail-on', 'any');
    expect([code, rows]).toEqual([3, { 'Deployment llm': 'unprotected UndeclaredConsumer' }]);
    expect(said('UndeclaredConsumer')[0]).toContain('podSelector: {matchLabels: {app: llm}}');
    const { stdout } = await linger(['explain', '-f', at('50-pool-instead-of-service.yaml')]);
    expect(stdout).toContain('note UndeclaredConsumer: InferencePool ml/llm');
  });

  it('50: all pods of a pool stop at once', async () => {
    const { rows } = await auditWith(
      '50-pool-instead-of-service.yaml',
      ['  replicas: 2', '  replicas: 2\n  strategy: {type: Recreate}'],
      ['args: [--port, "8000"]', 'ports: [{containerPort: 8000}]'],
    );
    expect(rows['Deployment llm']).toBe('unprotected NoOtherEndpoint,UndeclaredConsumer');
  });

  const ENTRY =
    'apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: llm, namespace: ml}\nspec: {hosts: [llm.example], workloadSelector: {labels: {app: llm}}}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: o, namespace: ml}\nspec: {selector: {app: o}}\n';
  it.each([
    [
      'its alpha',
      [
        ['inference.networking.k8s.io/v1\n', 'inference.networking.x-k8s.io/v1alpha2\n'],
        ['selector: {matchLabels: {app: llm}}\n  targetPorts', 'selector: {app: llm}\n  targetPorts'],
      ],
      'unprotected UndeclaredConsumer',
    ],
    [
      'of other pods',
      [
        [
          'selector: {matchLabels: {app: llm}}\n  targetPorts',
          'selector: {matchLabels: {app: x}}\n  targetPorts',
        ],
      ],
      'skipped NotServing',
    ],
    [
      'of another namespace',
      [
        [
          'metadata: {name: llm, namespace: ml}\nspec:\n  selector: {matchLabels: {app: llm}}\n  targetPorts',
          'metadata: {name: llm, namespace: x}\nspec:\n  selector: {matchLabels: {app: llm}}\n  targetPorts',
        ],
      ],
      'skipped NotServing',
    ],
    ['a ServiceEntry', [[/^apiVersion: inference[\s\S]*/m, ENTRY]], 'unprotected UndeclaredConsumer'],
  ] as const)('50: %s', async (_, replaced, verdict) => {
    let text = await textOf('50-pool-instead-of-service.yaml');
    for (const [from, to] of replaced) text = text.replace(from, to);
    expect((await audited(['--webhook', '-'], text)).rows['Deployment llm']).toBe(verdict);
  });
});
