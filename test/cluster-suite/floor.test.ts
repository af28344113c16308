import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ANNOTATION, FLOOR } from '../../src/core/api/index.ts';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import { appContainer, silentContainer } from './support/manifests.ts';
import { addContainer, clampGrace, Neighbour, type NeighbourOptions } from './support/neighbour.ts';

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

const NOT_STARTED = /not yet ready|shutting down|apiserver not ready/i;

describe('the floor, while no Linger answers', async () => {
  const cluster: Cluster = await openCluster();
  // The first version with such policies.
  const where = it.runIf(cluster.minor >= 36);
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
    if (cluster.minor < 36) return;
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
    if (cluster.minor >= 36) {
      const names = [FLOOR.policy, INJECTOR, CLAMP];
      await kubectl(['delete', '--ignore-not-found', 'mutatingadmissionpolicybinding', ...names]);
      await kubectl(['delete', '--ignore-not-found', 'mutatingadmissionpolicy', ...names]);
      await kubectl(['delete', '--ignore-not-found', 'mutatingwebhookconfiguration', 'floor-hanging']);
      await kubectl(['delete', '--ignore-not-found', 'namespace', RELEASE]);
    }
    await cluster.close();
  }, 120_000);

  where('gives each of the 30 pods of a rollout its wait, its grace and a plan', async () => {
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

  where('stands where a webhook does not answer', async () => {
    await within('hanging.example.dev');
    expect(sleepsIn(await create('hanging'))).toEqual([8]);
    await kubectl(['label', 'namespace', namespace, 'hanging.example.dev-']);
  });

  where('takes pods that are applied on the server', async () => {
    const words = ['apply', '--server-side', '--filename', '-', '--output', 'json'];
    const applied = JSON.parse(await kubectl(words, podNamed('applied'))) as Created;
    expect(sleepsIn(applied)).toEqual([8]);
    // Again, and then with a change: neither an update nor an apply takes the wait away.
    const again = { ...podNamed('applied'), metadata: { name: 'applied', namespace, labels: { more: 'x' } } };
    expect(sleepsIn(JSON.parse(await kubectl(words, again)) as Created)).toEqual([8]);
  });

  where('leaves ephemeral containers alone, and gives the copy of a pod no second wait', async () => {
    await create('debugged');
    const debug = ['debug', 'debugged', '--namespace', namespace, '--image=late', '--profile=general'];
    await kubectl([...debug, '--attach=false', '--container=debugger']);
    await kubectl([...debug, '--attach=false', '--copy-to=copy', '--container=debugger']);
    const copy = (await podsIn()).find(({ metadata }) => metadata.name === 'copy') as Created;
    expect(sleepsIn(copy)[0]).toBe(8);
    for (const seconds of sleepsIn(copy))
      expect(seconds ?? 0).toBeLessThanOrEqual(copy.spec.terminationGracePeriodSeconds);
  });

  where('gives a container that is injected later its hook', async () => {
    await within(INJECTOR);
    const pod = await create('injected');
    expect(pod.spec.containers).toHaveLength(2);
    expect(sleepsIn(pod)).toEqual([8, 8]);
    expect(pod.spec.terminationGracePeriodSeconds).toBe(38);
    await kubectl(['label', 'namespace', namespace, `${INJECTOR}-`]);
  });

  where('bears a policy that clamps the grace, whichever of the two the API server runs first', async () => {
    await within(CLAMP);
    const pod = await create('clamped');
    // Clamped and then raised, or raised and then clamped: policies have no order.
    expect([
      [20, 8],
      [12, 1],
    ]).toContainEqual([pod.spec.terminationGracePeriodSeconds, sleepsIn(pod)[0]]);
    await kubectl(['label', 'namespace', namespace, `${CLAMP}-`]);
  });

  /** A pod that is created while another webhook is there, which is called after the floor. */
  const beside = async (neighbour: Omit<NeighbourOptions, 'namespace'>) => {
    const other = await Neighbour.start(cluster, { ...neighbour, namespace });
    try {
      return await create(neighbour.name);
    } finally {
      await other.stop();
    }
  };

  where('gives a container that a webhook adds later its hook', async () => {
    const pod = await beside({ name: 'z-webhook-injector', mutate: addContainer(silentContainer('mesh')) });
    expect(pod.spec.containers.map(({ name }) => name)).toEqual(['app', 'mesh']);
    expect(sleepsIn(pod)).toEqual([8, 8]);
    expect(pod.spec.terminationGracePeriodSeconds).toBe(38);
    expect(planIn(pod)).toContain('"containers":["app","mesh"]');
  });

  where.each([
    // A tenth of what is left is the application's.
    ['a part of it', 20, 2],
    ['all but a second', 10, 1],
    ['so much that nothing is left', 5, undefined],
  ])('shortens its hook where a webhook cuts the grace later: %s', async (_, grace, wait) => {
    const pod = await beside({ name: `z-webhook-clamp-${grace}`, mutate: clampGrace(grace) });
    expect(pod.spec.terminationGracePeriodSeconds).toBe(grace);
    expect(sleepsIn(pod)).toEqual([wait]);
    expect(planIn(pod) === undefined).toBe(wait === undefined);
  });

  where('bears a webhook that does both, and is called again itself', async () => {
    const [add, clamp] = [addContainer(silentContainer('mesh')), clampGrace(20)];
    const pod = await beside({
      name: 'z-webhook-both',
      reinvocationPolicy: 'IfNeeded',
      mutate: (object) => [...clamp(object), ...add(object)],
    });
    expect(sleepsIn(pod)).toEqual([2, 2]);
    expect(pod.spec.terminationGracePeriodSeconds).toBe(20);
  });

  const RESTARTS = 10;
  it.runIf(cluster.minor >= 36 && cluster.own)(
    `takes no pod without its wait, and refuses none, in ${RESTARTS} restarts of the API server`,
    { timeout: 400_000 },
    async () => {
      const ended = new AbortController();
      const seen = { created: 0, bare: 0, unanswered: 0, starting: new Map<string, number>() };
      const refused: string[] = [];
      const creating = (async () => {
        for (let at = 0; !ended.signal.aborted; at += 1) {
          await sleep(20);
          const answer = await cluster
            .tryCreate<Created & { readonly message?: string }>(podNamed(`during-${at}`), { dryRun: true })
            .catch(() => undefined);
          if (answer === undefined) seen.unanswered += 1;
          else if (answer.status === 201) {
            seen.created += 1;
            if (sleepsIn(answer.body)[0] !== 8) seen.bare += 1;
          } else {
            const said = `${answer.status}: ${answer.body.message ?? JSON.stringify(answer.body)}`;
            // What an API server says to everything until it has started, and while it stops.
            if (NOT_STARTED.test(said)) seen.starting.set(said, (seen.starting.get(said) ?? 0) + 1);
            else refused.push(said);
          }
        }
      })();
      for (let at = 0; at < RESTARTS; at += 1) {
        const before = seen.created;
        await cluster.restart('kube-apiserver');
        await waitUntil('pods to be created again', () => seen.created > before + 20, { timeoutMs: 60_000 });
      }
      ended.abort();
      await creating;
      console.log(JSON.stringify({ ...seen, starting: [...seen.starting] }));
      expect(refused).toEqual([]);
      expect(seen.bare).toBe(0);
      expect(seen.created).toBeGreaterThan(RESTARTS * 20);
    },
  );

  where('creates pods as they are without its ConfigMap', async () => {
    await kubectl(['delete', 'configmap', FLOOR.configMap, '--namespace', RELEASE]);
    await waitUntil('the API server to see it', async () => {
      const pod = await create(`bare-${Math.trunc(performance.now())}`);
      return planIn(pod) === undefined && sleepsIn(pod)[0] === undefined;
    });
  });
});
