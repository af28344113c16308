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

/** More containers than any pod has. Limited, because the API server rejects rules whose cost it cannot bound. */
const MOST_NAMES = 256;
const LONGEST_NAME = 63;

const FIXED_MISSING = 'from: Fixed needs a duration here, in the same document';
const FIXED_ALONE = 'has no effect without from: Fixed in the same document; add that, or remove this';
const MIN_OVER_MAX = 'is longer than max';
const HOLD_SHORT = 'expected at least 1s';

const wait = z
  .strictObject({
    from: optional(z.enum(WAIT_SOURCES), 'Whether the wait is measured or fixed.', {
      reference:
        'Where the wait comes from. `Measured`: from the lag of the cluster ([what it covers](#what-a-measured-wait-covers)); `wait.initial` until there are enough samples.',
    }),
    fixed: optional(duration, 'The wait, with from: Fixed.', {
      reference:
        'The wait with `from: Fixed`; must be in the same document. Fractions round up. `0` means no wait: `NoWait`.',
    }),
    percentile: optional(
      z.number().min(50).lt(100, { error: 'expected a number from 50 up to, not including, 100' }),
      'The percentile of the measured lag that the wait is taken from.',
      { reference: 'The percentile of the lag that the wait is made from.' },
    ),
    safetyFactor: optional(z.number().min(1).max(10), 'The percentile is multiplied by this.', {
      reference: 'The factor for the percentile.',
    }),
    margin: optional(duration, 'Added after the factor.', {
      reference: 'Added after that, before rounding up to a multiple of 5 s.',
    }),
    min: optional(duration, 'No measured or initial wait is shorter.', {
      reference: 'Lower bound of initial and measured waits. Fixed ones are not bounded by it.',
    }),
    max: optional(duration, 'No measured or initial wait is longer.', {
      reference:
        'Upper bound of initial and measured waits; wins over `min`. Fixed ones are not bounded by it.',
    }),
    initial: optional(duration, 'The wait until enough has been measured.', {
      reference:
        'The wait until `minSamples` and `minHistory` are reached, and where no cluster is followed.',
    }),
    minSamples: optional(z.int().min(1).max(1_000_000), 'How many removals must have been measured.', {
      reference: 'Fewer samples than this: `initial`.',
    }),
    minHistory: optional(duration, 'For how long lags must have been measured.', {
      reference: 'A history shorter than this: `initial`.',
    }),
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
    min: optional(duration, 'No pod is released sooner: a margin for consumers that are not declared.', {
      reference:
        'With `hook: Hold`: no pod is released sooner. A margin for undeclared consumers; set `0s` if all are declared.',
    }),
    max: optional(
      duration.refine((seconds) => seconds >= 1, { error: HOLD_SHORT }),
      'No pod is held longer.',
      {
        values: 'a duration, at least `1s`',
        reference:
          'With `hook: Hold`: no pod is held longer, but for a longer fixed wait. The grace covers it; `ceiling.wait` bounds it. Wins over `min`.',
      },
    ),
    observe: optional(z.boolean(), 'Whether the pod waits as with Sleep, and Linger only watches it.', {
      reference: 'With `hook: Hold`: the pod waits as with `Sleep`, and Linger only observes it.',
    }),
    delivery: optional(z.enum(HOLD_DELIVERIES), 'How the helper gets into the pod.', {
      reference:
        'With `hook: Hold`: how the helper gets into the pod. `Auto`: `ConfigMap` if possible, otherwise `Image`.',
    }),
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
 * kubectl reads YAML 1.1, in which an unquoted `Off` is the boolean false, so false is accepted here: it can mean nothing
 * else. The API server gets what kubectl has read, and rejects the boolean.
 */
const mode = z
  .preprocess((value) => (value === false ? 'Off' : value), z.enum(MODES))
  .meta({ type: 'string', enum: [...MODES] });

const GRACE_SHORT = 'expected at least 1s';

/**
 * The fields that both kinds of policy have. There are no defaults, because a defaulted field would count as set and defeat
 * the layers.
 */
const sharedFields = {
  podSelector: optional(labelSelector, 'The pods that it applies to; absent: all.', {
    absent: 'everything',
    reference: 'The pods that the policy is for, by their labels.',
  }),
  priority: optional(
    z.int().min(-1_000_000).max(1_000_000),
    'Of two policies that set a field, the one with the higher priority wins.',
    {
      absent: '`0`',
      reference: 'Higher is later, and later wins; at equal priority the name decides.',
    },
  ),
  mode: optional(mode, 'Enforce changes pods, Audit only reports what would change, Off does neither.', {
    reference:
      '`Enforce` changes pods. `Audit` computes and reports the plan ([where](../install.md#audit)), and changes nothing. `Off` skips: `ModeOff`.',
  }),
  pods: optional(
    z.enum(POD_SCOPES),
    'Which pods get a wait: those that serve, those that are selected, or all.',
    { reference: 'Which pods count as getting traffic: see [serving](#serving).' },
  ),
  exclude: optional(
    z.array(z.enum(EXCLUDABLE_KINDS)).max(EXCLUDABLE_KINDS.length),
    'Kinds of workload that are left alone.',
    {
      reference:
        "Owners whose pods are left alone. A Deployment's are owned by its ReplicaSet, a CronJob's by its Job.",
    },
  ),
  containers: optional(
    z.array(z.string().min(1).max(LONGEST_NAME)).max(MOST_NAMES),
    'Names of the containers that get the hook; empty: all.',
    {
      values: 'list of names',
      reference:
        'The containers that wait; an empty list means all ordinary ones. Native sidecars and init containers never wait.',
    },
  ),
  wait: optional(wait, 'How long SIGTERM is delayed.'),
  hook: optional(z.enum(HOOK_CHOICES), 'Which preStop hook waits.', { reference: 'What waits: below.' }),
  hold: optional(hold, 'How long Hold waits for the consumers of the pod; for hook: Hold.'),
  existingHook: optional(
    z.enum(EXISTING_HOOK_RULES),
    'Whether a plain sleep that is shorter than the wait is lengthened.',
    { reference: "What happens to a container's own preStop hook: see [existing hooks](#existing-hooks)." },
  ),
  grace: optional(
    z
      .strictObject({
        max: optional(
          duration.refine((s) => s >= 1, { error: GRACE_SHORT }),
          'The most that terminationGracePeriodSeconds is raised to.',
          {
            values: 'a duration, at least `1s`',
            reference: "The grace is never raised beyond this. An author's larger grace stays.",
          },
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
    namespaceSelector: optional(labelSelector, 'The namespaces that it applies to; absent: all.', {
      absent: 'everything',
      reference: 'The namespaces that the policy is for.',
    }),
    ceiling: optional(
      z.strictObject({
        wait: optional(duration, 'No wait is longer.', {
          reference:
            'No wait is longer, in any layer; the smallest that applies. Hooks that authors wrote are not bounded.',
        }),
        mode: optional(mode, 'No mode changes more than this one.', {
          reference: 'No mode is stronger, in any layer; the weakest that applies.',
        }),
      }),
      'What no later layer may exceed; of several, the lowest applies.',
    ),
    overrides: optional(
      z.strictObject({
        namespaces: optional(z.boolean(), 'Whether TerminationPolicies and Namespace annotations count.', {
          reference:
            'May TerminationPolicies and Namespace annotations override? One `false` among the policies that apply is enough.',
        }),
        pods: optional(z.boolean(), 'Whether annotations of pods count.', {
          reference:
            "May Pod annotations override? One `false` is enough. The webhook's `objectSelector` also lets pods opt out: [threat model](../threat-model.md#opting-out).",
        }),
      }),
      'Who may override it; false wins.',
    ),
  })
  .describe('What the owners of the cluster set.');
export type ClusterTerminationPolicySpec = z.output<typeof clusterTerminationPolicySpec>;
