import {
  type Decision,
  isAudit,
  type Note,
  type Pod,
  patchFor,
  renderPlan,
  warning,
  warningsOf,
} from '../decision/index.ts';

/** How a decision was answered: `audit` is an injection that was only told. */
export type Outcome = 'inject' | 'audit' | 'skip';

/** admission.k8s.io/v1 AdmissionResponse, as far as Linger uses it. A pod is always allowed. */
export interface AdmissionResponse {
  readonly uid: string;
  readonly allowed: true;
  readonly patchType?: 'JSONPatch';
  /** base64 of a JSON Patch */
  readonly patch?: string;
  readonly warnings?: readonly string[];
  /** The API server puts the webhook's name in front of each key. */
  readonly auditAnnotations?: Readonly<Record<string, string>>;
}

export interface AnswerOptions {
  /** In mode Audit, also warn of what would have been done. */
  readonly auditWarnings: boolean;
}

export function outcomeOf(decision: Decision): Outcome {
  if (decision.outcome === 'skip') return 'skip';
  return isAudit(decision) ? 'audit' : 'inject';
}

/** Applies the mode to a decision: Enforce patches, Audit only tells. */
export function answer(
  uid: string,
  object: unknown,
  decision: Decision,
  options: AnswerOptions,
): AdmissionResponse {
  if (isAudit(decision)) {
    const said =
      decision.outcome === 'skip'
        ? { reason: decision.reason }
        : { reason: 'Audit', plan: renderPlan(decision.plan) };
    return allowed(uid, auditWarnings(decision, options), said);
  }
  const reason = decision.outcome === 'inject' ? 'Injected' : decision.reason;
  const response = allowed(uid, warningsOf(decision.notes), { reason });
  // A pod that was skipped may not be readable.
  const operations = changesPod(decision) ? patchFor(object as Pod, decision) : [];
  if (operations.length === 0) return response;
  return { ...response, patchType: 'JSONPatch', patch: base64(JSON.stringify(operations)) };
}

/** Used again for every patch that fits, as nearly all do: a buffer for each would be garbage outside the heap. */
const SCRATCH = Buffer.allocUnsafeSlow(64 * 1024);
/** UTF-8 takes at most 3 bytes for each UTF-16 unit. */
const LONGEST = SCRATCH.length / 3;

function base64(text: string): string {
  if (text.length > LONGEST) return Buffer.from(text).toString('base64');
  return SCRATCH.toString('base64', 0, SCRATCH.write(text));
}

function changesPod(decision: Decision): boolean {
  return decision.outcome === 'inject' || decision.withdrawn !== undefined;
}

/** The answer when Linger itself failed: the pod passes unchanged, and its creator hears of it. */
export function internalErrorAnswer(uid: string): AdmissionResponse {
  const warnings = [
    warning('internal error: the pod passes without a wait; the log of the webhook says why'),
  ];
  return { uid, allowed: true, warnings, auditAnnotations: { reason: 'InternalError' } };
}

function auditWarnings(decision: Decision, options: AnswerOptions): readonly string[] {
  const { notes } = decision;
  // In Audit nothing was shrunk, so by default only what is wrong with the pod's own annotations is said.
  if (!options.auditWarnings)
    return warningsOf(notes.filter(({ code }: Note) => code === 'InvalidAnnotation'));
  if (decision.outcome === 'skip') return warningsOf(notes);
  const { wait, baseGrace, grace, hook } = decision.plan;
  const text = `audit: would hold SIGTERM back by ${wait}s (hook ${hook}) and raise the grace from ${baseGrace}s to ${grace}s`;
  return [warning(text), ...warningsOf(notes)];
}

function allowed(
  uid: string,
  warnings: readonly string[],
  auditAnnotations: Readonly<Record<string, string>>,
): AdmissionResponse {
  return warnings.length === 0
    ? { uid, allowed: true, auditAnnotations }
    : { uid, allowed: true, warnings, auditAnnotations };
}
