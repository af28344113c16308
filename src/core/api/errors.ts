import type { Curable } from './explained.ts';

/**
 * Stable codes of all errors that users see. A message says what was wrong and how to fix it; scripts, dashboards and
 * docs/reference/errors.md rely on the code.
 */
export const ERRORS = {
  'settings-invalid': {
    exit: 2,
    means:
      'A flag or `LINGER_` variable has a value that cannot be used. An empty variable counts as not set.',
    cure: 'The message says what was expected: [flags](commands.md).',
  },
  'policy-unreadable': {
    exit: 1,
    means: 'A policy file or folder cannot be read, is not a regular file, or is longer than 4 MiB.',
    cure: 'Check path and permissions. `--policies` takes a folder or a file.',
  },
  'policy-syntax': {
    exit: 1,
    means: 'A policy file is not valid YAML or JSON.',
    cure: 'The message has file, line and column.',
  },
  'policy-invalid': {
    exit: 1,
    means: 'A `linger.dev` document has an unknown or invalid field, kind or version.',
    cure: 'The message names each field and what was expected: [policies](policies.md#fields).',
  },
  'policy-duplicate': {
    exit: 1,
    means: 'Two policy documents of one kind have the same name (and namespace).',
    cure: 'Rename or remove one; the message says where both are.',
  },
  'manifest-invalid': {
    exit: 1,
    means: 'A manifest given to `inject`, `uninject` or `explain` cannot be used.',
    cure: 'The message has the place. Render templates first, for example with `helm template`.',
  },
  'events-invalid': {
    exit: 1,
    means: 'A file of events given to `simulate` cannot be used.',
    cure: 'The message has the file, the line and what was expected there.',
  },
  'output-unwritable': {
    exit: 1,
    means:
      'Standard output, or a file that `--in-place` was to change, cannot be written: a full disk, missing permissions.',
    cure: '`--in-place` never leaves a half-written file.',
  },
  'port-unavailable': {
    exit: 1,
    means: 'The server cannot listen on its address.',
    cure: 'Choose another with `--port`, `--admin-port` or `--page-port`.',
  },
  'page-missing': {
    exit: 1,
    means: 'This build has no dashboard, like that of the image, or a checkout cannot build it.',
    cure: 'Run it from the package or a checkout; there, `npm ci` first.',
  },
  'cluster-unreachable': {
    exit: 1,
    means: 'The API server does not answer. The message has its address, the context and the kubeconfig.',
    cure: 'Check the VPN and `--context`.',
  },
  'cluster-denied': {
    exit: 1,
    means: 'The API server does not accept the credentials (401), or they do not suffice (403).',
    cure: 'Log in again; or ask for the [permissions](commands.md#rights), or for less with `--namespace`.',
  },
  'not-found': {
    exit: 1,
    means:
      'The cluster has no object of the given name, such as `deployment/web`. The message has kind, name and namespace.',
    cure: 'Check the namespace (`-n`) and cluster (`--context`).',
  },
  'not-published': {
    exit: 1,
    means: 'The ConfigMap that the command reads is missing, empty or damaged.',
    cure: 'Check that Linger runs there (`--linger-namespace`) and a replica has led for a minute.',
  },
  'prove-refused': {
    exit: 1,
    means: '`prove` did not disturb the workload, or was interrupted.',
    cure: 'The message says why.',
  },
  'metrics-unreadable': {
    exit: 1,
    means:
      'Metrics that were named with `--controller-metrics` or `--linger` cannot be read, or the server refuses them.',
    cure: "The message has the server's words, and the identity used: [the sources](commands.md#the-controller-managers-metrics).",
  },
  'metrics-invalid': {
    exit: 1,
    means: "They are not in the Prometheus text format (the message has the line), or are another program's.",
    cure: 'Give those of kube-controller-manager, or of a Linger that measures.',
  },
} as const satisfies Readonly<Record<string, Curable & { readonly exit: 1 | 2 }>>;

export type ErrorCode = keyof typeof ERRORS;

/**
 * An error that the user can fix: its message says what is wrong and what to do, and is shown with its code and without a
 * stack. Certificates have their own kind of error, with its own codes.
 */
export abstract class UserError extends Error {
  abstract readonly code: string;
}

export class LingerError extends UserError {
  override readonly name = 'LingerError';
  override readonly code: ErrorCode;
  /** The path of the wrong member in a document; empty: the whole document, or the error is not about a document. */
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
