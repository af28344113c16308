import { positive, readOptions, someOf } from '../options.ts';
import { type ProgramName, programNames } from './programs.ts';

export interface Settings {
  readonly rounds: number;
  readonly services: number;
  readonly pods: number;
  /** Pods that are replaced while they are watched: 20 events each. */
  readonly replacements: number;
  readonly programs: readonly ProgramName[];
  /** How often a run is repeated at most that something else disturbed. */
  readonly attempts: number;
  /** All programs, and a cluster of the size that the targets are for. */
  readonly whole: boolean;
  /** Where the results go; undefined = tables only. */
  readonly output: string | undefined;
}

const usage = `usage: node bench/watch.ts [--rounds N] [--services N] [--pods N] [--replacements N] [--programs a,b]
                           [--output FILE] [--quick]
  --rounds         rounds; each runs every program once, from its start to its end (default 5)
  --services       Services in the cluster (default 13000)
  --pods           pods in the cluster (default 150000)
  --replacements   pods that are replaced while they are watched, 20 events each (default 6000)
  --programs       which of ${programNames.join(', ')} (default all)
  --output         where the results go (default bench/results/watch.json for a whole run, else nowhere)
  --quick          does it still work? one round with a tenth of everything, no results written`;

const whole = { rounds: '5', services: '13000', pods: '150000', replacements: '6000' };
const quick = { rounds: '1', services: '1300', pods: '15000', replacements: '600' };

const options = {
  rounds: { type: 'string' },
  services: { type: 'string' },
  pods: { type: 'string' },
  replacements: { type: 'string' },
  programs: { type: 'string', default: programNames.join(',') },
  output: { type: 'string' },
  quick: { type: 'boolean', default: false },
} as const;

export function readSettings(argv: readonly string[], defaultOutput: string): Settings {
  return readOptions(argv, options, usage, (written) => {
    const defaults = written.quick ? quick : whole;
    const number = (option: keyof typeof whole) => positive(option, written[option] ?? defaults[option]);
    const programs = someOf('programs', programNames, written.programs);
    const settings = {
      rounds: number('rounds'),
      services: number('services'),
      pods: number('pods'),
      replacements: number('replacements'),
      programs,
      attempts: written.quick ? 1 : 3,
    };
    const isWhole =
      programs.length === programNames.length &&
      (['services', 'pods', 'replacements'] as const).every(
        (option) => settings[option] === Number(whole[option]),
      );
    return { ...settings, whole: isWhole, output: written.output ?? (isWhole ? defaultOutput : undefined) };
  });
}
