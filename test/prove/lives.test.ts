import http from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { ANNOTATION, HOLD_HELPER } from '../../src/core/api/index.ts';
import { renderPlan } from '../../src/core/decision/index.ts';
import { PodLives } from '../../src/prove/index.ts';
import { listening } from '../webhook/listening.ts';

type Objects = Readonly<Record<'pods' | 'endpointslices', readonly object[]>>;

/** Lives in a namespace that has these objects at first. `change` writes to the watch of a kind or of one object. */
async function livesOf(first: Objects) {
  const watches = new Map<string, http.ServerResponse>();
  const server = http.createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '', 'http://model');
    const kind = pathname.split('/').at(-1) as keyof Objects;
    const name = searchParams.get('fieldSelector')?.replace('metadata.name=', '');
    response.writeHead(200, { 'content-type': 'application/json' });
    if (searchParams.get('watch') === 'true') {
      response.flushHeaders();
      watches.set(name ?? kind, response);
    } else response.end(JSON.stringify({ metadata: { resourceVersion: '1' }, items: first[kind] }));
  });
  const ending = new AbortController();
  onTestFinished(() => ending.abort());
  const url = new URL(`http://127.0.0.1:${await listening(server)}`);
  const lives = new PodLives();
  const kind = { apiVersion: 'apps/v1', kind: 'Deployment' };
  const workload = { kind, name: 'web', namespace: 'shop', selector: 'app=web' };
  const about = { workload, service: 'web', withEndpoints: false };
  await lives.start({ server: url, credentials: async () => ({}) }, { ...about, signal: ending.signal });
  const change = async (of: string, object: object, type = 'MODIFIED') => {
    await expect.poll(() => watches.has(of)).toBe(true);
    watches.get(of)?.write(`${JSON.stringify({ type, object })}\n`);
  };
  return { lives, change };
}

const metadataOf = (name: string) => ({
  name,
  namespace: 'shop',
  uid: `uid-of-${name}`,
  resourceVersion: `${Math.round(performance.now() * 1_000)}`,
  creationTimestamp: '2026-11-22T10:00:00Z',
});

/** A pod whose own hook sleeps for a minute. */
const pod = (name: string, deletionGracePeriodSeconds?: number, owner: object = { name: 'web-5d' }) => ({
  metadata: {
    ...metadataOf(name),
    labels: { app: 'web', 'pod-template-hash': '5d' },
    ownerReferences: [{ kind: 'ReplicaSet', controller: true, ...owner }],
    ...(deletionGracePeriodSeconds !== undefined && {
      deletionTimestamp: '2026-11-22T11:00:00Z',
      deletionGracePeriodSeconds,
    }),
  },
  spec: { containers: [{ lifecycle: { preStop: { exec: { command: ['sleep', '60'] } } } }] },
  status: { podIPs: [{ ip: '10.0.0.1' }], conditions: [{ type: 'Ready', status: 'True' }] },
});

/** An EndpointSlice of pods on their node's network, which have the same address. */
const slice = (name: string, ...pods: readonly string[]) => ({
  metadata: { ...metadataOf(name), labels: { 'kubernetes.io/service-name': 'web' } },
  addressType: 'IPv6',
  endpoints: pods.map((each) => ({
    addresses: ['fd00::1'],
    conditions: { ready: true },
    targetRef: { kind: 'Pod', namespace: 'shop', name: each, uid: `uid-of-${each}` },
  })),
});

it('assumes SIGTERM no later than the grace ends, also where that is cut', async () => {
  const { lives, change } = await livesOf({ pods: [pod('a')], endpointslices: [slice('web-1', 'a')] });
  const after = () => {
    const { deletedAt = Number.NaN, sigtermAt = Number.NaN } = lives.all[0] ?? {};
    return Math.floor((sigtermAt - deletedAt) / 1_000);
  };
  await change('pods', pod('a', 30));
  await expect.poll(after).toBe(30);
  await change('pods', pod('a', 2));
  await expect.poll(after).toBe(2);
});

it('leaves pods alone that match the selector and belong to another workload, or to none', async () => {
  const pods = [
    pod('own'),
    pod('adopted', undefined, { name: 'older' }),
    pod('canary', undefined, { name: 'web-canary-5d' }),
    pod('set', undefined, { kind: 'StatefulSet', name: 'web' }),
    pod('bare', undefined, { controller: false }),
  ];
  const { lives } = await livesOf({ pods, endpointslices: [] });
  expect(lives.ready.map(({ name }) => name)).toEqual(['own', 'adopted']);
});

it('follows a pod whose labels are taken away until it is gone', async () => {
  const { lives, change } = await livesOf({ pods: [pod('a')], endpointslices: [] });
  await change('pods', pod('a'), 'DELETED');
  await expect.poll(() => lives.terminating(0)).toBe(1);
  const [life] = lives.all;
  expect([lives.ready, life?.deletedAt, life?.goneAt]).toEqual([[], expect.any(Number), undefined]);
  await change('a', pod('a', 30));
  await expect.poll(() => life?.wait).toBe(30);
  await change('a', pod('a', 30), 'DELETED');
  await expect.poll(() => lives.terminating(0)).toBe(0);
});

it('takes a pod whose deletion nothing has shown for gone where there is none of its name', async () => {
  const pods = [pod('a')];
  const { lives, change } = await livesOf({ pods, endpointslices: [] });
  pods.pop();
  await change('pods', pod('a'), 'DELETED');
  await expect.poll(() => lives.all.map(({ goneAt }) => goneAt)).toEqual([expect.any(Number)]);
});

it('knows a withdrawn pod although another one has its address', async () => {
  const pods = [pod('a'), pod('b')];
  const { lives, change } = await livesOf({ pods, endpointslices: [slice('web-1', 'a')] });
  await change('endpointslices', slice('web-1', 'b'));
  await expect
    .poll(() => lives.all.map(({ withdrawnAt }) => withdrawnAt !== undefined))
    .toEqual([true, false]);
});

it('takes a pod for withdrawn once no slice lists it', async () => {
  const first = [slice('web-1', 'a'), slice('web-2', 'a')];
  const { lives, change } = await livesOf({ pods: [pod('a')], endpointslices: first });
  const withdrawn = () => lives.all.map(({ withdrawnAt }) => withdrawnAt !== undefined);
  await change('endpointslices', slice('web-1'));
  // Events of one watch are in order, so that this one shows the one before to have been read.
  await change('endpointslices', slice('web-3', 'b'));
  await change('pods', pod('a', 30));
  await expect.poll(() => lives.terminating(0)).toBe(1);
  await new Promise((resolve) => setTimeout(resolve, 200));
  expect(withdrawn()).toEqual([false]);
  await change('endpointslices', slice('web-2'));
  await expect.poll(withdrawn).toEqual([true]);
});

it.each([
  [true, 20],
  [false, 'Hold'],
])(
  'knows how long a helper waits that only observes (%j), and that another may be released',
  async (observe, wait) => {
    const hold = { min: 0, max: 60, percentile: 99, initial: 0, probes: 0 };
    const plan = renderPlan({
      wait: 20,
      grace: 90,
      baseGrace: 30,
      hook: 'Hold',
      containers: ['app'],
      policy: 'built-in',
      why: 'initial',
      hold: { ...hold, ...(observe && { observe }) },
    });
    const { metadata, status } = pod('a');
    const preStop = { exec: { command: [HOLD_HELPER, '10.0.0.1:8445', 'token', '20', '60'] } };
    const held = {
      metadata: { ...metadata, annotations: { [ANNOTATION.plan]: plan } },
      spec: { containers: [{ name: 'app', lifecycle: { preStop } }] },
      status,
    };
    const { lives } = await livesOf({ pods: [held], endpointslices: [] });
    expect(lives.all.map((each) => each.wait)).toEqual([wait]);
  },
);
