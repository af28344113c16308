import { isRecord, isString } from './json.ts';
import { Budget, FOREIGN_LIMITS } from './limits.ts';

/** A preStop handler of any kind, as a container has it. */
export type LifecycleHandler = Readonly<Record<string, unknown>>;

/** A handler that does nothing but sleep, in a form whose seconds can be replaced. */
export interface PlainSleep {
  readonly seconds: number;
  /** JSON pointer inside the handler. */
  readonly pointer: string;
  /** The value at the pointer for another number of seconds. */
  readonly render: (seconds: number) => string | number;
}

/**
 * How long a preStop hook delays SIGTERM, as far as its text shows; may have fractions of seconds. A hook that fails lets
 * SIGTERM through at once, so a command that cannot run waits exactly 0 s.
 */
export type HookReading =
  | {
      readonly kind: 'exact';
      readonly seconds: number;
      /** Why a hook that was meant to wait does not. */
      readonly why?: string;
    }
  /** It also does something that takes an unknown time. */
  | { readonly kind: 'atLeast'; readonly seconds: number }
  | { readonly kind: 'unknown' }
  /** The API server rejects the pod; `why` is its message. */
  | { readonly kind: 'broken'; readonly why: string };

/** Source: k8s.io/kubernetes pkg/apis/core/validation, validateHandler. */
const HANDLER_KINDS = ['exec', 'httpGet', 'tcpSocket', 'sleep'] as const;

function isHandlerKind(member: string): boolean {
  return HANDLER_KINDS.some((each) => each === member);
}

/** The most characters of an httpGet path, which a note quotes. */
const LONGEST_PATH = 63;

/** The value of `sleep infinity`, and the limit of sums: it fits everywhere a time is computed or printed. */
const MOST_SECONDS = 1e9;

const UNKNOWN: HookReading = { kind: 'unknown' };

/**
 * Reads hooks that Linger has not written; nothing else does. Its bounds are never wrong, and rather weak than clever:
 * {@link readScript} documents what it reads of a script.
 * @param budget once it is spent, the rest of the hook is unknown
 */
export function readHook(
  handler: LifecycleHandler,
  budget: Budget = new Budget(FOREIGN_LIMITS.hook),
): HookReading {
  const [kind, ...more] = HANDLER_KINDS.filter((each) => (handler[each] ?? undefined) !== undefined);
  // The API server may know a kind of handler that this version does not.
  if (kind === undefined && Object.keys(handler).some((each) => !isHandlerKind(each))) return UNKNOWN;
  if (kind === undefined) return { kind: 'broken', why: 'must specify a handler type' };
  if (more.length > 0) return { kind: 'broken', why: 'may not specify more than 1 handler type' };
  const value = handler[kind];
  if (!isRecord(value)) return { kind: 'broken', why: `${kind}: expected an object` };
  if (kind === 'exec') return readCommand(value.command, budget);
  // The kubelet runs no such hook: it fails at once. Source: pkg/kubelet/lifecycle/handlers.go.
  if (kind === 'tcpSocket') return exactly(0, 'the kubelet runs no tcpSocket hook');
  if (kind === 'httpGet') return UNKNOWN;
  const seconds = value.seconds ?? 0;
  if (typeof seconds !== 'number' || !Number.isInteger(seconds))
    return { kind: 'broken', why: 'sleep.seconds: expected whole seconds' };
  return seconds < 0 ? { kind: 'broken', why: 'sleep.seconds: must be non-negative' } : exactly(seconds);
}

/** A handler of bounded size that {@link readHook} and {@link plainSleep} read as this one. */
export function readableHook(handler: LifecycleHandler): LifecycleHandler {
  const { httpGet } = handler;
  const path = isRecord(httpGet) && isString(httpGet.path) ? httpGet.path.slice(0, LONGEST_PATH) : undefined;
  if (readHook(handler).kind === 'unknown')
    return path === undefined ? { unread: {} } : { httpGet: { path } };
  const reduced: Record<string, unknown> = {};
  for (const member in handler) {
    const value = handler[member];
    if (!isHandlerKind(member)) reduced.unread = null;
    else if (!isRecord(value)) reduced[member] = value;
    else {
      const { command, seconds, ...rest } = value;
      const more = Object.keys(rest).length > 0 && { unread: null };
      reduced[member] = member === 'exec' ? { command, ...more } : { seconds, ...more };
    }
  }
  return reduced;
}

/** The seconds that the hook certainly waits: 0 if nothing is known. */
export function leastSecondsOf(reading: HookReading): number {
  return reading.kind === 'exact' || reading.kind === 'atLeast' ? reading.seconds : 0;
}

/** `waits 20s`, `waits at least 20s`, `waits for an unknown time` */
export function readingInWords(reading: HookReading): string {
  if (reading.kind === 'unknown' || reading.kind === 'broken') return 'waits for an unknown time';
  if (reading.seconds >= MOST_SECONDS) return 'waits for ever';
  const seconds = `${Math.round(reading.seconds * 1_000) / 1_000}s`;
  if (reading.kind === 'atLeast') return `waits at least ${seconds}`;
  return reading.why === undefined ? `waits ${seconds}` : `waits ${seconds} (${reading.why})`;
}

function exactly(seconds: number, why?: string): HookReading {
  if (seconds >= MOST_SECONDS) return { kind: 'atLeast', seconds: MOST_SECONDS };
  return { kind: 'exact', seconds, ...(seconds === 0 && why !== undefined && { why }) };
}

/** The one member of a handler that has only one. */
export function onlyMember(
  handler: LifecycleHandler,
  kind: string,
): Readonly<Record<string, unknown>> | undefined {
  const member = handler[kind];
  return isRecord(member) && Object.keys(handler).length === 1 ? member : undefined;
}

const SLEEP_PROGRAMS: ReadonlySet<unknown> = new Set(['sleep', '/bin/sleep']);
const SHELLS: ReadonlySet<unknown> = new Set(['sh', '/bin/sh']);
/** The text before the seconds, the seconds, and the unit that coreutils and busybox know. */
const ARGUMENT = /^()([1-9]\d{0,8})(s?)$/;
const SCRIPT = /^(sleep )([1-9]\d{0,8})(s?)$/;

/**
 * A sleep that may be lengthened; undefined for anything else: `sleep: {seconds: N}` (0 is its author's way to opt out),
 * `["sleep","N"]`, `["/bin/sleep","N"]`, `["sh","-c","sleep N"]`, `["/bin/sh","-c","sleep N"]`; N also as `Ns`. Each of
 * them is read as exact by {@link readHook}, which reads many more.
 */
export function plainSleep(handler: LifecycleHandler): PlainSleep | undefined {
  const native = onlyMember(handler, 'sleep')?.seconds;
  if (typeof native === 'number' && Number.isInteger(native) && native > 0)
    return { seconds: native, pointer: '/sleep/seconds', render: (value) => value };
  const command = onlyMember(handler, 'exec')?.command;
  if (!Array.isArray(command)) return undefined;
  const last = command.length - 1;
  const direct = last === 1 && SLEEP_PROGRAMS.has(command[0]);
  const shell = last === 2 && SHELLS.has(command[0]) && command[1] === '-c';
  const text: unknown = command[last];
  if (!(direct || shell) || typeof text !== 'string') return undefined;
  const [, before, seconds, unit] = (direct ? ARGUMENT : SCRIPT).exec(text) ?? [];
  if (seconds === undefined) return undefined;
  return {
    seconds: Number(seconds),
    pointer: `/exec/command/${last}`,
    render: (value) => `${before}${value}${unit}`,
  };
}

function readCommand(command: unknown, budget: Budget): HookReading {
  // An absent or empty list: "exec.command: Required value".
  const words = command ?? [];
  if (!Array.isArray(words) || !words.every(isString))
    return { kind: 'broken', why: 'exec.command: expected a list of strings' };
  if (words.length === 0) return { kind: 'broken', why: 'exec.command: Required value' };
  const { bytes, parts, depth } = budget.limits;
  const isLong = words.length > parts.most || words.reduce((sum, { length }) => sum + length, 0) > bytes;
  if (isLong) return UNKNOWN;
  const literals = words.map((text): Word => ({ text, literal: true, harmless: true }));
  const { seconds, exact, open, why } = runProgram(literals, depth, budget);
  if (budget.isSpent) return UNKNOWN;
  if (exact && !open) return exactly(seconds, why);
  return seconds > 0 ? { kind: 'atLeast', seconds: Math.min(seconds, MOST_SECONDS) } : UNKNOWN;
}

/** A word of a command. */
interface Word {
  readonly text: string;
  /** Whether the text is the word's value, so that no variable, substitution or pattern determines it. */
  readonly literal: boolean;
  /** Whether computing its value runs no command and cannot end the script. */
  readonly harmless: boolean;
}

/** What a command does, as far as its text shows. */
interface Run {
  /** How long it takes; if not exact, it may take longer. */
  readonly seconds: number;
  readonly exact: boolean;
  /** false: it may fail. */
  readonly succeeds: boolean;
  /**
   * Whether it may do anything else, such as stop the application or end the script, so that nothing after it counts: `nginx
   * -s quit; sleep 15` and `consul leave; sleep 30` protect nothing.
   */
  readonly open: boolean;
  /** Why a sleep in it does not take any time. */
  readonly why?: string | undefined;
}

const ANYTHING: Run = { seconds: 0, exact: false, succeeds: false, open: true };
const NOTHING: Run = { seconds: 0, exact: true, succeeds: true, open: false };
/** A command that does hardly anything: its program may be missing, and its output may fail or block. */
const LITTLE: Run = { seconds: 0, exact: false, succeeds: false, open: false };
const FOR_EVER: Run = { ...NOTHING, seconds: MOST_SECONDS };
/** The status is not read. */
const EXIT: Run = { ...NOTHING, succeeds: false };

/**
 * Commands that stop nothing, whatever their arguments. `set`, `:` and `test` are deliberately missing: dash leaves `:
 * >/nope/x; sleep 20` and `set -e; test -f /nope; sleep 20` before the sleep.
 */
const HARMLESS: ReadonlySet<string> = new Set(['echo', 'printf', 'true', 'date', 'touch', 'logger']);
/** Those of them that are part of every shell. */
const BUILTINS: ReadonlySet<string> = new Set(['echo', 'true']);

/** Commands that print something at once, as hooks put it before what they log. Without them, nothing is printed. */
const HARMLESS_SUBSTITUTION = /^\s*(?:hostname|date(?:\s+(?:-[uR]|-I\w*|\+[-%\w:./]+))*)\s*$/;

/** Programs that run the program that their arguments name. */
const RUNNERS: ReadonlySet<string> = new Set(['env', 'busybox']);
const SHELL_NAMES: ReadonlySet<string> = new Set(['sh', 'ash', 'bash', 'dash']);
/** Programs in other folders may be anything. */
const USUAL_FOLDERS = /^\/(?:(?:usr\/(?:local\/)?)?bin|busybox)\//;

/**
 * The command of Istio's native sidecars: it asks clients to close their connections, but new ones are accepted until
 * SIGTERM. Source: pilot/cmd/pilot-agent/status (handleDrain), and skip_exit of Envoy's /drain_listeners.
 */
const ISTIO_DRAIN = /^request (--debug-port=\d+ )?POST drain$/;
const ISTIO_DRAINS: Run = { ...EXIT, why: 'Envoy drains without being waited for' };

/** @param depth how many levels of shells may be nested */
function runProgram(words: readonly Word[], depth: number, budget: Budget): Run {
  budget.spend(words.length);
  let at = 0;
  while (RUNNERS.has(nameOf(words[at]))) at += 1;
  const name = nameOf(words[at]);
  // A substitution among the arguments may run anything.
  if (words[at]?.literal !== true || !words.every(({ harmless }) => harmless)) return ANYTHING;
  const args = words.slice(at + 1);
  if (name === 'sleep') return runSleep(args);
  if (name === 'timeout') return runTimeout(args);
  if (name === 'tail' && /^-[fF] \/dev\/null$/.test(args.map(({ text }) => text).join(' '))) return FOR_EVER;
  if (SHELL_NAMES.has(name)) return depth > 0 ? runShell(args, depth - 1, budget) : ANYTHING;
  if (HARMLESS.has(name)) return BUILTINS.has(words[0]?.text ?? '') ? NOTHING : LITTLE;
  // A single word with spaces (["sleep 5"]) names a program that does not exist.
  if (/^sleep\s/.test(name)) return failing(`it fails at once: there is no program "${name}"`);
  const isDrain = name === 'pilot-agent' && ISTIO_DRAIN.test(args.map(({ text }) => text).join(' '));
  return isDrain ? ISTIO_DRAINS : ANYTHING;
}

/** Empty if the word is not literal. */
function nameOf(word: Word | undefined): string {
  return word?.literal ? word.text.replace(USUAL_FOLDERS, '') : '';
}

function failing(why: string): Run {
  return { ...EXIT, why };
}

const UNITS: Readonly<Record<string, number>> = { '': 1, s: 1, m: 60, h: 3_600, d: 86_400 };
const NUMBER = /^(\d+(?:\.\d*)?|\.\d+)([smhd]?)$/;

function durationOf(word: Word | undefined): number | undefined {
  const [, number, unit = ''] = NUMBER.exec(word?.literal ? word.text : '') ?? [];
  return number === undefined ? undefined : Number(number) * (UNITS[unit] ?? 1);
}

/** coreutils and busybox add up several arguments. */
function runSleep(args: readonly Word[]): Run {
  if (args.length === 0)
    return failing('sleep has no argument; what follows the script of sh -c are its $0, $1 and so on');
  let seconds = 0;
  for (const word of args) {
    const { text, literal } = word;
    const duration = durationOf(word);
    if (duration !== undefined) seconds += duration;
    else if (literal && /^inf(inity)?$/i.test(text)) seconds = MOST_SECONDS;
    // Only some programs understand `--`, `1e2`, `0x10` and `+5`.
    else if (!literal || /^(--|\+[.\d]+[smhd]?|\+?[.\d]+[exp][\da-f+-]*)$/i.test(text)) return LITTLE;
    else return failing(`sleep fails at once: "${text}" is not a duration`);
  }
  return { ...NOTHING, seconds: Math.min(seconds, MOST_SECONDS) };
}

/** `timeout 20 sleep 30` takes 20 s and fails. With options, a limit of 0, or another command, it counts as unknown. */
function runTimeout([limit, program, ...args]: readonly Word[]): Run {
  const most = durationOf(limit);
  if (!most || nameOf(program) !== 'sleep') return ANYTHING;
  const run = runSleep(args);
  return run.seconds < most ? run : { ...run, seconds: most, succeeds: false };
}

function runShell(args: readonly Word[], depth: number, budget: Budget): Run {
  const isOption = ({ text, literal }: Word) => literal && /^-[cex]+$/.test(text);
  const at = args.findIndex((each) => !isOption(each));
  const script = args[at];
  const options = args.slice(0, Math.max(at, 0)).map(({ text }) => text);
  // Other options, and scripts in files, are not known.
  if (!script?.literal || /^[-+]/.test(script.text) || !options.some((each) => each.includes('c')))
    return ANYTHING;
  if (ENDLESS_LOOP.test(script.text)) return FOR_EVER;
  const errexit = options.some((each) => each.includes('e'));
  return readScript(new ScriptReader(script.text, budget), errexit, (words) =>
    runProgram(words, depth, budget),
  );
}

/** The only kind of loop that is read, because its body cannot end it. */
const ENDLESS_LOOP =
  /^\s*(?:while\s+(?:true|:|\[\s+1\s+\])|until\s+false)\s*[;\n]\s*do\s+(?:sleep\s+\d{1,9}[smhd]?|:|true)\s*[;\n]\s*done\s*(?:;\s*)?$/;

/** Words that begin something other than a simple command. Functions are recognised by their parenthesis. */
const OPENERS: ReadonlySet<string> = new Set([
  ...['if', 'for', 'while', 'until', 'case', 'select', 'function', 'time', 'coproc', '{', '[[', '!'],
]);
/** Words that make the shell reject the line if their openers are missing. */
const CLOSERS: ReadonlySet<string> = new Set(['then', 'else', 'elif', 'fi', 'do', 'done', 'esac', '}']);

/**
 * Reads lists of simple commands (`;`, `&&`, newline). Nothing counts after the first command that may do anything, or after
 * any other syntax. A shell runs a line only after it has read the whole line, so a line that it rejects counts as nothing.
 * Syntax that is not read is assumed to be valid.
 * @param errexit whether the script ends when a command fails
 */
function readScript(reader: ScriptReader, errexit: boolean, run: (words: readonly Word[]) => Run): Run {
  /** The seconds that the previous lines certainly take. */
  let certain = 0;
  let [seconds, exact, open, ended] = [0, true, false, false];
  let why: string | undefined;
  /** For the current list: how long it certainly takes, and whether its next command certainly runs. */
  let [inList, runs, succeeds] = [0, true, true];
  for (;;) {
    const { words, targets, end } = reader.next();
    const first = words[0]?.text ?? '';
    if (end === 'unread' || OPENERS.has(first)) return { ...ANYTHING, seconds };
    if (end === 'refused' || CLOSERS.has(first)) return { ...ANYTHING, seconds: certain };
    const before = inList;
    if (words.length + targets.length > 0 && !open && !ended) {
      const isExec = first === 'exec' && words.length > 1;
      const isLast = isExec || isExit(words, targets);
      const made = isLast && !isExec ? EXIT : redirected(run(isExec ? words.slice(1) : words), targets);
      why ??= made.why;
      if (runs) inList += made.seconds;
      exact &&= runs && made.exact;
      open = made.open || (isLast && !runs);
      ended = isLast && runs;
      runs &&= made.succeeds;
      succeeds = runs;
    }
    if (end === '&&') continue;
    // Not read: which command runs after `a || b`, and whether a pipeline waits for all of its commands.
    if (end === '||' || end === '|') {
      open = true;
      if (end === '|') inList = before;
      continue;
    }
    // A shell does not wait for a list in the background, but the runtime may wait until it has closed its output.
    if (end === '&') open = true;
    else seconds += inList;
    if (errexit && !runs && !ended) open = true;
    const isOver = end === 'end' || (end === '\n' && (open || ended));
    if (isOver) return { seconds, exact: exact && !open, succeeds: succeeds && !open, open, why };
    if (end === '\n') certain = seconds;
    [inList, runs] = [0, true];
  }
}

function isExit([first, ...args]: readonly Word[], targets: readonly string[]): boolean {
  const isNumber = ({ text, literal }: Word) => literal && /^\d+$/.test(text);
  return first?.text === 'exit' && targets.length === 0 && args.every(isNumber);
}

/** Targets that can always be opened in a running container. */
const SAFE_TARGETS: ReadonlySet<string> = new Set(['/dev/null', '&1', '&2']);
/** The container's log. If opening it fails, the command does not run. */
const LOG = /^\/(?:dev\/std(?:out|err)|proc\/(?:1|self)\/fd\/[12])$/;

function redirected(made: Run, targets: readonly string[]): Run {
  const unsafe = targets.filter((each) => !SAFE_TARGETS.has(each));
  if (unsafe.length === 0) return made;
  return unsafe.every((each) => LOG.test(each)) ? { ...LITTLE, open: made.open } : ANYTHING;
}

/**
 * What ends a command: an operator, the end of the script, a position from which the syntax is not read, or one that makes
 * the shell reject the line.
 */
type End = ';' | '\n' | '&' | '&&' | '|' | '||' | 'end' | 'unread' | 'refused';

interface Command {
  readonly words: readonly Word[];
  /** The targets of its redirections; `&1` for a descriptor. */
  readonly targets: readonly string[];
  readonly end: End;
}

const ENDS_WORD = ' \t\n;&|<>()';
/** Characters that, unquoted, make a word a pattern or an expansion of braces or tildes. */
const PATTERN = /[*?[\]{}~]|[^ -~]/;
const CONTINUES: ReadonlySet<End> = new Set(['&&', '|', '||']);

/** Reads the simple commands of a script, each character once. */
class ScriptReader {
  readonly #script: string;
  readonly #budget: Budget;
  #at = 0;
  #last: End = '\n';

  constructor(script: string, budget: Budget) {
    this.#script = script;
    this.#budget = budget;
  }

  next(): Command {
    const [words, targets, start]: [Word[], string[], number] = [[], [], this.#at];
    let end: End | undefined;
    while (end === undefined) {
      this.#skipBlanks();
      const redirection = this.#match(/\d*(?:>>?|<)(?![<>|(])&?/y);
      if (redirection !== undefined) this.#skipBlanks();
      else end = this.#operator(words.length + targets.length);
      if (end === '\n' && words.length + targets.length === 0 && CONTINUES.has(this.#last)) end = undefined;
      else if (end === undefined) {
        const word = this.#word();
        if (isString(word)) end = word;
        else if (redirection === undefined) words.push(word);
        else targets.push(`${redirection.endsWith('&') ? '&' : ''}${word.literal ? word.text : '$'}`);
      }
    }
    this.#budget.spend(1 + this.#at - start);
    this.#last = end;
    return { words, targets, end: this.#budget.isSpent ? 'unread' : end };
  }

  #match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.#at;
    const [text] = pattern.exec(this.#script) ?? [];
    this.#at += text?.length ?? 0;
    return text;
  }

  #skipBlanks(): void {
    this.#match(/(?:[ \t]|\\\n)*(?:#[^\n]*)?/y);
  }

  /** @param parts how many the command has so far: an operator without a command before it is refused */
  #operator(parts: number): End | undefined {
    if (this.#at === this.#script.length) return CONTINUES.has(this.#last) && parts === 0 ? 'refused' : 'end';
    // A subshell, or the definition of a function.
    if (this.#script[this.#at] === '(') return parts < 2 ? 'unread' : 'refused';
    const operator = this.#match(/\n|;;?|&&?|\|[|&]?|\)/y);
    if (operator === undefined || operator === '\n') return operator;
    if (parts === 0 || operator === ';;' || operator === ')') return 'refused';
    return operator === '|&' ? '|' : (operator as End);
  }

  #word(): Word | 'unread' | 'refused' {
    const start = this.#at;
    let text = '';
    let [literal, harmless, quoted] = [true, true, false];
    for (;;) {
      const char = this.#script[this.#at];
      if (char === undefined || (!quoted && ENDS_WORD.includes(char))) break;
      this.#at += 1;
      if (char === '"') quoted = !quoted;
      else if (char === "'" && !quoted) {
        const end = this.#script.indexOf("'", this.#at);
        if (end < 0) return 'refused';
        text += this.#script.slice(this.#at, end);
        this.#at = end + 1;
      } else if (char === '\\') text += this.#escaped(quoted);
      else if (char === '$' || char === '`') {
        const expansion = char === '$' ? this.#expansion() : this.#skipTo('`');
        if (expansion === 'unread' || expansion === 'refused') return expansion;
        harmless &&= expansion === 'harmless';
        literal = false;
      } else {
        text += char;
        if (!quoted && PATTERN.test(char)) literal = false;
      }
    }
    if (quoted) return 'refused';
    // An operator that is not known, or a redirection without its target.
    return this.#at === start ? 'unread' : { text, literal, harmless };
  }

  #escaped(quoted: boolean): string {
    const char = this.#script[this.#at] ?? '';
    this.#at += char.length;
    if (char === '\n') return '';
    return quoted && !'$`"\\'.includes(char) ? `\\${char}` : char;
  }

  /** Reads on behind a `$`. */
  #expansion(): 'harmless' | 'substitution' | 'unread' | 'refused' {
    if (this.#match(/\{\w+\}|\w+|[?!#@*$-]/y) !== undefined) return 'harmless';
    const opener = this.#match(/[({']/y);
    // In some shells, `$'` begins a quotation of its own kind.
    if (opener === undefined || opener === "'") return opener === undefined ? 'harmless' : 'unread';
    return this.#skipTo(opener === '(' ? ')' : '}', opener);
  }

  /** Skips a substitution; one with quotations or comments is not read. */
  #skipTo(closer: string, opener?: string): 'harmless' | 'substitution' | 'unread' | 'refused' {
    const start = this.#at;
    for (let depth = 1; this.#at < this.#script.length; ) {
      const char = this.#script[this.#at] ?? '';
      this.#at += 1;
      if (char === opener) depth += 1;
      else if (char === closer) depth -= 1;
      else if ('"\'`\\#'.includes(char)) return 'unread';
      if (depth > 0) continue;
      const isHarmless =
        closer !== '}' && HARMLESS_SUBSTITUTION.test(this.#script.slice(start, this.#at - 1));
      return isHarmless ? 'harmless' : 'substitution';
    }
    return 'refused';
  }
}
