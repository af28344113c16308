import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import express, { type ErrorRequestHandler } from 'express';
import {
  CURSOR_HEADER,
  FOREIGN_LIMITS,
  jsonIn,
  REPORT_RESULTS,
  type ReportRequest,
  type ReportResult,
  reportRequest,
  reportsOpenApi,
  setNewest,
} from '../core/api/index.ts';
import type { InstanceName } from '../core/lag/index.ts';
import { type ConsumerReports, type ReportAnswer, versionsOf } from '../measurement/index.ts';
import type { Logger } from '../telemetry/index.ts';
import { RateLimit } from '../timing/index.ts';
import { BodyError, readBody } from './body.ts';
import { answerJson } from './json-response.ts';
import type { Judge } from './report-access.ts';

/** The results that are answered with a status other than 200. */
export type RefusedReport = Exclude<ReportResult, 'Asked' | 'Synced'>;

/** Retry-After for refusals that another time or another replica may resolve. Seconds. */
const RETRY_AFTER: Partial<Record<ReportResult, number>> = {
  TooManyReports: 1,
  TooManyInstances: 60,
  NotLeader: 2,
  NoVerdict: 2,
};

/** A client can provoke these at no cost, so their answers are delayed. */
const COSTLY: ReadonlySet<RefusedReport> = new Set<RefusedReport>([
  'InvalidReport',
  'NoToken',
  'TokenRefused',
  'NotAllowed',
  'NoSuchConsumer',
  'NotByReports',
  'TooManyReports',
  'TooManyInstances',
]);

/** How many answers are delayed at the same time; further ones are sent at once. */
const MOST_HELD_BACK = 1_000;
/** How long such an answer is delayed, during which its connection cannot make another request. Milliseconds. */
export const HELD_BACK_MS = 1_000;

/** Ten times a usual report. */
export const MAX_REPORT_BYTES = FOREIGN_LIMITS.report.bytes;

/** Enough for one sync a second, with a cursor before it and a report after it, and for bursts. */
const RATE = { perSecond: 3, atOnce: 12 };
const MOST_INSTANCES = 10_000;

/** Rate limits by instance. If there are too many, those of instances that have not reported for longest are dropped. */
class Rates {
  readonly #limits = new Map<string, RateLimit>();

  /**
   * @param now milliseconds of a monotonic clock @returns false: the instance reports too often; a refused report does not
   * count further
   */
  allows(instance: string, now: number): boolean {
    const limit = this.#limits.get(instance) ?? new RateLimit(RATE, now);
    setNewest(this.#limits, instance, limit, MOST_INSTANCES);
    return limit.take(now);
  }
}

export interface ReportsOptions {
  /** undefined: this replica does not lead. */
  readonly taker: () => Pick<ConsumerReports, 'report' | 'refused'> | undefined;
  /** How a consumer is measured; undefined: there is no such consumer. */
  readonly measureOf: (consumer: string) => string | undefined;
  readonly judge: Judge;
  /** Called for each report. @param consumer empty if there is no such consumer */
  readonly count: (consumer: string, result: ReportResult) => void;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly logger: Logger;
  /** Default: {@link HELD_BACK_MS}. */
  readonly heldBackMs?: number;
}

interface Refused {
  readonly reason: RefusedReport;
  /** Replaces the catalogue's summary. */
  readonly exactly?: string;
  readonly cursor?: string | undefined;
}

/** Serves `POST /v1/consumers/NAME/reports` and `GET /v1/openapi.json`. Paths include `/v1`. */
export function reportsApp(options: ReportsOptions): RequestListener {
  const desk = new ReportDesk(options);
  const app = express();
  app.disable('x-powered-by').disable('etag').enable('strict routing').enable('case sensitive routing');
  app
    .route('/v1/consumers/:name/reports')
    .post((request, response) => desk.serve(request, response, request.params.name))
    .all((_request, response) =>
      notHere(response.setHeader('Allow', 'POST'), 405, 'only POST is served here'),
    );
  app.get('/v1/openapi.json', (_request, response) => void response.json(reportsOpenApi()));
  app.use((_request, response) =>
    notHere(response, 404, 'not found; reports go to POST /v1/consumers/NAME/reports'),
  );
  const failed: ErrorRequestHandler = (error: unknown, _request, response, next) => {
    if (response.headersSent) return next(error);
    // The path cannot be decoded.
    if (error instanceof URIError) return notHere(response, 404, 'the path cannot be decoded');
    options.logger.error({ err: error }, 'internal error while answering a report; answered with 500');
    notHere(response, 500, 'internal error');
  };
  return app.use(failed);
}

function notHere(response: ServerResponse, status: number, message: string): void {
  // Close the connection, because there may be a body, which is not read.
  answerJson(response, status, lineOf({ message }), true);
}

class ReportDesk {
  readonly #options: ReportsOptions;
  readonly #rates = new Rates();
  /** Connections with a report that has not been answered yet, so that a client gains nothing by pipelining. */
  readonly #busy = new WeakSet<Socket>();
  #heldBack = 0;

  constructor(options: ReportsOptions) {
    this.#options = options;
  }

  async serve(request: IncomingMessage, response: ServerResponse, consumer: string): Promise<void> {
    const outcome = await this.#take(request, response, consumer);
    if (outcome === undefined) return;
    if ('reason' in outcome) return this.#refuse(response, consumer, outcome);
    this.#options.count(consumer, outcome.result);
    send(response, outcome.result, { cursor: outcome.cursor });
  }

  /**
   * First makes the checks that need neither the body nor the API server.
   * @returns undefined if the client disconnected before the end of the body
   */
  async #take(
    request: IncomingMessage,
    response: ServerResponse,
    consumer: string,
  ): Promise<Refused | ReportAnswer | undefined> {
    const { taker, measureOf, judge } = this.#options;
    const { socket } = request;
    if (this.#busy.has(socket)) {
      response.setHeader('Connection', 'close');
      return { reason: 'TooManyReports' };
    }
    this.#busy.add(socket);
    response.once('close', () => this.#busy.delete(socket));
    if (taker() === undefined) return { reason: 'NotLeader' };
    const measure = measureOf(consumer);
    if (measure === undefined) return { reason: 'NoSuchConsumer' };
    if (measure !== 'reports') {
      return { reason: 'NotByReports', exactly: `${consumer} is measured by ${measure}` };
    }
    const token = /^bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
    if (token === undefined) return { reason: 'NoToken' };
    const body = await new Promise<Buffer | BodyError | undefined>((resolve) => {
      readBody(request, MAX_REPORT_BYTES, resolve);
      request.on('close', () => resolve(undefined));
    });
    if (body === undefined) return undefined;
    if (body instanceof BodyError) {
      return { reason: body.status === 413 ? 'TooLarge' : 'Compressed', exactly: body.message };
    }
    const verdict = await judge.verdict(token, consumer, socket.remoteAddress ?? '');
    return typeof verdict === 'string' ? { reason: verdict } : this.#report(consumer, verdict, body);
  }

  #report(consumer: string, instance: InstanceName, body: Buffer): Refused | ReportAnswer {
    const { taker, clock } = this.#options;
    if (!this.#rates.allows(`${consumer}\n${instance.key}`, clock())) {
      const exactly = `${instance.name} reports more often than ${RATE.perSecond} times a second`;
      return { reason: 'TooManyReports', exactly };
    }
    const report = readReport(body);
    if ('reason' in report) return report;
    const { cursor, resourceVersions: read } = report;
    const applied = read && versionsOf(read.endpointSlices, read.endpoints);
    // Checked only now, because the term may have ended while the request was read.
    const leading = taker();
    if (leading === undefined) return { reason: 'NotLeader' };
    const answer = leading.report(consumer, { instance, cursor: cursor || undefined, applied });
    if (answer === undefined) return { reason: 'NoSuchConsumer' };
    const { result } = answer;
    return result === 'Asked' || result === 'Synced' ? answer : { reason: result, cursor: answer.cursor };
  }

  #refuse(response: ServerResponse, consumer: string, { reason, exactly, cursor }: Refused): void {
    const { taker, count, measureOf, heldBackMs = HELD_BACK_MS } = this.#options;
    count(measureOf(consumer) === undefined ? '' : consumer, reason);
    taker()?.refused(consumer, reason);
    const { means, way } = REPORT_RESULTS[reason];
    const message = `${exactly ?? means.replace(/\.$/, '')}; ${way}`;
    const answer = () => send(response, reason, { reason, message, cursor });
    if (!COSTLY.has(reason) || this.#heldBack >= MOST_HELD_BACK) {
      answer();
      return;
    }
    this.#heldBack += 1;
    setTimeout(() => {
      this.#heldBack -= 1;
      answer();
    }, heldBackMs);
  }
}

function readReport(body: Buffer): ReportRequest | Refused {
  const parsed = reportRequest.safeParse(jsonIn(body.toString('utf8')));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const field = issue?.path.join('.') || 'the body is not a report';
  return { reason: 'InvalidReport', exactly: `${field}: ${issue?.message}` };
}

/**
 * After these results the connection is closed: the rest of the body is not read, or the connection leads to the wrong
 * replica.
 */
const CLOSING: ReadonlySet<ReportResult> = new Set(['TooLarge', 'Compressed', 'NotLeader']);

function send(
  response: ServerResponse,
  result: ReportResult,
  body: { readonly reason?: RefusedReport; readonly message?: string; readonly cursor: string | undefined },
): void {
  const { status } = REPORT_RESULTS[result];
  const after = RETRY_AFTER[result];
  if (after !== undefined) response.setHeader('Retry-After', String(after));
  if (status === 401) response.setHeader('WWW-Authenticate', 'Bearer');
  if (body.cursor !== undefined) response.setHeader(CURSOR_HEADER, body.cursor);
  answerJson(response, status, lineOf(body), CLOSING.has(result));
}

const lineOf = (body: object) => `${JSON.stringify(body)}\n`;
