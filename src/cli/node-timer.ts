import { isIP } from 'node:net';
import { attemptClusterIp, canaryUrl, FLIP_LIMITS, nodeTimerApp } from '../measurement/index.ts';
import type { Settings } from './commands.ts';
import { usageError } from './flags.ts';
import { serveLeader } from './sidecar-server.ts';
import type { Terminal } from './terminal.ts';

const CANARY_SERVICE_PORT = 80;

/**
 * `linger node-timer`: runs on every node, and does nothing but connect to the ClusterIP of linger-canary while the leader
 * fetches the results. It has no rights in the cluster. Resolves when it is asked to stop.
 */
export async function nodeTimer(settings: Settings<'node-timer'>, { warn }: Terminal): Promise<number> {
  const { clusterIp: address = '', port } = settings;
  // If the Service did not exist yet, the variable in the argument was not replaced; the kubelet will restart this process.
  if (isIP(address) === 0) throw usageError(`--cluster-ip: expected an address, got "${address}"`);
  const url = canaryUrl(address, CANARY_SERVICE_PORT);
  const timeoutMs = FLIP_LIMITS.attemptMs;
  const ask = () => attemptClusterIp({ url, address, timeoutMs });
  const answer = nodeTimerApp(ask, performance.now.bind(performance));
  const about = `times the ClusterIP ${address} of linger-canary while the leader asks`;
  await serveLeader({ address: '', port, flag: '--port' }, answer, { warn }, about);
  return 0;
}
