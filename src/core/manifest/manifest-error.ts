import { type ErrorCode, UserError } from '../api/index.ts';
import type { TextProblem } from '../yaml/index.ts';

/**
 * A manifest that cannot be read or edited. The message starts with `FILE:LINE:COLUMN:` (or with the object's
 * place) and ends with what to do.
 */
export class ManifestError extends UserError {
  override readonly name = 'ManifestError';
  override readonly code: ErrorCode = 'manifest-invalid';
  /** The message without the words for its place; absent: it concerns the whole text. */
  readonly place: TextProblem | undefined;

  constructor(message: string, { place, ...options }: ErrorOptions & { readonly place?: TextProblem } = {}) {
    super(message, options);
    this.place = place;
  }
}
