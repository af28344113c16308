import type { Explained } from './explained.ts';

/** The exit codes of every command. */
export const EXITS = {
  done: { code: 0, means: 'Done; for `serve`: drained after SIGTERM.' },
  failed: { code: 1, means: 'Failed: the message says what; `prove` has proved nothing.' },
  usage: {
    code: 2,
    means: 'Wrong usage: an unknown command or flag, or a value that cannot be used.',
  },
  findings: {
    code: 3,
    means: '`--fail-on` found one of its codes; `watch --fail-on-lag`; `prove --max-lost`.',
  },
  // By the shell's convention a process ended by signal N exits with 128 + N.
  interrupted: {
    code: 130,
    means:
      '`serve` was ended at once by SIGINT; `prove` was interrupted by it, and has removed what it made.',
  },
  terminated: {
    code: 143,
    means: '`serve` was ended at once by a second signal while draining; `prove` was interrupted by SIGTERM.',
  },
} as const satisfies Readonly<Record<string, Explained & { readonly code: number }>>;
