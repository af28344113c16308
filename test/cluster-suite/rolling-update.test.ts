import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shipped as command } from '../cli/linger.ts';
import { waitUntil } from '../testbed/cluster.ts';
import { causesBesidesStopped, formatReport, type LoadReport } from '../testbed/load/load.ts';
import { Linger } from './support/linger.ts';
import { clusterPolicy, fixedWait, policyFile } from './support/policies.ts';
import { type RolloutReports, rollOver } from './support/rollout.ts';
import { openStage, type Stage } from './support/stage.ts';

/**
 * Half as much again as the discovery interval of 10 s. Both clients open a new connection for every request: what
 * a client with a pool loses, no wait can save.
 */
const WAIT = '15s';

const MOST_ROUNDS = 4;

const OUT_OF_REACH =
  'the clients must reach ClusterIPs and pods, and have many addresses: only in our own cluster';

describe('a rolling update of an application that exits at once on SIGTERM', () => {
  let stage: Stage;
  /** Leads in a namespace of its own, and reviews how pods end. */
  let reviewer: Linger | undefined;
  let home: string;
  const rows: string[][] = [['Linger', 'client', 'requests', 'lost', 'kinds', 'causes', 'client late by']];

  beforeAll(async () => {
    stage = await openStage(() => policyFile(clusterPolicy('base', fixedWait(WAIT))));
    const { kubeconfig, nodeAddress: host } = stage.cluster;
    home = await stage.cluster.namespace('rolling-home');
    const directory = mkdtempSync(join(tmpdir(), 'linger-rolling-'));
    reviewer = await Linger.start({ host, kubeconfig, directory, namespace: home });
    await waitUntil('it to lead', async () => (await reviewer?.metric('linger_leader')) === 1);
  });

  type Ended = { workloads: { verdict: string; namespace: string; ended: number; noWait: number }[] };
  /** What `linger audit --since` says of the pods of a namespace that have ended. */
  async function reviewed(
    namespace: string,
    ended: number,
  ): Promise<Ended['workloads'][number] & { code: number | null }> {
    const place = ['--kubeconfig', stage.cluster.kubeconfig, '--linger-namespace', home, '-n', namespace];
    const look = async () => {
      const { stdout, code } = await command([
        'audit',
        '--since',
        '1h',
        ...place,
        '-o',
        'json',
        '--fail-on',
        'any',
      ]);
      const found = stdout === '' ? [] : (JSON.parse(stdout) as Ended).workloads;
      return found[0] !== undefined && found[0].ended >= ended && { ...found[0], code };
    };
    return waitUntil(`${ended} pods of ${namespace} to be reviewed`, look, { timeoutMs: 60_000 });
  }

  afterAll(async () => {
    console.log(table(rows));
    await reviewer?.stop();
    await stage?.close();
  });

  async function run(linger: 'with' | 'without'): Promise<RolloutReports & { readonly namespace: string }> {
    const labels: Record<string, string> = linger === 'with' ? {} : { 'linger.dev/inject': 'false' };
    const namespace = await stage.cluster.namespace(`rolling-${linger}`, labels);
    const reports = await rollOver(stage.cluster, namespace);
    for (const report of [reports.clusterIp, reports.polling]) {
      rows.push([linger, ...cells(report)]);
      // With Linger every loss is a riddle to be solved; without it a few show what they are like.
      const shown = linger === 'with' ? report.firstLosses : report.firstLosses.slice(0, 3);
      console.log(`${linger} Linger: ${formatReport({ ...report, firstLosses: shown })}`);
    }
    expect(await stage.linger.decisions(namespace)).toHaveLength(linger === 'with' ? 8 : 0);
    return { ...reports, namespace };
  }

  /** Both generations of four pods must have answered, or nothing was rolled under load. */
  const generations = ({ byPod }: LoadReport) => Object.keys(byPod).length / 4;

  // First, and in a Service of its own: pods that die unprotected leave entries in conntrack for two minutes.
  it('loses nothing with Linger', async ({ skip }) => {
    if (!stage.cluster.own) return skip(OUT_OF_REACH);
    const { clusterIp, polling } = await run('with');
    expect([clusterIp, polling].map(generations)).toEqual([2, 2]);
    expect(clusterIp.firstLosses).toEqual([]);
    expect(polling.firstLosses).toEqual([]);
    expect([clusterIp.lost, polling.lost]).toEqual([0, 0]);
  });

  it('loses requests of both clients without it', async ({ skip }) => {
    if (!stage.cluster.own) return skip(OUT_OF_REACH);
    const lost = { clusterIp: 0, polling: 0 };
    // Where a busy kubelet sends SIGTERM later than kube-proxy has changed its rules, for each of the four pods, the ClusterIP
    // loses nothing: then it is rolled over again.
    for (let round = 1; round <= MOST_ROUNDS && Math.min(lost.clusterIp, lost.polling) === 0; round += 1) {
      const { clusterIp, polling, namespace } = await run('without');
      expect([clusterIp, polling].map(generations)).toEqual([2, 2]);
      // Each loss is explained by a client that still sent to a terminating pod, and by nothing else.
      expect([clusterIp, polling].flatMap(causesBesidesStopped)).toEqual([]);
      // And the review says so, of every one of the four pods.
      const verdict = { verdict: 'unprotected', ended: 4, noWait: 4, code: 3 };
      expect(await reviewed(namespace, 4)).toMatchObject(verdict);
      lost.clusterIp += clusterIp.lost;
      lost.polling += polling.lost;
    }
    expect(lost.clusterIp).toBeGreaterThan(0);
    expect(lost.polling).toBeGreaterThan(0);
  });
});

function cells({ client, total, lost, byKind, byCause, latestStartMs }: LoadReport): string[] {
  const counts = (record: object) =>
    Object.entries(record)
      .map(([name, count]) => `${count} ${name}`)
      .join(', ') || '-';
  return [client, String(total), String(lost), counts(byKind), counts(byCause), `${latestStartMs} ms`];
}

function table(lines: readonly string[][]): string {
  const widths = (lines[0] ?? []).map((_, column) =>
    Math.max(...lines.map((line) => line[column]?.length ?? 0)),
  );
  return lines
    .map((line) =>
      line
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join('  ')
        .trimEnd(),
    )
    .join('\n');
}
