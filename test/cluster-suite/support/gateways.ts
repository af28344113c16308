import { type Cluster, images } from '../../testbed/cluster.ts';
import { firstNode } from '../../testbed/network.ts';
import { type PodObject, pod } from './manifests.ts';
import { isReady } from './termination.ts';

/** Represents a gateway that runs as a process on the first node by a pod with that node's address. */
export async function standIn(cluster: Cluster, namespace: string, gateway: string): Promise<void> {
  const container = { name: 'gateway', image: images.busybox, imagePullPolicy: 'Never' };
  const spec = {
    hostNetwork: true,
    nodeSelector: { 'kubernetes.io/hostname': firstNode.name },
    containers: [{ ...container, command: ['sleep', '36000'] }],
  };
  const standing = pod(
    namespace,
    gateway,
    { ...spec, terminationGracePeriodSeconds: 0 },
    { labels: { gateway } },
  );
  await cluster.create(standing);
  await cluster.waitFor<PodObject>(standing, isReady);
}
