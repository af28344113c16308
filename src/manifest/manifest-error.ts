import { type ErrorCode, UserError } from '../api/index.ts';

/**
 * A manifest that cannot be read or edited. The message starts with `FILE:LINE:COLUMN:` (or with the object's
 * place) and ends with what to do.
 */
export class ManifestError extends UserError {
  override readonly name = 'ManifestError';
  override readonly code: ErrorCode = 'manifest-invalid';
}

const QUOTED_LENGTH = 80;

/** An excerpt of a manifest for a message: part of a line, in quotes. */
export function quote(text: string): string {
  const line = /^[^\r\n]*/.exec(text)?.[0] ?? '';
  const shown = line.slice(0, QUOTED_LENGTH);
  return `"${shown}${shown === text ? '' : '…'}"`;
}
