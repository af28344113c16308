import { UserError } from '../core/catalog/errors.ts';
import type { ConnectionErrorCode } from './connection.ts';

/**
 * The message names the file and the way out. It carries no `cause`: a cause could bring the bytes of a key or a
 * token into a log.
 */
export class ConnectionError extends UserError {
  override readonly name = 'ConnectionError';
  override readonly code: ConnectionErrorCode;

  constructor(code: ConnectionErrorCode, message: string) {
    super(message);
    this.code = code;
  }
}
