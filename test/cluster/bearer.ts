import type { Credentials } from '../../src/cluster/connection.ts';

/** Credentials of a token. */
export function bearer(token: string): Credentials {
  return { headers: { authorization: `Bearer ${token}` } };
}
