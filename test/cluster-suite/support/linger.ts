import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MAIN } from '../../cli/linger.ts';
import { eachLine } from '../../testbed/command.ts';
import { waitUntil } from '../../testbed/waiting.ts';
import { sendReview } from './review.ts';

/** The DNS name by which an API server knows the Service `linger` of namespace `linger`. */
export const SERVICE_NAME = 'linger.linger.svc';

export interface LingerOptions {
  /** An address that the API server reaches. */
  readonly host: string;
  /** Holds certificates and policies; several servers may share one. */
  readonly directory: string;
  /** YAML documents; the policies in force from the start. Default: those that are in the directory. */
  readonly policies?: string;
  /** Default: a free port. */
  readonly port?: number;
  /** Default 0s: a test that stops a server does not wait for it. */
  readonly drain?: string;
  /** The kubeconfig of the cluster to measure. Default: none. */
  readonly kubeconfig?: string;
  /** Linger's own namespace, in which it leads and publishes. Default: none, it measures for itself. */
  readonly namespace?: string;
  /** A file with the CA of the clients that it answers. Its decisions cannot be read then. */
  readonly clientCa?: string;
  /** Further ones, by their names. */
  readonly flags?: Readonly<Record<string, string>>;
}

export interface PlanLine {
  readonly wait: number;
  readonly grace: number;
  readonly baseGrace: number;
  readonly hook: string;
  readonly containers: readonly string[];
}

/** One line of the log at debug: what was decided about one review. */
export interface DecisionLine {
  readonly uid: string;
  readonly namespace: string;
  readonly dryRun: boolean;
  readonly outcome: 'inject' | 'audit' | 'skip';
  /** Why it was skipped; empty if injected. */
  readonly reason: string;
  readonly plan?: PlanLine;
  readonly notes: readonly string[];
}

interface LogLine {
  readonly level: string;
  readonly msg: string;
  readonly port?: number;
  readonly adminPort?: number;
  readonly problem?: string;
}

/** A running `linger serve`: the real program, in a process of its own. */
export class Linger {
  readonly #child: ChildProcess;
  readonly #options: LingerOptions;
  readonly #lines: LogLine[] = [];
  readonly #other: string[] = [];
  readonly #killOnExit: () => void;
  #policies: string;
  #port = 0;
  #adminPort = 0;

  private constructor(child: ChildProcess, options: LingerOptions) {
    this.#child = child;
    this.#options = options;
    this.#policies = options.policies ?? '';
    // The test runner may be interrupted in the middle of a file.
    this.#killOnExit = () => child.kill('SIGKILL');
    process.once('exit', this.#killOnExit);
    if (child.stdout !== null) eachLine(child.stdout, (line) => this.#read(line));
    if (child.stderr !== null) eachLine(child.stderr, (line) => this.#other.push(line));
  }

  /** Resolves when it reports readiness. */
  static async start(options: LingerOptions): Promise<Linger> {
    const policies = join(options.directory, 'policies');
    mkdirSync(policies, { recursive: true });
    if (options.policies !== undefined) writeFileSync(join(policies, 'policies.yaml'), options.policies);
    const flags = {
      host: options.host,
      port: options.port ?? 0,
      'admin-port': 0,
      certs: join(options.directory, 'certs'),
      'cert-names': SERVICE_NAME,
      policies,
      'log-level': 'debug',
      drain: options.drain ?? '0s',
      ...(options.namespace !== undefined && { namespace: options.namespace }),
      ...(options.clientCa !== undefined && { 'client-ca': options.clientCa }),
      ...(options.kubeconfig === undefined ? { cluster: 'off' } : { kubeconfig: options.kubeconfig }),
      ...options.flags,
    };
    const argv = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]);
    const child = spawn(process.execPath, [MAIN, 'serve', ...argv], { stdio: ['ignore', 'pipe', 'pipe'] });
    const linger = new Linger(child, options);
    await linger.#ready();
    return linger;
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  get port(): number {
    return this.#port;
  }

  get host(): string {
    return this.#options.host;
  }

  get metricsUrl(): string {
    return `http://${this.host}:${this.#adminPort}/metrics`;
  }

  /** The CA's certificate, PEM. */
  get authority(): string {
    return readFileSync(join(this.#options.directory, 'certs', 'ca.crt'), 'utf8');
  }

  /** The end of its output, for messages of failed tests. */
  logs(): string {
    return [...this.#lines.map((line) => JSON.stringify(line)), ...this.#other].slice(-40).join('\n');
  }

  /** All decisions so far, including those of every review that has been answered. */
  async decisions(namespace?: string): Promise<DecisionLine[]> {
    await this.#readSoFar();
    const decisions = this.#lines.filter(({ msg }) => msg === 'decision') as unknown as DecisionLine[];
    return decisions.filter((line) => (namespace ?? line.namespace) === line.namespace);
  }

  /** What this server decides about a pod that is created, asked directly and not through the API server. */
  async decide(namespace: string, object: object): Promise<DecisionLine> {
    const uid = await this.#review({ namespace, object });
    const decided = () => this.#lines.find((line) => 'uid' in line && line.uid === uid);
    const line = await waitUntil('the decision to be logged', decided, { timeoutMs: 10_000, intervalMs: 5 });
    return line as unknown as DecisionLine;
  }

  /** Writes the policies and resolves when they are in force. Throws if Linger refuses them. */
  async setPolicies(text: string): Promise<void> {
    if (text === this.#policies) return;
    const from = this.#lines.length;
    const file = join(this.#options.directory, 'policies', 'policies.yaml');
    // Without the suffix .yaml, so that it is not read before it is complete.
    writeFileSync(`${file}.new`, text);
    renameSync(`${file}.new`, file);
    this.#policies = text;
    await waitUntil(
      'the policies to be reloaded',
      () => this.#lines.slice(from).some(({ msg }) => msg === 'policies reloaded'),
      { timeoutMs: 10_000, intervalMs: 20 },
    );
    const unusable = this.#lines.slice(from).find(({ msg }) => msg.startsWith('policy document rejected'));
    if (unusable !== undefined) throw new Error(unusable.problem);
  }

  /** A metric's value, summed over labels that are not given; 0 without a sample. */
  async metric(name: string): Promise<number> {
    return (await this.metrics())(name);
  }

  /** What a page of its metrics says of each, as {@link metric} would. */
  async metrics(): Promise<(name: string) => number> {
    const answer = await fetch(this.metricsUrl);
    const lines = (await answer.text()).split('\n');
    return (name) =>
      lines
        .filter((line) => line.startsWith(name) && ['{', ' '].includes(line.charAt(name.length)))
        .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
  }

  async ready(): Promise<boolean> {
    const answer = await fetch(`http://${this.host}:${this.#adminPort}/readyz`);
    await answer.arrayBuffer();
    return answer.ok;
  }

  /** Signals it and returns its exit code; null when the signal ended it. */
  async stop(signal: NodeJS.Signals = 'SIGTERM'): Promise<number | null> {
    process.off('exit', this.#killOnExit);
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, 'close');
      this.#child.kill(signal);
      await ended;
    }
    return this.#child.exitCode;
  }

  async #ready(): Promise<void> {
    const listening = await waitUntil(
      'linger to listen',
      () => {
        if (this.#child.exitCode !== null) return { msg: 'listening' } as LogLine;
        return this.#lines.find(({ msg }) => msg === 'listening');
      },
      { timeoutMs: 20_000, intervalMs: 20 },
    );
    if (this.#child.exitCode !== null) throw new Error(`linger ended: ${this.logs()}`);
    this.#port = listening.port ?? 0;
    this.#adminPort = listening.adminPort ?? 0;
    await waitUntil('linger to be ready', () => this.ready(), { timeoutMs: 10_000, intervalMs: 20 });
  }

  /** Log lines come in order: when the line of our own review is there, so are all earlier ones. */
  async #readSoFar(): Promise<void> {
    const uid = await this.#review();
    await waitUntil('the log to arrive', () => this.#take(uid), { timeoutMs: 10_000, intervalMs: 5 });
  }

  #review(created?: Parameters<typeof sendReview>[1]): Promise<string> {
    const { host, port, authority } = this;
    return sendReview({ host, port, authority, servername: SERVICE_NAME }, created);
  }

  /** Removes the line of our own review, once it is there. */
  #take(uid: string): boolean {
    const index = this.#lines.findIndex((line) => 'uid' in line && line.uid === uid);
    if (index >= 0) this.#lines.splice(index, 1);
    return index >= 0;
  }

  #read(line: string): void {
    if (!line.startsWith('{')) this.#other.push(line);
    else this.#lines.push(JSON.parse(line) as LogLine);
  }
}
