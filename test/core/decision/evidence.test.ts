import { expect, test } from 'vitest';
import { exposureOf } from '../../../src/core/decision/decide.ts';
import { evidenceOf } from '../../../src/core/decision/evidence.ts';
import { NONE_YET, plannedLags } from '../../../src/core/lag/index.ts';
import { measuredTable } from '../lag/sample-table.ts';
import { creationOf, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, consumer, snapshotOf } from './sample-snapshot.ts';

const calm = { 'cluster-ip': 0.001, 'cluster-dns': 0.001 };
const measured = (seconds: number, consumers: Readonly<Record<string, number>> = calm) =>
  plannedLags(measuredTable(seconds, consumers));
const declaring = (lag: string) => consumer({}, 'gateway', { declared: { lag } });
const reporting = consumer({}, 'edge', { reports: {} });
const fixed = clusterPolicy({ wait: { from: 'Fixed', fixed: '20s' } });
const initial = clusterPolicy({ wait: { initial: '40s' } });

test.each<[string, JsonObject[], typeof NONE_YET, string]>([
  ['nothing', [], NONE_YET, 'assumed: nothing is measured yet, and 30s is built in'],
  [
    'a policy’s initial wait',
    [initial],
    NONE_YET,
    'assumed: nothing is measured yet, and 40s is wait.initial of ClusterTerminationPolicy/base',
  ],
  [
    'a declared lag that is shorter says nothing of the rest',
    [declaring('10s')],
    NONE_YET,
    'assumed: nothing is measured yet, and 30s is built in',
  ],
  [
    'a declared lag that is longer',
    [declaring('30s')],
    NONE_YET,
    'declared by gateway; too little is known of control plane, cluster-ip, cluster-dns',
  ],
  ['a fixed wait, whatever is measured', [fixed], measured(5), 'declared by ClusterTerminationPolicy/base'],
  ['all of it', [], measured(1), 'measured: 5000 removals over 2 d'],
  [
    'and a consumer declared',
    [declaring('30s')],
    measured(1),
    'measured: 5000 removals over 2 d; gateway declared',
  ],
  [
    'but a consumer, of which nothing is known',
    [reporting],
    measured(1),
    'assumed: too little is known of edge, and 30s is built in',
  ],
])('what a lag rests on: %s', (_, documents, lags, text) => {
  const exposure = exposureOf(creationOf(pod()), snapshotOf(documents, { lags }));
  if (exposure === undefined) throw new Error('no exposure');
  const evidence = evidenceOf(exposure);
  expect(evidence.text).toBe(text);
  expect(evidence.text.startsWith(evidence.basis)).toBe(true);
});
