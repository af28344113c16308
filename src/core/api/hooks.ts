import { HOLD_HELPER, type HoldCall, isHoldToken } from './hold.ts';
import { type LifecycleHandler, onlyMember, plainSleep } from './hook-reader.ts';
import { isRecord } from './json.ts';

export interface HookSupport {
  /** Whether the API server and all kubelets support `sleep` as a handler. */
  readonly nativeSleep: boolean;
  readonly windows: boolean;
  /** Whether the helper of Hold is available and works. */
  readonly holdHelper: boolean;
}

export interface HookContents {
  /** Whole seconds; with Hold, those that apply without an answer from the Hold Service. */
  readonly wait: number;
  /** With Hold only: the arguments of its helper. */
  readonly call?: HoldCall;
}

/** A kind of preStop handler that waits. Everything that lists kinds takes them from {@link HOOKS}. */
export interface HookKind {
  /** Whether `Auto` may choose it. `Auto` takes the first kind that is supported. */
  readonly auto: boolean;
  /** The member of a preStop hook that it uses. */
  readonly handler: 'sleep' | 'exec';
  /** Whether it works on every node that the pod can run on. */
  supports(nodes: HookSupport): boolean;
  render(contents: HookContents): LifecycleHandler;
  /**
   * The parameters of a hook of this kind that Linger wrote; undefined for a handler that `render` would not have written.
   */
  recognise(handler: LifecycleHandler): HookContents | undefined;
}

/** In the order in which `Auto` tries them. */
export const HOOKS = {
  /** The kubelet itself sleeps, so the image needs no program for it. */
  Sleep: {
    auto: true,
    handler: 'sleep',
    supports: ({ nativeSleep }) => nativeSleep,
    render: ({ wait }) => ({ sleep: { seconds: wait } }),
    recognise: (handler) => ownSleep('Sleep', handler),
  },
  /** Runs the image's own `sleep`: for clusters whose kubelets are too old for the native one. */
  Exec: {
    auto: true,
    handler: 'exec',
    supports: ({ windows }) => !windows,
    render: ({ wait }) => ({ exec: { command: ['sleep', String(wait)] } }),
    recognise: (handler) => ownSleep('Exec', handler),
  },
  /**
   * Runs the mounted helper, which asks the Hold Service when to end. Never chosen by `Auto`, because the pod needs a mount.
   */
  Hold: {
    auto: false,
    handler: 'exec',
    supports: ({ holdHelper }) => holdHelper,
    render: ({ call }) => ({ exec: { command: helperCommand(call) } }),
    recognise: (handler) => {
      const call = holdCallOf(handler);
      return call && { wait: call.wait, call };
    },
  },
} as const satisfies Record<string, HookKind>;

export type HookName = keyof typeof HOOKS;
export const HOOK_NAMES = Object.keys(HOOKS) as readonly HookName[];
export function isHookName(value: unknown): value is HookName {
  return typeof value === 'string' && Object.hasOwn(HOOKS, value);
}

/** The values of a policy's `hook`. */
export type HookChoice = 'Auto' | HookName;
export const HOOK_CHOICES: readonly HookChoice[] = ['Auto', ...HOOK_NAMES];

/** Whether the handler runs the helper of Hold, whatever its arguments. Only Linger writes such handlers. */
export function runsHelper({ exec }: LifecycleHandler): boolean {
  const command = isRecord(exec) ? exec.command : undefined;
  return Array.isArray(command) && command[0] === HOLD_HELPER;
}

/** A sleep that is exactly as this kind renders it. */
function ownSleep(kind: 'Sleep' | 'Exec', handler: LifecycleHandler): HookContents | undefined {
  const wait = plainSleep(handler)?.seconds;
  if (wait === undefined || JSON.stringify(handler) !== JSON.stringify(HOOKS[kind].render({ wait })))
    return undefined;
  return { wait };
}

function helperCommand(call: HoldCall | undefined): readonly string[] {
  if (call === undefined) throw new RangeError('expected a hook of Hold with the arguments of its helper');
  return [HOLD_HELPER, call.address, call.token, String(call.wait), String(call.max)];
}

const ADDRESS = /^(\d{1,3}(\.\d{1,3}){3}|\[[0-9a-f:.]{2,45}\]):\d{1,5}$/;
const SECONDS = /^[1-9]\d{0,8}$/;

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
