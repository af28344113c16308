const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** cert-manager's choice for the CA of its own webhook: long enough to be pasted once, short enough to be rotated for real. */
export const AUTHORITY_LIFE_MS = 365 * DAY_MS;

/**
 * What people know from ACME. It must stay below a third of the CA's life (121 days): the CA is replaced
 * at two thirds, so a certificate that it issued on its last day still does not outlive it.
 */
export const SERVING_LIFE_MS = 90 * DAY_MS;

/**
 * How far notBefore lies in the past, for clients whose clock is behind ours: an hour, as in client-go's
 * GenerateSelfSignedCertKey ("valid an hour earlier to avoid flakes due to clock skew"). It covers what a
 * virtual machine loses while its laptop sleeps and has not asked NTP yet.
 */
export const BACKDATE_MS = HOUR_MS;

export interface Validity {
  readonly notBefore: Date;
  readonly notAfter: Date;
}

/** A validity that starts (backdated) at `now`, lasts `lifeMs`, and ends no later than `limit` (the issuer's own end). */
export function validityFrom(now: Date, lifeMs: number, limit?: Date): Validity {
  const end = now.getTime() + lifeMs;
  return {
    notBefore: new Date(now.getTime() - BACKDATE_MS),
    notAfter: new Date(limit === undefined ? end : Math.min(end, limit.getTime())),
  };
}

/** Two thirds of the way through, cert-manager's rule: a third of the life remains to notice a renewal that fails. */
export function renewalTime({ notBefore, notAfter }: Validity): Date {
  const life = notAfter.getTime() - notBefore.getTime();
  return new Date(notBefore.getTime() + (life * 2) / 3);
}
