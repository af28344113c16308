import { hkdfSync, randomBytes, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { isIP, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SigningKeys } from '../certs/index.ts';
import { type CertificateSource, FileSource } from '../certs/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import { asError, LingerError } from '../core/api/index.ts';
import { NO_DOCUMENTS, newSnapshotHolder, type SnapshotHolder } from '../core/decision/index.ts';
import type { PolicyState } from '../core/manifest/index.ts';
import { fileText } from '../core/yaml/index.ts';
import { Manager } from '../manager/index.ts';
import type { CanarySettings } from '../measurement/index.ts';
import { followPolicyFiles } from '../policy-files/index.ts';
import {
  createMetrics,
  type Logger,
  logToStandardOutput,
  type Metrics,
  reportLoopTime,
  stepsOnLoop,
} from '../telemetry/index.ts';
import { inPieces, serialize, tick } from '../timing/index.ts';
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
import type { Settings } from './commands.ts';
import { usageError } from './flags.ts';
import type { ClusterPart, ServerContext } from './serve-cluster.ts';
import type { Surroundings } from './terminal.ts';

/** Reloading policies is not urgent, so reviews get their turn after each of these pieces. */
const PIECE_MS = 1;

/** An AdmissionReview recorded from a real API server, in this checkout. */
const EXAMPLE = 'docs/examples/review.json';

/**
 * For a person who has just started Linger on their machine: that it runs, and a line to paste.
 * @param ownAuthority whether the certificate is of Linger's own making, and so not trusted yet
 */
export function greeting(
  { host, port, adminPort, certs }: Pick<Settings<'serve'>, 'host' | 'port' | 'adminPort' | 'certs'>,
  ownAuthority: boolean,
  page?: string,
): string {
  const trust = ownAuthority ? `--cacert ${quoted(join(certs, 'ca.crt'))} ` : '';
  const decode = `node -pe 'r = JSON.parse(fs.readFileSync(0)).response; r.patch ? atob(r.patch) : r'`;
  return [
    '',
    ...(page === undefined
      ? []
      : ['See which pods would wait, and why. Open in a browser:', '', `  ${page}`, '']),
    `Linger answers on https://${name(host)}:${port}/mutate`,
    `Readiness and metrics: http://${name(host)}:${adminPort}/readyz and /metrics`,
    '',
    'A Pod as a real API server sends it goes in, the patch comes out. In another terminal:',
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

function name(host: string): string {
  if (isUnspecified(host)) return 'localhost';
  return host.includes(':') ? `[${host}]` : host;
}

/** Servers cut their connections a little before this. */
const CLOSING_MS = 4_500;

/** By the shell's convention a process ended by signal N exits with 128 + N. */
const EXIT_CODE = { SIGINT: 130, SIGTERM: 143 } as const;

/**
 * SIGTERM asks to drain; SIGINT (a person at a terminal) and any second signal end the process at once.
 * @returns `requested` resolves at the first SIGTERM, `forced` with the exit code; `release` stops listening
 */
function listenForShutdown() {
  const requested = Promise.withResolvers<void>();
  const forced = Promise.withResolvers<number>();
  let terminating = false;
  const onTerminate = () => {
    if (terminating) forced.resolve(EXIT_CODE.SIGTERM);
    terminating = true;
    requested.resolve();
  };
  const onInterrupt = () => forced.resolve(EXIT_CODE.SIGINT);
  process.on('SIGTERM', onTerminate).on('SIGINT', onInterrupt);
  const release = () => process.off('SIGTERM', onTerminate).off('SIGINT', onInterrupt);
  return { requested: requested.promise, forced: forced.promise, release };
}

/**
 * SIGUSR2 switches the log to debug and back, so that a replica can be examined without restarting it. (SIGUSR1 opens Node’s
 * inspector.)
 * @returns a function that stops listening
 */
function listenForLogLevel(logger: Logger, configured: Settings<'serve'>['logLevel']): () => void {
  const other = configured === 'debug' ? 'info' : 'debug';
  const onSignal = () => {
    logger.level = logger.level === configured ? other : configured;
    logger.info({ logLevel: logger.level }, 'log level changed');
  };
  process.on('SIGUSR2', onSignal);
  return () => process.off('SIGUSR2', onSignal);
}

interface Running extends ServerContext {
  readonly certificates: CertificateSource;
  readonly cluster: ClusterPart | undefined;
  readonly policyProblems: () => readonly string[];
}

/** `linger serve`: answers admission reviews until SIGTERM. */
export async function serve(settings: Settings<'serve'>, surroundings: Surroundings): Promise<number> {
  const ending = new AbortController();
  const shutdown = listenForShutdown();
  const { logger, end: endLog } = logToStandardOutput(settings.logLevel);
  const forgetLogLevel = listenForLogLevel(logger, settings.logLevel);
  try {
    const snapshot = newSnapshotHolder(settings.modeLimit);
    const sayShadowed = shadowReporting(snapshot, logger);
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
    const time = { clock: () => performance.now(), random: Math.random };
    const server: ServerContext = {
      settings,
      logger,
      metrics,
      fitting,
      manager: new Manager({ registry, logger, ...time, signal: ending.signal }),
      snapshot,
      changePolicies: serialize(async (event) => {
        await inPieces(stepsOnLoop('policies', snapshot.applying(event)), () => performance.now(), PIECE_MS);
        sayShadowed();
      }),
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

async function begin(server: ServerContext, surroundings: Surroundings): Promise<Running> {
  const { certs: directory, certsSecret, certNames, host } = server.settings;
  const connection = await connectionOf(server, surroundings);
  // The certificate must also cover the listening address, unless that is a wildcard.
  const names = isUnspecified(host) ? certNames : [...certNames, host];
  const certificates =
    certsSecret === undefined
      ? await FileSource.open({ directory, names }, new Date())
      : await openSecret(certsSecret, names, connection, server);
  const policyProblems = await startPolicies(server);
  const cluster = connection && (await startCluster(server, certificates, connection));
  return { ...server, certificates, cluster, policyProblems };
}

const SHADOWED_SAID = 10;

/** @returns a function that logs which policies of files are overridden, whenever that has changed */
function shadowReporting(snapshot: SnapshotHolder, logger: Logger): () => void {
  let said = '';
  return () => {
    const hidden = snapshot.shadowedPolicies();
    if (hidden.join() === said) return;
    said = hidden.join();
    const members = { policies: hidden.slice(0, SHADOWED_SAID), count: hidden.length };
    if (hidden.length > 0) logger.warn(members, 'policies from files overridden by objects of the same name');
  };
}

function isUnspecified(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

async function readClientCa(file: string): Promise<string> {
  try {
    const text = fileText(await readFile(file));
    for (const [certificate] of text.matchAll(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g))
      if (new X509Certificate(certificate).ca) return text;
  } catch (cause) {
    throw usageError(`--client-ca: ${file} cannot be read: ${asError(cause).message}`);
  }
  throw usageError(`--client-ca: ${file} holds no certificate of an authority`);
}

async function answerUntilShutdown(
  running: Running,
  { version, kube, print }: Surroundings,
  shutdown: ReturnType<typeof listenForShutdown>,
  onListening: () => void,
): Promise<number> {
  const { settings, logger, metrics, manager, snapshot, certificates, cluster, policyProblems, fitting } =
    running;
  let draining = false;
  const clientCa = settings.clientCa === undefined ? undefined : await readClientCa(settings.clientCa);
  const app = admissionApp({
    snapshot: snapshot.current,
    clientCertificates: clientCa !== undefined,
    auditWarnings: settings.auditWarnings,
    closesConnection: () => draining || Math.random() < settings.connectionCloseProbability,
    reports: cluster?.reports,
    metrics: new AdmissionMetrics(metrics.registry),
    logger,
  });
  const unready = () => {
    if (draining) return 'draining';
    return certificates.unready(new Date()) ?? cluster?.unready();
  };
  const webhook = webhookServer(app, certificates.get(), clientCa, fitting.reviews);
  const nothingToShow = cluster === undefined && settings.policies === undefined;
  const estimates = () => ({
    policyProblems: [...policyProblems(), ...(cluster?.problems() ?? [])],
    ...(cluster?.estimates() as object),
  });
  const hold = cluster?.hold;
  const pages = { estimates: nothingToShow ? undefined : estimates, holds: hold?.list };
  const admin = adminServer(adminApp({ unready, dead: cluster?.dead, metrics, ...pages }));
  manager.add(
    {
      name: 'certificates',
      // New handshakes get the new pair; open connections keep theirs.
      watches: () => certificates.watches?.() ?? {},
      run: () => certificates.follow((pair) => webhook.setSecureContext(tlsOptions(pair, clientCa)), running),
    },
    { name: 'admin', close: () => close(admin) },
    { name: 'webhook', close: () => close(webhook) },
  );
  manager.start();

  const onError = (error: Error) => logger.error({ problem: error.message }, 'accepting connections failed');
  const port = await listen(webhook, settings.host, settings.port, '--port', onError);
  onListening();
  const adminPort = await listen(admin, settings.host, settings.adminPort, '--admin-port', onError);
  if (hold !== undefined) await listen(hold.server, settings.host, settings.holdPort, '--hold-port', onError);
  logger.info({ host: settings.host, port, adminPort, version }, 'listening');
  const openPlayground = async (pagePort: number) => {
    const { playground } = await import('./playground.ts');
    const { server, address } = await playground(version, pagePort, onError);
    manager.add({ name: 'page', close: () => close(server) });
    return address;
  };
  const page = settings.pagePort === undefined ? undefined : await openPlayground(settings.pagePort);
  // For a terminal only; in a cluster it would be noise in the log.
  const ownAuthority = !['provided', 'shared'].includes(certificates.get().origin);
  if (kube.service.host === undefined)
    print(`${greeting({ ...settings, port, adminPort }, ownAuthority, page)}\n`);

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
    // Must end before the pod’s grace does, whatever stalls.
    const closed = Promise.all([manager.close(), left]);
    await Promise.race([closed, sleep(CLOSING_MS, undefined, { ref: false })]);
    logger.info('stopped');
    return 0;
  };
  return Promise.race([drain(), shutdown.forced]);
}

/** @returns undefined without a cluster: then none of what it takes is loaded */
async function connectionOf(
  { settings, logger }: ServerContext,
  { kube }: Surroundings,
): Promise<KubeConnection | undefined> {
  if (settings.cluster === 'off') return undefined;
  const { connect } = await import('./connect.ts');
  const connection = await connect(settings, kube);
  if ('none' in connection) {
    // To be expected outside of a cluster.
    if (kube.service.host !== undefined)
      logger.info(
        { why: connection.none },
        'no cluster credentials; running without a cluster, measuring nothing',
      );
    return undefined;
  }
  logger.info({ server: connection.server.href }, 'watching the cluster');
  return connection;
}

/** @throws LingerError `settings-invalid`, CertificateError */
async function openSecret(
  secret: string,
  names: readonly string[],
  connection: KubeConnection | undefined,
  { settings, logger, metrics, signal }: ServerContext,
): Promise<CertificateSource> {
  const { placeOf } = await import('./serve-cluster.ts');
  const place = connection && placeOf(settings, connection);
  if (connection === undefined || place === undefined)
    throw usageError("--certs-secret: expected a cluster, and Linger's own --namespace in it, got none");
  const { webhookConfiguration: configuration, syncTimeout } = settings;
  const { SecretSource } = await import('../certs/index.ts');
  const openWithinMs = syncTimeout * 1000;
  const what = { connection, ...place, secret, configuration, names };
  return SecretSource.open({ ...what, logger, metrics, openWithinMs, signal });
}

async function startCluster(
  server: ServerContext,
  certificates: CertificateSource,
  connection: KubeConnection,
): Promise<ClusterPart> {
  const { settings } = server;
  const { placeOf, startCluster: start } = await import('./serve-cluster.ts');
  const place = placeOf(settings, connection);
  // Every replica answers the canary's requests; only the leader sends them.
  const canary = place && (await listenForCanary(server));
  // The same in all replicas, so each can verify what another has signed.
  const keysFor = (what: string) => {
    const derived = (key: string) => Buffer.from(hkdfSync('sha256', key, '', what, 32));
    let latest: { readonly from: CertificateSource['commonKeys']; readonly keys: SigningKeys } | undefined;
    return () => {
      const from = certificates.commonKeys;
      const [newest, ...older] = from;
      if (latest?.from !== from) latest = { from, keys: [derived(newest), ...older.map(derived)] };
      return latest.keys;
    };
  };
  const { holdPort, holdAddress: address, holdImage: image, holdTestImage: testImage } = settings;
  const relay = { address: relayAddress(settings), keys: keysFor('linger.dev/hold: relays') };
  const hold = { port: holdPort, address, image, testImage, relay, connections: server.fitting.holds };
  return start({
    ...server,
    ...{ connection, certificates, place, canary },
    hold: holdPort === 0 ? undefined : hold,
    reportKeys: keysFor('linger.dev/reports: cursors'),
  });
}

/** Where other replicas reach this one's Hold Service. */
function relayAddress({ host, podIp, holdPort }: Settings<'serve'>): string {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const first = all.find(({ internal, scopeid }) => !internal && !scopeid)?.address ?? '127.0.0.1';
  const address = podIp ?? (isIP(host) === 0 || isUnspecified(host) ? first : host);
  return isIPv6(address) ? `[${address}]:${holdPort}` : `${address}:${holdPort}`;
}

async function listenForCanary({
  settings,
  logger,
  signal,
}: ServerContext): Promise<CanarySettings | undefined> {
  const { host, canaryPort, canaryEvery, probeAllowLinkLocal: allowLinkLocal } = settings;
  if (canaryEvery === 0) return undefined;
  const identity = randomBytes(16).toString('hex');
  const server = canaryServer(identity);
  const onError = (error: Error) => logger.error({ problem: error.message }, 'accepting connections failed');
  const port = await listen(server, host, canaryPort, '--canary-port', onError);
  signal.addEventListener('abort', () => server.close(), { once: true });
  return { port, identity, every: canaryEvery, allowLinkLocal };
}

/**
 * Follows the policy files; with `--strict`, throws their first problem.
 * @returns what is wrong with them at the moment
 */
async function startPolicies({ settings, logger, metrics, changePolicies, signal }: ServerContext) {
  const path = settings.policies;
  let problems: PolicyState['problems'] = [];
  const take = async (state: PolicyState) => {
    await changePolicies({ kind: 'documents', documents: state.documents });
    const known = new Set(problems.map(({ message }) => message));
    for (const { message: problem } of state.problems) {
      if (known.has(problem)) continue;
      if (state.unknown)
        logger.error(
          { path, problem },
          'policies unreadable; every pod is kept in Audit until they can be read',
        );
      else logger.error({ path, problem }, 'policy document rejected; its last good version stays in force');
    }
    problems = state.problems;
    showPolicies(state, metrics);
  };
  const onChange = async (state: PolicyState) => {
    await take(state);
    metrics.policyReloads.inc({ result: state.problems.length === 0 ? 'success' : 'failure' });
    logger.info({ path, problems: problems.length }, 'policies reloaded');
  };
  const first =
    path === undefined
      ? { documents: NO_DOCUMENTS, problems, unknown: false }
      : await followPolicyFiles(path, onChange, signal);
  const [problem] = first.problems;
  if (settings.strict && problem !== undefined) throw new LingerError(problem.code, problem.message);
  await take(first);
  return () => problems.map(({ message }) => message);
}

function showPolicies({ documents, problems, unknown }: PolicyState, metrics: Metrics): void {
  metrics.policyReloadSuccessful.set(problems.length === 0 ? 1 : 0);
  metrics.policyProblems.set(problems.length);
  if (problems.length === 0) metrics.policyLastSuccess.setToCurrentTime();
  const counts = {
    // Not the operator’s: the policy that keeps pods in Audit while theirs are unknown.
    ClusterTerminationPolicy: documents.clusterPolicies.length - (unknown ? 1 : 0),
    TerminationPolicy: documents.policies.length,
    DiscoveryConsumer: documents.consumers.length,
    Namespace: documents.namespaces.length,
    Service: documents.services.length,
  };
  for (const [kind, count] of Object.entries(counts)) metrics.policyDocuments.set({ kind }, count);
}
