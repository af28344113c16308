import { expect, it } from 'vitest';
import { PLANNED_KEY } from '../../src/leader/codec.ts';
import {
  HISTORY,
  LEASE,
  leads,
  msgs,
  openApi,
  PLANNED,
  p99,
  soon,
  startReplica,
  withLeader,
} from './replica.ts';

/** A ConfigMap as another writer has left it. */
const foreign = (name: string, data: Record<string, string>, annotations = {}) => ({
  apiVersion: 'v1',
  kind: 'ConfigMap',
  metadata: { name, annotations },
  data,
});

it.each([
  {
    name: 'of a newer version',
    annotations: { 'linger.dev/format': '3' },
    data: { [PLANNED_KEY]: '{}' },
    refusal: 'Newer',
  },
  { name: 'of somebody else', annotations: {}, data: { 'app.conf': 'x' }, refusal: 'Foreign' },
])('planned lags $name stay as they are, and waits too', async ({ annotations, data, refusal }) => {
  const api = await openApi();
  const theirs = api.put(PLANNED, foreign('linger-planned', data, annotations));
  const leader = startReplica(api, 'a');
  leader.measured.record(4);
  await leads(leader);
  await soon('the refusal', () => leader.status.published.planned.refusal === refusal);
  const renewals = api.writes(LEASE);
  await soon('some renewals', () => api.writes(LEASE) > renewals + 10);
  expect(api.objects.get(PLANNED)).toEqual(theirs);
  expect(p99(leader.measured)).toBeUndefined();
  expect(
    msgs(leader.lines).filter(
      (msg) => msg === 'published state rejected; the last good state stays in force',
    ),
  ).toHaveLength(1);
  api.delete(PLANNED);
  await soon('the lags in force', () => p99(leader.measured) !== undefined);
});

it.each([
  { name: 'of a newer version', annotations: { 'linger.dev/format': '3' }, refusal: 'Newer' },
  { name: 'of somebody else', annotations: {}, refusal: 'Foreign' },
  {
    name: 'of a clock that is ahead',
    annotations: { 'linger.dev/format': '2', 'linger.dev/written-at': '2040-01-01T00:00:00Z' },
    binaryData: { 'cluster.json.gz': 'AAAA' },
    data: {},
    refusal: 'Future',
  },
])('histories $name stay as they are', async ({ annotations, refusal, data = { x: 'y' }, binaryData }) => {
  const api = await openApi();
  const theirs = api.put(HISTORY, { ...foreign('linger-history', data, annotations), binaryData });
  const leader = startReplica(api, 'a');
  leader.measured.record(4);
  await soon('the lags in force', () => p99(leader.measured) !== undefined);
  await leader.stop();
  expect(api.objects.get(HISTORY)).toEqual(theirs);
  expect(leader.status.published.history.refusal).toBe(refusal);
});

it.each([
  { name: 'damaged', binaryData: { 'cluster.json.gz': 'AAAA' } },
  { name: 'empty', binaryData: {} },
])('$name histories are overwritten', async ({ binaryData }) => {
  const api = await openApi();
  const theirs = foreign('linger-history', {}, { 'linger.dev/format': '2' });
  const before = api.put(HISTORY, { ...theirs, binaryData });
  const leader = startReplica(api, 'a');
  leader.measured.record(4);
  await soon('the histories', () => leader.status.published.history.writes > 0);
  expect(api.objects.get(HISTORY)).not.toEqual(before);
  expect(leader.status.published.history.refusal).toBeUndefined();
});

it('histories that cannot be read for now are not written over', async () => {
  const { api, leader } = await withLeader();
  await leader.stop();
  const before = api.objects.get(HISTORY);
  api.refuse = ({ method, path }) => (method === 'GET' && path === HISTORY ? { status: 503 } : undefined);
  const next = startReplica(api, 'b');
  next.measured.record(9, 1_000);
  await leads(next);
  await soon('some failures', () => (next.status.failures.history.ServerError ?? 0) > 2);
  expect(api.objects.get(HISTORY)).toBe(before);
  expect(p99(next.measured)).toBeCloseTo(4, 0);
});
