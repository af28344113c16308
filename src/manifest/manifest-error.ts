import { type ErrorCode, UserError } from '../api/index.ts';

/**
 * A manifest that cannot be read or edited. The message starts with `FILE:LINE:COLUMN:` (or with the object's
 * place) and ends with what to do. `internal` marks a fault of ours: an edit that we could not prove right.
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

/** A piece of a manifest for a message: a part of a line, in quotes. */
export function quote(text: string): string {
  const line = /^[^\r\n]*/.exec(text)?.[0] ?? '';
  const shown = line.slice(0, QUOTED_LENGTH);
  return `"${shown}${shown === text ? '' : '…'}"`;
}

/** Offsets of one text as lines and columns, both counted from 1; columns are UTF-16 units. */
export class LineTable {
  readonly #starts: readonly number[];

  constructor(text: string) {
    const starts = [0];
    for (let i = text.indexOf('\n'); i !== -1; i = text.indexOf('\n', i + 1)) starts.push(i + 1);
    this.#starts = starts;
  }

  at(offset: number): { readonly line: number; readonly column: number } {
    let low = 0;
    let high = this.#starts.length;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if ((this.#starts[middle] ?? 0) <= offset) low = middle;
      else high = middle;
    }
    return { line: low + 1, column: offset - (this.#starts[low] ?? 0) + 1 };
  }
}

const TEMPLATE_HINT = ' (this looks like a template: render it first, for example with "helm template")';

/** One text with its name, so that a reader can point at an offset in it. */
export class SourceText {
  readonly name: string;
  readonly text: string;
  #lines: LineTable | undefined;

  constructor(name: string, text: string) {
    this.name = name;
    this.text = text;
  }

  at(offset: number): ReturnType<LineTable['at']> {
    this.#lines ??= new LineTable(this.text);
    return this.#lines.at(offset);
  }

  errorAt(offset: number, message: string): ManifestError {
    const { line, column } = this.at(offset);
    const hint = this.#lineAt(offset).includes('{{') ? TEMPLATE_HINT : '';
    return new ManifestError(`${this.name}:${line}:${column}: ${message}${hint}`);
  }

  #lineAt(offset: number): string {
    const end = this.text.indexOf('\n', offset);
    return this.text.slice(offset - this.at(offset).column + 1, end === -1 ? undefined : end);
  }
}
