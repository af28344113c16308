import type { KubeConnection } from './connection.ts';
import { ConnectionError } from './connection-error.ts';
import type { PluginHost } from './exec-plugin.ts';
import { CredentialSource, execCluster, pluginOf } from './kubeconfig-credentials.ts';
import type { KubeconfigCluster } from './kubeconfig-document.ts';
import { type Located, type SelectedContext, selectContext } from './kubeconfig-files.ts';

export interface KubeconfigOptions {
  /** Default: the current-context. */
  readonly context?: string | undefined;
  /** Whether `insecure-skip-tls-verify` may be followed. Default: it is refused. */
  readonly allowInsecure?: boolean;
  /** Whether files that are not there are passed over, as those of KUBECONFIG are. Default: false. */
  readonly mayMiss?: boolean;
  /** How to run the program that a kubeconfig gets its credentials from. Default: it is refused. */
  readonly plugins?: PluginHost | undefined;
}

/**
 * The connection that a kubeconfig describes: client certificates, tokens and token files, CAs, inline or as files, and
 * exec plugins; relative names count from the kubeconfig's folder. What is read of files is read again for each new
 * connection.
 * @param files one, or several that are taken together: the first that has an entry wins
 * @throws ConnectionError `KubeconfigUnreadable`, `KubeconfigInvalid`, `KubeconfigUnsupported`
 */
export async function readKubeconfig(
  files: string | readonly string[],
  options: KubeconfigOptions = {},
): Promise<KubeConnection> {
  const all = typeof files === 'string' ? [files] : files;
  const selected = await selectContext(all, options.context, options.mayMiss);
  const { cluster, user, namespace } = selected;
  refuseUnsupported(selected, options.plugins);
  const insecure = cluster.value['insecure-skip-tls-verify'] === true;
  if (insecure && options.allowInsecure !== true) {
    throw unsupported(
      cluster.file,
      'insecure-skip-tls-verify, which lets anyone be the API server',
      'give its CA as certificate-authority-data',
    );
  }
  const server = serverOf(cluster);
  const source = new CredentialSource(cluster, user);
  const { exec } = user.value;
  const plugin =
    exec && options.plugins
      ? pluginOf(exec, user.file, () => execCluster(cluster, source), options.plugins)
      : undefined;
  // Whatever is wrong with the files shows here; the plugin may ask somebody, so it runs when it is needed.
  const { token } = await source.read();
  const secret = token !== undefined || plugin !== undefined;
  if (secret && server.protocol === 'http:' && !isLoopback(server.hostname)) {
    throw unsupported(
      cluster.file,
      'a token over http://, where anyone on the way can read it',
      'use the https:// address',
    );
  }
  return {
    server,
    serverName: cluster.value['tls-server-name'],
    insecure,
    // Of the machines that people sit at, many are far from their clusters.
    compressed: !isLoopback(server.hostname),
    namespace,
    name: `context "${selected.name}" of ${selected.file}`,
    credentials: () => (plugin === undefined ? source.read() : source.readWith(plugin)),
    ...(plugin === undefined ? {} : { refused: (used) => plugin.refuse(used) }),
  };
}

function serverOf({ file, value: { server } }: Located<KubeconfigCluster>): URL {
  const url = server !== undefined && URL.canParse(server) ? new URL(server) : undefined;
  if (url !== undefined && (url.protocol === 'https:' || url.protocol === 'http:')) return url;
  throw new ConnectionError('KubeconfigInvalid', `${file}: expected an https:// address as server`);
}

const INSTEAD =
  'use a kubeconfig with a client certificate or a ServiceAccount token (kubectl create token), or kubectl proxy and its http://127.0.0.1:8001';

function refuseUnsupported({ cluster, user }: SelectedContext, plugins: PluginHost | undefined): void {
  const { exec, 'auth-provider': provider, username, as } = user.value;
  if (exec && plugins === undefined) {
    throw unsupported(user.file, `the exec plugin "${exec.command ?? ''}"`, INSTEAD);
  }
  if (provider) throw unsupported(user.file, `the auth-provider "${provider.name ?? ''}"`, INSTEAD);
  if (isSet(username)) {
    throw unsupported(user.file, 'a user name and password, which Kubernetes dropped in 1.19', INSTEAD);
  }
  if (isSet(as)) throw unsupported(user.file, 'impersonation (as)', INSTEAD);
  if (isSet(cluster.value['proxy-url'])) {
    throw unsupported(cluster.file, 'a proxy-url', 'use an address that can be reached without one');
  }
}

function isSet(value: unknown): boolean {
  return value !== undefined && value !== null && value !== '';
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127(\.\d+){3}$/.test(host);
}

function unsupported(file: string, what: string, instead: string): ConnectionError {
  return new ConnectionError('KubeconfigUnsupported', `${file}: asks for ${what}; ${instead}`);
}
