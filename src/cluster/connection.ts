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
 * How a request authenticates itself and verifies the server, from client-node's KubeConfig. The agent is
 * that of a `proxy-url`.
 */
export interface Credentials
  extends Readonly<Pick<RequestOptions, 'ca' | 'cert' | 'key' | 'rejectUnauthorized' | 'servername'>> {
  /** `USER:PASSWORD`. */
  readonly auth?: string | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly agent?: Agent | undefined;
}

/** The address of an API server, and our credentials for it. */
export interface KubeConnection {
  /** May have a path, as behind a gateway that serves many clusters. */
  readonly server: URL;
  /** Whether lists are requested compressed: it costs both sides processor time, and pays off on a slow network. */
  readonly compressed?: boolean | undefined;
  /** A kubeconfig's context; absent in a pod. */
  readonly name?: string | undefined;
  /** The namespace of the context, or of the pod. */
  readonly namespace?: string | undefined;
  /** Called for each request, because tokens and certificates are rotated while the process runs. */
  readonly credentials: () => Promise<Credentials>;
  /** Called with credentials that the server rejected (401): they are then read again. */
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
  /** Refuse what it does not hold itself: files that it names, credential plugins and auth-providers. */
  readonly selfContained?: boolean;
  /** Where credential plugins run. Default: without an environment, and not interactively. */
  readonly plugins?: PluginHost;
}

/**
 * The connection that a kubeconfig describes. client-node reads the files and authenticates; this adds what kubectl does
 * and client-node does not: several files, of which the first that has an entry wins, `tokenFile`, inline data before
 * files, and a runner for credential plugins that shows what they ask.
 * @param files one, or several that are taken together, as those of KUBECONFIG are: then some may be missing
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
  // A missing file shows here. A plugin may ask a question, so it runs only when it is needed.
  if (plugin === undefined) await authentication.credentials();
  return {
    server,
    // People's own machines are often far from the cluster.
    compressed: !isLoopback(server.hostname),
    namespace: context.namespace || undefined,
    name: `context "${context.name}" of ${file}`,
    ...authentication,
  };
}

/** One context of the files. `config` has its cluster and user, and authenticates; `file` is for messages. */
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
  /** Has the fields that client-node leaves out. */
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
    // The parser's message quotes the lines around the mistake.
    throw invalid(file, 'it is not valid YAML');
  }
  if (!isRecord(document)) throw invalid(file, 'it is not a kubeconfig');
  config.makePathsAbsolute(dirname(resolve(file)));
  return { file, config, document };
}

/** An entry as client-node parses it, and as it is written. */
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
    // Without TLS there is nothing to verify, and client-node requires this to be set explicitly.
    skipTLSVerify: protocol === 'http:',
  } as Cluster;
}

const REFERENCES = [
  ...['exec', 'auth-provider', 'tokenFile'],
  ...['client-certificate', 'client-key', 'certificate-authority'],
];

/** A kubeconfig must not choose which files of this process are sent, or what it runs. */
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
    // Replaced by a runner of our own, see exec-plugin.ts.
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
 * Credentials from a KubeConfig, kept until the server rejects them. Concurrent callers share one read:
 * several watches must not each run a plugin.
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
      // Another caller may have read newer ones meanwhile.
      if (given !== undefined && identityOf(used) === identityOf(given)) config = undefined;
    },
  };
}

async function credentialsIn(config: KubeConfig): Promise<Credentials> {
  const options: RequestOptions = {};
  await config.applyToHTTPSOptions(options);
  const { ca, cert, key, agent, headers = {}, auth, servername, rejectUnauthorized } = options;
  const texts = Object.entries(headers).map(([name, value]) => [name.toLowerCase(), String(value).trim()]);
  // An agent keeps the CA and the certificate that it was created with, so ours are used wherever possible.
  const proxy = config.getCurrentCluster()?.proxyUrl && typeof agent === 'object' ? agent : undefined;
  const secrets = { ca, cert, key, auth: auth ?? undefined, headers: Object.fromEntries(texts) };
  return { ...secrets, servername, rejectUnauthorized, agent: proxy };
}

function identityOf({ headers, auth, cert }: Credentials): string {
  return JSON.stringify([headers, auth, cert?.toString()]);
}

/** The message of a file or a login server. Never that of any other error: it may quote part of a secret. */
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
