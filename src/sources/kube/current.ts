import { pause } from '../pause.ts';
import type { WatchLimits } from './limits.ts';

/** How far a watch has come. */
export interface StreamPosition {
  /** The resourceVersion that it has reached. */
  readonly resourceVersion: string;
  /** When something last came. */
  readonly heardAt: number;
}

export interface CurrentOptions {
  readonly position: () => StreamPosition;
  /** The resourceVersion that the collection has now, by a consistent read. */
  readonly latest: () => Promise<string>;
  readonly limits: Pick<WatchLimits, 'currentWithinMs' | 'currentRetryMs'>;
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

/** For a server whose versions are no numbers: there, only silence says that nothing is outstanding. */
const BEYOND_REACH = 2n ** 128n;

/** How often to look; two or three looks are usual. */
const LOOK_MS = 25;

/**
 * Waits until a watch that has just been opened brings events when they happen, and not what had piled up before.
 * The protocol has no mark for that, so the server is asked for the latest resourceVersion: a watch that reaches it
 * within `currentWithinMs` of the answer is behind by no more than that and the time of one request. Where nothing
 * changes it is never reached; there, as long a silence says that nothing is outstanding.
 *
 * Comparing resourceVersions as numbers is what they are made for since KEP-5504, and has always worked with etcd.
 * @returns false once the signal has aborted, `rolledBack` when the server's history is older than what the watch
 *   has seen (etcd was restored): such a watch would stay silent until the numbers have grown past it again
 */
export async function untilCurrent(options: CurrentOptions): Promise<boolean | 'rolledBack'> {
  const { latest, limits, signal, position } = options;
  while (!signal.aborted) {
    const seen = numberOf(position().resourceVersion);
    const target = await latest().then(
      (text) => numberOf(text) ?? BEYOND_REACH,
      () => undefined,
    );
    if (signal.aborted) break;
    if (seen !== undefined && target !== undefined && target < seen) return 'rolledBack';
    // An answer that failed says nothing; the silence of a server that is in trouble does not either.
    if (target !== undefined && (await reaches(target, options))) return true;
    if (!(await pause(limits.currentRetryMs, signal))) break;
  }
  return false;
}

/** Whether the stream reaches the target in time, or has nothing more to say. */
async function reaches(
  target: bigint,
  { position, limits, clock, signal }: CurrentOptions,
): Promise<boolean> {
  const answeredAt = clock();
  const { currentWithinMs } = limits;
  for (;;) {
    const { resourceVersion, heardAt } = position();
    const now = clock();
    const reached = (numberOf(resourceVersion) ?? -1n) >= target;
    if (reached) return now - answeredAt <= currentWithinMs;
    if (now - Math.max(answeredAt, heardAt) >= currentWithinMs) return true;
    if (!(await pause(LOOK_MS, signal))) return false;
  }
}

function numberOf(resourceVersion: string): bigint | undefined {
  return /^\d+$/.test(resourceVersion) ? BigInt(resourceVersion) : undefined;
}
