import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';

/** Life, number, proof. */
const FORM = /^([\w-]{8})\.([0-9a-z]{1,11})\.([\w-]{22})$/;
const PROOF_BYTES = 16;

/**
 * Cursors as instances get to see them: a number, with a proof that this leader has given it to this instance of this
 * consumer. The key lives as long as the lead does; so nobody else can make one, and an earlier leader's is told apart.
 */
export class ReportCursors {
  readonly #key = randomBytes(32);
  readonly #life = randomBytes(6).toString('base64url');

  write(consumer: string, instance: string, number: number): string {
    const digits = number.toString(36);
    return `${this.#life}.${digits}.${this.#proof(consumer, instance, digits).toString('base64url')}`;
  }

  /** @returns its number; `Past` for what another leader may have given; `Foreign` for what this instance never got */
  read(consumer: string, instance: string, text: string): number | 'Past' | 'Foreign' {
    const [, life = '', digits = '', proof = ''] = FORM.exec(text) ?? [];
    if (life === '') return 'Foreign';
    if (life !== this.#life) return 'Past';
    const own = this.#proof(consumer, instance, digits);
    return timingSafeEqual(own, Buffer.from(proof, 'base64url')) ? Number.parseInt(digits, 36) : 'Foreign';
  }

  #proof(consumer: string, instance: string, digits: string): Buffer {
    // None of them may hold a line break: the three are told apart.
    const hmac = createHmac('sha256', this.#key).update(`${consumer}\n${instance}\n${digits}`);
    return hmac.digest().subarray(0, PROOF_BYTES);
  }
}
