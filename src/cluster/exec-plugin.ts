import { spawn } from 'node:child_process';
import { dirname, resolve } from 'node:path';
import { text } from 'node:stream/consumers';
import type { KubeConfig } from '@kubernetes/client-node';
import { z } from 'zod';
import { jsonIn } from '../core/api/index.ts';
import { ConnectionError } from './failure.ts';

type Authenticator = Parameters<KubeConfig['addAuthenticator']>[0];

export interface PluginHost {
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Whether standard input is a terminal, at which a person can answer questions. */
  readonly interactive: boolean;
  /** How long a run may take. Default: {@link UNATTENDED_MS} or {@link ATTENDED_MS}. */
  readonly timeoutMs?: number;
}

/** Plugins of cloud providers answer within seconds; one that hangs must not block the caller. */
const UNATTENDED_MS = 60_000;
/** Time for a login in a browser: device codes are valid for 10 to 15 minutes. */
const ATTENDED_MS = 900_000;

/** Source: k8s.io/client-go tools/clientcmd/api/v1 (ExecConfig). */
const EXEC = z.looseObject({
  apiVersion: z.string(),
  command: z.string().min(1),
  args: z.array(z.string()).nullish(),
  env: z.array(z.object({ name: z.string(), value: z.string() })).nullish(),
  provideClusterInfo: z.literal(false, 'is not supported').nullish(),
  interactiveMode: z.string().nullish(),
});

/** Source: k8s.io/client-go pkg/apis/clientauthentication/v1 (ExecCredential). Empty strings count as absent. */
const CREDENTIAL = z.object({
  kind: z.literal('ExecCredential'),
  status: z.object({
    token: z.string().nullish(),
    clientCertificateData: z.string().nullish(),
    clientKeyData: z.string().nullish(),
    expirationTimestamp: z.iso.datetime({ offset: true }).nullish(),
  }),
});

/**
 * Runs a credential plugin. client-node's own runner captures standard error, leaves standard input an open pipe, and waits
 * forever; a login that prints a device code would hang without showing it to the user. Credentials are cached until they
 * expire.
 * @param file the kubeconfig that names the plugin
 * @throws ConnectionError `KubeconfigInvalid`; `PluginFailed` when it authenticates
 */
export function execPlugin(
  exec: unknown,
  file: string,
  host: PluginHost = { environment: {}, interactive: false },
): Authenticator {
  const { success, data: plugin, error } = EXEC.safeParse(exec);
  if (!success) {
    const [issue] = error.issues;
    throw new ConnectionError(
      'KubeconfigInvalid',
      `${file}: exec.${issue?.path.join('.')}: ${issue?.message}`,
    );
  }
  let given: z.infer<typeof CREDENTIAL>['status'] | undefined;
  return {
    isAuthProvider: () => true,
    applyAuthentication: async (_user, options) => {
      const expiresAt = Date.parse(given?.expirationTimestamp ?? '');
      if (given === undefined || Date.now() > expiresAt) given = await credentialsOf(plugin, file, host);
      const { token, clientCertificateData: cert, clientKeyData: key } = given;
      if (cert && key) Object.assign(options, { cert, key });
      if (token) options.headers = { ...options.headers, Authorization: `Bearer ${token}` };
    },
  };
}

async function credentialsOf(
  { apiVersion, command, args, env, interactiveMode }: z.infer<typeof EXEC>,
  file: string,
  host: PluginHost,
) {
  const failed = (what: string) =>
    new ConnectionError('PluginFailed', `${file}: the credential plugin "${command}" ${what}`);
  const interactive = interactiveMode !== 'Never' && host.interactive;
  const info = { kind: 'ExecCredential', apiVersion, spec: { interactive } };
  // A path with a separator is relative to the kubeconfig's folder; a bare name is looked up in PATH.
  const program = /[\\/]/.test(command) ? resolve(dirname(file), command) : command;
  const child = spawn(program, args ?? [], {
    env: {
      ...host.environment,
      ...Object.fromEntries((env ?? []).map(({ name, value }) => [name, value])),
      KUBERNETES_EXEC_INFO: JSON.stringify(info),
    },
    stdio: [interactive ? 'inherit' : 'ignore', 'pipe', 'inherit'],
    timeout: host.timeoutMs ?? (interactive ? ATTENDED_MS : UNATTENDED_MS),
    killSignal: 'SIGKILL',
  });
  const ended = Promise.withResolvers<string>();
  child.on('error', ({ code }: NodeJS.ErrnoException) => ended.resolve(`cannot be run (${code})`));
  child.on('exit', (code, signal) => {
    // The plugin's own children may still hold the pipe open.
    if (signal !== null) child.stdout.destroy();
    ended.resolve(
      code === 0 ? '' : signal ? `was ended by ${signal}, or took too long` : `failed with exit code ${code}`,
    );
  });
  const [fault, printed] = await Promise.all([ended.promise, text(child.stdout).catch(() => '')]);
  if (fault !== '') throw failed(fault);
  // Nothing that the plugin printed is quoted, because it may be a secret.
  const { data } = CREDENTIAL.safeParse(jsonIn(printed));
  if (data === undefined) throw failed('printed no ExecCredential');
  return data.status;
}
