import type { X509Certificate } from 'node:crypto';
import { isIPv4, isIPv6 } from 'node:net';
import { CertificateError } from './certificate-error.ts';

/** A subject alternative name in canonical form: DNS names in lower case, IPv6 addresses as RFC 5952 writes them. */
export interface SubjectName {
  readonly kind: 'dns' | 'ip';
  readonly value: string;
}

/** RFC 1035, 2.3.4: 255 octets on the wire, which leave 253 characters in text. */
const MAX_DNS_NAME = 253;
/** RFC 1123, 2.1: letters, digits and inner hyphens; RFC 1035, 2.3.4: at most 63 of them. */
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;

/**
 * Reads the names that a certificate shall be valid for, without repetitions, in the order given.
 *
 * @throws CertificateError `BadName`, naming the offender
 */
export function parseNames(names: readonly string[]): SubjectName[] {
  if (names.length === 0)
    throw new CertificateError('BadName', 'a certificate needs at least one name, got none');
  const parsed = new Map<string, SubjectName>();
  for (const name of names) {
    const subject = parseName(name);
    parsed.set(subject.value, subject);
  }
  return [...parsed.values()];
}

function parseName(name: string): SubjectName {
  const address = canonicalAddress(name);
  if (address !== undefined) return { kind: 'ip', value: address };
  const fault = dnsFault(name.toLowerCase());
  if (fault === undefined) return { kind: 'dns', value: name.toLowerCase() };
  throw new CertificateError(
    'BadName',
    `${JSON.stringify(name)} is neither an IP address nor a DNS name that a certificate can hold: ${fault}`,
  );
}

/** Undefined when `text` is no IP address. A zone (`fe80::1%eth0`) has no place in a certificate, so it is none. */
function canonicalAddress(text: string): string | undefined {
  if (isIPv4(text)) return text;
  // The URL parser writes RFC 5952 with no dotted tail, one spelling for each address.
  return isIPv6(text) && !text.includes('%') ? new URL(`http://[${text}]`).hostname.slice(1, -1) : undefined;
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
  // RFC 3696, 2: a last label of digits only is what tells an address from a name.
  if (/^\d+$/.test(labels.at(-1) ?? '')) return 'its last label has only digits';
  // Node's tls.checkServerIdentity and browsers match no wildcard directly under a top-level label.
  if (wildcard && labels.length < 2) return 'clients accept a wildcard only above at least two labels';
  return undefined;
}

/** True when the certificate is valid for exactly these names, in any order. */
export function namesEqual(certificate: X509Certificate, names: readonly SubjectName[]): boolean {
  const held = new Set(alternativeNames(certificate));
  return held.size === names.length && names.every(({ kind, value }) => held.has(`${kind}:${value}`));
}

/** `dns:NAME`, `ip:ADDRESS`, or, for kinds that Linger never asks for, the text as node:crypto prints it. */
function alternativeNames(certificate: X509Certificate): string[] {
  return (certificate.subjectAltName ?? '')
    .split(', ')
    .filter((entry) => entry !== '')
    .map((entry) => {
      if (entry.startsWith('DNS:')) return `dns:${entry.slice('DNS:'.length).toLowerCase()}`;
      if (!entry.startsWith('IP Address:')) return entry;
      return `ip:${canonicalAddress(entry.slice('IP Address:'.length)) ?? entry}`;
    });
}
