import { setTimeout as sleep } from 'node:timers/promises';
import { type Cluster, type KubernetesObject, waitUntil } from '../../testbed/cluster.ts';
import { type LoadReport, startLoad, type TargetOptions } from '../../testbed/load/load.ts';
import { untilEveryPodAnswers } from '../../testbed/load/programmed.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../../testbed/workloads.ts';

/** How often the client with its own discovery, like S3's gateways, reads the EndpointSlices. */
const DISCOVERY_INTERVAL_MS = 10_000;
const CONNECT_TIMEOUT_MS = 2_000;
/** Load before anything happens, and the time for requests in flight at the end. */
const CALM_MS = 2_000;

const APPLICATION = { name: 'web', replicas: 4 };

export interface RolloutReports {
  readonly clusterIp: LoadReport;
  readonly polling: LoadReport;
}

/**
 * Rolls over a new Deployment in a namespace under the load of two clients.
 * @param podSpec merged over its pods' spec
 * @returns what each of them lost
 */
export async function rollOver(
  cluster: Cluster,
  namespace: string,
  podSpec: Readonly<Record<string, unknown>> = {},
): Promise<RolloutReports> {
  const application = { ...APPLICATION, namespace, podSpec };
  const deployment = applicationDeployment(application);
  await cluster.create(deployment);
  const service = await cluster.create<{ spec: { clusterIP: string } }>(applicationService(application));
  await cluster.waitFor<DeploymentObject>(deployment, (each) => isRolledOut(each, application.replicas));
  const clusterIp = { kind: 'clusterIP', address: service.spec.clusterIP, port: 80 } as const;
  await untilEveryPodAnswers(clusterIp.address, application.replicas);

  const polling = { kind: 'polling', service: application.name, intervalMs: DISCOVERY_INTERVAL_MS } as const;
  const [one, other] = halves(cluster.clientAddresses);
  const loads = await Promise.all([
    load(cluster, namespace, clusterIp, one),
    load(cluster, namespace, polling, other),
  ]);
  await sleep(CALM_MS);
  await restart(cluster, namespace);
  // The client that reads rarely may use addresses of deleted pods for one more interval.
  await sleep(DISCOVERY_INTERVAL_MS + CONNECT_TIMEOUT_MS + CALM_MS);
  const [clusterIpReport, pollingReport] = await Promise.all([loads[0].stop(), loads[1].stop()]);
  return { clusterIp: clusterIpReport, polling: pollingReport };
}

/** `kubectl rollout restart`; resolves when the last old pod is gone. */
async function restart(cluster: Cluster, namespace: string): Promise<void> {
  const pods = () => cluster.list<KubernetesObject>({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=web');
  const before = new Set((await pods()).map(({ metadata }) => metadata.uid));
  for (const verb of ['restart', 'status']) {
    const args = ['rollout', verb, 'deployment/web', '--namespace', namespace];
    await cluster.mustKubectl(args, { timeoutMs: 180_000 });
  }
  await waitUntil('the old pods to be gone', async () =>
    (await pods()).every(({ metadata }) => !before.has(metadata.uid)),
  );
}

function load(
  cluster: Cluster,
  namespace: string,
  target: TargetOptions,
  clientAddresses: readonly string[],
) {
  const connectTimeoutMs = CONNECT_TIMEOUT_MS;
  return startLoad({ cluster, namespace, target, clientAddresses, podSelector: 'app=web', connectTimeoutMs });
}

/**
 * Each client has its own source addresses. With shared ones, a connection through the ClusterIP and a direct one could
 * be the same to conntrack once the former is translated, and its SYN dropped.
 */
function halves(addresses: readonly string[]): readonly [readonly string[], readonly string[]] {
  const middle = Math.ceil(addresses.length / 2);
  return [addresses.slice(0, middle), addresses.slice(middle)];
}
