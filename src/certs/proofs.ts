import { createHmac, timingSafeEqual } from 'node:crypto';

const PROOF_BYTES = 16;

/** The keys with which replicas sign, newest first. Signatures with an older one are accepted as well. */
export type SigningKeys = readonly [newest: Buffer, ...older: Buffer[]];

/**
 * Proves to another replica who sent a text; 22 characters.
 * @param said must not contain line breaks, because two texts could then be mistaken for two others
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
