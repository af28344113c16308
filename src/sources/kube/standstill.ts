/** So much a busy machine, or a page of a list, may take; a lag can be wrong by as much. */
const TOLERATED_MS = 1_000;

/** Reading what has piled up takes milliseconds: beyond a few hundred events a server ends the watch instead. */
const RECOVERY_MS = 2_000;

/** Looks must come more often than what is tolerated, also where nothing happens. */
export const LOOK_EVERY_MS = 250;

/**
 * Notices that this process stood still: it was stopped (Ctrl-Z), its node or virtual machine slept, its processor
 * was taken away, or a reader of its output let it wait. What has come in meanwhile is only read now, and the instants
 * that it is given are wrong. Whoever asks must look before each event, and not on a timer alone: after a standstill
 * the event loop brings what has piled up first.
 */
export class Standstill {
  readonly #toleratedMs: number;
  readonly #recoveryMs: number;
  #lookedAt: number | undefined;
  /** When what has piled up will have been read. */
  #recoversAt: number | undefined;

  /**
   * @param toleratedMs how far apart two looks may be
   * @param recoveryMs how long after a standstill instants are still wrong
   */
  constructor(toleratedMs: number = TOLERATED_MS, recoveryMs: number = RECOVERY_MS) {
    this.#toleratedMs = toleratedMs;
    this.#recoveryMs = recoveryMs;
  }

  /**
   * @param now milliseconds of a monotonic clock
   * @returns what has changed: instants are wrong from `since` on, or right again
   */
  look(now: number): { readonly since: number } | 'recovered' | undefined {
    const since = this.#lookedAt ?? now;
    this.#lookedAt = now;
    if (now - since > this.#toleratedMs) {
      this.#recoversAt = now + this.#recoveryMs;
      return { since };
    }
    if (this.#recoversAt === undefined || now < this.#recoversAt) return undefined;
    this.#recoversAt = undefined;
    return 'recovered';
  }
}
