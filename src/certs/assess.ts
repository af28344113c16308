import type { KeyObject, X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { createSecureContext } from 'node:tls';
import { isDeepStrictEqual } from 'node:util';
import type { CertificateFile, Contents } from './directory.ts';
import {
  type Authority,
  BACKDATE_MS,
  CertificateError,
  type CertificateErrorCode,
  formatCertificates,
  isIssuedBy,
  isIssuedByLinger,
  namesOf,
  parseCertificates,
  parseKey,
  renewalTime,
  SHARED_LIFE_MS,
} from './x509.ts';

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

/** What to issue, and to write over what is there. */
export interface Issue {
  readonly because: IssueReason;
  /** Undefined: a new one is made. */
  readonly authority: Authority | undefined;
  /** What a new serving certificate is valid for; undefined: the one that is there stays. */
  readonly names: readonly string[] | undefined;
  /** The other authorities that stay in the bundle, PEM. */
  readonly retained: string;
  /** Cross-signed authorities that follow the serving certificate, PEM. */
  readonly intermediates: string;
  /** The previous authority, if it can still cross-sign its successor: clients that trust only it then keep working. */
  readonly predecessor: Authority | undefined;
}

/** What is kept in a directory or a Secret. */
interface Held {
  readonly contents: Contents;
  /** The authorities that clients shall trust: those of ca.crt that have not expired. */
  readonly bundle: readonly X509Certificate[];
  /** The one that ca.key belongs to. */
  readonly authority: X509Certificate | undefined;
  /** Why there must be a new one. */
  readonly authorityFault: IssueReason | undefined;
  /** tls.crt: the serving certificate, and what follows it. */
  readonly chain: readonly X509Certificate[];
  /** What a new serving certificate would be valid for. */
  readonly names: readonly string[];
}

/** Why there must be a new authority. @param authority the one of these that the key belongs to */
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

/** Why the serving certificate cannot be used. @param issuers who may have issued it */
function servingFault(
  { contents: { 'tls.crt': cert, 'tls.key': keyText }, chain: [leaf], names }: Held,
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

/** Whether a serving certificate is due for renewal. One that ends with its authority is not: nor could a new one outlive that. */
function isExpiring(leaf: X509Certificate, authority: X509Certificate, now: Date): boolean {
  return leaf.validToDate < authority.validToDate && now >= renewalTime(leaf);
}

/** Issues with a new authority. */
function succession(
  { contents, authority, authorityFault }: Omit<Held, 'bundle' | 'chain' | 'names'>,
  certificate: Pick<Issue, 'names' | 'retained' | 'intermediates'>,
  now: Date,
): Issue {
  const canSign = authority !== undefined && isValid(authority, now);
  const predecessor = canSign ? withKey(authority, contents) : undefined;
  return { because: authorityFault ?? 'Absent', authority: undefined, predecessor, ...certificate };
}

/** Issues with the authority that is there. */
function renewal(
  because: IssueReason,
  { contents, chain, bundle, names }: Held,
  authority: X509Certificate,
  now: Date,
): Issue {
  const others = bundle.filter((each) => each.fingerprint256 !== authority.fingerprint256);
  const crossSigned = chain.slice(1).filter((each) => isCrossSigned(each, authority, now));
  return {
    because,
    authority: withKey(authority, contents),
    names,
    retained: formatCertificates(others),
    intermediates: formatCertificates(crossSigned),
    predecessor: undefined,
  };
}

function withKey(authority: X509Certificate, contents: Contents): Authority {
  return { certificate: authority.toString(), key: contents['ca.key'] ?? '' };
}

function materialOf(
  leaf: X509Certificate,
  { contents, chain, bundle, authority }: Omit<Held, 'authorityFault' | 'names'>,
): ServingMaterial {
  const renewed = authority !== undefined && isIssuedByLinger(authority) ? [leaf, authority] : [leaf];
  return {
    cert: formatCertificates(chain),
    key: contents['tls.key'] ?? '',
    caBundle: formatCertificates(bundle),
    notAfter: leaf.validToDate,
    renewAt: new Date(Math.min(...renewed.map((each) => renewalTime(each).getTime()))),
  };
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

/**
 * Why OpenSSL would not serve with this pair (too short a key, too weak a digest), or undefined when it
 * would. Asked beforehand, because `server.setSecureContext` throws.
 */
function tlsRejection(cert: string, key: string): string | undefined {
  try {
    // No peer is verified here; with `ca` undefined Node would spend 30 ms on parsing its built-in authorities.
    createSecureContext({ cert, key, ca: [] });
    return undefined;
  } catch (error) {
    return error instanceof Error && 'reason' in error ? String(error.reason) : 'rejected by OpenSSL';
  }
}

/** What the serving certificate shall be valid for. */
export interface Wanted {
  readonly names: readonly string[];
  /** No other names. Otherwise names that the certificate has already stay in it: it may be in use under them. */
  readonly exactly: boolean;
}

/** What is due in a directory, or what to serve from it as it is: a user's own (`provided`), or Linger's. */
export type Verdict =
  | { readonly issue: Issue }
  | { readonly serve: ServingMaterial; readonly origin: 'provided' | 'reused' };

/**
 * Decides from the contents of a directory alone what to do about it. With a ca.key it is Linger's to maintain; without,
 * but with any of the other files, it is the user's. What Linger did not make it never replaces: an authority may be trusted
 * elsewhere, and its key may be the only copy.
 *
 * @param directory for messages
 * @throws CertificateError `Incomplete`, `Corrupt`, `EncryptedKey`, `UnsupportedKey`, `Mismatched`, `ForeignCertificate` or
 *   `Expired`
 */
export function assess(contents: Contents, wanted: Wanted, directory: string, now: Date): Verdict {
  const keyText = contents['ca.key'];
  if (keyText === undefined) {
    if (Object.values(contents).some((text) => text !== undefined))
      return { serve: acceptProvided(contents, directory, now), origin: 'provided' };
    const nothing = { contents, authority: undefined, authorityFault: undefined };
    const first = { names: wanted.names, retained: '', intermediates: '' };
    return { issue: succession(nothing, first, now) };
  }
  const refuse = refusing(
    directory,
    'Linger replaces no authority that it did not make: ' +
      'put a valid ca.crt and ca.key there, or remove both and put your own tls.crt and tls.key',
  );
  const key = signingKey(keyText, refuse);
  const authorities = parseCertificates(contents['ca.crt'] ?? '');
  const authority = key && authorities.find((each) => each.checkPrivateKey(key));
  const foreign = (authority === undefined ? authorities : [authority]).some(
    (each) => !isIssuedByLinger(each),
  );
  if (foreign) guardForeignAuthority(authority, now, refuse);
  const bundle = unexpired(authorities, now);
  const chain = parseCertificates(contents['tls.crt'] ?? '');
  const [leaf] = chain;
  guardForeign(leaf, bundle, directory);
  const names = leaf === undefined || wanted.exactly ? wanted.names : union(namesOf(leaf), wanted.names);
  const authorityFault = foreign ? undefined : faultOf(authority, key, authorities, now);
  const held: Held = { contents, bundle, authority, authorityFault, chain, names };
  if (authority === undefined || authorityFault !== undefined) {
    const retained = formatCertificates(bundle);
    return { issue: succession(held, { names, retained, intermediates: '' }, now) };
  }
  const because = servingFault(held, [authority], now);
  if (leaf === undefined || because !== undefined)
    return { issue: renewal(because ?? 'Absent', held, authority, now) };
  if (isExpiring(leaf, authority, now)) return { issue: renewal('Expiring', held, authority, now) };
  return { serve: materialOf(leaf, held), origin: 'reused' };
}

type Refuse = (code: CertificateErrorCode, file: CertificateFile, fault: string) => CertificateError;

/** @param wayOut what a person can do */
function refusing(directory: string, wayOut: string): Refuse {
  return (code, file, fault) => new CertificateError(code, `${join(directory, file)} ${fault}; ${wayOut}`);
}

/** @returns undefined for text that is no key. @throws for an encrypted one */
function keyIn(file: 'ca.key' | 'tls.key', text: string, refuse: Refuse): KeyObject | undefined {
  const key = parseKey(text);
  if (key === 'encrypted')
    throw refuse('EncryptedKey', file, 'is encrypted, and a server cannot ask for a passphrase');
  return key === 'corrupt' ? undefined : key;
}

function signingKey(text: string, refuse: Refuse): KeyObject | undefined {
  const key = keyIn('ca.key', text, refuse);
  if (key === undefined || key.asymmetricKeyType === 'rsa') return key;
  throw refuse(
    'UnsupportedKey',
    'ca.key',
    `is of type ${key.asymmetricKeyType}, and Linger signs with rsa only`,
  );
}

function guardForeignAuthority(authority: X509Certificate | undefined, now: Date, refuse: Refuse): void {
  if (authority === undefined) throw refuse('ForeignCertificate', 'ca.crt', 'does not belong to ca.key');
  if (!authority.ca) throw refuse('ForeignCertificate', 'ca.crt', 'is not the certificate of an authority');
  if (authority.validToDate <= now)
    throw refuse('Expired', 'ca.crt', `expired on ${authority.validToDate.toISOString()}`);
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

/**
 * Accepts the certificate that a user put into `directory`: tls.crt and tls.key, and ca.crt if there is one. Its names are
 * the user's business, and so is a notBefore that lies ahead: clients judge it by their own clocks.
 */
function acceptProvided(contents: Contents, directory: string, now: Date): ServingMaterial {
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
  const rejection = tlsRejection(formatCertificates(chain), key);
  if (rejection !== undefined) throw refuse('Corrupt', 'tls.crt', `is not accepted for TLS: ${rejection}`);
  if (leaf.validToDate <= now)
    throw refuse('Expired', 'tls.crt', `expired on ${leaf.validToDate.toISOString()}`);
  // A self-signed serving certificate is its own authority.
  const selfSigned = leaf.checkIssued(leaf) ? [leaf] : [];
  const bundle = contents['ca.crt'] === undefined ? selfSigned : parseCertificates(contents['ca.crt']);
  return materialOf(leaf, { contents, chain, bundle, authority: undefined });
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
  readonly names: readonly string[];
}

export interface Trust {
  /** What the caBundle holds, PEM. */
  readonly bundle: string;
  /** For how long it has held that, as far as this replica knows. */
  readonly forMs: number;
}

export interface RotationPlan {
  /** Once it has been written, the rest is decided again. Until then the rest keeps calls coming. */
  readonly issue?: Issue;
  /** What the caBundle must become, PEM. */
  readonly caBundle?: string | undefined;
  /** What to serve with from now on. */
  readonly serve?: ServingMaterial | undefined;
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
  if (issue !== undefined) return { issue, ...meanwhile(held, seen, now) };
  const bundle = formatCertificates(held.bundle);
  const caBundle = seen.trust === undefined || seen.trust.bundle === bundle ? undefined : bundle;
  return { caBundle, serve: replacement(held, seen, now) };
}

/**
 * Whether an API server that trusts the bundle accepts what is served: a certificate, then its intermediates in any order.
 * A certificate that stands in the bundle is accepted whoever issued it. Source: Go, crypto/x509, Certificate.Verify, which also
 * looks at the length of the path and at what keys are for.
 */
export function isTrusted(chain: string, bundle: string, now: Date): boolean {
  const [leaf, ...intermediates] = parseCertificates(chain);
  if (leaf === undefined || !isValid(leaf, now)) return false;
  const trusted = validOf(parseCertificates(bundle), now);
  if (trusted.some((each) => each.raw.equals(leaf.raw))) return true;
  let left = validOf(intermediates, now);
  for (;;) {
    const issuers = trusted.filter(({ ca }) => ca);
    if (issuers.some((issuer) => isIssuedBy(leaf, issuer))) return true;
    const passed = left.filter((each) => issuers.some((issuer) => isIssuedBy(each, issuer)));
    if (passed.length === 0) return false;
    trusted.push(...passed);
    left = left.filter((each) => !passed.includes(each));
  }
}

function readSecret(contents: Contents, wanted: readonly string[], now: Date): Held {
  const authorities = parseCertificates(contents['ca.crt'] ?? '').filter(({ ca }) => ca);
  const parsed = parseKey(contents['ca.key'] ?? '');
  const key = typeof parsed !== 'string' && parsed.asymmetricKeyType === 'rsa' ? parsed : undefined;
  const authority = key && authorities.find((each) => each.checkPrivateKey(key));
  const chain = parseCertificates(contents['tls.crt'] ?? '');
  const [leaf] = chain;
  const bundle = unexpired(authorities, now);
  // Names of a certificate that is none of ours, or no longer what we made, might be names that none can have.
  const isOurs =
    leaf !== undefined && isIssuedByLinger(leaf) && bundle.some((each) => isIssuedBy(leaf, each));
  const names = union(isOurs ? namesOf(leaf) : [], wanted);
  const empty = contents['ca.crt'] === undefined && contents['ca.key'] === undefined;
  const authorityFault = empty ? 'Absent' : faultOf(authority, key, authorities, now);
  return { contents, bundle, authority, authorityFault, chain, names };
}

/** What is served and trusted until an issue has been written, which may be refused for as long as somebody likes. */
function meanwhile(held: Held, seen: Seen, now: Date): Pick<RotationPlan, 'serve' | 'caBundle'> {
  const { trust, serving } = seen;
  const isUsable = servingFault(held, held.bundle, now) === undefined;
  const serve = isUsable ? replacement(held, seen, now) : undefined;
  const served = serve ?? serving;
  if (served === undefined || trust === undefined || isTrusted(served.cert, trust.bundle, now))
    return { serve };
  // Another replica may serve with what is trusted now.
  const others = [served.caBundle, trust.bundle].flatMap(parseCertificates).filter(isIssuedByLinger);
  const caBundle = formatCertificates(newest(validOf([...held.bundle, ...others], now)));
  return { serve, caBundle: isTrusted(served.cert, caBundle, now) ? caBundle : undefined };
}

function issueDue(held: Held, { trust, serving }: Seen, now: Date): Issue | undefined {
  const { authority, authorityFault, bundle, chain, names } = held;
  const lost = servingFault(held, bundle, now);
  if (authority === undefined || authorityFault !== undefined) {
    // Where the Secret says nothing any more, replicas still serve, and API servers still trust.
    const others = [trust?.bundle, serving?.caBundle].flatMap((pem) => parseCertificates(pem ?? ''));
    const known = [...bundle, ...validOf(others.filter(isIssuedByLinger), now)];
    const retained = formatCertificates(newest(known));
    const certificate =
      lost === undefined
        ? { names: undefined, retained, intermediates: formatCertificates(chain.slice(1)) }
        : { names, retained, intermediates: '' };
    return succession(held, certificate, now);
  }
  const issue = (because: IssueReason) => renewal(because, held, authority, now);
  const [leaf] = chain;
  if (leaf === undefined || lost !== undefined) return issue(lost ?? 'Absent');
  if (!isIssuedBy(leaf, authority))
    return isEstablished(authority, trust) ? issue('IssuerChanged') : undefined;
  if (isExpiring(leaf, authority, now) && isEstablished(authority, trust)) return issue('Expiring');
  const servedSince = leaf.validFromDate.getTime() + BACKDATE_MS;
  if (bundle.length > 1 && now.getTime() >= servedSince + RETIRE_MS)
    return { ...issue('Retired'), names: undefined, retained: '' };
  return undefined;
}

/** Whether API servers have trusted it for long enough that all of them do. */
function isEstablished(authority: X509Certificate, trust: Trust | undefined): boolean {
  if (trust === undefined) return true;
  const known = parseCertificates(trust.bundle);
  return trust.forMs >= TRUSTED_MS && known.some((each) => each.fingerprint256 === authority.fingerprint256);
}

/** What the Secret holds, if it is time to serve with that. */
function replacement(held: Held, { trust, serving }: Seen, now: Date): ServingMaterial | undefined {
  const [leaf] = held.chain;
  if (leaf === undefined) return undefined;
  const material = materialOf(leaf, held);
  if (serving === undefined) return material;
  if (serving.cert === material.cert && serving.caBundle === material.caBundle) return undefined;
  if (trust === undefined || !isTrusted(serving.cert, trust.bundle, now)) return material;
  return trust.forMs >= TRUSTED_MS && isTrusted(material.cert, trust.bundle, now) ? material : undefined;
}

function isValid({ validFromDate, validToDate }: X509Certificate, now: Date): boolean {
  return validFromDate <= now && now < validToDate;
}

function validOf(certificates: readonly X509Certificate[], now: Date): X509Certificate[] {
  return certificates.filter((certificate) => isValid(certificate, now));
}

function unexpired(certificates: readonly X509Certificate[], now: Date): X509Certificate[] {
  return certificates.filter(({ validToDate }) => validToDate > now);
}

function union(some: readonly string[], more: readonly string[]): string[] {
  return [...new Set([...some, ...more])];
}

function newest(certificates: readonly X509Certificate[]): X509Certificate[] {
  const distinct = new Map(certificates.map((each) => [each.fingerprint256, each]));
  return [...distinct.values()]
    .toSorted((a, b) => b.validFromDate.getTime() - a.validFromDate.getTime())
    .slice(0, MOST_RETAINED);
}

/**
 * Carries an issue out. Takes about 100 ms for each new key, in the thread pool.
 * @param lifeMs of a new serving certificate
 */
export async function issued(
  issue: Issue,
  contents: Contents,
  now: Date,
  lifeMs = SHARED_LIFE_MS,
): Promise<Required<Contents>> {
  const { crossSign, issueAuthority, issueServingCertificate } = await import('./issue.ts');
  const { names, predecessor, retained } = issue;
  const authority = issue.authority ?? (await issueAuthority(now));
  const crossSigned = predecessor === undefined ? '' : crossSign(authority, predecessor, now);
  const [leaf] = parseCertificates(contents['tls.crt'] ?? '');
  const pair =
    names === undefined
      ? { cert: leaf?.toString() ?? '', key: contents['tls.key'] ?? '' }
      : await issueServingCertificate(authority, names, now, lifeMs);
  return {
    'ca.crt': authority.certificate + retained,
    'ca.key': authority.key,
    'tls.crt': pair.cert + crossSigned + issue.intermediates,
    'tls.key': pair.key,
  };
}
