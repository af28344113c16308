import { type ErrorCode, UserError } from '../api/index.ts';

/**
 * A manifest that cannot be read or edited. The message starts with `FILE:LINE:COLUMN:` (or with the object's
 * place) and ends with what to do.
 */
export class ManifestError extends UserError {
  override readonly name = 'ManifestError';
  override readonly code: ErrorCode = 'manifest-invalid';
}
