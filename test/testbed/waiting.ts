import { setTimeout as sleep } from 'node:timers/promises';

/** What was waited for did not come in time. */
export class WaitTimeout extends Error {
  constructor(what: string, timeoutMs: number, last: string) {
    super(`waited ${Math.round(timeoutMs / 100) / 10} s for ${what}${last === '' ? '' : `; last: ${last}`}`);
    this.name = 'WaitTimeout';
  }
}

export interface WaitOptions {
  /** Milliseconds until {@link WaitTimeout}. Default 60,000. */
  readonly timeoutMs?: number;
  /** Milliseconds between two looks. Default 250: Linger makes a page of its metrics four times a second at most. */
  readonly intervalMs?: number;
}

/**
 * Looks until `look` returns something other than undefined or false, and returns that.
 * A `look` that throws counts as "not yet"; its message is what the timeout reports.
 */
export async function waitUntil<T>(
  what: string,
  look: () => Promise<T | undefined | false> | T | undefined | false,
  options: WaitOptions = {},
): Promise<T> {
  const timeoutMs = options.timeoutMs ?? 60_000;
  const deadline = performance.now() + timeoutMs;
  let last = '';
  for (;;) {
    try {
      const found = await look();
      if (found !== undefined && found !== false) return found;
    } catch (error) {
      if (error instanceof GivingUp) throw error;
      last = error instanceof Error ? error.message : String(error);
    }
    if (performance.now() >= deadline) throw new WaitTimeout(what, timeoutMs, last);
    await sleep(options.intervalMs ?? 250);
  }
}

/** Thrown by a `look` that knows that waiting longer is pointless. */
export class GivingUp extends Error {}
