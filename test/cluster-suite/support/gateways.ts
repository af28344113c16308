import { type Cluster, images } from '../../testbed/cluster.ts';
import { type PodObject, pod } from './manifests.ts';
import { isReady } from './termination.ts';

/** Represents a gateway that runs as a process on the node by a pod with the node's address. */
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
