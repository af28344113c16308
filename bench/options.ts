import { type ParseArgsConfig, parseArgs } from 'node:util';

type Options = NonNullable<ParseArgsConfig['options']>;
type Written<O extends Options> = ReturnType<typeof parseArgs<{ args: string[]; options: O }>>['values'];

/**
 * Reads a benchmark's command line; ends the process with 2 when it is not as in `usage`, with 0 for --help.
 * @param settingsOf makes settings of what is written; what it throws says what is wrong with it
 */
export function readOptions<const O extends Options, S>(
  argv: readonly string[],
  options: O,
  usage: string,
  settingsOf: (written: Written<O>) => S,
): S {
  try {
    if (argv.includes('--help')) {
      console.log(usage);
      process.exit(0);
    }
    return settingsOf(parseArgs({ args: [...argv], options }).values as Written<O>);
  } catch (error) {
    console.error(error instanceof Error ? error.message : error);
    console.error(usage);
    process.exit(2);
  }
}

export function positive(option: string, text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) {
    throw new Error(`--${option}: expected a whole number of at least 1, got ${JSON.stringify(text)}`);
  }
  return value;
}

/** Some of these names, separated by commas, in the order in which they are written. */
export function someOf<N extends string>(option: string, names: readonly N[], text: string): readonly N[] {
  return text.split(',').map((each) => {
    const name = names.find((known) => known === each);
    if (name !== undefined) return name;
    throw new Error(`--${option}: expected some of ${names.join(', ')}, got ${JSON.stringify(each)}`);
  });
}
