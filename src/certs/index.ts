export {
  type CertificateSource,
  certificateDirectory,
  ensureCertificates,
  watchCertificates,
} from './source.ts';
