import type { KeyObject, X509Certificate } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import {
  formatCertificates,
  isIssuedBy,
  isIssuedByLinger,
  namesOf,
  parseCertificates,
  parseKey,
  renewalTime,
  type ServingMaterial,
  tlsRejection,
} from './x509.ts';

/** The data of a Secret with an authority and the certificate that it has issued, PEM. */
export type SecretData = Readonly<Partial<Record<'ca.crt' | 'ca.key' | 'tls.crt' | 'tls.key', string>>>;

/** Why something is issued, for the log. */
export type IssueReason =
  | 'Absent'
  | 'Corrupt'
  | 'Mismatched'
  | 'IssuerChanged'
  | 'NamesDiffer'
  | 'Expiring'
  | 'NotYetValid'
  | 'AuthorityCorrupt'
  | 'AuthorityMismatched'
  | 'AuthorityExpiring'
  | 'AuthorityNotYetValid'
  | 'Retired';

export interface SecretContents {
  readonly contents: SecretData;
  /** The authorities that clients should trust: those in ca.crt that have not expired. */
  readonly bundle: readonly X509Certificate[];
  /** The authority to which ca.key belongs. */
  readonly authority: X509Certificate | undefined;
  /** Why a new authority is needed. */
  readonly authorityFault: IssueReason | undefined;
  /** tls.crt: the serving certificate, followed by intermediates. */
  readonly chain: readonly X509Certificate[];
  /** The names for a new serving certificate. */
  readonly names: readonly string[];
}

/** Why a new authority is needed. @param authority the one of these to which the key belongs */
function faultOf(
  authority: X509Certificate | undefined,
  key: KeyObject | undefined,
  authorities: readonly X509Certificate[],
  now: Date,
): IssueReason | undefined {
  if (key === undefined || authorities.length === 0) return 'AuthorityCorrupt';
  if (authority === undefined) return 'AuthorityMismatched';
  if (now < authority.validFromDate) return 'AuthorityNotYetValid';
  return now >= renewalTime(authority) ? 'AuthorityExpiring' : undefined;
}

/** @param issuers the authorities that may have issued it @returns undefined: it can be used */
export function servingFault(
  { contents: { 'tls.crt': cert, 'tls.key': keyText }, chain: [leaf], names }: SecretContents,
  issuers: readonly X509Certificate[],
  now: Date,
): IssueReason | undefined {
  if (cert === undefined || keyText === undefined) return 'Absent';
  const key = parseKey(keyText);
  if (leaf === undefined || typeof key === 'string') return 'Corrupt';
  if (!leaf.checkPrivateKey(key)) return 'Mismatched';
  if (now < leaf.validFromDate) return 'NotYetValid';
  if (now >= leaf.validToDate) return 'Expiring';
  if (!issuers.some((issuer) => isIssuedBy(leaf, issuer))) return 'IssuerChanged';
  if (!isDeepStrictEqual(new Set(namesOf(leaf)), new Set(names))) return 'NamesDiffer';
  return tlsRejection(cert, keyText) === undefined ? undefined : 'Corrupt';
}

export function materialOf(
  leaf: X509Certificate,
  { contents, chain, bundle }: Pick<SecretContents, 'contents' | 'chain' | 'bundle'>,
): ServingMaterial {
  return {
    cert: formatCertificates(chain),
    key: contents['tls.key'] ?? '',
    caBundle: formatCertificates(bundle),
    notAfter: leaf.validToDate,
  };
}

export function readSecret(contents: SecretData, wanted: readonly string[], now: Date): SecretContents {
  const authorities = parseCertificates(contents['ca.crt'] ?? '').filter(({ ca }) => ca);
  const parsed = parseKey(contents['ca.key'] ?? '');
  const key = typeof parsed !== 'string' && parsed.asymmetricKeyType === 'rsa' ? parsed : undefined;
  const authority = key && authorities.find((each) => each.checkPrivateKey(key));
  const chain = parseCertificates(contents['tls.crt'] ?? '');
  const [leaf] = chain;
  const bundle = unexpired(authorities, now);
  // A certificate that Linger did not make may have names that cannot be issued.
  const isOurs =
    leaf !== undefined && isIssuedByLinger(leaf) && bundle.some((each) => isIssuedBy(leaf, each));
  const names = union(isOurs ? namesOf(leaf) : [], wanted);
  const empty = contents['ca.crt'] === undefined && contents['ca.key'] === undefined;
  const authorityFault = empty ? 'Absent' : faultOf(authority, key, authorities, now);
  return { contents, bundle, authority, authorityFault, chain, names };
}

function unexpired(certificates: readonly X509Certificate[], now: Date): X509Certificate[] {
  return certificates.filter(({ validToDate }) => validToDate > now);
}

function union(some: readonly string[], more: readonly string[]): string[] {
  return [...new Set([...some, ...more])];
}
