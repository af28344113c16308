/**
 * Stable codes of everything that Linger refuses. A message names what was wrong and the way out; the code is
 * what scripts, dashboards and docs/reference/errors.md hold on to.
 */
export const ERRORS = {
  'settings-invalid': 'A flag or LINGER_ variable has a value that cannot be used.',
  'policy-unreadable': 'A policy file or folder cannot be read.',
  'policy-syntax': 'A policy file is not valid YAML or JSON.',
  'policy-invalid': 'A linger.dev document has an unknown or invalid field.',
  'policy-duplicate': 'Two policy documents of one kind have the same name.',
  'manifest-invalid': 'A manifest given to inject, uninject or explain cannot be used.',
  'events-invalid': 'A file of events given to simulate cannot be used.',
  'output-unwritable': 'Standard output, or a file to be changed in its place, cannot be written.',
  'port-unavailable': 'The server cannot listen on the address it was given.',
  'page-missing': 'This build has no page, or the page cannot be built.',
  'cluster-unreachable': 'The API server does not answer, or not as one does.',
  'cluster-denied': 'The API server does not accept these credentials, or they do not allow what is needed.',
  'not-found': 'The cluster has no object of the name that was given.',
  'not-published': 'No leader of Linger has published there what is asked for.',
  'prove-refused': 'prove did not disturb the workload, or was interrupted.',
  'metrics-unreadable': 'Metrics that were named cannot be read.',
  'metrics-invalid': 'Metrics that were named are not in the Prometheus text format, or not those asked for.',
} as const satisfies Record<string, string>;

export type ErrorCode = keyof typeof ERRORS;

/**
 * An error that the user can do something about: its message says what is wrong and the way out, and is shown with
 * its code and without a stack. Certificates have a kind of their own, with codes of their own.
 */
export abstract class UserError extends Error {
  abstract readonly code: string;
}

export class LingerError extends UserError {
  override readonly name = 'LingerError';
  override readonly code: ErrorCode;
  /** The member that is wrong, in a document; empty: the document, or no document is. */
  readonly path: readonly PropertyKey[];

  constructor(
    code: ErrorCode,
    message: string,
    { path = [], ...options }: ErrorOptions & { readonly path?: readonly PropertyKey[] } = {},
  ) {
    super(message, options);
    this.code = code;
    this.path = path;
  }
}

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}

const MOST_NAMES = 3;

/** `a, b, c and 4997 more`: a list that others have written may have any length. */
export function fewOf(names: readonly string[]): string {
  const more = names.length - MOST_NAMES;
  return `${names.slice(0, MOST_NAMES).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

/**
 * Makes foreign text safe to print: characters that would end the line, move a terminal’s cursor or change the direction of
 * the text become escapes.
 */
export function printable(text: string): string {
  return text.replaceAll(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\uFFFE\uFFFF]/gu, (char) => {
    const escaped = JSON.stringify(char).slice(1, -1);
    if (escaped !== char) return escaped;
    return [...Array(char.length).keys()]
      .map((at) => `\\u${char.charCodeAt(at).toString(16).padStart(4, '0')}`)
      .join('');
  });
}
