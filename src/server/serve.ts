import { randomBytes } from 'node:crypto';
import type { Server } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import type { CertificateSource } from '../certs/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import type { FactsOf } from '../core/api/index.ts';
import { newSnapshotHolder } from '../core/decision/index.ts';
import { Manager } from '../manager/index.ts';
import type { CanarySettings } from '../measurement/index.ts';
import { createMetrics, logToStandardOutput, reportLoopTime } from '../telemetry/index.ts';
import { tick } from '../timing/index.ts';
import {
  AdmissionMetrics,
  adminApp,
  adminServer,
  admissionApp,
  canaryServer,
  close,
  connectionsThatFit,
  listen,
  tlsOptions,
  webhookServer,
} from '../webhook/index.ts';
import { relayAddress } from './addresses.ts';
import { keysFor, openCertificates, readClientCa } from './certificates.ts';
import type { RunningCluster } from './cluster.ts';
import type { ServerContext } from './context.ts';
import type { ServerOptions } from './options.ts';
import { policyChanges, startPolicies } from './policies.ts';
import { listenForLogLevel, listenForShutdown } from './signals.ts';

/** What a server needs from the program that starts it. */
export interface ServerSurroundings {
  readonly version: string;
  /** Whether this process runs in a pod. */
  readonly inPod: boolean;
  /** Connects to the cluster, or says why there is none; undefined: none is wanted. */
  readonly connect: (() => Promise<KubeConnection | { readonly none: string }>) | undefined;
  /** Opens the page for this machine; `address` is its URL. */
  readonly openPage: (
    port: number,
    onError: (error: Error) => void,
  ) => Promise<{ readonly server: Server; readonly address: string }>;
  /** Called once the server answers. */
  readonly onListening: (at: Listening) => void;
}

export interface Listening {
  readonly port: number;
  readonly adminPort: number;
  /** The address of the page; undefined: there is none. */
  readonly page: string | undefined;
  /** Whether the certificate was created by Linger, and so is not trusted yet. */
  readonly ownAuthority: boolean;
}

interface Running extends ServerContext {
  readonly certificates: CertificateSource;
  readonly cluster: RunningCluster | undefined;
  readonly policyProblems: () => readonly string[];
}

/** Longer than servers take to close their connections. */
const CLOSING_MS = 4_500;

/**
 * Answers admission reviews until SIGTERM.
 * @returns the exit code
 * @throws LingerError, ConnectionError, CertificateError if it could not start
 */
export async function serve(options: ServerOptions, surroundings: ServerSurroundings): Promise<number> {
  const ending = new AbortController();
  const shutdown = listenForShutdown();
  const { logger, end: endLog } = logToStandardOutput(options.logLevel);
  const forgetLogLevel = listenForLogLevel(logger, options.logLevel);
  try {
    const snapshot = newSnapshotHolder(options.modeLimit);
    const metrics = createMetrics(surroundings.version);
    const { registry } = metrics;
    let isAnswering = false;
    reportLoopTime(
      metrics.loopBlocked,
      logger,
      () => isAnswering,
      (ms) => tick(ms, ending.signal),
    );
    const fitting = await connectionsThatFit();
    if (fitting.limit !== undefined)
      logger.warn({ ...fitting }, 'few file descriptors (ulimit -n); serving fewer connections at once');
    const clock = () => performance.now();
    const server: ServerContext = {
      options,
      logger,
      metrics,
      fitting,
      manager: new Manager({ registry, logger, clock, random: Math.random, signal: ending.signal }),
      snapshot,
      changePolicies: policyChanges(snapshot, logger),
      signal: ending.signal,
    };
    const begun = begin(server, surroundings);
    const running = await Promise.race([begun, shutdown.requested, shutdown.forced]);
    if (running === undefined || typeof running === 'number') return running ?? 0;
    const onListening = () => {
      isAnswering = true;
    };
    return await answerUntilShutdown(running, surroundings, shutdown, onListening);
  } finally {
    ending.abort();
    shutdown.release();
    forgetLogLevel();
    await endLog();
  }
}

async function begin(server: ServerContext, surroundings: ServerSurroundings): Promise<Running> {
  const connection = await connectionOf(server, surroundings);
  const certificates = await openCertificates(server, connection);
  const policyProblems = await startPolicies(server);
  const cluster = connection && (await beginCluster(server, certificates, connection));
  return { ...server, certificates, cluster, policyProblems };
}

/** @returns undefined without a cluster; nothing that a cluster needs is then loaded */
async function connectionOf(
  { logger }: ServerContext,
  { connect, inPod }: ServerSurroundings,
): Promise<KubeConnection | undefined> {
  if (connect === undefined) return undefined;
  const connection = await connect();
  if ('none' in connection) {
    // Outside of a cluster, this is to be expected.
    if (inPod)
      logger.info(
        { why: connection.none },
        'no cluster credentials; running without a cluster, measuring nothing',
      );
    return undefined;
  }
  logger.info({ server: connection.server.href }, 'watching the cluster');
  return connection;
}

async function beginCluster(
  server: ServerContext,
  certificates: CertificateSource,
  connection: KubeConnection,
): Promise<RunningCluster> {
  const { options, fitting } = server;
  const { placeOf, startCluster } = await import('./cluster.ts');
  const place = placeOf(options, connection);
  // Every replica answers the canary's requests; only the leader sends them.
  const canary = place && (await listenForCanary(server));
  const hold = {
    port: options.holdPort,
    address: options.holdAddress,
    image: options.holdImage,
    testImage: options.holdTestImage,
    relay: { address: relayAddress(options), keys: keysFor('linger.dev/hold: relays', certificates) },
    connections: fitting.holds,
  };
  return startCluster(server, connection, place, {
    ...options,
    canary,
    hold: options.holdPort === 0 ? undefined : hold,
    reportKeys: keysFor('linger.dev/reports: cursors', certificates),
    configured: () => certificates.configured?.(),
    trusted: () => certificates.trusted?.(),
  });
}

async function listenForCanary({
  options,
  logger,
  signal,
}: ServerContext): Promise<CanarySettings | undefined> {
  const { host, canaryPort, canaryEvery, probeAllowLinkLocal } = options;
  if (canaryEvery === 0) return undefined;
  const identity = randomBytes(16).toString('hex');
  const server = canaryServer(identity);
  const onError = (error: Error) => logger.error({ problem: error.message }, 'accepting connections failed');
  const port = await listen(server, host, canaryPort, '--canary-port', onError);
  signal.addEventListener('abort', () => server.close(), { once: true });
  return { port, identity, every: canaryEvery, allowLinkLocal: probeAllowLinkLocal };
}

async function answerUntilShutdown(
  running: Running,
  { version, openPage, onListening }: ServerSurroundings,
  shutdown: ReturnType<typeof listenForShutdown>,
  onAnswering: () => void,
): Promise<number> {
  const { options, logger, metrics, manager, snapshot, certificates, cluster, policyProblems, fitting } =
    running;
  let draining = false;
  const clientCa = options.clientCa === undefined ? undefined : await readClientCa(options.clientCa);
  const admissionMetrics = new AdmissionMetrics(metrics.registry);
  const app = admissionApp({
    snapshot: snapshot.current,
    clientCertificates: clientCa !== undefined,
    auditWarnings: options.auditWarnings,
    closesConnection: () => draining || Math.random() < options.connectionCloseProbability,
    reports: cluster?.reports,
    metrics: admissionMetrics,
    logger,
  });
  const unready = () => {
    if (draining) return 'draining';
    return certificates.unready(new Date()) ?? cluster?.unready();
  };
  const webhook = webhookServer(app, certificates.get(), clientCa, fitting.reviews);
  const nothingToShow = cluster === undefined && options.policies === undefined;
  const estimates = () => ({
    policyProblems: [...policyProblems(), ...(cluster?.problems() ?? [])],
    ...(cluster?.estimates() as object),
  });
  const hold = cluster?.hold;
  const pages = { estimates: nothingToShow ? undefined : estimates, holds: hold?.list };
  const admin = adminServer(
    adminApp({ unready, dead: cluster?.dead, metrics, status: manager.status, ...pages }),
  );
  manager.add(
    {
      name: 'certificates',
      // New handshakes use the new pair; open connections keep theirs.
      watches: () => certificates.watches?.() ?? {},
      status: (): FactsOf<'certificates'> => ({ trusted: certificates.trusted?.() ?? null }),
      run: () => certificates.follow((pair) => webhook.setSecureContext(tlsOptions(pair, clientCa)), running),
    },
    { name: 'admin', close: () => close(admin) },
    {
      name: 'webhook',
      status: (): FactsOf<'webhook'> => ({ decisions: admissionMetrics.recent() }),
      close: () => close(webhook),
    },
  );
  manager.start();

  const onError = (error: Error) => logger.error({ problem: error.message }, 'accepting connections failed');
  const port = await listen(webhook, options.host, options.port, '--port', onError);
  onAnswering();
  const adminPort = await listen(admin, options.host, options.adminPort, '--admin-port', onError);
  if (hold !== undefined) await listen(hold.server, options.host, options.holdPort, '--hold-port', onError);
  logger.info({ host: options.host, port, adminPort, version }, 'listening');
  const page = options.pagePort === undefined ? undefined : await openPage(options.pagePort, onError);
  if (page !== undefined) manager.add({ name: 'page', close: () => close(page.server) });
  const ownAuthority = !['provided', 'shared'].includes(certificates.get().origin);
  onListening({ port, adminPort, page: page?.address, ownAuthority });

  const drain = async () => {
    await shutdown.requested;
    draining = true;
    metrics.draining.set(1);
    logger.info(
      { seconds: options.drain },
      'draining: not ready, still answering, closing each connection after its answer',
    );
    // The API server continues to use its open connections to a terminating webhook pod (kubernetes#127335), so keep
    // answering.
    const left = cluster?.leave();
    await sleep(options.drain * 1000);
    // Must end before the pod’s grace does, even if something stalls.
    const closed = Promise.all([manager.close(), left]);
    await Promise.race([closed, sleep(CLOSING_MS, undefined, { ref: false })]);
    logger.info('stopped');
    return 0;
  };
  return Promise.race([drain(), shutdown.forced]);
}
