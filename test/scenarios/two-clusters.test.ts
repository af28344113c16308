import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type RequestOutcome, readLine, type TrafficPlan } from '../../src/prove/index.ts';
import { emptyDirectory, MAIN, shipped } from '../cli/linger.ts';
import { kubeconfigOf } from '../cluster-suite/support/account.ts';
import { type Cluster, openCluster } from '../testbed/cluster.ts';
import { type JoinedCluster, startJoinedCluster } from '../testbed/joined-cluster.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { LONG } from './form.ts';
import { consumer, HoldSetting } from './hold/setting.ts';
import { Stand } from './polling/stand.ts';
import { duration, table } from './table.ts';
import { Copier } from './two-clusters/copier.ts';

/*
 * S1: the pods of one cluster are copied to Services without a selector in another, through which the requests come, and the
 * copier is late. Two real clusters, each with its own API server and kube-proxy, linked by a veth pair.
 */
const DELAY_MS = 45_000;
const MAX_SECONDS = 120;
const PER_SECOND = 50;
const LONGEST_SECONDS = 900;
/** What reads the copies has a second (docs/gateways.md). */
const READ_MS = 1_000;
const ACCESS = 'access';
const PODS = 10;
const ROLLOUTS = 5;
const APART_MS = 20_000;

const atEnd = atEndOfFile();

describe.runIf(LONG)('copies in another cluster', () => {
  let cluster: Cluster;
  let joined: JoinedCluster | undefined;
  let setting: HoldSetting;
  const copiers: Copier[] = [];

  beforeAll(async () => {
    cluster = await openCluster();
    if (!cluster.own) return;
    joined = await startJoinedCluster();
    const there = joined.cluster;
    await there.create({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: ACCESS } });
    const account = { namespace: ACCESS, name: 'linger' };
    await there.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: account });
    // The rights that docs/gateways.md names.
    await there.mustKubectl([
      'create',
      'clusterrole',
      'linger-copies',
      '--verb=list,watch',
      '--resource=endpoints,endpointslices.discovery.k8s.io',
    ]);
    await there.mustKubectl([
      'create',
      'clusterrolebinding',
      'linger-copies',
      '--clusterrole=linger-copies',
      `--serviceaccount=${ACCESS}:linger`,
    ]);
    const endpoints = { kubeconfigFile: 'access.kubeconfig', copies: `${ACCESS}/{namespace}-{service}` };
    setting = await HoldSetting.open(cluster, {
      consumers: [consumer('access', { copied: 'access' }, { endpoints })],
      max: MAX_SECONDS,
      files: { 'access.kubeconfig': await kubeconfigOf(there, ACCESS, 'linger') },
    });
  }, 600_000);

  afterAll(async () => {
    await Promise.all(copiers.map((copier) => copier.stop()));
    await setting?.close();
    await joined?.remove();
    await cluster?.close();
  }, 300_000);

  interface Run {
    readonly total: number;
    readonly lost: readonly RequestOutcome[];
    /** By address: when its pod was seen to be gone, in milliseconds since the epoch. */
    readonly endedAt: ReadonlyMap<string, number>;
    /** By name. */
    readonly addresses: ReadonlyMap<string, string>;
    readonly copier: Copier;
  }

  /** Rolls over an application whose requests come through the other cluster. */
  async function rollOver(namespace: string, replicas: number, rollouts: number): Promise<Run> {
    const stand = new Stand({ cluster, namespace, name: 'web', replicas, onSigterm: 'exit' });
    await stand.start();
    const copier = await Copier.start({
      from: cluster,
      to: joined!.cluster,
      namespace,
      service: 'web',
      copies: ACCESS,
      delayMs: DELAY_MS,
    });
    copiers.push(copier);
    const url = `http://${copier.clusterIp}/`;
    const plan: TrafficPlan = {
      ways: [{ name: 'access', url, keepAlive: false, verify: false }],
      rate: PER_SECOND,
      seconds: LONGEST_SECONDS,
      timeoutMs: 5_000,
      method: 'GET',
      headers: {},
    };
    const [program = '', ...words] = joined!.enter;
    const args = [...words, process.execPath, MAIN, 'prove-traffic', '--plan', JSON.stringify(plan)];
    await sleep(2_000);
    const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    let said = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
    const exited = once(child, 'close');
    const addresses = new Map<string, string>();
    const endedAt = new Map<string, number>();
    const look = async () => {
      const pods = await cluster.list<{ metadata: { name: string }; status: { podIP?: string } }>(
        { apiVersion: 'v1', kind: 'Pod', namespace },
        stand.selector,
      );
      for (const { metadata, status } of pods)
        if (status.podIP !== undefined) addresses.set(metadata.name, status.podIP);
      const there = new Set(pods.map(({ metadata }) => metadata.name));
      for (const [name, address] of addresses)
        if (!there.has(name) && !endedAt.has(address)) endedAt.set(address, Date.now());
    };
    let rolling = true;
    const looking = (async () => {
      while (rolling) {
        await look();
        await sleep(200);
      }
    })();
    for (let time = 0; time < rollouts; time += 1) {
      // Some pods end before their copy is there, which then adds what is gone.
      if (time > 0) await sleep(APART_MS);
      await stand.rollOver(1);
    }
    // Until the copy has followed.
    await sleep(DELAY_MS + 10_000);
    rolling = false;
    await looking;
    child.kill('SIGTERM');
    await exited;
    const outcomes = said.split('\n').flatMap((line) => readLine(line)?.outcomes ?? []);
    const lost = outcomes.filter((each) => each.lost !== undefined);
    return { total: outcomes.length, lost, endedAt, addresses, copier };
  }

  it('without Linger, requests go to pods long after their end', { timeout: 600_000 }, async ({ skip }) => {
    if (!cluster.own) return skip('the other cluster must reach its pods: only with our own');
    const namespace = await setting.namespace('alone', 'copied');
    const { total, lost, endedAt } = await rollOver(namespace, 3, 1);
    expect(endedAt.size).toBe(3);
    const first = Math.min(...endedAt.values());
    const latest = Math.max(...lost.map(({ at }) => at)) - first;
    const kinds = [...Map.groupBy(lost, (each) => each.lost)];
    console.log(
      `without Linger: ${lost.length} of ${total} lost, until ${duration(latest)} after the first pod’s end: ` +
        kinds.map(([kind, each]) => `${each.length} ${kind}`).join(', '),
    );
    expect(total).toBeGreaterThan(1_000);
    expect(lost.length).toBeGreaterThan(100);
    expect(latest).toBeGreaterThan(DELAY_MS / 2);
  });

  it('with Hold none is lost, and each pod is released when its copy is gone', { timeout: 900_000 }, async ({
    skip,
  }) => {
    if (!cluster.own || joined === undefined) return skip('only with our own cluster');
    const namespace = await setting.namespace('hold', 'copied', { copied: 'access' });
    const directory = await emptyDirectory(atEnd);
    const kubeconfig = join(directory, 'both');
    const [here, there] = [cluster, joined.cluster].map(
      ({ kubeconfig: file }) => JSON.parse(readFileSync(file, 'utf8')) as Kubeconfig,
    );
    writeFileSync(kubeconfig, JSON.stringify(both(here!, there!)), { mode: 0o600 });
    const contexts = ['--context', 'business', '--context', 'access', '-n', namespace, ACCESS];
    const watching = shipped([
      ...['watch', '--kubeconfig', kubeconfig, ...contexts],
      ...['--source', 'EndpointSlice', '--change', 'terminating,removed', '--for', '3m', '--output', 'json'],
    ]);
    const { total, lost, addresses, copier } = await rollOver(namespace, PODS, ROLLOUTS);
    const releases = await setting.releases(namespace);
    const late = releases.map(({ time, pod }) => {
      const gone = copier.goneAt.get(addresses.get(pod) ?? '') ?? Number.NaN;
      return Date.parse(time) - gone - READ_MS;
    });
    const held = releases.map(({ seconds }) => seconds * 1000);
    const range = (of: readonly number[]) => `${duration(Math.min(...of))} to ${duration(Math.max(...of))}`;
    console.log(
      table(
        ['', 'sent', 'lost', 'terminations', 'held', 'released after the copy and what reads it'],
        [['Hold', total, lost.length, releases.length, range(held), range(late)]],
      ),
    );
    expect(releases.length).toBe(PODS * ROLLOUTS);
    expect(lost.length, JSON.stringify(lost.slice(0, 10))).toBe(0);
    expect(new Set(releases.map(({ reason }) => reason))).toEqual(new Set(['Gone']));
    expect(Math.min(...late)).toBeGreaterThanOrEqual(-500);
    expect(Math.max(...late)).toBeLessThanOrEqual(500);

    // Both sides on one clock, from the first rollouts.
    const { stdout, stderr } = await watching;
    const lines = stdout
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as { time: string; context: string; ip: string });
    const followed = [...Map.groupBy(lines, ({ ip }) => ip).values()].flatMap((of) => {
      const [before, after] = ['business', 'access'].map((name) =>
        of.find(({ context }) => context === name),
      );
      return before && after ? [Date.parse(after.time) - Date.parse(before.time)] : [];
    });
    expect(followed.length, stderr).toBeGreaterThan(5);
    for (const ms of followed) expect(Math.abs(ms - DELAY_MS)).toBeLessThan(2_000);
    console.log(`watch: ${followed.length} copies followed after ${range(followed)}`);
  });
});

interface Kubeconfig {
  readonly clusters: readonly { readonly cluster: object }[];
  readonly users: readonly { readonly user: object }[];
}

function both(...[here, there]: readonly [Kubeconfig, Kubeconfig]): object {
  const named = { business: here, access: there };
  return {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': 'business',
    clusters: Object.entries(named).map(([name, { clusters }]) => ({ ...clusters[0], name })),
    users: Object.entries(named).map(([name, { users }]) => ({ ...users[0], name })),
    contexts: Object.keys(named).map((name) => ({ name, context: { cluster: name, user: name } })),
  };
}
