import { readFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { join } from 'node:path';
import type { Credentials, KubeConnection } from './connection.ts';
import { ConnectionError } from './connection-error.ts';

/** Where the kubelet puts a ServiceAccount's token. Source: Kubernetes, "Accessing the API from within a Pod". */
export const SERVICE_ACCOUNT_DIRECTORY = '/var/run/secrets/kubernetes.io/serviceaccount';

export interface InClusterOptions {
  /** KUBERNETES_SERVICE_HOST. */
  readonly host: string | undefined;
  /** KUBERNETES_SERVICE_PORT. */
  readonly port: string | undefined;
  /** Default: {@link SERVICE_ACCOUNT_DIRECTORY}. */
  readonly directory?: string;
}

/**
 * The connection of a pod to its API server, by its ServiceAccount.
 * @throws ConnectionError `NotInCluster`
 */
export async function inClusterConnection(options: InClusterOptions): Promise<KubeConnection> {
  const { host, port, directory = SERVICE_ACCOUNT_DIRECTORY } = options;
  if (!host || !port) {
    throw notInCluster('KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set');
  }
  const address = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  if (!URL.canParse(address)) throw notInCluster(`${host}:${port} is no address`);
  const credentials = () => serviceAccount(directory);
  await credentials();
  return { server: new URL(address), namespace: await textOf(directory, 'namespace'), credentials };
}

async function serviceAccount(directory: string): Promise<Credentials> {
  const [ca, token] = await Promise.all([textOf(directory, 'ca.crt'), textOf(directory, 'token')]);
  return { ca, token };
}

async function textOf(directory: string, name: string): Promise<string> {
  const file = join(directory, name);
  let text: string;
  try {
    text = (await readFile(file, 'utf8')).trim();
  } catch (error) {
    throw notInCluster(`${file} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`);
  }
  if (text === '') throw notInCluster(`${file} is empty`);
  return text;
}

function notInCluster(why: string): ConnectionError {
  return new ConnectionError(
    'NotInCluster',
    `${why}; run in a pod with automountServiceAccountToken, or name a kubeconfig`,
  );
}
