import { type Operands, VERBS, type Verb } from './commands.ts';
import { flagName } from './flags.ts';
import type { Terminal } from './terminal.ts';

interface Word {
  /** `--output`, and `-o` if it has a short form. */
  readonly names: readonly string[];
  readonly about: string;
  /** Its argument: none (for a switch), one of these words, or anything. */
  readonly takes: 'nothing' | 'anything' | readonly string[];
}

const ENTRIES: readonly (readonly [string, Verb])[] = Object.entries<Verb>(VERBS).filter(
  ([, { group }]) => group !== 'internal',
);
const SCRIPTS: Readonly<Record<string, () => string>> = { bash, zsh, fish };

/** `linger completion bash|zsh|fish`: prints a script that completes commands, flags, and the words to choose from. */
export function completion({ operands }: Operands, { print }: Terminal): Promise<number> {
  const [shell = ''] = operands;
  print(SCRIPTS[shell]?.() ?? '');
  return Promise.resolve(0);
}

function wordsOf({ flags }: Verb): readonly Word[] {
  return Object.entries(flags).map(([key, { argument, choices, short, description }]) => ({
    names: [`--${flagName(key)}`, ...(short === undefined ? [] : [`-${short}`])],
    about: description,
    takes: argument === undefined ? 'nothing' : (choices ?? 'anything'),
  }));
}

function bash(): string {
  const cases = ENTRIES.flatMap(([verb, entry]) =>
    wordsOf(entry).flatMap(({ names, takes }) => {
      if (takes === 'nothing') return [];
      const pattern = names.map((name) => `${verb}:${name}`).join('|');
      const words = takes === 'anything' ? '-f' : `-W "${takes.join(' ')}"`;
      return [`    ${pattern}) COMPREPLY=($(compgen ${words} -- "$word")); return ;;`];
    }),
  );
  const flags = ENTRIES.map(([verb, entry]) => {
    const names = wordsOf(entry).flatMap((word) => word.names);
    return `    ${verb}) flags="${names.join(' ')}" ;;`;
  });
  return `# bash completion of linger: source <(linger completion bash)
_linger() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} verb=\${COMP_WORDS[1]} flags=""
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "${ENTRIES.map(([verb]) => verb).join(' ')}" -- "$word")); return
  fi
  case "$verb:$before" in
${cases.join('\n')}
  esac
  case "$verb" in
${flags.join('\n')}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$flags" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}
complete -o filenames -F _linger linger
`;
}

function zsh(): string {
  const commands = ENTRIES.map(([verb, { about }]) => `    ${quoted(`${verb}:${about}`)}`);
  const cases = ENTRIES.map(([verb, entry]) => {
    const specs = wordsOf(entry).flatMap(({ names, about, takes }) => {
      const text = about.replaceAll(/[[\]:]/g, (character) => `\\${character}`);
      const value =
        takes === 'nothing' ? '' : takes === 'anything' ? ':value:_files' : `:value:(${takes.join(' ')})`;
      return names.map((name) => `      ${quoted(`${name}[${text}]${value}`)}`);
    });
    return `    ${verb}) _arguments \\\n${[...specs, "      '*:file:_files'"].join(' \\\n')} ;;`;
  });
  return `#compdef linger
# zsh completion of linger: source <(linger completion zsh)
_linger() {
  local -a commands=(
${commands.join('\n')}
  )
  if (( CURRENT == 2 )); then _describe command commands; return; fi
  shift words; (( CURRENT-- ))
  case "$words[1]" in
${cases.join('\n')}
  esac
}
compdef _linger linger
`;
}

function fish(): string {
  const first = ENTRIES.map(
    ([verb, { about }]) => `complete -c linger -n __fish_use_subcommand -a ${verb} -d ${quoted(about)}`,
  );
  const flags = ENTRIES.flatMap(([verb, entry]) =>
    wordsOf(entry).map(({ names: [long = '', short], about, takes }) => {
      const letter = short === undefined ? '' : ` -s ${short.slice(1)}`;
      const value =
        takes === 'nothing' ? '' : takes === 'anything' ? ' -r' : ` -x -a ${quoted(takes.join(' '))}`;
      const when = quoted(`__fish_seen_subcommand_from ${verb}`);
      return `complete -c linger -n ${when} -l ${long.slice(2)}${letter}${value} -d ${quoted(about)}`;
    }),
  );
  return `# fish completion of linger: linger completion fish | source\n${[...first, ...flags].join('\n')}\n`;
}

/** Quoted, so that a shell reads it as one word. */
function quoted(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
