export { CertificateSource, ensureCertificates } from './source.ts';
