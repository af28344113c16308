import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { asError } from '../core/catalog/errors.ts';
import type { Credentials, KubeConnection } from './connection.ts';
import { ConnectionError } from './connection-error.ts';
import {
  type KubeconfigCluster,
  type KubeconfigContext,
  type KubeconfigUser,
  parseKubeconfig,
} from './kubeconfig-document.ts';

export interface KubeconfigOptions {
  /** Default: the file's current-context. */
  readonly context?: string | undefined;
  /** Whether `insecure-skip-tls-verify` may be followed. Default: it is refused. */
  readonly allowInsecure?: boolean;
}

/**
 * The connection that a kubeconfig describes: client certificates, tokens and token files, CAs, inline or as files;
 * relative names count from the kubeconfig's folder. What is read of files is read again for each new connection.
 * @throws ConnectionError `KubeconfigUnreadable`, `KubeconfigInvalid`, `KubeconfigUnsupported`
 */
export async function readKubeconfig(file: string, options: KubeconfigOptions = {}): Promise<KubeConnection> {
  const { cluster, user, namespace } = await selected(file, options.context);
  refuseUnsupported(file, cluster, user);
  const insecure = cluster['insecure-skip-tls-verify'] === true;
  if (insecure && options.allowInsecure !== true) {
    throw unsupported(
      file,
      'insecure-skip-tls-verify, which lets anyone be the API server',
      'give its CA as certificate-authority-data',
    );
  }
  const server = serverOf(file, cluster);
  const source = new CredentialSource(file, cluster, user);
  const credentials = () => source.read();
  const { token } = await credentials();
  if (token !== undefined && server.protocol === 'http:' && !isLoopback(server.hostname)) {
    throw unsupported(
      file,
      'a token over http://, where anyone on the way can read it',
      'use the https:// address',
    );
  }
  return { server, serverName: cluster['tls-server-name'], insecure, namespace, credentials };
}

interface Selected {
  readonly cluster: KubeconfigCluster;
  readonly user: KubeconfigUser;
  readonly namespace: string | undefined;
}

async function selected(file: string, wanted: string | undefined): Promise<Selected> {
  const source = await textOf(file, file);
  let document: ReturnType<typeof parseKubeconfig>;
  try {
    document = parseKubeconfig(source);
  } catch (error) {
    throw new ConnectionError('KubeconfigInvalid', `${file}: ${asError(error).message}`);
  }
  const { currentContext, contexts, clusters, users } = document;
  const name = wanted ?? currentContext;
  if (name === undefined) {
    throw new ConnectionError(
      'KubeconfigInvalid',
      `${file}: has no current-context; set one with kubectl config use-context NAME`,
    );
  }
  const context = pick<KubeconfigContext>(file, 'context', name, contexts);
  return {
    cluster: pick(file, 'cluster', context.cluster, clusters),
    // A context without a user is anonymous, as for kubectl proxy.
    user: context.user ? pick<KubeconfigUser>(file, 'user', context.user, users) : {},
    namespace: context.namespace || undefined,
  };
}

function pick<T>(
  file: string,
  kind: string,
  name: string,
  from: ReadonlyMap<string, T | null | undefined>,
): T {
  const found = from.get(name);
  if (found !== undefined && found !== null) return found;
  const known = [...from.keys()].join(', ') || 'none';
  throw new ConnectionError('KubeconfigInvalid', `${file}: has no ${kind} "${name}"; there are: ${known}`);
}

function serverOf(file: string, { server }: KubeconfigCluster): URL {
  const url = server !== undefined && URL.canParse(server) ? new URL(server) : undefined;
  if (url !== undefined && (url.protocol === 'https:' || url.protocol === 'http:')) return url;
  throw new ConnectionError('KubeconfigInvalid', `${file}: expected an https:// address as server`);
}

/** Short-lived credentials of plugins would need their programs, which an image of Linger does not have. */
const INSTEAD =
  'use a kubeconfig with a client certificate or a ServiceAccount token (kubectl create token), or kubectl proxy and its http://127.0.0.1:8001';

function refuseUnsupported(file: string, cluster: KubeconfigCluster, user: KubeconfigUser): void {
  const { exec } = user;
  if (exec !== undefined) throw unsupported(file, `the exec plugin "${exec.command ?? ''}"`, INSTEAD);
  const provider = user['auth-provider'];
  if (provider !== undefined) throw unsupported(file, `the auth-provider "${provider.name ?? ''}"`, INSTEAD);
  if (isSet(user.username)) {
    throw unsupported(file, 'a user name and password, which Kubernetes dropped in 1.19', INSTEAD);
  }
  if (isSet(user.as)) throw unsupported(file, 'impersonation (as)', INSTEAD);
  if (isSet(cluster['proxy-url'])) {
    throw unsupported(file, 'a proxy-url', 'use an address that can be reached without one');
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

/** Inline data win over a named file, as in client-go; only the token's file wins over the token. */
class CredentialSource {
  readonly #file: string;
  readonly #cluster: KubeconfigCluster;
  readonly #user: KubeconfigUser;

  constructor(file: string, cluster: KubeconfigCluster, user: KubeconfigUser) {
    this.#file = file;
    this.#cluster = cluster;
    this.#user = user;
  }

  async read(): Promise<Credentials> {
    const cluster = this.#cluster;
    const user = this.#user;
    const [ca, certificate, key, token] = await Promise.all([
      this.#pem(cluster['certificate-authority-data'], cluster['certificate-authority']),
      this.#pem(user['client-certificate-data'], user['client-certificate']),
      this.#pem(user['client-key-data'], user['client-key']),
      user.tokenFile ? this.#named(user.tokenFile) : user.token || undefined,
    ]);
    if ((certificate === undefined) !== (key === undefined)) {
      throw new ConnectionError(
        'KubeconfigInvalid',
        `${this.#file}: has only one of client-certificate and client-key; it needs both`,
      );
    }
    return { ca, certificate, key, token };
  }

  async #pem(data: string | undefined, file: string | undefined): Promise<string | undefined> {
    if (data) return Buffer.from(data, 'base64').toString('utf8');
    return file ? this.#named(file) : undefined;
  }

  async #named(file: string): Promise<string> {
    return (await textOf(this.#file, resolve(dirname(this.#file), file))).trim();
  }
}

async function textOf(kubeconfig: string, file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const why = (error as NodeJS.ErrnoException).code ?? 'unknown';
    const named = file === kubeconfig ? file : `${kubeconfig}: ${file}`;
    throw new ConnectionError('KubeconfigUnreadable', `${named}: cannot be read (${why})`);
  }
}
