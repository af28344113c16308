import { describe, expect, it } from 'vitest';
import {
  CLUSTER_IP,
  type Consumer,
  type ConsumerFacts,
  type ConsumerView,
  consumerOf,
  consumerView,
} from '../../src/core/lag/index.ts';
import { readConsumers } from '../../src/leader/codec.ts';
import type { ModelApi } from './model-api.ts';
import { annotationsOf, leads, Measured, openApi, soon, startReplica, wall } from './replica.ts';

const COLLECTION = '/apis/linger.dev/v1alpha1/discoveryconsumers';
const CONSUMERS = '/api/v1/namespaces/linger/configmaps/linger-consumers';
const EDGE = consumerOf('edge', { measure: { reports: {} } });
const WELL = { instances: 3, trouble: undefined, limits: ['Not all.'] };
const TROUBLE = { reason: 'NoInstances', message: 'all of them are silent' } as const;

/** A consumer's view with so many lags of 4 s, the last of them now. */
function view(consumer: Consumer, more: Partial<ConsumerFacts> = {}, samples = 812): ConsumerView {
  const lag = {
    scope: 'cluster' as const,
    samples,
    historySeconds: 3_600,
    latest: wall.now,
    quantile: (percentile: number) => percentile / 25,
    coverage: () => 1,
  };
  const facts = { consumer, removals: lag, additions: undefined, state: WELL, ...more };
  return consumerView(facts, wall.now);
}

/** What there is to tell; tests change it. */
function published(api: ModelApi, ...views: ConsumerView[]) {
  const told: (readonly ConsumerView[])[] = [];
  const state = { views, told };
  return {
    state,
    consumers: {
      views: () => state.views,
      since: (before: readonly ConsumerView[]) => void told.push(before),
      targets: () =>
        [...api.objects].flatMap(([path, { metadata, status }]) =>
          path.startsWith(COLLECTION)
            ? [
                {
                  name: metadata.name,
                  resourceVersion: metadata.resourceVersion ?? '',
                  generation: metadata.generation as number,
                  status,
                },
              ]
            : [],
        ),
    },
  };
}

const declare = (api: ModelApi, name: string, more: object = {}) =>
  api.put(`${COLLECTION}/${name}`, {
    apiVersion: 'linger.dev/v1alpha1',
    kind: 'DiscoveryConsumer',
    metadata: { name, generation: 2 },
    ...more,
  });
const statusOf = (api: ModelApi, name: string) =>
  api.objects.get(`${COLLECTION}/${name}`)?.status as
    | {
        readonly [member: string]: unknown;
        readonly conditions: readonly { readonly [member: string]: unknown }[];
      }
    | undefined;
const patchesOf = (api: ModelApi) => api.requests.filter(({ method }) => method === 'PATCH').length;

async function start(prepare: (api: ModelApi) => void, views: ConsumerView[], limits = {}) {
  const api = await openApi();
  prepare(api);
  const { state, consumers } = published(api, ...views);
  const leader = startReplica(api, 'a', limits, new Measured(), consumers);
  await leads(leader);
  return { api, state, leader };
}

const publishedIn = (api: ModelApi) => {
  const told = readConsumers(api.objects.get(CONSUMERS));
  return told.outcome === 'read' ? told.value : undefined;
};

describe('the ConfigMap', () => {
  it('tells of all consumers, with who and when', async () => {
    const { api, leader } = await start(() => undefined, [view(CLUSTER_IP), view(EDGE)]);
    const told = await soon('it', () => publishedIn(api));
    expect(told).toEqual({ asOf: wall.now, consumers: [view(CLUSTER_IP), view(EDGE)] });
    expect(annotationsOf(api, CONSUMERS)['linger.dev/writer']).toBe(leader.status.holder);
    await soon('the count', () => leader.status.published.consumers.writes === 1);
  });

  it('is written again for news, and not for more samples of the same', async () => {
    const { api, state } = await start(() => undefined, [view(EDGE)]);
    await soon('it', () => publishedIn(api));
    const requests = () => api.requests.filter(({ path }) => path === CONSUMERS).length;
    const before = requests();
    state.views = [view(EDGE, {}, 900)];
    // Ten times as long as the least between two.
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(requests()).toBe(before);
    state.views = [view(EDGE, { state: { ...WELL, trouble: TROUBLE } })];
    const told = await soon('the news', () => {
      const now = publishedIn(api);
      return now?.consumers[0]?.condition.reason === 'NoInstances' ? now : undefined;
    });
    expect(told.consumers).toHaveLength(1);
  });

  it('is written again when it is old', async () => {
    const { leader } = await start(() => undefined, [view(EDGE)], { consumersAgainMs: 30 });
    wall.now += 1;
    await soon('it', () => leader.status.published.consumers.writes > 0);
    wall.now += 1;
    await soon('it again', () => leader.status.published.consumers.writes > 1);
  });

  it('follows at once who is declared and who is deleted, the last one too', async () => {
    const { api, state } = await start(() => undefined, [view(EDGE)], { consumersEveryMs: 600_000 });
    await soon('it', () => publishedIn(api));
    for (const views of [[view(EDGE), view(CLUSTER_IP)], [view(CLUSTER_IP)], []]) {
      state.views = views;
      const names = views.map(({ name }) => name).join();
      const told = () =>
        publishedIn(api)
          ?.consumers.map(({ name }) => name)
          .join();
      await soon('those that are there', () => told() === names);
    }
  });

  it('says to the next leader since when conditions have lasted', async () => {
    const first = await start(() => undefined, [view(EDGE)]);
    await soon('it', () => publishedIn(first.api));
    await first.leader.stop();
    const { state, consumers } = published(first.api, view(EDGE));
    startReplica(first.api, 'b', {}, new Measured(), consumers);
    await soon('the look back', () => state.told.length > 0);
    expect(state.told[0]?.[0]?.name).toBe('edge');
  });

  it('of a newer version is left alone', async () => {
    const newer = {
      apiVersion: 'v1',
      kind: 'ConfigMap',
      metadata: { name: 'linger-consumers', annotations: { 'linger.dev/format': '9' } },
      data: { 'consumers.json': '{}' },
    };
    const { api, leader } = await start((model) => void model.put(CONSUMERS, newer), [view(EDGE)]);
    await soon('the refusal', () => leader.status.published.consumers.refusal === 'Newer');
    expect(api.objects.get(CONSUMERS)?.data).toEqual({ 'consumers.json': '{}' });
  });
});

describe('the status', () => {
  it('says what is known, in the words of the API', async () => {
    const { api } = await start((model) => void declare(model, 'edge'), [view(CLUSTER_IP), view(EDGE)]);
    const since = new Date(wall.now * 1000).toISOString().replace('.000', '');
    expect(await soon('it', () => statusOf(api, 'edge'))).toEqual({
      observedGeneration: 2,
      measure: 'reports',
      samples: 812,
      p50: '2s',
      p99: '3.96s',
      lastSample: since,
      instances: 3,
      limits: ['Not all.'],
      conditions: [
        {
          type: 'Measured',
          status: 'True',
          reason: 'Measured',
          message: 'Samples arrive.',
          lastTransitionTime: since,
          observedGeneration: 2,
        },
      ],
    });
  });

  it('is not written again while it says the same', async () => {
    const { api, state } = await start((model) => void declare(model, 'edge'), [view(EDGE)]);
    await soon('it', () => statusOf(api, 'edge'));
    state.views = [view(EDGE, {}, 900)];
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(patchesOf(api)).toBe(1);
  });

  it('keeps the time of a transition, and conditions of others', async () => {
    const other = { type: 'Reviewed', status: 'True', reason: 'x', message: 'y', lastTransitionTime: 'z' };
    const long = '2026-01-01T00:00:00Z';
    const ours = {
      type: 'Measured',
      status: 'True',
      reason: 'Declared',
      message: '',
      lastTransitionTime: long,
    };
    const { api, state } = await start(
      (model) => void declare(model, 'edge', { status: { conditions: [other, ours], instances: 7 } }),
      [view(EDGE)],
    );
    await soon('it', () => statusOf(api, 'edge')?.samples === 812);
    expect(statusOf(api, 'edge')?.conditions).toEqual([
      other,
      expect.objectContaining({ reason: 'Measured', lastTransitionTime: long }),
    ]);
    state.views = [view(EDGE, { state: { trouble: TROUBLE, limits: [] }, removals: undefined })];
    await soon('the trouble', () => statusOf(api, 'edge')?.conditions[1]?.reason === 'NoInstances');
    const { lastTransitionTime } = statusOf(api, 'edge')?.conditions[1] ?? {};
    expect(lastTransitionTime).not.toBe(long);
    // What is not known any more is gone.
    expect(statusOf(api, 'edge')).not.toHaveProperty('p50');
    expect(statusOf(api, 'edge')).not.toHaveProperty('instances');
  });

  it('follows the generation that it is said of', async () => {
    const { api } = await start((model) => void declare(model, 'edge'), [view(EDGE)]);
    await soon('it', () => statusOf(api, 'edge'));
    const status = api.objects.get(`${COLLECTION}/edge`)?.status;
    declare(api, 'edge', { metadata: { name: 'edge', generation: 3 }, status });
    await soon('the next', () => statusOf(api, 'edge')?.observedGeneration === 3);
  });

  it('is written where another writer has made the status invalid', async () => {
    const { api } = await start((model) => void declare(model, 'edge', { status: 'none' }), [view(EDGE)]);
    await soon('it', () => statusOf(api, 'edge')?.measure === 'reports');
  });

  it('of an object that has changed meanwhile is left for later, without affecting the others', async () => {
    const api = await openApi();
    declare(api, 'edge');
    declare(api, 'other');
    api.refuse = ({ method, path }) =>
      method === 'PATCH' && path.includes('edge') ? { status: 409 } : undefined;
    const { consumers } = published(api, view(EDGE), view(consumerOf('other', { measure: { reports: {} } })));
    const leader = startReplica(api, 'a', {}, new Measured(), consumers);
    await soon('the other’s', () => statusOf(api, 'other'));
    expect(leader.status.failures.status).toEqual({});
    expect(patchesOf(api)).toBeLessThanOrEqual(2);
  });

  it('that cannot be written is counted, said once and tried again', async () => {
    const api = await openApi();
    declare(api, 'edge');
    api.refuse = ({ method }) => (method === 'PATCH' ? { status: 403 } : undefined);
    const { consumers } = published(api, view(EDGE));
    const leader = startReplica(api, 'a', {}, new Measured(), consumers);
    await soon('some failures', () => (leader.status.failures.status.Forbidden ?? 0) > 2);
    const lines = leader.lines.filter(({ object }) => object === 'discoveryconsumers/status');
    expect(lines).toHaveLength(1);
    api.refuse = () => undefined;
    await soon('it', () => statusOf(api, 'edge'));
  });
});
