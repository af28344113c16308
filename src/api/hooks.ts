import { HOLD_HELPER, type HoldCall, isHoldToken } from './hold.ts';
import { isRecord } from './json.ts';

/** A preStop handler of any kind, as a container has it. */
export type LifecycleHandler = Readonly<Record<string, unknown>>;

/** What the nodes that a pod can run on are capable of. */
export interface HookSupport {
  /** The API server and every kubelet know `sleep` as a handler. */
  readonly nativeSleep: boolean;
  readonly windows: boolean;
  /** The helper of Hold is there, and runs. */
  readonly holdHelper: boolean;
}

/** What a hook is made of. */
export interface HookContents {
  /** Whole seconds; of Hold: those without a word from the Hold Service. */
  readonly wait: number;
  /** What only Hold has. */
  readonly call?: HoldCall;
}

/** A handler that does nothing but sleep, and where in it the seconds stand. */
export interface PlainSleep {
  readonly seconds: number;
  /** JSON pointer inside the handler. */
  readonly pointer: string;
  /** The value at the pointer for another number of seconds. */
  readonly render: (seconds: number) => string | number;
}

/** A kind of preStop handler that waits. Everything that lists kinds takes them from {@link HOOKS}. */
export interface HookKind {
  /** Whether `Auto` may choose it. `Auto` takes the first kind that is supported. */
  readonly auto: boolean;
  /** Whether it works on every node that the pod can run on. */
  supports(nodes: HookSupport): boolean;
  render(contents: HookContents): LifecycleHandler;
  /** What Linger's own hook of this kind is made of; undefined for what `render` would not have written. */
  recognise(handler: LifecycleHandler): HookContents | undefined;
  /** The seconds of a plain sleep of this kind, in any form that an author may have written. */
  parse(handler: LifecycleHandler): PlainSleep | undefined;
}

/** In the order in which `Auto` tries them. */
export const HOOKS = {
  /** The kubelet itself sleeps: the image needs no program for it. */
  Sleep: {
    auto: true,
    supports: ({ nativeSleep }) => nativeSleep,
    render: ({ wait }) => ({ sleep: { seconds: wait } }),
    recognise: (handler) => ownSleep('Sleep', handler),
    parse: nativeSleepOf,
  },
  /** Runs the image's own `sleep`: for clusters whose kubelets are too old for the native one. */
  Exec: {
    auto: true,
    supports: ({ windows }) => !windows,
    render: ({ wait }) => ({ exec: { command: ['sleep', String(wait)] } }),
    recognise: (handler) => ownSleep('Exec', handler),
    parse: commandSleepOf,
  },
  /** Runs the mounted helper, which asks the Hold Service when to end. Never chosen by itself: the pod needs a mount. */
  Hold: {
    auto: false,
    supports: ({ holdHelper }) => holdHelper,
    render: ({ call }) => ({ exec: { command: helperCommand(call) } }),
    recognise: (handler) => {
      const call = holdCallOf(handler);
      return call && { wait: call.wait, call };
    },
    // Its author is always Linger.
    parse: () => undefined,
  },
} as const satisfies Record<string, HookKind>;

export type HookName = keyof typeof HOOKS;
export const HOOK_NAMES = Object.keys(HOOKS) as readonly HookName[];
export function isHookName(value: unknown): value is HookName {
  return typeof value === 'string' && Object.hasOwn(HOOKS, value);
}

/** What a policy may ask for. */
export type HookChoice = 'Auto' | HookName;
export const HOOK_CHOICES: readonly HookChoice[] = ['Auto', ...HOOK_NAMES];

/** Whether the handler runs the helper of Hold, whatever its arguments. Only Linger writes such handlers. */
export function runsHelper({ exec }: LifecycleHandler): boolean {
  const command = isRecord(exec) ? exec.command : undefined;
  return Array.isArray(command) && command[0] === HOLD_HELPER;
}

/** The plain sleep in a handler of any kind; undefined for a handler that does anything else. */
export function plainSleep(handler: LifecycleHandler): PlainSleep | undefined {
  return HOOK_NAMES.map((name) => HOOKS[name].parse(handler)).find((sleep) => sleep !== undefined);
}

/** A sleep that is exactly as this kind renders it. */
function ownSleep(kind: 'Sleep' | 'Exec', handler: LifecycleHandler): HookContents | undefined {
  const { parse, render }: HookKind = HOOKS[kind];
  const wait = parse(handler)?.seconds;
  if (wait === undefined || JSON.stringify(handler) !== JSON.stringify(render({ wait }))) return undefined;
  return { wait };
}

function helperCommand(call: HoldCall | undefined): readonly string[] {
  if (call === undefined) throw new RangeError('expected a hook of Hold with the arguments of its helper');
  return [HOLD_HELPER, call.address, call.token, String(call.wait), String(call.max)];
}

const ADDRESS = /^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]{2,45}\]):\d{1,5}$/;
const SECONDS = /^[1-9]\d{0,8}$/;

/** The helper's arguments in a handler that Linger has rendered for Hold. */
function holdCallOf(handler: LifecycleHandler): HoldCall | undefined {
  const exec = onlyMember(handler, 'exec');
  const command = exec?.command;
  if (!Array.isArray(command) || command.length !== 5 || Object.keys(exec ?? {}).length !== 1)
    return undefined;
  const [helper, address, token, ...times] = command as readonly unknown[];
  if (helper !== HOLD_HELPER || typeof address !== 'string' || typeof token !== 'string') return undefined;
  if (!times.every((text) => typeof text === 'string' && SECONDS.test(text))) return undefined;
  const [wait = 0, max = 0] = times.map(Number);
  return ADDRESS.test(address) && isHoldToken(token) && wait <= max
    ? { address, token, wait, max }
    : undefined;
}

/** The one member of a handler that has only one. */
function onlyMember(handler: LifecycleHandler, kind: string): Readonly<Record<string, unknown>> | undefined {
  const member = handler[kind];
  return isRecord(member) && Object.keys(handler).length === 1 ? member : undefined;
}

/** `sleep: {seconds: N}` with N > 0: `sleep: 0` is its author's way to opt out. */
function nativeSleepOf(handler: LifecycleHandler): PlainSleep | undefined {
  const seconds = onlyMember(handler, 'sleep')?.seconds;
  if (typeof seconds !== 'number' || !Number.isInteger(seconds) || seconds <= 0) return undefined;
  return { seconds, pointer: '/sleep/seconds', render: (value) => value };
}

const SLEEP_PROGRAMS: ReadonlySet<unknown> = new Set(['sleep', '/bin/sleep']);
const SHELLS: ReadonlySet<unknown> = new Set(['sh', '/bin/sh']);
/** The text before the seconds, the seconds, and the unit that coreutils and busybox know. */
const ARGUMENT = /^()([1-9]\d{0,8})(s?)$/;
const SCRIPT = /^(sleep )([1-9]\d{0,8})(s?)$/;

/** `["sleep","N"]`, `["/bin/sleep","N"]`, `["sh","-c","sleep N"]`, `["/bin/sh","-c","sleep N"]`; N also as `Ns`. */
function commandSleepOf(handler: LifecycleHandler): PlainSleep | undefined {
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
