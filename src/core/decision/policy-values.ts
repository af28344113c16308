import {
  type ExcludableKind,
  type ExistingHookRule,
  type HoldDelivery,
  type HookChoice,
  type Mode,
  mixedHash,
  type PodScope,
  type WaitSource,
} from '../api/index.ts';

/**
 * Every field that a policy can set, by its path in a policy document, with the value that applies where no layer sets
 * it. Durations are in seconds.
 */
export const BUILT_IN_VALUES = {
  mode: 'Enforce' as Mode,
  pods: 'Serving' as PodScope,
  exclude: ['Job', 'DaemonSet'] as readonly ExcludableKind[],
  containers: [] as readonly string[],
  'wait.from': 'Measured' as WaitSource,
  'wait.fixed': undefined as number | undefined,
  'wait.percentile': 99,
  'wait.safetyFactor': 1.5,
  'wait.margin': 0,
  'wait.min': 5,
  'wait.max': 60,
  // Three times the 10 s at which gateways poll their discovery service.
  'wait.initial': 30,
  'wait.minSamples': 200,
  'wait.minHistory': 24 * 3600,
  hook: 'Auto' as HookChoice,
  'hold.min': 5,
  // The same as wait.max: Linger never chooses a longer wait by itself.
  'hold.max': 60,
  'hold.observe': false,
  'hold.delivery': 'Auto' as HoldDelivery,
  existingHook: 'Keep' as ExistingHookRule,
  // The longest grace that cluster-autoscaler honours (--max-graceful-termination-sec).
  'grace.max': 600,
  'ceiling.wait': 300,
  'ceiling.mode': 'Enforce' as Mode,
  'overrides.namespaces': true,
  'overrides.pods': true,
  /** Set by the annotation linger.dev/inject; policy documents have no such field. */
  inject: undefined as boolean | undefined,
};

export type PolicyValues = typeof BUILT_IN_VALUES;

export type Field = keyof PolicyValues;

/** The fields whose values are seconds: for rendering. */
export const DURATION_FIELDS: ReadonlySet<Field> = new Set([
  'wait.fixed',
  'wait.margin',
  'wait.min',
  'wait.max',
  'wait.initial',
  'wait.minHistory',
  'hold.min',
  'hold.max',
  'grace.max',
  'ceiling.wait',
]);

/** Where a value comes from, as text that can be looked up: `ClusterTerminationPolicy/base`, `Pod linger.dev/wait`. */
export type Origin = string;

export const BUILT_IN: Origin = 'built-in';

/** A value of a later layer that was refused. */
export interface IgnoredValue {
  readonly value: unknown;
  readonly origin: Origin;
  /** What refused it: the field `ceiling.mode` or `overrides.pods`, an annotation, or the flag. */
  readonly because: string;
}

export interface Leaf<T> {
  readonly value: T;
  readonly origin: Origin;
  readonly ignored: readonly IgnoredValue[];
}

/** All layers merged; each leaf knows where it came from. */
export type EffectivePolicy = { readonly [F in Field]: Leaf<PolicyValues[F]> };

export interface Layer {
  readonly values: Partial<PolicyValues>;
  readonly origin: Origin;
}

export function leaf<T>(value: T, origin: Origin, ignored: readonly IgnoredValue[] = []): Leaf<T> {
  return { value, origin, ignored };
}

/**
 * A digest of the policy's values, independent of their origins: 8 hex characters, `00000000` where all are built-in.
 * Built-in values do not count, so a field that a later version adds does not change the digest of existing policies.
 */
export function digestOf(policy: EffectivePolicy): string {
  let sum = 0;
  for (const field in policy) sum = (sum + printOf(field as Field, policy[field as Field].value)) | 0;
  return (sum >>> 0).toString(16).padStart(8, '0');
}

/** The hash of one field. Hashes are added up, so their bits must be well mixed. */
function printOf(field: Field, value: unknown): number {
  if (value === BUILT_IN_VALUES[field]) return 0;
  const said = String(value);
  return said === String(BUILT_IN_VALUES[field]) ? 0 : mixedHash(`${field}=${said}`);
}

/** Every merge starts with it. */
export const BUILT_IN_POLICY: EffectivePolicy = Object.freeze(
  Object.fromEntries(Object.entries(BUILT_IN_VALUES).map(([field, value]) => [field, leaf(value, BUILT_IN)])),
) as unknown as EffectivePolicy;
