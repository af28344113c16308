/** Wait and grace of one pod, in whole seconds. */
export interface Fit {
  readonly wait: number;
  readonly grace: number;
}

/**
 * What of `grace.max` the application keeps at least for its own shutdown, when the pod's grace is large already:
 * nine tenths, so that a long-running shutdown pays a tenth for the wait and not its last second.
 */
const KEPT_SHARE = 0.9;

/**
 * Raises the grace by the wait, up to `maxGrace`, and shortens the wait where that leaves too little:
 *
 *     grace' = max(grace, min(grace + wait, max))     keep = min(grace, 0.9 × max)     wait' = min(wait, grace' − keep)
 *
 * The author's own time to shut down (grace) is kept up to `keep`, and wait' ≤ grace' always: the API server
 * rejects a pod whose sleep is longer than its grace (KEP-3960). A wait' under 1 means that there is no room.
 * @param grace the author's grace, > 0
 */
export function fitGrace(wait: number, grace: number, maxGrace: number): Fit {
  const max = Math.floor(maxGrace);
  const raised = Math.max(grace, Math.min(grace + wait, max));
  const keep = Math.min(grace, KEPT_SHARE * max);
  return { wait: Math.max(0, Math.floor(Math.min(wait, raised - keep))), grace: raised };
}

/**
 * The wait that is left in a pod whose grace somebody cut after injection: the same rule, with what is left as the
 * most there may be.
 */
export function refitGrace(wait: number, baseGrace: number, currentGrace: number): number {
  return currentGrace === 0 ? 0 : fitGrace(wait, Math.min(baseGrace, currentGrace), currentGrace).wait;
}
