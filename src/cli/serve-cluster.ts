import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { ClusterAudit, TerminationLog, TerminationReview } from '../audit/index.ts';
import type { CertificateSource, SigningKeys } from '../certs/index.ts';
import {
  DeadWatches,
  type KubeConnection,
  type KubeFailure,
  ObjectEvents,
  type ObjectIdentity,
  registerWatchMetrics,
} from '../cluster/index.ts';
import { fewOf } from '../core/api/index.ts';
import { defaultWait, type SnapshotChange, type SnapshotHolder } from '../core/decision/index.ts';
import { HEARTBEAT_STREAMS } from '../core/lag/index.ts';
import {
  Delivery,
  type DeliverySettings,
  type HoldSettings,
  NodeShutdowns,
  type Release,
  startHold,
} from '../hold/index.ts';
import {
  CLUSTER_TERMINATION_POLICIES,
  type ClusterSource,
  type CustomKind,
  type CustomObjects,
  customKey,
  DISCOVERY_CONSUMERS,
  followCluster,
  followCustomResources,
  TERMINATION_POLICIES,
} from '../informers/index.ts';
import {
  BUILT_IN_POLICY_NAME,
  createBuiltInPolicy,
  effectOf,
  followPublished,
  type Place,
  type PublishingOptions,
  policyStatuses,
  registerPublishMetrics,
  startPublishing,
} from '../leader/index.ts';
import type { Leadership, Manager, Runnable } from '../manager/index.ts';
import {
  type CanarySettings,
  ConsumerViews,
  Deregistrations,
  Measurement,
  measureConsumers,
  registerCanaryMetrics,
  registerConsumerMetrics,
  registerLagMetrics,
  sendHeartbeats,
  startCanary,
  startInspecting,
  versionsOf,
} from '../measurement/index.ts';
import { type Logger, LogOnce, type Metrics } from '../telemetry/index.ts';
import { pause, tick } from '../timing/index.ts';
import { type connectionsThatFit, estimatesPage, takeReports } from '../webhook/index.ts';
import type { Settings } from './commands.ts';

/** What the parts of a running server share. */
export interface ServerContext {
  readonly settings: Settings<'serve'>;
  readonly manager: Manager;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly snapshot: SnapshotHolder;
  /** Puts policies into force in steps, between which reviews are answered; resolves once they are in force. */
  readonly changePolicies: (event: SnapshotChange) => Promise<void>;
  /** How many connections fit into this process's file descriptors. */
  readonly fitting: Awaited<ReturnType<typeof connectionsThatFit>>;
  /** Aborts when the server ends; everything that goes on in the background listens to it. */
  readonly signal: AbortSignal;
}

export interface ClusterContext extends ServerContext {
  readonly connection: KubeConnection;
  readonly certificates: CertificateSource;
  /** Where replicas share what they measure; undefined: this one is alone. */
  readonly place: Place | undefined;
  /** undefined: there is no canary. */
  readonly canary: CanarySettings | undefined;
  /** undefined: no pod gets hook Hold. */
  readonly hold: (DeliverySettings & HoldSettings) | undefined;
  /** Signs the cursors of reports. */
  readonly reportKeys: () => SigningKeys;
}

/** Monotonic milliseconds. */
const clock = () => performance.now();
/** A wall clock that never steps: setting the system clock while the process runs must not shift the history. */
const epochSeconds = () => (performance.timeOrigin + clock()) / 1000;

/** Logs what happens to list-watches; `what` is the kind of objects, as the API’s plural. */
function watchReporting(logger: Logger) {
  const once = new LogOnce(logger);
  return {
    onFailure: (what: string, { reason, message }: KubeFailure, pauseMs: number) => {
      const members = { what, reason, problem: message, pauseMs: Math.round(pauseMs) };
      once.warn(what, members, 'watch failed; the last known state stays in force');
    },
    onCurrent: (what: string) => once.over(what, { what }, 'watch recovered'),
    onLeftOut: (what: string, { namespace, name }: ObjectIdentity, cause: 'NoRoom' | 'ForeignTargets') => {
      const [key, members] = [`${cause} ${what} of ${namespace}`, { what, namespace, name }];
      if (cause === 'NoRoom')
        once.warn(key, members, 'object too large, or too many in its namespace; treated as unknown');
      else once.warn(key, members, 'endpoints target pods of another namespace; these targets are ignored');
    },
    onHandlerError: (what: string, err: Error) => {
      logger.error({ what, err }, 'cluster event dropped; this is a bug in Linger');
    },
  };
}

function reportingOf(what: string, logger: Logger) {
  const { onFailure, onCurrent, onHandlerError } = watchReporting(logger);
  return {
    onFailure: onFailure.bind(undefined, what),
    onCurrent: onCurrent.bind(undefined, what),
    onHandlerError: onHandlerError.bind(undefined, what),
  };
}

/** Follows policies and consumers of the cluster into the snapshot, and logs what cannot be used. */
function followDeclared(context: ClusterContext) {
  const { snapshot, changePolicies } = context;
  const consumers = followKind(DISCOVERY_CONSUMERS, context, (values) =>
    snapshot.apply({ kind: 'consumers', consumers: values }),
  );
  const clusterPolicies = followKind(CLUSTER_TERMINATION_POLICIES, context, (values) =>
    changePolicies({ kind: 'clusterPolicies', clusterPolicies: values }),
  );
  const policies = followKind(TERMINATION_POLICIES, context, (values) =>
    changePolicies({ kind: 'policies', policies: values }),
  );
  const kinds: Readonly<Record<string, CustomObjects<unknown>>> = {
    discoveryconsumers: consumers,
    clusterterminationpolicies: clusterPolicies,
    terminationpolicies: policies,
  };
  const followed = () => Object.entries(kinds).filter(([, objects]) => objects.served() !== false);
  return {
    consumers,
    clusterPolicies,
    policies,
    /** What of policies and consumers is invalid, and what applies instead. */
    problems: () =>
      Object.entries(kinds).flatMap(([plural, { objects, leftOut }]) => [
        ...objects()
          .filter(({ problem }) => problem !== undefined)
          .map((object) => `${customKey(object)}: ${object.problem}; ${effectOf(object)}`),
        ...(leftOut().length === 0 ? [] : [`no room for these ${plural}: ${fewOf(leftOut())}`]),
      ]),
    /** How many of each kind are invalid, or have no room. */
    refused: () =>
      Object.fromEntries(
        followed().map(([plural, { objects, leftOut }]) => [
          plural,
          objects().filter(({ problem }) => problem !== undefined).length + leftOut().length,
        ]),
      ),
    /** Resolves once the API server has answered for each kind, be it with a refusal. */
    read: Promise.all(Object.values(kinds).map(({ read }) => read)),
    /** Without kinds that are not served. One that may not be read is there, so that alerts fire. */
    watches: () => Object.fromEntries(followed().map(([name, { stats }]) => [name, stats])),
  };
}

function followKind<T>(
  kind: CustomKind<T>,
  { connection, logger, signal }: ClusterContext,
  onValues: (values: readonly T[]) => Promise<void> | void,
): CustomObjects<T> {
  const of = { kind: kind.kind };
  let wasAbsent = false;
  const handlers = {
    onValues,
    onProblem: (name: string, problem: string | undefined) => {
      if (problem === undefined) logger.info({ ...of, name }, 'rejected object was fixed or deleted');
      else logger.warn({ ...of, name, problem }, 'object rejected');
    },
    onServed: (served: boolean) => {
      if (!served) logger.info(of, 'CRD not installed; only objects from files count');
      else if (wasAbsent) logger.info(of, 'CRD installed; its objects count');
      wasAbsent = !served;
    },
    ...reportingOf(kind.path.slice(kind.path.lastIndexOf('/') + 1), logger),
  };
  const options = { signal, clock, random: Math.random };
  return followCustomResources(kind, connection, handlers, options);
}

/** Also for a replica that is alone, which then leads. */
type Shared = Pick<PublishingOptions, 'consumers' | 'statuses' | 'shortfalls' | 'address' | 'ready'> & {
  readonly measurement: Measurement;
};

interface Sharing {
  /** Whether the stored state has been read, or waited for long enough. */
  readonly warm: () => boolean;
  readonly runnable: Runnable;
  /** The leader’s address for relayed connections; undefined: not known. */
  readonly leader: () => string | undefined;
  /** Hands over the lead; resolves once that is done or cannot be done, within 15 s. */
  readonly leave: () => Promise<void>;
}

/** After this, a replica becomes ready without the stored state, and answers with `initial`. */
const WARM_WITHIN_MS = 5_000;

/**
 * Linger's own namespace: the flag's, or that of the ServiceAccount. A kubeconfig's namespace is a person's, and a server
 * that a person tries out must not become the cluster's leader.
 */
export function placeOf(
  settings: Readonly<Record<'namespace' | 'identity' | 'kubeconfig', string | undefined>>,
  connection: KubeConnection,
): Place | undefined {
  const own = settings.kubeconfig === undefined ? connection.namespace : undefined;
  const namespace = settings.namespace ?? own;
  return namespace === undefined ? undefined : { namespace, identity: settings.identity ?? hostname() };
}

function startSharing(context: ClusterContext, shared: Shared): Sharing {
  const { place, logger } = context;
  if (place !== undefined) return shareIn(place, context, shared);
  logger.info('own namespace unknown; measuring alone, sharing nothing with other replicas');
  const run = async (signal: AbortSignal) => {
    while (await tick(ALONE_EVERY_MS, signal)) await shared.measurement.replan(epochSeconds());
  };
  const runnable = { name: 'publishing', run };
  return { warm: () => true, runnable, leader: () => undefined, leave: () => Promise.resolve() };
}

const ALONE_EVERY_MS = 5_000;

function shareIn({ namespace, identity }: Place, context: ClusterContext, shared: Shared): Sharing {
  const { connection, manager, logger, signal } = context;
  const leaving = new AbortController();
  const publishing = startPublishing({
    connection,
    namespace,
    identity,
    ...shared,
    onLeading: manager.lead,
    logger,
    time: { clock, random: Math.random, pause: tick, wallMicroseconds: () => Date.now() * 1000 },
    epochSeconds,
    signal: AbortSignal.any([signal, leaving.signal]),
  });
  const handlers = { onObject: publishing.saw, ...reportingOf('configmaps', logger) };
  const options = { signal, clock, random: Math.random };
  const published = followPublished(connection, namespace, handlers, options);
  let warm = false;
  const read = Promise.all([published.read, publishing.restored]);
  void Promise.race([read, pause(WARM_WITHIN_MS, signal)]).then(() => {
    warm = true;
  });
  return {
    warm: () => warm,
    runnable: {
      name: 'publishing',
      metrics: (registry) => registerPublishMetrics(registry, publishing.status),
      watches: () => ({ configmaps: published.stats }),
    },
    leader: () => publishing.status.address,
    leave: () => {
      leaving.abort();
      return publishing.ended;
    },
  };
}

/** What is unknown because it is too large or its namespace has no room left. */
function unreadProblems(
  unread: ReturnType<ClusterSource['unread']>,
  removals: Measurement['leftOut'],
): readonly string[] {
  return Object.entries({ ...unread, removals }).flatMap(([plural, namespaces]) =>
    namespaces.size === 0
      ? []
      : [
          `${plural} too large to keep, or without room in their namespace, unknown, in: ${fewOf([...namespaces.keys()])}`,
        ],
  );
}

export type ClusterPart = ReturnType<typeof startCluster>;

/** Follows the cluster and measures its lag, from now on until the signal aborts: snapshots, metrics and log lines follow. */
export function startCluster(context: ClusterContext) {
  const { connection, manager, snapshot, metrics, place, settings, certificates, logger, signal } = context;
  const { registry } = metrics;
  const random = Math.random;
  const source = followCluster(
    connection,
    {
      onSnapshot: (event) => snapshot.apply(event),
      onEvent: manager.event,
      onPod: manager.pod,
      ...watchReporting(logger),
    },
    { signal, clock, random, namespace: place?.namespace, endpoints: settings.endpoints },
  );
  const declared = followDeclared(context);
  const delivery = deliveryOf(context);
  if (place !== undefined && context.hold === undefined)
    snapshot.apply({ kind: 'hold', hold: { why: 'Hold is off (--hold-port=0)' } });
  const sync = followSync(source, Promise.all([declared.read, delivery?.read]), context);
  const synced = () => sync.state === 'synced';
  const wait = () => defaultWait(snapshot.current());

  const once = new LogOnce(logger);
  const measurement = new Measurement(
    { clock, epochSeconds },
    {
      heartbeats: place !== undefined,
      asked: () => snapshot.current().policies.thresholds,
      onListenerError: manager.listenerFailed('measurement'),
      onLeftOut: ({ namespace, name }) =>
        once.warn(
          namespace,
          { namespace, name },
          'too many removals in one namespace at once; the excess gives no samples',
        ),
      trusted: place?.namespace,
      onUpkeep: (maintained) => {
        if (maintained) logger.info('Endpoints are maintained again; measurements include them');
        else logger.warn('no controller maintains Endpoints; measurements ignore them');
      },
    },
  );
  measurement.onLags((lags) => snapshot.apply({ kind: 'lags', lags }));
  const { consumers } = measurement;
  const views = new ConsumerViews(consumers);
  const consumerMetrics = registerConsumerMetrics(registry, { views: () => views.all, epochSeconds });
  consumers.onSample(({ consumer, direction, lag }) => {
    if (direction === 'removal') consumerMetrics.removal(consumer, lag);
  });
  const events = new ObjectEvents({
    ...{ connection, logger, clock, signal },
    identity: place?.identity ?? hostname(),
  });
  const inspecting = startInspecting({
    ...{ ...context, clock, random, events, measurement: consumers },
    ...{ allowLinkLocal: settings.probeAllowLinkLocal, files: settings.inspectFiles },
    namespace: place?.namespace ?? 'default',
  });
  measurement.onRemoval((sample) => inspecting.inspection.removed(sample));
  const deregistrations = new Deregistrations({
    ...{ connection, snapshot, measurement: consumers, events, registry, logger, clock, random, signal },
    ...{ allowLinkLocal: settings.probeAllowLinkLocal, files: settings.inspectFiles },
    onConnect: (address) => inspecting.inspection.connected(address),
  });

  const log = new TerminationLog(randomBytes(6).toString('base64url'));
  const sharing = startSharing(context, {
    measurement,
    shortfalls: log,
    consumers: {
      views: () => views.all,
      hold: () => snapshot.current().hold,
      since: views.since.bind(views),
      targets: declared.consumers.objects,
    },
    statuses: policyStatuses({
      snapshot: () => snapshot.current(),
      clusterPolicies: declared.clusterPolicies.objects,
      policies: declared.policies.objects,
      pods: source.pods,
      shadowed: () => snapshot.shadowedPolicies(),
      clock,
      epochSeconds,
    }),
    address: context.hold?.relay.address,
    ready: () => sync.state !== 'reading',
  });

  const { pods, endpointslices, endpoints } = source.watches;
  const reported = manager.listeners<[consumer: string]>('reports');
  const reports = takeReports({
    ...context,
    ...{ audience: settings.reportsAudience, keys: context.reportKeys },
    consumers: () => snapshot.current().measured,
    measurement: consumers,
    newest: () => versionsOf(endpointslices.version, endpoints?.version),
    clock,
    onSynced: reported.call,
  });
  const released = manager.listeners<[Release]>('hold');
  const shuttingDown = manager.listeners<[uid: string, budget: number | undefined]>('node-shutdown');
  const { deleteOnNodeShutdown: deletes, auditEvery: every, policyReports } = settings;
  const nodeShutdowns = new NodeShutdowns({
    ...{ connection, logger, clock, random, deletes },
    onPod: shuttingDown.call,
  });
  // Without a Lease, replicas could not agree on which of them holds pods.
  const hold =
    place &&
    context.hold &&
    startHold({
      ...{ connection, measurement, events, registry, logger, clock, signal },
      ...{ inspecting: inspecting.inspection, deregistrations },
      ...context.hold,
      snapshot: snapshot.current,
      current: () =>
        sync.state !== 'reading' && pods.current && endpointslices.current && endpoints?.current !== false,
      reports: reports.taken,
      leader: sharing.leader,
      nodeBudgetOf: nodeShutdowns.budgetOf,
      onRelease: released.call,
    });
  if (hold !== undefined) {
    reported.add(hold.heard);
    shuttingDown.add(hold.nodeShutsDown);
  }
  const review = new TerminationReview({
    ...{ log, connection, registry, logger, events, clock, epochSeconds, signal },
    leadsSince: manager.leadsSince,
    snapshot: snapshot.current,
    listed: (pod) => measurement.listing(pod).length > 0,
    held: (uid) => hold?.pod(uid),
  });
  released.add((release) => void review.released(release));
  measurement.onRemoval((sample) => void review.removed(sample));
  const audit = new ClusterAudit({
    ...{ connection, registry, logger, events, clock, epochSeconds, random, synced },
    settings: {
      ...{ every, policyReports, configuration: settings.webhookConfiguration },
      configured: () => certificates.configured?.(),
    },
    snapshot: snapshot.current,
    consumers: () => views.all,
    pods: source.pods,
    barePods: source.barePods,
  });
  const canary = canaryOf(context, measurement, inspecting.inspection, declared.read);
  const consumerMeasuring = measureConsumers({
    ...{ snapshot, measurement, views, logger, epochSeconds },
    declared: declared.consumers,
    metrics: consumerMetrics,
  });

  manager.add(
    {
      name: 'cluster',
      watches: () => source.watches,
      metrics: () =>
        registerWatchMetrics(registry, {
          ...{ watches: manager.watches, unread: source.unread, refused: declared.refused },
          ...{ synced, clock },
        }),
    },
    { name: 'declared', watches: declared.watches },
    // Before the measurement, so that gateways are asked about a pod before its removal has ended.
    inspecting.runnable,
    // Before Hold, which waits for it.
    deregistrations.runnable,
    // Before Hold, which forgets a pod once it is gone; the review asks Hold about it first.
    { name: 'termination review', onPod: (event) => review.pod(event) },
    hold?.runnable,
    place && (deletes || hold !== undefined) ? nodeShutdowns : undefined,
    {
      name: 'measurement',
      onEvent: (event) => measurement.apply(event),
      metrics: () => measurement.onSample(registerLagMetrics(registry, measurement, wait)),
    },
    canary,
    consumerMeasuring,
    ...reports.runnables,
    ...(delivery?.runnables ?? []),
    { name: 'audit', lead: (leadership) => audit.lead(leadership) },
    place && builtInPolicy(place, context, declared.clusterPolicies),
    place && heartbeats(place, context, measurement),
    sharing.runnable,
  );
  // Nothing is shared with others that could lead.
  if (place === undefined) manager.lead({ signal, holds: () => !signal.aborted });

  const deadWatches = new DeadWatches();
  const reading = () => sync.state === 'reading' || !sharing.warm();
  return {
    dead: () => {
      const names = deadWatches.look(manager.watches(), clock());
      if (names.length === 0) return undefined;
      logger.error(
        { watches: names },
        'watches have stalled, failing the liveness probe; this is a bug in Linger',
      );
      return `watches have stalled: ${names.join(', ')}`;
    },
    unready: () => (reading() ? 'the cluster is being read' : undefined),
    problems: () => [...declared.problems(), ...unreadProblems(source.unread(), measurement.leftOut)],
    /** What `/estimates` shows. */
    estimates: () =>
      estimatesPage({
        measurement,
        consumers: views.all,
        watches: manager.watches(),
        synced: synced(),
        defaultWait: wait(),
        clock,
      }),
    /** Answers what comes to `/v1`: reports of consumers. */
    reports: reports.listener,
    hold,
    /** Hands over the lead, if this replica has it; resolves within 15 s. */
    leave: () => Promise.all([sharing.leave(), manager.idle()]),
  };
}

function builtInPolicy(
  place: Place,
  { connection, snapshot, logger }: ClusterContext,
  declared: CustomObjects<unknown>,
): Runnable {
  // An object would take the place of a file's policy of its name; an unserved kind has no objects, and takes none.
  const wanted = () =>
    declared.served() === true &&
    declared.objects().length === 0 &&
    !snapshot.current().policies.cluster.some(({ name }) => name === BUILT_IN_POLICY_NAME);
  const time = { clock, random: Math.random, pause: tick };
  const lead = (leadership: Leadership) =>
    createBuiltInPolicy(leadership, { connection, place, wanted, logger, ...time });
  return { name: 'built-in policy', lead };
}

function heartbeats(
  place: Place,
  { connection, manager, settings: { endpoints }, logger }: ClusterContext,
  measurement: Measurement,
): Runnable {
  const streams = HEARTBEAT_STREAMS.filter((stream) => stream !== 'Endpoints' || endpoints !== 'Ignore');
  const wanted = measurement.wantsHeartbeat.bind(measurement);
  const onWritten = measurement.heartbeatWritten.bind(measurement);
  const time = { clock, random: Math.random, pause: tick };
  const run = (signal: AbortSignal) =>
    sendHeartbeats({
      ...{ connection, place, streams, leads: manager.leads, wanted, onWritten, logger, signal },
      ...time,
    });
  return { name: 'heartbeats', run };
}

/** @returns undefined where replicas share nothing: then there is no Service to take one out of */
function canaryOf(
  { connection, place, canary, snapshot, metrics, logger }: ClusterContext,
  measurement: Measurement,
  inspection: ReturnType<typeof startInspecting>['inspection'],
  declared: Promise<unknown>,
): Runnable | undefined {
  if (place === undefined || canary === undefined) return undefined;
  const present = () => snapshot.current().measured;
  const count = registerCanaryMetrics(metrics.registry, present);
  const { namespace } = place;
  const running = startCanary({
    ...canary,
    connection,
    namespace,
    present,
    measurement,
    // The probed gateway may itself be held: these connections are not traffic.
    onProbe: (address) => inspection.connected(address),
    logger,
    count,
    clock,
  });
  const lead = async (leadership: Leadership) => {
    // Declared consumers may replace the built-in ones, which should not be timed until that is known.
    await Promise.race([declared, pause(DECLARED_WITHIN_MS, leadership.signal)]);
    await running.lead?.(leadership);
  };
  return { ...running, lead };
}

const DECLARED_WITHIN_MS = 30_000;

/** @returns undefined where replicas share nothing: then there is no Service that helpers could call */
function deliveryOf(context: ClusterContext): Delivery | undefined {
  const { place, hold, metrics, logger } = context;
  if (place === undefined || hold === undefined) return undefined;
  const reporting = { ...reportingOf('holdconfigmaps', logger), registry: metrics.registry };
  const time = { clock, random: Math.random, pause: tick };
  return new Delivery({ ...context, ...reporting, ...time, place, settings: hold });
}

/** `late`: reading takes too long, so reviews are answered with what is known. */
function followSync(
  source: ClusterSource,
  declared: Promise<unknown>,
  { settings: { syncTimeout }, logger, signal }: ClusterContext,
) {
  const sync: { state: 'reading' | 'late' | 'synced' } = { state: 'reading' };
  const begun = clock();
  const seconds = () => Math.round((clock() - begun) / 100) / 10;
  void Promise.all([source.synced, declared]).then(() => {
    sync.state = 'synced';
    const { namespaces, services, nodes } = source.watches;
    const read = { namespaces: namespaces.objects, services: services.objects, nodes: nodes.objects };
    logger.info({ seconds: seconds(), ...read }, 'initial sync done');
  });
  void pause(syncTimeout * 1000, signal).then((elapsed) => {
    if (!elapsed || sync.state === 'synced') return;
    sync.state = 'late';
    logger.warn({ seconds: seconds() }, 'initial sync timed out; serving anyway and retrying');
  });
  return sync;
}
