import { readFile } from 'node:fs/promises';
import type { Agent } from 'node:http';
import type { RequestOptions } from 'node:https';
import { isIPv6 } from 'node:net';
import { dirname, join, resolve } from 'node:path';
import type { Cluster, Context, KubeConfig, User } from '@kubernetes/client-node';
import { parse } from 'yaml';
import { asError, isAbsentOr, isRecord, isString } from '../api/index.ts';
import { ExecPlugin, type PluginHost } from './exec-plugin.ts';
import { ConnectionError } from './failure.ts';

/** What a request carries to say who sends it, and what it accepts as the server: of client-node's KubeConfig. */
export interface Credentials {
  /** PEM. Absent: the authorities that the machine trusts. */
  readonly ca?: string | Buffer | undefined;
  readonly cert?: string | Buffer | undefined;
  readonly key?: string | Buffer | undefined;
  /** `USER:PASSWORD`. */
  readonly auth?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** The name in the server's certificate, where it is not the host of its address. */
  readonly servername?: string | undefined;
  readonly rejectUnauthorized?: boolean | undefined;
  /** Makes the connections to a cluster behind a `proxy-url`. */
  readonly agent?: Agent | undefined;
}

/** Where an API server is, and who we are to it. */
export interface KubeConnection {
  /** May have a path, as behind a gateway of many clusters. */
  readonly server: URL;
  /** Whether lists are requested compressed: it costs both sides processor time, and pays off on a slow network. */
  readonly compressed?: boolean | undefined;
  /** A kubeconfig's context; absent in a pod. */
  readonly name?: string | undefined;
  /** The namespace of the context, or of the pod. */
  readonly namespace?: string | undefined;
  /** Called for each request, because tokens and certificates are renewed while the process runs. */
  readonly credentials: () => Promise<Credentials>;
  /** Called with credentials that the server did not accept (401): the next ones are read anew. */
  readonly refused?: (used: Credentials) => void;
}

/** Where the kubelet puts a ServiceAccount's token. Source: Kubernetes, "Accessing the API from within a Pod". */
const SERVICE_ACCOUNT_DIRECTORY = '/var/run/secrets/kubernetes.io/serviceaccount';

export interface InClusterOptions {
  /** KUBERNETES_SERVICE_HOST. */
  readonly host: string | undefined;
  /** KUBERNETES_SERVICE_PORT. */
  readonly port: string | undefined;
  /** Default: {@link SERVICE_ACCOUNT_DIRECTORY}. */
  readonly directory?: string;
}

/**
 * The connection of a pod to its API server, by its ServiceAccount. The kubelet renews the token well before it
 * expires; client-node reads its file again after a minute.
 * @throws ConnectionError `NotInCluster`
 */
export async function inClusterConnection(options: InClusterOptions): Promise<KubeConnection> {
  const { host, port, directory = SERVICE_ACCOUNT_DIRECTORY } = options;
  if (!host || !port) {
    throw notInCluster('KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not both set');
  }
  const server = `https://${isIPv6(host) ? `[${host}]` : host}:${port}`;
  if (!URL.canParse(server)) throw notInCluster(`${host}:${port} is no address`);
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
  let text: string;
  try {
    text = (await readFile(file, 'utf8')).trim();
  } catch (error) {
    throw notInCluster(unreadable(file, error));
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

export interface KubeconfigOptions {
  /** Default: the current-context. */
  readonly context?: string | undefined;
  /** Whether files that are missing are passed over, as those of KUBECONFIG are. Default: false. */
  readonly mayMiss?: boolean;
  /** Where credential plugins run. Default: without an environment, and not interactively. */
  readonly plugins?: PluginHost;
}

/**
 * The connection that a kubeconfig describes. client-node reads the files and authenticates; this adds what kubectl does
 * and client-node does not: several files, of which the first that has an entry wins, `tokenFile`, inline data before
 * files, KUBERNETES_EXEC_INFO for plugins.
 * @param files one, or several that are taken together
 * @throws ConnectionError `KubeconfigUnreadable`, `KubeconfigInvalid`, `KubeconfigUnsupported`
 */
export async function readKubeconfig(
  files: string | readonly string[],
  options: KubeconfigOptions = {},
): Promise<KubeConnection> {
  const all = typeof files === 'string' ? [files] : files;
  const selected = await select(all, options);
  const { cluster, context, file } = selected;
  const server = new URL(cluster.server);
  const { credentials, refused } = credentialsOf(
    await authenticated(selected, options),
    async () => authenticated(await select(all, options), options),
    (why) => new ConnectionError('KubeconfigUnreadable', `${file}: ${why}`),
  );
  // A file that is missing shows here; a plugin may ask a question, so it runs when it is needed.
  if (selected.exec === undefined) await credentials();
  return {
    server,
    // Of the machines that people work at, many are far from their clusters.
    compressed: !isLoopback(server.hostname),
    namespace: context.namespace || undefined,
    name: `context "${context.name}" of ${file}`,
    credentials,
    refused,
  };
}

/** One context with its cluster and user, each with what client-node does not read of it. */
interface Selected {
  readonly context: Context;
  readonly cluster: Cluster;
  readonly user: User;
  /** The user's exec plugin, and the cluster's extension for it. */
  readonly exec: unknown;
  readonly execConfig: unknown;
  /** Of the context, for messages. */
  readonly file: string;
}

interface KubeconfigFile {
  readonly file: string;
  readonly config: KubeConfig;
  /** The document itself, for the fields that client-node leaves out. */
  readonly document: Record<string, unknown>;
}

async function select(files: readonly string[], options: KubeconfigOptions): Promise<Selected> {
  const read = await Promise.all(files.map((file) => readFileOf(file, options.mayMiss === true)));
  const present = read.filter((each) => each !== undefined);
  const all = files.join(', ');
  if (present.length === 0)
    throw new ConnectionError('KubeconfigUnreadable', `${all}: there is no such file`);
  const wanted = options.context ?? present.map(({ config }) => config.getCurrentContext()).find(Boolean);
  if (!wanted) {
    throw invalid(all, 'has no current-context; set one with kubectl config use-context NAME');
  }
  const { value: context, file } = pick(all, 'context', wanted, present, (config) => config.getContexts());
  const cluster = pick(all, 'cluster', context.cluster, present, (config) => config.getClusters());
  // A context without a user is anonymous, as for kubectl proxy.
  const user = context.user
    ? pick(all, 'user', context.user, present, (config) => config.getUsers())
    : { value: { name: '' }, raw: {}, file };
  const extensions = Array.isArray(cluster.raw.extensions) ? cluster.raw.extensions.filter(isRecord) : [];
  return {
    context,
    cluster: clusterOf(cluster),
    user: userOf(user),
    exec: isString(user.value.token) && user.value.token !== '' ? undefined : (user.value.exec ?? undefined),
    execConfig: extensions.find(({ name }) => name === EXEC_EXTENSION)?.extension,
    file,
  };
}

/** Source: k8s.io/api client.authentication.k8s.io (Cluster.Config). */
const EXEC_EXTENSION = 'client.authentication.k8s.io/exec';

async function readFileOf(file: string, mayMiss: boolean): Promise<KubeconfigFile | undefined> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (error) {
    if (mayMiss && (error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw new ConnectionError('KubeconfigUnreadable', unreadable(`${file}:`, error));
  }
  const { KubeConfig } = await import('./client-node.ts');
  const config = new KubeConfig();
  let document: unknown;
  try {
    document = parse(text) ?? {};
    // One broken entry must not take the others along.
    config.loadFromString(JSON.stringify(document), { onInvalidEntry: 'filter' });
  } catch {
    // The parser's message quotes the lines around the mistake.
    throw invalid(file, 'it is not valid YAML');
  }
  if (!isRecord(document)) throw invalid(file, 'it is not a kubeconfig');
  config.makePathsAbsolute(dirname(resolve(file)));
  return { file, config, document };
}

interface Picked<T> {
  readonly value: T;
  readonly raw: Record<string, unknown>;
  readonly file: string;
}

function pick<T extends { readonly name: string }>(
  all: string,
  kind: 'context' | 'cluster' | 'user',
  name: string,
  files: readonly KubeconfigFile[],
  entriesOf: (config: KubeConfig) => readonly T[],
): Picked<T> {
  for (const { file, config, document } of files) {
    const value = entriesOf(config).find((entry) => entry.name === name);
    if (value === undefined) continue;
    const entries = document[`${kind}s`];
    const entry = Array.isArray(entries) ? entries.find((each) => isRecord(each) && each.name === name) : {};
    return { value, raw: isRecord(entry) && isRecord(entry[kind]) ? entry[kind] : {}, file };
  }
  const known = [...new Set(files.flatMap(({ config }) => entriesOf(config).map((entry) => entry.name)))];
  throw invalid(all, `has no ${kind} "${name}"; it has: ${known.join(', ') || 'none'}`);
}

function clusterOf({ value, file }: Picked<Cluster>): Cluster {
  const { server, caData, caFile, skipTLSVerify } = value;
  const url = URL.canParse(server) ? new URL(server) : undefined;
  if (url === undefined || (url.protocol !== 'https:' && url.protocol !== 'http:')) {
    throw invalid(file, 'expected an https:// address as server');
  }
  if (skipTLSVerify) {
    throw unsupported(
      file,
      'insecure-skip-tls-verify, which lets anyone be the API server',
      'give its CA as certificate-authority-data',
    );
  }
  return {
    ...value,
    ...(caData || !caFile ? { caFile: undefined } : {}),
    // Without TLS there is nothing to verify, and client-node wants that said.
    skipTLSVerify: url.protocol === 'http:',
  } as Cluster;
}

/** The auth-providers that client-node implements. */
const AUTH_PROVIDERS: readonly unknown[] = ['oidc', 'azure', 'gcp'];

const TEXTS = [
  'token',
  'tokenFile',
  'client-certificate-data',
  'client-key-data',
  'username',
  'password',
  'as',
];

function userOf({ value, raw, file }: Picked<User>): User {
  const { certData, certFile, keyData, keyFile, authProvider } = value;
  const wrong = TEXTS.find((field) => !isAbsentOr(isString, raw[field]));
  if (wrong !== undefined) throw invalid(file, `users.${value.name}.${wrong}: expected a text`);
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
    // Its place is taken by a plugin runner that does what kubectl does, see exec-plugin.ts.
    exec: undefined,
  } as User;
}

/** How client-node is told to read a token from a file. */
function tokenFile(path: string) {
  return { name: 'tokenFile', config: { tokenFile: path } };
}

async function authenticated(selected: Selected, { plugins }: KubeconfigOptions): Promise<KubeConfig> {
  const { cluster, user, exec, execConfig, file } = selected;
  const plugin =
    exec === undefined ? undefined : new ExecPlugin(exec, { file, cluster, config: execConfig }, plugins);
  const secret = user.token || user.authProvider || user.password || plugin;
  const server = new URL(cluster.server);
  if (secret && server.protocol === 'http:' && !isLoopback(server.hostname)) {
    throw unsupported(
      file,
      'a token over http://, where anyone on the way can read it',
      'use the https:// address',
    );
  }
  const config = await configOf(cluster, user);
  if (plugin !== undefined) config.addAuthenticator(plugin);
  return config;
}

async function configOf(cluster: Cluster, user: User): Promise<KubeConfig> {
  const { KubeConfig } = await import('./client-node.ts');
  const config = new KubeConfig();
  config.loadFromClusterAndUser(cluster, user);
  return config;
}

/**
 * Credentials from a KubeConfig that is kept until the server refuses them. One reading serves all who ask at the same
 * time: several watches must not each run a plugin.
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
    }
  };
  return {
    credentials: () => {
      reading ??= read().finally(() => {
        reading = undefined;
      });
      return reading;
    },
    refused: (used) => {
      // Newer ones may have been read since.
      if (given !== undefined && identityOf(used) === identityOf(given)) config = undefined;
    },
  };
}

async function credentialsIn(config: KubeConfig): Promise<Credentials> {
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  const { agent, headers = {}, auth, servername, rejectUnauthorized } = options;
  const { ca, cert, key } = options as Pick<Credentials, 'ca' | 'cert' | 'key'>;
  const texts = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value).trim()]);
  return {
    ca,
    cert,
    key,
    auth: auth ?? undefined,
    headers: Object.fromEntries(texts),
    servername,
    rejectUnauthorized,
    // An agent keeps the CA and the certificate that it was made with, so ours are used wherever they can be.
    agent: config.getCurrentCluster()?.proxyUrl && typeof agent === 'object' ? agent : undefined,
  };
}

function identityOf({ headers, auth, cert }: Credentials): string {
  return JSON.stringify([headers, auth, cert?.toString()]);
}

/** What a file or a login server said. Not the message of any other error: it may quote a part of a secret. */
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
