import type { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { CertificateError, type CertificateErrorCode } from './certificate-error.ts';
import type { CertificateFile, Contents } from './directory.ts';
import { milestones, type ServingMaterial, tlsRejection } from './material.ts';
import { formatCertificates, parseCertificates, parseKey } from './pem.ts';

/**
 * Accepts the certificate that a user put into `directory`: tls.crt and tls.key, and ca.crt if there is
 * one. Its names are the user's business, and so is a notBefore that lies ahead: clients judge it by their
 * own clocks.
 *
 * @throws CertificateError `Incomplete`, `Corrupt`, `EncryptedKey`, `Mismatched` or `Expired`
 */
export function acceptProvided(contents: Contents, directory: string, now: Date): ServingMaterial {
  const refuse = refusal(directory);
  const chain = parseCertificates(required('tls.crt', contents, refuse));
  const key = required('tls.key', contents, refuse);
  const [leaf] = chain;
  if (leaf === undefined) throw refuse('Corrupt', 'tls.crt', 'holds no certificate that can be read');
  checkKey(key, leaf, refuse);
  const cert = formatCertificates(chain);
  const rejection = tlsRejection(cert, key);
  if (rejection !== undefined) throw refuse('Corrupt', 'tls.crt', `is not accepted for TLS: ${rejection}`);
  if (leaf.validToDate <= now)
    throw refuse('Expired', 'tls.crt', `expired on ${leaf.validToDate.toISOString()}`);
  return { cert, key, caBundle: bundleOf(contents['ca.crt'], leaf), ...milestones(leaf) };
}

type Refuse = (code: CertificateErrorCode, file: CertificateFile, fault: string) => CertificateError;

function refusal(directory: string): Refuse {
  return (code, file, fault) =>
    new CertificateError(
      code,
      `${join(directory, file)} ${fault}; put a valid tls.crt and tls.key there, ` +
        `or remove the .crt and .key files from ${directory} and Linger makes its own`,
    );
}

function required(file: CertificateFile, contents: Contents, refuse: Refuse): string {
  const text = contents[file];
  if (text === undefined) throw refuse('Incomplete', file, 'is missing');
  return text;
}

function checkKey(text: string, leaf: X509Certificate, refuse: Refuse): void {
  const key = parseKey(text);
  if (key === 'corrupt') throw refuse('Corrupt', 'tls.key', 'holds no private key that can be read');
  if (key === 'encrypted')
    throw refuse('EncryptedKey', 'tls.key', 'is encrypted, and nobody is there to type a passphrase');
  if (!leaf.checkPrivateKey(key)) {
    throw refuse('Mismatched', 'tls.key', 'does not belong to the first certificate in tls.crt');
  }
}

function bundleOf(authorities: string | undefined, leaf: X509Certificate): string {
  if (authorities !== undefined) return formatCertificates(parseCertificates(authorities));
  // A self-signed serving certificate is its own authority.
  return leaf.checkIssued(leaf) ? formatCertificates([leaf]) : '';
}
