import { isRecord, jsonIn } from '../core/schema/shape.ts';

/** Why a list or a watch came to an end and is begun again. The metric's label. */
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

/** What was asked of the API server failed, for one of some reasons. */
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

export function asFailure(thrown: unknown): WatchFailure {
  if (thrown instanceof WatchFailure) return thrown;
  return new WatchFailure(
    'Internal',
    thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown),
  );
}

/**
 * The failure that an answer other than 200 is.
 * @param body a metav1.Status, or whatever else came
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
  // In an event it would be about one object.
  if (status === 404 && otherwise === 'Refused') return 'NotServed';
  // An event's 5xx concerns the watch and not the server: a second one in a row is a reason to list anew.
  if (status >= 500 && otherwise === 'Refused') return 'ServerError';
  return otherwise;
}
