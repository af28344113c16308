/**
 * Notices that this process stood still: it was stopped (Ctrl-Z), the machine slept, or a reader of its output let it
 * wait. What has come in meanwhile is only read now, and the instants that it is given are wrong.
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
  constructor(toleratedMs: number, recoveryMs: number) {
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
