import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Waits, without keeping the process alive: what goes on in the background is never what a process waits for.
 * @returns false once the signal has aborted
 */
export async function pause(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  try {
    await sleep(milliseconds, undefined, { signal, ref: false });
    return true;
  } catch {
    return false;
  }
}
