import type { KeyObject, X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import { CertificateError, type CertificateErrorCode } from './certificate-error.ts';
import type { CertificateFile, Contents } from './directory.ts';
import {
  type Authority,
  formatCertificates,
  isIssuedBy,
  isIssuedByLinger,
  joinNames,
  namesOf,
  parseCertificates,
  parseKey,
  renewalTime,
  type SubjectName,
  validityOf,
} from './x509.ts';

export type AuthorityFault =
  | 'AuthorityCorrupt'
  | 'AuthorityMismatched'
  | 'AuthorityExpiring'
  | 'AuthorityNotYetValid';

/** What ca.crt and ca.key amount to. `bundle`: every certificate in ca.crt that has not expired. */
export type AuthorityState =
  | {
      readonly sound: true;
      readonly bundle: readonly X509Certificate[];
      readonly certificate: X509Certificate;
    }
  | {
      readonly sound: false;
      readonly bundle: readonly X509Certificate[];
      readonly fault: AuthorityFault;
      /** The one that ca.key belongs to, if any. */
      readonly certificate?: X509Certificate;
    };

/**
 * Judges the authority that ca.key stands for. One that Linger did not make is used while it can be and
 * never replaced: it may be trusted elsewhere, and its key may be the only copy.
 *
 * @throws CertificateError `EncryptedKey`, `UnsupportedKey`, `ForeignCertificate` or `Expired`
 */
export function judgeAuthority(
  contents: Contents,
  keyText: string,
  directory: string,
  now: Date,
): AuthorityState {
  const refuse = refusing(
    directory,
    'Linger replaces no authority that it did not make: ' +
      'put a valid ca.crt and ca.key there, or remove both and put your own tls.crt and tls.key',
  );
  const all = parseCertificates(contents['ca.crt'] ?? '');
  const bundle = all.filter((certificate) => certificate.validToDate > now);
  const key = signingKey(keyText, refuse);
  const certificate = key && all.find((candidate) => candidate.checkPrivateKey(key));
  const foreign = (certificate === undefined ? all : [certificate]).some((each) => !isIssuedByLinger(each));
  if (foreign) return { sound: true, bundle, certificate: usableForeign(certificate, now, refuse) };
  if (certificate === undefined) {
    const corrupt = key === undefined || all.length === 0;
    return { sound: false, bundle, fault: corrupt ? 'AuthorityCorrupt' : 'AuthorityMismatched' };
  }
  const fault = due(certificate, now);
  return fault === undefined
    ? { sound: true, bundle, certificate }
    : { sound: false, bundle, fault, certificate };
}

function due(certificate: X509Certificate, now: Date): AuthorityFault | undefined {
  const validity = validityOf(certificate);
  if (now < validity.notBefore) return 'AuthorityNotYetValid';
  return now >= renewalTime(validity) ? 'AuthorityExpiring' : undefined;
}

type Refuse = (code: CertificateErrorCode, file: CertificateFile, fault: string) => CertificateError;

/** @param wayOut what a person can do */
function refusing(directory: string, wayOut: string): Refuse {
  return (code, file, fault) => new CertificateError(code, `${join(directory, file)} ${fault}; ${wayOut}`);
}

/** What nobody can decrypt here, a server must not wait for. */
function keyIn(file: 'ca.key' | 'tls.key', text: string, refuse: Refuse): KeyObject | undefined {
  const key = parseKey(text);
  if (key === 'encrypted')
    throw refuse('EncryptedKey', file, 'is encrypted, and nobody is there to type a passphrase');
  return key === 'corrupt' ? undefined : key;
}

/** Undefined when there is nothing to lose: the text is no key. */
function signingKey(text: string, refuse: Refuse): KeyObject | undefined {
  const key = keyIn('ca.key', text, refuse);
  if (key === undefined || key.asymmetricKeyType === 'rsa') return key;
  throw refuse(
    'UnsupportedKey',
    'ca.key',
    `is of type ${key.asymmetricKeyType}, and Linger signs with rsa only`,
  );
}

function usableForeign(certificate: X509Certificate | undefined, now: Date, refuse: Refuse): X509Certificate {
  if (certificate === undefined) throw refuse('ForeignCertificate', 'ca.crt', 'does not belong to ca.key');
  if (!certificate.ca) throw refuse('ForeignCertificate', 'ca.crt', 'is not the certificate of an authority');
  if (certificate.validToDate <= now) {
    throw refuse('Expired', 'ca.crt', `expired on ${certificate.validToDate.toISOString()}`);
  }
  return certificate;
}

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

/**
 * Accepts the certificate that a user put into `directory`: tls.crt and tls.key, and ca.crt if there is
 * one. Its names are the user's business, and so is a notBefore that lies ahead: clients judge it by their
 * own clocks.
 *
 * @throws CertificateError `Incomplete`, `Corrupt`, `EncryptedKey`, `Mismatched` or `Expired`
 */
export function acceptProvided(contents: Contents, directory: string, now: Date): ServingMaterial {
  const refuse = refusing(
    directory,
    'put a valid tls.crt and tls.key there, ' +
      `or remove the .crt and .key files from ${directory} and Linger makes its own`,
  );
  const required = (file: CertificateFile) => {
    const text = contents[file];
    if (text === undefined) throw refuse('Incomplete', file, 'is missing');
    return text;
  };
  const chain = parseCertificates(required('tls.crt'));
  const key = required('tls.key');
  const [leaf] = chain;
  if (leaf === undefined) throw refuse('Corrupt', 'tls.crt', 'holds no certificate that can be read');
  const parsed = keyIn('tls.key', key, refuse);
  if (parsed === undefined) throw refuse('Corrupt', 'tls.key', 'holds no private key that can be read');
  if (!leaf.checkPrivateKey(parsed))
    throw refuse('Mismatched', 'tls.key', 'does not belong to the first certificate in tls.crt');
  const cert = formatCertificates(chain);
  const rejection = tlsRejection(cert, key);
  if (rejection !== undefined) throw refuse('Corrupt', 'tls.crt', `is not accepted for TLS: ${rejection}`);
  if (leaf.validToDate <= now)
    throw refuse('Expired', 'tls.crt', `expired on ${leaf.validToDate.toISOString()}`);
  return { cert, key, caBundle: bundleOf(contents['ca.crt'], leaf), ...milestones(leaf) };
}

function bundleOf(authorities: string | undefined, leaf: X509Certificate): string {
  if (authorities !== undefined) return formatCertificates(parseCertificates(authorities));
  // A self-signed serving certificate is its own authority.
  return leaf.checkIssued(leaf) ? formatCertificates([leaf]) : '';
}

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
  readonly names: readonly SubjectName[];
  readonly intermediates: string;
}

/** Make a new authority, and a serving certificate with it. */
export interface Rotate {
  readonly kind: 'rotate';
  readonly because: RenewalReason;
  readonly names: readonly SubjectName[];
  /** The authorities (PEM) that stay in the bundle until they expire. */
  readonly retained: string;
  /** The authority that is replaced, if it can still sign its successor. */
  readonly predecessor?: Authority;
}

/** What the serving certificate shall be valid for. */
export interface Wanted {
  readonly names: readonly SubjectName[];
  /** No other names. Otherwise names that the certificate has already stay in it: it may be in use under them. */
  readonly exactly: boolean;
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
export function assess(contents: Contents, wanted: Wanted, directory: string, now: Date): Verdict {
  const key = contents['ca.key'];
  if (key === undefined) {
    const empty = Object.values(contents).every((text) => text === undefined);
    if (empty) return { kind: 'rotate', because: 'Absent', names: wanted.names, retained: '' };
    return { kind: 'provided', material: acceptProvided(contents, directory, now) };
  }
  const authority = judgeAuthority(contents, key, directory, now);
  const chain = parseCertificates(contents['tls.crt'] ?? '');
  guardForeign(chain[0], authority.bundle, directory);
  const [leaf] = chain;
  const names = leaf === undefined || wanted.exactly ? wanted.names : joinNames(namesOf(leaf), wanted.names);
  if (!authority.sound) return rotation(authority, names, key, now);
  const { certificate, bundle } = authority;
  const because = servingFault(leaf, contents, certificate, names, now);
  if (leaf === undefined || because !== undefined) {
    const intermediates = formatCertificates(
      chain.slice(1).filter((each) => isCrossSigned(each, certificate, now)),
    );
    const issuer = { certificate: certificate.toString(), key };
    return { kind: 'reissue', because: because ?? 'Absent', authority: issuer, names, intermediates };
  }
  return { kind: 'reuse', material: reusable(chain, leaf, contents, certificate, bundle) };
}

type Unsound = Extract<AuthorityState, { sound: false }>;

function rotation(
  { bundle, certificate, fault }: Unsound,
  names: readonly SubjectName[],
  key: string,
  now: Date,
): Rotate {
  const verdict: Rotate = { kind: 'rotate', because: fault, names, retained: formatCertificates(bundle) };
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
  // `names` has no name twice, and every name of the leaf unless they are wanted exactly.
  if (joinNames(namesOf(leaf), names).length !== names.length || namesOf(leaf).length !== names.length)
    return 'NamesDiffer';
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
