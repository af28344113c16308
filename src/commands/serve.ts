import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { type CertificateSource, certificateDirectory } from '../certs/source.ts';
import type { CanarySettings } from '../controller/canary.ts';
import type { ClusterPart } from '../controller/cluster.ts';
import { adminApp } from '../serve/admin.ts';
import { admissionApp } from '../serve/admission.ts';
import { canaryServer } from '../serve/canary.ts';
import { adminServer, close, listen, webhookServer } from '../serve/listen.ts';
import type { ServeSettings } from '../settings/commands.ts';
import type { KubeEnvironment } from '../settings/kube-environment.ts';
import { watchCertificates } from '../sources/certificate-watch.ts';
import { createLogger, type Logger } from '../telemetry/logs.ts';
import { createMetrics, type Metrics } from '../telemetry/metrics.ts';
import { type Documents, NO_DOCUMENTS } from '../world/documents.ts';
import { holdWorld, type WorldHolder } from '../world/world.ts';
import { connect } from './connect.ts';
import { greeting } from './greeting.ts';
import { listenForShutdown } from './shutdown.ts';

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
  const running: Running = {
    settings,
    logger: createLogger(settings.logLevel),
    metrics: createMetrics(context.version),
    world: holdWorld(settings.modeLimit),
    certificates: certificateDirectory({ directory: settings.certs, names: settings.certNames }),
    signal: ending.signal,
  };
  const shutdown = listenForShutdown(process);
  try {
    await startPolicies(running);
    const cluster = await startCluster(running, context);
    return await answerUntilShutdown(running, context, cluster, shutdown);
  } finally {
    ending.abort();
    shutdown.release();
  }
}

async function answerUntilShutdown(
  running: Running,
  context: ServeContext,
  cluster: ClusterPart | undefined,
  shutdown: ReturnType<typeof listenForShutdown>,
): Promise<number> {
  const { settings, logger, metrics, world, certificates } = running;
  let draining = false;
  const app = admissionApp({
    world: world.current,
    auditWarnings: settings.auditWarnings,
    closesConnection: () => draining || Math.random() < settings.connectionCloseProbability,
    reports: cluster?.reports,
    metrics,
    logger,
  });
  const unready = () => {
    if (draining) return 'draining';
    if (!certificates.healthy(new Date())) return 'the serving certificate has expired';
    return cluster?.unready();
  };
  const webhook = webhookServer(app, await certificates.start(new Date()));
  const admin = adminServer(adminApp({ unready, metrics, estimates: cluster?.estimates }));
  startCertificates(running, (pair) => webhook.setSecureContext(pair));

  const onError = (error: Error) => logger.error({ problem: error.message }, 'server error');
  const port = await listen(webhook, settings.host, settings.port, '--port', onError);
  const adminPort = await listen(admin, settings.host, settings.adminPort, '--admin-port', onError);
  logger.info({ host: settings.host, port, adminPort, version: context.version }, 'listening');
  // In a cluster nobody reads a greeting.
  if (context.kube.service.host === undefined)
    context.print(
      greeting({ ...settings, port, adminPort, ownAuthority: certificates.get().origin !== 'provided' }),
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
    await Promise.all([close(webhook), close(admin), left]);
    logger.info('stopped');
    return 0;
  };
  return Promise.race([drain(), shutdown.forced]);
}

/** @returns undefined without a cluster: then none of what it takes is loaded */
async function startCluster(running: Running, { kube }: ServeContext): Promise<ClusterPart | undefined> {
  const { settings, logger, metrics, world, signal } = running;
  const connection = await connect(settings, kube);
  if ('none' in connection) {
    // Outside of a cluster that is what everybody expects.
    if (kube.service.host !== undefined)
      logger.info({ why: connection.none }, 'no cluster: nothing is read from it, and nothing measured');
    return undefined;
  }
  logger.info({ server: connection.server.href }, 'following the cluster');
  const { startCluster: start } = await import('../controller/cluster.ts');
  const { placeOf } = await import('../controller/sharing.ts');
  const place = placeOf(settings, connection);
  // Every replica answers, whoever leads: the leader asks.
  const canary = place && (await listenForCanary(running));
  const { syncTimeout, reportsAudience } = settings;
  const shared = { logger, metrics, world, signal };
  return start({ connection, syncTimeout, place, canary, reportsAudience, ...shared });
}

async function listenForCanary({ settings, logger, signal }: Running): Promise<CanarySettings | undefined> {
  const { host, canaryPort, canaryEvery } = settings;
  if (canaryEvery === 0) return undefined;
  const identity = randomBytes(16).toString('hex');
  const server = canaryServer(identity);
  const onError = (error: Error) => logger.error({ problem: error.message }, 'server error');
  const port = await listen(server, host, canaryPort, '--canary-port', onError);
  signal.addEventListener('abort', () => server.close(), { once: true });
  return { port, identity, every: canaryEvery };
}

async function startPolicies({ settings, logger, metrics, world, signal }: Running): Promise<void> {
  const take = (documents: Documents) => {
    world.apply({ kind: 'documents', documents });
    countDocuments(documents, metrics);
  };
  if (settings.policies === undefined) return take(NO_DOCUMENTS);
  // Reading policies takes a YAML parser and the schemas, 15 MB that a server without policies does without.
  const { readPolicyFiles } = await import('../sources/policy-files.ts');
  const { watchPolicyFiles } = await import('../sources/policy-watch.ts');
  const path = settings.policies;
  const snapshot = await readPolicyFiles(path);
  take(snapshot.parse());
  const events = {
    onChange: (documents: Documents) => {
      take(documents);
      metrics.policyReloads.inc({ result: 'success' });
      logger.info({ path }, 'policies reloaded');
    },
    onError: (error: Error) => {
      metrics.policyReloads.inc({ result: 'failure' });
      metrics.policyReloadSuccessful.set(0);
      logger.error(
        { path, problem: error.message },
        'policies not reloaded; the last good ones stay in force',
      );
    },
  };
  void watchPolicyFiles(path, snapshot.hash, events, signal);
}

function countDocuments(documents: Documents, metrics: Metrics): void {
  metrics.policyReloadSuccessful.set(1);
  metrics.policyLastSuccess.setToCurrentTime();
  metrics.policyDocuments.set({ kind: 'ClusterTerminationPolicy' }, documents.clusterPolicies.length);
  metrics.policyDocuments.set({ kind: 'TerminationPolicy' }, documents.policies.length);
  metrics.policyDocuments.set({ kind: 'DiscoveryConsumer' }, documents.consumers.length);
  metrics.policyDocuments.set({ kind: 'Namespace' }, documents.namespaces.length);
  metrics.policyDocuments.set({ kind: 'Service' }, documents.services.length);
}

function startCertificates(
  { certificates, logger, metrics, signal }: Running,
  use: (pair: { cert: string; key: string }) => void,
): void {
  const showExpiry = () => metrics.certificateExpiry.set(certificates.get().notAfter.getTime() / 1000);
  showExpiry();
  void watchCertificates(certificates, {
    signal,
    clock: () => new Date(),
    onChange: (certificate) => {
      // New handshakes get the new pair; open connections keep theirs.
      use(certificate);
      showExpiry();
      metrics.certificateReloads.inc({ result: 'success' });
      logger.info(
        { notAfter: certificate.notAfter, origin: certificate.origin },
        'serving certificate replaced',
      );
    },
    onFailure: (error) => {
      metrics.certificateReloads.inc({ result: 'failure' });
      logger.error(
        { problem: error.message },
        'serving certificate not replaced; the last good one keeps serving',
      );
    },
  });
}
