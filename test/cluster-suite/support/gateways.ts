import { type Cluster, images } from '../../testbed/cluster.ts';
import { type PodObject, pod } from './manifests.ts';
import { isReady } from './termination.ts';

/** The gateway is a process of the node's: it gets a pod that has the node's address. */
export async function standIn(cluster: Cluster, namespace: string, gateway: string): Promise<void> {
  const container = { name: 'gateway', image: images.busybox, imagePullPolicy: 'Never' };
  const spec = { hostNetwork: true, containers: [{ ...container, command: ['sleep', '36000'] }] };
  const standing = pod(
    namespace,
    gateway,
    { ...spec, terminationGracePeriodSeconds: 0 },
    { labels: { gateway } },
  );
  await cluster.create(standing);
  await cluster.waitFor<PodObject>(standing, isReady);
}
