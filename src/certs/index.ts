export { isTrusted } from './assess.ts';
export { SecretSource } from './secret-source.ts';
export { type CertificateSource, ensureCertificates, FileSource, tellConfigured } from './source.ts';
export { parseCertificates, renewalTime } from './x509.ts';
