import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { linger, ROOT } from '../cli/linger.ts';
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
} from './sample-pod.ts';
import { worldOf } from './sample-world.ts';

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
  ['a longer sleep than the grace', exec('sleep', '80'), ['GraceEaten']],
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
  const { decision } = pass(object, worldOf([]));
  expect(decision).toMatchObject({ outcome: 'inject', plan: { containers: ['sql-proxy'], grace: 60 } });
  expect(decision.notes.filter(({ code }) => code === 'GraceEaten')).toEqual([
    expect.objectContaining({
      text: expect.stringContaining('"app": its own hook waits 120s of a grace of 60s'),
    }),
  ]);
});
