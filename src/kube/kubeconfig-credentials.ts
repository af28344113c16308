import { readFile } from 'node:fs/promises';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import type { Credentials } from './connection.ts';
import { ConnectionError } from './connection-error.ts';
import { EXEC_API_VERSIONS, type ExecApiVersion, type ExecCluster } from './exec-credential.ts';
import { ExecPlugin, type PluginConfig, type PluginHost } from './exec-plugin.ts';
import type { KubeconfigCluster, KubeconfigExec, KubeconfigUser } from './kubeconfig-document.ts';
import type { Located } from './kubeconfig-files.ts';

/** Inline data win over a named file, as in client-go; only the token's file wins over the token. */
export class CredentialSource {
  readonly #cluster: Located<KubeconfigCluster>;
  readonly #user: Located<KubeconfigUser>;

  constructor(cluster: Located<KubeconfigCluster>, user: Located<KubeconfigUser>) {
    this.#cluster = cluster;
    this.#user = user;
  }

  /** PEM. */
  authority(): Promise<string | undefined> {
    const { value, file } = this.#cluster;
    return pem(file, value['certificate-authority-data'], value['certificate-authority']);
  }

  async read(): Promise<Credentials> {
    const { value: user, file } = this.#user;
    const [ca, certificate, key, token] = await Promise.all([
      this.authority(),
      pem(file, user['client-certificate-data'], user['client-certificate']),
      pem(file, user['client-key-data'], user['client-key']),
      user.tokenFile ? textOf(file, user.tokenFile) : user.token || undefined,
    ]);
    if ((certificate === undefined) !== (key === undefined)) {
      throw new ConnectionError(
        'KubeconfigInvalid',
        `${file}: has only one of client-certificate and client-key; it needs both`,
      );
    }
    return { ca, certificate, key, token };
  }

  /** What the kubeconfig has, with what the plugin gives; a token of the kubeconfig's own wins, as in client-go. */
  async readWith(plugin: ExecPlugin): Promise<Credentials> {
    const own = await this.read();
    if (own.token !== undefined) return own;
    const { token, certificate, key } = await plugin.status();
    return certificate === undefined ? { ...own, token } : { ...own, token, certificate, key };
  }
}

/** Source: k8s.io/api client.authentication.k8s.io (Cluster.Config). */
const EXTENSION = 'client.authentication.k8s.io/exec';

/**
 * The plugin that a kubeconfig's user names.
 * @throws ConnectionError `KubeconfigInvalid`, `KubeconfigUnsupported`
 */
export function pluginOf(
  exec: KubeconfigExec,
  file: string,
  cluster: () => Promise<ExecCluster>,
  host: PluginHost,
): ExecPlugin {
  const { command, args, env, installHint, provideClusterInfo } = exec;
  if (!command) throw new ConnectionError('KubeconfigInvalid', `${file}: expected exec.command`);
  const config: PluginConfig = {
    file,
    command: located(file, command),
    args: args ?? [],
    env: env ?? [],
    installHint: installHint || undefined,
    ...modeOf(file, exec),
    cluster: async () => (provideClusterInfo === true ? cluster() : undefined),
  };
  return new ExecPlugin(config, host);
}

/** What a plugin that asks for it is told of its cluster. */
export async function execCluster(
  { value: cluster }: Located<KubeconfigCluster>,
  source: CredentialSource,
): Promise<ExecCluster> {
  const ca = await source.authority();
  return {
    server: cluster.server ?? '',
    'tls-server-name': cluster['tls-server-name'] || undefined,
    'insecure-skip-tls-verify': cluster['insecure-skip-tls-verify'] || undefined,
    'certificate-authority-data': ca === undefined ? undefined : Buffer.from(ca).toString('base64'),
    config: cluster.extensions?.find(({ name }) => name === EXTENSION)?.extension ?? undefined,
  };
}

const MODES = ['Never', 'IfAvailable', 'Always'] as const;

function modeOf(
  file: string,
  { apiVersion, interactiveMode }: KubeconfigExec,
): Pick<PluginConfig, 'apiVersion' | 'interactiveMode'> {
  const version = EXEC_API_VERSIONS.find((each) => each === apiVersion);
  if (version === undefined) {
    throw new ConnectionError(
      'KubeconfigUnsupported',
      `${file}: expected exec.apiVersion ${EXEC_API_VERSIONS.join(' or ')}, got ${apiVersion ?? 'none'}; update the plugin and its kubeconfig`,
    );
  }
  // v1beta1 had no such field at first, and is read as if it said so.
  const written = interactiveMode || (isBeta(version) ? 'IfAvailable' : undefined);
  const mode = MODES.find((each) => each === written);
  if (mode !== undefined) return { apiVersion: version, interactiveMode: mode };
  throw new ConnectionError(
    'KubeconfigInvalid',
    `${file}: expected exec.interactiveMode ${MODES.join(', ')}, got ${written ?? 'none'}`,
  );
}

function isBeta(version: ExecApiVersion): boolean {
  return version.endsWith('/v1beta1');
}

/** With a separator in it, it counts from the kubeconfig's folder; without, PATH is searched. */
function located(file: string, command: string): string {
  if (isAbsolute(command) || !/[\\/]/.test(command)) return command;
  return join(dirname(resolve(file)), command);
}

async function pem(
  kubeconfig: string,
  data: string | undefined,
  file: string | undefined,
): Promise<string | undefined> {
  if (data) return Buffer.from(data, 'base64').toString('utf8');
  return file ? textOf(kubeconfig, file) : undefined;
}

async function textOf(kubeconfig: string, name: string): Promise<string> {
  const file = resolve(dirname(kubeconfig), name);
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    const { code = 'unknown' } = error as NodeJS.ErrnoException;
    throw new ConnectionError('KubeconfigUnreadable', `${kubeconfig}: ${file}: cannot be read (${code})`);
  }
}
