import { createHmac, timingSafeEqual } from 'node:crypto';

const PROOF_BYTES = 16;

/** What replicas sign with, the newest first: what was signed with an older one is good, too. */
export type SigningKeys = readonly [newest: Buffer, ...older: Buffer[]];

/**
 * Proves to another replica who said this; 22 characters.
 * @param said none may contain a line break, or two texts could be mistaken for two others
 */
export function proofOf(key: Buffer, ...said: readonly string[]): string {
  const hmac = createHmac('sha256', key).update(said.join('\n'));
  return hmac.digest().subarray(0, PROOF_BYTES).toString('base64url');
}

export function isProven(proof: string, keys: SigningKeys, ...said: readonly string[]): boolean {
  const given = Buffer.from(proof);
  return keys.some((key) => {
    const expected = Buffer.from(proofOf(key, ...said));
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}
