import type { ServerResponse } from 'node:http';
import { REPORT_RESULTS, type ReportResult } from '../../core/catalog/report-results.ts';
import type { ReportRefused } from '../../core/schema/report.ts';

/** Everything that is answered with another status than 200. */
export type Refusal = Exclude<ReportResult, 'Asked' | 'Synced'>;

/** In which header the cursor of an answer stands, too: for those to whom JSON is a nuisance. */
export const CURSOR_HEADER = 'Linger-Cursor';

/** The way out of each. */
const WAYS_OUT: Readonly<Record<Refusal, string>> = {
  InvalidReport: 'see GET /v1/openapi.json',
  NoToken:
    'send "Authorization: Bearer TOKEN" with the token of a ServiceAccount, projected for the audience of Linger’s reports',
  TokenRefused:
    'project a token for the audience of Linger’s reports (--reports-audience), and read its file anew each time',
  NotAllowed:
    'bind a role with verb create, group linger.dev, resource discoveryconsumers/reports and this resourceName',
  NoSuchConsumer: 'create the DiscoveryConsumer, or correct the name in the URL',
  NotByReports: 'set spec.measure to {reports: {}}, or stop reporting',
  PastCursor: 'go on with the cursor of this answer; that is normal after a change of leader',
  UsedCursor:
    'go on with the cursor of this answer; where it happens again, two processes report under one name',
  ForeignCursor: 'go on with the cursor of this answer; send back what the answer before brought, as it came',
  TooLarge: 'send the instance, its cursor and nothing else',
  Compressed: 'send it as it is',
  TooManyReports: 'report once for each sync, or before and after it',
  TooManyInstances:
    'name instances by what they are and not by when they report; those that fall silent make room',
  NotLeader: 'connect anew, by the Service linger-reports; after a change of leader that takes some seconds',
  NoVerdict: 'try again with the next sync',
};

/** What is said in which words: the summary of the catalogue, or something more exact, and the way out. */
export function refusalBody(reason: Refusal, exactly?: string, cursor?: string): ReportRefused {
  const what = exactly ?? REPORT_RESULTS[reason].summary.replace(/\.$/, '');
  const message = `${what}; ${WAYS_OUT[reason]}`;
  return cursor === undefined ? { reason, message } : { reason, message, cursor };
}

/** When to come back, where it is too early or the wrong place. Seconds. */
const RETRY_AFTER: Partial<Record<ReportResult, number>> = {
  TooManyReports: 1,
  TooManyInstances: 60,
  NotLeader: 2,
  NoVerdict: 2,
};

/** After these nothing more is read from the connection, or it leads to the wrong replica. */
const CLOSING: ReadonlySet<ReportResult> = new Set(['TooLarge', 'Compressed', 'NotLeader']);

/** Answers with JSON. */
export function send(
  response: ServerResponse,
  result: ReportResult,
  body: object & { readonly cursor?: string | undefined },
): void {
  const { status } = REPORT_RESULTS[result];
  const after = RETRY_AFTER[result];
  if (after !== undefined) response.setHeader('Retry-After', String(after));
  if (status === 401) response.setHeader('WWW-Authenticate', 'Bearer');
  if (CLOSING.has(result)) response.setHeader('Connection', 'close');
  if (body.cursor !== undefined) response.setHeader(CURSOR_HEADER, body.cursor);
  response.statusCode = status;
  response.setHeader('Content-Type', 'application/json');
  response.end(`${JSON.stringify(body)}\n`);
}
