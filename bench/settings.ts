import { positive, readOptions, someOf } from './options.ts';
import { type ServerName, serverNames } from './servers.ts';

export interface Settings {
  /** Length of each measurement. */
  readonly seconds: number;
  readonly rounds: number;
  /** How long each server is exercised before anything counts. */
  readonly warmupSeconds: number;
  readonly servers: readonly ServerName[];
  /** Where the results go; undefined = table only. */
  readonly output: string | undefined;
}

const usage = `usage: node bench/admission.ts [--seconds N] [--rounds N] [--servers a,b] [--output FILE] [--quick]
  --seconds   length of each measurement (default 8)
  --rounds    rounds; a round measures every server once in each mode (default 5)
  --servers   which of ${serverNames.join(', ')} (default all)
  --output    where the results go (default bench/results/admission.json for a whole run, else nowhere)
  --quick     does it still work? one round of one second, no results written`;

// V8 has compiled and recompiled the hot path after some ten thousand reviews; at 3,000/s that is 4 s.
const WARMUP_SECONDS = 4;

const options = {
  seconds: { type: 'string' },
  rounds: { type: 'string' },
  servers: { type: 'string', default: serverNames.join(',') },
  output: { type: 'string' },
  quick: { type: 'boolean', default: false },
} as const;

export function readSettings(argv: readonly string[], defaultOutput: string): Settings {
  return readOptions(argv, options, usage, ({ seconds, rounds, servers: written, output, quick }) => {
    const servers = someOf('servers', serverNames, written);
    const whole = !quick && servers.length === serverNames.length;
    return {
      seconds: positive('seconds', seconds ?? (quick ? '1' : '8')),
      rounds: positive('rounds', rounds ?? (quick ? '1' : '5')),
      warmupSeconds: quick ? 1 : WARMUP_SECONDS,
      servers,
      output: output ?? (whole ? defaultOutput : undefined),
    };
  });
}
