import { Argument, Command, CommanderError, Option } from 'commander';
import { EXITS } from '../core/api/index.ts';
import { type CommandName, OTHERS, type Settings, VERBS, type Verb } from './commands.ts';
import {
  type Flag,
  flagName,
  type KubeEnvironment,
  kubeEnvironment,
  resolveSettings,
  variableName,
} from './flags.ts';
import type { Streams } from './terminal.ts';

export interface CommandInvocation<C extends CommandName = CommandName> {
  readonly command: C;
  readonly settings: Settings<C>;
  readonly kube: KubeEnvironment;
  /** Whether to use colours; undefined: only on a terminal. Source: no-color.org, nodejs.org (FORCE_COLOR). */
  readonly colour: boolean | undefined;
}

export type Invocation =
  | { readonly [C in CommandName]: CommandInvocation<C> }[CommandName]
  /** Either the help or the version was printed, or the usage was wrong and a message was printed. */
  | { readonly command: 'none'; readonly exitCode: number };

export type Environment = KubeEnvironment['variables'];

export const FAILURE_EXIT_CODE = EXITS.failed.code;
export const USAGE_EXIT_CODE = EXITS.usage.code;

/**
 * Reads the command line and the environment: the only place that does.
 * @param argv without the program's own name
 * @param program how the user calls it: `linger`, or `kubectl linger`
 * @param printed where to print the help, and messages about wrong usage
 * @throws LingerError `settings-invalid` for a value that cannot be used
 */
export function readCommandLine(
  argv: readonly string[],
  environment: Environment,
  version: string,
  program = 'linger',
  printed: Pick<Streams, 'stdout' | 'stderr'> = process,
): Invocation {
  let invocation: Invocation = { command: 'none', exitCode: USAGE_EXIT_CODE };
  const parser = new Command(program)
    .description('Lets Kubernetes pods terminate without losing a request.')
    .version(version)
    .commandsGroup(OTHERS)
    .helpCommand('help [command]', 'Print the help of a command.')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => printed.stdout.write(text),
      writeErr: (text) => printed.stderr.write(text),
    })
    .showHelpAfterError('(see --help)');

  for (const [name, verb] of Object.entries(VERBS) as [CommandName, Verb][]) {
    const { about, flags, operands, group, examples } = verb;
    // Other commands are interactive, and depend only on the command line.
    const fromEnvironment = name === 'serve';
    const command = parser
      .command(name, { hidden: group === 'internal' })
      .description(about)
      .helpGroup(group);
    if (examples.length > 0) command.addHelpText('after', `\n${helpOf(examples, program)}`);
    for (const [key, flag] of Object.entries(flags)) command.addOption(optionOf(key, flag, fromEnvironment));
    if (operands !== undefined) {
      const [argument, description, choices] = operands;
      const operand = new Argument(argument, description);
      command.addArgument(choices === undefined ? operand : operand.choices(choices));
    }
    command.action(() => {
      const values = resolveSettings(flags, asText(command.opts()), fromEnvironment ? environment : {});
      invocation = {
        command: name,
        // The cast is safe: the flags come from this command’s table, so the settings have its type.
        settings: { ...values, operands: command.args } as unknown,
        kube: kubeEnvironment(environment),
        colour: colourAsked(environment),
      } as Invocation;
    });
  }

  try {
    parser.parse(misspelt(argv) ?? argv, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return { command: 'none', exitCode: error.exitCode === 0 ? 0 : USAGE_EXIT_CODE };
  }
  return invocation;
}

/** @param program replaces `linger` in the examples if it is called differently */
function helpOf(examples: Verb['examples'], program: string): string {
  const lines = examples.map(
    ([line, does]) => `  # ${does}\n  ${line.replaceAll(/(?<=^|\| |\()linger /g, `${program} `)}`,
  );
  return `Examples:\n${lines.join('\n\n')}`;
}

function colourAsked({ FORCE_COLOR: forced, NO_COLOR: none }: Environment): boolean | undefined {
  if (forced !== undefined && forced !== '') return !/^(0|false)$/.test(forced);
  return none ? false : undefined;
}

/**
 * The verb or action of a command line if it does not exist, so that it is rejected. Commander would accept any word before
 * `--help` and after `help`.
 */
function misspelt(argv: readonly string[]): readonly string[] | undefined {
  const words = argv.filter((word) => !word.startsWith('-'));
  const [verb, action = ''] = words[0] === 'help' ? words.slice(1) : words;
  if (verb === undefined) return undefined;
  const known = Object.entries<Verb>(VERBS).find(([name]) => name === verb);
  if (known === undefined) return [verb];
  const choices = known[1].operands?.[2];
  // Only the word after the verb, because later ones may be values of flags.
  const isAction = choices === undefined || argv[1] !== action || choices.includes(action);
  return isAction ? undefined : [verb, action];
}

function optionOf(key: string, flag: Flag<unknown>, inEnvironment: boolean): Option {
  const { fallback, description, short, argument, adds } = flag;
  const names = `${short === undefined ? '' : `-${short}, `}--${flagName(key)}`;
  const shownDefault = fallback === undefined || fallback === 'false' ? '' : ` (default: ${fallback})`;
  const variable = inEnvironment ? ` [${variableName(key)}]` : '';
  const option = new Option(
    argument === undefined ? names : `${names} ${argument}`,
    `${description}${shownDefault}${variable}`,
  );
  if (adds === true && !option.variadic)
    option.argParser((text, before: unknown) => (typeof before === 'string' ? `${before},${text}` : text));
  return option;
}

/**
 * @param written commander's values: text, several for a variadic option, or true for a switch. Commander takes `--no-open`
 * for the negation of an option `open`, which is true otherwise
 */
function asText(written: Readonly<Record<string, string | readonly string[] | boolean | undefined>>) {
  const texts = Object.entries(written).map(([key, value]) =>
    value === false
      ? ([`no${key[0]?.toUpperCase()}${key.slice(1)}`, 'true'] as const)
      : ([key, value?.toString()] as const),
  );
  return Object.fromEntries(texts);
}
