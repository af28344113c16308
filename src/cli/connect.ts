import { existsSync } from 'node:fs';
import { asError, LingerError } from '../api/index.ts';
import {
  asFailure,
  type FailureReason,
  inClusterConnection,
  type KubeConnection,
  type KubeFailure,
  readKubeconfig,
} from '../cluster/index.ts';
import type { KubeEnvironment } from './flags.ts';

/** Where the API server and the credentials for it come from. */
export interface ConnectSettings {
  readonly cluster: 'auto' | 'required' | 'off';
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}

/**
 * The connection to the cluster, or why there is none. Brings the libraries that it needs only when it needs them: a
 * kubeconfig takes a YAML parser and schemas.
 * @throws ConnectionError for a kubeconfig that cannot be used; with `required`, where there are no credentials
 * @throws LingerError `settings-invalid`
 */
export async function connect(
  { cluster, kubeconfig, context }: ConnectSettings,
  { service, variables }: KubeEnvironment,
): Promise<KubeConnection | { readonly none: string }> {
  if (context !== undefined && kubeconfig === undefined) {
    throw new LingerError('settings-invalid', '--context: expected a --kubeconfig that has it, got none');
  }
  if (cluster === 'off') return { none: '--cluster is off' };
  if (kubeconfig !== undefined) {
    // A server is unattended, even when it was started from a terminal.
    const plugins = { environment: variables, interactive: false };
    return (await import('../cluster/index.ts')).readKubeconfig(kubeconfig, { context, plugins });
  }
  const { inClusterConnection } = await import('../cluster/index.ts');
  try {
    return await inClusterConnection(service);
  } catch (error) {
    if (cluster === 'required') throw error;
    return { none: asError(error).message };
  }
}

export interface ClusterSettings {
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}

/**
 * The cluster that kubectl would talk to here: of --kubeconfig, else of KUBECONFIG's files, else of ~/.kube/config, else
 * the one that this pod runs in.
 * @param interactive whether standard input is a terminal, at which a person can answer a credential plugin
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

/** Whether the credentials are the trouble, and not the way to the server. */
export function isDenied(reason: FailureReason): boolean {
  return reason === 'Unauthorized' || reason === 'Forbidden';
}

/**
 * Runs the first request to a cluster; its failure becomes an error that says what to do.
 * @throws LingerError `cluster-unreachable`, `cluster-denied`; ConnectionError where there are no credentials to ask with
 */
export async function first<T>(connection: KubeConnection, request: () => Promise<T>): Promise<T> {
  // A plugin's own error; the request would report it as one more way of not being authorized.
  await connection.credentials();
  try {
    return await request();
  } catch (thrown) {
    throw explained(asFailure(thrown), connection);
  }
}

/** The failure as an error that says what to do. */
export function explained({ reason, message }: KubeFailure, connection: KubeConnection): LingerError {
  return isDenied(reason)
    ? new LingerError('cluster-denied', `${nameOf(connection)}: ${message}`)
    : new LingerError('cluster-unreachable', `${nameOf(connection)} cannot be asked: ${message}`);
}
