import type { KeyObject, X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { CertificateError, type CertificateErrorCode } from './certificate-error.ts';
import type { CertificateFile, Contents } from './directory.ts';
import { renewalTime } from './lifetime.ts';
import { isIssuedByLinger, parseCertificates, parseKey, validityOf } from './pem.ts';

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
  const refuse = refusal(directory);
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

function refusal(directory: string): Refuse {
  return (code, file, fault) =>
    new CertificateError(
      code,
      `${join(directory, file)} ${fault}; Linger replaces no authority that it did not make: ` +
        `put a valid ca.crt and ca.key there, or remove both and put your own tls.crt and tls.key`,
    );
}

/** Undefined when there is nothing to lose: the text is no key. */
function signingKey(text: string, refuse: Refuse): KeyObject | undefined {
  const key = parseKey(text);
  if (key === 'corrupt') return undefined;
  if (key === 'encrypted')
    throw refuse('EncryptedKey', 'ca.key', 'is encrypted, and nobody is there to type a passphrase');
  if (key.asymmetricKeyType === 'rsa') return key;
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
