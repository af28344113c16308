import { spawn } from 'node:child_process';
import { asError } from '../core/catalog/errors.ts';
import type { Credentials } from './connection.ts';
import { ConnectionError } from './connection-error.ts';
import {
  type ExecApiVersion,
  type ExecCluster,
  type ExecStatus,
  execInfo,
  parseExecCredential,
} from './exec-credential.ts';

/** Where plugins run. */
export interface PluginHost {
  /** What their environment is made of. */
  readonly environment: Readonly<Record<string, string | undefined>>;
  /** Whether standard input is a terminal, so that somebody could answer a question. */
  readonly interactive: boolean;
  /** Milliseconds since the epoch. Default: `Date.now`. */
  readonly now?: () => number;
  /** How long one run may take. Default: {@link ALONE_MS} or {@link WITH_SOMEBODY_MS}. */
  readonly timeoutMs?: number;
}

/** A program that gives credentials, as a kubeconfig's user names it. */
export interface PluginConfig {
  /** The kubeconfig that names it, for messages. */
  readonly file: string;
  /** A name to be found in PATH, or an absolute path. */
  readonly command: string;
  readonly args: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly apiVersion: ExecApiVersion;
  readonly installHint: string | undefined;
  /** Whether it may ask: `IfAvailable` and `Always` do where somebody is there. */
  readonly interactiveMode: 'Never' | 'IfAvailable' | 'Always';
  /** Asked before each run; resolves with undefined where it is told nothing. */
  readonly cluster: () => Promise<ExecCluster | undefined>;
}

/** client-go waits for ever; but those of the clouds answer within seconds, and a dead one must not hang the caller. */
const ALONE_MS = 60_000;

/** Somebody may have to log in with a browser: device codes are good for 10 to 15 minutes. */
const WITH_SOMEBODY_MS = 900_000;

/** An ExecCredential with a certificate chain is some 10 KB. */
const LONGEST_OUTPUT = 1024 * 1024;

/**
 * Runs a credential plugin, and again when what it gave has expired or was refused. Follows client-go, whose rules
 * plugins are written for. Source: k8s.io/client-go plugin/pkg/client/auth/exec.
 */
export class ExecPlugin {
  readonly #config: PluginConfig;
  readonly #host: PluginHost;
  #given: ExecStatus | undefined;
  /** Several watches ask at once; one run answers them all. */
  #running: Promise<ExecStatus> | undefined;

  constructor(config: PluginConfig, host: PluginHost) {
    this.#config = config;
    this.#host = host;
  }

  /** @throws ConnectionError `PluginFailed` */
  async status(): Promise<ExecStatus> {
    const now = this.#host.now ?? Date.now;
    const { expiresAt = Number.POSITIVE_INFINITY } = this.#given ?? {};
    if (this.#given !== undefined && now() <= expiresAt) return this.#given;
    this.#running ??= this.#run().finally(() => {
      this.#running = undefined;
    });
    return this.#running;
  }

  /** The server did not accept these (401). Others may have been given since. */
  refuse({ token, certificate }: Credentials): void {
    const given = this.#given;
    if (given?.token === token && given?.certificate === certificate) this.#given = undefined;
  }

  async #run(): Promise<ExecStatus> {
    const { interactiveMode, apiVersion, cluster, env } = this.#config;
    const interactive = interactiveMode !== 'Never' && this.#host.interactive;
    if (interactiveMode === 'Always' && !interactive) {
      throw this.#failed(
        'wants to ask somebody (interactiveMode: Always), and standard input is no terminal',
      );
    }
    const info = execInfo(apiVersion, interactive, await cluster());
    const own = Object.fromEntries(env.map(({ name, value }) => [name, value]));
    const environment = { ...this.#host.environment, ...own, KUBERNETES_EXEC_INFO: info };
    const printed = await this.#output(environment, interactive);
    try {
      this.#given = parseExecCredential(printed, apiVersion);
    } catch (error) {
      throw this.#failed(`gave no credentials: ${asError(error).message}`);
    }
    return this.#given;
  }

  #output(environment: PluginHost['environment'], interactive: boolean): Promise<string> {
    const { command, args } = this.#config;
    const timeoutMs = this.#host.timeoutMs ?? (interactive ? WITH_SOMEBODY_MS : ALONE_MS);
    return new Promise((resolve, reject) => {
      // What it says to people is theirs to read, and its questions to answer.
      const child = spawn(command, args, {
        env: environment,
        stdio: [interactive ? 'inherit' : 'ignore', 'pipe', 'inherit'],
      });
      const fail = (what: string) => {
        clearTimeout(timer);
        child.kill('SIGKILL');
        child.stdout.destroy();
        reject(this.#failed(what));
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

  #failed(what: string): ConnectionError {
    const { file, command, installHint } = this.#config;
    // An escape sequence of a kubeconfig could otherwise write over the terminal.
    const hint = installHint?.replace(/\p{Cc}+/gu, ' ').trim();
    const wayOut = hint ? `. Its kubeconfig says: ${hint}` : '';
    return new ConnectionError(
      'PluginFailed',
      `${file}: the credential plugin "${command}" ${what}${wayOut}`,
    );
  }
}
