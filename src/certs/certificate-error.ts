import { UserError } from '../api/index.ts';

/**
 * Everything that can stop Linger from having a certificate, by stable code. Each code is explained in
 * certs/README.md, under "When it refuses".
 */
export const certificateErrorCodes = [
  'BadName',
  'Expired',
  'Mismatched',
  'Incomplete',
  'Corrupt',
  'EncryptedKey',
  'UnsupportedKey',
  'ForeignCertificate',
  'Unreadable',
  'Unwritable',
  'Contended',
] as const;

export type CertificateErrorCode = (typeof certificateErrorCodes)[number];

/**
 * The message names the file or the name at fault and the way out. It carries no `cause`: a cause could
 * bring the bytes of a key file into a log.
 */
export class CertificateError extends UserError {
  override readonly code: CertificateErrorCode;

  constructor(code: CertificateErrorCode, message: string) {
    super(message);
    this.name = 'CertificateError';
    this.code = code;
  }
}
