import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import type { Cluster, KubeConfig } from '@kubernetes/client-node';
import { z } from 'zod';
import { asError, isAbsentOr, isRecord, isString, jsonIn } from '../api/index.ts';
import { fileText } from '../yaml/index.ts';
import { ConnectionError } from './failure.ts';

type Authenticator = Parameters<KubeConfig['addAuthenticator']>[0];

export interface PluginHost {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Whether standard input is a terminal, at which a person can answer a question. */
  readonly interactive: boolean;
  readonly now?: () => number;
  /** How long one run may take. Default: {@link UNATTENDED_MS} or {@link ATTENDED_MS}. */
  readonly timeoutMs?: number;
}

/** Source: k8s.io/client-go plugin/pkg/client/auth/exec; v1alpha1 went with Kubernetes 1.24. */
const API_VERSIONS = ['client.authentication.k8s.io/v1', 'client.authentication.k8s.io/v1beta1'] as const;

const MODES = ['Never', 'IfAvailable', 'Always'] as const;

/** client-go waits for ever. The cloud providers' plugins answer within seconds, and one that hangs must not block the caller. */
const UNATTENDED_MS = 60_000;

/** A login in a browser: device codes are good for 10 to 15 minutes. */
const ATTENDED_MS = 900_000;

/** An ExecCredential with a certificate chain is some 10 KB. */
const LONGEST_OUTPUT = 1024 * 1024;

/** Source: k8s.io/client-go tools/clientcmd/api/v1 (ExecConfig). Other fields are ignored. */
const execSchema = z.looseObject({
  apiVersion: z.string().nullish(),
  command: z.string().nullish(),
  args: z.array(z.string()).nullish(),
  env: z.array(z.looseObject({ name: z.string(), value: z.string() })).nullish(),
  installHint: z.string().nullish(),
  provideClusterInfo: z.boolean().nullish(),
  interactiveMode: z.string().nullish(),
});

/** The cluster that credentials are for. */
interface PluginCluster {
  /** The kubeconfig that names the plugin. */
  readonly file: string;
  readonly cluster: Cluster;
  /** What the kubeconfig holds for the plugin: the cluster's extension client.authentication.k8s.io/exec. */
  readonly config: unknown;
}

/**
 * Runs a credential plugin as client-go does, whose rules plugins are written for: client-node's own runner gives it no
 * KUBERNETES_EXEC_INFO and no terminal, and waits for ever. Credentials are kept until they expire.
 * @throws ConnectionError `KubeconfigInvalid`, `KubeconfigUnsupported`; `PluginFailed` when it authenticates
 */
export function execPlugin(
  exec: unknown,
  of: PluginCluster,
  host: PluginHost = { environment: {}, interactive: false },
): Authenticator {
  const plugin = pluginIn(exec, of.file);
  const now = host.now ?? Date.now;
  let given: ReturnType<typeof parseExecCredential> | undefined;
  return {
    isAuthProvider: () => true,
    applyAuthentication: async (_user, options) => {
      if (given === undefined || now() > given.expiresAt) given = await run(plugin, of, host);
      const { token, certificate, key } = given;
      if (certificate !== undefined) Object.assign(options, { cert: certificate, key });
      if (token !== undefined) options.headers = { ...options.headers, Authorization: `Bearer ${token}` };
    },
  };
}

function pluginIn(exec: unknown, file: string) {
  const invalid = (what: string) => new ConnectionError('KubeconfigInvalid', `${file}: ${what}`);
  const { success, data, error } = execSchema.safeParse(exec);
  if (!success) {
    const [issue] = error.issues;
    throw invalid(`exec.${issue?.path.join('.')}: ${issue?.message ?? 'is invalid'}`);
  }
  const { command } = data;
  if (!command) throw invalid('expected exec.command');
  const apiVersion = API_VERSIONS.find((each) => each === data.apiVersion);
  if (apiVersion === undefined) {
    throw new ConnectionError(
      'KubeconfigUnsupported',
      `${file}: expected exec.apiVersion ${API_VERSIONS.join(' or ')}, got ${data.apiVersion ?? 'none'}; update the plugin and its kubeconfig`,
    );
  }
  // Early v1beta1 had no such field; its absence means IfAvailable.
  const written = data.interactiveMode || (apiVersion.endsWith('/v1beta1') ? 'IfAvailable' : undefined);
  const interactiveMode = MODES.find((each) => each === written);
  if (interactiveMode === undefined) {
    throw invalid(`expected exec.interactiveMode ${MODES.join(', ')}, got ${written ?? 'none'}`);
  }
  const failed = (what: string) => {
    // An escape sequence in a kubeconfig could otherwise write over the terminal.
    const hint = data.installHint?.replace(/\p{Cc}+/gu, ' ').trim();
    const wayOut = hint ? `. Its kubeconfig says: ${hint}` : '';
    const message = `${file}: the credential plugin "${command}" ${what}${wayOut}`;
    return new ConnectionError('PluginFailed', message);
  };
  return { ...data, command, apiVersion, interactiveMode, failed };
}

type Plugin = ReturnType<typeof pluginIn>;

async function run(plugin: Plugin, of: PluginCluster, host: PluginHost) {
  const { apiVersion, interactiveMode, env, failed } = plugin;
  const interactive = interactiveMode !== 'Never' && host.interactive;
  if (interactiveMode === 'Always' && !interactive) {
    throw failed('wants to ask a question (interactiveMode: Always), and standard input is no terminal');
  }
  const cluster = plugin.provideClusterInfo === true ? await clusterInfo(of) : undefined;
  const info = { kind: 'ExecCredential', apiVersion, spec: { cluster, interactive } };
  const environment = {
    ...host.environment,
    ...Object.fromEntries((env ?? []).map(({ name, value }) => [name, value])),
    KUBERNETES_EXEC_INFO: JSON.stringify(info),
  };
  const timeoutMs = host.timeoutMs ?? (interactive ? ATTENDED_MS : UNATTENDED_MS);
  const printed = await outputOf(plugin, of.file, { environment, interactive, timeoutMs });
  try {
    return parseExecCredential(printed, apiVersion);
  } catch (error) {
    throw failed(`gave no credentials: ${asError(error).message}`);
  }
}

/** Source: k8s.io/client-go pkg/apis/clientauthentication/v1 (Cluster). */
async function clusterInfo({ cluster, config }: PluginCluster) {
  const { server, tlsServerName, caData, caFile } = cluster;
  const read = async (file: string) => Buffer.from(fileText(await readFile(file)).trim()).toString('base64');
  return {
    server,
    'tls-server-name': tlsServerName || undefined,
    'certificate-authority-data': caFile ? await read(caFile) : caData || undefined,
    config: config ?? undefined,
  };
}

function outputOf(
  { command, args, failed }: Plugin,
  file: string,
  { environment, interactive, timeoutMs }: Required<Omit<PluginHost, 'now'>>,
): Promise<string> {
  // A path with a separator is relative to the kubeconfig's folder; a bare name is looked up in PATH.
  const program = /[\\/]/.test(command) ? resolve(dirname(file), command) : command;
  return new Promise((resolve, reject) => {
    // Standard error carries the plugin's questions to the user, and standard input the answers.
    const child = spawn(program, args ?? [], {
      env: environment,
      stdio: [interactive ? 'inherit' : 'ignore', 'pipe', 'inherit'],
    });
    const fail = (what: string) => {
      clearTimeout(timer);
      child.kill('SIGKILL');
      child.stdout.destroy();
      reject(failed(what));
    };
    const timer = setTimeout(() => fail(`gave no answer within ${timeoutMs / 1000} s`), timeoutMs);
    let printed = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
      if (printed.length > LONGEST_OUTPUT) fail('printed more than any credentials are');
    });
    child.on('error', (error: NodeJS.ErrnoException) => {
      fail(error.code === 'ENOENT' ? 'was not found' : `cannot be run (${error.code ?? 'unknown'})`);
    });
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      if (code === 0) resolve(printed);
      else fail(code === null ? `was ended by ${signal}` : `failed with exit code ${code}`);
    });
  });
}

/** @throws Error that describes what is wrong with the output without quoting it */
function parseExecCredential(printed: string, expected: string) {
  const document = jsonIn(printed);
  if (document === undefined) throw new Error('what it printed is not JSON');
  const { kind, apiVersion, status } = isRecord(document) ? document : {};
  if (kind !== 'ExecCredential') throw new Error('what it printed is not an ExecCredential');
  if (apiVersion !== expected) {
    const spoken = isString(apiVersion) ? apiVersion.slice(0, 100) : 'none';
    throw new Error(`the kubeconfig says that it speaks ${expected}, and it spoke ${spoken}`);
  }
  if (!isRecord(status)) throw new Error('it gave no status');
  const token = textOf(status, 'token');
  const certificate = textOf(status, 'clientCertificateData');
  const key = textOf(status, 'clientKeyData');
  const expires = textOf(status, 'expirationTimestamp');
  if ((certificate === undefined) !== (key === undefined)) {
    throw new Error('it gave only one of clientCertificateData and clientKeyData');
  }
  if (token === undefined && certificate === undefined) {
    throw new Error('it gave neither a token nor a certificate');
  }
  try {
    if (certificate !== undefined) createSecureContext({ cert: certificate, key });
  } catch {
    // Not the cause's message: OpenSSL quotes parts of its input.
    throw new Error('its certificate and key are no PEM pair');
  }
  // Without an expiry they are kept until the server rejects them.
  const expiresAt = expires === undefined ? Number.POSITIVE_INFINITY : Date.parse(expires);
  if (Number.isNaN(expiresAt)) throw new Error('its expirationTimestamp is no RFC 3339 time');
  return { token, certificate, key, expiresAt };
}

function textOf(status: Record<string, unknown>, field: string): string | undefined {
  const value = status[field];
  if (!isAbsentOr(isString, value)) throw new Error(`its ${field} is not a text`);
  // As in client-go, empty means absent.
  return value || undefined;
}
