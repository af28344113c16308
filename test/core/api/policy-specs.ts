import type { JsonObject } from '../decision/sample-pod.ts';
import type { SpecCase } from './spec-case.ts';

const labels = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`label-${index}`, 'x']));
const names = (count: number) => Array.from({ length: count }, (_, index) => `container-${index}`);

const DURATION = /expected a duration such as 30s or 1m30s/;
const FIXED_MISSING = /from: Fixed needs a duration here/;
const FIXED_ALONE = /has no effect without from: Fixed/;
const MIN_OVER_MAX = /is longer than max/;
const GRACE_SHORT = /expected at least 1s/;
const KEY = /expected a label key/;
/** Any message: the API server and the parser of files word errors of types, sizes and enums differently. */
const ANYHOW = /./;

const taken = (cases: Readonly<Record<string, JsonObject>>): SpecCase[] =>
  Object.entries(cases).map(([name, spec]) => ({ name, spec }));
const refused = (refusal: RegExp, cases: Readonly<Record<string, JsonObject>>): SpecCase[] =>
  Object.entries(cases).map(([name, spec]) => ({ name, spec, refused: refusal }));
const wait = (fields: JsonObject): JsonObject => ({ wait: fields });

/** What every validation of both kinds of policy must say to these. */
export const POLICY_SPECS: readonly SpecCase[] = [
  ...taken({
    nothing: {},
    'each mode': { mode: 'Audit' },
    'the mode Off, quoted': { mode: 'Off' },
    'each scope of pods': { pods: 'Selected' },
    'a priority below 0': { priority: -1_000_000 },
    'a fixed wait': wait({ from: 'Fixed', fixed: '45s' }),
    'a measured wait': wait({
      from: 'Measured',
      percentile: 99.9,
      safetyFactor: 1,
      margin: '0s',
      min: '5s',
      max: '5s',
      initial: '0',
      minSamples: 1,
      minHistory: '168h',
    }),
    'a percentile right below 100': wait({ percentile: 99.999 }),
    'every kind excluded': { exclude: ['Job', 'DaemonSet', 'StatefulSet', 'ReplicaSet'] },
    'no kind excluded': { exclude: [] },
    'as many containers as there may be': { containers: names(256) },
    'each hook': { hook: 'Exec' },
    'a hook that is held': {
      hook: 'Hold',
      hold: { min: '0s', max: '1m', observe: true, delivery: 'ConfigMap' },
    },
    'the least hold': { hold: { min: '1s', max: '1s' } },
    'each rule for existing hooks': { existingHook: 'Extend' },
    'the least grace': { grace: { max: '1s' } },
    'selected pods': { podSelector: { matchLabels: labels(32) } },
  }),
  ...refused(FIXED_MISSING, { 'Fixed without a wait': wait({ from: 'Fixed' }) }),
  ...refused(FIXED_ALONE, {
    'a fixed wait without from': wait({ fixed: '5s' }),
    'a fixed wait that is measured': wait({ from: 'Measured', fixed: '5s' }),
  }),
  ...refused(MIN_OVER_MAX, {
    'min over max': wait({ min: '1m1s', max: '60s' }),
    'the min of a hold over its max': { hold: { min: '61s', max: '60s' } },
  }),
  ...refused(
    DURATION,
    Object.fromEntries(
      ['', '5', '-5s', '5 s', '1d', '168h1s', '999999h', 'soon', '5s\n'].map((text) => [
        `the duration ${JSON.stringify(text)}`,
        wait({ margin: text }),
      ]),
    ),
  ),
  ...refused(GRACE_SHORT, { 'a hold of no second': { hold: { max: '999ms' } } }),
  ...refused(GRACE_SHORT, { 'a grace of no second': { grace: { max: '0s' } } }),
  ...refused(KEY, { 'a label key that is none': { podSelector: { matchLabels: { 'a b': 'c' } } } }),
  ...refused(ANYHOW, {
    'an unknown mode': { mode: 'Enforced' },
    'a mode in lower case': { mode: 'audit' },
    'a mode that is null and text': { mode: 5 },
    'an unknown hook': { hook: 'Nap' },
    'an unknown delivery': { hold: { delivery: 'Volume' } },
    'a hold that only watches, in quotes': { hold: { observe: 'true' } },
    'an unknown member of a hold': { hold: { initial: '5s' } },
    'an unknown kind': { exclude: ['CronJob'] },
    'the percentile 100': wait({ percentile: 100 }),
    'the percentile 49': wait({ percentile: 49.9 }),
    'a factor below 1': wait({ safetyFactor: 0.5 }),
    'half a sample': wait({ minSamples: 0.5 }),
    'no samples': wait({ minSamples: 0 }),
    'a priority beyond what there may be': { priority: 1_000_001 },
    'one container too many': { containers: names(257) },
    'a container without a name': { containers: [''] },
    'a container with too long a name': { containers: ['a'.repeat(64)] },
    'one label too many': { podSelector: { matchLabels: labels(33) } },
    'a duration that is a number': wait({ min: 5 }),
  }),
];

/** What only a ClusterTerminationPolicy may say. */
export const CLUSTER_POLICY_SPECS: readonly SpecCase[] = [
  ...taken({
    'a namespace selector': { namespaceSelector: { matchLabels: { team: 'shop' } } },
    ceilings: { ceiling: { wait: '10m', mode: 'Audit' } },
    overrides: { overrides: { namespaces: false, pods: true } },
  }),
  ...refused(DURATION, { 'a ceiling that is no duration': { ceiling: { wait: 'high' } } }),
  ...refused(ANYHOW, {
    'a ceiling for the mode that is none': { ceiling: { mode: 'on' } },
    'overrides as text': { overrides: { pods: 'yes' } },
  }),
];
