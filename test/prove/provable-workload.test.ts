import http from 'node:http';
import { describe, expect, it } from 'vitest';
import {
  chosenPods,
  type Disturbance,
  obstacleTo,
  type ReadyPod,
  rightsFor,
  WorkloadAccess,
  workloadNamed,
} from '../../src/prove/provable-workload.ts';
import { listening } from '../webhook/listening.ts';

const named = (text: string) => {
  const found = workloadNamed(text, 'shop');
  if (found === undefined) throw new Error(text);
  return found;
};
const WEB = { ...named('deployment/web'), replicas: 3, settled: true, rollsOut: true, maxUnavailable: 0 };
const PODS: readonly ReadyPod[] = [
  { name: 'young', node: 'n1', createdAt: 30 },
  { name: 'old', node: 'n2', createdAt: 10 },
  { name: 'middle', node: 'n1', createdAt: 20 },
];
const DRAIN = (node: string): Disturbance => ({ type: 'drain', node });

describe('what may not be disturbed', () => {
  const cases: Record<
    string,
    readonly [Disturbance, Partial<typeof WEB>, readonly ReadyPod[], RegExp | undefined]
  > = {
    'a rollout of three': [{ type: 'rollout' }, {}, PODS, undefined],
    'a rollout of one': [{ type: 'rollout' }, {}, PODS.slice(0, 1), /has 1 ready pod: /],
    'a rollout of none': [{ type: 'rollout' }, {}, [], /has 0 ready pods: /],
    'a rollout that takes all away': [{ type: 'rollout' }, { maxUnavailable: 3 }, PODS, /Recreate/],
    'a rollout that would not begin': [{ type: 'rollout' }, { rollsOut: false }, PODS, /paused/],
    'an eviction under OnDelete': [{ type: 'evict' }, { rollsOut: false }, PODS, undefined],
    'what is under way': [{ type: 'evict' }, { settled: false }, PODS, /not settled/],
    'a scale to none': [{ type: 'scale', from: 2, to: 0 }, {}, PODS, /no ready pod/],
    'a scale to one': [{ type: 'scale', from: 2, to: 1 }, {}, PODS.slice(0, 1), undefined],
    'a scale of a DaemonSet': [{ type: 'scale', from: 2, to: 1 }, named('ds/web'), PODS, /cannot be scaled/],
    'a drain of one node of two': [DRAIN('n1'), {}, PODS, undefined],
    'a drain of the only node': [
      DRAIN('n1'),
      {},
      PODS.filter(({ node }) => node === 'n1'),
      /would leave none/,
    ],
    'a drain of another node': [DRAIN('n3'), {}, PODS, /no ready pod of .* runs on node n3/],
  };
  it.each(Object.entries(cases))('%s', (_, [disturbance, more, pods, expected]) => {
    const obstacle = obstacleTo(disturbance, { ...WEB, ...more }, pods);
    if (expected === undefined) expect(obstacle).toBeUndefined();
    else expect(obstacle).toMatch(expected);
  });
});

it('takes the oldest pod, and those of a drained node', () => {
  expect(chosenPods({ type: 'deleteOne' }, PODS)).toEqual(['old']);
  expect(chosenPods({ type: 'evict' }, PODS)).toEqual(['old']);
  expect(chosenPods(DRAIN('n1'), PODS)).toEqual(['middle', 'young']);
  expect(chosenPods({ type: 'rollout' }, PODS)).toEqual([]);
});

it.each(['web', 'pod/web', 'deployment/', '/web', 'deployment/web/x', 'service/web', 'deploy.v1/web'])(
  'refuses %s',
  (text) => expect(workloadNamed(text, 'shop')).toBeUndefined(),
);
it.each(['deploy/web', 'Deployments/web', 'deployment.apps/web', 'sts/web', 'daemonset/web'])(
  'knows %s',
  (text) => {
    expect(workloadNamed(text, 'shop')?.name).toBe('web');
  },
);

it('asks for no right that the disturbance does not need', () => {
  const words = (disturbance: Disturbance, job: boolean) =>
    rightsFor(WEB, disturbance, { service: false, job });
  expect(words({ type: 'evict' }, false)).toEqual([
    'get deployments.apps',
    'list pods',
    'watch pods',
    'create pods/eviction',
  ]);
  expect(words({ type: 'rollout' }, true)).toContain('patch deployments.apps');
  expect(words({ type: 'rollout' }, true)).toContain('get pods/log');
  expect(words(DRAIN('n1'), false)).toContain('patch nodes (cluster)');
});

it('a node is uncordoned although the request that cordoned it was interrupted', async () => {
  const patches: string[] = [];
  const ending = new AbortController();
  const server = http.createServer((request, response) => {
    if (request.method === 'GET') return response.end('{}');
    request.setEncoding('utf8').once('data', (patch: string) => {
      patches.push(patch);
      if (ending.signal.aborted) response.end('{}');
      // It is done, but its answer comes too late.
      else ending.abort();
    });
    return response;
  });
  const url = new URL(`http://127.0.0.1:${await listening(server)}`);
  const access = new WorkloadAccess({ server: url, credentials: async () => ({}) }, named('deployment/web'));
  const undo: (() => Promise<unknown>)[] = [];
  const cordoned = access.cordon('n1', ending.signal, (uncordon) => {
    undo.push(() => uncordon(AbortSignal.timeout(10_000)));
  });
  await expect(cordoned).rejects.toThrow();
  for (const each of undo) await each();
  expect(patches).toEqual(['{"spec":{"unschedulable":true}}', '{"spec":{"unschedulable":null}}']);
});

it.each([
  ['a Deployment', 'deployment/web', { strategy: { type: 'RollingUpdate' } }, true],
  ['one that is paused', 'deployment/web', { paused: true }, false],
  ['a DaemonSet with OnDelete', 'ds/web', { updateStrategy: { type: 'OnDelete' } }, false],
  ['a StatefulSet', 'sts/web', { updateStrategy: { rollingUpdate: { partition: 0 } } }, true],
  ['one with a partition', 'sts/web', { updateStrategy: { rollingUpdate: { partition: 1 } } }, false],
])('knows whether a restart replaces all pods of %s', async (_, name, spec, expected) => {
  const server = http.createServer((_request, response) => response.end(JSON.stringify({ spec })));
  const url = new URL(`http://127.0.0.1:${await listening(server)}`);
  const access = new WorkloadAccess({ server: url, credentials: async () => ({}) }, named(name));
  expect((await access.read(AbortSignal.timeout(10_000))).rollsOut).toBe(expected);
});

describe('a Rollout of Argo', () => {
  const POD_LABELS = { app: 'web' };
  const rollout = ({ spec = {}, status = {} }: { readonly spec?: object; readonly status?: object }) => ({
    kind: 'Rollout',
    metadata: { generation: 7 },
    spec: {
      replicas: 4,
      selector: { matchLabels: POD_LABELS },
      template: { metadata: { labels: POD_LABELS } },
      ...spec,
    },
    // Its controller writes the generation as a text.
    status: { observedGeneration: '7', updatedReplicas: 4, replicas: 4, readyReplicas: 4, ...status },
  });
  const accessTo = async (object: object, patches: unknown[] = [], referred?: object) => {
    const server = http.createServer((request, response) => {
      if (request.url === '/apis/apps/v1/namespaces/shop/deployments/base' && referred !== undefined) {
        response.end(JSON.stringify(referred));
        return;
      }
      if (request.url !== '/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/web')
        response.statusCode = 404;
      const body: string[] = [];
      request.setEncoding('utf8').on('data', (part: string) => body.push(part));
      request.on('end', () => {
        if (request.method === 'PATCH')
          patches.push([request.headers['content-type'], JSON.parse(body.join(''))]);
        response.end(JSON.stringify(object));
      });
    });
    const url = new URL(`http://127.0.0.1:${await listening(server)}`);
    return new WorkloadAccess({ server: url, credentials: async () => ({}) }, named('rollout/web'));
  };
  const within = () => AbortSignal.timeout(10_000);
  const RESTART = { restartAt: '2026-11-28T10:11:12Z' };
  const canary = (maxUnavailable: number | string) => ({ strategy: { canary: { maxUnavailable } } });

  it.each<[string, Parameters<typeof rollout>[0], object]>([
    [
      'settled, with what it has by default',
      {},
      {
        replicas: 4,
        selector: 'app=web',
        podLabels: POD_LABELS,
        settled: true,
        rollsOut: true,
        maxUnavailable: 1,
      },
    ],
    [
      'whose controller has not seen the newest spec',
      { status: { observedGeneration: '6' } },
      { settled: false },
    ],
    ['whose controller has seen none', { status: { observedGeneration: undefined } }, { settled: false }],
    ['in the middle of a canary', { status: { updatedReplicas: 1 } }, { settled: false }],
    ['with the pods of two versions', { status: { replicas: 5 } }, { settled: false }],
    ['with a pod that is not ready', { status: { readyReplicas: 3 } }, { settled: false }],
    // Between two pods all others are ready, for up to half a minute.
    ['that is being restarted', { spec: RESTART }, { settled: false }],
    [
      'whose restart is over',
      { spec: RESTART, status: { restartedAt: RESTART.restartAt } },
      { settled: true },
    ],
    ['that is to restart next century', { spec: { restartAt: '2126-01-01T00:00:00Z' } }, { settled: true }],
    ['that is paused', { spec: { paused: true } }, { rollsOut: false }],
    ['that may lose half', { spec: canary('50%') }, { maxUnavailable: 2 }],
    ['that may lose two', { spec: canary(2) }, { maxUnavailable: 2 }],
    ['that may lose none: a restart takes one', { spec: canary(0) }, { maxUnavailable: 1 }],
    ['that may lose less than one: a restart takes one', { spec: canary('10%') }, { maxUnavailable: 1 }],
    ['with blue and green', { spec: { strategy: { blueGreen: {} } } }, { maxUnavailable: 1 }],
  ])('is read: %s', async (_, changes, expected) => {
    expect(await (await accessTo(rollout(changes))).read(within())).toMatchObject(expected);
  });

  describe('with the template of another workload', () => {
    const referringTo = (workloadRef: object) => {
      const own = { selector: undefined, template: undefined };
      return rollout({ spec: { ...own, workloadRef } });
    };
    const BASE = { apiVersion: 'apps/v1', kind: 'Deployment', name: 'base' };

    it('is read with that template and selector, and its own replicas', async () => {
      const template = { metadata: { labels: { app: 'base', tier: 'front' } } };
      const spec = { replicas: 0, selector: { matchLabels: { app: 'base' } }, template };
      const access = await accessTo(referringTo(BASE), [], { kind: 'Deployment', spec });
      expect(await access.read(within())).toMatchObject({
        replicas: 4,
        selector: 'app=base',
        podLabels: template.metadata.labels,
        settled: true,
      });
    });

    it.each([
      ['which does not exist', BASE, /from Deployment base \(workloadRef\), which does not exist/],
      [
        'that selects nothing',
        { ...BASE, apiVersion: 'v1', kind: 'PodTemplate' },
        /expected an apps\/v1 Deployment/,
      ],
      ['without a name', { ...BASE, name: undefined }, /expected an apps\/v1 Deployment/],
    ])('%s is refused', async (_, workloadRef, expected) => {
      const access = await accessTo(referringTo(workloadRef));
      await expect(access.read(within())).rejects.toThrow(expected);
    });
  });

  it('is restarted by its own field, in the whole seconds that its schema takes; its template stays', async () => {
    const patches: unknown[] = [];
    const access = await accessTo(rollout({}), patches);
    await access.restart('2026-11-28T10:11:12.345Z', within());
    expect(patches).toEqual([
      ['application/merge-patch+json', { spec: { restartAt: '2026-11-28T10:11:12Z' } }],
    ]);
  });
});

it('connects to the pods of a headless Service where they listen', async () => {
  const service = (name: string, more: object, targetPort?: number | string) => {
    const spec = { selector: { app: 'web' }, ports: [{ port: 80, targetPort }], ...more };
    return { metadata: { name }, spec };
  };
  const items = [
    service('web', { clusterIP: '10.0.0.1' }, 8080),
    service('headless', { clusterIP: 'None' }, 8080),
    service('named', { clusterIP: 'None' }, 'http'),
  ];
  const server = http.createServer((_request, response) => response.end(JSON.stringify({ items })));
  const url = new URL(`http://127.0.0.1:${await listening(server)}`);
  const access = new WorkloadAccess({ server: url, credentials: async () => ({}) }, named('sts/web'));
  const found = await access.services({ app: 'web' }, AbortSignal.timeout(10_000));
  expect(found.map(({ service, port, target }) => [service, port, target])).toEqual([
    ['web', 80, 80],
    ['headless', 80, 8080],
    ['named', 80, 80],
  ]);
});
