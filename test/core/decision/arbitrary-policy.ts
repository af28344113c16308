import fc, { type Arbitrary } from 'fast-check';
import { MODES } from '../../../src/core/api/index.ts';
import type { ClusterSnapshot } from '../../../src/core/decision/cluster-snapshot.ts';
import { label, members, name, oftenAbsent } from './arbitrary-json.ts';
import { type EmpiricalLag, empiricalDistribution } from './empirical-distribution.ts';
import { holdSupply } from './sample-hold.ts';
import { type JsonObject, NAMESPACE } from './sample-pod.ts';
import { clusterPolicy, consumer, fleet, namespace, policy, service, snapshotOf } from './sample-snapshot.ts';

const LONGEST_SECONDS = 1200;

/** Seconds as a duration in one of Go's forms. */
function durations(min: number, max = LONGEST_SECONDS): Arbitrary<string> {
  return fc.oneof(
    fc.integer({ min, max }).map((seconds) => `${seconds}s`),
    fc.integer({ min: min * 1000, max: max * 1000 }).map((milliseconds) => `${milliseconds}ms`),
    fc.integer({ min, max }).map((seconds) => `${Math.floor(seconds / 60)}m${seconds % 60}s`),
  );
}

const FIXED_WAIT = durations(0).map((fixed) => ({ from: 'Fixed', fixed }));

const MEASURED_WAIT = fc
  .record({
    from: oftenAbsent(fc.constant('Measured')),
    percentile: oftenAbsent(fc.double({ min: 50, max: 99.99, noNaN: true })),
    safetyFactor: oftenAbsent(fc.double({ min: 1, max: 10, noNaN: true })),
    margin: oftenAbsent(durations(0, 30)),
    // Below 50 s and above it: a document whose min is longer than its max is refused.
    min: oftenAbsent(durations(0, 50)),
    max: oftenAbsent(durations(50)),
    initial: oftenAbsent(durations(0)),
    minSamples: oftenAbsent(fc.integer({ min: 1, max: 300 })),
    minHistory: oftenAbsent(durations(0)),
  })
  .map(members);

const HOLD = fc
  .record({
    min: oftenAbsent(durations(0, 50)),
    max: oftenAbsent(durations(50)),
    observe: oftenAbsent(fc.boolean()),
    delivery: oftenAbsent(fc.constantFrom('Auto', 'ConfigMap', 'Image')),
  })
  .map(members);

const SELECTOR = fc.constantFrom(
  {},
  { matchLabels: { app: 'web' } },
  { matchExpressions: [{ key: 'app', operator: 'In', values: ['web', 'api'] }] },
  { matchExpressions: [{ key: 'tier', operator: 'DoesNotExist' }] },
);

/** The fields that namespaces' owners may set, in valid values. */
export const arbitrarySpec: Arbitrary<JsonObject> = fc
  .record({
    podSelector: oftenAbsent(SELECTOR),
    priority: oftenAbsent(fc.integer({ min: -3, max: 3 })),
    mode: oftenAbsent(fc.constantFrom('Enforce', 'Enforce', 'Audit', 'Off')),
    pods: oftenAbsent(fc.constantFrom('Serving', 'Selected', 'All')),
    exclude: oftenAbsent(fc.subarray(['Job', 'DaemonSet', 'StatefulSet', 'ReplicaSet'])),
    containers: oftenAbsent(fc.subarray(['app', 'proxy', 'log'])),
    wait: oftenAbsent(fc.oneof(FIXED_WAIT, MEASURED_WAIT)),
    hook: oftenAbsent(fc.constantFrom('Auto', 'Sleep', 'Exec', 'Hold', 'Hold')),
    hold: oftenAbsent(HOLD),
    existingHook: oftenAbsent(fc.constantFrom('Keep', 'Extend')),
    grace: oftenAbsent(fc.record({ max: durations(1) })),
  })
  .map(members);

const CEILING = fc
  .record({ wait: oftenAbsent(durations(0, 400)), mode: oftenAbsent(fc.constantFrom(...MODES)) })
  .map(members);

const OVERRIDES = fc
  .record({ namespaces: oftenAbsent(fc.boolean()), pods: oftenAbsent(fc.boolean()) })
  .map(members);

export const arbitraryClusterPolicy: Arbitrary<JsonObject> = fc
  .tuple(
    arbitrarySpec,
    fc
      .record({
        namespaceSelector: oftenAbsent(fc.constantFrom({}, { matchLabels: { team: 'payments' } })),
        ceiling: oftenAbsent(CEILING),
        overrides: oftenAbsent(OVERRIDES),
      })
      .map(members),
    name,
  )
  .map(([spec, more, policyName]) => clusterPolicy({ ...spec, ...more }, policyName));

export const arbitraryPolicy: Arbitrary<JsonObject> = fc
  .tuple(arbitrarySpec, name)
  .map(([spec, policyName]) => policy(spec, policyName));

/** What a namespace's or a pod's owner may write on it, and have understood. */
export const arbitraryWishes: Arbitrary<JsonObject> = fc
  .record({
    'linger.dev/inject': oftenAbsent(fc.constantFrom('true', 'false')),
    'linger.dev/mode': oftenAbsent(fc.constantFrom(...MODES)),
    'linger.dev/wait': oftenAbsent(durations(0)),
    'linger.dev/hook': oftenAbsent(fc.constantFrom('Auto', 'Sleep', 'Exec', 'Hold')),
    'linger.dev/existing-hook': oftenAbsent(fc.constantFrom('Keep', 'Extend')),
  })
  .map(members);

const NAMESPACE_OBJECT = fc
  .tuple(oftenAbsent(arbitraryWishes), fc.constantFrom({}, { team: 'payments' }))
  .map(([wishes, labels]) => namespace(wishes ?? {}, labels));

const SERVICE = fc
  .tuple(fc.constantFrom('web', 'api', 'db'), label, fc.boolean(), name)
  .map(([app, tier, narrow, serviceName]) =>
    service({ selector: { app, ...(narrow ? { tier } : {}) } }, serviceName),
  );

const CONSUMER = fc
  .record({ podSelector: oftenAbsent(SELECTOR), serviceSelector: oftenAbsent(SELECTOR) })
  .map((appliesTo) => consumer(members(appliesTo)));

const unique = (documents: Arbitrary<JsonObject>, maxLength: number) =>
  fc.uniqueArray(documents, { maxLength, selector: ({ metadata }) => (metadata as { name: string }).name });

/** Everything that files or a cluster can hold for the sample namespace: documents that validate, in any order. */
export const arbitraryDocuments: Arbitrary<readonly JsonObject[]> = fc
  .tuple(
    unique(arbitraryClusterPolicy, 3),
    unique(arbitraryPolicy, 2),
    unique(NAMESPACE_OBJECT, 1),
    unique(SERVICE, 2),
    unique(CONSUMER, 1),
  )
  .map((kinds) => kinds.flat());

const LAG: Arbitrary<EmpiricalLag> = fc
  .tuple(
    fc.array(fc.double({ min: 0, max: 400, noNaN: true }), { minLength: 1, maxLength: 300 }),
    fc.constantFrom(0, 3600, 86_400, 604_800),
  )
  .map(([lags, history]) => empiricalDistribution(lags, history));

const NEW_FLEET = fleet('v1.36.3', 'v1.36.3');
const BY_IMAGE = { namespaces: new Set<string>(), image: 'registry.example/linger-hold:1' };

const FLEET = fc.constantFrom(NEW_FLEET, fleet('v1.36.3', 'v1.29.0'), fleet('v1.28.0', 'v1.28.0'));

/** What surrounds the documents: the operator's limit, the fleet, the lags, how much is known of the Services. */
export const arbitraryCircumstances = fc
  .record({
    modeLimit: oftenAbsent(fc.constantFrom(...MODES)),
    fleet: oftenAbsent(FLEET),
    lag: oftenAbsent(LAG),
    servicesComplete: oftenAbsent(fc.boolean()),
    held: fc.constantFrom('not', 'by ConfigMap', 'by image'),
  })
  .map(({ held, ...circumstances }) => {
    const supply = holdSupply(circumstances.fleet ?? NEW_FLEET, held === 'by image' ? BY_IMAGE : {});
    return members({ ...circumstances, hold: held === 'not' ? undefined : supply });
  });

/** A snapshot for the sample namespace. */
export const arbitrarySnapshot: Arbitrary<ClusterSnapshot> = fc
  .tuple(arbitraryDocuments, arbitraryCircumstances)
  .map(([documents, circumstances]) => snapshotOf(documents, circumstances));

/** One in which pods are held wherever they can be. */
export const arbitraryHeldSnapshot: Arbitrary<ClusterSnapshot> = fc
  .record({
    hold: oftenAbsent(HOLD),
    wait: oftenAbsent(fc.oneof(FIXED_WAIT, MEASURED_WAIT)),
    grace: oftenAbsent(fc.record({ max: durations(60) })),
    containers: oftenAbsent(fc.constantFrom(['app'], ['app', 'proxy', 'log'])),
    existingHook: oftenAbsent(fc.constantFrom('Keep', 'Extend')),
    image: fc.boolean(),
  })
  .map(({ image, ...spec }) => {
    const always = { hook: 'Hold', pods: 'All', exclude: [], overrides: { pods: false } };
    const policies = [clusterPolicy({ ...members(spec), ...always })];
    return snapshotOf(policies, { fleet: NEW_FLEET, hold: holdSupply(NEW_FLEET, image ? BY_IMAGE : {}) });
  });

/**
 * The same sets of valid linger.dev documents for the same seed, each set with its Namespace and Services.
 * @param count how many sets
 */
export function generatedPolicies(seed: number, count: number): readonly (readonly JsonObject[])[] {
  return fc.sample(arbitraryDocuments, { seed, numRuns: count });
}

/** The namespace that every generated document is for. */
export const GENERATED_NAMESPACE = NAMESPACE;
