import type { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { renewalTime } from './lifetime.ts';
import { validityOf } from './pem.ts';

/** What a TLS server needs, and what its clients and its operator must know. All texts are PEM. */
export interface ServingMaterial {
  /** The serving certificate, then its intermediates. */
  readonly cert: string;
  readonly key: string;
  /** What clients must trust: one or more authorities. Empty when a user's own certificate comes without its authority. */
  readonly caBundle: string;
  readonly notAfter: Date;
  /** When whoever maintains the certificate should have renewed it: two thirds of its life, or of its authority's. */
  readonly renewAt: Date;
}

/** `notAfter` and `renewAt` of a serving certificate, given the authority when it is ours to renew as well. */
export function milestones(
  leaf: X509Certificate,
  authority?: X509Certificate,
): Pick<ServingMaterial, 'notAfter' | 'renewAt'> {
  const renewals = [leaf, ...(authority === undefined ? [] : [authority])].map((certificate) =>
    renewalTime(validityOf(certificate)).getTime(),
  );
  return { notAfter: leaf.validToDate, renewAt: new Date(Math.min(...renewals)) };
}

/**
 * Why OpenSSL would not serve with this pair (too short a key, too weak a digest), or undefined when it
 * would. Asked beforehand, because `server.setSecureContext` throws.
 */
export function tlsRejection(cert: string, key: string): string | undefined {
  try {
    createSecureContext({ cert, key });
    return undefined;
  } catch (error) {
    return error instanceof Error && 'reason' in error ? String(error.reason) : 'rejected by OpenSSL';
  }
}
