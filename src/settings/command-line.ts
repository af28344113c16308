import { Command, CommanderError, Option } from 'commander';
import {
  type CertsSettings,
  COMMAND_FLAGS,
  type CommandName,
  type ConsumersSettings,
  type DiagnoseSettings,
  type ExplainSettings,
  type InjectSettings,
  type ServeSettings,
  type WatchSettings,
} from './commands.ts';
import { type Flags, flagName, resolve, type Values, variableName } from './flag.ts';
import { type KubeEnvironment, kubeEnvironment } from './kube-environment.ts';

/** What the user asked for, read and checked. */
export type Invocation =
  | { readonly command: 'serve'; readonly settings: ServeSettings; readonly kube: KubeEnvironment }
  | { readonly command: 'inject'; readonly settings: InjectSettings }
  | { readonly command: 'explain'; readonly settings: ExplainSettings; readonly kube: KubeEnvironment }
  | { readonly command: 'certs'; readonly settings: CertsSettings }
  | {
      readonly command: 'watch';
      readonly settings: WatchSettings;
      readonly kube: KubeEnvironment;
      /** Source: no-color.org. */
      readonly colour: boolean;
    }
  | { readonly command: 'diagnose'; readonly settings: DiagnoseSettings; readonly kube: KubeEnvironment }
  | { readonly command: 'consumers'; readonly settings: ConsumersSettings; readonly kube: KubeEnvironment }
  /** Help or the version was printed, or the usage was wrong and that was said. */
  | { readonly command: 'none'; readonly exitCode: number };

export type Environment = Readonly<Record<string, string | undefined>>;

/** What commander hands over: text, or several for a variadic option, or true for a switch. */
type Written = Readonly<Record<string, string | readonly string[] | boolean | undefined>>;

export const USAGE_EXIT_CODE = 2;

/**
 * Reads the command line and the environment: the only place that does.
 * @param argv without the program's own name
 * @throws LingerError `settings-invalid` for a value that cannot be used
 */
export function readCommandLine(
  argv: readonly string[],
  environment: Environment,
  version: string,
): Invocation {
  let invocation: Invocation = { command: 'none', exitCode: USAGE_EXIT_CODE };
  const program = new Command('linger')
    .description('Lets Kubernetes pods terminate without losing a request.')
    .version(version)
    .exitOverride()
    .showHelpAfterError('(--help tells more)');

  const add = <C extends CommandName>(name: C, about: string, fromEnvironment = NOTHING) => {
    const command = program.command(name).description(about);
    const flags = COMMAND_FLAGS[name];
    for (const [key, flag] of Object.entries(flags))
      command.addOption(optionOf(key, flag, fromEnvironment !== NOTHING));
    const settings = (written: Written): Values<(typeof COMMAND_FLAGS)[C]> =>
      resolve(flags, asText(written), fromEnvironment);
    return { command, settings };
  };

  const serve = add('serve', 'Serve the admission webhook.', environment);
  serve.command.action((written: Written) => {
    const kube = kubeEnvironment(environment);
    invocation = { command: 'serve', settings: serve.settings(written), kube };
  });
  const inject = add('inject', 'Put hooks and grace into manifests: manifests in, manifests out.');
  inject.command.argument('[files...]', 'manifests; - is standard input', ['-']);
  inject.command.action((files: string[], written: Written) => {
    invocation = { command: 'inject', settings: { ...inject.settings(written), files } };
  });
  const explain = add('explain', 'Say what would be done with the pods of manifests, and why.');
  explain.command.argument('[files...]', 'manifests; - is standard input', ['-']);
  explain.command.action((files: string[], written: Written) => {
    const kube = kubeEnvironment(environment);
    invocation = { command: 'explain', settings: { ...explain.settings(written), files }, kube };
  });
  const certs = add('certs', 'Make a CA and a serving certificate; prints the caBundle.');
  certs.command.action((written: Written) => {
    invocation = { command: 'certs', settings: certs.settings(written) };
  });
  const watch = add('watch', 'Print endpoint changes as they happen, with their lag.');
  watch.command.action((written: Written) => {
    const colour = !environment.NO_COLOR;
    const kube = kubeEnvironment(environment);
    invocation = { command: 'watch', settings: watch.settings(written), kube, colour };
  });
  const diagnose = add('diagnose', 'Say why endpoints are withdrawn late, and which flags to set.');
  diagnose.command.action((written: Written) => {
    const kube = kubeEnvironment(environment);
    invocation = { command: 'diagnose', settings: diagnose.settings(written), kube };
  });
  const consumers = add('consumers', 'Print what Linger has measured of each consumer, and what is wrong.');
  consumers.command.action((written: Written) => {
    const kube = kubeEnvironment(environment);
    invocation = { command: 'consumers', settings: consumers.settings(written), kube };
  });

  try {
    program.parse(argv, { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    return { command: 'none', exitCode: error.exitCode === 0 ? 0 : USAGE_EXIT_CODE };
  }
  return invocation;
}

/** Only `serve` is configured by the environment: the others are run by people, who see what they type. */
const NOTHING: Environment = {};

function optionOf(
  key: string,
  { reader, fallback, description, short }: Flags[string],
  inEnvironment: boolean,
): Option {
  const shownDefault = fallback === undefined || fallback === 'false' ? '' : ` (default: ${fallback})`;
  const variable = inEnvironment ? ` [${variableName(key)}]` : '';
  const argument = reader.argument === undefined ? '' : ` ${reader.argument}`;
  const letter = short === undefined ? '' : `-${short}, `;
  return new Option(`${letter}--${flagName(key)}${argument}`, `${description}${shownDefault}${variable}`);
}

function asText(written: Written): Record<string, string | undefined> {
  return Object.fromEntries(
    Object.entries(written).map(([key, value]) => [
      key,
      Array.isArray(value) ? value.join(',') : value?.toString(),
    ]),
  );
}
