import type { Field } from '../../../src/core/decision/policy-values.ts';
import type { JsonObject } from './sample-pod.ts';

/** A value as it is written and as it is in force. */
type Value = readonly [written: unknown, inForce: unknown];

/** Two values of each field that policies may set, neither of them the built-in one where there is one. */
export const FIELDS: Partial<Record<Field, readonly [Value, Value]>> = {
  mode: [
    ['Audit', 'Audit'],
    ['Off', 'Off'],
  ],
  pods: [
    ['All', 'All'],
    ['Selected', 'Selected'],
  ],
  exclude: [
    [['Job'], ['Job']],
    [[], []],
  ],
  containers: [
    [['a'], ['a']],
    [['b'], ['b']],
  ],
  'wait.fixed': [
    ['41s', 41],
    ['42s', 42],
  ],
  'wait.percentile': [
    [90, 90],
    [95, 95],
  ],
  'wait.safetyFactor': [
    [2, 2],
    [3, 3],
  ],
  'wait.margin': [
    ['1s', 1],
    ['2s', 2],
  ],
  'wait.min': [
    ['6s', 6],
    ['7s', 7],
  ],
  'wait.max': [
    ['50s', 50],
    ['2m', 120],
  ],
  'wait.initial': [
    ['12s', 12],
    ['45s', 45],
  ],
  'wait.minSamples': [
    [10, 10],
    [1000, 1000],
  ],
  'wait.minHistory': [
    ['1h', 3600],
    ['48h', 172_800],
  ],
  hook: [
    ['Exec', 'Exec'],
    ['Sleep', 'Sleep'],
  ],
  'hold.min': [
    ['1s', 1],
    ['2s', 2],
  ],
  'hold.max': [
    ['20s', 20],
    ['90s', 90],
  ],
  'hold.observe': [
    [true, true],
    [false, false],
  ],
  'hold.delivery': [
    ['ConfigMap', 'ConfigMap'],
    ['Image', 'Image'],
  ],
  existingHook: [
    ['Extend', 'Extend'],
    ['Keep', 'Keep'],
  ],
  'grace.max': [
    ['100s', 100],
    ['900s', 900],
  ],
};

/** The annotations that say a field. */
export const ANNOTATIONS: Partial<Record<Field, string>> = {
  mode: 'linger.dev/mode',
  containers: 'linger.dev/containers',
  'wait.fixed': 'linger.dev/wait',
  hook: 'linger.dev/hook',
  existingHook: 'linger.dev/existing-hook',
};

export function specOf(field: Field, written: unknown): JsonObject {
  const [outer = '', inner] = field.split('.');
  if (inner === undefined) return { [outer]: written };
  return { [outer]: { [inner]: written, ...(field === 'wait.fixed' ? { from: 'Fixed' } : {}) } };
}
