import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import { type Curable, canonicalAddress, FOREIGN_LIMITS, UserError } from '../core/api/index.ts';

/**
 * Everything that can prevent Linger from having a certificate, by stable code. Each code is explained in certs/README.md,
 * under "When it refuses".
 */
export const CERTIFICATE_ERRORS = {
  BadName: {
    means: 'A certificate cannot have this name, such as `localhost:8443`, `10.0.0.0/8` or `*.com`.',
    cure: 'Give DNS names, wildcards such as `*.example.com`, or IP addresses.',
  },
  Expired: {
    means: 'Your own certificate has expired.',
    cure: 'Replace it.',
  },
  Mismatched: {
    means: '`tls.key` does not belong to the first certificate in `tls.crt`.',
    cure: 'Copy both, and put the serving certificate first.',
  },
  Incomplete: {
    means: 'One of `tls.crt` and `tls.key` is missing.',
    cure: 'Add it; or delete the other, and Linger makes its own.',
  },
  Corrupt: {
    means: 'A file cannot be read as PEM, or TLS does not accept it.',
    cure: 'Replace it.',
  },
  EncryptedKey: {
    means: 'A key needs a passphrase.',
    cure: "Store it decrypted, readable by Linger's user only.",
  },
  Unreadable: {
    means: "A file cannot be read. The message has the system's reason.",
    cure: "Let Linger's user read it, or use another folder.",
  },
  Unwritable: {
    means: "A certificate is due, and the folder cannot be written to. The message has the system's reason.",
    cure: "Let Linger's user write it; or provide `tls.crt` and `tls.key` of your own.",
  },
  NotShared: {
    means:
      "The Secret of `--certs-secret` can neither be read nor made. The message has the API server's reason.",
    cure: 'Apply `deploy/role-certificates.yaml`; or mount a certificate of your own, and name its folder with `--certs`.',
  },
} as const satisfies Readonly<Record<string, Curable>>;

export type CertificateErrorCode = keyof typeof CERTIFICATE_ERRORS;

/**
 * The message names the faulty file or name, and the fix. There is no `cause`, since that could bring the bytes of a key
 * file into a log.
 */
export class CertificateError extends UserError {
  override readonly code: CertificateErrorCode;

  constructor(code: CertificateErrorCode, message: string) {
    super(message);
    this.name = 'CertificateError';
    this.code = code;
  }
}

/** RFC 1035, 2.3.4: 255 octets on the wire, which leave 253 characters in text. */
const MAX_DNS_NAME = 253;
/** RFC 1123, 2.1: letters, digits and inner hyphens; RFC 1035, 2.3.4: at most 63 of them. */
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/**
 * The names that a certificate shall be valid for, in canonical form (DNS names in lower case, IPv6 addresses as RFC 5952
 * writes them), without repetitions, in the order given.
 *
 * @throws CertificateError `BadName`, naming the offender
 */
export function parseNames(names: readonly string[]): string[] {
  if (names.length === 0)
    throw new CertificateError('BadName', 'a certificate needs at least one name, got none');
  return [...new Set(names.map(canonicalName))];
}

function canonicalName(name: string): string {
  // A certificate cannot contain a zone (`fe80::1%eth0`).
  const address = name.includes('%') ? undefined : canonicalAddress(name);
  if (address !== undefined) return address;
  const fault = dnsFault(name.toLowerCase());
  if (fault === undefined) return name.toLowerCase();
  throw new CertificateError(
    'BadName',
    `${JSON.stringify(name)} is neither an IP address nor a DNS name that a certificate can hold: ${fault}`,
  );
}

function dnsFault(name: string): string | undefined {
  if (name === '') return 'it is empty';
  if (name.length > MAX_DNS_NAME)
    return `it has ${name.length} characters, at most ${MAX_DNS_NAME} are allowed`;
  const wildcard = name.startsWith('*.');
  const labels = (wildcard ? name.slice(2) : name).split('.');
  const bad = labels.find((label) => !LABEL.test(label));
  if (bad !== undefined) {
    return `expected labels of 1 to 63 letters, digits and inner hyphens, got ${JSON.stringify(bad)}`;
  }
  // RFC 3696, 2: a last label of only digits would look like an address.
  if (/^\d+$/.test(labels.at(-1) ?? '')) return 'its last label has only digits';
  // Node's tls.checkServerIdentity and browsers match no wildcard directly under a top-level label.
  if (wildcard && labels.length < 2) return 'clients accept a wildcard only above at least two labels';
  return undefined;
}

/** The DNS names and addresses that a certificate is valid for. */
export function namesOf(certificate: X509Certificate): string[] {
  return (certificate.subjectAltName ?? '').split(', ').flatMap((entry) => {
    const [, name] = /^(?:DNS|IP Address):(.*)$/.exec(entry) ?? [];
    return name === undefined ? [] : [canonicalAddress(name) ?? name.toLowerCase()];
  });
}

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/**
 * The same as cert-manager uses for the CA of its own webhook: long enough to be pasted by hand once, short enough that
 * rotation really happens.
 */
export const AUTHORITY_LIFE_MS = 365 * DAY_MS;

/**
 * The life of a certificate that replicas share in a Secret. It has to be copied nowhere, so it can be short, and its
 * renewal is exercised twice a week instead of once a year.
 */
export const SHARED_LIFE_MS = 7 * DAY_MS;

/**
 * How far notBefore lies in the past, for clients whose clock is behind ours: an hour, as in client-go's
 * GenerateSelfSignedCertKey ("valid an hour earlier to avoid flakes due to clock skew"). It covers what a
 * virtual machine loses while its laptop sleeps and has not asked NTP yet.
 */
export const BACKDATE_MS = HOUR_MS;

/** After two thirds of its life, which is cert-manager's rule: a third remains to notice a failing renewal. */
export function renewalTime({ validFromDate, validToDate }: X509Certificate): Date {
  const life = validToDate.getTime() - validFromDate.getTime();
  return new Date(validFromDate.getTime() + (life * 2) / 3);
}

/** The organization in the name of every authority that Linger creates; only those may be replaced without asking. */
export const OWN_ORGANIZATION = 'linger.dev';

const MOST_CHARACTERS = FOREIGN_LIMITS.certificate.bytes;
const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** The certificates in a PEM text, in order; none where it is too long. Blocks that do not parse are left out. */
export function parseCertificates(pem: string): X509Certificate[] {
  if (pem.length > MOST_CHARACTERS) return [];
  return (pem.match(CERTIFICATE) ?? []).flatMap((block) => {
    try {
      return [new X509Certificate(block)];
    } catch {
      return [];
    }
  });
}

/**
 * PEM of certificates only. A bundle is printed and pasted, so anything else in the file, such as a private key in a
 * combined PEM, must be left out.
 */
export function formatCertificates(certificates: readonly X509Certificate[]): string {
  return certificates.map((certificate) => certificate.toString()).join('');
}

/** Recognises PKCS #8 and the older OpenSSL form by their text, because OpenSSL's error depends on its version. */
const ENCRYPTED_KEY = /BEGIN ENCRYPTED PRIVATE KEY|^Proc-Type: 4,ENCRYPTED/m;

/** A private key, or why there is none. The reason never quotes the text. */
export function parseKey(pem: string): KeyObject | 'corrupt' | 'encrypted' {
  if (pem.length > MOST_CHARACTERS) return 'corrupt';
  if (ENCRYPTED_KEY.test(pem)) return 'encrypted';
  try {
    return createPrivateKey(pem);
  } catch {
    return 'corrupt';
  }
}

/** True when `authority` signed `certificate`: names and key identifiers agree and the signature verifies. */
export function isIssuedBy(certificate: X509Certificate, authority: X509Certificate): boolean {
  return certificate.checkIssued(authority) && certificate.verify(authority.publicKey);
}

/**
 * True if the issuer's name says that Linger created it. That is a label and not a proof: it protects a user's files, not a
 * secret.
 */
export function isIssuedByLinger(certificate: X509Certificate): boolean {
  // Undefined for an empty name, which cert-manager's SelfSigned issuers give.
  const issuer: string | undefined = certificate.issuer;
  return issuer?.split('\n').includes(`O=${OWN_ORGANIZATION}`) ?? false;
}

/** A certificate authority: its certificate and its private key (PKCS #8), both PEM. */
export interface Authority {
  readonly certificate: string;
  readonly key: string;
}

/** A serving certificate (leaf first, then intermediates if any) and its private key (PKCS #8), both PEM. */
export interface KeyPair {
  readonly cert: string;
  readonly key: string;
}

/** What a TLS server needs, and what its clients and its operator need to know. All texts are PEM. */
export interface ServingMaterial {
  /** The serving certificate, then its intermediates. */
  readonly cert: string;
  readonly key: string;
  /** What clients must trust: one or more authorities. Empty when a user's own certificate comes without its authority. */
  readonly caBundle: string;
  readonly notAfter: Date;
}

/**
 * Why OpenSSL would refuse to serve with this pair (too short a key, too weak a digest); undefined: it would not. Checked
 * beforehand, because `server.setSecureContext` throws.
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
 * Whether an API server that trusts the bundle accepts what is served: a certificate, then its intermediates in any order.
 * A certificate that stands in the bundle is accepted by itself. Source: Go, crypto/x509, Certificate.Verify, which also checks
 * the length of the path and the usages of keys.
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

export function isValid({ validFromDate, validToDate }: X509Certificate, now: Date): boolean {
  return validFromDate <= now && now < validToDate;
}

export function validOf(certificates: readonly X509Certificate[], now: Date): X509Certificate[] {
  return certificates.filter((certificate) => isValid(certificate, now));
}
