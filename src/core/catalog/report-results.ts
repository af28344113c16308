/**
 * What becomes of a report of a consumer's instance: the `reason` of a refusal, and a metric's label. 401 and 403 are
 * about who reports, 409 about a report that contradicts what Linger knows, 429 and 503 about coming back later.
 */
export const REPORT_RESULTS = {
  Asked: { status: 200, summary: 'A cursor was asked for, and given.' },
  Synced: { status: 200, summary: 'A sync was reported, and counts.' },
  InvalidReport: { status: 400, summary: 'The body is no report: the message names the field.' },
  NoToken: { status: 401, summary: 'There is no bearer token.' },
  TokenRefused: { status: 401, summary: 'The API server does not vouch for the token, for this audience.' },
  NotAllowed: { status: 403, summary: 'Whoever it is has no right to report for this consumer.' },
  NoSuchConsumer: { status: 404, summary: 'There is no DiscoveryConsumer of that name.' },
  NotByReports: { status: 409, summary: 'The consumer is measured in another way.' },
  PastCursor: { status: 409, summary: 'The cursor was given by an earlier leader; a new one comes along.' },
  UsedCursor: { status: 409, summary: 'The cursor has been sent back before, or a later one was given.' },
  ForeignCursor: { status: 409, summary: 'The cursor was never given to this instance of this consumer.' },
  TooLarge: { status: 413, summary: 'The body is longer than a report is.' },
  Compressed: { status: 415, summary: 'Compressed bodies are not read.' },
  TooManyReports: { status: 429, summary: 'This instance, or this token, reports too often.' },
  TooManyInstances: { status: 429, summary: 'The consumer has as many instances as are kept.' },
  NotLeader: { status: 503, summary: 'This replica does not lead; another one takes reports.' },
  NoVerdict: { status: 503, summary: 'The API server cannot be asked about the token at the moment.' },
} as const satisfies Record<string, { status: number; summary: string }>;

export type ReportResult = keyof typeof REPORT_RESULTS;
