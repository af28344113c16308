import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, type KubernetesObject, openCluster } from '../cluster.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../workloads.ts';
import {
  causesBesidesStopped,
  formatReport,
  type LoadReport,
  startLoad,
  type TargetOptions,
} from './load.ts';
import { untilEveryPodAnswers, untilRefused } from './programmed.ts';

const REPLICAS = 3;

interface PodObject extends KubernetesObject {
  readonly status: { readonly podIP: string };
}

describe('the load client', () => {
  let cluster: Cluster;
  let namespace: string;
  let clusterIp: TargetOptions;

  const pods = () => cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=web');
  const settled = () =>
    cluster.waitFor<DeploymentObject>(applicationDeployment({ namespace, name: 'web' }), (deployment) =>
      isRolledOut(deployment, REPLICAS),
    );

  /** Loads a target while something happens. */
  async function loadDuring(target: TargetOptions, work: () => Promise<void>): Promise<LoadReport> {
    const load = await startLoad({ cluster, namespace, target, podSelector: 'app=web' });
    await work();
    const report = await load.stop();
    console.log(formatReport(report));
    return report;
  }

  /** Resolves four seconds after the pod has stopped: the kubelet of a busy machine may take seconds until SIGTERM. */
  async function deleteOnePod(): Promise<string> {
    const [pod] = await pods();
    const name = pod?.metadata.name ?? '';
    await sleep(1_000);
    await cluster.delete({ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace } }, { wait: true });
    await sleep(4_000);
    return name;
  }

  /** A Service whose endpoints are written by hand: like one whose controller is far behind. */
  async function serviceThatNobodyUpdates(): Promise<string> {
    const addresses = (await pods()).map(({ status }) => status.podIP);
    const service = {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'stale', namespace },
      spec: { ports: [{ port: 80 }] },
    };
    const slice = {
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      metadata: { name: 'stale', namespace, labels: { 'kubernetes.io/service-name': 'stale' } },
      addressType: 'IPv4',
      ports: [{ port: 8080 }],
      endpoints: addresses.map((address) => ({ addresses: [address] })),
    };
    const { spec } = await cluster.create<{ spec: { clusterIP: string } }>(service);
    await cluster.create(slice);
    await untilEveryPodAnswers(spec.clusterIP, REPLICAS);
    return spec.clusterIP;
  }

  beforeAll(async () => {
    cluster = await openCluster();
    namespace = await cluster.namespace('load');
    await cluster.create(applicationDeployment({ namespace, name: 'web', replicas: REPLICAS }));
    await settled();
    const { spec } = await cluster.create<{ spec: { clusterIP: string } }>(
      applicationService({ namespace, name: 'web' }),
    );
    clusterIp = { kind: 'clusterIP', address: spec.clusterIP, port: 80 };
    await untilEveryPodAnswers(spec.clusterIP, REPLICAS);
  });

  afterAll(async () => {
    await cluster?.close();
  });

  it('loses nothing while nothing happens, and reaches every pod', async () => {
    const report = await loadDuring(clusterIp, () => sleep(4_000));
    expect(report).toMatchObject({ lost: 0, byKind: {}, byCause: {}, firstLosses: [] });
    expect(report.total).toBeGreaterThan(500);
    expect(report.answered).toBe(report.total);
    expect(Object.keys(report.byPod)).toHaveLength(REPLICAS);
  });

  it('blames a deleted pod that a polling gateway still sends to', async () => {
    let deleted = '';
    const target: TargetOptions = { kind: 'polling', service: 'web', intervalMs: 60_000 };
    const report = await loadDuring(target, async () => {
      deleted = await deleteOnePod();
    });
    // A third of 150 a second for the four seconds after the pod has stopped.
    expect(report.lost).toBeGreaterThan(100);
    expect(report.answered + report.lost).toBe(report.total);
    expect(new Set(report.firstLosses.map(({ pod }) => pod))).toEqual(new Set([deleted]));
    expect(causesBesidesStopped(report)).toEqual([]);
    for (const { sinceDeletionMs } of report.firstLosses) expect(sinceDeletionMs).toBeGreaterThan(-2_000);
    await settled();
  });

  it('names the pod that a ClusterIP sent a lost connection to', async () => {
    const address = await serviceThatNobodyUpdates();
    let deleted = '';
    const report = await loadDuring({ kind: 'clusterIP', address, port: 80 }, async () => {
      deleted = await deleteOnePod();
    });
    // A third of 150 a second for the four seconds after the pod has stopped.
    expect(report.lost).toBeGreaterThan(100);
    expect(new Set(report.firstLosses.map(({ pod }) => pod))).toEqual(new Set([deleted]));
    expect(causesBesidesStopped(report)).toEqual([]);
    await settled();
  });

  it('says so when a Service has no endpoint', async () => {
    const name = 'nobody';
    const { spec } = await cluster.create<{ spec: { clusterIP: string } }>(
      applicationService({ namespace, name }),
    );
    await untilRefused(spec.clusterIP);
    const report = await loadDuring({ kind: 'clusterIP', address: spec.clusterIP, port: 80 }, () =>
      sleep(1_000),
    );
    expect(report.byKind).toEqual({ refused: report.total });
    expect(report.byCause).toEqual({ noEndpoint: report.total });
  });
});
