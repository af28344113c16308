import { ensureArgoRollouts } from './binaries.ts';
import { logFile, waitHealthy } from './health.ts';
import { network } from './network.ts';
import { startProcess, stopProcess } from './process.ts';
import { type ClusterSettings, statePaths } from './settings.ts';

const NAME = 'rollouts-controller';
const PORTS = { healthz: 18_090, metrics: 18_091 };

/**
 * Argo Rollouts' own controller as a process on the node, inside the cluster's network. Its CRDs must be there. What `down`
 * removes, it removes, too.
 */
export async function startRolloutsController(settings: ClusterSettings): Promise<() => Promise<void>> {
  const paths = statePaths(settings.stateDir);
  const program = await ensureArgoRollouts(settings.cacheDir, console.log);
  const flags = {
    kubeconfig: paths.kubeconfig,
    'leader-elect': false,
    healthzPort: PORTS.healthz,
    metricsPort: PORTS.metrics,
  };
  const argv = [program, ...Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`)];
  const record = await startProcess({ name: NAME, argv, runDir: paths.run, logFile: logFile(paths, NAME) });
  const health = { url: `http://${network.nodeAddress}:${PORTS.healthz}/healthz` };
  await waitHealthy({ name: NAME, argv, health }, paths);
  return () => stopProcess(record, paths.run);
}
