import { asError, LingerError } from '../core/catalog/errors.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { KubeEnvironment } from '../settings/kube-environment.ts';

/** What says where the API server is, and who we are to it. */
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
    // Nobody sits in front of a server, whatever it was started from.
    const plugins = { environment: variables, interactive: false };
    return (await import('../kube/kubeconfig.ts')).readKubeconfig(kubeconfig, { context, plugins });
  }
  const { inClusterConnection } = await import('../kube/in-cluster.ts');
  try {
    return await inClusterConnection(service);
  } catch (error) {
    if (cluster === 'required') throw error;
    return { none: asError(error).message };
  }
}
