import type http from 'node:http';
import { asError } from '../core/catalog/errors.ts';
import { isRecord, isString, jsonIn } from '../core/schema/shape.ts';
import type { KubeConnection } from './connection.ts';
import { failureOfStatus, KubeFailure, WatchFailure } from './failure.ts';
import { exchange, LONGEST_REFUSAL, readText } from './request.ts';

/** An object as the API server sends it. What is not read here is carried along when it is written back. */
export interface ApiObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: ApiMetadata;
  readonly [member: string]: unknown;
}

export interface ApiMetadata {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  /** Written along, it makes the server refuse (`Conflict`) when the object has been changed since it was read. */
  readonly resourceVersion?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly [member: string]: unknown;
}

/** Why an object could not be read or written. A metric's label. */
export const OBJECT_FAILURES = {
  NotFound: 'There is no such object, or no such namespace (404).',
  AlreadyExists: 'Somebody has created it first (409).',
  Conflict: 'Somebody has written it since it was read (409).',
  Throttled: 'The server asked to come back later (429).',
  Unauthorized: 'The credentials were not accepted (401); they are read again.',
  Forbidden: 'The credentials do not allow it (403).',
  ServerError: 'The server failed (5xx).',
  Refused: 'The server did not accept the request (another 4xx), such as an object that is too large.',
  Unreachable: 'No connection, or no whole answer in time: a write may still come into effect.',
  Malformed: 'What came is no object.',
} as const satisfies Record<string, string>;

export type ObjectFailureReason = keyof typeof OBJECT_FAILURES;

export class ObjectFailure extends KubeFailure<ObjectFailureReason> {
  override readonly name = 'ObjectFailure';
}

/** What is no failure of the API was thrown by what read its answer. */
export function asObjectFailure(thrown: unknown): ObjectFailure {
  if (thrown instanceof ObjectFailure) return thrown;
  return new ObjectFailure('Malformed', asError(thrown).message);
}

export interface ObjectRequest {
  /** `PATCH` with an array is a JSON patch (RFC 6902), else a JSON merge patch (RFC 7386). */
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH';
  /** Such as `/api/v1/namespaces/linger/configmaps/linger-planned`. */
  readonly path: string;
  readonly object?: unknown;
  readonly agent: http.Agent;
  readonly signal: AbortSignal;
  /** For the whole answer. Milliseconds. */
  readonly withinMs: number;
}

/** etcd takes 1.5 MiB, of which a ConfigMap has 1; base64 makes it a third more, and then there are managedFields. */
const LONGEST_OBJECT = 4 * 1024 * 1024;

/**
 * Reads or writes one object.
 * @returns the object as it is stored now
 * @throws ObjectFailure; the signal's reason once that has aborted
 */
export async function requestObject(connection: KubeConnection, request: ObjectRequest): Promise<ApiObject> {
  const { method, path, object, agent, withinMs } = request;
  const contentType = contentTypeOf(method, object);
  const body = object === undefined ? {} : { body: { contentType, text: JSON.stringify(object) } };
  // Not AbortSignal.any: on a signal that lives for months each leaves some 200 bytes behind, a request a second.
  const giving = new AbortController();
  const { signal } = giving;
  const giveUp = () => giving.abort();
  const timer = setTimeout(giveUp, withinMs).unref();
  request.signal.addEventListener('abort', giveUp, { once: true });
  try {
    request.signal.throwIfAborted();
    const response = await exchange(connection, { method, path, ...body, agent, signal, answerMs: withinMs });
    return await objectIn(response, signal, withinMs);
  } catch (thrown) {
    request.signal.throwIfAborted();
    throw failureOfRequest(thrown, signal.aborted ? `no whole answer within ${withinMs} ms` : undefined);
  } finally {
    clearTimeout(timer);
    request.signal.removeEventListener('abort', giveUp);
  }
}

function contentTypeOf(method: ObjectRequest['method'], object: unknown): string {
  if (method !== 'PATCH') return 'application/json';
  return Array.isArray(object) ? 'application/json-patch+json' : 'application/merge-patch+json';
}

async function objectIn(
  response: http.IncomingMessage,
  signal: AbortSignal,
  withinMs: number,
): Promise<ApiObject> {
  const { statusCode = 0, headers } = response;
  const well = statusCode === 200 || statusCode === 201;
  const text = await readText(response, well ? LONGEST_OBJECT : LONGEST_REFUSAL, withinMs).catch((error) => {
    if (well || signal.aborted) throw error;
    return '';
  });
  const said = jsonIn(text);
  if (!well) throw refusalOf(statusCode, text, said, headers['retry-after']);
  const metadata = isRecord(said) ? said.metadata : undefined;
  if (isRecord(metadata) && isString(metadata.name) && isString(metadata.resourceVersion)) {
    return said as ApiObject;
  }
  throw new ObjectFailure('Malformed', `expected an object, got ${text.slice(0, 100)}`);
}

function refusalOf(
  status: number,
  text: string,
  said: unknown,
  retryAfter: string | undefined,
): ObjectFailure {
  const { message, retryAfterMs, reason } = failureOfStatus(status, text, retryAfter);
  if (status === 404) return new ObjectFailure('NotFound', message);
  if (status === 409) {
    const exists = isRecord(said) && said.reason === 'AlreadyExists';
    return new ObjectFailure(exists ? 'AlreadyExists' : 'Conflict', message);
  }
  return new ObjectFailure(isObjectReason(reason) ? reason : 'Refused', message, retryAfterMs);
}

function failureOfRequest(thrown: unknown, late: string | undefined): ObjectFailure {
  if (thrown instanceof ObjectFailure) return thrown;
  if (late !== undefined) return new ObjectFailure('Unreachable', late);
  if (thrown instanceof WatchFailure && isObjectReason(thrown.reason)) {
    return new ObjectFailure(thrown.reason, thrown.message);
  }
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ObjectFailure('Unreachable', message);
}

function isObjectReason(reason: string): reason is ObjectFailureReason {
  return Object.hasOwn(OBJECT_FAILURES, reason);
}
