import { asError } from '../core/catalog/errors.ts';
import type { Documents } from '../world/documents.ts';
import { pause } from './pause.ts';
import { type PolicySnapshot, readPolicyFiles } from './policy-files.ts';

export interface PolicyWatchEvents {
  /** A new set of policies is valid and to be taken as a whole. */
  readonly onChange: (documents: Documents) => void;
  /** The set on the disk cannot be used; what was in force stays. Said once for each state that lasts. */
  readonly onError: (error: Error) => void;
}

/**
 * How often the folder is read. A change is taken when two readings agree, so that a file caught half-written is
 * not taken for a shorter one: in force after at most two intervals and the time of two readings, under 3 s.
 */
export const POLL_MS = 1_000;

/**
 * Follows a policy path until the signal aborts. Contents are compared and not change events: those do not arrive
 * for the links by which a kubelet swaps a mounted ConfigMap, nor on network file systems.
 * @param inForce hash of the set that is already in force
 */
export async function watchPolicyFiles(
  path: string,
  inForce: string,
  { onChange, onError }: PolicyWatchEvents,
  signal: AbortSignal,
  pollMs = POLL_MS,
): Promise<void> {
  let taken = inForce;
  let previous = inForce;
  let failing: { readonly message: string; readonly told: boolean } | undefined;
  while (await pause(pollMs, signal)) {
    try {
      const snapshot = await readPolicyFiles(path);
      failing = undefined;
      const settled = snapshot.hash === previous;
      previous = snapshot.hash;
      if (!settled || snapshot.hash === taken) continue;
      taken = snapshot.hash;
      take(snapshot, { onChange, onError });
    } catch (cause) {
      // A file that is replaced at this very moment may be missing; as with changes, two readings must agree.
      const error = asError(cause);
      const again = error.message === failing?.message;
      if (again && failing?.told === false) onError(error);
      failing = { message: error.message, told: again };
    }
  }
}

function take(snapshot: PolicySnapshot, { onChange, onError }: PolicyWatchEvents): void {
  let documents: Documents;
  try {
    documents = snapshot.parse();
  } catch (cause) {
    onError(asError(cause));
    return;
  }
  onChange(documents);
}
