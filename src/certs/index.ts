export { ensureCertificates } from './folder.ts';
export { isProven, proofOf, type SigningKeys } from './proofs.ts';
export { SecretSource } from './secret-source.ts';
export { type CertificateSource, FileSource, tellConfigured } from './source.ts';
export { isTrusted, parseCertificates, renewalTime } from './x509.ts';
