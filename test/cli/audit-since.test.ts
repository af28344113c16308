import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type JudgedEnd, TerminationLog } from '../../src/audit/index.ts';
import { consumersToText } from '../../src/core/lag/index.ts';
import { ModelCluster } from '../cluster/model-cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger } from './linger.ts';

const atEnd = atEndOfFile();
const PATH = '/api/v1/namespaces/linger/configmaps/linger-shortfalls';

const end = (owner: string, more: Partial<JudgedEnd> = {}): JudgedEnd => ({
  at: Date.now() / 1000 - 60,
  namespace: 'shop',
  owner,
  pod: 'p',
  outcome: 'InTime',
  waited: 10,
  cutBy: '',
  lag: 4.25,
  consumer: 'edge',
  unmeasured: [],
  ...more,
});
const noWait = { outcome: 'TooEarly', waited: 0 } as const;
const cut = { outcome: 'TooEarly', waited: 1.5, cutBy: 'Max' } as const;
const unknown = { outcome: 'Unknown', unmeasured: ['dns'] } as const;

/** @param publishedAt when the leader last published something; undefined: consumers are not published */
async function auditOf(publishedAt: number | undefined, ends: readonly JudgedEnd[], ...args: string[]) {
  const model = await ModelCluster.start(atEnd);
  model.single.set('/api/v1/namespaces/shop', { metadata: { name: 'shop' } });
  if (publishedAt !== undefined)
    model.single.set(PATH.replace('shortfalls', 'consumers'), {
      metadata: { name: 'linger-consumers', resourceVersion: '1' },
      data: { 'consumers.json': consumersToText({ asOf: publishedAt, consumers: [] }) },
    });
  const log = new TerminationLog('a');
  for (const each of ends) log.count(each);
  const data = { 'shortfalls.json': log.text };
  const annotations = {
    'linger.dev/format': '2',
    'linger.dev/term': '5',
    'linger.dev/writer': 'a',
    'linger.dev/written-at': new Date().toISOString(),
  };
  const metadata = { name: 'linger-shortfalls', resourceVersion: '1', annotations };
  if (ends.length > 0) model.single.set(PATH, { metadata, data });
  else model.single.set(PATH.replace('shortfalls', 'planned'), { metadata });
  const file = join(await emptyDirectory(atEnd), 'config');
  await writeFile(file, model.kubeconfig);
  return linger(['audit', '--since', '1h', '--kubeconfig', file, ...args], { atEnd });
}

const audit = (ends: readonly JudgedEnd[], ...args: string[]) => auditOf(undefined, ends, ...args);

describe('audit --since', () => {
  it('begins with how many pods may have lost requests and why, and has a row for each workload', async () => {
    const ends = [end('Deployment/web', noWait), end('Deployment/web', noWait), end('Deployment/web')];
    const { stdout, code } = await audit([
      ...ends,
      end('Deployment/api', cut),
      end('Deployment/db', unknown),
    ]);
    expect(code).toBe(0);
    expect(stdout).toBe(
      [
        '3 of 5 pods that ended in the last 1h may have lost requests; 2 ended with no wait; 1 had the wait cut short; for 1 it is not known',
        '',
        'VERDICT      NAMESPACE  WORKLOAD        ENDED  TOO EARLY  WAITED      NO WAIT  CUT      LAG     CONSUMER',
        'unprotected  shop       Deployment/web  3      2          0ms..10.0s  2        0        4.250s  edge',
        'unprotected  shop       Deployment/api  1      1          1.500s      0        1 (Max)  4.250s  edge',
        'unknown      shop       Deployment/db   1      0          10.0s       0        0        4.250s  edge, dns (not measured)',
        '',
      ].join('\n'),
    );
  });

  it.each<[string, readonly JudgedEnd[], string, number]>([
    ['no wait', [end('Deployment/web', noWait)], 'any', 3],
    ['no wait', [end('Deployment/web', noWait)], 'unprotected', 3],
    ['a cut wait', [end('Deployment/web', cut)], 'any', 3],
    ['all in time', [end('Deployment/web')], 'any,unknown', 0],
    ['not known', [end('Deployment/web', unknown)], 'any', 0],
    ['not known', [end('Deployment/web', unknown)], 'unknown', 3],
    ['nothing ended', [], 'any,unknown', 0],
    ['another namespace', [end('Deployment/web', { ...noWait, namespace: 'other' })], 'any', 0],
  ])('is a release gate: %s with --fail-on %3$s', async (_, ends, failOn, code) => {
    const { code: exit } = await audit(ends, '--namespace', 'shop', '--fail-on', failOn);
    expect(exit).toBe(code);
  });

  it.each([
    ['publishes', 60, 0, /^$/],
    [
      'has stopped',
      7_200,
      3,
      /^last published 2h.* ago; probably no replica of Linger leads; what has ended/,
    ],
  ])('where the leader %s, nothing ended is known, or not', async (_, ago, code, said) => {
    const run = await auditOf(Date.now() / 1000 - ago, [], '-n', 'shop', '--fail-on', 'any,unknown');
    expect([run.code, run.stderr]).toEqual([code, expect.stringMatching(said)]);
  });

  it('says how long a time may be', async () => {
    const { code, stderr } = await linger(['audit', '--since', '240h'], { atEnd });
    expect([code, stderr]).toEqual([2, expect.stringContaining('of at most 168h, got "240h"')]);
  });

  it('refuses a namespace that there is not: nothing would ever be found in it', async () => {
    const { code, stderr } = await audit([end('Deployment/web', noWait)], '-n', 'shpo', '--fail-on', 'any');
    expect([code, stderr]).toEqual([1, expect.stringContaining('there is no namespace shpo')]);
  });

  it.each([
    ['a finding about workloads', ['audit', '--since', '1h', '--fail-on', 'NoHook']],
    ['a finding about terminated pods, without --since', ['audit', '--fail-on', 'StoppedTooEarly']],
  ])('a gate on %s would always be open, and is refused', async (_, args) => {
    const { code, stderr } = await linger(args, { atEnd });
    expect([code, stderr]).toEqual([2, expect.stringContaining('--fail-on: expected some of any, ')]);
  });
});
