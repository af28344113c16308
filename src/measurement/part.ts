import type { SigningKeys } from '../certs/index.ts';
import { defaultWait } from '../core/decision/index.ts';
import { type EndpointsChoice, HEARTBEAT_STREAMS } from '../core/lag/index.ts';
import { clusterPart, declaredPart } from '../informers/index.ts';
import { type Leadership, type PartContext, part } from '../manager/index.ts';
import { LogOnce } from '../telemetry/index.ts';
import { pause, tick } from '../timing/index.ts';
import type { CanarySettings } from './canary/canary.ts';
import { registerCanaryMetrics, startCanary } from './canary/canary-run.ts';
import { ConsumerViews } from './consumer-views.ts';
import { Deregistrations } from './deregister/deregister.ts';
import { sendHeartbeats } from './heartbeats.ts';
import { startInspecting } from './inspect/inspect-run.ts';
import { inspectedInstances } from './inspect/inspected-instances.ts';
import { consumerInstances } from './instances.ts';
import { registerConsumerMetrics, registerLagMetrics } from './lag-metrics.ts';
import { measureConsumers } from './measured-consumers.ts';
import { Measurement } from './measurement.ts';
import { takeReports } from './reports/report-taking.ts';
import { reportingInstances } from './reports/reporting-instances.ts';
import { versionsOf } from './reports/reports.ts';

/**
 * The recorder of removals and the estimates. Events of endpoints come from the cluster's watches, samples of consumers from
 * the parts below.
 */
export const measurementPart = part({
  name: 'measurement',
  needs: {},
  start(_, { place, snapshot, manager, registry, logger, clock, epochSeconds }: PartContext<unknown>) {
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
    const wait = () => defaultWait(snapshot.current());
    return {
      provides: measurement,
      runnables: [
        {
          name: 'measurement',
          onEvent: (event) => measurement.apply(event),
          metrics: () => measurement.onSample(registerLagMetrics(registry, measurement, wait)),
        },
      ],
    };
  },
});

interface PageOptions {
  /** Whether pages and probes may use link-local addresses and cloud metadata. */
  readonly probeAllowLinkLocal: boolean;
  /** The folder with the files that consumers may refer to; undefined: they may refer to none. */
  readonly inspectFiles: string | undefined;
}

/** Asks instances of consumers what they still send to. It must see an event before the measurement ends the removal. */
export const inspectionPart = part({
  name: 'inspection',
  needs: { measurement: measurementPart },
  start({ measurement }, context: PartContext<PageOptions>) {
    const { options, place, registry } = context;
    const { inspection, runnable } = startInspecting({
      ...context,
      metrics: { registry },
      measurement: measurement.consumers,
      allowLinkLocal: options.probeAllowLinkLocal,
      files: options.inspectFiles,
      namespace: place?.namespace ?? 'default',
    });
    measurement.onRemoval((sample) => inspection.removed(sample));
    return { provides: inspection, runnables: [runnable] };
  },
});

/** Removes terminating pods from the registries of consumers. */
export const deregistrationPart = part({
  name: 'deregistration',
  needs: { measurement: measurementPart, inspection: inspectionPart },
  start({ measurement, inspection }, context: PartContext<PageOptions>) {
    const deregistrations = new Deregistrations({
      ...context,
      measurement: measurement.consumers,
      allowLinkLocal: context.options.probeAllowLinkLocal,
      files: context.options.inspectFiles,
      onConnect: (address) => inspection.connected(address),
    });
    return { provides: deregistrations, runnables: [deregistrations.runnable] };
  },
});

interface ReportOptions {
  /** The keys that sign the cursors of reports; the same in all replicas. */
  readonly reportKeys: () => SigningKeys;
}

/** Takes reports of consumers' instances. */
export const reportsPart = part({
  name: 'reports',
  needs: { cluster: clusterPart, measurement: measurementPart },
  start({ cluster, measurement }, context: PartContext<ReportOptions>) {
    const { snapshot, manager, registry, clock, options } = context;
    const { endpointslices, endpoints } = cluster.watches;
    const synced = manager.listeners<[consumer: string]>('reports');
    const { runnable, taken, count } = takeReports({
      consumers: () => snapshot.current().measured,
      measurement: measurement.consumers,
      keys: options.reportKeys,
      newest: () => versionsOf(endpointslices.version, endpoints?.version),
      registry,
      clock,
      onSynced: synced.call,
    });
    return {
      provides: {
        taken,
        count,
        /** Called when an instance of a consumer has reported what it has applied. */
        onSynced: synced.add,
      },
      runnables: [runnable],
    };
  },
});

/** What the instances of consumers acknowledge about held pods. */
export const instancesPart = part({
  name: 'instances',
  needs: { inspection: inspectionPart, reports: reportsPart },
  start: ({ inspection, reports }) => ({
    provides: consumerInstances({
      inspection: inspectedInstances(inspection),
      reports: reportingInstances(reports.taken),
    }),
  }),
});

/** The canary, which removes a replica from a Service of Linger's own. Needs replicas that share one. */
export const canaryPart = part({
  name: 'canary',
  needs: { declared: declaredPart, measurement: measurementPart, inspection: inspectionPart },
  start(
    { declared, measurement, inspection },
    context: PartContext<{ readonly canary: CanarySettings | undefined }>,
  ) {
    const { options, connection, place, snapshot, registry, logger, clock } = context;
    if (place === undefined || options.canary === undefined) return { provides: undefined };
    const present = () => snapshot.current().measured;
    const running = startCanary({
      ...options.canary,
      connection,
      namespace: place.namespace,
      present,
      measurement,
      // The probed gateway may itself be a held pod, and these connections are not traffic.
      onProbe: (address) => inspection.connected(address),
      logger,
      flips: registerCanaryMetrics(registry, present),
      clock,
    });
    const lead = async (leadership: Leadership) => {
      // Declared consumers may replace built-in ones, which must not be timed before that is known.
      await Promise.race([declared.read, pause(DECLARED_WITHIN_MS, leadership.signal)]);
      await running.lead?.(leadership);
    };
    return { provides: undefined, runnables: [{ ...running, lead }] };
  },
});

const DECLARED_WITHIN_MS = 30_000;

/** The current consumers, and what the leader knows of them. */
export const consumersPart = part({
  name: 'consumers',
  needs: { declared: declaredPart, measurement: measurementPart },
  start({ declared, measurement }, { snapshot, registry, logger, epochSeconds }: PartContext<unknown>) {
    const { consumers } = measurement;
    const views = new ConsumerViews(consumers);
    const metrics = registerConsumerMetrics(registry, { views: () => views.all, epochSeconds });
    consumers.onSample(({ consumer, direction, lag }) => {
      if (direction === 'removal') metrics.removal(consumer, lag);
    });
    const runnable = measureConsumers({
      snapshot,
      measurement,
      declared: declared.consumers,
      views,
      metrics,
      logger,
      epochSeconds,
    });
    return { provides: views, runnables: [runnable] };
  },
});

/** Writes heartbeats to objects of Linger's own, which show every replica how late its streams are. */
export const heartbeatsPart = part({
  name: 'heartbeats',
  needs: { measurement: measurementPart },
  start({ measurement }, context: PartContext<{ readonly endpoints: EndpointsChoice }>) {
    const { options, connection, place, manager, logger, clock, random } = context;
    if (place === undefined) return { provides: undefined };
    const streams = HEARTBEAT_STREAMS.filter(
      (stream) => stream !== 'Endpoints' || options.endpoints !== 'Ignore',
    );
    const run = (signal: AbortSignal) =>
      sendHeartbeats({
        connection,
        place,
        streams,
        leads: manager.leads,
        wanted: (life, silentMs) => measurement.wantsHeartbeat(life, silentMs),
        onWritten: (life, stream, acknowledged) => measurement.heartbeatWritten(life, stream, acknowledged),
        logger,
        clock,
        random,
        pause: tick,
        signal,
      });
    return { provides: undefined, runnables: [{ name: 'heartbeats', run }] };
  },
});
