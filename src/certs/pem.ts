import { createPrivateKey, type KeyObject, X509Certificate } from 'node:crypto';
import type { Validity } from './lifetime.ts';

/** The organization in the name of every authority that Linger makes: what it may replace without asking. */
export const OWN_ORGANIZATION = 'linger.dev';

const CERTIFICATE = /-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g;

/** The certificates in a PEM text, in order. What is no certificate is left out, and so are blocks that do not parse. */
export function parseCertificates(pem: string): X509Certificate[] {
  return (pem.match(CERTIFICATE) ?? []).flatMap((block) => {
    try {
      return [new X509Certificate(block)];
    } catch {
      return [];
    }
  });
}

/**
 * PEM of certificates only: a bundle is printed and pasted, so whatever else stood in the file, such as a
 * private key in a combined PEM, must not come along.
 */
export function formatCertificates(certificates: readonly X509Certificate[]): string {
  return certificates.map((certificate) => certificate.toString()).join('');
}

/** PKCS #8 and the older OpenSSL form. Asking the text: the error that OpenSSL gives for it depends on its version. */
const ENCRYPTED_KEY = /BEGIN ENCRYPTED PRIVATE KEY|^Proc-Type: 4,ENCRYPTED/m;

/** A private key, or why there is none. The reason never quotes the text. */
export function parseKey(pem: string): KeyObject | 'corrupt' | 'encrypted' {
  if (ENCRYPTED_KEY.test(pem)) return 'encrypted';
  try {
    return createPrivateKey(pem);
  } catch {
    return 'corrupt';
  }
}

export function validityOf(certificate: X509Certificate): Validity {
  return { notBefore: certificate.validFromDate, notAfter: certificate.validToDate };
}

/** True when `authority` signed `certificate`: names and key identifiers agree and the signature verifies. */
export function isIssuedBy(certificate: X509Certificate, authority: X509Certificate): boolean {
  return certificate.checkIssued(authority) && certificate.verify(authority.publicKey);
}

/** True when the issuer's name says that Linger made it. A label, not a proof: it guards a user's files, not a secret. */
export function isIssuedByLinger(certificate: X509Certificate): boolean {
  return certificate.issuer.split('\n').includes(`O=${OWN_ORGANIZATION}`);
}
