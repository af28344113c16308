import { isRecord, isString } from './json.ts';

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
 * For how long a preStop hook holds SIGTERM back, as far as its text shows; fractions of seconds occur. A hook that
 * fails lets SIGTERM through at once, so a command that cannot run waits exactly 0 s.
 */
export type HookReading =
  | {
      readonly kind: 'exact';
      readonly seconds: number;
      /** Why a hook that was meant to wait waits 0 s. */
      readonly why?: string;
    }
  /** It also does something that takes an unknown time. */
  | { readonly kind: 'atLeast'; readonly seconds: number }
  | { readonly kind: 'unknown' }
  /** The API server refuses the pod; `why` in its words. */
  | { readonly kind: 'broken'; readonly why: string };

/** Source: k8s.io/kubernetes pkg/apis/core/validation, validateHandler. */
const HANDLER_KINDS = ['exec', 'httpGet', 'tcpSocket', 'sleep'] as const;

function isHandlerKind(member: string): boolean {
  return HANDLER_KINDS.some((each) => each === member);
}

/** Longer commands are not read: foreign text is bounded before it is parsed. Characters, and words. */
const LONGEST_COMMAND = 4 * 1024;
const MOST_WORDS = 64;

/** The most characters of an httpGet path, which a note quotes. */
const LONGEST_PATH = 63;

/** `sleep infinity`, and the greatest sum: a number that fits everywhere a time is computed or printed. */
const MOST_SECONDS = 1e9;

const UNKNOWN: HookReading = { kind: 'unknown' };

/** The one reader of hooks that Linger has not written. */
export function readHook(handler: LifecycleHandler): HookReading {
  const [kind, ...more] = HANDLER_KINDS.filter((each) => (handler[each] ?? undefined) !== undefined);
  // The API server may know a kind of handler that is not known here yet.
  if (kind === undefined && Object.keys(handler).some((each) => !isHandlerKind(each))) return UNKNOWN;
  if (kind === undefined) return { kind: 'broken', why: 'must specify a handler type' };
  if (more.length > 0) return { kind: 'broken', why: 'may not specify more than 1 handler type' };
  const value = handler[kind];
  if (!isRecord(value)) return { kind: 'broken', why: `${kind}: expected an object` };
  if (kind === 'exec') return readCommand(value.command);
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

/** The seconds that the hook waits for certain: 0 where nothing is known. */
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

function readCommand(command: unknown): HookReading {
  // An absent or empty list: "exec.command: Required value".
  const words = command ?? [];
  if (!Array.isArray(words) || !words.every(isString))
    return { kind: 'broken', why: 'exec.command: expected a list of strings' };
  if (words.length === 0) return { kind: 'broken', why: 'exec.command: Required value' };
  const isLong = words.length > MOST_WORDS || words.join('').length > LONGEST_COMMAND;
  if (isLong) return UNKNOWN;
  const { seconds, exact, why } = runProgram(words.map((text) => ({ text, fixed: true })));
  if (exact) return exactly(seconds, why);
  return seconds > 0 ? { kind: 'atLeast', seconds: Math.min(seconds, MOST_SECONDS) } : UNKNOWN;
}

/** A word of a command. Not fixed: variables or substitutions decide its value. */
interface Word {
  readonly text: string;
  readonly fixed: boolean;
}

interface Run {
  /** It takes this long; not exact: or longer. */
  readonly seconds: number;
  readonly exact: boolean;
  readonly success: boolean | 'unknown';
  /** The rest of the script may not run, or no longer matters. */
  readonly ends?: true;
  /** Why a sleep in it takes no time. */
  readonly why?: string;
}

const FAILS: Run = { seconds: 0, exact: true, success: false };
const BACKGROUND: Run = {
  seconds: 0,
  exact: true,
  success: true,
  why: 'what runs in the background is not waited for',
};
const SUCCEEDS: Run = { seconds: 0, exact: true, success: true };
const ANYTHING: Run = { seconds: 0, exact: false, success: 'unknown' };
const LAST: Run = { ...ANYTHING, ends: true };

/** Programs that run the program that their arguments name. */
const RUNNERS: ReadonlySet<string> = new Set(['env', 'busybox', 'toybox', 'command', 'nohup']);
const SHELL_NAMES = /^(?:r?ba|da|a|z|m?k|pdk|lk|ok|po|ya|hu|fi|t?c)?sh$/;

/**
 * Words of commands that stop the application, after which it serves no more: `nginx -s quit; sleep 15` protects
 * nothing although it takes 15 s.
 */
const STOPPERS = /kill|stop|quit|shut.?down|terminat|halt|drain/i;

/**
 * What Istio gives its native sidecars: clients are asked to close their connections, and new ones are taken until SIGTERM.
 * Source: pilot/cmd/pilot-agent/status (handleDrain), and skip_exit of Envoy's /drain_listeners.
 */
const ISTIO_DRAIN = /^pilot-agent request (--debug-port=\d+ )?POST drain$/;
const ISTIO_DRAINS: Run = { ...ANYTHING, exact: true, why: 'Envoy drains without being waited for' };

function runProgram(words: readonly Word[]): Run {
  const [program, ...args] = words;
  if (program === undefined) return SUCCEEDS;
  if (!program.fixed) return LAST;
  const name = program.text.slice(program.text.lastIndexOf('/') + 1);
  if (RUNNERS.has(name)) {
    // Assignments before the program (`env TZ=UTC sleep 5`); options make it anything.
    const first = args.findIndex(({ text }) => !/^\w+=/.test(text));
    return first < 0 || args[first]?.text.startsWith('-') ? ANYTHING : runProgram(args.slice(first));
  }
  if (name === 'sleep') return runSleep(args);
  if (name === 'timeout') return runTimeout(args);
  if (SHELL_NAMES.test(name)) return runShell(args);
  // One word with spaces (["sleep 5"]) is the name of a program that does not exist.
  if (/^sleep\s/.test(name)) return { ...FAILS, why: `it fails at once: there is no program "${name}"` };
  if (ISTIO_DRAIN.test([name, ...args.map(({ text }) => text)].join(' '))) return ISTIO_DRAINS;
  return STOPPERS.test(words.map(({ text }) => text).join(' ')) ? LAST : ANYTHING;
}

const UNITS: Readonly<Record<string, number>> = { '': 1, s: 1, m: 60, h: 3_600, d: 86_400 };
const NUMBER = /^(\d+\.?\d*|\.\d+)([smhd]?)$/;

/** coreutils and busybox add up several arguments. */
function runSleep(args: readonly Word[]): Run {
  if (args.length === 0)
    return {
      ...FAILS,
      why: 'sleep has no argument; what follows the script of sh -c are its $0, $1 and so on',
    };
  let seconds = 0;
  for (const { text, fixed } of args) {
    if (!fixed) return ANYTHING;
    const [, number, unit = ''] = NUMBER.exec(text) ?? [];
    if (/^inf(inity)?$/i.test(text)) seconds = MOST_SECONDS;
    // `--`, `1e2`, `0x10` and `+5` are read by some programs only.
    else if (number === undefined) {
      const mayBeRead = /^(--|\+[.\d]+[smhd]?|\+?[.\d]+[exp][\da-f+-]*)$/i.test(text);
      return mayBeRead ? ANYTHING : { ...FAILS, why: `sleep fails at once: "${text}" is not a duration` };
    } else seconds += Number(number) * (UNITS[unit] ?? 1);
  }
  return { seconds: Math.min(seconds, MOST_SECONDS), exact: true, success: true };
}

/** `timeout 20 sleep 30` takes 20 s and fails; a limit of 0 is none. Options make it anything. */
function runTimeout([limit, ...command]: readonly Word[]): Run {
  const [, number, unit = ''] = NUMBER.exec(limit?.fixed ? limit.text : '') ?? [];
  if (number === undefined) return ANYTHING;
  const most = Number(number) * (UNITS[unit] ?? 1) || MOST_SECONDS;
  const run = runProgram(command);
  if (run.seconds < most) return run;
  return { seconds: most, exact: true, success: run.seconds > most ? false : 'unknown' };
}

/** Options of bash that take an argument. */
const OPTIONS_WITH_FILE: ReadonlySet<string> = new Set(['--rcfile', '--init-file']);

function runShell(args: readonly Word[]): Run {
  let [isScript, errexit, at] = [false, false, 0];
  for (; at < args.length; at += 1) {
    const { text = '', fixed } = args[at] ?? {};
    if (!fixed) return LAST;
    if (!/^[-+]./.test(text)) break;
    if (text === '--') {
      at += 1;
      break;
    }
    if (text.startsWith('--')) {
      if (OPTIONS_WITH_FILE.has(text)) at += 1;
      continue;
    }
    // `-c sleep 5` as one word: not an option of any shell.
    if (!/^[-+][A-Za-z]+$/.test(text)) return FAILS;
    if (text.startsWith('-') && text.includes('n')) return SUCCEEDS;
    isScript ||= text.includes('c');
    if (text.includes('e')) errexit = text.startsWith('-');
    if (/o/i.test(text)) {
      at += 1;
      if (args[at]?.text === 'errexit') errexit = text.startsWith('-');
    }
  }
  const script = args[at];
  // Without a script, the shell reads its empty standard input, or a file that is not known here.
  if (!isScript) return script === undefined ? SUCCEEDS : ANYTHING;
  if (script === undefined) return FAILS;
  return script.fixed ? runScript(script.text, args.slice(at + 1), errexit) : LAST;
}

/** A simple command, and the operator behind it. */
interface Command {
  readonly words: readonly Word[];
  /** Its output goes to a file, whose opening may fail. */
  readonly redirected: boolean;
  readonly operator: string;
}

/** Commands between an opener and its closer may run any number of times. */
const OPENERS: ReadonlySet<string> = new Set(['if', 'for', 'while', 'until', '{']);
const CLOSERS: ReadonlySet<string> = new Set(['fi', 'done', '}']);
const INNER: ReadonlySet<string> = new Set(['then', 'else', 'elif', 'do']);
/** Words that may end the script or redefine its commands: reading stops at them. */
const UNREADABLE: ReadonlySet<string> = new Set([
  ...['case', 'select', 'function', '[[', '!', 'time', 'coproc', 'eval', 'source', '.', 'alias', 'shopt'],
  ...['return', 'break', 'continue', 'unset'],
]);

/** @param args of the script: `$0`, `$1` and so on */
function runScript(script: string, args: readonly Word[], errexit: boolean): Run {
  const { commands, isWhole } = commandsIn(script, args);
  let [seconds, exact, depth, stopsOnFailure] = [0, true, 0, errexit];
  let success: Run['success'] = true;
  let why: string | undefined;
  /** Whether the next command of a list with && and || runs, and the operator before it. */
  let [runs, before]: [Run['success'], string] = [true, ''];
  const stopped = (): Run => ({ ...LAST, seconds });
  for (const [index, { words, redirected, operator }] of commands.entries()) {
    let rest = words;
    for (let [first] = rest; first?.fixed; [first] = rest) {
      if (OPENERS.has(first.text)) depth += 1;
      else if (CLOSERS.has(first.text)) depth -= 1;
      else if (!INNER.has(first.text)) break;
      rest = first.text === 'for' ? [] : rest.slice(1);
    }
    const name = rest[0]?.fixed ? rest[0].text : undefined;
    if (name !== undefined && UNREADABLE.has(name)) return stopped();
    if (name === 'set') stopsOnFailure ||= rest.some(({ text }) => /^(-[a-z]*e[a-z]*|errexit)$/i.test(text));
    const isInBackground =
      commands.slice(index).find((each) => !/^(&&|[|]{1,2})$/.test(each.operator))?.operator === '&';
    const isExec = name === 'exec' && rest.length > 1;
    const isLast = name === 'exit' || isExec;
    const each = isInBackground ? BACKGROUND : commandRun(isExec ? rest.slice(1) : rest, redirected);
    why ??= each.why;
    if (depth === 0 && rest.length > 0 && runs === true && operator !== '|') {
      seconds += each.seconds;
      exact &&= each.exact;
      success = each.success;
      if (isLast && !isInBackground)
        return { seconds, exact, success, ends: true, ...(why !== undefined && { why }) };
      if (each.ends) return stopped();
    } else if (runs !== false) {
      // `a || true`: one of the two succeeds.
      const isRescued = before === '||' && depth === 0 && rest.length > 0 && each.success === true;
      [exact, success] = [false, isRescued || 'unknown'];
      if ((isLast || each.ends) && !isInBackground) return stopped();
    }
    before = operator;
    if (operator === '|') continue;
    if (operator === '&&') runs = success;
    else if (operator === '||') runs = success === 'unknown' ? success : !success;
    else {
      if (stopsOnFailure && success !== true) return { ...stopped(), exact: exact && success === false };
      runs = true;
    }
  }
  return isWhole && depth === 0 ? { seconds, exact, success, ...(why !== undefined && { why }) } : stopped();
}

function commandRun(words: readonly Word[], redirected: boolean): Run {
  // Assignments before the command; a substitution in them may run anything.
  const first = words.findIndex(({ text }) => !/^\w+=/.test(text));
  if (first < 0) return words.every(({ fixed }) => fixed) ? SUCCEEDS : ANYTHING;
  const run = namedRun(words.slice(first));
  return redirected ? { ...ANYTHING, ...(run.ends && { ends: true }) } : run;
}

/** Reads a builtin of the shell, or a program. */
function namedRun(words: readonly Word[]): Run {
  const { text = '', fixed = true } = words[0] ?? {};
  if (fixed && /^(?::|true|exit|set)$/.test(text)) return SUCCEEDS;
  return fixed && text === 'false' ? FAILS : runProgram(words);
}

/** Other white space, such as a carriage return, is part of a word to a shell, and is not read here. In this order: space, comment, operator, harmless redirection, redirection, quoted and plain text, parameters. */
const TOKEN = new RegExp(
  [
    /(?<space>[ \t]+|\\\n)/,
    /(?<comment>#[^\n]*)/,
    /(?<operator>&&|\|\||\|&|&(?!>)|[;|\n])/,
    /(?<harmless>(?:\d*|&)(?:>>?|<)(?:&\d|&-|\s*\/dev\/(?:null|stdout|stderr)\b))/,
    /(?<redirect>(?:\d*|&)(?:>>?|<)(?![<(]))/,
    /'(?<single>[^']*)'/,
    /"(?<double>(?:[^"\\$`]|\\[\s\S])*)"/,
    /"?\$\{?(?<argument>\d)\}?"?/,
    /(?<dynamic>"[^"()`]*"|`[^`]*`|\$\([^()]*\)|\$\{[^{}]*\}|\$[\w?!#@*$-])/,
    /\\(?<escaped>[\s\S])/,
    /(?<plain>[^\s;&|<>'"\\$`()#]+)/,
  ]
    .map(({ source }) => source)
    .join('|'),
  'y',
);

/** The simple commands of a script, as far as its syntax is simple: not whole where it goes on beyond that. */
function commandsIn(
  script: string,
  args: readonly Word[],
): { readonly commands: readonly Command[]; readonly isWhole: boolean } {
  const commands: Command[] = [];
  let words: Word[] = [];
  let word: Word | undefined;
  let [redirected, isTarget] = [false, false];
  const endWord = () => {
    if (word === undefined) return;
    if (!isTarget) words.push(word);
    [word, isTarget] = [undefined, false];
  };
  const add = (text: string, fixed = true) => {
    word = { text: (word?.text ?? '') + text, fixed: (word?.fixed ?? true) && fixed };
  };
  const endCommand = (operator: string) => {
    endWord();
    const isSequence = operator === '\n' || operator === '';
    if (words.length > 0 || redirected)
      commands.push({ words, redirected, operator: isSequence ? ';' : operator.replace('|&', '|') });
    [words, redirected, isTarget] = [[], false, false];
  };
  const pattern = new RegExp(TOKEN);
  let read = 0;
  for (let match = pattern.exec(script); match?.groups; match = pattern.exec(script)) {
    read = pattern.lastIndex;
    const { space, comment, operator, harmless, redirect, argument, dynamic, ...texts } = match.groups;
    const text = texts.single ?? texts.double?.replace(/\\([$`"\\])/g, '$1') ?? texts.escaped ?? texts.plain;
    if (operator !== undefined) endCommand(operator);
    else if (space !== undefined || harmless !== undefined) endWord();
    else if (redirect !== undefined) {
      endWord();
      [redirected, isTarget] = [true, true];
    } else if (comment !== undefined) {
      // In the middle of a word it is part of the word.
      if (word === undefined) continue;
      add('#');
      pattern.lastIndex = read - comment.length + 1;
    } else if (argument !== undefined) {
      const given = args[Number(argument)];
      add(given?.text ?? '', given?.fixed ?? true);
    } else add(text ?? dynamic ?? '', text !== undefined);
  }
  const isWhole = read === script.length;
  // A command whose end cannot be read may not run.
  if (isWhole) endCommand('');
  return { commands, isWhole };
}
