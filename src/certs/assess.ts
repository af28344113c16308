import type { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { type AuthorityFault, type AuthorityState, judgeAuthority } from './authority.ts';
import { CertificateError } from './certificate-error.ts';
import type { Contents } from './directory.ts';
import type { Authority } from './issue.ts';
import { renewalTime } from './lifetime.ts';
import { milestones, type ServingMaterial, tlsRejection } from './material.ts';
import { namesEqual, type SubjectName } from './names.ts';
import {
  formatCertificates,
  isIssuedBy,
  isIssuedByLinger,
  parseCertificates,
  parseKey,
  validityOf,
} from './pem.ts';
import { acceptProvided } from './provided.ts';

/** Why something is issued anew, for the log. */
export type RenewalReason =
  | 'Absent'
  | 'Corrupt'
  | 'Mismatched'
  | 'IssuerChanged'
  | 'NamesDiffer'
  | 'Expiring'
  | 'NotYetValid'
  | AuthorityFault;

/** A user's own certificate (`provided`: serve it, never write), or Linger's own and in order (`reuse`). */
export interface Usable {
  readonly kind: 'provided' | 'reuse';
  readonly material: ServingMaterial;
}

/** The authority is in order: issue a serving certificate, and send these intermediates (PEM) after it. */
export interface Reissue {
  readonly kind: 'reissue';
  readonly because: RenewalReason;
  readonly authority: Authority;
  readonly intermediates: string;
}

/** Make a new authority, and a serving certificate with it. */
export interface Rotate {
  readonly kind: 'rotate';
  readonly because: RenewalReason;
  /** The authorities (PEM) that stay in the bundle until they expire. */
  readonly retained: string;
  /** The authority that is replaced, if it can still sign its successor. */
  readonly predecessor?: Authority;
}

export type Verdict = Usable | Reissue | Rotate;

/**
 * Decides from the contents of a directory alone what to do about it. With a ca.key it is Linger's to
 * maintain; without, but with any of the other files, it is the user's. What Linger did not make it never
 * replaces.
 *
 * @param directory for messages
 * @throws CertificateError every code of acceptProvided and judgeAuthority, and `ForeignCertificate`
 */
export function assess(
  contents: Contents,
  names: readonly SubjectName[],
  directory: string,
  now: Date,
): Verdict {
  const key = contents['ca.key'];
  if (key === undefined) {
    const empty = Object.values(contents).every((text) => text === undefined);
    if (empty) return { kind: 'rotate', because: 'Absent', retained: '' };
    return { kind: 'provided', material: acceptProvided(contents, directory, now) };
  }
  const authority = judgeAuthority(contents, key, directory, now);
  const chain = parseCertificates(contents['tls.crt'] ?? '');
  guardForeign(chain[0], authority.bundle, directory);
  if (!authority.sound) return rotation(authority, key, now);
  const { certificate, bundle } = authority;
  const [leaf] = chain;
  const because = servingFault(leaf, contents, certificate, names, now);
  if (leaf === undefined || because !== undefined) {
    const intermediates = formatCertificates(
      chain.slice(1).filter((each) => isCrossSigned(each, certificate, now)),
    );
    const issuer = { certificate: certificate.toString(), key };
    return { kind: 'reissue', because: because ?? 'Absent', authority: issuer, intermediates };
  }
  return { kind: 'reuse', material: reusable(chain, leaf, contents, certificate, bundle) };
}

type Unsound = Extract<AuthorityState, { sound: false }>;

function rotation({ bundle, certificate, fault }: Unsound, key: string, now: Date): Rotate {
  const verdict: Rotate = { kind: 'rotate', because: fault, retained: formatCertificates(bundle) };
  const canSign =
    certificate !== undefined && certificate.validFromDate <= now && certificate.validToDate > now;
  return canSign ? { ...verdict, predecessor: { certificate: certificate.toString(), key } } : verdict;
}

/** Somebody who copies a certificate of their own over ours, and leaves ca.key behind, must not lose it. */
function guardForeign(
  leaf: X509Certificate | undefined,
  bundle: readonly X509Certificate[],
  directory: string,
): void {
  if (leaf === undefined || isIssuedByLinger(leaf)) return;
  if (bundle.some((authority) => isIssuedBy(leaf, authority))) return;
  throw new CertificateError(
    'ForeignCertificate',
    `${join(directory, 'tls.crt')} was not issued by the authority in ca.crt, and Linger replaces no certificate that it ` +
      `did not make; to use it, remove ca.key (and Linger's ca.crt); to have one made, remove tls.crt and tls.key`,
  );
}

function servingFault(
  leaf: X509Certificate | undefined,
  contents: Contents,
  authority: X509Certificate,
  names: readonly SubjectName[],
  now: Date,
): RenewalReason | undefined {
  const { 'tls.crt': cert, 'tls.key': keyText } = contents;
  if (cert === undefined || keyText === undefined) return 'Absent';
  const key = parseKey(keyText);
  if (leaf === undefined || typeof key === 'string') return 'Corrupt';
  if (!leaf.checkPrivateKey(key)) return 'Mismatched';
  if (!isIssuedBy(leaf, authority)) return 'IssuerChanged';
  if (!namesEqual(leaf, names)) return 'NamesDiffer';
  if (now < leaf.validFromDate) return 'NotYetValid';
  // A new one could not outlive an authority that is itself not ours to renew.
  const renewable = leaf.validToDate < authority.validToDate;
  if (renewable && now >= renewalTime(validityOf(leaf))) return 'Expiring';
  return tlsRejection(cert, keyText) === undefined ? undefined : 'Corrupt';
}

/** The authority's own name and key under a predecessor's signature: see crossSign. */
function isCrossSigned(intermediate: X509Certificate, authority: X509Certificate, now: Date): boolean {
  return (
    intermediate.validToDate > now &&
    intermediate.subject === authority.subject &&
    intermediate.issuer !== authority.issuer &&
    intermediate.publicKey.equals(authority.publicKey)
  );
}

function reusable(
  chain: readonly X509Certificate[],
  leaf: X509Certificate,
  contents: Contents,
  authority: X509Certificate,
  bundle: readonly X509Certificate[],
): ServingMaterial {
  return {
    cert: formatCertificates(chain),
    key: contents['tls.key'] ?? '',
    caBundle: formatCertificates(bundle),
    ...milestones(leaf, isIssuedByLinger(authority) ? authority : undefined),
  };
}
