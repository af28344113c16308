import { loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { percentileOf } from '../cluster-suite/support/agreement.ts';
import { Installation } from '../cluster-suite/support/installation.ts';
import { clusterPolicy, policyFile } from '../cluster-suite/support/policies.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { PodLives } from '../testbed/load/lives.ts';
import { sendRequest } from '../testbed/load/request.ts';
import { LONG } from './form.ts';
import { untilPlanned } from './hold/setting.ts';
import { removals } from './hold/terminations.ts';
import { Stand } from './polling/stand.ts';
import { table } from './table.ts';

/*
 * After an installation Hold counts `wait.initial` for ClusterIPs until a hundred flips have timed them
 * (docs/decisions/0056-cluster-ips-first.md). A pod is deleted every half minute: how long is it held, against its last request?
 */
const MINUTES = 15;
const EVERY_MS = 30_000;
/** From then on holds are as short as the measurements allow, on a machine with nothing else to do. Minutes after the installation. */
const KNOWN_BY = 10;
const QUIET_LOAD = 4;
const REQUEST_EVERY_MS = 50;
const HOLD = { hook: 'Hold', hold: { min: '0s', max: '60s' } };

interface Row {
  /** From the installation until the deletion. */
  readonly minutes: number;
  /** Flips that have timed ClusterIPs by then. */
  readonly samples: number;
  /** From the deletion until the application logged SIGTERM. Seconds. */
  readonly held: number;
  /** From the deletion until the pod was last sent a new connection through the ClusterIP, as its client saw it. Seconds. */
  readonly lag: number;
  readonly load: number;
}

let cluster: Cluster;
let installation: Installation | undefined;
let stand: Stand;
let installedAt = Number.NaN;

beforeAll(async () => {
  cluster = await openCluster();
  if (!LONG || !cluster.own) return;
  const policies = policyFile(clusterPolicy('base', { mode: 'Enforce', ...HOLD }));
  installation = await Installation.create(cluster, { policies });
  const deployment = { apiVersion: 'apps/v1', kind: 'Deployment' };
  const metadata = { namespace: 'linger', name: 'linger' };
  type Created = KubernetesObject & { readonly metadata: { readonly creationTimestamp: string } };
  const created = await cluster.get<Created>({ ...deployment, metadata });
  installedAt = Date.parse(created?.metadata.creationTimestamp ?? '');
  const namespace = await cluster.namespace('first-hour');
  await untilPlanned(cluster, namespace, ({ hook }) => hook === 'Hold', { labels: { app: 'web' } });
  stand = new Stand({ cluster, namespace, name: 'web', replicas: 3, onSigterm: 'exit' });
  await stand.start();
}, 400_000);

afterAll(async () => {
  await installation?.remove();
  await cluster?.close();
}, 240_000);

/** One request after the other on new connections; `lastSent` by pod: milliseconds since the epoch. */
async function send(address: string, lastSent: Map<string, number>, signal: AbortSignal): Promise<number> {
  let lost = 0;
  const target = { address, port: 80 };
  const options = { target, path: '/', connectTimeoutMs: 2_000, answerTimeoutMs: 5_000 };
  const open = new Set<Promise<unknown>>();
  while (!signal.aborted) {
    const sentAt = Date.now();
    const request = sendRequest(options).then((outcome) => {
      if (outcome.result !== 'answered') lost += 1;
      else lastSent.set(outcome.pod, Math.max(sentAt, lastSent.get(outcome.pod) ?? 0));
      open.delete(request);
    });
    open.add(request);
    await sleep(REQUEST_EVERY_MS);
  }
  await Promise.all(open);
  return lost;
}

async function samples(): Promise<number> {
  const counts = await installation?.replicas.sums('linger_consumer_samples{consumer="cluster-ip"}');
  return Math.max(0, ...(counts?.values() ?? []));
}

const OWN = await (async () => {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
})();

describe.runIf(LONG && OWN)('the first quarter of an hour after an installation', () => {
  it('holds as long as is measured, once ClusterIPs are known', { timeout: 1_300_000 }, async () => {
    const { namespace, selector } = stand;
    const service = { apiVersion: 'v1', kind: 'Service', metadata: { namespace, name: 'web' } };
    const { clusterIP } = (await cluster.get<{ spec: { clusterIP: string } }>(service))!.spec;
    const lives = new PodLives({ cluster, namespace, podSelector: selector, container: 'app' });
    await lives.start();
    const lastSent = new Map<string, number>();
    const ending = new AbortController();
    const sending = send(clusterIP, lastSent, ending.signal);
    const minutesNow = () => (Date.now() - installedAt) / 60_000;
    const deleted: { pod: string; samples: number; load: number }[] = [];
    let known: number | undefined;
    const note = async () => {
      const count = await samples();
      if (count >= 100) known ??= minutesNow();
      return count;
    };
    while (minutesNow() < MINUTES) {
      const next = sleep(EVERY_MS);
      const oldest = lives.all.find(({ deletedAt, pod }) => deletedAt === undefined && lastSent.has(pod));
      const count = await note();
      if (oldest !== undefined) {
        deleted.push({ pod: oldest.pod, samples: count, load: loadavg()[0] ?? 0 });
        await cluster.delete({
          apiVersion: 'v1',
          kind: 'Pod',
          metadata: { namespace, name: oldest.pod },
        });
      }
      // To a few seconds: when the hundredth sample was there.
      while ((await Promise.race([next.then(() => 'due'), sleep(3_000)])) !== 'due') await note();
    }
    await waitUntil(
      'the last pod to be gone',
      () => deleted.every(({ pod }) => lives.all.some((life) => life.pod === pod && life.goneAt)),
      { timeoutMs: 120_000 },
    );
    ending.abort();
    const lost = await sending;
    await lives.stop();
    const removed = removals(cluster, namespace);
    const rows = deleted.map((each): Row => {
      const { sigtermAt = Number.NaN } = lives.all.find((life) => life.pod === each.pod) ?? {};
      const { deletedAt } = removed.get(each.pod)!;
      const since = (at: number) => (at - deletedAt) / 1_000;
      return {
        minutes: (deletedAt - installedAt) / 60_000,
        samples: each.samples,
        held: since(sigtermAt),
        lag: since(lastSent.get(each.pod) ?? Number.NaN),
        load: each.load,
      };
    });
    const p99 = percentileOf(
      rows.map(({ lag }) => lag),
      99,
    );
    const most = 1.2 * Math.max(0, p99) + 3;
    const cells = rows.map(({ minutes, samples: count, held, lag, load }) => [
      ...[minutes.toFixed(1), count, `${held.toFixed(1)} s`, `${lag.toFixed(2)} s`, load.toFixed(1)],
    ]);
    const head = ['minute', 'flips of ClusterIPs', 'held', 'last request after', 'load'];
    console.log(table(head, cells));
    console.log(
      `100 samples after ${known?.toFixed(1)} min; ${lost} lost of those that were sent; p99 of the lag ${p99.toFixed(2)} s: at most ${most.toFixed(1)} s`,
    );
    expect(lost).toBe(0);
    // Flips of a busy machine take longer.
    if (Math.max(...rows.map(({ load }) => load)) < QUIET_LOAD) expect(known).toBeLessThanOrEqual(KNOWN_BY);
    const later = rows.filter(({ minutes }) => minutes >= (known ?? Number.POSITIVE_INFINITY));
    expect(later.length).toBeGreaterThan(3);
    expect(later.filter(({ held }) => !(held <= most))).toEqual([]);
    // What was not known has never shortened a hold.
    expect(rows.filter(({ held, lag }) => held < lag)).toEqual([]);
  });
});
