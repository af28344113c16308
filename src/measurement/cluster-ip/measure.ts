import { CANARY_SERVICE } from '../canary/flip.ts';
import type { Measuring } from '../measure.ts';
import { attemptClusterIp, canaryUrl } from '../requests/probe.ts';

/** From one node, there is a single kube-proxy behind a ClusterIP, so one second of other replicas' answers suffices. */
export const CLUSTER_IP_MISSES = 40;

/** kube-proxy, through the ClusterIP of the canary's Service. */
export const clusterIp: Measuring<'clusterIp'> = {
  by: 'canary',
  limit:
    'It sees the kube-proxy of the node where the leader runs; those of other nodes may take longer: deploy/node-timer.yaml times them.',
  perNode: true,
  attempts: async (_, { service: { address, port } }, { timeoutMs }) => ({
    service: CANARY_SERVICE,
    leastMisses: CLUSTER_IP_MISSES,
    subject: 'A connection to the ClusterIP of linger-canary',
    ask: () => attemptClusterIp({ url: canaryUrl(address, port), address, timeoutMs }),
  }),
};
