import { readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';

/** One request that an API server has answered, as audit.k8s.io/v1 logs it. */
export interface AuditEvent {
  readonly auditID: string;
  readonly stage: string;
  readonly verb: string;
  readonly requestURI?: string;
  readonly user: { readonly username: string };
  readonly objectRef: {
    readonly resource: string;
    readonly subresource?: string;
    readonly namespace: string;
    readonly name?: string;
  };
  readonly responseStatus?: { readonly code: number };
  readonly annotations?: Readonly<Record<string, string>>;
  /** What was sent, and what was answered to creations, of the resources that the policy wants it of. */
  readonly requestObject?: unknown;
  readonly responseObject?: unknown;
  /** RFC 3339 with microseconds, by the API server's clock. */
  readonly requestReceivedTimestamp: string;
  readonly stageTimestamp: string;
}

/** A place in a log that grows: what comes after it is what happens from now on. */
export function auditPosition(file: string): number {
  return partsOf(file).reduce((bytes, part) => bytes + statSync(part).size, 0);
}

/** The answered requests about a namespace in the log from a position on, in the order in which they were logged. */
export function readAudit(file: string, namespace: string, position = 0): readonly AuditEvent[] {
  return answered(file, `"namespace":"${namespace}"`, position).filter(
    ({ objectRef }) => objectRef.namespace === namespace,
  );
}

/**
 * What a user had no right to from a position on, such as `list /api/v1/nodes?limit=500`. By what the authorizer decided: 403 is
 * also the answer to who writes into a namespace that is being deleted.
 */
export function readRefusals(file: string, username: string, position = 0): readonly string[] {
  return answered(file, `"username":"${username}"`, position)
    .filter(({ user, annotations }) => user.username === username && annotations?.[DECISION] === 'forbid')
    .map(({ verb, requestURI = '' }) => `${verb} ${requestURI}`);
}

/** kube-apiserver's, with `allow` or `forbid` (k8s.io/apiserver, endpoints/filters/authorization.go). */
const DECISION = 'authorization.k8s.io/decision';

function answered(file: string, mention: string, position: number): readonly AuditEvent[] {
  let skipped = position;
  return partsOf(file).flatMap((part) => {
    const bytes = readFileSync(part);
    const from = Math.min(skipped, bytes.length);
    skipped -= from;
    return bytes
      .subarray(from)
      .toString('utf8')
      .split('\n')
      .slice(0, -1) // The last one is empty, or is being written.
      .filter((line) => line.includes(mention))
      .map((line) => JSON.parse(line) as AuditEvent)
      .filter(({ stage }) => stage === 'ResponseComplete');
  });
}

/** The API server begins a new file at 100 MB (--audit-log-maxsize), and puts the instant into the old one's name. */
function partsOf(file: string): readonly string[] {
  const rotated = new RegExp(`^${basename(file, '.log')}-\\d{4}-\\d\\d-\\d\\dT.*\\.log$`);
  const before = readdirSync(dirname(file)).filter((name) => rotated.test(name));
  return [...before.toSorted().map((name) => join(dirname(file), name)), file];
}

/** Milliseconds since the epoch, with microseconds as a fraction. */
export function instantOf(timestamp: string): number {
  const [seconds, fraction = '0'] = timestamp.replace('Z', '').split('.');
  return Date.parse(`${seconds}Z`) + Number(`0.${fraction}`) * 1000;
}
