import { readFileSync, statSync } from 'node:fs';

/** One request that an API server has answered, as audit.k8s.io/v1 logs it. */
export interface AuditEvent {
  readonly auditID: string;
  readonly stage: string;
  readonly verb: string;
  readonly user: { readonly username: string };
  readonly objectRef: {
    readonly resource: string;
    readonly subresource?: string;
    readonly namespace: string;
    readonly name?: string;
  };
  readonly responseStatus?: { readonly code: number };
  /** What was sent, and what was answered to creations, of the resources that the policy wants it of. */
  readonly requestObject?: unknown;
  readonly responseObject?: unknown;
  /** RFC 3339 with microseconds, by the API server's clock. */
  readonly requestReceivedTimestamp: string;
  readonly stageTimestamp: string;
}

/** A place in a log that grows: what comes after it is what happens from now on. */
export function auditPosition(file: string): number {
  return statSync(file).size;
}

/** The answered requests in the log from a position on, in the order in which they were logged. */
export function readAudit(file: string, position = 0): readonly AuditEvent[] {
  const lines = readFileSync(file).subarray(position).toString('utf8').split('\n');
  // The last one is empty, or is being written.
  return lines
    .slice(0, -1)
    .map((line) => JSON.parse(line) as AuditEvent)
    .filter(({ stage }) => stage === 'ResponseComplete');
}

/** Milliseconds since the epoch, with microseconds as a fraction. */
export function instantOf(timestamp: string): number {
  const [seconds, fraction = '0'] = timestamp.replace('Z', '').split('.');
  return Date.parse(`${seconds}Z`) + Number(`0.${fraction}`) * 1000;
}
