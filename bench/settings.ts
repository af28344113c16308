import { parseArgs } from 'node:util';
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

/** Reads the command line; ends the process with 2 when it is not as in `usage`, with 0 for --help. */
export function readSettings(argv: readonly string[], defaultOutput: string): Settings {
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        seconds: { type: 'string' },
        rounds: { type: 'string' },
        servers: { type: 'string', default: serverNames.join(',') },
        output: { type: 'string' },
        quick: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    if (values.help) {
      console.log(usage);
      process.exit(0);
    }
    const servers = values.servers.split(',').map(serverName);
    const whole = !values.quick && servers.length === serverNames.length;
    return {
      seconds: positive('seconds', values.seconds ?? (values.quick ? '1' : '8')),
      rounds: positive('rounds', values.rounds ?? (values.quick ? '1' : '5')),
      warmupSeconds: values.quick ? 1 : WARMUP_SECONDS,
      servers,
      output: values.output ?? (whole ? defaultOutput : undefined),
    };
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    console.error(usage);
    process.exit(2);
  }
}

function positive(option: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new Error(`--${option}: expected a whole number of at least 1, got ${JSON.stringify(text)}`);
  }
  return value;
}

function serverName(text: string): ServerName {
  const name = serverNames.find((known) => known === text);
  if (name === undefined) {
    throw new Error(`--servers: expected some of ${serverNames.join(', ')}, got ${JSON.stringify(text)}`);
  }
  return name;
}
