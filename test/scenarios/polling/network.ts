import { must } from '../../testbed/command.ts';
import { network } from '../../testbed/network.ts';

/**
 * What is sent to a pod that is gone leaves by the node's own device, as the pod's route is gone, too; there the kernel
 * would say after three seconds that there is no such host. After routing: what goes to a ClusterIP has another device
 * until then.
 */
const RULE = ['POSTROUTING', '-o', 'node0', '-d', network.podRange, '-p', 'tcp', '-j', 'DROP'];

/** Until it is called off, addresses of pods that are gone swallow SYNs, as in S3. Runs in the cluster's network. */
export async function swallowSyns(): Promise<() => Promise<void>> {
  await must(['iptables', '-w', '-t', 'mangle', '-I', ...RULE]);
  return async () => {
    await must(['iptables', '-w', '-t', 'mangle', '-D', ...RULE]);
  };
}
