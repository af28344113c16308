import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ANNOTATION, FLOOR } from '../../src/core/api/index.ts';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import { appContainer } from './support/manifests.ts';

/*
 * The policy of deploy/floor on a real API server, without any Linger: as when all of it is down. What it decides for whole
 * pods is held against the decision in floor-offline.test.ts.
 */

const MANIFEST = join(import.meta.dirname, '..', '..', 'deploy', 'floor', 'floor.yaml');
const RELEASE = 'linger';
const API_VERSION = 'admissionregistration.k8s.io/v1';

interface Created {
  readonly metadata: { readonly name: string; readonly annotations?: Readonly<Record<string, string>> };
  readonly spec: {
    readonly terminationGracePeriodSeconds: number;
    readonly containers: readonly {
      readonly name: string;
      readonly lifecycle?: { readonly preStop?: { readonly sleep?: { readonly seconds: number } } };
    }[];
  };
}

const sleepsIn = ({ spec }: Created) =>
  spec.containers.map(({ lifecycle }) => lifecycle?.preStop?.sleep?.seconds);
const planIn = ({ metadata }: Created) => metadata.annotations?.[ANNOTATION.plan];

const policyNamed = (name: string, expression: string) => [
  {
    apiVersion: API_VERSION,
    kind: 'MutatingAdmissionPolicy',
    metadata: { name },
    spec: {
      failurePolicy: 'Fail',
      reinvocationPolicy: 'Never',
      matchConstraints: {
        namespaceSelector: { matchLabels: { [name]: 'yes' } },
        resourceRules: [
          { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] },
        ],
      },
      mutations: [{ patchType: 'JSONPatch', jsonPatch: { expression } }],
    },
  },
  {
    apiVersion: API_VERSION,
    kind: 'MutatingAdmissionPolicyBinding',
    metadata: { name },
    spec: { policyName: name },
  },
];

/** What other tools do to pods. */
const INJECTOR = 'z-injector.example.dev';
const CLAMP = 'z-clamp.example.dev';
const OTHERS = [
  ...policyNamed(
    INJECTOR,
    "[JSONPatch{op: 'add', path: '/spec/containers/-', value: dyn({'name': 'late', 'image': 'late'})}]",
  ),
  ...policyNamed(CLAMP, "[JSONPatch{op: 'replace', path: '/spec/terminationGracePeriodSeconds', value: 12}]"),
];

/** Takes calls and never answers: nothing listens behind this address. */
const HANGING = {
  apiVersion: API_VERSION,
  kind: 'MutatingWebhookConfiguration',
  metadata: { name: 'floor-hanging' },
  webhooks: [
    {
      name: 'hanging.example.dev',
      admissionReviewVersions: ['v1'],
      sideEffects: 'None',
      failurePolicy: 'Ignore',
      timeoutSeconds: 1,
      namespaceSelector: { matchLabels: { 'hanging.example.dev': 'yes' } },
      clientConfig: { url: 'https://192.0.2.1/mutate' },
      rules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }],
    },
  ],
};

describe('the floor, while no Linger answers', () => {
  let cluster: Cluster;
  let namespace = '';
  const kubectl = (words: readonly string[], input?: object) =>
    cluster.mustKubectl(words, input === undefined ? undefined : { stdin: JSON.stringify(input) });
  const apply = (items: readonly object[]) =>
    kubectl(['apply', '--filename', '-'], { apiVersion: 'v1', kind: 'List', items });
  const podNamed = (name: string, more: object = {}) => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace },
    spec: { containers: [appContainer('app')], ...more },
  });
  const create = async (name: string, more: object = {}) =>
    JSON.parse(
      await kubectl(['create', '--filename', '-', '--output', 'json'], podNamed(name, more)),
    ) as Created;
  const podsIn = async () =>
    (
      JSON.parse(await kubectl(['get', 'pods', '--namespace', namespace, '--output', 'json'])) as {
        items: Created[];
      }
    ).items;
  const within = (label: string) => kubectl(['label', 'namespace', namespace, '--overwrite', `${label}=yes`]);

  beforeAll(async () => {
    cluster = await openCluster();
    namespace = await cluster.namespace('floor');
    const labels = { 'app.kubernetes.io/name': 'linger' };
    await apply([
      { apiVersion: 'v1', kind: 'Namespace', metadata: { name: RELEASE, labels } },
      {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: FLOOR.configMap, namespace: RELEASE },
        data: {
          [FLOOR.newNamespaces]: '8 30 600 Sleep Job,DaemonSet ',
          [FLOOR.validUntil]: new Date(Date.now() + 3_600_000).toISOString().replace(/\.\d+Z/, 'Z'),
        },
      },
      HANGING,
      ...OTHERS,
    ]);
    await kubectl(['apply', '--filename', MANIFEST]);
    let tries = 0;
    await waitUntil(
      'the policy to be in force',
      async () => {
        const words = ['create', '--dry-run=server', '--filename', '-', '--output', 'json'];
        tries += 1;
        return planIn(JSON.parse(await kubectl(words, podNamed(`try-${tries}`))) as Created) !== undefined;
      },
      { timeoutMs: 60_000 },
    );
  }, 120_000);

  afterAll(async () => {
    const names = [FLOOR.policy, INJECTOR, CLAMP];
    await kubectl(['delete', '--ignore-not-found', 'mutatingadmissionpolicybinding', ...names]);
    await kubectl(['delete', '--ignore-not-found', 'mutatingadmissionpolicy', ...names]);
    await kubectl(['delete', '--ignore-not-found', 'mutatingwebhookconfiguration', 'floor-hanging']);
    await kubectl(['delete', '--ignore-not-found', 'namespace', RELEASE]);
    await cluster.close();
  }, 120_000);

  it('gives each of the 30 pods of a rollout its wait, its grace and a plan', async () => {
    const labels = { app: 'rollout' };
    const spec = { containers: [appContainer('app')] };
    await apply([
      {
        apiVersion: 'apps/v1',
        kind: 'Deployment',
        metadata: { name: 'rollout', namespace },
        spec: { replicas: 30, selector: { matchLabels: labels }, template: { metadata: { labels }, spec } },
      },
    ]);
    await waitUntil('30 pods', async () => (await podsIn()).length === 30, { timeoutMs: 60_000 });
    const pods = await podsIn();
    expect(new Set(pods.map(planIn)).size).toBe(1);
    for (const pod of pods) {
      expect(sleepsIn(pod)).toEqual([8]);
      expect(pod.spec.terminationGracePeriodSeconds).toBe(38);
      expect(planIn(pod)?.startsWith(FLOOR.stamp)).toBe(true);
    }
    await kubectl(['delete', 'deployment', 'rollout', '--namespace', namespace]);
  });

  it('stands where a webhook does not answer', async () => {
    await within('hanging.example.dev');
    expect(sleepsIn(await create('hanging'))).toEqual([8]);
    await kubectl(['label', 'namespace', namespace, 'hanging.example.dev-']);
  });

  it('takes pods that are applied on the server', async () => {
    const words = ['apply', '--server-side', '--filename', '-', '--output', 'json'];
    const applied = JSON.parse(await kubectl(words, podNamed('applied'))) as Created;
    expect(sleepsIn(applied)).toEqual([8]);
    // Again, and then with a change: neither an update nor an apply takes the wait away.
    const again = { ...podNamed('applied'), metadata: { name: 'applied', namespace, labels: { more: 'x' } } };
    expect(sleepsIn(JSON.parse(await kubectl(words, again)) as Created)).toEqual([8]);
  });

  it('leaves ephemeral containers alone, and gives the copy of a pod no second wait', async () => {
    await create('debugged');
    const debug = ['debug', 'debugged', '--namespace', namespace, '--image=late', '--profile=general'];
    await kubectl([...debug, '--attach=false', '--container=debugger']);
    await kubectl([...debug, '--attach=false', '--copy-to=copy', '--container=debugger']);
    const copy = (await podsIn()).find(({ metadata }) => metadata.name === 'copy') as Created;
    expect(sleepsIn(copy)[0]).toBe(8);
    for (const seconds of sleepsIn(copy))
      expect(seconds ?? 0).toBeLessThanOrEqual(copy.spec.terminationGracePeriodSeconds);
  });

  it('gives a container that is injected later its hook', async () => {
    await within(INJECTOR);
    const pod = await create('injected');
    expect(pod.spec.containers).toHaveLength(2);
    expect(sleepsIn(pod)).toEqual([8, 8]);
    expect(pod.spec.terminationGracePeriodSeconds).toBe(38);
    await kubectl(['label', 'namespace', namespace, `${INJECTOR}-`]);
  });

  it('bears a policy that clamps the grace, whichever of the two the API server runs first', async () => {
    await within(CLAMP);
    const pod = await create('clamped');
    // Clamped and then raised, or raised and then clamped: policies have no order.
    expect([
      [20, 8],
      [12, 1],
    ]).toContainEqual([pod.spec.terminationGracePeriodSeconds, sleepsIn(pod)[0]]);
    await kubectl(['label', 'namespace', namespace, `${CLAMP}-`]);
  });

  it('creates pods as they are without its ConfigMap', async () => {
    await kubectl(['delete', 'configmap', FLOOR.configMap, '--namespace', RELEASE]);
    await waitUntil('the API server to see it', async () => {
      const pod = await create(`bare-${Math.trunc(performance.now())}`);
      return planIn(pod) === undefined && sleepsIn(pod)[0] === undefined;
    });
  });
});
