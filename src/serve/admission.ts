import express, { type ErrorRequestHandler, type Express, type RequestHandler, type Response } from 'express';
import type { Note } from '../core/catalog/notes.ts';
import { decide } from '../core/plan/decide.ts';
import type { Decision } from '../core/plan/plan.ts';
import type { World } from '../core/plan/world.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { type AdmissionResponse, answer, internalErrorAnswer, outcomeOf } from './answer.ts';
import { ReviewError, type ReviewRequest, readReview } from './review.ts';

/**
 * The longest review that is read. The API server takes request bodies of up to 3 MiB (limits.MaxRequestBodyBytes,
 * k8s.io/apiserver pkg/server/config.go), a review may carry two such objects (object and oldObject), and the rest
 * of the review (user, options) gets 1 MiB.
 */
export const MAX_BODY_BYTES = 7 * 1024 * 1024;

export interface AdmissionOptions {
  /** The world in force at the moment of the call. */
  readonly world: () => World;
  readonly auditWarnings: boolean;
  /** Whether the connection of this answer is to be closed. */
  readonly closesConnection: () => boolean;
  readonly metrics: Metrics;
  readonly logger: Logger;
}

/** `POST /mutate`: reviews in, answers out. Makes no call and reads no file. */
export function admissionApp(options: AdmissionOptions): Express {
  const { metrics } = options;
  const app = express();
  app.disable('x-powered-by').disable('etag').enable('strict routing').enable('case sensitive routing');
  app
    .route('/mutate')
    // The API server sends application/json; whoever sends something else is judged by the body alone.
    .post(express.raw({ type: () => true, limit: MAX_BODY_BYTES, inflate: false }), mutate(options))
    .all((_request, response) => {
      refuse(response.setHeader('Allow', 'POST'), 405, 'only POST is served here', metrics);
    });
  app.use((_request, response) => refuse(response, 404, 'not found; reviews go to POST /mutate', metrics));
  app.use(refuseUnreadable(options));
  return app;
}

function mutate(options: AdmissionOptions): RequestHandler {
  const { metrics } = options;
  return (request, response) => {
    const started = performance.now();
    // express.raw leaves no Buffer behind when the request has no body at all.
    const body: unknown = request.body;
    const review = readReview(Buffer.isBuffer(body) ? body : Buffer.alloc(0));
    const answered = render(respond(review, options));
    // Asked now and not when the request began: a drain may have begun meanwhile.
    if (options.closesConnection()) response.setHeader('Connection', 'close');
    send(response, 200, answered, metrics);
    metrics.admissionDuration.observe((performance.now() - started) / 1000);
  };
}

/** Whatever fails from here on is ours, and must not cost the pod its creation. */
function respond(review: ReviewRequest, options: AdmissionOptions): AdmissionResponse {
  try {
    const decision = decide(review, options.world());
    const response = answer(review.uid, review.object, decision, options);
    record(review, decision, options);
    return response;
  } catch (error) {
    options.logger.error({ uid: review.uid, namespace: review.namespace, err: error }, 'decision failed');
    if (!review.dryRun) options.metrics.decisions.inc({ outcome: 'skip', reason: 'InternalError' });
    return internalErrorAnswer(review.uid);
  }
}

function record(review: ReviewRequest, decision: Decision, { metrics, logger }: AdmissionOptions): void {
  const outcome = outcomeOf(decision);
  const reason = decision.outcome === 'skip' ? decision.reason : '';
  const { uid, namespace, dryRun } = review;
  if (logger.isLevelEnabled('debug')) {
    const plan = decision.outcome === 'inject' ? decision.plan : undefined;
    logger.debug({ uid, namespace, dryRun, outcome, reason, plan, notes: codes(decision.notes) }, 'decision');
  }
  // A dry run leaves no trace.
  if (dryRun) return;
  metrics.decisions.inc({ outcome, reason });
  if (decision.outcome === 'inject') metrics.plannedWait.observe({ outcome }, decision.plan.wait);
  for (const { code, subject } of decision.notes) {
    metrics.notes.inc({ code });
    if (code === 'InvalidAnnotation') metrics.invalidAnnotations.inc({ annotation: subject ?? '' });
  }
}

function codes(notes: readonly Note[]): readonly string[] {
  return notes.map(({ code }) => code);
}

function render(response: AdmissionResponse): string {
  return JSON.stringify({ apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview', response });
}

/** Errors of reading the body: those of the review itself, and those of express.raw, which carry a status. */
function refuseUnreadable({ metrics, logger }: AdmissionOptions): ErrorRequestHandler {
  return (error: unknown, _request, response, next) => {
    if (response.headersSent) return next(error);
    if (error instanceof ReviewError) return refuse(response, 400, error.message, metrics);
    const status = statusOf(error);
    if (status === 413)
      return refuse(response, 413, `the body is longer than ${MAX_BODY_BYTES} bytes`, metrics);
    if (status === 415) return refuse(response, 415, 'compressed bodies are not read', metrics);
    if (status !== undefined) return refuse(response, status, 'the body cannot be read', metrics);
    logger.error({ err: error }, 'request failed');
    refuse(response, 500, 'internal error', metrics);
  };
}

/** The status that body-parser puts on its errors: 400 for an aborted or mis-sized body, 413, 415. */
function statusOf(error: unknown): number | undefined {
  const status = error instanceof Error && 'status' in error ? error.status : undefined;
  return typeof status === 'number' && status >= 400 && status < 500 ? status : undefined;
}

function refuse(response: Response, status: number, message: string, metrics: Metrics): void {
  // The rest of a body that was not read would be taken for the next request.
  response.setHeader('Connection', 'close');
  send(response, status, JSON.stringify({ error: message }), metrics);
}

function send(response: Response, status: number, body: string, metrics: Metrics): void {
  metrics.responses.inc({ code: status });
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Content-Length': Buffer.byteLength(body),
  });
  response.end(body);
}
