export { SecretSource } from './secret-source.ts';
export { type CertificateSource, ensureCertificates, FileSource } from './source.ts';
