import { existsSync } from 'node:fs';
import { LingerError } from '../core/catalog/errors.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { asFailure, type RestartReason, type WatchFailure } from '../kube/failure.ts';
import { inClusterConnection } from '../kube/in-cluster.ts';
import { readKubeconfig } from '../kube/kubeconfig.ts';
import type { KubeEnvironment } from '../settings/kube-environment.ts';

export interface ClusterSettings {
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}

/**
 * The cluster that kubectl would talk to here: of --kubeconfig, else of KUBECONFIG's files, else of ~/.kube/config, else
 * the one that this pod runs in.
 * @param interactive whether somebody could answer the question of a credential plugin
 * @throws ConnectionError
 */
export async function connectAsKubectl(
  { kubeconfig, context }: ClusterSettings,
  { kubeconfigs, homeKubeconfig, service, variables }: KubeEnvironment,
  interactive: boolean,
): Promise<KubeConnection> {
  const options = { context, plugins: { environment: variables, interactive } };
  if (kubeconfig !== undefined) return readKubeconfig(kubeconfig, options);
  if (kubeconfigs.length > 0) return readKubeconfig(kubeconfigs, { ...options, mayMiss: true });
  const inPod = service.host !== undefined && context === undefined;
  if (homeKubeconfig !== undefined && (existsSync(homeKubeconfig) || !inPod)) {
    return readKubeconfig(homeKubeconfig, options);
  }
  return inClusterConnection(service);
}

/** `https://10.0.0.1:6443 (context "dev" of /home/me/.kube/config)` */
export function nameOf({ server, name }: KubeConnection): string {
  const address = server.href.replace(/\/$/, '');
  return name === undefined ? address : `${address} (${name})`;
}

/** These are about who we are, and the others about how to get there. */
export function isDenied(reason: RestartReason): boolean {
  return reason === 'Unauthorized' || reason === 'Forbidden';
}

/**
 * Runs the first request to a cluster, and says so that somebody can do something about it why it failed.
 * @throws LingerError `cluster-unreachable`, `cluster-denied`; ConnectionError where there are no credentials to ask with
 */
export async function first<T>(connection: KubeConnection, request: () => Promise<T>): Promise<T> {
  // A plugin's own words; the request would tell them as one more reason why it was not authorized.
  await connection.credentials();
  try {
    return await request();
  } catch (thrown) {
    throw explained(asFailure(thrown), connection);
  }
}

/** The failure as something that somebody can do something about. */
export function explained({ reason, message }: WatchFailure, connection: KubeConnection): LingerError {
  return isDenied(reason)
    ? new LingerError('cluster-denied', `${nameOf(connection)}: ${message}`)
    : new LingerError('cluster-unreachable', `${nameOf(connection)} cannot be asked: ${message}`);
}
