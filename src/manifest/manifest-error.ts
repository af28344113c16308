import { type ErrorCode, UserError } from '../api/index.ts';

/**
 * A manifest that cannot be read or edited. The message starts with `FILE:LINE:COLUMN:` (or with the object's
 * place) and ends with what to do. `internal` marks a bug in Linger: an edit that could not be verified.
 */
export class ManifestError extends UserError {
  override readonly name = 'ManifestError';
  override readonly code: ErrorCode = 'manifest-invalid';
  readonly internal: boolean;

  constructor(message: string, options: { readonly internal?: boolean; readonly cause?: unknown } = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.internal = options.internal ?? false;
  }
}

const QUOTED_LENGTH = 80;

/** An excerpt of a manifest for a message: part of a line, in quotes. */
export function quote(text: string): string {
  const line = /^[^\r\n]*/.exec(text)?.[0] ?? '';
  const shown = line.slice(0, QUOTED_LENGTH);
  return `"${shown}${shown === text ? '' : '…'}"`;
}
