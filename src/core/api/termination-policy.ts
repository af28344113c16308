import * as z from 'zod';
import {
  EXCLUDABLE_KINDS,
  EXISTING_HOOK_RULES,
  HOLD_DELIVERIES,
  MODES,
  POD_SCOPES,
  WAIT_SOURCES,
} from './choices.ts';
import {
  apiRule,
  apiRules,
  conditions,
  duration,
  labelSelector,
  observedGeneration,
  optional,
} from './fields.ts';
import { HOOK_CHOICES } from './hooks.ts';

/** More containers than a pod has; the API server refuses rules whose cost it cannot bound. */
const MOST_NAMES = 256;
const LONGEST_NAME = 63;

const FIXED_MISSING = 'from: Fixed needs a duration here, in the same document';
const FIXED_ALONE = 'has no effect without from: Fixed in the same document; add that, or remove this';
const MIN_OVER_MAX = 'is longer than max';
const HOLD_SHORT = 'expected at least 1s';

const wait = z
  .strictObject({
    from: optional(z.enum(WAIT_SOURCES), 'Whether the wait is measured or fixed.'),
    fixed: optional(duration, 'The wait, with from: Fixed.'),
    percentile: optional(
      z.number().min(50).lt(100, { error: 'expected a number from 50 up to, not including, 100' }),
      'The percentile of the measured lag that the wait is taken from.',
    ),
    safetyFactor: optional(z.number().min(1).max(10), 'The percentile is multiplied by this.'),
    margin: optional(duration, 'Added after the factor.'),
    min: optional(duration, 'No measured or initial wait is shorter.'),
    max: optional(duration, 'No measured or initial wait is longer.'),
    initial: optional(duration, 'The wait until enough has been measured.'),
    minSamples: optional(z.int().min(1).max(1_000_000), 'How many removals must have been measured.'),
    minHistory: optional(duration, 'For how long lags must have been measured.'),
  })
  .refine(({ from, fixed }) => from !== 'Fixed' || fixed !== undefined, {
    error: FIXED_MISSING,
    path: ['fixed'],
  })
  .refine(({ from, fixed }) => fixed === undefined || from === 'Fixed', {
    error: FIXED_ALONE,
    path: ['fixed'],
  })
  .refine(({ min, max }) => min === undefined || max === undefined || min <= max, {
    error: MIN_OVER_MAX,
    path: ['min'],
  })
  .meta(
    apiRules(
      ["!has(self.from) || self.from != 'Fixed' || has(self.fixed)", `fixed: ${FIXED_MISSING}`],
      ["!has(self.fixed) || (has(self.from) && self.from == 'Fixed')", `fixed: ${FIXED_ALONE}`],
      [
        '!has(self.min) || !has(self.max) || duration(self.min) <= duration(self.max)',
        `min: ${MIN_OVER_MAX}`,
      ],
    ),
  );

const hold = z
  .strictObject({
    min: optional(duration, 'No pod is released sooner: a margin for consumers that are not declared.'),
    max: optional(
      duration.refine((seconds) => seconds >= 1, { error: HOLD_SHORT }),
      'No pod is held longer.',
    ),
    observe: optional(z.boolean(), 'Whether the pod waits as with Sleep, and Linger only watches it.'),
    delivery: optional(z.enum(HOLD_DELIVERIES), 'How the helper gets into the pod.'),
  })
  .refine(({ min, max }) => min === undefined || max === undefined || min <= max, {
    error: MIN_OVER_MAX,
    path: ['min'],
  })
  .meta(
    apiRules(
      ["!has(self.max) || duration(self.max) >= duration('1s')", `max: ${HOLD_SHORT}`],
      [
        '!has(self.min) || !has(self.max) || duration(self.min) <= duration(self.max)',
        `min: ${MIN_OVER_MAX}`,
      ],
    ),
  );

/**
 * YAML 1.1, as kubectl reads it, takes an unquoted `Off` for the boolean false; nothing else can be meant here. The API
 * server gets what kubectl has read, and refuses the boolean.
 */
const mode = z
  .preprocess((value) => (value === false ? 'Off' : value), z.enum(MODES))
  .meta({ type: 'string', enum: [...MODES] });

const GRACE_SHORT = 'expected at least 1s';

/** The fields that both kinds of policy have. No defaults: a defaulted field would count as set and break the layers. */
const sharedFields = {
  podSelector: optional(labelSelector, 'The pods that it applies to; absent: all.'),
  priority: optional(
    z.int().min(-1_000_000).max(1_000_000),
    'Of two policies that set a field, the one with the higher priority wins.',
  ),
  mode: optional(mode, 'Enforce changes pods, Audit only reports what would change, Off does neither.'),
  pods: optional(
    z.enum(POD_SCOPES),
    'Which pods get a wait: those that serve, those that are selected, or all.',
  ),
  exclude: optional(
    z.array(z.enum(EXCLUDABLE_KINDS)).max(EXCLUDABLE_KINDS.length),
    'Kinds of workload that are left alone.',
  ),
  containers: optional(
    z.array(z.string().min(1).max(LONGEST_NAME)).max(MOST_NAMES),
    'Names of the containers that get the hook; empty: all.',
  ),
  wait: optional(wait, 'How long SIGTERM is delayed.'),
  hook: optional(z.enum(HOOK_CHOICES), 'Which preStop hook waits.'),
  hold: optional(hold, 'How long Hold waits for the consumers of the pod; for hook: Hold.'),
  existingHook: optional(
    z.enum(EXISTING_HOOK_RULES),
    'Whether a plain sleep that is shorter than the wait is lengthened.',
  ),
  grace: optional(
    z
      .strictObject({
        max: optional(
          duration.refine((s) => s >= 1, { error: GRACE_SHORT }),
          'The most that terminationGracePeriodSeconds is raised to.',
        ),
      })
      .meta(apiRule("!has(self.max) || duration(self.max) >= duration('1s')", `max: ${GRACE_SHORT}`)),
    'The grace period.',
  ),
};

/** status of both kinds of policy: written by Linger's leader, and read by people. */
export const policyStatus = z
  .object({
    observedGeneration,
    mode: optional(z.string(), 'What happens to pods that it selects, given all other layers and ceilings.'),
    hook: optional(z.string(), 'Which preStop hook waits, given all other layers.'),
    wait: optional(z.string(), 'The wait that it gives now, such as 30s; absent: none.'),
    why: optional(z.string(), 'How the wait was chosen, such as "initial: 31 of 200 samples, 7h of 24h".'),
    hold: optional(z.string(), 'With hook Hold: the shortest and the longest hold, such as 5s..60s.'),
    p99: optional(z.string(), '99 % of the lags that the wait is taken from are at most this.'),
    samples: optional(z.int().min(0), 'How many removals the wait is taken from.'),
    pods: optional(z.int().min(0), 'How many pods its selectors match.'),
    ignored: optional(z.array(z.string()), 'What does not count, and why.'),
    conditions,
  })
  .describe('Whether the policy is in force, and its effect. Written by Linger.');
export type PolicyStatus = z.output<typeof policyStatus>;

export const terminationPolicySpec = z
  .strictObject(sharedFields)
  .describe('What the owners of a namespace refine.');

/** The shared fields, and those that a namespace's owner may not set. */
export const clusterTerminationPolicySpec = z
  .strictObject({
    ...sharedFields,
    namespaceSelector: optional(labelSelector, 'The namespaces that it applies to; absent: all.'),
    ceiling: optional(
      z.strictObject({
        wait: optional(duration, 'No wait is longer.'),
        mode: optional(mode, 'No mode changes more than this one.'),
      }),
      'What no later layer may exceed; of several, the lowest applies.',
    ),
    overrides: optional(
      z.strictObject({
        namespaces: optional(z.boolean(), 'Whether TerminationPolicies and Namespace annotations count.'),
        pods: optional(z.boolean(), 'Whether annotations of pods count.'),
      }),
      'Who may override it; false wins.',
    ),
  })
  .describe('What the owners of the cluster set.');
export type ClusterTerminationPolicySpec = z.output<typeof clusterTerminationPolicySpec>;
