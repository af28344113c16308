import { asError, isRecord, jsonIn, UserError } from '../api/index.ts';

/** Why a list or a watch ended and starts again. The metric's label. */
export const RESTARTS = {
  Ended: 'The server closed the watch in good order, as it does at its timeout and when it shuts down.',
  Cut: 'The connection broke in the middle of an answer.',
  Silent: 'Nothing came for longer than bookmarks are apart: it was dead, or nothing happened (see stalls).',
  Unreachable: 'No connection, or no answer on it.',
  Expired: 'The server no longer remembers the resourceVersion (410): everything is listed anew.',
  Throttled: 'The server asked to come back later (429).',
  Unauthorized: 'The credentials were not accepted (401); they are read again.',
  Forbidden: 'The credentials do not allow it (403).',
  ServerError: 'The server failed (5xx).',
  NotServed: 'The server does not serve that kind (404).',
  Refused: 'The server did not accept the request (another 4xx).',
  ErrorEvent: 'The watch brought an error other than the above.',
  Malformed: 'What came is not what a list or a watch is made of.',
  Internal: 'A mistake in Linger itself.',
} as const satisfies Record<string, string>;

export type RestartReason = keyof typeof RESTARTS;

/** A request to the API server failed, for one of a fixed set of reasons. */
export abstract class KubeFailure<Reason extends string> extends Error {
  readonly reason: Reason;
  /** Milliseconds that the server asked for. */
  readonly retryAfterMs: number | undefined;

  constructor(reason: Reason, message: string, retryAfterMs?: number) {
    super(message);
    this.reason = reason;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Why a list or a watch could not go on. */
export class WatchFailure extends KubeFailure<RestartReason> {
  override readonly name = 'WatchFailure';
}

/** Why an object could not be read or written. A metric's label. */
export const OBJECT_FAILURES = {
  NotFound: 'There is no such object, or no such namespace (404).',
  AlreadyExists: 'It exists already: another writer was first (409).',
  Conflict: 'It has changed since it was read (409).',
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

/** Anything that is not yet a failure of the API was thrown while its answer was read. */
export function asObjectFailure(thrown: unknown): ObjectFailure {
  if (thrown instanceof ObjectFailure) return thrown;
  return new ObjectFailure('Malformed', asError(thrown).message);
}

function isRestartReason(reason: string): reason is RestartReason {
  return Object.hasOwn(RESTARTS, reason);
}

export function isObjectReason(reason: string): reason is ObjectFailureReason {
  return Object.hasOwn(OBJECT_FAILURES, reason);
}

export function asFailure(thrown: unknown): WatchFailure {
  if (thrown instanceof WatchFailure) return thrown;
  if (thrown instanceof ObjectFailure) {
    const { reason, message, retryAfterMs } = thrown;
    const otherwise = reason === 'NotFound' ? 'NotServed' : 'Refused';
    return new WatchFailure(isRestartReason(reason) ? reason : otherwise, message, retryAfterMs);
  }
  return new WatchFailure(
    'Internal',
    thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown),
  );
}

/**
 * The failure that an answer other than 200 stands for.
 * @param body a metav1.Status, or the text of something else, such as a proxy's error page
 * @param retryAfter the header, in seconds
 */
export function failureOfStatus(status: number, body: string, retryAfter: string | undefined): WatchFailure {
  const said = jsonIn(body);
  const message = isRecord(said) && typeof said.message === 'string' ? said.message : body.slice(0, 300);
  const seconds = retryAfter === undefined ? Number.NaN : Number(retryAfter);
  const retryAfterMs = Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : undefined;
  return new WatchFailure(reasonOf(status, 'Refused'), `${status}: ${message}`, retryAfterMs);
}

/** The failure that an ERROR event brings: its object is a metav1.Status. */
export function failureOfEvent(object: unknown): WatchFailure {
  const { code, message, details } = isRecord(object) ? object : {};
  const seconds = isRecord(details) ? details.retryAfterSeconds : undefined;
  const reason = typeof code === 'number' ? reasonOf(code, 'ErrorEvent') : 'ErrorEvent';
  return new WatchFailure(
    reason,
    `ERROR event ${String(code)}: ${String(message)}`,
    typeof seconds === 'number' ? seconds * 1000 : undefined,
  );
}

function reasonOf(status: number, otherwise: RestartReason): RestartReason {
  if (status === 410) return 'Expired';
  if (status === 429) return 'Throttled';
  if (status === 401) return 'Unauthorized';
  if (status === 403) return 'Forbidden';
  // In an event, 404 would be about one object.
  if (status === 404 && otherwise === 'Refused') return 'NotServed';
  // An event's 5xx concerns the watch and not the server: after a second one in a row everything is listed again.
  if (status >= 500 && otherwise === 'Refused') return 'ServerError';
  return otherwise;
}

/** Codes of everything that can keep Linger from connecting to its API server. */
export const CONNECTION_ERRORS = {
  NotInCluster: 'There are no in-cluster credentials here.',
  KubeconfigUnreadable: 'A kubeconfig, or a file that it names, cannot be read.',
  KubeconfigInvalid: 'A kubeconfig is not one, or names a context, cluster or user that it does not have.',
  KubeconfigUnsupported: 'A kubeconfig asks for something that Linger does not do.',
  PluginFailed: 'The program that a kubeconfig gets its credentials from (exec) gave none.',
} as const satisfies Record<string, string>;

export type ConnectionErrorCode = keyof typeof CONNECTION_ERRORS;

/**
 * The message names the file and the way out. It carries no `cause`: a cause could bring the bytes of a key or a
 * token into a log.
 */
export class ConnectionError extends UserError {
  override readonly name = 'ConnectionError';
  override readonly code: ConnectionErrorCode;

  constructor(code: ConnectionErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
