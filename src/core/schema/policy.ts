import { z } from 'zod';
import {
  EXCLUDABLE_KINDS,
  EXISTING_HOOK_RULES,
  HOLD_UNAVAILABLE,
  HOOK_CHOICES,
  type HookChoice,
  MODES,
  POD_SCOPES,
  WAIT_SOURCES,
} from './choices.ts';
import { duration } from './duration-field.ts';
import { labelSelector } from './selector.ts';

const hook = z
  .enum(HOOK_CHOICES)
  .refine((choice) => choice !== 'Hold', { error: HOLD_UNAVAILABLE })
  .transform((choice) => choice as HookChoice);

const wait = z
  .strictObject({
    from: z.enum(WAIT_SOURCES).optional(),
    fixed: duration.optional(),
    percentile: z
      .number()
      .min(50)
      .lt(100, { error: 'expected a number from 50 up to, not including, 100' })
      .optional(),
    safetyFactor: z.number().min(1).max(10).optional(),
    margin: duration.optional(),
    min: duration.optional(),
    max: duration.optional(),
    initial: duration.optional(),
    minSamples: z.int().min(1).max(1_000_000).optional(),
    minHistory: duration.optional(),
  })
  .refine(({ from, fixed }) => from !== 'Fixed' || fixed !== undefined, {
    error: 'from: Fixed needs a duration here, in the same document',
    path: ['fixed'],
  })
  .refine(({ from, fixed }) => fixed === undefined || from === 'Fixed', {
    error: 'has no effect without from: Fixed in the same document; add that, or remove this',
    path: ['fixed'],
  })
  .refine(({ min, max }) => min === undefined || max === undefined || min <= max, {
    error: 'is longer than max',
    path: ['min'],
  });

/** YAML 1.1, as kubectl reads it, takes an unquoted `Off` for the boolean false; nothing else can be meant here. */
const mode = z.preprocess((value) => (value === false ? 'Off' : value), z.enum(MODES));

/** The fields that both kinds of policy have. No defaults: a defaulted field would count as set and break the layers. */
const sharedFields = {
  podSelector: labelSelector.optional(),
  priority: z.int().min(-1_000_000).max(1_000_000).optional(),
  mode: mode.optional(),
  pods: z.enum(POD_SCOPES).optional(),
  exclude: z.array(z.enum(EXCLUDABLE_KINDS)).optional(),
  containers: z.array(z.string().min(1)).optional(),
  wait: wait.optional(),
  hook: hook.optional(),
  existingHook: z.enum(EXISTING_HOOK_RULES).optional(),
  grace: z
    .strictObject({ max: duration.refine((s) => s >= 1, { error: 'expected at least 1s' }).optional() })
    .optional(),
};

/** spec of a TerminationPolicy. */
export const terminationPolicySpec = z.strictObject(sharedFields);
export type TerminationPolicySpec = z.output<typeof terminationPolicySpec>;

/** spec of a ClusterTerminationPolicy: what a namespace's owner may not decide comes on top. */
export const clusterTerminationPolicySpec = z.strictObject({
  ...sharedFields,
  namespaceSelector: labelSelector.optional(),
  ceiling: z.strictObject({ wait: duration.optional(), mode: mode.optional() }).optional(),
  overrides: z.strictObject({ namespaces: z.boolean().optional(), pods: z.boolean().optional() }).optional(),
});
export type ClusterTerminationPolicySpec = z.output<typeof clusterTerminationPolicySpec>;
