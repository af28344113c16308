import type { KeyObject, X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import type { CertificateFile, Contents } from './directory.ts';
import {
  type Authority,
  BACKDATE_MS,
  CertificateError,
  type CertificateErrorCode,
  formatCertificates,
  isIssuedBy,
  isIssuedByLinger,
  joinNames,
  namesOf,
  parseCertificates,
  parseKey,
  renewalTime,
  SHARED_LIFE_MS,
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

/** Refuses an encrypted key: a server cannot ask for a passphrase. */
function keyIn(file: 'ca.key' | 'tls.key', text: string, refuse: Refuse): KeyObject | undefined {
  const key = parseKey(text);
  if (key === 'encrypted')
    throw refuse('EncryptedKey', file, 'is encrypted, and a server cannot ask for a passphrase');
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
  /** When the certificate is due for renewal: at two thirds of its life, or of its authority's. */
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
    // No peer is verified here; with `ca` undefined Node would spend 30 ms on parsing its built-in authorities.
    createSecureContext({ cert, key, ca: [] });
    return undefined;
  } catch (error) {
    return error instanceof Error && 'reason' in error ? String(error.reason) : 'rejected by OpenSSL';
  }
}

/**
 * Accepts the certificate that a user put into `directory`: tls.crt and tls.key, and ca.crt if there is one. Its names are
 * the user's business, and so is a notBefore that lies ahead: clients judge it by their own clocks.
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

/** Why something is issued again, for the log. */
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
 * Decides from the contents of a directory alone what to do about it. With a ca.key it is Linger's to maintain; without,
 * but with any of the other files, it is the user's. What Linger did not make it never replaces.
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

/** A user who copies their own certificate over ours, and leaves ca.key behind, must not lose it. */
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

/*
 * What to do about the certificates that replicas share in a Secret. Each replica decides alone, from what it sees, and
 * any of them may act: a write names the version that it replaces, so of two that race one has to look again.
 *
 * The rule: an authority is trusted before anything that it has issued serves. So a rotation takes three writes of the
 * Secret: the new authority beside the old one; then, once API servers have known both for a while, a serving certificate
 * from the new one; and when that has served for an hour, the old authority goes.
 */

/** What a replica sees. */
export interface Seen {
  /** Undefined: there is no such Secret. */
  readonly secret: Contents | undefined;
  /** What API servers trust; undefined: there is no webhook configuration, so none of them calls. */
  readonly trust: Trust | undefined;
  /** What this replica serves with; undefined: nothing yet. */
  readonly serving: ServingMaterial | undefined;
  /** What a certificate must be valid for. Names that it has besides stay in it: another replica may want those. */
  readonly names: readonly SubjectName[];
}

export interface Trust {
  /** What the caBundle holds, PEM. */
  readonly bundle: string;
  /** For how long it has held that, as far as this replica knows. */
  readonly forMs: number;
}

/** What to write into the Secret. */
export interface Issue {
  readonly because: RenewalReason | 'Retired';
  /** Undefined: a new one is made. */
  readonly authority: Authority | undefined;
  /** What a new serving certificate is valid for; undefined: the one that is there stays. */
  readonly names: readonly SubjectName[] | undefined;
  /** The other authorities that stay in the bundle, PEM. */
  readonly retained: string;
  /** Cross-signed authorities that follow the serving certificate, PEM. */
  readonly intermediates: string;
  /** The previous authority, if it can still cross-sign its successor: clients that trust only it then keep working. */
  readonly predecessor: Authority | undefined;
}

export interface RotationPlan {
  /** Comes first: the rest is decided again once it has been written. */
  readonly issue?: Issue;
  /** What the caBundle must become, PEM. */
  readonly caBundle?: string;
  /** What to serve with from now on. */
  readonly serve?: ServingMaterial;
}

/**
 * An API server follows webhook configurations by a watch, within a second where all is well. There may be several of
 * them, and one of them may be busy.
 */
export const TRUSTED_MS = 10_000;

/** For replicas that are cut off from the API server, and serve with what they had. */
export const RETIRE_MS = 3_600_000;

/** A Secret that is deleted again and again must not make the bundle grow without bound. */
const MOST_RETAINED = 4;

export function planRotation(seen: Seen, now: Date): RotationPlan {
  const held = readSecret(seen.secret ?? {}, seen.names, now);
  const issue = issueDue(held, seen, now);
  if (issue !== undefined) return { issue };
  const caBundle = formatCertificates(held.bundle);
  const serve = replacement(held, seen, now);
  return {
    ...(seen.trust !== undefined && seen.trust.bundle !== caBundle ? { caBundle } : {}),
    ...(serve === undefined ? {} : { serve }),
  };
}

/** Whether a client that trusts the bundle accepts what is served: a certificate, then its intermediates. */
export function isTrusted(chain: string, bundle: string, now: Date): boolean {
  const [leaf, ...intermediates] = parseCertificates(chain);
  const roots = validOf(parseCertificates(bundle), now);
  const issuedByOneOf = (certificate: X509Certificate, issuers: readonly X509Certificate[]) =>
    issuers.some((issuer) => isIssuedBy(certificate, issuer));
  if (leaf === undefined || !isValid(leaf, now)) return false;
  const passed = validOf(intermediates, now).filter((each) => issuedByOneOf(each, roots));
  return issuedByOneOf(leaf, [...roots, ...passed]);
}

interface Held {
  readonly contents: Contents;
  /** The authorities that clients shall trust: those of ca.crt that are valid. */
  readonly bundle: readonly X509Certificate[];
  /** The one that signs. */
  readonly authority: X509Certificate | undefined;
  /** Why there must be a new one. */
  readonly authorityFault: RenewalReason | undefined;
  /** tls.crt: the serving certificate, and what follows it. */
  readonly chain: readonly X509Certificate[];
  /** Why it cannot be served. */
  readonly servingFault: RenewalReason | undefined;
  /** What a new one would be valid for. */
  readonly names: readonly SubjectName[];
}

function readSecret(contents: Contents, wanted: readonly SubjectName[], now: Date): Held {
  const authorities = parseCertificates(contents['ca.crt'] ?? '').filter(({ ca }) => ca);
  const bundle = validOf(authorities, now);
  const key = contents['ca.key'] === undefined ? 'corrupt' : parseKey(contents['ca.key']);
  const signs = typeof key !== 'string' && key.asymmetricKeyType === 'rsa';
  const authority = signs ? authorities.find((each) => each.checkPrivateKey(key)) : undefined;
  const chain = parseCertificates(contents['tls.crt'] ?? '');
  const names = joinNames(chain[0] === undefined ? [] : namesOf(chain[0]), wanted);
  const empty = contents['ca.crt'] === undefined && contents['ca.key'] === undefined;
  return {
    contents,
    bundle,
    authority,
    authorityFault: empty
      ? 'Absent'
      : !signs || authorities.length === 0
        ? 'AuthorityCorrupt'
        : sharedAuthorityFault(authority, now),
    chain,
    servingFault: sharedServingFault(contents, chain[0], bundle, names, now),
    names,
  };
}

function sharedAuthorityFault(authority: X509Certificate | undefined, now: Date): RenewalReason | undefined {
  if (authority === undefined) return 'AuthorityMismatched';
  if (now < authority.validFromDate) return 'AuthorityNotYetValid';
  return now >= renewalTime(validityOf(authority)) ? 'AuthorityExpiring' : undefined;
}

function sharedServingFault(
  { 'tls.crt': cert, 'tls.key': keyText }: Contents,
  leaf: X509Certificate | undefined,
  bundle: readonly X509Certificate[],
  names: readonly SubjectName[],
  now: Date,
): RenewalReason | undefined {
  if (cert === undefined || keyText === undefined) return 'Absent';
  const key = parseKey(keyText);
  if (leaf === undefined || typeof key === 'string') return 'Corrupt';
  if (!leaf.checkPrivateKey(key)) return 'Mismatched';
  if (now < leaf.validFromDate) return 'NotYetValid';
  if (now >= leaf.validToDate) return 'Expiring';
  if (!bundle.some((authority) => isIssuedBy(leaf, authority))) return 'IssuerChanged';
  // `names` has every name of the leaf.
  if (namesOf(leaf).length !== names.length) return 'NamesDiffer';
  return tlsRejection(cert, keyText) === undefined ? undefined : 'Corrupt';
}

function issueDue(held: Held, { trust, serving }: Seen, now: Date): Issue | undefined {
  const { authority, authorityFault: fault, bundle, chain, servingFault: lost, names } = held;
  const key = held.contents['ca.key'] ?? '';
  if (authority === undefined || fault !== undefined) {
    // Where the Secret says nothing any more, replicas still serve, and API servers still trust.
    const others = [trust?.bundle, serving?.caBundle].flatMap((pem) => parseCertificates(pem ?? ''));
    const known = [...bundle, ...validOf(others.filter(isIssuedByLinger), now)];
    const canSign = authority !== undefined && isValid(authority, now);
    return {
      because: fault ?? 'Absent',
      authority: undefined,
      names: lost === undefined ? undefined : names,
      retained: formatCertificates(newest(known)),
      intermediates: lost === undefined ? formatCertificates(chain.slice(1)) : '',
      predecessor: canSign ? { certificate: authority.toString(), key } : undefined,
    };
  }
  const [leaf] = chain;
  const others = bundle.filter((each) => each.fingerprint256 !== authority.fingerprint256);
  const again: Omit<Issue, 'because' | 'names' | 'retained'> = {
    authority: { certificate: authority.toString(), key },
    intermediates: formatCertificates(chain.slice(1).filter((each) => isCrossSigned(each, authority, now))),
    predecessor: undefined,
  };
  const retained = formatCertificates(others);
  if (leaf === undefined || lost !== undefined)
    return { ...again, because: lost ?? 'Absent', names, retained };
  const isOurs = isIssuedBy(leaf, authority);
  const due = isOurs ? (now >= renewalTime(validityOf(leaf)) ? 'Expiring' : undefined) : 'IssuerChanged';
  if (due !== undefined && isEstablished(authority, trust))
    return { ...again, because: due, names, retained };
  const servedSince = leaf.validFromDate.getTime() + BACKDATE_MS;
  if (isOurs && others.length > 0 && now.getTime() >= servedSince + RETIRE_MS)
    return { ...again, because: 'Retired', names: undefined, retained: '' };
  return undefined;
}

/** Whether API servers have trusted it for long enough that all of them do. */
function isEstablished(authority: X509Certificate, trust: Trust | undefined): boolean {
  if (trust === undefined) return true;
  const known = parseCertificates(trust.bundle);
  return trust.forMs >= TRUSTED_MS && known.some((each) => each.fingerprint256 === authority.fingerprint256);
}

/** What the Secret holds, if it is time to serve with that. */
function replacement(
  { contents, chain, bundle, authority }: Held,
  { trust, serving }: Seen,
  now: Date,
): ServingMaterial | undefined {
  const [leaf] = chain;
  if (leaf === undefined || authority === undefined) return undefined;
  const cert = formatCertificates(chain);
  const caBundle = formatCertificates(bundle);
  const material = { cert, key: contents['tls.key'] ?? '', caBundle, ...milestones(leaf, authority) };
  if (serving === undefined) return material;
  if (serving.cert === cert && serving.caBundle === caBundle) return undefined;
  if (trust === undefined || !isTrusted(serving.cert, trust.bundle, now)) return material;
  return trust.forMs >= TRUSTED_MS && isTrusted(cert, trust.bundle, now) ? material : undefined;
}

function isValid({ validFromDate, validToDate }: X509Certificate, now: Date): boolean {
  return validFromDate <= now && now < validToDate;
}

function validOf(certificates: readonly X509Certificate[], now: Date): X509Certificate[] {
  return certificates.filter((certificate) => isValid(certificate, now));
}

function newest(certificates: readonly X509Certificate[]): X509Certificate[] {
  const distinct = new Map(certificates.map((each) => [each.fingerprint256, each]));
  return [...distinct.values()]
    .toSorted((a, b) => b.validFromDate.getTime() - a.validFromDate.getTime())
    .slice(0, MOST_RETAINED);
}

/** Carries an issue out. Takes about 100 ms for each new key, in the thread pool. */
export async function issued(issue: Issue, contents: Contents, now: Date): Promise<Required<Contents>> {
  const { crossSign, issueAuthority, issueServingCertificate } = await import('./issue.ts');
  const { names, predecessor, retained } = issue;
  const authority = issue.authority ?? (await issueAuthority(now));
  const crossSigned = predecessor === undefined ? '' : crossSign(authority, predecessor, now);
  const [leaf] = parseCertificates(contents['tls.crt'] ?? '');
  const pair =
    names === undefined
      ? { cert: leaf?.toString() ?? '', key: contents['tls.key'] ?? '' }
      : await issueServingCertificate(
          authority,
          names.map(({ value }) => value),
          now,
          SHARED_LIFE_MS,
        );
  return {
    'ca.crt': authority.certificate + retained,
    'ca.key': authority.key,
    'tls.crt': pair.cert + crossSigned + issue.intermediates,
    'tls.key': pair.key,
  };
}
