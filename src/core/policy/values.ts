import type {
  ExcludableKind,
  ExistingHookRule,
  HookChoice,
  Mode,
  PodScope,
  WaitSource,
} from '../schema/choices.ts';

/**
 * All that can be decided by policy, leaf by leaf, under the path that the leaf has in a policy document.
 * Durations are in seconds.
 */
export interface PolicyValues {
  readonly mode: Mode;
  readonly pods: PodScope;
  readonly exclude: readonly ExcludableKind[];
  readonly containers: readonly string[];
  readonly 'wait.from': WaitSource;
  readonly 'wait.fixed': number | undefined;
  readonly 'wait.percentile': number;
  readonly 'wait.safetyFactor': number;
  readonly 'wait.margin': number;
  readonly 'wait.min': number;
  readonly 'wait.max': number;
  readonly 'wait.initial': number;
  readonly 'wait.minSamples': number;
  readonly 'wait.minHistory': number;
  readonly hook: HookChoice;
  readonly existingHook: ExistingHookRule;
  readonly 'grace.max': number;
  readonly 'ceiling.wait': number;
  readonly 'ceiling.mode': Mode;
  readonly 'overrides.namespaces': boolean;
  readonly 'overrides.pods': boolean;
  /** Not in policy documents: what linger.dev/inject says; undefined = nothing. */
  readonly inject: boolean | undefined;
}

export type Field = keyof PolicyValues;

/** The values in force where nobody has said anything. */
export const BUILT_IN_VALUES: PolicyValues = {
  mode: 'Enforce',
  pods: 'Serving',
  exclude: ['Job', 'DaemonSet'],
  containers: [],
  'wait.from': 'Measured',
  'wait.fixed': undefined,
  'wait.percentile': 99,
  'wait.safetyFactor': 1.5,
  'wait.margin': 0,
  'wait.min': 5,
  'wait.max': 60,
  // S3's cure: three times the 10 s at which gateways poll their discovery service.
  'wait.initial': 30,
  'wait.minSamples': 200,
  'wait.minHistory': 24 * 3600,
  hook: 'Auto',
  existingHook: 'Keep',
  // What cluster-autoscaler grants a pod at most (--max-graceful-termination-sec).
  'grace.max': 600,
  'ceiling.wait': 300,
  'ceiling.mode': 'Enforce',
  'overrides.namespaces': true,
  'overrides.pods': true,
  inject: undefined,
};

/** The fields whose values are seconds: for rendering. */
export const DURATION_FIELDS: ReadonlySet<Field> = new Set([
  'wait.fixed',
  'wait.margin',
  'wait.min',
  'wait.max',
  'wait.initial',
  'wait.minHistory',
  'grace.max',
  'ceiling.wait',
]);

/** Who said a value, in words that a person can look up: `ClusterTerminationPolicy/base`, `Pod linger.dev/wait`. */
export type Origin = string;
export const BUILT_IN: Origin = 'built-in';
export const MODE_LIMIT: Origin = 'flag --mode-limit';

/** A value that would have won, had it been allowed to. */
export interface IgnoredValue {
  readonly value: unknown;
  readonly origin: Origin;
  /** The field that forbade it: `ceiling.mode`, `overrides.pods`; or the flag. */
  readonly because: string;
}

export interface Leaf<T> {
  readonly value: T;
  readonly origin: Origin;
  readonly ignored: readonly IgnoredValue[];
}

/** All layers merged; each leaf knows where it came from. */
export type EffectivePolicy = { readonly [F in Field]: Leaf<PolicyValues[F]> };

/** What one document or one object's annotations say: a few leaves, all of one origin each. */
export interface Layer {
  readonly values: Partial<PolicyValues>;
  /** The origin of a field that this layer sets. */
  readonly originOf: (field: Field) => Origin;
}

const NOTHING_IGNORED: readonly IgnoredValue[] = [];

export function leaf<T>(
  value: T,
  origin: Origin,
  ignored: readonly IgnoredValue[] = NOTHING_IGNORED,
): Leaf<T> {
  return { value, origin, ignored };
}

/** The built-in layer as an effective policy: where every merge starts. */
export const BUILT_IN_POLICY: EffectivePolicy = Object.freeze(
  Object.fromEntries(Object.entries(BUILT_IN_VALUES).map(([field, value]) => [field, leaf(value, BUILT_IN)])),
) as unknown as EffectivePolicy;
