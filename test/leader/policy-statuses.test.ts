import { describe, expect, it } from 'vitest';
import { namespaceRecord, taken } from '../../src/core/api/index.ts';
import type { ClusterSnapshot } from '../../src/core/decision/index.ts';
import { policySet } from '../../src/core/decision/policy-set.ts';
import {
  CLUSTER_TERMINATION_POLICIES,
  customResource,
  PodCounts,
  TERMINATION_POLICIES,
} from '../../src/informers/index.ts';
import { policyStatuses } from '../../src/leader/policy-statuses.ts';
import { holdSupply } from '../core/decision/sample-hold.ts';
import { EMPTY_SNAPSHOT, fleet } from '../core/decision/sample-snapshot.ts';
import type { ModelApi } from './model-api.ts';
import { leads, Measured, openApi, soon, startReplica, wall } from './replica.ts';

const GROUP = '/apis/linger.dev/v1alpha1';
const instant = () => new Date(wall.now * 1000).toISOString().replace('.000', '');

interface Declared {
  readonly name: string;
  readonly namespace?: string;
  readonly spec: object;
}

const pathOf = ({ name, namespace }: Pick<Declared, 'name' | 'namespace'>) =>
  namespace === undefined
    ? `${GROUP}/clusterterminationpolicies/${name}`
    : `${GROUP}/namespaces/${namespace}/terminationpolicies/${name}`;

function declare(api: ModelApi, { name, namespace, spec }: Declared, generation = 1): void {
  const path = pathOf({ name, namespace } as Declared);
  const metadata = { name, ...(namespace && { namespace }), uid: `${namespace} ${name}`, generation };
  const kind = namespace === undefined ? 'ClusterTerminationPolicy' : 'TerminationPolicy';
  const status = api.objects.get(path)?.status;
  api.put(path, { apiVersion: 'linger.dev/v1alpha1', kind, metadata, spec, status } as never);
}

/** A leader over these policies, which it sees as by a watch; what cannot be read has no last good spec. */
async function leading(
  api: ModelApi,
  more: { snapshot?: Partial<ClusterSnapshot>; pods?: PodCounts; shadowed?: string[] } = {},
) {
  const of = <T>(kind: typeof CLUSTER_TERMINATION_POLICIES | typeof TERMINATION_POLICIES, plural: string) =>
    [...api.objects].flatMap(([path, object]) =>
      path.includes(`/${plural}/`) ? [customResource(kind as never).project(object as never) as T] : [],
    );
  const clusterPolicies = () => of<never>(CLUSTER_TERMINATION_POLICIES, 'clusterterminationpolicies');
  const policies = () => of<never>(TERMINATION_POLICIES, 'terminationpolicies');
  const values = (objects: readonly { value?: never }[]) => objects.flatMap(({ value }) => value ?? []);
  const statuses = policyStatuses({
    snapshot: () => ({
      ...EMPTY_SNAPSHOT,
      policies: taken(policySet(values(clusterPolicies()), values(policies()))),
      ...more.snapshot,
    }),
    clusterPolicies,
    policies,
    pods: () => more.pods?.groups(),
    shadowed: () => more.shadowed ?? [],
    clock: () => performance.now(),
    epochSeconds: () => wall.now,
  });
  const leader = startReplica(api, 'a', {}, new Measured(), undefined, true, statuses);
  await leads(leader);
  return leader;
}

const statusOf = (api: ModelApi, of: Pick<Declared, 'name' | 'namespace'>) =>
  api.objects.get(pathOf(of))?.status as
    | {
        readonly [member: string]: unknown;
        readonly conditions: readonly { readonly [member: string]: unknown }[];
      }
    | undefined;
const readyOf = (api: ModelApi, of: Pick<Declared, 'name' | 'namespace'>) => {
  const { status, reason, message } = statusOf(api, of)?.conditions[0] ?? {};
  return status === undefined ? undefined : { status, reason, message };
};
const patchesOf = (api: ModelApi) => api.requests.filter(({ method }) => method === 'PATCH').length;

const pod = (uid: string, labels: Record<string, string>, namespace = 'shop') =>
  ({
    type: 'added',
    listed: true,
    at: 0,
    identity: { uid, namespace, name: uid },
    object: { uid, namespace, name: uid, labels },
  }) as never;
const gone = (uid: string, namespace = 'shop') =>
  ({ type: 'deleted', relist: true, at: 0, identity: { uid, namespace, name: uid } }) as never;

describe('the status of a policy', () => {
  it('says what it comes to, how many pods it selects, and that it is in force', async () => {
    const api = await openApi();
    const base = { name: 'base', spec: { wait: { from: 'Fixed', fixed: '45s' } } };
    const web = {
      name: 'web',
      namespace: 'shop',
      spec: { mode: 'Audit', podSelector: { matchLabels: { app: 'web' } } },
    };
    declare(api, base);
    declare(api, web, 3);
    const pods = new PodCounts();
    for (const event of [pod('1', { app: 'web' }), pod('2', { app: 'web' }), pod('3', { app: 'db' })])
      pods.apply(event);
    for (const event of [pod('4', { app: 'web' }, 'other'), pod('5', { app: 'web' }), gone('5')])
      pods.apply(event);
    await leading(api, { pods });
    expect(await soon('it', () => statusOf(api, base))).toEqual({
      observedGeneration: 1,
      mode: 'Enforce',
      hook: 'Auto',
      wait: '45s',
      why: 'fixed',
      pods: 4,
      ignored: [],
      conditions: [
        {
          type: 'Ready',
          status: 'True',
          reason: 'InForce',
          message: 'This spec is in force.',
          lastTransitionTime: instant(),
          observedGeneration: 1,
        },
      ],
    });
    // The wait comes from another layer, and counts for its pods all the same.
    expect(await soon('the other', () => statusOf(api, web))).toMatchObject({
      observedGeneration: 3,
      mode: 'Audit',
      wait: '45s',
      pods: 2,
    });
    expect(
      api.requests.find(({ method, path }) => method === 'PATCH' && path.includes('/shop/'))?.object,
    ).toMatchObject({
      kind: 'TerminationPolicy',
      metadata: { namespace: 'shop', name: 'web' },
    });
  });

  it('says what an initial wait waits for, and between what a hold lasts', async () => {
    const api = await openApi();
    declare(api, { name: 'base', spec: { hook: 'Hold', hold: { max: '90s' }, ceiling: { wait: '80s' } } });
    await leading(api);
    expect(await soon('it', () => statusOf(api, { name: 'base' }))).toMatchObject({
      wait: '30s',
      why: 'initial: 0 of 200 samples, 0s of 24h',
      hold: '5s..1m20s',
    });
  });

  it('says why its pods get no Hold, and no more once they do', async () => {
    const api = await openApi();
    declare(api, { name: 'base', spec: { hook: 'Hold' } });
    declare(api, { name: 'plain', spec: { hook: 'Sleep', podSelector: { matchLabels: { app: 'a' } } } });
    const nodes = fleet('v1.36.3', 'v1.36.3');
    const namespaces = new Map(['shop', 'pay'].map((name) => [name, namespaceRecord(name, {}, {})]));
    const snapshot = { namespaces, fleet: nodes, hold: holdSupply(nodes) as ClusterSnapshot['hold'] };
    await leading(api, { snapshot });
    const usableOf = (name: string) => {
      const found = statusOf(api, { name })?.conditions.find(({ type }) => type === 'HoldUsable');
      return found && { status: found.status, reason: found.reason, message: found.message };
    };
    expect(await soon('it', () => usableOf('base'))).toEqual({
      status: 'False',
      reason: 'HoldUnavailable',
      message:
        'Pods that may run on any node get the static wait instead of hook Hold: namespace pay has no ConfigMap linger-hold-0123456789abcdef',
    });
    expect(readyOf(api, { name: 'base' })).toMatchObject({ status: 'True' });
    expect(usableOf('plain')).toBeUndefined();
    snapshot.hold = holdSupply(nodes, { namespaces: new Set(['shop', 'pay']) });
    await soon('Hold', () => usableOf('base')?.status === 'True');
    snapshot.hold = { why: 'Hold is off' };
    await soon('no Hold', () => /Hold is off$/.test(String(usableOf('base')?.message)));
    declare(api, { name: 'base', spec: { hook: 'Sleep' } }, 2);
    await soon('another hook', () => usableOf('base') === undefined);
  });

  it('counts the pods of a policy that comes later from the first', async () => {
    const api = await openApi();
    declare(api, { name: 'base', spec: {} });
    const pods = new PodCounts();
    for (const each of ['1', '2']) pods.apply(pod(each, { app: 'web' }));
    await leading(api, { pods });
    await soon('the first', () => statusOf(api, { name: 'base' }));
    declare(api, { name: 'later', spec: {} });
    expect(await soon('the second', () => statusOf(api, { name: 'later' }))).toMatchObject({ pods: 2 });
  });

  it('is written once while nothing changes', async () => {
    const api = await openApi();
    declare(api, { name: 'base', spec: {} });
    await leading(api);
    await soon('it', () => statusOf(api, { name: 'base' }));
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(patchesOf(api)).toBe(1);
  });

  it('is left as it is by the next leader', async () => {
    const api = await openApi();
    declare(api, { name: 'base', spec: {} });
    const first = await leading(api);
    await soon('it', () => statusOf(api, { name: 'base' }));
    await first.stop();
    await leading(api);
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(patchesOf(api)).toBe(1);
  });

  it('names what is ignored, and what forbids, caps and outranks it', async () => {
    const api = await openApi();
    declare(api, {
      name: 'base',
      spec: { ceiling: { wait: '20s', mode: 'Audit' }, overrides: { namespaces: false }, hook: 'Exec' },
    });
    declare(api, {
      name: 'strict',
      spec: { priority: 9, hook: 'Sleep', mode: 'Enforce', wait: { initial: '40s' } },
    });
    declare(api, { name: 'team', namespace: 'shop', spec: { mode: 'Enforce' } });
    await leading(api, { shadowed: ['ClusterTerminationPolicy/strict'] });
    expect((await soon('base', () => statusOf(api, { name: 'base' }))).ignored).toEqual(
      expect.arrayContaining(['hook: ClusterTerminationPolicy/strict wins']),
    );
    const strict = await soon('strict', () => statusOf(api, { name: 'strict' }));
    expect(strict).toMatchObject({ mode: 'Audit', hook: 'Sleep', wait: '20s' });
    expect(strict.ignored).toEqual([
      'mode: ceiling.mode (ClusterTerminationPolicy/base)',
      'the wait of 40s (ClusterTerminationPolicy/strict) is lowered to 20s by ceiling.wait (ClusterTerminationPolicy/base)',
      'the policy of the same kind and name in the files (--policies): the object of the cluster wins',
    ]);
    expect(await soon('team', () => readyOf(api, { name: 'team', namespace: 'shop' }))).toEqual({
      status: 'False',
      reason: 'OverridesForbidden',
      message: 'overrides.namespaces is false (ClusterTerminationPolicy/base): none of it is in force',
    });
  });

  it('says what the operator’s limit makes of a mode', async () => {
    const api = await openApi();
    declare(api, { name: 'base', spec: { mode: 'Enforce' } });
    await leading(api, { snapshot: { modeLimit: 'Off' } });
    const status = await soon('it', () => statusOf(api, { name: 'base' }));
    expect(status).toMatchObject({ mode: 'Off', ignored: ['mode: flag --mode-limit'] });
    expect(status).not.toHaveProperty('wait');
  });

  it('is not delayed by any number of them in another namespace', async () => {
    const api = await openApi();
    for (let index = 0; index < 60; index += 1)
      declare(api, { name: `p${index}`, namespace: 'a-greedy', spec: {} });
    for (const name of ['one', 'two']) declare(api, { name, namespace: 'shop', spec: {} });
    await leading(api);
    await soon('theirs', () => patchesOf(api) >= 4);
    const first = api.requests.filter(({ method }) => method === 'PATCH').slice(0, 4);
    expect(first.map(({ object }) => object?.metadata.namespace)).toEqual([
      'a-greedy',
      'shop',
      'a-greedy',
      'shop',
    ]);
  });

  it('of a spec that cannot be read says which field is wrong', async () => {
    const api = await openApi();
    declare(api, { name: 'base', spec: { wait: { max: 'long' } } });
    declare(api, { name: 'fine', spec: {} });
    await leading(api);
    const ready = await soon('it', () => readyOf(api, { name: 'base' }));
    expect(ready).toMatchObject({ status: 'False', reason: 'Invalid' });
    expect(ready.message).toMatch(
      /^spec.wait.max: expected a duration .*, got "long"; none of it is in force$/,
    );
    await soon('that of the other', () => readyOf(api, { name: 'fine' })?.status === 'True');
  });

  it('may be refused for one kind, and is written for the other', async () => {
    const api = await openApi();
    declare(api, { name: 'base', spec: {} });
    declare(api, { name: 'team', namespace: 'shop', spec: {} });
    api.refuse = ({ method, path }) =>
      method === 'PATCH' && path.includes('clusterterminationpolicies') ? { status: 403 } : undefined;
    const leader = await leading(api);
    await soon('the other', () => statusOf(api, { name: 'team', namespace: 'shop' }));
    await soon('failures', () => (leader.status.failures.clusterPolicyStatus.Forbidden ?? 0) > 1);
    const lines = leader.lines.filter(({ object }) => object === 'clusterterminationpolicies/status');
    expect(lines).toHaveLength(1);
    expect(leader.status.failures.policyStatus).toEqual({});
  });
});

it('pods are counted by what tells them apart, and forgotten with the last of them', () => {
  const pods = new PodCounts();
  for (const uid of ['1', '2', '3']) pods.apply(pod(uid, { app: 'web' }));
  pods.apply(pod('3', { app: 'db' }));
  pods.apply(pod('3', { app: 'db' }));
  const counted = () => [...pods.groups()].map(({ namespace, labels, count }) => [namespace, labels, count]);
  expect(counted()).toEqual([
    ['shop', { app: 'web' }, 2],
    ['shop', { app: 'db' }, 1],
  ]);
  pods.apply(gone('3'));
  pods.apply(gone('3'));
  expect(counted()).toEqual([['shop', { app: 'web' }, 2]]);
});
