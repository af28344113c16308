import { existsSync } from 'node:fs';
import {
  asFailure,
  callApi,
  type FailureReason,
  inClusterConnection,
  type KubeConnection,
  type KubeFailure,
  readKubeconfig,
} from '../cluster/index.ts';
import { asError, LingerError } from '../core/api/index.ts';
import type { Settings } from './commands.ts';
import { type KubeEnvironment, usageError } from './flags.ts';
import type { Surroundings } from './terminal.ts';

/**
 * A server's connection to its cluster, or why there is none.
 * @throws ConnectionError for a kubeconfig that cannot be used; with `required`, also if there are no credentials
 * @throws LingerError `settings-invalid`
 */
export async function connect(
  { cluster, kubeconfig, context }: Settings<'serve'>,
  { service, variables }: KubeEnvironment,
): Promise<KubeConnection | { readonly none: string }> {
  // A server runs unattended, even if it was started from a terminal.
  const plugins = { environment: variables, interactive: false };
  if (kubeconfig !== undefined) return readKubeconfig(kubeconfig, { context, plugins });
  if (context !== undefined) throw usageError('--context: expected a --kubeconfig that has it, got none');
  try {
    return await inClusterConnection(service);
  } catch (error) {
    if (cluster === 'required') throw error;
    return { none: asError(error).message };
  }
}

export type ClusterSettings = Pick<Settings<'consumers'>, 'kubeconfig' | 'context'>;

/**
 * The cluster that kubectl would use here: that of --kubeconfig, or else of KUBECONFIG's files, of ~/.kube/config, or the
 * one in which this pod runs. Credentials are obtained at once; if a plugin provides none, its own message is the error.
 * @throws ConnectionError
 */
export async function connectAsKubectl(
  settings: ClusterSettings,
  surroundings: Pick<Surroundings, 'kube' | 'interactive'>,
): Promise<KubeConnection> {
  const connection = await asKubectl(settings, surroundings);
  await connection.credentials();
  return connection;
}

/**
 * The cluster, and the namespace in which Linger runs there: the one to which its webhook leads, unless the settings name
 * one.
 * @throws ConnectionError
 */
export async function connectToLinger(
  settings: ClusterSettings & Pick<Settings<'consumers'>, 'lingerNamespace'>,
  surroundings: Pick<Surroundings, 'kube' | 'interactive' | 'progress'>,
  name = 'linger',
): Promise<{ readonly connection: KubeConnection; readonly lingerNamespace: string }> {
  const connection = await connectAsKubectl(settings, surroundings);
  // Shown only now, because a plugin may have asked for a password.
  surroundings.progress('asking the cluster');
  const { lingerNamespace } = settings;
  if (lingerNamespace !== undefined) return { connection, lingerNamespace };
  const call = { signal: AbortSignal.timeout(5_000), withinMs: 5_000 };
  // If this request fails, the next one reports why.
  const configuration = await callApi(connection, 'AdmissionregistrationV1Api', call, (api) =>
    api.readMutatingWebhookConfiguration({ name }),
  ).catch(() => undefined);
  const service = configuration?.webhooks?.[0]?.clientConfig.service;
  return { connection, lingerNamespace: service?.namespace ?? 'linger' };
}

async function asKubectl(
  { kubeconfig, context }: ClusterSettings,
  { kube, interactive }: Pick<Surroundings, 'kube' | 'interactive'>,
): Promise<KubeConnection> {
  if (kube.connection !== undefined) return kube.connection;
  const { kubeconfigs, homeKubeconfig, service, variables } = kube;
  const options = { context, plugins: { environment: variables, interactive } };
  if (kubeconfig !== undefined) return readKubeconfig(kubeconfig, options);
  if (kubeconfigs.length > 0) return readKubeconfig(kubeconfigs, options);
  const inPod = service.host !== undefined && context === undefined;
  if (homeKubeconfig !== undefined && (existsSync(homeKubeconfig) || !inPod))
    return readKubeconfig(homeKubeconfig, options);
  return inClusterConnection(service);
}

/** `https://10.0.0.1:6443 (context "dev" of /home/me/.kube/config)` */
export function nameOf({ server, name }: KubeConnection): string {
  const address = server.href.replace(/\/$/, '');
  return name === undefined ? address : `${address} (${name})`;
}

/** Whether the credentials were rejected, as opposed to the server being unreachable. */
export function isDenied(reason: FailureReason): boolean {
  return reason === 'Unauthorized' || reason === 'Forbidden';
}

/**
 * A request that a user waits for; a failure becomes an error that says what to do.
 * @throws LingerError `cluster-unreachable`, `cluster-denied`
 */
export async function asked<T>(connection: KubeConnection, request: Promise<T>): Promise<T> {
  try {
    return await request;
  } catch (thrown) {
    throw explained(asFailure(thrown), connection);
  }
}

export function explained({ reason, message }: KubeFailure, connection: KubeConnection): LingerError {
  return isDenied(reason)
    ? new LingerError('cluster-denied', `${nameOf(connection)}: ${message}`)
    : new LingerError('cluster-unreachable', `${nameOf(connection)} request failed: ${message}`);
}
