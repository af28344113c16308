import { describe, expect, it, onTestFinished } from 'vitest';
import type { ClusterSnapshot } from '../../src/core/decision/index.ts';
import { FLOOR_LIFE_SECONDS, FloorWriter } from '../../src/leader/floor.ts';
import { createLogger } from '../../src/telemetry/index.ts';
import { pause } from '../../src/timing/index.ts';
import { clusterPolicy, fleet, namespace, snapshotOf } from '../core/decision/sample-snapshot.ts';
import { ModelApi } from './model-api.ts';

const PATH = '/api/v1/namespaces/linger/configmaps/linger-floor';
const BEGIN = Date.parse('2026-11-28T05:00:00Z') / 1_000;
const FLEET = fleet('v1.37.2', 'v1.37.2');
const HERE = { fleet: FLEET };

const withInitial = (initial: string) =>
  snapshotOf([namespace(), clusterPolicy({ wait: { initial } })], HERE);

/** One term of so many seconds, which pass as fast as they can. */
async function term(
  api: ModelApi,
  seconds: number,
  snapshotAt: (second: number) => ClusterSnapshot | undefined,
) {
  const leading = new AbortController();
  const { signal } = leading;
  const logs: string[] = [];
  let now = 0;
  const writer = new FloorWriter({
    connection: { server: api.url, credentials: async () => ({}) },
    place: { namespace: 'linger', identity: 'a' },
    snapshot: () => snapshotAt(now / 1_000),
    logger: createLogger('info', {
      write: (line) => void logs.push((JSON.parse(line) as { msg: string }).msg),
    }),
    clock: () => now,
    epochSeconds: () => BEGIN + now / 1_000,
    random: () => 0.5,
    pause: async (milliseconds) => {
      now += milliseconds;
      if (now >= seconds * 1_000) leading.abort();
      return pause(0, signal);
    },
  });
  await writer.lead({ signal, holds: () => !signal.aborted });
  return logs;
}

async function openApi(): Promise<ModelApi> {
  const api = await ModelApi.start();
  onTestFinished(() => api.close());
  return api;
}

const patchesIn = ({ requests }: ModelApi) => requests.filter(({ method }) => method === 'PATCH');

describe('what pods get while Linger is down', () => {
  it('is written once, with its end', async () => {
    const api = await openApi();
    const snapshot = withInitial('45s');
    expect(await term(api, 50, () => snapshot)).toEqual(['floor written']);
    expect(api.objects.get(PATH)?.data).toEqual({
      _: '45 45 600 Sleep Job,DaemonSet ',
      _validUntil: '2026-11-28T06:00:00Z',
    });
    // It is not there, and so it is created.
    expect(patchesIn(api)).toHaveLength(2);
  });

  it.each<[string, (data: Record<string, string>) => Record<string, string> | undefined]>([
    ['deleted', () => undefined],
    ['changed', (data) => ({ ...data, _: 'none' })],
    ['added to', (data) => ({ ...data, shop: '300 300 600 Sleep - ' })],
    ['emptied', () => ({})],
  ])('is there again a minute after it has been %s', async (_, change) => {
    const api = await openApi();
    const snapshot = withInitial('45s');
    let before: unknown;
    await term(api, 120, (second) => {
      const present = api.objects.get(PATH);
      if (second >= 30 && before === undefined && present !== undefined) {
        before = present.data;
        const data = change(present.data as Record<string, string>);
        if (data === undefined) api.objects.delete(PATH);
        else api.put(PATH, { ...present, data });
      }
      return snapshot;
    });
    expect(before).toBeDefined();
    expect(api.objects.get(PATH)?.data).toEqual(before);
  });

  it('is renewed at half of its life, also when nothing moves', async () => {
    const api = await openApi();
    const snapshot = withInitial('45s');
    await term(api, FLOOR_LIFE_SECONDS + 60, () => snapshot);
    const said = patchesIn(api).map((each) => JSON.stringify(each.object).match(/2026-\S{14}Z/)?.[0]);
    expect([...new Set(said)]).toHaveLength(3);
    // And the same once a minute, in case that something else has changed it.
    expect(said.length).toBeLessThanOrEqual(1 + FLOOR_LIFE_SECONDS / 60 + 2);
    expect(api.objects.get(PATH)?.data).toMatchObject({ _validUntil: '2026-11-28T07:00:00Z' });
  });

  it('is not written again where nothing of it has moved', async () => {
    const api = await openApi();
    await term(api, 50, () => withInitial('45s'));
    expect(patchesIn(api)).toHaveLength(2);
  });

  it('follows what moves, at most every ten seconds, and removes the lines of what is gone', async () => {
    const api = await openApi();
    const first = snapshotOf([namespace({ 'linger.dev/mode': 'Off' })], HERE);
    await term(api, 61, (second) => (second < 5 ? first : withInitial(`${30 + second}s`)));
    expect(patchesIn(api).length).toBeGreaterThan(4);
    expect(patchesIn(api).length).toBeLessThanOrEqual(8);
    expect(patchesIn(api)[1]?.object?.data).toMatchObject({ shop: 'none' });
    expect(Object.keys(Object(api.objects.get(PATH)?.data))).toEqual(['_validUntil', '_']);
  });

  it('is not written before the cluster is known, nor to an API server without such policies', async () => {
    const api = await openApi();
    await term(api, 60, () => undefined);
    await term(api, 60, () => snapshotOf([], { fleet: fleet('v1.35.4', 'v1.35.4') }));
    await term(api, 60, () => snapshotOf([]));
    expect(api.requests).toEqual([]);
  });

  it('is tried again where the API server refuses it, and that is said once', async () => {
    const api = await openApi();
    let refusals = 0;
    api.refuse = () => (++refusals <= 3 ? { status: 500 } : undefined);
    const logs = await term(api, 120, () => withInitial('45s'));
    expect(api.objects.has(PATH)).toBe(true);
    expect(logs.filter((line) => line.startsWith('writing the floor failed'))).toHaveLength(1);
  });
});
