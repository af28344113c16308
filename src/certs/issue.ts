import { generateKeyPair, randomBytes, sign as signWith, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { promisify } from 'node:util';
import forge from 'node-forge';
import type { Issue } from './rotation-plan.ts';
import type { SecretData } from './secret-contents.ts';
import {
  AUTHORITY_LIFE_MS,
  type Authority,
  BACKDATE_MS,
  type KeyPair,
  OWN_ORGANIZATION,
  parseCertificates,
  parseNames,
  SHARED_LIFE_MS,
} from './x509.ts';

// Imported only when a certificate is created: node-forge takes 60 ms and 13 MB.

type Extension = Readonly<Record<string, unknown>>;
interface Draft {
  readonly subject: forge.pki.CertificateField[];
  readonly publicKey: string;
  readonly validity: forge.pki.Certificate['validity'];
  readonly extensions: readonly Extension[];
}
interface Issuer {
  readonly subject: forge.pki.CertificateField[];
  readonly keyIdentifier: string;
  readonly key: string;
}

/**
 * 2048 bits: NIST SP 800-57 accepts them until 2030, and doubling them makes a handshake about six times as expensive. RSA,
 * because that is what node-forge can sign with.
 */
const MODULUS_BITS = 2048;
/** RFC 5280, appendix A.1, ub-common-name. */
const MAX_COMMON_NAME = 64;
/** GeneralName tags, RFC 5280, 4.2.1.6. */
const DNS_NAME = 2;
const IP_ADDRESS = 7;

const SUBJECT_KEY = { name: 'subjectKeyIdentifier' };
// keyEncipherment is for TLS 1.2 clients without an ECDHE suite.
const SERVING_USAGE = { name: 'keyUsage', critical: true, digitalSignature: true, keyEncipherment: true };

/** A new self-signed authority, valid 365 days from `now`. Takes about 100 ms, in the thread pool. */
export async function issueAuthority(now: Date): Promise<Authority> {
  const { publicKey, privateKey } = await generateKeys();
  // Each authority has a name of its own, so that clients do not confuse a new one with an old one in the same bundle.
  const commonName = `Linger CA ${randomBytes(4).toString('hex')}`;
  const subject = [attribute('organizationName', OWN_ORGANIZATION), attribute('commonName', commonName)];
  const draft: Draft = {
    subject,
    publicKey,
    validity: validityFrom(now, AUTHORITY_LIFE_MS),
    extensions: [
      { name: 'basicConstraints', critical: true, cA: true, pathLenConstraint: 0 },
      { name: 'keyUsage', critical: true, keyCertSign: true, cRLSign: true },
      SUBJECT_KEY,
    ],
  };
  const issuer = { subject, keyIdentifier: keyIdentifier(publicKey), key: privateKey };
  return { certificate: sign(draft, issuer), key: privateKey };
}

/**
 * A new key and a certificate for TLS servers, valid for exactly `names` and `lifeMs` from `now`, or until
 * its authority ends. Takes about 100 ms, in the thread pool.
 *
 * @throws CertificateError `BadName`
 */
export async function issueServingCertificate(
  authority: Authority,
  names: readonly string[],
  now: Date,
  lifeMs = SHARED_LIFE_MS,
): Promise<KeyPair> {
  const subjectNames = parseNames(names);
  const { publicKey, privateKey } = await generateKeys();
  const limit = new X509Certificate(authority.certificate).validToDate;
  const commonName = subjectNames.find((name) => name.length <= MAX_COMMON_NAME);
  const draft: Draft = {
    subject: commonName === undefined ? [] : [attribute('commonName', commonName)],
    publicKey,
    validity: validityFrom(now, lifeMs, limit),
    extensions: [
      { name: 'basicConstraints', critical: true, cA: false },
      SERVING_USAGE,
      { name: 'extKeyUsage', serverAuth: true },
      // RFC 5280, 4.2.1.6: critical when the subject is empty.
      alternativeNamesExtension(subjectNames, commonName === undefined),
      SUBJECT_KEY,
    ],
  };
  return { cert: sign(draft, issuerOf(authority)), key: privateKey };
}

/**
 * Takes about 100 ms for each new key, in the thread pool.
 * @param lifeMs of a new serving certificate
 */
export async function issueSecret(
  issue: Issue,
  contents: SecretData,
  now: Date,
  lifeMs = SHARED_LIFE_MS,
): Promise<Required<SecretData>> {
  const { names, retained } = issue;
  const authority = issue.authority ?? (await issueAuthority(now));
  const [leaf] = parseCertificates(contents['tls.crt'] ?? '');
  const pair =
    names === undefined
      ? { cert: leaf?.toString() ?? '', key: contents['tls.key'] ?? '' }
      : await issueServingCertificate(authority, names, now, lifeMs);
  return {
    'ca.crt': authority.certificate + retained,
    'ca.key': authority.key,
    'tls.crt': pair.cert,
    'tls.key': pair.key,
  };
}

async function generateKeys(): Promise<{ publicKey: string; privateKey: string }> {
  return await promisify(generateKeyPair)('rsa', {
    modulusLength: MODULUS_BITS,
    publicKeyEncoding: { type: 'spki', format: 'pem' },
    privateKeyEncoding: { type: 'pkcs8', format: 'pem' },
  });
}

function sign(draft: Draft, issuer: Issuer): string {
  const certificate = forge.pki.createCertificate();
  certificate.serialNumber = serialNumber();
  certificate.publicKey = forge.pki.publicKeyFromPem(draft.publicKey);
  certificate.validity = { ...draft.validity };
  certificate.setSubject(draft.subject);
  certificate.setIssuer(issuer.subject);
  const authorityKey = { name: 'authorityKeyIdentifier', keyIdentifier: issuer.keyIdentifier };
  // node-forge writes its encoding into the objects that it is given, so it gets copies.
  certificate.setExtensions([...draft.extensions, authorityKey].map((extension) => ({ ...extension })));
  // Signed with OpenSSL, because node-forge takes a hundred times as long, on the thread that answers reviews.
  const key = {
    sign: () => {
      const signed = Buffer.from(forge.asn1.toDer(certificate.tbsCertificate).getBytes(), 'binary');
      return signWith('sha256', signed, issuer.key).toString('binary');
    },
  };
  certificate.sign(key as unknown as forge.pki.rsa.PrivateKey, forge.md.sha256.create());
  return forge.pki.certificateToPem(certificate).replaceAll('\r\n', '\n');
}

/** A validity that begins in the past. @param limit the end of the issuer's own validity */
function validityFrom(now: Date, lifeMs: number, limit?: Date): Draft['validity'] {
  const end = now.getTime() + lifeMs;
  return {
    notBefore: new Date(now.getTime() - BACKDATE_MS),
    notAfter: new Date(limit === undefined ? end : Math.min(end, limit.getTime())),
  };
}

function issuerOf(authority: Authority): Issuer {
  const certificate = forge.pki.certificateFromPem(authority.certificate);
  const extension: { subjectKeyIdentifier?: string } | undefined | null =
    certificate.getExtension('subjectKeyIdentifier');
  const { publicKey } = new X509Certificate(authority.certificate);
  return {
    subject: certificate.subject.attributes,
    // An authority that was made by hand may have derived its identifier in another way, or have none.
    keyIdentifier:
      extension?.subjectKeyIdentifier === undefined
        ? keyIdentifier(publicKey.export({ type: 'spki', format: 'pem' }).toString())
        : forge.util.hexToBytes(extension.subjectKeyIdentifier),
    key: authority.key,
  };
}

/** RFC 5280, 4.2.1.2, method 1: SHA-1 of the public key; an identifier, not a protection. */
function keyIdentifier(publicKey: string): string {
  return forge.pki
    .getPublicKeyFingerprint(forge.pki.publicKeyFromPem(publicKey), { type: 'RSAPublicKey' })
    .getBytes();
}

/**
 * 16 random octets, positive (first bit 0) and without leading zeros (second bit 1), as DER wants an INTEGER: 126 bits,
 * where RFC 5280 allows 159 and browsers ask for 64.
 */
function serialNumber(): string {
  const octets = randomBytes(16);
  octets.writeUInt8((octets.readUInt8(0) & 0x3f) | 0x40, 0);
  return octets.toString('hex');
}

function attribute(name: string, value: string): forge.pki.CertificateField {
  // PrintableString, node-forge's default, has no asterisk.
  return { name, value, valueTagClass: forge.asn1.Type.UTF8 as unknown as forge.asn1.Class };
}

function alternativeNamesExtension(names: readonly string[], critical: boolean): Extension {
  const altNames = names.map((name) =>
    // The canonical form matters: node-forge loses a group of "::2:3:4:5:6:7:8".
    isIP(name) === 0 ? { type: DNS_NAME, value: name } : { type: IP_ADDRESS, ip: name },
  );
  return { name: 'subjectAltName', critical, altNames };
}
