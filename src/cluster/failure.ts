import { asError, isRecord, isString, jsonIn, UserError } from '../core/api/index.ts';

/** Why a list or a watch ended and is being restarted. The metric's label. */
export const RESTARTS = {
  Ended: 'The server closed the watch cleanly, as it does at its timeout and when it shuts down.',
  Cut: 'The connection broke in the middle of an answer.',
  Silent: 'Nothing arrived for longer than bookmarks are apart: it was dead, or idle (see stalls).',
  Unreachable: 'No connection, or no answer on it.',
  Expired: 'The server no longer remembers the resourceVersion (410): everything is listed again.',
  Throttled: 'The server asked to come back later (429).',
  Unauthorized: 'The credentials were not accepted (401); they are read again.',
  Forbidden: 'The credentials do not allow it (403).',
  ServerError: 'The server failed (5xx).',
  NotServed: 'The server does not serve that kind (404).',
  Refused: 'The server did not accept the request (another 4xx).',
  ErrorEvent: 'The watch brought an error other than the above.',
  Malformed: 'The answer is not a list or a watch.',
  Internal: 'A bug in Linger.',
} as const satisfies Record<string, string>;

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
  Unreachable: 'No connection, or no full answer in time: a write may still take effect.',
  Malformed: 'The answer is not an object.',
} as const satisfies Record<string, string>;

export type FailureReason = keyof typeof RESTARTS | keyof typeof OBJECT_FAILURES;

/** A request to the API server failed: a typed call for one of OBJECT_FAILURES, a list or a watch for one of RESTARTS. */
export class KubeFailure extends Error {
  override readonly name = 'KubeFailure';
  readonly reason: FailureReason;
  readonly retryAfterMs: number | undefined;

  constructor(reason: FailureReason, message: string, retryAfterMs?: number) {
    super(message);
    this.reason = reason;
    this.retryAfterMs = retryAfterMs;
  }
}

/** @param otherwise the reason for anything thrown that is not a KubeFailure */
export function asFailure(thrown: unknown, otherwise: FailureReason = 'Internal'): KubeFailure {
  if (thrown instanceof KubeFailure) return thrown;
  const { message, stack = message } = asError(thrown);
  return new KubeFailure(otherwise, otherwise === 'Internal' ? stack : message.slice(0, 300));
}

/** By status code of HTTP, or of the metav1.Status of an ERROR event. */
const REASONS: Readonly<Record<number, FailureReason>> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  410: 'Expired',
  429: 'Throttled',
};

/**
 * The failure for a response other than 2xx.
 * @param body a metav1.Status, or the text of something else, such as a proxy's error page
 * @param retryAfter the header, in seconds
 */
export function failureOfStatus(status: number, body: string, retryAfter: string | undefined): KubeFailure {
  const said = jsonIn(body);
  const { message, reason: named } = isRecord(said) ? said : {};
  const reason = (): FailureReason => {
    if (status === 404) return 'NotServed';
    if (status === 409) return named === 'AlreadyExists' ? 'AlreadyExists' : 'Conflict';
    return REASONS[status] ?? (status >= 500 ? 'ServerError' : 'Refused');
  };
  const text = isString(message) ? message : body.slice(0, 300);
  const seconds = Number(retryAfter);
  return new KubeFailure(reason(), `${status}: ${text}`, seconds >= 0 ? seconds * 1000 : undefined);
}

/**
 * The failure that an ERROR event brings: its object is a metav1.Status. Its 404 would be about one object, and its 5xx
 * about the watch and not the server: after a second one in a row everything is listed again.
 */
export function failureOfEvent(object: unknown): KubeFailure {
  const { code, message, details } = isRecord(object) ? object : {};
  const seconds = isRecord(details) ? details.retryAfterSeconds : undefined;
  return new KubeFailure(
    REASONS[Number(code)] ?? 'ErrorEvent',
    `ERROR event ${String(code)}: ${String(message)}`,
    typeof seconds === 'number' ? seconds * 1000 : undefined,
  );
}

/** Failures that concern one object or one namespace, not the API server as a whole. */
export const CONCERNS_ONE_NAMESPACE: ReadonlySet<FailureReason> = new Set([
  'Forbidden',
  'NotFound',
  'Refused',
  'Conflict',
  'AlreadyExists',
]);

/** Everything that can keep Linger from connecting to its API server. */
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
