import {
  admissionWarning,
  type Decision,
  isAudit,
  type Operation,
  patchInForce,
  renderPlan,
  warningsOf,
} from '../core/decision/index.ts';

/** What a decision led to. `audit`: an injection that was not applied. */
export type Outcome = 'inject' | 'audit' | 'skip';

/** admission.k8s.io/v1 AdmissionResponse, as far as Linger uses it. A pod is always allowed. */
export interface AdmissionResponse {
  readonly uid: string;
  readonly allowed: true;
  readonly patchType?: 'JSONPatch';
  /** A JSON Patch in base64. */
  readonly patch?: string;
  readonly warnings?: readonly string[];
  /** The API server prefixes each key with the webhook's name. */
  readonly auditAnnotations?: Readonly<Record<string, string>>;
}

export function outcomeOf(decision: Decision): Outcome {
  if (decision.outcome === 'skip') return 'skip';
  return isAudit(decision) ? 'audit' : 'inject';
}

export interface AnswerOptions {
  /** In mode Audit, also warn about what Enforce would do. */
  readonly auditWarnings: boolean;
}

/**
 * Applies the mode to a decision: in Enforce, patches the pod; in Audit, leaves it as its author and other webhooks want it.
 */
export function answerDecision(
  uid: string,
  object: unknown,
  decision: Decision,
  { auditWarnings }: AnswerOptions,
): AdmissionResponse {
  const { outcome, notes } = decision;
  const operations = patchInForce(object, decision);
  if (isAudit(decision)) {
    const plan = outcome === 'inject' ? { plan: renderPlan(decision.plan) } : {};
    const reason = outcome === 'skip' ? decision.reason : 'Audit';
    // Audit changes nothing, so by default it warns only about faults in the pod's own annotations.
    const warnings = auditWarnings
      ? [...wouldInject(decision), ...warningsOf(notes)]
      : warningsOf(notes.filter(({ code }) => code === 'InvalidAnnotation'));
    return patching(allowed(uid, warnings, { reason, ...plan }), operations);
  }
  const reason = outcome === 'inject' ? 'Injected' : decision.reason;
  return patching(allowed(uid, warningsOf(notes), { reason }), operations);
}

function patching(response: AdmissionResponse, operations: readonly Operation[]): AdmissionResponse {
  if (operations.length === 0) return response;
  return {
    ...response,
    patchType: 'JSONPatch',
    patch: Buffer.from(JSON.stringify(operations)).toString('base64'),
  };
}

/** The answer if Linger itself failed: the pod is admitted unchanged, and its creator gets a warning. */
export function internalErrorAnswer(uid: string): AdmissionResponse {
  const text = 'internal error: the pod passes without a wait; the log of the webhook says why';
  return allowed(uid, [admissionWarning(text)], { reason: 'InternalError' });
}

function wouldInject(decision: Decision): readonly string[] {
  if (decision.outcome === 'skip') return [];
  const { wait, baseGrace, grace, hook } = decision.plan;
  const text = `audit: would hold SIGTERM back by ${wait}s (hook ${hook}) and raise the grace from ${baseGrace}s to ${grace}s`;
  return [admissionWarning(text)];
}

function allowed(
  uid: string,
  warnings: readonly string[],
  auditAnnotations: Readonly<Record<string, string>>,
): AdmissionResponse {
  return { uid, allowed: true, ...(warnings.length > 0 && { warnings }), auditAnnotations };
}
