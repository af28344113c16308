import { type Fleet, supportsNativeSleep } from '../cluster/fleet.ts';
import type { HookChoice } from '../schema/choices.ts';
import { isWindows, type LifecycleHandler, type Pod } from './pod.ts';

/** A preStop handler that waits. New kinds plug in here. */
export interface HookKind {
  /** Whether it works on every node that this pod can run on. */
  supports(fleet: Fleet | undefined, pod: Pod): boolean;
  render(seconds: number): LifecycleHandler;
}

export const HOOKS = {
  /** The kubelet itself sleeps: needs nothing in the image. */
  Sleep: {
    supports: (fleet) => supportsNativeSleep(fleet),
    render: (seconds) => ({ sleep: { seconds } }),
  },
  /** Runs the image's own `sleep`: for clusters whose kubelets are too old for the native one. */
  Exec: {
    supports: (_fleet, pod) => !isWindows(pod),
    render: (seconds) => ({ exec: { command: ['sleep', String(seconds)] } }),
  },
} as const satisfies Record<string, HookKind>;

export type HookName = keyof typeof HOOKS;

/** The hook that a policy's choice comes to on this fleet, or undefined when none of those allowed works. */
export function chooseHook(choice: HookChoice, fleet: Fleet | undefined, pod: Pod): HookName | undefined {
  const candidates: readonly HookName[] = choice === 'Auto' ? ['Sleep', 'Exec'] : [choice];
  return candidates.find((name) => HOOKS[name].supports(fleet, pod));
}

/** A handler that does nothing but sleep, and where in it the seconds stand. */
export interface SleepForm {
  readonly seconds: number;
  /** JSON pointer inside the handler. */
  readonly pointer: string;
  /** The value at the pointer for another number of seconds. */
  readonly render: (seconds: number) => string | number;
}

const SLEEP_PROGRAMS: ReadonlySet<unknown> = new Set(['sleep', '/bin/sleep']);
const WHOLE_SECONDS = /^[1-9]\d{0,8}$/;
const SHELL_SLEEP = /^sleep ([1-9]\d{0,8})$/;

/**
 * Recognises exactly `sleep: {seconds: N}`, `["sleep","N"]`, `["/bin/sleep","N"]` and `["sh","-c","sleep N"]`
 * with N > 0. Whatever else a hook does is its author's business, and `sleep: 0` is a way to opt out.
 */
export function sleepForm(handler: LifecycleHandler): SleepForm | undefined {
  const kinds = Object.keys(handler);
  if (kinds.length !== 1) return undefined;
  return kinds[0] === 'sleep'
    ? nativeForm(handler.sleep)
    : kinds[0] === 'exec'
      ? execForm(handler.exec)
      : undefined;
}

function nativeForm(sleep: unknown): SleepForm | undefined {
  if (typeof sleep !== 'object' || sleep === null || !('seconds' in sleep)) return undefined;
  const { seconds } = sleep;
  if (typeof seconds !== 'number' || !Number.isInteger(seconds) || seconds <= 0) return undefined;
  return { seconds, pointer: '/sleep/seconds', render: (value) => value };
}

function execForm(exec: unknown): SleepForm | undefined {
  if (typeof exec !== 'object' || exec === null || !('command' in exec) || !Array.isArray(exec.command))
    return undefined;
  const command: readonly unknown[] = exec.command;
  const [program, first, second] = command;
  if (
    command.length === 2 &&
    SLEEP_PROGRAMS.has(program) &&
    typeof first === 'string' &&
    WHOLE_SECONDS.test(first)
  ) {
    return { seconds: Number(first), pointer: '/exec/command/1', render: String };
  }
  if (command.length !== 3 || program !== 'sh' || first !== '-c' || typeof second !== 'string')
    return undefined;
  const match = SHELL_SLEEP.exec(second);
  if (match === null) return undefined;
  return { seconds: Number(match[1]), pointer: '/exec/command/2', render: (value) => `sleep ${value}` };
}
