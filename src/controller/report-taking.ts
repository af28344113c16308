import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Consumer } from '../core/consumers/consumer.ts';
import { AccessReviews } from '../kube/access-reviews.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { ConsumerMeasurement } from '../measure/consumers.ts';
import { ConsumerReports } from '../measure/reports.ts';
import { labelLeader } from '../publish/leader-label.ts';
import type { Lead } from '../publish/leadership.ts';
import type { ReportsOptions } from '../serve/reports/app.ts';
import { ReviewingJudge } from '../serve/reports/verdicts.ts';
import { pause } from '../sources/pause.ts';
import { PodLabels } from '../sources/pod-labels.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { registerReportMetrics } from '../telemetry/report-metrics.ts';
import type { Place } from './sharing.ts';

export interface ReportTakingContext {
  readonly connection: KubeConnection;
  /** undefined: this replica is alone, and has no pod to be found by. */
  readonly place: Place | undefined;
  readonly consumers: () => readonly Consumer[];
  readonly measurement: ConsumerMeasurement;
  /** Whom tokens must have been made for. */
  readonly audience: string;
  readonly logger: Logger;
  readonly metrics: Pick<Metrics, 'registry'>;
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

/** Takes the reports of consumers' instances while this replica leads. */
export interface ReportTaking {
  /** To be called whenever this replica leads. */
  readonly lead: (lead: Lead) => void;
  /** Answers everything under `/v1`. */
  readonly listener: RequestListener;
  /** Resolves once the signal has aborted and nothing goes on any more. */
  readonly ended: () => Promise<unknown>;
}

/** How soon a silence shows, and how often states are told. */
const TICK_MS = 1_000;
/** A review takes milliseconds; a gateway's client gives up after seconds. */
const REVIEW_MS = 3_000;
const REVIEW_CONNECTIONS = 4;
const LABEL_REQUEST_MS = 5_000;

export function takeReports(context: ReportTakingContext): ReportTaking {
  const { measurement, consumers, metrics, clock, signal, place } = context;
  let taken: { readonly reports: ConsumerReports; readonly lead: Lead } | undefined;
  const count = registerReportMetrics(metrics.registry, () => readings(taken?.reports));
  const known = named(consumers);
  const listener = lazily({
    taker: () => (taken?.lead.holds() ? taken.reports : undefined),
    measureOf: (name) => known().get(name)?.measure.kind,
    judge: judge(context),
    count,
    clock,
    logger: context.logger,
  });

  const take = async (lead: Lead) => {
    const onLag = (consumer: string, lag: number) =>
      measurement.record({ consumer, direction: 'removal', lag });
    const reports = new ConsumerReports({ clock, onLag });
    taken = { reports, lead };
    do {
      reports.keep(reportedAmong(known().values()));
      for (const [name, state] of reports.states()) measurement.report(name, state);
    } while (await pause(TICK_MS, lead.signal));
    if (taken.reports === reports) taken = undefined;
  };

  const label = place === undefined ? undefined : labelling(place, context);
  let ended: Promise<unknown> = Promise.resolve();
  return {
    // One lead after the other: the end of one must not undo what the next has begun.
    lead: (lead) => {
      ended = Promise.all([ended.then(() => label?.(lead)), take(lead)]);
    },
    listener,
    ended: async () => {
      if (!signal.aborted) await new Promise((resolve) => signal.addEventListener('abort', resolve));
      await ended;
    },
  };
}

function judge({ connection, audience, clock, logger, signal }: ReportTakingContext): ReviewingJudge {
  const connections = REVIEW_CONNECTIONS;
  const reviews = new AccessReviews({ connection, requestMs: REVIEW_MS, connections, signal });
  let failing = false;
  const told = (problem: string) => {
    if (!failing) logger.warn({ problem }, 'reports cannot be checked for now, and are not taken');
    failing = true;
  };
  const succeeding = <T>(value: T): T => {
    if (failing) logger.info('reports are checked again');
    failing = false;
    return value;
  };
  return new ReviewingJudge({
    reviews: {
      userOf: async (token, whom) => succeeding(await reviews.userOf(token, whom)),
      isAllowed: async (user, access) => succeeding(await reviews.isAllowed(user, access)),
    },
    audience,
    clock,
    onFailure: (thrown) => told(String(thrown)),
  });
}

/** Labels this replica's pod for as long as a lead lasts. */
function labelling(
  { namespace, identity }: Place,
  { connection, logger, clock }: ReportTakingContext,
): (lead: Lead) => Promise<void> {
  return async (lead) => {
    const pods = new PodLabels({ connection, namespace, requestMs: LABEL_REQUEST_MS });
    await labelLeader(lead, { pods, identity, logger, clock, random: Math.random, pause });
    pods.close();
  };
}

/** What answers reports takes a schema library, which a server without such gateways does without. */
function lazily(options: ReportsOptions): RequestListener {
  let app: Promise<RequestListener> | undefined;
  return (request: IncomingMessage, response: ServerResponse) => {
    app ??= import('../serve/reports/app.ts').then(({ reportsApp }) => reportsApp(options));
    app.then(
      (answer) => answer(request, response),
      (error: unknown) => {
        options.logger.error({ err: error }, 'report failed');
        response.writeHead(500, { Connection: 'close' }).end();
      },
    );
  };
}

/** Consumers by name, looked up anew only when they have changed. */
function named(consumers: () => readonly Consumer[]): () => ReadonlyMap<string, Consumer> {
  let of: readonly Consumer[] | undefined;
  let names: ReadonlyMap<string, Consumer> = new Map();
  return () => {
    const present = consumers();
    if (present !== of) names = new Map(present.map((consumer) => [consumer.name, consumer]));
    of = present;
    return names;
  };
}

function reportedAmong(consumers: Iterable<Consumer>): ReadonlySet<string> {
  const names = new Set<string>();
  for (const { name, measure } of consumers) if (measure.kind === 'reports') names.add(name);
  return names;
}

function* readings(reports: ConsumerReports | undefined) {
  for (const [name, { live, interval }, lost] of reports?.instances() ?? [])
    yield [name, { live, interval, lost }] as const;
}
