import type { RequestListener } from 'node:http';
import { hostname } from 'node:os';
import {
  CLUSTER_TERMINATION_POLICIES,
  type ClusterHandlers,
  type ClusterSource,
  type CustomKind,
  type CustomObjects,
  DISCOVERY_CONSUMERS,
  followCluster,
  followCustomResources,
  type KubeConnection,
  type KubeFailure,
  registerWatchMetrics,
  TERMINATION_POLICIES,
  type WatchStats,
} from '../cluster/index.ts';
import { defaultWait, type WorldHolder } from '../decision/index.ts';
import type { Consumer, LagSource } from '../lag/index.ts';
import {
  followPublished,
  type Lead,
  type Place,
  type PublishedConsumers,
  registerPublishMetrics,
  startPublishing,
} from '../leader/index.ts';
import {
  type CanarySettings,
  ConsumerViews,
  Measurement,
  measureConsumers,
  type RunningCanary,
  registerCanaryMetrics,
  registerConsumerMetrics,
  registerLagMetrics,
  stampStreams,
  startCanary,
  versionsOf,
} from '../measurement/index.ts';
import { type Logger, LogOnce, type Metrics } from '../telemetry/index.ts';
import { pause } from '../timing/index.ts';
import { estimatesPage, takeReports } from '../webhook/index.ts';

/** What list-watches meet, for the log; each call names the kind of objects, as the API's plural. */
interface WatchReporting {
  onFailure(what: string, failure: KubeFailure, pauseMs: number): void;
  onCurrent(what: string): void;
  onHandlerError(what: string, error: Error): void;
}

function watchReporting(logger: Logger): WatchReporting {
  const once = new LogOnce(logger);
  return {
    onFailure: (what, { reason, message }, pauseMs) => {
      const members = { what, reason, problem: message, pauseMs: Math.round(pauseMs) };
      once.warn(what, members, 'the cluster cannot be followed for now; what is known stays in force');
    },
    onCurrent: (what) => once.over(what, { what }, 'the cluster is followed again'),
    onHandlerError: (what, err) => {
      logger.error({ what, err }, 'an event of the cluster was left out: a mistake in Linger');
    },
  };
}

/** The same for one kind of objects. */
function reportingOf(what: string, logger: Logger) {
  const { onFailure, onCurrent, onHandlerError } = watchReporting(logger);
  return {
    onFailure: (failure: KubeFailure, pauseMs: number) => onFailure(what, failure, pauseMs),
    onCurrent: () => onCurrent(what),
    onHandlerError: (error: Error) => onHandlerError(what, error),
  };
}

export interface DeclaredContext {
  readonly connection: KubeConnection;
  readonly world: Pick<WorldHolder, 'apply'>;
  readonly logger: Logger;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

/** What the cluster declares in Linger's own kinds. */
export interface Declared {
  readonly consumers: CustomObjects<Consumer>;
  /** Resolves once the API server has given an answer for each kind: its objects, or that there are none for us. */
  readonly read: Promise<unknown>;
  /** Of the kinds that are served: a kind that is not is not followed, and no watch that should be current. */
  readonly watches: () => Readonly<Record<string, WatchStats>>;
  readonly ended: Promise<unknown>;
}

/** Follows policies and consumers of the cluster into the world; log lines say what cannot be used. */
export function followDeclared(context: DeclaredContext): Declared {
  const { world } = context;
  const consumers = followKind(DISCOVERY_CONSUMERS, context, (values) =>
    world.apply({ kind: 'consumers', consumers: values }),
  );
  const clusterPolicies = followKind(CLUSTER_TERMINATION_POLICIES, context, (values) =>
    world.apply({ kind: 'clusterPolicies', clusterPolicies: values }),
  );
  const policies = followKind(TERMINATION_POLICIES, context, (values) =>
    world.apply({ kind: 'policies', policies: values }),
  );
  const kinds: Readonly<Record<string, CustomObjects<unknown>>> = {
    discoveryconsumers: consumers,
    clusterterminationpolicies: clusterPolicies,
    terminationpolicies: policies,
  };
  const served = () => Object.entries(kinds).filter(([, objects]) => objects.served());
  return {
    consumers,
    read: Promise.all(Object.values(kinds).map(({ read }) => read)),
    watches: () => Object.fromEntries(served().map(([name, { stats }]) => [name, stats])),
    ended: Promise.all(Object.values(kinds).map(({ ended }) => ended)),
  };
}

function followKind<T>(
  kind: CustomKind<T>,
  { connection, logger, clock, signal }: DeclaredContext,
  onValues: (values: readonly T[]) => void,
): CustomObjects<T> {
  const of = { kind: kind.kind };
  let wasAbsent = false;
  return followCustomResources(
    kind,
    connection,
    {
      onValues,
      onProblem: (name, problem) => {
        if (problem === undefined) logger.info({ ...of, name }, 'an object can be used again, or is gone');
        else
          logger.warn(
            { ...of, name, problem },
            'an object cannot be used; its last good spec stays in force',
          );
      },
      onServed: (served) => {
        if (!served)
          logger.info(of, 'a kind is not served here: objects of files count, until its CRD is installed');
        else if (wasAbsent) logger.info(of, 'a kind is served now');
        wasAbsent = !served;
      },
      ...reportingOf(kind.path.slice(kind.path.lastIndexOf('/') + 1), logger),
    },
    { signal, clock, random: Math.random },
  );
}

export interface SharingContext {
  readonly connection: KubeConnection;
  /** undefined: this replica is alone. */
  readonly place: Place | undefined;
  readonly measurement: Measurement;
  /** What the leader publishes of consumers. */
  readonly consumers: PublishedConsumers;
  /** Called with the lags in force whenever they have changed. */
  readonly onLags: (lags: LagSource) => void;
  /** Called whenever this replica is the one to measure what only one may: when it leads, or is alone. */
  readonly onLeading: (lead: Lead) => void;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'registry'>;
  readonly clock: () => number;
  readonly epochSeconds: () => number;
  readonly signal: AbortSignal;
}

/** Where the lags in force come from. */
export interface Sharing {
  /** Whether what is stored has been read, or has been waited for for long enough. */
  readonly warm: () => boolean;
  readonly watches: Readonly<Record<string, WatchStats>>;
  /** Hands the lead over; resolves once that is done, or cannot be: within 15 s. */
  readonly leave: () => Promise<void>;
  /** Resolves once the signal has aborted and nothing goes on any more. */
  readonly ended: Promise<unknown>;
}

/** How long a replica stays unready without having read what is stored; after that it answers with `initial`. */
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

/** Shares what is measured with the other replicas, or goes by what this one alone measures. */
export function startSharing(context: SharingContext): Sharing {
  const { place, signal, logger } = context;
  if (place !== undefined) return shareIn(place, context);
  logger.info('no namespace of our own: waits follow what this replica alone measures');
  context.onLeading({ signal, holds: () => !signal.aborted });
  return { warm: () => true, watches: {}, leave: () => Promise.resolve(), ended: planAlone(context) };
}

/** Between two computations of the lags by a replica that is alone. */
const ALONE_EVERY_MS = 5_000;

async function planAlone({ measurement, epochSeconds, onLags, signal }: SharingContext): Promise<void> {
  while (await pause(ALONE_EVERY_MS, signal)) {
    const before = measurement.table;
    if ((await measurement.replan(epochSeconds())) !== before) onLags(measurement.lags());
  }
}

function shareIn({ namespace, identity }: Place, context: SharingContext): Sharing {
  const { connection, measurement, consumers, onLags, onLeading, logger, metrics } = context;
  const { clock, epochSeconds, signal } = context;
  const leaving = new AbortController();
  const publishing = startPublishing({
    connection,
    namespace,
    identity,
    measurement: {
      get table() {
        return measurement.table;
      },
      next: (table, now) => measurement.next(table, now),
      adopt: (table) => {
        measurement.adopt(table);
        onLags(measurement.lags());
      },
      parts: (now) => measurement.parts(now),
      restorePart: (json, now) => measurement.restorePart(json, now),
      forget: (span, scope) => measurement.forget(span, scope),
    },
    logger,
    time: { clock, random: Math.random, pause, wallMicroseconds: () => Date.now() * 1000 },
    epochSeconds,
    consumers,
    onLeading,
    signal: AbortSignal.any([signal, leaving.signal]),
  });
  registerPublishMetrics(metrics.registry, publishing.status);
  const handlers = { onPublished: publishing.saw, ...reportingOf('configmaps', logger) };
  const published = followPublished(connection, namespace, handlers, { signal, clock, random: Math.random });

  let warm = false;
  const read = Promise.all([published.read, publishing.restored]);
  void Promise.race([read, pause(WARM_WITHIN_MS, signal)]).then(() => {
    warm = true;
  });
  return {
    warm: () => warm,
    watches: { configmaps: published.stats },
    leave: () => {
      leaving.abort();
      return publishing.ended;
    },
    ended: Promise.all([publishing.ended, published.ended]),
  };
}

/** What the connection to a cluster shares with the rest of a running server. */
export interface ClusterContext {
  readonly connection: KubeConnection;
  /** Seconds. */
  readonly syncTimeout: number;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'registry'>;
  readonly world: WorldHolder;
  /** Where replicas share what they measure; undefined: this one is alone. */
  readonly place: Place | undefined;
  /** undefined: there is no canary. */
  readonly canary: CanarySettings | undefined;
  /** What tokens of reports must have been made for, and what cursors are signed with. */
  readonly reports: { readonly audience: string; readonly key: Buffer };
  readonly signal: AbortSignal;
}

/** A server's connection to its cluster. */
export interface ClusterPart {
  /** Why the webhook should get no connections yet; undefined when it should. */
  readonly unready: () => string | undefined;
  /** What `/estimates` shows. */
  readonly estimates: () => unknown;
  /** Answers what comes to `/v1`: reports of consumers. */
  readonly reports: RequestListener;
  /** Gives the lead away, if this replica has it; resolves once that is done, or cannot be. */
  readonly leave: () => Promise<unknown>;
  /** Resolves once the signal has aborted and nothing goes on any more. */
  readonly ended: Promise<unknown>;
}

const clock = () => performance.now();
/** A wall clock that never steps: one that is set while the process lives moves no slice of the history. */
const epochSeconds = () => (performance.timeOrigin + clock()) / 1000;

/** Follows the cluster and measures its lag, from now on until the signal aborts: worlds, metrics and log lines follow. */
export function startCluster(context: ClusterContext): ClusterPart {
  const { connection, world, metrics, signal } = context;
  const measurement = new Measurement(
    { clock, epochSeconds },
    { stamps: context.place !== undefined, asked: () => world.current().policies.thresholds },
  );
  const canary = canaryOf(context, measurement);
  const handlers: ClusterHandlers = {
    onWorld: (event) => world.apply(event),
    onEvent: (event) => {
      measurement.apply(event);
      canary?.observe(event);
    },
    ...watchReporting(context.logger),
  };
  const source = followCluster(connection, handlers, {
    signal,
    clock,
    random: Math.random,
    namespace: context.place?.namespace,
  });
  const declared = followDeclared({ ...context, clock });
  const sync = followSync(source, declared, context);

  const wait = () => defaultWait(world.current());
  const synced = () => sync.state === 'synced';
  const onLags = (lags: ReturnType<Measurement['lags']>) => world.apply({ kind: 'lags', lags });
  const views = new ConsumerViews(measurement.consumers);
  const consumerMetrics = registerConsumerMetrics(metrics.registry, { views: () => views.all, epochSeconds });
  measurement.consumers.onSample(({ consumer, direction, lag }) => {
    if (direction === 'removal') consumerMetrics.removal(consumer, lag);
  });
  const shown = { declared: declared.consumers, views, metrics: consumerMetrics, epochSeconds };
  const measuring = measureConsumers({ ...context, measurement, canary, ...shown });
  const consumers = () => world.current().consumers;
  const { endpointslices, endpoints } = source.watches;
  const newest = () => versionsOf(endpointslices.version, endpoints.version);
  const reports = takeReports({
    ...context,
    ...context.reports,
    ...{ consumers, measurement: measurement.consumers, newest, clock },
  });
  let leads = () => false;
  const onLeading = (lead: Lead) => {
    measuring.lead(lead);
    reports.lead(lead);
    leads = () => lead.holds();
  };
  const sharing = startSharing({
    ...context,
    measurement,
    consumers: {
      views: () => views.all,
      since: views.since.bind(views),
      targets: declared.consumers.objects,
    },
    onLags,
    onLeading,
    clock,
    epochSeconds,
  });
  const watches = () => ({ ...source.watches, ...sharing.watches, ...declared.watches() });
  registerWatchMetrics(metrics.registry, { watches, synced, clock });
  const count = registerLagMetrics(metrics.registry, measurement, wait);
  measurement.onSample(count);

  const { place, logger } = context;
  const wanted = measurement.wantsStamp.bind(measurement);
  const random = Math.random;
  const stamping =
    place &&
    stampStreams({ connection, place, leads: () => leads(), wanted, signal, logger, clock, random, pause });

  const reading = () => sync.state === 'reading' || !sharing.warm();
  return {
    unready: () => (reading() ? 'the cluster is being read' : undefined),
    estimates: () =>
      estimatesPage({
        measurement,
        consumers: views.all,
        watches: watches(),
        synced: synced(),
        defaultWait: wait(),
        clock,
      }),
    reports: reports.listener,
    leave: () => Promise.all([sharing.leave(), measuring.left()]),
    ended: Promise.all([
      stamping,
      source.ended,
      declared.ended,
      sharing.ended,
      measuring.ended,
      reports.ended(),
    ]),
  };
}

/** @returns undefined where replicas share nothing: then there is no Service to take one out of */
function canaryOf(
  { connection, place, canary, world, metrics, logger }: ClusterContext,
  measurement: Measurement,
): RunningCanary | undefined {
  const count = registerCanaryMetrics(metrics.registry);
  if (place === undefined || canary === undefined) return undefined;
  const present = () => world.current().consumers;
  const { namespace } = place;
  return startCanary({ ...canary, connection, namespace, present, measurement, logger, count, clock });
}

/** `late`: it takes too long to wait for; reviews are answered with what is known. */
interface Sync {
  readonly state: 'reading' | 'late' | 'synced';
}

function followSync(
  source: ClusterSource,
  declared: Pick<Declared, 'read'>,
  { syncTimeout, logger, signal }: ClusterContext,
): Sync {
  const sync: { state: Sync['state'] } = { state: 'reading' };
  const begun = clock();
  const seconds = () => Math.round((clock() - begun) / 100) / 10;
  void Promise.all([source.synced, declared.read]).then(() => {
    sync.state = 'synced';
    const { namespaces, services, nodes } = source.watches;
    const objects = {
      namespaces: namespaces.objects,
      services: services.objects,
      nodes: nodes.objects,
    };
    logger.info({ seconds: seconds(), ...objects }, 'the cluster has been read');
  });
  void pause(syncTimeout * 1000, signal).then((elapsed) => {
    if (!elapsed || sync.state === 'synced') return;
    sync.state = 'late';
    logger.warn({ seconds: seconds() }, 'ready without having read the cluster; it goes on being tried');
  });
  return sync;
}
