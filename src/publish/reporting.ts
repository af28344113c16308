import type { ObjectFailure, ObjectFailureReason } from '../kube/object-request.ts';
import { PUBLISHED_NAMES, type PublishedObject, type Refusal } from '../measure/publication.ts';
import type { Logger } from '../telemetry/logs.ts';
import type { PublishStatus, PublishTarget } from './status.ts';

/**
 * Counts what goes wrong, and says it once for each kind of trouble and again when it is over: an outage is not a line
 * a second.
 */
export class Reporting {
  readonly #logger: Logger;
  readonly #status: PublishStatus;
  readonly #failing = new Map<PublishTarget, ObjectFailureReason>();

  constructor(logger: Logger, status: PublishStatus) {
    this.#logger = logger;
    this.#status = status;
  }

  failed(target: PublishTarget, { reason, message }: ObjectFailure, pauseMs: number): void {
    const counts = this.#status.failures[target];
    counts[reason] = (counts[reason] ?? 0) + 1;
    if (this.#failing.get(target) === reason) return;
    this.#failing.set(target, reason);
    this.#logger.warn(
      { object: nameOf(target), reason, problem: message, pauseMs: Math.round(pauseMs) },
      'publishing fails for now; what is known stays in force',
    );
  }

  succeeded(target: PublishTarget): void {
    if (this.#failing.delete(target)) this.#logger.info({ object: nameOf(target) }, 'publishing works again');
  }

  /** What is there cannot be used. */
  refused(object: PublishedObject, refusal: Refusal, problem: string): void {
    const state = this.#status.published[object];
    if (state.refusal === refusal) return;
    state.refusal = refusal;
    this.#logger.error(
      { object: nameOf(object), reason: refusal, problem },
      'what is published cannot be used',
    );
  }

  broke(err: Error): void {
    this.#logger.error({ err }, 'publishing failed: a mistake in Linger');
  }

  /** What is there is used, or nothing is there. */
  accepted(object: PublishedObject): void {
    this.#status.published[object].refusal = undefined;
  }
}

function nameOf(target: PublishTarget): string {
  if (target === 'lease') return 'linger';
  return target === 'status' ? 'discoveryconsumers/status' : PUBLISHED_NAMES[target];
}
