import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import { Counter, type Registry } from '@prometheus-io/client';
import type { SigningKeys } from '../certs/index.ts';
import { AccessReviews, type KubeConnection, PodLabels } from '../cluster/index.ts';
import type { ReportResult } from '../core/api/index.ts';
import type { Consumer, InstancesState, StageVersions } from '../core/lag/index.ts';
import { labelLeader, type Place } from '../leader/index.ts';
import type { Leadership, PodEvent, Runnable } from '../manager/index.ts';
import { type ConsumerMeasurement, ConsumerReports } from '../measurement/index.ts';
import { counterAtScrape, gaugeAtScrape, type Logger, LogOnce, type Metrics } from '../telemetry/index.ts';
import { tick } from '../timing/index.ts';
import { ReviewingJudge } from './report-access.ts';
import type { ReportsOptions } from './report-endpoint.ts';

/**
 * Registers the metrics of reports.
 * @param readings by consumer; empty on a replica that does not lead
 * @returns what counts a report
 */
export function registerReportMetrics(
  registry: Registry,
  readings: () => readonly (readonly [consumer: string, state: InstancesState, lost: number])[],
): (consumer: string, result: ReportResult) => void {
  const reports = new Counter({
    name: 'linger_reports_total',
    help: 'Reports of consumers’ instances, by result; the consumer is empty where none has that name.',
    labelNames: ['consumer', 'result'] as const,
    registers: [registry],
  });
  gaugeAtScrape(registry, {
    name: 'linger_report_instances',
    help: 'Instances that report and have not fallen silent; only on the leader.',
    labelNames: ['consumer'],
    read: () => readings().map(([consumer, { live }]) => [{ consumer }, live] as const),
  });
  gaugeAtScrape(registry, {
    name: 'linger_report_interval_seconds',
    help: 'Between two syncs of an instance, as reported: the median, and the longest of the last eight.',
    labelNames: ['consumer', 'which'],
    read: () =>
      readings().flatMap(([consumer, { interval = {} }]) =>
        Object.entries(interval).map(([which, seconds]) => [{ consumer, which }, seconds] as const),
      ),
  });
  counterAtScrape(registry, {
    name: 'linger_report_instants_lost_total',
    help: 'Instants for which there is no lag because an instance did not apply them; only on the leader, since it leads.',
    labelNames: ['consumer'],
    read: () => readings().map(([consumer, , lost]) => [{ consumer }, lost] as const),
  });
  return (consumer, result) => reports.inc({ consumer, result });
}

interface ReportTakingContext {
  readonly connection: KubeConnection;
  /** undefined: this replica is alone, and has no pod to be found by. */
  readonly place: Place | undefined;
  readonly consumers: () => readonly Consumer[];
  readonly measurement: ConsumerMeasurement;
  readonly audience: string;
  /** What cursors are signed with: the same in all replicas. */
  readonly keys: () => SigningKeys;
  /** The newest resourceVersions that this replica has seen. */
  readonly newest: () => StageVersions;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'registry'>;
  readonly clock: () => number;
  /** An instance of the consumer has said what it has applied. */
  readonly onSynced?: ((consumer: string) => void) | undefined;
  readonly signal: AbortSignal;
}

interface ReportTaking {
  readonly runnables: readonly Runnable[];
  /** What has been reported, and since when; undefined where this replica does not lead. */
  readonly taken: () => { readonly taken: ConsumerReports; readonly since: number } | undefined;
  /** Answers everything under `/v1`. */
  readonly listener: RequestListener;
}

/** How soon the silence of an instance shows. */
const TICK_MS = 1_000;
/** A review takes milliseconds; a gateway's client gives up after seconds. */
const REVIEW_MS = 3_000;
const REVIEW_CONNECTIONS = 4;
const LABEL_REQUEST_MS = 5_000;

export function takeReports(context: ReportTakingContext): ReportTaking {
  const { connection, place, consumers, measurement, keys, newest, logger, metrics, clock, onSynced } =
    context;
  let taken:
    | { readonly reports: ConsumerReports; readonly leadership: Leadership; readonly since: number }
    | undefined;
  const count = registerReportMetrics(metrics.registry, () => [...(taken?.reports.instances() ?? [])]);
  const listener = lazily({
    taker: () => (taken?.leadership.holds() ? taken.reports : undefined),
    measureOf: (wanted) => consumers().find(({ name }) => name === wanted)?.measure.kind,
    judge: judge(context),
    count,
    clock,
    logger,
  });

  const take = async (leadership: Leadership) => {
    const onLag = (consumer: string, lag: number) =>
      measurement.record({ consumer, direction: 'removal', lag });
    const reports = new ConsumerReports({ keys, newest, clock, onLag, onSynced });
    taken = { reports, leadership, since: clock() };
    do {
      const reported = consumers().filter(({ measure }) => measure.kind === 'reports');
      reports.keep(new Set(reported.map(({ name }) => name)));
      for (const [name, state] of reports.states()) measurement.report(name, state);
    } while (await tick(TICK_MS, leadership.signal));
    if (taken.reports === reports) taken = undefined;
  };

  const label = async (leadership: Leadership) => {
    if (place === undefined) return;
    const { namespace, identity } = place;
    const pods = new PodLabels({ connection, namespace, requestMs: LABEL_REQUEST_MS });
    await labelLeader(leadership, { pods, identity, logger, clock, random: Math.random, pause: tick });
  };
  const onPod = (event: PodEvent) => {
    if (event.type === 'deleted') taken?.reports.gone(event.identity.uid);
  };
  return {
    runnables: [
      { name: 'reports', onPod, lead: take },
      { name: 'leader label', lead: label },
    ],
    taken: () => (taken?.leadership.holds() ? { taken: taken.reports, since: taken.since } : undefined),
    listener,
  };
}

function judge({ connection, audience, clock, logger, signal }: ReportTakingContext): ReviewingJudge {
  const limits = { requestMs: REVIEW_MS, connections: REVIEW_CONNECTIONS };
  const once = new LogOnce(logger);
  return new ReviewingJudge({
    reviews: new AccessReviews({ connection, ...limits, signal }),
    audience,
    clock,
    onFailure: (thrown) =>
      once.warn(
        'reports',
        { problem: String(thrown) },
        'token review failed; reports are refused until it works',
      ),
    onSuccess: () => once.over('reports', {}, 'token review recovered; reports are accepted'),
  });
}

/** Loaded with the first report: it needs a schema library, which most servers never use. */
function lazily(options: ReportsOptions): RequestListener {
  let app: Promise<RequestListener> | undefined;
  return (request: IncomingMessage, response: ServerResponse) => {
    app ??= import('./report-endpoint.ts').then(({ reportsApp }) => reportsApp(options));
    app.then(
      (answer) => answer(request, response),
      (error: unknown) => {
        options.logger.error({ err: error }, 'internal error while answering a report; answered with 500');
        response.writeHead(500, { Connection: 'close' }).end();
      },
    );
  };
}
