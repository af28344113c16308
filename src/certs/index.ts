export { ensureCertificates } from './folder.ts';
export { issueAuthority, issueServingCertificate } from './issue.ts';
export { isProven, proofOf, type SigningKeys } from './proofs.ts';
export { SecretSource } from './secret-source.ts';
export { type CertificateSource, FileSource, tellConfigured } from './source.ts';
export {
  type Authority,
  CERTIFICATE_ERRORS,
  isTrusted,
  type KeyPair,
  parseCertificates,
  renewalTime,
} from './x509.ts';
