import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { fleetOf } from '../../../src/core/decision/index.ts';
import { linger, ROOT } from '../../cli/linger.ts';
import { pass } from './sample-pass.ts';
import {
  container,
  exec,
  type JsonObject,
  type PodObject,
  pod,
  podOf,
  preStop,
  server,
  sleep,
} from './sample-pod.ts';
import { clusterPolicy, sampleNode, snapshotOf } from './sample-snapshot.ts';

const at = (name: string) => join(ROOT, 'test/testdata/cases', name);

interface ExplainedPlan extends JsonObject {
  readonly name: string;
  readonly notes: readonly { readonly code: string; readonly text: string }[];
}

/** What `linger explain` says of a case's file, by the workloads' names. */
async function explained(file: string, policies?: string): Promise<ReadonlyMap<string, ExplainedPlan>> {
  const args = policies === undefined ? [] : ['--policies', at(policies)];
  const { stdout, stderr } = await linger(['explain', '-o', 'json', ...args, '-f', at(file)]);
  expect(stderr).toBe('');
  const { plans } = JSON.parse(stdout) as { plans: readonly ExplainedPlan[] };
  return new Map(plans.map((plan) => [plan.name, plan]));
}

const noted = (plan: ExplainedPlan | undefined, code: string) =>
  plan?.notes.filter((each) => each.code === code).map(({ text }) => text);

test('10: a pod for Windows gets no ["sleep"], however it says so', async () => {
  const plans = await explained('10-windows-affinity.yaml', '10-policy.yaml');
  expect([...plans.values()].map(({ reason }) => reason)).toEqual(Array(4).fill('NoHook'));
});

const affinity = (...terms: JsonObject[][]) => ({
  affinity: {
    nodeAffinity: {
      requiredDuringSchedulingIgnoredDuringExecution: {
        nodeSelectorTerms: terms.map((matchExpressions) => ({ matchExpressions })),
      },
    },
  },
});
const required = (key: string, operator: string, ...values: string[]) => ({ key, operator, values });

describe('Windows', () => {
  const OS = 'kubernetes.io/os';
  const withExec = snapshotOf([clusterPolicy({ hook: 'Exec' })]);
  const inContainer = (securityContext: JsonObject) => ({ containers: [server('app', { securityContext })] });

  test.each<[string, JsonObject]>([
    ['spec.os', { os: { name: 'windows' } }],
    ['nodeSelector', { nodeSelector: { [OS]: 'windows' } }],
    ['the beta label', { nodeSelector: { 'beta.kubernetes.io/os': 'windows' } }],
    ['a build', { nodeSelector: { 'node.kubernetes.io/windows-build': '10.0.20348' } }],
    ['In', affinity([required(OS, 'In', 'windows')])],
    ['NotIn', affinity([required(OS, 'NotIn', 'linux')])],
    ['In, the beta label', affinity([required('beta.kubernetes.io/os', 'In', 'windows')])],
    ['a build in an affinity', affinity([required('node.kubernetes.io/windows-build', 'Exists')])],
    ['either system', affinity([required(OS, 'In', 'linux', 'windows')])],
    ['a host process', { securityContext: { windowsOptions: { hostProcess: true } } }],
    ['a user', { securityContext: { windowsOptions: { runAsUserName: 'ContainerUser' } } }],
    ['a container’s host process', inContainer({ windowsOptions: { hostProcess: true } })],
    ['a runtime class', { runtimeClassName: 'windows-2022' }],
  ])('by %s', (_, spec) => {
    expect(pass(pod(spec), withExec).decision).toMatchObject({ reason: 'NoHook' });
  });

  test.each<[string, JsonObject]>([
    ['spec.os linux, whatever else', { os: { name: 'linux' }, nodeSelector: { [OS]: 'windows' } }],
    ['nodeSelector', { nodeSelector: { [OS]: 'linux' } }],
    ['NotIn', affinity([required(OS, 'NotIn', 'windows')])],
    ['DoesNotExist', affinity([required('node.kubernetes.io/windows-build', 'DoesNotExist')])],
    ['options that say nothing', { securityContext: { windowsOptions: { hostProcess: false } } }],
    ['a runtime class', { runtimeClassName: 'gvisor' }],
  ])('is not meant by %s', (_, spec) => {
    expect(pass(pod(spec), withExec).decision.outcome).toBe('inject');
  });

  it('shows in the nodes that a selector leads to', () => {
    const nodes = [
      sampleNode({ name: 'a', labels: { pool: 'linux' } }),
      sampleNode({ name: 'b', labels: { pool: 'win' }, operatingSystem: 'windows' }),
    ];
    const snapshot = { ...withExec, fleet: fleetOf('v1.36.0', nodes) };
    expect(pass(pod({ nodeSelector: { pool: 'win' } }), snapshot).decision).toMatchObject({
      reason: 'NoHook',
    });
    expect(pass(pod({ nodeSelector: { pool: 'linux' } }), snapshot).decision.outcome).toBe('inject');
    expect(pass(pod(), snapshot).decision.outcome).toBe('inject');
  });
});

describe('nodes that go away at short notice', () => {
  const spot = { 'cloud.google.com/gke-spot': 'true' };
  const waitOf = (object: PodObject, snapshot = snapshotOf([])) => {
    const { decision } = pass(object, snapshot);
    const notes = decision.notes.filter(({ code }) => code === 'NodeBudgetShort').length;
    return decision.outcome === 'inject' ? [decision.plan.wait, notes] : [decision.reason, notes];
  };
  const nodes = [
    sampleNode({ name: 'a', labels: spot }),
    sampleNode({ name: 'b', labels: { ...spot, pool: 'x' } }),
  ];
  const onlySpot = { ...snapshotOf([]), fleet: fleetOf('v1.36.0', nodes) };
  const mixed = { ...snapshotOf([]), fleet: fleetOf('v1.36.0', [...nodes, sampleNode({ name: 'c' })]) };

  test.each<[string, JsonObject, readonly unknown[]]>([
    ['no constraint', {}, [30, 0]],
    ['GKE', { nodeSelector: spot }, [5, 1]],
    ['GKE, preemptible', { nodeSelector: { 'cloud.google.com/gke-preemptible': 'true' } }, [5, 1]],
    ['GKE, by its newer label', { nodeSelector: { 'cloud.google.com/gke-provisioning': 'spot' } }, [5, 1]],
    ['AKS', { nodeSelector: { 'kubernetes.azure.com/scalesetpriority': 'spot' } }, [10, 1]],
    ['EKS', { nodeSelector: { 'eks.amazonaws.com/capacityType': 'SPOT' } }, [30, 0]],
    ['Karpenter', affinity([required('karpenter.sh/capacity-type', 'In', 'spot')]), [30, 0]],
    ['GKE, by affinity', affinity([required('cloud.google.com/gke-spot', 'In', 'true')]), [5, 1]],
    [
      'GKE, by a label that only spot nodes have',
      affinity([required('cloud.google.com/gke-spot', 'Exists')]),
      [5, 1],
    ],
    [
      'GKE, of either kind',
      affinity([required('cloud.google.com/gke-provisioning', 'In', 'spot', 'preemptible')]),
      [5, 1],
    ],
    [
      'spot in each of two terms',
      affinity(
        [required('cloud.google.com/gke-spot', 'Exists')],
        [required('kubernetes.azure.com/scalesetpriority', 'In', 'spot')],
      ),
      [5, 1],
    ],
    ['a label that every node has', affinity([required('karpenter.sh/capacity-type', 'Exists')]), [30, 0]],
    [
      'GKE in one term of two',
      affinity([required('cloud.google.com/gke-spot', 'In', 'true')], [required('a', 'In', 'b')]),
      [30, 0],
    ],
    ['GKE, not required', affinity([required('cloud.google.com/gke-spot', 'NotIn', 'true')]), [30, 0]],
    [
      'other values, too',
      affinity([required('kubernetes.azure.com/scalesetpriority', 'In', 'spot', 'regular')]),
      [30, 0],
    ],
  ])('%s', (_, spec, expected) => {
    expect(waitOf(pod(spec))).toEqual(expected);
  });

  it('are known by the nodes that the pod can run on', () => {
    expect(waitOf(pod(), onlySpot)).toEqual([5, 1]);
    expect(waitOf(pod(), mixed)).toEqual([30, 0]);
    expect(waitOf(pod({ nodeSelector: { pool: 'x' } }), mixed)).toEqual([5, 1]);
    const fleetWith = (labels: Readonly<Record<string, string>>) => ({
      ...snapshotOf([]),
      fleet: fleetOf('v1.36.0', [sampleNode({ labels })]),
    });
    const labelled = { ...spot, 'linger.dev/node-budget': '60' };
    expect(waitOf(pod(), fleetWith(labelled))).toEqual([20, 1]);
    expect(waitOf(pod({ nodeSelector: spot }), fleetWith(labelled))).toEqual([20, 1]);
    // Karpenter's label is that of every cloud; the node's other one says which.
    const capacity = { 'karpenter.sh/capacity-type': 'spot' };
    const azure = { ...capacity, 'kubernetes.azure.com/scalesetpriority': 'spot' };
    expect(waitOf(pod({ nodeSelector: capacity }), fleetWith(azure))).toEqual([10, 1]);
  });

  it('leave the author’s own wait alone, and say so', () => {
    const object = pod({ nodeSelector: spot }, { annotations: { 'linger.dev/wait': '25s' } });
    expect(waitOf(object)).toEqual([25, 1]);
    const fixed = snapshotOf([clusterPolicy({ wait: { from: 'Fixed', fixed: '25s' } })]);
    expect(waitOf(pod({ nodeSelector: spot }), fixed)).toEqual([5, 1]);
  });
});

test('12: a pod of Knative’s is left as it is, and the note says why', async () => {
  const [plan] = (await explained('12-knative-pod.yaml')).values();
  expect(plan).toMatchObject({ outcome: 'skip', reason: 'DrainsItself' });
  expect(noted(plan, 'OwnDrain')).toEqual([expect.stringContaining('cancel the drain of queue-proxy')]);
  const { stdout } = await linger(['inject', '-f', at('12-knative-pod.yaml')]);
  expect(stdout).not.toContain('linger.dev');
});

describe('workloads that drain by themselves', () => {
  const envoy = podOf(
    server('envoy', preStop({ httpGet: { path: '/shutdown/ready', port: 19002 } })),
    container('shutdown-manager'),
  );
  const queue = podOf(
    server('user-container', preStop({ httpGet: { path: '/wait-for-drain', port: 8022 } })),
    container('queue-proxy'),
  );
  const native = pod({
    containers: [
      server('app', preStop({ httpGet: { path: '/wait-for-drain', port: 8022 } })),
      container('log'),
    ],
    initContainers: [container('queue-proxy', { restartPolicy: 'Always' })],
  });

  test.each<[string, PodObject]>([
    ['Knative by its label', pod({}, { labels: { 'serving.knative.dev/revision': 'fn-1' } })],
    ['Knative by its containers', queue],
    ['Knative with a native sidecar', native],
    ['Envoy Gateway', envoy],
    ['Agones', pod({}, { labels: { 'agones.dev/gameserver': 'x' } })],
  ])('%s: unchanged', (_, object) => {
    expect(pass(object)).toMatchObject({ decision: { reason: 'DrainsItself' }, operations: [] });
    object.metadata.annotations = { 'linger.dev/inject': 'true' };
    expect(pass(object).decision.outcome).toBe('inject');
  });

  test.each<[string, PodObject]>([
    ['a container of that name alone', podOf(server('app'), container('queue-proxy'))],
    [
      'a hook of that path alone',
      podOf(server('app', preStop({ httpGet: { path: '/wait-for-drain', port: 1 } })), container('b')),
    ],
    ['an Envoy of its own', podOf(server('envoy'), container('shutdown-manager'))],
  ])('%s is none', (_, object) => {
    expect(pass(object).decision.outcome).toBe('inject');
  });
});

test('13: the hook of a native sidecar runs beside the wait, and the note says so', async () => {
  const plan = (await explained('13-native-sidecar-prestop.yaml')).get('orders-7c9f6d8b5-abcde');
  expect(plan?.outcome).toBe('inject');
  expect(noted(plan, 'SidecarHook')).toEqual([
    expect.stringMatching(/"istio-proxy".*httpGet \/drain.*at second 0.*draining/),
  ]);
});

test.each([
  ['a plain sleep', exec('sleep', '5'), []],
  ['a sleep in a shell', exec('bash', '-c', 'sleep 5'), []],
  ['a program', exec('/drain'), ['SidecarHook']],
  ['the drain of Istio', exec('pilot-agent', 'request', '--debug-port=15020', 'POST', 'drain'), []],
  // It runs beside the application, which stops first.
  ['a longer sleep than the grace', exec('sleep', '80'), []],
  ['a longer native sleep than the grace, which the API server rejects', sleep(80), ['GraceEaten']],
])('a native sidecar with %s', (_, handler, codes) => {
  const initContainers = [container('proxy', { restartPolicy: 'Always', ...preStop(handler) })];
  expect(pass(pod({ initContainers })).decision.notes.map(({ code }) => code)).toEqual(codes);
});

test('23: Extend keeps the order that the author made', async () => {
  const file = '23-extend-flattens-order.yaml';
  const plan = (await explained(file, '23-policy.yaml')).get('meshed');
  expect(noted(plan, 'HookExtended')).toEqual([
    'container "app": its sleep of 20s becomes 45s',
    'container "linkerd-proxy": its sleep of 40s becomes 65s',
  ]);
  const { stdout } = await linger(['inject', '--policies', at('23-policy.yaml'), '-f', at(file)]);
  expect(stdout).toContain('sleep 45');
  expect(stdout).toContain('sleep 65');
});

test('25: no handler, or two: the API server refuses the pod, and InvalidPod says why', async () => {
  const plans = await explained('25-two-handlers.yaml');
  expect(plans.get('two-handlers')).toMatchObject({ outcome: 'skip', reason: 'InvalidPod' });
  expect(noted(plans.get('two-handlers'), 'UnreadablePod')).toEqual([
    expect.stringContaining('spec.containers[0].lifecycle.preStop: may not specify more than 1 handler type'),
  ]);
  expect(noted(plans.get('no-handler'), 'UnreadablePod')).toEqual([
    expect.stringContaining('must specify a handler type'),
  ]);
});

test('28: containers that end by themselves get no sleep, the others do', async () => {
  const plan = (await explained('28-container-restart-policy.yaml')).get('app');
  expect(plan).toMatchObject({ outcome: 'inject', containers: ['app'] });
  expect(noted(plan, 'ContainerEnds')).toEqual([expect.stringContaining('containers "warmup", "once"')]);
});

describe('restart policies', () => {
  const never = { restartPolicy: 'Never' };
  it('of the container win over the pod’s', () => {
    const object = pod({
      ...never,
      containers: [server('app', { restartPolicy: 'Always' }), container('once')],
    });
    expect(pass(object).decision).toMatchObject({ outcome: 'inject', plan: { containers: ['app'] } });
  });

  it('none is Always: the pod ends by itself', () => {
    const object = podOf(server('app', never), container('b', { restartPolicy: 'OnFailure' }));
    expect(pass(object).decision).toMatchObject({ outcome: 'skip', reason: 'RestartPolicy' });
  });
});

test('03: a container that sleeps for all of the grace is noted, although another is injected', () => {
  const object = podOf(server('app', preStop(exec('sleep', '120'))), container('sql-proxy'));
  const { decision } = pass(object, snapshotOf([]));
  expect(decision).toMatchObject({ outcome: 'inject', plan: { containers: ['sql-proxy'], grace: 60 } });
  expect(decision.notes.filter(({ code }) => code === 'GraceEaten')).toEqual([
    expect.objectContaining({
      text: expect.stringContaining('"app": its own hook waits 120s, and the grace is 60s'),
    }),
  ]);
});
