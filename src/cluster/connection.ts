import { readFile } from 'node:fs/promises';
import type { Agent } from 'node:http';
import type { RequestOptions } from 'node:https';
import { isIPv6 } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import type { Cluster, KubeConfig, User } from '@kubernetes/client-node';
import { parse } from 'yaml';
import { asError, isAbsentOr, isRecord, isString } from '../core/api/index.ts';
import { fileText } from '../core/yaml/index.ts';
import { execPlugin, type PluginHost } from './exec-plugin.ts';
import { ConnectionError } from './failure.ts';

/**
 * How a request authenticates itself and verifies the server, from client-node's KubeConfig. If there is an agent, it is for
 * a `proxy-url`.
 */
export interface Credentials
  extends Readonly<Pick<RequestOptions, 'ca' | 'cert' | 'key' | 'rejectUnauthorized' | 'servername'>> {
  /** `USER:PASSWORD`. */
  readonly auth?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly agent?: Agent | undefined;
}

/** The address of an API server, and credentials for it. */
export interface KubeConnection {
  /** May have a path, such as that of a gateway in front of many clusters. */
  readonly server: URL;
  /** Whether to request compressed lists: that takes processor time on both sides, and pays off on a slow network. */
  readonly compressed?: boolean | undefined;
  /** The name of the kubeconfig's context; absent in a pod. */
  readonly name?: string | undefined;
  /** The namespace of the context or of the pod. */
  readonly namespace?: string | undefined;
  /** Called for each request, because tokens and certificates are rotated while the process runs. */
  readonly credentials: () => Promise<Credentials>;
  /** Called with credentials that the server has rejected (401), so that they are read again. */
  readonly refused?: (used: Credentials) => void;
}

/** Where the kubelet puts a ServiceAccount's token. Source: Kubernetes, "Accessing the API from within a Pod". */
const SERVICE_ACCOUNT_DIRECTORY = '/var/run/secrets/kubernetes.io/serviceaccount';

interface InClusterOptions {
  readonly host: string | undefined;
  readonly port: string | undefined;
  readonly directory?: string;
}

/**
 * The connection of a pod to its own API server, with its ServiceAccount. The kubelet renews the token well before it
 * expires; client-node rereads its file after a minute.
 * @throws ConnectionError `NotInCluster`
 */
export async function inClusterConnection(options: InClusterOptions): Promise<KubeConnection> {
  const { host, port, directory = SERVICE_ACCOUNT_DIRECTORY } = options;
  if (!host || !port) {
    throw notInCluster('KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set');
  }
  const server = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  if (!URL.canParse(server)) throw notInCluster(`${host}:${port} is not an address`);
  const [namespace] = await Promise.all(
    ['namespace', 'token', 'ca.crt'].map((name) => mounted(directory, name)),
  );
  const cluster = { name: 'in-cluster', server, caFile: join(directory, 'ca.crt'), skipTLSVerify: false };
  const user = { name: 'in-cluster', authProvider: tokenFile(join(directory, 'token')) };
  const load = () => configOf(cluster, user);
  return { server: new URL(server), namespace, ...credentialsOf(await load(), load, notInCluster) };
}

async function mounted(directory: string, name: string): Promise<string> {
  const file = join(directory, name);
  const bytes = await readFile(file).catch((error) => {
    throw notInCluster(unreadable(file, error));
  });
  const text = fileText(bytes).trim();
  if (text === '') throw notInCluster(`${file} is empty`);
  return text;
}

function notInCluster(why: string): ConnectionError {
  const wayOut = 'run in a pod with automountServiceAccountToken, or name a kubeconfig';
  return new ConnectionError('NotInCluster', `${why}; ${wayOut}`);
}

interface KubeconfigOptions {
  /** Default: the current-context. */
  readonly context?: string | undefined;
  /** Whether to reject everything that refers outside of the kubeconfig: files, credential plugins and auth-providers. */
  readonly selfContained?: boolean;
  /** How credential plugins run. Default: without an environment, and not interactively. */
  readonly plugins?: PluginHost;
}

/**
 * The connection that a kubeconfig describes. client-node reads the files and authenticates; this adds what kubectl does and
 * client-node does not: several files, where the first with an entry wins; `tokenFile`; inline data taking precedence over
 * files; and a runner for credential plugins that shows their questions.
 * @param files one file, or several that are combined, like those of KUBECONFIG, of which some may be missing
 * @throws ConnectionError `KubeconfigUnreadable`, `KubeconfigInvalid`, `KubeconfigUnsupported`
 */
export async function readKubeconfig(
  files: string | readonly string[],
  options: KubeconfigOptions = {},
): Promise<KubeConnection> {
  const load = () => selectedIn(files, options);
  const { config, context, server, plugin, file } = await load();
  const authentication = credentialsOf(
    config,
    async () => (await load()).config,
    (why) => new ConnectionError('KubeconfigUnreadable', `${file}: ${why}`),
  );
  // Read once now, so that a missing file shows. A plugin may ask a question, so it runs only when it is needed.
  if (plugin === undefined) await authentication.credentials();
  return {
    server,
    // Compressed, because people's machines are often far from the cluster.
    compressed: !isLoopback(server.hostname),
    namespace: context.namespace || undefined,
    name: `context "${context.name}" of ${file}`,
    ...authentication,
  };
}

/** Selects one context from the files. `config` contains its cluster and user, and authenticates; `file` is for messages. */
async function selectedIn(of: string | readonly string[], options: KubeconfigOptions) {
  const mayMiss = typeof of !== 'string';
  const files = mayMiss ? of : [of];
  const read = await Promise.all(files.map((file) => readFileOf(file, mayMiss)));
  const present = read.filter((each) => each !== undefined);
  const all = files.join(', ');
  if (present.length === 0)
    throw new ConnectionError('KubeconfigUnreadable', `${all}: there is no such file`);
  const wanted = options.context ?? present.map(({ config }) => config.getCurrentContext()).find(Boolean);
  if (!wanted) throw invalid(all, 'has no current-context; set one with kubectl config use-context NAME');
  const { value: context, file } = pick(present, 'context', wanted, (config) => config.getContexts());
  // A context without a user is anonymous, as for kubectl proxy.
  const known = context.user ? pick(present, 'user', context.user, (config) => config.getUsers()) : undefined;
  const picked = pick(present, 'cluster', context.cluster, (config) => config.getClusters());
  if (options.selfContained) refuseReferences(picked, known);
  const cluster = clusterOf(picked);
  const user = known === undefined ? { name: '' } : userOf(known);

  const plugin =
    known?.value.exec && !known.value.token
      ? execPlugin(known.value.exec, known.file, options.plugins)
      : undefined;
  const server = new URL(cluster.server);
  const secret = user.token || user.authProvider || user.password || plugin;
  if (secret && server.protocol === 'http:' && !isLoopback(server.hostname)) {
    const what = 'a token over http://, where anyone on the way can read it';
    throw unsupported(file, what, 'use the https:// address');
  }
  const config = await configOf(cluster, user);
  if (plugin) config.addAuthenticator(plugin);
  return { config, context, server, plugin, file };
}

interface KubeconfigFile {
  readonly file: string;
  readonly config: KubeConfig;
  /** The raw document, with the fields that client-node drops. */
  readonly document: Record<string, unknown>;
}

async function readFileOf(file: string, mayMiss: boolean): Promise<KubeconfigFile | undefined> {
  let text: string;
  try {
    text = fileText(await readFile(file));
  } catch (error) {
    if (mayMiss && (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new ConnectionError('KubeconfigUnreadable', unreadable(`${file}:`, error));
  }
  const { KubeConfig } = await import('./client-node.ts');
  const config = new KubeConfig();
  let document: unknown;
  try {
    document = parse(text) ?? {};
    // One invalid entry must not make the others unusable.
    config.loadFromString(JSON.stringify(document), { onInvalidEntry: 'filter' });
  } catch {
    // The parser's message is not passed on, because it quotes the lines around the mistake.
    throw invalid(file, 'it is not valid YAML');
  }
  if (!isRecord(document)) throw invalid(file, 'it is not a kubeconfig');
  config.makePathsAbsolute(dirname(resolve(file)));
  return { file, config, document };
}

/** An entry as parsed by client-node, and as written. */
interface Picked<T> {
  readonly value: T;
  readonly raw: Record<string, unknown>;
  readonly file: string;
}

function pick<T extends { readonly name: string }>(
  files: readonly KubeconfigFile[],
  kind: 'context' | 'cluster' | 'user',
  wanted: string,
  entriesOf: (config: KubeConfig) => readonly T[],
): Picked<T> {
  for (const { file, config, document } of files) {
    const value = entriesOf(config).find(({ name }) => name === wanted);
    if (value === undefined) continue;
    const written = document[`${kind}s`];
    const entry = Array.isArray(written) && written.find((each) => isRecord(each) && each.name === wanted);
    return { value, raw: isRecord(entry) && isRecord(entry[kind]) ? entry[kind] : {}, file };
  }
  const known = new Set(files.flatMap(({ config }) => entriesOf(config).map(({ name }) => name)));
  const all = files.map(({ file }) => file).join(', ');
  throw invalid(all, `has no ${kind} "${wanted}"; it has: ${[...known].join(', ') || 'none'}`);
}

function clusterOf({ value, file }: Picked<Cluster>): Cluster {
  const { server, caData, caFile, skipTLSVerify } = value;
  const { protocol } = URL.canParse(server) ? new URL(server) : {};
  if (protocol !== 'https:' && protocol !== 'http:') {
    throw invalid(file, 'expected an https:// address as server');
  }
  if (skipTLSVerify) {
    const what = 'insecure-skip-tls-verify, which lets anyone be the API server';
    throw unsupported(file, what, 'give its CA as certificate-authority-data');
  }
  return {
    ...value,
    ...(caData || !caFile ? { caFile: undefined } : {}),
    // Without TLS there is nothing to verify, but client-node requires this to be set explicitly.
    skipTLSVerify: protocol === 'http:',
  } as Cluster;
}

const REFERENCES = [
  ...['exec', 'auth-provider', 'tokenFile'],
  ...['client-certificate', 'client-key', 'certificate-authority'],
];

/** Rejects references: a kubeconfig must not choose which files this process sends, or what it runs. */
function refuseReferences(...entries: readonly (Picked<unknown> | undefined)[]): void {
  for (const { raw, file } of entries.filter((each) => each !== undefined)) {
    const found = REFERENCES.find((field) => raw[field] !== undefined);
    if (found !== undefined)
      throw unsupported(file, found, 'put the token, or the certificate and the CA as -data, into it');
  }
}

const AUTH_PROVIDERS: readonly unknown[] = ['oidc', 'azure', 'gcp'];

const CERTIFICATE = ['client-certificate-data', 'client-key-data'];
const TEXTS = ['token', 'tokenFile', ...CERTIFICATE, 'username', 'password', 'as'];

function userOf({ value, raw, file }: Picked<User>): User {
  const { certData, certFile, keyData, keyFile, authProvider } = value;
  const wrong = TEXTS.find((field) => !isAbsentOr(isString, raw[field]));
  if (wrong !== undefined) throw invalid(file, `users.${value.name}.${wrong}: expected a string`);
  const missing = ['as-groups', 'as-uid', 'as-user-extra'].find((field) => raw[field] !== undefined);
  if (missing !== undefined) {
    throw unsupported(file, `impersonation with ${missing}`, 'use a user whose own groups suffice');
  }
  if (authProvider && !AUTH_PROVIDERS.includes(authProvider.name)) {
    throw unsupported(file, `the auth-provider "${authProvider.name}"`, INSTEAD);
  }
  if (Boolean(certData || certFile) !== Boolean(keyData || keyFile)) {
    throw invalid(file, 'has only one of client-certificate and client-key; it needs both');
  }
  const fromFile = raw.tokenFile;
  return {
    ...value,
    ...(certData ? { certFile: undefined } : {}),
    ...(keyData ? { keyFile: undefined } : {}),
    ...(isString(fromFile) && fromFile !== ''
      ? { token: undefined, authProvider: tokenFile(resolve(dirname(file), fromFile)) }
      : {}),
    // Replaced by Linger's own runner; see exec-plugin.ts.
    exec: undefined,
  } as User;
}

function tokenFile(path: string) {
  return { name: 'tokenFile', config: { tokenFile: path } };
}

async function configOf(cluster: Cluster, user: User): Promise<KubeConfig> {
  const { KubeConfig } = await import('./client-node.ts');
  const config = new KubeConfig();
  config.loadFromClusterAndUser(cluster, user);
  return config;
}

/**
 * Caches credentials from a KubeConfig until the server rejects them. Concurrent callers share one read, so that several
 * watches do not each run a plugin.
 */
function credentialsOf(
  first: KubeConfig,
  load: () => Promise<KubeConfig>,
  failed: (why: string) => ConnectionError,
): Required<Pick<KubeConnection, 'credentials' | 'refused'>> {
  let config: KubeConfig | undefined = first;
  let reading: Promise<Credentials> | undefined;
  let given: Credentials | undefined;
  const read = async () => {
    try {
      config ??= await load();
      given = await credentialsIn(config);
      return given;
    } catch (error) {
      throw error instanceof ConnectionError ? error : failed(reasonOf(error));
    } finally {
      reading = undefined;
    }
  };
  return {
    credentials: () => {
      reading ??= read();
      return reading;
    },
    refused: (used) => {
      // Another caller may have read newer credentials in the meantime.
      if (given !== undefined && identityOf(used) === identityOf(given)) config = undefined;
    },
  };
}

async function credentialsIn(config: KubeConfig): Promise<Credentials> {
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  const { ca, cert, key, agent, headers = {}, auth, servername, rejectUnauthorized } = options;
  const texts = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value).trim()]);
  // An agent keeps the CA and the certificate with which it was created, so Linger's own agents are used wherever possible.
  const proxy = config.getCurrentCluster()?.proxyUrl && typeof agent === 'object' ? agent : undefined;
  const secrets = { ca, cert, key, auth: auth ?? undefined, headers: Object.fromEntries(texts) };
  return { ...secrets, servername, rejectUnauthorized, agent: proxy };
}

function identityOf({ headers, auth, cert }: Credentials): string {
  return JSON.stringify([headers, auth, cert?.toString()]);
}

/**
 * The message of an error from a file or a login server. Messages of other errors are not used, because they may quote part
 * of a secret.
 */
function reasonOf(error: unknown): string {
  const { name, code, path } = asError(error) as NodeJS.ErrnoException;
  if (path !== undefined) return unreadable(path, error);
  return `no credentials can be made of it (${[name, code].filter(isString).join(' ')})`;
}

function unreadable(file: string, error: unknown): string {
  return `${file} cannot be read (${(error as NodeJS.ErrnoException).code ?? 'unknown'})`;
}

const INSTEAD =
  'use a kubeconfig with a client certificate or a ServiceAccount token (kubectl create token), or kubectl proxy and its http://127.0.0.1:8001';

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127(\.\d+){3}$/.test(host);
}

function invalid(file: string, what: string): ConnectionError {
  return new ConnectionError('KubeconfigInvalid', `${file}: ${what}`);
}

function unsupported(file: string, what: string, instead: string): ConnectionError {
  return new ConnectionError('KubeconfigUnsupported', `${file}: asks for ${what}; ${instead}`);
}
