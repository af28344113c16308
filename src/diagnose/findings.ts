/** Critical: endpoints are being withdrawn late now, and this is why. Warning: it makes them late. Info: good to know. */
export const SEVERITIES = ['critical', 'warning', 'info'] as const;
export type Severity = (typeof SEVERITIES)[number];

/** Everything that a diagnosis can find, in the order of the report: a rule may look at the findings before it. */
export const FINDINGS = {
  ClientThrottled: {
    severity: 'critical',
    summary: 'The controller-manager waits for its own rate limiter, not for the API server.',
  },
  StuckWorker: { severity: 'critical', summary: 'A worker has been at one Service for over a minute.' },
  TooFewWorkers: {
    severity: 'critical',
    summary: 'All workers of a controller are busy, and Services wait.',
  },
  QueueBacklog: { severity: 'critical', summary: 'Services wait in a queue, and why cannot be told.' },
  WriteStorm: {
    severity: 'warning',
    summary: 'A large part of all Services is being written at once.',
  },
  ApiServerSlow: { severity: 'warning', summary: 'The API server takes long to answer writes.' },
  ApiServerRejects: {
    severity: 'warning',
    summary: 'The API server turns requests away, fails, or queues them for long.',
  },
  SyncErrors: { severity: 'warning', summary: 'Endpoints could not be written and are tried again later.' },
  BatchPeriod: { severity: 'warning', summary: 'A flag delays every withdrawal on purpose.' },
  SlowWithdrawals: { severity: 'warning', summary: 'Endpoints are withdrawn late, as measured.' },
  LeaderChanged: {
    severity: 'warning',
    summary: 'The controller-manager has just started or taken over: every Service is synced once.',
  },
  NotLeading: {
    severity: 'warning',
    summary: 'The metrics are those of an instance that is not the leader, and does nothing.',
  },
  LagUnexplained: {
    severity: 'warning',
    summary: 'Endpoints are withdrawn late, and the controllers are not the reason.',
  },
  ThrottledBefore: {
    severity: 'info',
    summary: 'The controller-manager has waited for its rate limiter earlier in its life.',
  },
  BacklogBefore: { severity: 'info', summary: 'Services have waited in a queue earlier in its life.' },
  SlowBefore: { severity: 'info', summary: 'A running Linger has measured late withdrawals earlier.' },
  NeverWithdrawn: {
    severity: 'info',
    summary: 'Services with publishNotReadyAddresses list a terminating pod until it is gone.',
  },
  ControllerNotSeen: {
    severity: 'info',
    summary: 'The controller-manager’s metrics could not be read, so causes inside it stay unknown.',
  },
  NothingWrong: { severity: 'info', summary: 'Nothing that delays withdrawals was seen.' },
} as const satisfies Record<string, { severity: Severity; summary: string }>;

export type FindingCode = keyof typeof FINDINGS;

/** One thing found. */
export interface Finding {
  readonly code: FindingCode;
  readonly severity: Severity;
  /** A full sentence or two about this very cluster. */
  readonly text: string;
  /** What it rests on: metrics and what they said. */
  readonly evidence: readonly string[];
  /** What to do. A line that begins with `--` is a flag of kube-controller-manager, exactly as it is to be set. */
  readonly cure: readonly string[];
}

export function finding(
  code: FindingCode,
  text: string,
  evidence: readonly string[],
  cure: readonly string[] = [],
): Finding {
  return { code, severity: FINDINGS[code].severity, text, evidence, cure };
}
