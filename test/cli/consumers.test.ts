import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { renderConsumers } from '../../src/cli/consumers.ts';
import {
  CLUSTER_IP,
  type ConsumerFacts,
  type ConsumerView,
  consumerOf,
  consumersToText,
  consumerView,
} from '../../src/core/lag/index.ts';
import { consumersReport } from '../../src/dashboard/index.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = atEndOfFile();
const PATH = '/api/v1/namespaces/linger/configmaps/linger-consumers';
const NOW = 1_800_000_000;
const LAG = {
  scope: 'cluster' as const,
  samples: 812,
  historySeconds: 60,
  quantile: (percentile: number) => percentile / 25,
  coverage: () => 1,
};

function views(now: number): readonly ConsumerView[] {
  const view = (facts: Pick<ConsumerFacts, 'consumer'> & Partial<ConsumerFacts>) =>
    consumerView({ removals: undefined, additions: undefined, state: undefined, ...facts }, now);
  const trouble = { reason: 'Unreachable', message: 'connection refused' } as const;
  return [
    view({
      consumer: CLUSTER_IP,
      removals: { ...LAG, latest: now - 12 },
      additions: { ...LAG, latest: now - 12 },
      state: { trouble: undefined, limits: ['It sees the node of the leader.'] },
    }),
    view({
      consumer: consumerOf('edge', { measure: { reports: {} } }),
      removals: { ...LAG, latest: now - 3 },
      state: { instances: 3, trouble: undefined, limits: [] },
    }),
    view({ consumer: consumerOf('eureka', { measure: { declared: { lag: 40 } } }) }),
    view({
      consumer: consumerOf('ingress', { measure: { probe: { url: 'http://edge' } } }),
      removals: { ...LAG, samples: 9, latest: now - 2_820 },
      state: { trouble, limits: [] },
    }),
  ];
}

describe('the table', () => {
  it('has a line for each, then what is wrong, then what cannot be seen', () => {
    expect(renderConsumers({ asOf: NOW, consumers: views(NOW) }, NOW + 90)).toBe(
      [
        'NAME        MEASURE    SAMPLES     P50     P99  ADDED P50  LAST SAMPLE  SERVICES  INSTANCES  MEASURED',
        'cluster-ip  clusterIp      812  2.000s  3.960s     2.000s  1.7 min ago         -          -  Measured',
        'edge        reports        812  2.000s  3.960s          -     93 s ago         -          3  Measured',
        'eureka      declared         -   40.3s   40.3s          -            -         -          -  Declared',
        'ingress     probe            9  2.000s  3.960s          -   49 min ago         -          -  False: Unreachable',
        '',
        'Trouble',
        '  ingress: Unreachable, for 90 s: connection refused',
        '',
        'What these numbers cannot show',
        '  cluster-ip',
        '    It sees the node of the leader.',
        '  eureka',
        '    Nothing is measured: if it is slower than declared, waits are too short.',
        '',
      ].join('\n'),
    );
  });
});

/** A cluster whose leader has told this. */
async function cluster(data?: Record<string, string>): Promise<ModelCluster> {
  const model = await ModelCluster.start(atEnd);
  if (data !== undefined)
    model.single.set(PATH, { metadata: { name: 'linger-consumers', resourceVersion: '1' }, data });
  return model;
}

const telling = (now: number) =>
  cluster({ 'consumers.json': consumersToText({ asOf: now, consumers: views(now) }) });

async function consumers(model: ModelCluster, ...args: string[]) {
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, model.kubeconfig);
  return linger(['consumers', '--kubeconfig', file, ...args], { atEnd });
}

const now = () => Date.now() / 1000;

describe.concurrent('linger consumers', () => {
  it('prints what the leader tells', async () => {
    const { code, stdout, stderr } = await consumers(await telling(now()));
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^cluster-ip +clusterIp +812 /m);
    expect(stdout).toContain('  ingress: Unreachable, for ');
  });

  it.each(['json', 'yaml'])('as %s, too', async (output) => {
    const { code, stdout } = await consumers(await telling(now()), '--output', output);
    expect(code).toBe(0);
    expect(stdout).toMatch(/"?name"?: "?ingress/);
    expect(stdout).toMatch(/"?reason"?: "?Unreachable/);
  });

  it('as the API of the page has them: one that is only observed, too', async () => {
    const observed = consumerOf('new-edge', { mode: 'Observe', measure: { declared: { lag: 9 } } });
    const facts = { consumer: observed, removals: undefined, additions: undefined, state: undefined };
    const all = [...views(now()), consumerView(facts, now())];
    const model = await cluster({ 'consumers.json': consumersToText({ asOf: now(), consumers: all }) });
    const { stdout } = await consumers(model, '--output', 'json');
    expect(consumersReport.parse(JSON.parse(stdout)).consumers).toEqual(all);
  });

  it('says when that was long ago', async () => {
    const { code, stderr } = await consumers(await telling(now() - 7_200));
    expect([code, stderr]).toEqual([
      0,
      expect.stringMatching(/^last published 2h(\d+s)? ago; probably no replica of Linger leads\n$/),
    ]);
  });

  it.each([
    ['any', 3],
    ['Unreachable', 3],
    ['Stale', 0],
    ['Stale,Declared', 3],
  ])('with --fail-on %s ends with %i', async (reasons, expected) => {
    expect((await consumers(await telling(now()), '--fail-on', reasons)).code).toBe(expected);
  });

  it('refuses a reason that there is not', async () => {
    const { code, stderr } = await consumers(await telling(now()), '--fail-on', 'Slow');
    expect([code, stderr]).toEqual([2, expect.stringContaining('--fail-on: expected some of any, Declared')]);
  });

  it.each<[string, Record<string, string> | undefined, string]>([
    ['tells nothing', undefined, 'there is no ConfigMap linger/linger-consumers'],
    ['has emptied it', {}, 'ConfigMap linger/linger-consumers is empty'],
    ['has damaged it', { 'consumers.json': '{}' }, 'ConfigMap linger/linger-consumers: consumers.json: '],
  ])('fails where somebody %s', async (_, data, why) => {
    const { code, stdout, stderr } = await consumers(await cluster(data));
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(why);
    expect(stderr).toContain('[not-published]');
  });

  it('looks where Linger runs', async () => {
    const { stderr } = await consumers(await telling(now()), '--linger-namespace', 'platform');
    expect(stderr).toContain('there is no ConfigMap platform/linger-consumers');
  });
});
