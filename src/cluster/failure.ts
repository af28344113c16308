import { asError, type Curable, isRecord, isString, jsonIn, UserError } from '../core/api/index.ts';

/** Why a list or a watch ended and is being restarted; the value of a metric's label. */
export const RESTARTS = {
  Ended: {
    means: 'The server closed the watch cleanly: at its timeout, or because it shuts down.',
    cure: 'Nothing.',
  },
  Cut: {
    means: 'The connection broke in the middle of an answer.',
    cure: 'Often: look for what resets connections on the path (load balancers, idle timeouts).',
  },
  Silent: {
    means:
      'Nothing came for 70 s. Either nothing happened, or the connection was dead: `linger_watch_stalls_total` counts the latter.',
    cure: 'With stalls: look for what drops connections silently.',
  },
  Unreachable: {
    means: 'No connection, or no answer on it.',
    cure: 'Check the API server; a NetworkPolicy without egress has the same effect.',
  },
  Expired: {
    means:
      'The server no longer has the resourceVersion at which the watch stopped (410). Everything is listed again.',
    cure: 'Occasionally: nothing. Often: the outages are longer than 5 minutes, or etcd is compacted too often.',
  },
  Throttled: {
    means: 'The server asked to retry later (429).',
    cure: "If it lasts, give Linger's ServiceAccount its own priority level (Priority and Fairness).",
  },
  Unauthorized: {
    means: 'The credentials were not accepted (401). They are reread.',
    cure: 'Token or certificate expired, or of another cluster.',
  },
  Forbidden: {
    means:
      'The credentials do not allow it (403). While an API server starts, for some seconds: it has not read its roles yet.',
    cure: 'If it lasts, [`LingerForbidden`](../on-call.md#alerts).',
  },
  ServerError: {
    means: 'The server failed (5xx).',
    cure: "Check the API server's log.",
  },
  NotServed: {
    means: 'The server does not serve that kind (404).',
    cure: "Linger's own kinds: [install the CRDs](operations.md#install-the-crds), or ignore it: Linger retries about every half minute.",
  },
  Refused: {
    means: 'The server did not accept the request (another 4xx).',
    cure: "The log line has the server's message.",
  },
  ErrorEvent: {
    means: 'The watch delivered another kind of error.',
    cure: "The log line has the server's message.",
  },
  Malformed: {
    means: 'The answer is not a list or a watch.',
    cure: 'Something other than an API server answers; the log line has its beginning.',
  },
  Internal: {
    means: 'A bug in Linger.',
    cure: 'Report it, with the log line.',
  },
} as const satisfies Readonly<Record<string, Curable>>;

/** Why an object could not be read or written; the value of a metric's label. */
export const OBJECT_FAILURES = {
  NotFound: {
    means: 'The object or namespace does not exist (404).',
    cure: 'Check `--namespace`.',
  },
  AlreadyExists: {
    means: 'Another writer has created it first (409).',
    cure: 'Nothing: it is reread.',
  },
  Conflict: {
    means: 'Another writer has changed it since it was read (409).',
    cure: 'Occasionally: nothing. Often: something else writes it, too.',
  },
  Throttled: {
    means: 'The server asked to retry later (429).',
    cure: "If it lasts, give Linger's ServiceAccount its own priority level (Priority and Fairness).",
  },
  Unauthorized: {
    means: 'The credentials were not accepted (401). They are reread.',
    cure: 'Token expired, or of another cluster.',
  },
  Forbidden: {
    means: 'The credentials do not allow it (403).',
    cure: 'Compare with `deploy/role-publish.yaml` and, for statuses, `deploy/rbac.yaml`.',
  },
  ServerError: {
    means: 'The server failed (5xx).',
    cure: "Check the API server's log.",
  },
  Refused: {
    means:
      'The server did not accept the object (another 4xx): too large, or against a policy. The next history is half as long.',
    cure: "The log line has the server's message.",
  },
  Unreachable: {
    means: 'No connection, or no full answer in time.',
    cure: 'Check the API server.',
  },
  Malformed: {
    means: 'The answer is not an object.',
    cure: 'Something other than an API server answers; the log line has its beginning.',
  },
} as const satisfies Readonly<Record<string, Curable>>;

export type FailureReason = keyof typeof RESTARTS | keyof typeof OBJECT_FAILURES;

/**
 * A failed request to the API server. The reason is one of OBJECT_FAILURES for a typed call, and one of RESTARTS for a list
 * or a watch.
 */
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

/** @param otherwise the reason to use if something other than a KubeFailure was thrown */
export function asFailure(thrown: unknown, otherwise: FailureReason = 'Internal'): KubeFailure {
  if (thrown instanceof KubeFailure) return thrown;
  const { message, stack = message } = asError(thrown);
  return new KubeFailure(otherwise, otherwise === 'Internal' ? stack : message.slice(0, 300));
}

/** By HTTP status code, or by the code of the metav1.Status in an ERROR event. */
const REASONS: Readonly<Record<number, FailureReason>> = {
  401: 'Unauthorized',
  403: 'Forbidden',
  410: 'Expired',
  429: 'Throttled',
};

/**
 * The failure for a response other than 2xx.
 * @param body a metav1.Status, or other text, such as a proxy's error page
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
 * The failure in an ERROR event, whose object is a metav1.Status. Codes mean something else here: 404 would be about a
 * single object, and 5xx about the watch rather than the server. After a second 5xx in a row, everything is listed again.
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

/** Failures that concern one object or one namespace rather than the API server as a whole. */
export const CONCERNS_ONE_NAMESPACE: ReadonlySet<FailureReason> = new Set([
  'Forbidden',
  'NotFound',
  'Refused',
  'Conflict',
  'AlreadyExists',
]);

/** Everything that can prevent Linger from connecting to its API server. */
export const CONNECTION_ERRORS = {
  NotInCluster: {
    means: 'There are no in-cluster credentials here. The message names what is missing.',
    cure: 'In a pod: `automountServiceAccountToken`. Elsewhere: `--kubeconfig`, or `--cluster off`.',
  },
  KubeconfigUnreadable: {
    means: "A kubeconfig, or a file that it names, cannot be read. The message has the system's reason.",
    cure: "Let Linger's user read it. Relative names count from the kubeconfig's folder.",
  },
  KubeconfigInvalid: {
    means:
      'It is not a kubeconfig, or it names a context, cluster or user that it does not have. The message has the field, and never a value.',
    cure: '`kubectl config view` shows the same file.',
  },
  KubeconfigUnsupported: {
    means:
      'It asks for something that Linger does not do, such as an unverified server, impersonation of groups, or an auth-provider other than `oidc`, `azure` and `gcp`.',
    cure: 'The message says what to use instead: mostly a client certificate or a token (`kubectl create token`).',
  },
  PluginFailed: {
    means:
      'The program that a kubeconfig gets its credentials from (`exec`) gave none. The message says how it failed.',
    cure: 'Run it by hand; log in again.',
  },
} as const satisfies Readonly<Record<string, Curable>>;

export type ConnectionErrorCode = keyof typeof CONNECTION_ERRORS;

/**
 * The message names the file and the fix. There is no `cause`, since that could bring the bytes of a key or a token into a
 * log.
 */
export class ConnectionError extends UserError {
  override readonly name = 'ConnectionError';
  override readonly code: ConnectionErrorCode;

  constructor(code: ConnectionErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
