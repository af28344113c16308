import fastJsonPatch, { type Operation } from 'fast-json-patch';
import { onTestFinished } from 'vitest';
import { issueAuthority, issueServingCertificate } from '../../src/certs/index.ts';
import type { ClusterSnapshot } from '../../src/core/decision/index.ts';
import { createLogger, createMetrics, type LogLevel, type Metrics } from '../../src/telemetry/index.ts';
import { type AdmissionOptions, admissionApp } from '../../src/webhook/admission.ts';
import { AdmissionMetrics } from '../../src/webhook/admission-metrics.ts';
import { tlsOptions, webhookServer } from '../../src/webhook/server.ts';
import { EMPTY_SNAPSHOT } from '../core/decision/sample-snapshot.ts';
import {
  type Address,
  type AtEnd,
  connect,
  type Headers,
  type HttpAnswer,
  requestBytes,
} from './connection.ts';
import { listening } from './listening.ts';

/** The real application on a real HTTPS server, with everything that it says. */
export interface Webhook extends Address {
  readonly server: ReturnType<typeof webhookServer>;
  readonly metrics: Metrics;
  /** Does what happens when a new serving certificate has come. */
  readonly renew: () => void;
  /** Each line of the log, as it was written. */
  readonly logs: readonly string[];
  /** One request on a connection of its own. */
  post(body: string | Buffer, headers?: Headers): Promise<HttpAnswer>;
  request(method: string, path: string, body?: string): Promise<HttpAnswer>;
  /** The value of a series, `linger_notes_total{code="WaitShrunk"}`; 0 where it does not exist. */
  count(series: string): Promise<number>;
}

export interface WebhookOptions extends Partial<Omit<AdmissionOptions, 'metrics' | 'logger' | 'snapshot'>> {
  readonly snapshot?: ClusterSnapshot | (() => ClusterSnapshot);
  readonly logLevel?: LogLevel;
  /** PEM of the authority of clients' certificates. */
  readonly clientCa?: string;
  readonly maxConnections?: number;
}

let pair: Promise<{ ca: string; cert: string; key: string }> | undefined;

async function makePair() {
  const now = new Date();
  const authority = await issueAuthority(now);
  const leaf = await issueServingCertificate(authority, ['localhost', '127.0.0.1'], now);
  return { ca: authority.certificate, cert: leaf.cert, key: leaf.key };
}

export async function startWebhook(
  options: WebhookOptions = {},
  atEnd: AtEnd = onTestFinished as AtEnd,
): Promise<Webhook> {
  const { snapshot = EMPTY_SNAPSHOT, logLevel = 'trace', auditWarnings = false } = options;
  const { closesConnection = () => false, reports, clientCa, maxConnections } = options;
  const logs: string[] = [];
  const metrics = createMetrics('test');
  const app = admissionApp({
    snapshot: typeof snapshot === 'function' ? snapshot : () => snapshot,
    auditWarnings,
    clientCertificates: clientCa !== undefined,
    closesConnection,
    reports,
    metrics: new AdmissionMetrics(metrics.registry),
    logger: createLogger(logLevel, { write: (line) => void logs.push(line) }),
  });
  // Two RSA keys: made once for all files of a worker.
  pair ??= makePair();
  const { ca, cert, key } = await pair;
  const server = webhookServer(app, { cert, key }, clientCa, maxConnections);
  const address = { port: await listening(server, atEnd), ca };
  const send = async (method: string, bytes: Buffer) => {
    const connection = await connect(address, atEnd);
    connection.write(bytes);
    const answer = await connection.answer(method);
    connection.destroy();
    return answer;
  };
  return {
    ...address,
    server,
    renew: () => server.setSecureContext(tlsOptions({ cert, key }, clientCa)),
    metrics,
    logs,
    post: (body, headers) => send('POST', requestBytes(body, headers)),
    request: (method, path, body = '') => send(method, requestBytes(body, {}, method, path)),
    count: (series) => countIn(metrics, series),
  };
}

async function countIn({ registry }: Metrics, series: string): Promise<number> {
  const text = await registry.metrics();
  const line = text.split('\n').find((each) => each.startsWith(`${series} `));
  return line === undefined ? 0 : Number(line.slice(series.length + 1));
}

/** response of an AdmissionReview, as the API server reads it. */
export interface ReviewResponse {
  readonly uid: string;
  readonly allowed: boolean;
  readonly patchType?: string;
  readonly patch?: string;
  readonly warnings?: readonly string[];
  readonly auditAnnotations?: Readonly<Record<string, string>>;
}

/** Reads an answer of status 200 strictly: nothing but a v1 AdmissionReview with a response. */
export function responseOf({ status, headers, body }: HttpAnswer): ReviewResponse {
  if (status !== 200) throw new Error(`expected status 200, got ${status}: ${body}`);
  if (headers.get('content-type') !== 'application/json') throw new Error('expected application/json');
  const review = JSON.parse(body) as Record<string, unknown>;
  const members = Object.keys(review).toSorted().join();
  if (members !== 'apiVersion,kind,response') throw new Error(`expected a review, got members ${members}`);
  if (review.apiVersion !== 'admission.k8s.io/v1' || review.kind !== 'AdmissionReview') {
    throw new Error(`expected an AdmissionReview v1, got ${body}`);
  }
  return review.response as ReviewResponse;
}

export function operationsOf({ patch, patchType }: ReviewResponse): Operation[] {
  if (patch === undefined) return [];
  if (patchType !== 'JSONPatch') throw new Error(`expected JSONPatch, got ${patchType}`);
  return JSON.parse(Buffer.from(patch, 'base64').toString('utf8')) as Operation[];
}

/** The object with the patch applied, each operation validated. */
export function applied<T>(object: T, response: ReviewResponse): T {
  return fastJsonPatch.applyPatch(structuredClone(object), operationsOf(response), true).newDocument;
}
