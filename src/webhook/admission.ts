import { createHash, randomBytes } from 'node:crypto';
import type { RequestListener, ServerResponse } from 'node:http';
import type { TLSSocket } from 'node:tls';
import { asError, FOREIGN_LIMITS, type HoldToken } from '../core/api/index.ts';
import { type ClusterSnapshot, type Decision, decide } from '../core/decision/index.ts';
import { type Logger, onLoop } from '../telemetry/index.ts';
import { OffLoop, workerUrl } from '../timing/index.ts';
import type { AdmissionMetrics } from './admission-metrics.ts';
import { type AdmissionResponse, answerDecision, internalErrorAnswer, outcomeOf } from './answer.ts';
import { BodyError, LargeBodies, readBody, SMALL_BODY_BYTES } from './body.ts';
import { answerJson } from './json-response.ts';
import { type Review, type ReviewRequest, readReview, type Screened, tooLargeAtStart } from './review.ts';

/**
 * The longest review that is read. The API server takes request bodies of up to 3 MiB (limits.MaxRequestBodyBytes,
 * k8s.io/apiserver pkg/server/config.go), a review may carry two such objects (object and oldObject), and the rest
 * of the review (user, options) gets 1 MiB.
 */
export const MAX_BODY_BYTES = FOREIGN_LIMITS.review.bytes;

const REVIEW = { apiVersion: 'admission.k8s.io/v1', kind: 'AdmissionReview' };

export interface AdmissionOptions {
  /** Returns the current snapshot. */
  readonly snapshot: () => ClusterSnapshot;
  readonly auditWarnings: boolean;
  /** Whether to accept reviews only from clients whose certificate the server has verified. */
  readonly clientCertificates: boolean;
  /** Whether to close the connection after this answer. */
  readonly closesConnection: () => boolean;
  /** Answers requests to `/v1`; undefined: nothing does. */
  readonly reports?: RequestListener | undefined;
  readonly metrics: AdmissionMetrics;
  readonly logger: Logger;
}

/**
 * A large review is parsed in a separate thread: V8 takes a second and 200 MB for some JSON of 7 MiB, and a second for 256
 * KB of strings of digits (their hashes are their values, so they can be made to collide). The API server waits for 2 s
 * (deploy/webhook.yaml) by default, and an honest review may take that long on a busy machine.
 */
const LARGE_REVIEWS = { timeoutMs: 3_000, heapMb: 128 };

/** `POST /mutate`: answers reviews without calling anything or reading any file. */
export function admissionApp(options: AdmissionOptions): RequestListener {
  const mutate = reviewListener(options);
  const { reports, metrics } = options;
  return (request, response) => {
    const { method, url = '' } = request;
    // The API server appends a query, ?timeout=2s.
    const [path] = url.split('?', 1);
    if (path === '/mutate' && method === 'POST') return mutate(request, response);
    // Reports have metrics of their own.
    if (reports !== undefined && url.startsWith('/v1/')) return reports(request, response);
    if (path === '/mutate')
      return refuse(response.setHeader('Allow', 'POST'), 405, 'only POST is served here', metrics);
    return refuse(response, 404, 'not found; reviews go to POST /mutate', metrics);
  };
}

function reviewListener(options: AdmissionOptions): RequestListener {
  const { metrics, logger } = options;
  const bodies = new LargeBodies();
  const worker = workerUrl(import.meta.url, 'review-worker');
  const screener = new OffLoop<Uint8Array, Screened>(worker, LARGE_REVIEWS);

  const answerLarge = async (response: ServerResponse, body: Buffer, started: number) => {
    // The body is transferred to the thread, after which it is empty here.
    const bytes = body.length;
    let screened = tooLargeAtStart(body);
    try {
      [screened = screened] = await screener.run(body, [body.buffer as ArrayBuffer]);
    } catch (error) {
      logger.warn(
        { bytes, problem: asError(error).message },
        'review too large to parse in time; pod admitted unchanged',
      );
    }
    answerReview(response, () => screened, started, options);
  };
  return (request, response) => {
    if (options.clientCertificates && !(request.socket as TLSSocket).authorized) {
      const message = 'reviews are taken from clients with a certificate of --client-ca';
      return refuse(response, 403, message, metrics);
    }
    const answerBody = (body: Buffer | BodyError) => {
      const started = performance.now();
      if (body instanceof BodyError) return refuse(response, body.status, body.message, metrics);
      if (body.length > SMALL_BODY_BYTES) return answerLarge(response, body, started);
      return onLoop('review', () => answerReview(response, () => readReview(body), started, options));
    };
    // Content-Type is ignored: the body must be an AdmissionReview in any case.
    readBody(request, MAX_BODY_BYTES, answerBody, bodies);
  };
}

function answerReview(
  response: ServerResponse,
  read: () => Screened,
  started: number,
  options: AdmissionOptions,
): void {
  const { metrics, logger } = options;
  try {
    const screened = read();
    if ('refused' in screened) {
      refuse(response, 400, screened.refused, metrics);
      return;
    }
    const answered = { ...REVIEW, response: respond(screened, options) };
    // Checked only now, because a drain may have begun since the request came in.
    if (options.closesConnection()) response.setHeader('Connection', 'close');
    answerJson(response, 200, JSON.stringify(answered));
    metrics.answered(200, (performance.now() - started) / 1000);
  } catch (error) {
    logger.error({ err: error }, 'internal error while answering a review; answered with 500');
    refuse(response, 500, 'internal error', metrics);
  }
}

/** From here on, any failure is Linger's own and must not block the pod's creation. */
function respond({ review, skip }: Review, options: AdmissionOptions): AdmissionResponse {
  try {
    const snapshot = options.snapshot();
    const request = snapshot.hold === undefined ? review : { ...review, holdToken: newHoldToken(Date.now()) };
    const decision = skip ?? decide(request, snapshot);
    const response = answerDecision(review.uid, review.object, decision, options);
    record(review, decision, options);
    return response;
  } catch (error) {
    options.logger.error(
      { uid: review.uid, namespace: review.namespace, err: error },
      'decision failed; pod admitted unchanged',
    );
    if (!review.dryRun) options.metrics.decided({ outcome: 'skip', reason: 'InternalError', notes: [] });
    return internalErrorAnswer(review.uid);
  }
}

/** @param now milliseconds since the epoch, by which a token that was copied to another pod is recognised */
function newHoldToken(now: number): HoldToken {
  const bytes = randomBytes(16);
  bytes.writeUInt32BE(Math.floor(now / 1000) % 2 ** 32);
  return { text: bytes.toString('base64url'), hashOf };
}

function hashOf(token: string): string {
  return createHash('sha256').update(token).digest('hex');
}

function record(review: ReviewRequest, decision: Decision, { metrics, logger }: AdmissionOptions): void {
  const outcome = outcomeOf(decision);
  const reason = decision.outcome === 'skip' ? decision.reason : '';
  const plan = decision.outcome === 'inject' ? decision.plan : undefined;
  const { uid, namespace, dryRun } = review;
  const { notes } = decision;
  if (logger.isLevelEnabled('debug')) {
    const codes = notes.map(({ code }) => code);
    logger.debug({ uid, namespace, dryRun, outcome, reason, plan, notes: codes }, 'decision');
  }
  // A dry run is not counted.
  if (!dryRun) metrics.decided({ outcome, reason, notes, wait: plan?.wait });
}

function refuse(response: ServerResponse, status: number, message: string, metrics: AdmissionMetrics): void {
  // Close the connection, because the unread rest of a body would be parsed as the next request.
  answerJson(response, status, JSON.stringify({ error: message }), true);
  metrics.answered(status);
}
