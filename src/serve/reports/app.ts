import type { IncomingMessage, RequestListener, ServerResponse } from 'node:http';
import express, { type ErrorRequestHandler } from 'express';
import type { ReportResult } from '../../core/catalog/report-results.ts';
import { type ReportRequest, reportRequest } from '../../core/schema/report.ts';
import { jsonIn } from '../../core/schema/shape.ts';
import type { Report, ReportAnswer } from '../../measure/reports.ts';
import type { Logger } from '../../telemetry/logs.ts';
import { BodyError, readBody } from '../body.ts';
import { openApiDocument } from './openapi.ts';
import { type Rate, Rates } from './rates.ts';
import { type Refusal, refusalBody, send } from './refusals.ts';
import { fingerprint, type Judge } from './verdicts.ts';

/** A report takes a tenth of that. */
export const MAX_REPORT_BYTES = 4_096;

/** A sync a second, asked before and told after, with room for what was held up. */
const PER_INSTANCE = { perSecond: 3, burst: 12 };
/** 1,000 instances behind one token that sync every 10 s, and again as much. */
const PER_TOKEN = { perSecond: 400, burst: 1_200 };
const INSTANCES_TOLD_APART = 10_000;
const TOKENS_TOLD_APART = 10_000;

/** So many answers are held back at a time; the rest go out at once. */
const MOST_HELD_BACK = 1_000;
/** An answer that is held back for so long keeps a connection from asking again. Milliseconds. */
export const HELD_BACK_MS = 1_000;

/** What takes reports while this replica leads. */
export interface ReportTaker {
  /** @returns undefined where the consumer is not known yet */
  report(consumer: string, report: Report): ReportAnswer | undefined;
  refused(consumer: string, result: ReportResult): void;
}

export interface ReportsOptions {
  /** undefined: this replica does not lead. */
  readonly taker: () => ReportTaker | undefined;
  /** How a consumer is measured; undefined: there is none. */
  readonly measureOf: (consumer: string) => string | undefined;
  readonly judge: Judge;
  /** Called for each report. @param consumer empty where there is none of that name */
  readonly count: (consumer: string, result: ReportResult) => void;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly logger: Logger;
  /** Default: {@link HELD_BACK_MS}. */
  readonly heldBackMs?: number;
  /** Default: {@link PER_TOKEN}. */
  readonly perToken?: Rate;
}

/** Refused before anything was read of it, or for what it was. */
interface Refused {
  readonly reason: Refusal;
  readonly exactly?: string;
  readonly cursor?: string;
}

/** `POST /v1/consumers/NAME/reports` and `GET /v1/openapi.json`; paths are from `/v1` on. */
export function reportsApp(options: ReportsOptions): RequestListener {
  const desk = new ReportDesk(options);
  const app = express();
  app.disable('x-powered-by').disable('etag').enable('strict routing').enable('case sensitive routing');
  app
    .route('/v1/consumers/:name/reports')
    .post((request, response) => desk.take(request, response, request.params.name))
    .all((_request, response) =>
      notHere(response.setHeader('Allow', 'POST'), 405, 'only POST is served here'),
    );
  app.get('/v1/openapi.json', (_request, response) => void response.json(openApiDocument()));
  app.use((_request, response) =>
    notHere(response, 404, 'not found; reports go to POST /v1/consumers/NAME/reports'),
  );
  const failed: ErrorRequestHandler = (error: unknown, _request, response, next) => {
    if (response.headersSent) return next(error);
    // A path that cannot be decoded.
    if (error instanceof URIError) return notHere(response, 404, 'the path cannot be decoded');
    options.logger.error({ err: error }, 'report failed');
    notHere(response, 500, 'internal error');
  };
  return app.use(failed);
}

function notHere(response: ServerResponse, status: number, message: string): void {
  // A body may follow that nobody has read.
  response.writeHead(status, { 'Content-Type': 'application/json', Connection: 'close' });
  response.end(`${JSON.stringify({ message })}\n`);
}

class ReportDesk {
  readonly #options: ReportsOptions;
  readonly #ofInstances = new Rates(PER_INSTANCE, INSTANCES_TOLD_APART);
  readonly #ofTokens: Rates;
  #heldBack = 0;

  constructor(options: ReportsOptions) {
    this.#options = options;
    this.#ofTokens = new Rates(options.perToken ?? PER_TOKEN, TOKENS_TOLD_APART);
  }

  take(request: IncomingMessage, response: ServerResponse, consumer: string): Promise<void> | void {
    // Whoever leads is the only one to know what its cursors mean; nothing is read for the others.
    if (this.#options.taker() === undefined) return this.#refuse(response, consumer, { reason: 'NotLeader' });
    const token = /^bearer +(\S+)$/i.exec(request.headers.authorization ?? '')?.[1];
    return new Promise((resolve, reject) => {
      readBody(request, MAX_REPORT_BYTES, (body) => {
        this.#takeBody(response, consumer, token, body).then(resolve, reject);
      });
      // Where it is cut short nobody is left to be answered.
      request.on('close', resolve);
    });
  }

  async #takeBody(
    response: ServerResponse,
    consumer: string,
    token: string | undefined,
    body: Buffer | BodyError,
  ): Promise<void> {
    if (body instanceof BodyError) {
      const reason = body.status === 413 ? 'TooLarge' : 'Compressed';
      return this.#refuse(response, consumer, { reason, exactly: body.message });
    }
    if (token === undefined) return this.#refuse(response, consumer, { reason: 'NoToken' });
    const verdict = await this.#options.judge.verdict(token, consumer);
    const outcome = verdict === 'Allowed' ? this.#judged(consumer, token, body) : { reason: verdict };
    if ('reason' in outcome) return this.#refuse(response, consumer, outcome);
    this.#count(consumer, outcome.result);
    send(response, outcome.result, { cursor: outcome.cursor });
  }

  #judged(
    consumer: string,
    token: string,
    body: Buffer,
  ): Refused | { readonly result: ReportResult; readonly cursor: string | undefined } {
    const { taker, measureOf, clock } = this.#options;
    const report = readReport(body);
    if ('reason' in report) return report;
    const now = clock();
    if (!this.#ofInstances.allows(`${consumer}\n${report.instance}`, now)) {
      return {
        reason: 'TooManyReports',
        exactly: `${report.instance} reports more often than ${PER_INSTANCE.perSecond} times a second`,
      };
    }
    if (!this.#ofTokens.allows(fingerprint(token), now)) return { reason: 'TooManyReports' };
    const measure = measureOf(consumer);
    if (measure === undefined) return { reason: 'NoSuchConsumer' };
    if (measure !== 'reports')
      return { reason: 'NotByReports', exactly: `${consumer} is measured by ${measure}` };
    const { instance, cursor, syncSeconds } = report;
    const held = cursor === '' ? undefined : cursor;
    // Asked now and not when the request began: the lead may have ended meanwhile.
    const leading = taker();
    if (leading === undefined) return { reason: 'NotLeader' };
    const answer = leading.report(consumer, { instance, cursor: held, syncSeconds });
    if (answer === undefined) return { reason: 'NoSuchConsumer' };
    const { result } = answer;
    if (result === 'Asked' || result === 'Synced') return answer;
    return answer.cursor === undefined ? { reason: result } : { reason: result, cursor: answer.cursor };
  }

  #refuse(response: ServerResponse, consumer: string, { reason, exactly, cursor }: Refused): void {
    this.#count(consumer, reason);
    const { taker, heldBackMs = HELD_BACK_MS } = this.#options;
    taker()?.refused(consumer, reason);
    const answer = () => send(response, reason, refusalBody(reason, exactly, cursor));
    if (COSTLY.has(reason) && this.#heldBack < MOST_HELD_BACK) {
      this.#heldBack += 1;
      setTimeout(() => {
        this.#heldBack -= 1;
        answer();
      }, heldBackMs);
    } else answer();
  }

  #count(consumer: string, result: ReportResult): void {
    const { count, measureOf } = this.#options;
    count(measureOf(consumer) === undefined ? '' : consumer, result);
  }
}

/** Whoever gets these may be asking as fast as they can: each connection is held up. */
const COSTLY: ReadonlySet<Refusal> = new Set<Refusal>([
  'InvalidReport',
  'NoToken',
  'TokenRefused',
  'NotAllowed',
  'NoSuchConsumer',
  'NotByReports',
  'TooManyReports',
  'TooManyInstances',
]);

function readReport(body: Buffer): ReportRequest | Refused {
  const parsed = reportRequest.safeParse(jsonIn(body.toString('utf8')));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const field = issue?.path.join('.') ?? '';
  const exactly = field === '' ? `the body is no report: ${issue?.message}` : `${field}: ${issue?.message}`;
  return { reason: 'InvalidReport', exactly };
}
