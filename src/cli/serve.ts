import { hkdfSync, randomBytes, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { asError, LingerError } from '../api/index.ts';
import { CertificateSource } from '../certs/index.ts';
import { holdWorld, NO_DOCUMENTS, type WorldHolder } from '../decision/index.ts';
import { followPolicyFiles, type PolicyState } from '../manifest/index.ts';
import type { CanarySettings } from '../measurement/index.ts';
import { createLogger, createMetrics, type Logger, type Metrics } from '../telemetry/index.ts';
import {
  AdmissionMetrics,
  adminApp,
  adminServer,
  admissionApp,
  canaryServer,
  close,
  listen,
  tlsOptions,
  webhookServer,
} from '../webhook/index.ts';
import type { ServeSettings } from './commands.ts';
import type { KubeEnvironment } from './flags.ts';
import type { ClusterPart } from './serve-cluster.ts';

export interface Endpoint {
  readonly host: string;
  readonly port: number;
  readonly adminPort: number;
  readonly certs: string;
  /** Whether the certificate is of Linger's own making, and so trusted by nobody yet. */
  readonly ownAuthority: boolean;
}

/** An AdmissionReview recorded from a real API server, in this checkout. */
const EXAMPLE = 'docs/examples/review.json';

/** What somebody who has just started Linger on their machine reads: that it runs, and a line to paste. */
export function greeting({ host, port, adminPort, certs, ownAuthority }: Endpoint): string {
  const trust = ownAuthority ? `--cacert ${quoted(join(certs, 'ca.crt'))} ` : '';
  const decode = `node -pe 'r = JSON.parse(fs.readFileSync(0)).response; r.patch ? atob(r.patch) : r'`;
  return [
    '',
    `Linger answers on https://${name(host)}:${port}/mutate`,
    `Readiness and metrics: http://${name(host)}:${adminPort}/readyz and /metrics`,
    '',
    'See it work: a Pod as a real API server sends it goes in, the patch comes out. In another terminal:',
    '',
    `  curl --silent ${trust}--data-binary @${EXAMPLE} \\`,
    `    https://${name(host)}:${port}/mutate | ${decode}`,
    '',
    'Your own manifests, with no server at all:  npm run --silent linger -- explain FILE.yaml',
    '',
  ].join('\n');
}

/** As a shell takes it for one word. */
function quoted(path: string): string {
  return /^[\w./-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
}

/** The address to call for an address that is listened on. */
function name(host: string): string {
  if (isUnspecified(host)) return 'localhost';
  return host.includes(':') ? `[${host}]` : host;
}

/** Between the end of the drain and that of the process, at most: the servers cut their connections a little earlier. */
const CLOSING_MS = 4_500;

/** What a process listens for; `process` in production. */
export interface SignalSource {
  on(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown;
  off(signal: 'SIGTERM' | 'SIGINT', listener: () => void): unknown;
}

export interface Shutdown {
  /** Resolves at the first SIGTERM: finish what is under way, then end. */
  readonly requested: Promise<void>;
  /** Resolves at SIGINT or a second signal with the exit code: end at once. */
  readonly forced: Promise<number>;
  /** Stops listening. */
  readonly release: () => void;
}

/** By the shell's convention a process ended by signal N exits with 128 + N. */
const EXIT_CODE = { SIGINT: 130, SIGTERM: 143 } as const;

/** SIGTERM asks to drain; SIGINT (somebody at a terminal) and any second signal end the process at once. */
export function listenForShutdown(source: SignalSource): Shutdown {
  const requested = Promise.withResolvers<void>();
  const forced = Promise.withResolvers<number>();
  let terminating = false;
  const onTerminate = () => {
    if (terminating) forced.resolve(EXIT_CODE.SIGTERM);
    terminating = true;
    requested.resolve();
  };
  const onInterrupt = () => forced.resolve(EXIT_CODE.SIGINT);
  source.on('SIGTERM', onTerminate);
  source.on('SIGINT', onInterrupt);
  const release = () => {
    source.off('SIGTERM', onTerminate);
    source.off('SIGINT', onInterrupt);
  };
  return { requested: requested.promise, forced: forced.promise, release };
}

export interface ServeContext {
  readonly version: string;
  readonly kube: KubeEnvironment;
  readonly print: (text: string) => void;
}

/** What the parts of a running server share. */
interface Running {
  readonly settings: ServeSettings;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly world: WorldHolder;
  readonly certificates: CertificateSource;
  /** Aborts when the server ends; everything that goes on in the background listens to it. */
  readonly signal: AbortSignal;
}

/**
 * `linger serve`: answers admission reviews until SIGTERM.
 * @returns the exit code
 * @throws UserError when a policy file, a certificate or a port cannot be used at the start
 */
export async function serve(settings: ServeSettings, context: ServeContext): Promise<number> {
  const ending = new AbortController();
  const shutdown = listenForShutdown(process);
  try {
    const files = { directory: settings.certs, names: certificateNames(settings) };
    const running: Running = {
      settings,
      logger: createLogger(settings.logLevel),
      metrics: createMetrics(context.version),
      world: holdWorld(settings.modeLimit),
      certificates: await CertificateSource.open(files, new Date()),
      signal: ending.signal,
    };
    const policyProblems = await startPolicies(running);
    const cluster = await startCluster(running, context);
    const nothingToShow = cluster === undefined && settings.policies === undefined;
    const estimates = () => ({ policyProblems: policyProblems(), ...(cluster?.estimates() as object) });
    const parts = { cluster, estimates: nothingToShow ? undefined : estimates };
    return await answerUntilShutdown(running, context, parts, shutdown);
  } finally {
    ending.abort();
    shutdown.release();
  }
}

/** The address that is listened on must be in the certificate, too, unless it stands for all of them. */
function certificateNames({ certNames, host }: ServeSettings): readonly string[] {
  return isUnspecified(host) ? certNames : [...certNames, host];
}

function isUnspecified(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

async function readClientCa(file: string): Promise<string> {
  try {
    const text = await readFile(file, 'utf8');
    for (const [certificate] of text.matchAll(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g))
      if (new X509Certificate(certificate).ca) return text;
  } catch (cause) {
    throw new LingerError(
      'settings-invalid',
      `--client-ca: ${file} cannot be read: ${asError(cause).message}`,
    );
  }
  throw new LingerError('settings-invalid', `--client-ca: ${file} holds no certificate of an authority`);
}

async function answerUntilShutdown(
  running: Running,
  context: ServeContext,
  { cluster, estimates }: { cluster: ClusterPart | undefined; estimates: (() => unknown) | undefined },
  shutdown: ReturnType<typeof listenForShutdown>,
): Promise<number> {
  const { settings, logger, metrics, world, certificates } = running;
  let draining = false;
  const clientCa = settings.clientCa === undefined ? undefined : await readClientCa(settings.clientCa);
  const app = admissionApp({
    world: world.current,
    clientCertificates: clientCa !== undefined,
    auditWarnings: settings.auditWarnings,
    closesConnection: () => draining || Math.random() < settings.connectionCloseProbability,
    reports: cluster?.reports,
    metrics: new AdmissionMetrics(metrics.registry),
    logger,
  });
  const unready = () => {
    if (draining) return 'draining';
    if (!certificates.healthy(new Date())) return 'the serving certificate has expired';
    return cluster?.unready();
  };
  const webhook = webhookServer(app, certificates.get(), clientCa);
  const admin = adminServer(adminApp({ unready, metrics, estimates }));
  // New handshakes get the new pair; open connections keep theirs.
  void certificates.follow((pair) => webhook.setSecureContext(tlsOptions(pair, clientCa)), running);

  const onError = (error: Error) => logger.error({ problem: error.message }, 'server error');
  const port = await listen(webhook, settings.host, settings.port, '--port', onError);
  const adminPort = await listen(admin, settings.host, settings.adminPort, '--admin-port', onError);
  logger.info({ host: settings.host, port, adminPort, version: context.version }, 'listening');
  // In a cluster nobody reads a greeting.
  if (context.kube.service.host === undefined)
    context.print(
      `${greeting({ ...settings, port, adminPort, ownAuthority: certificates.get().origin !== 'provided' })}\n`,
    );

  const drain = async () => {
    await shutdown.requested;
    draining = true;
    metrics.draining.set(1);
    logger.info(
      { seconds: settings.drain },
      'draining: not ready, still answering, closing each connection after its answer',
    );
    // The API server goes on using its open connections to a terminating webhook pod (kubernetes#127335).
    const left = cluster?.leave();
    await sleep(settings.drain * 1000);
    // Whatever is stalled, this ends before the pod's grace does.
    const closed = Promise.all([close(webhook), close(admin), left]);
    await Promise.race([closed, sleep(CLOSING_MS, undefined, { ref: false })]);
    logger.info('stopped');
    return 0;
  };
  return Promise.race([drain(), shutdown.forced]);
}

/** @returns undefined without a cluster: then none of what it takes is loaded */
async function startCluster(running: Running, { kube }: ServeContext): Promise<ClusterPart | undefined> {
  const { settings, logger, metrics, world, certificates, signal } = running;
  if (settings.cluster === 'off') return undefined;
  const { connect } = await import('./connect.ts');
  const connection = await connect(settings, kube);
  if ('none' in connection) {
    // Outside of a cluster that is what everybody expects.
    if (kube.service.host !== undefined)
      logger.info({ why: connection.none }, 'no cluster: nothing is read from it, and nothing measured');
    return undefined;
  }
  logger.info({ server: connection.server.href }, 'following the cluster');
  const { placeOf, startCluster: start } = await import('./serve-cluster.ts');
  const place = placeOf(settings, connection);
  // Every replica answers, whoever leads: the leader asks.
  const canary = place && (await listenForCanary(running));
  const { syncTimeout, reportsAudience } = settings;
  // All replicas serve with the same key, so each can read what another has signed.
  const key = Buffer.from(hkdfSync('sha256', certificates.get().key, '', 'linger.dev/reports: cursors', 32));
  const reports = { audience: reportsAudience, key };
  const shared = { logger, metrics, world, signal };
  return start({ connection, syncTimeout, place, canary, reports, ...shared });
}

async function listenForCanary({ settings, logger, signal }: Running): Promise<CanarySettings | undefined> {
  const { host, canaryPort, canaryEvery, probeAllowLinkLocal: allowLinkLocal } = settings;
  if (canaryEvery === 0) return undefined;
  const identity = randomBytes(16).toString('hex');
  const server = canaryServer(identity);
  const onError = (error: Error) => logger.error({ problem: error.message }, 'server error');
  const port = await listen(server, host, canaryPort, '--canary-port', onError);
  signal.addEventListener('abort', () => server.close(), { once: true });
  return { port, identity, every: canaryEvery, allowLinkLocal };
}

/**
 * What of the policy files is in force at the start; and follows them.
 * @returns what is wrong with them at the moment
 * @throws LingerError with `--strict`, for the first problem
 */
async function startPolicies({ settings, logger, metrics, world, signal }: Running) {
  let problems: PolicyState['problems'] = [];
  const take = (state: PolicyState) => {
    world.apply({ kind: 'documents', documents: state.documents });
    for (const { message } of state.problems)
      if (problems.every((known) => known.message !== message))
        logger.error(
          { path: settings.policies, problem: message },
          'a policy document cannot be used; its last good version stays in force',
        );
    problems = state.problems;
    showPolicies(state, metrics);
  };
  if (settings.policies === undefined) take({ documents: NO_DOCUMENTS, problems });
  else {
    const path = settings.policies;
    const onChange = (state: PolicyState) => {
      take(state);
      metrics.policyReloads.inc({ result: state.problems.length === 0 ? 'success' : 'failure' });
      logger.info({ path, problems: problems.length }, 'policies reloaded');
    };
    const first = await followPolicyFiles(path, onChange, signal);
    const [problem] = first.problems;
    if (settings.strict && problem !== undefined) throw new LingerError(problem.code, problem.message);
    take(first);
  }
  return () => problems.map(({ message }) => message);
}

function showPolicies({ documents, problems }: PolicyState, metrics: Metrics): void {
  metrics.policyReloadSuccessful.set(problems.length === 0 ? 1 : 0);
  metrics.policyProblems.set(problems.length);
  if (problems.length === 0) metrics.policyLastSuccess.setToCurrentTime();
  metrics.policyDocuments.set({ kind: 'ClusterTerminationPolicy' }, documents.clusterPolicies.length);
  metrics.policyDocuments.set({ kind: 'TerminationPolicy' }, documents.policies.length);
  metrics.policyDocuments.set({ kind: 'DiscoveryConsumer' }, documents.consumers.length);
  metrics.policyDocuments.set({ kind: 'Namespace' }, documents.namespaces.length);
  metrics.policyDocuments.set({ kind: 'Service' }, documents.services.length);
}
