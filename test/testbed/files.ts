/** What has a long form. */
export const SCENARIOS = [
  'test/scenarios/*.test.ts',
  'test/soak/soak.test.ts',
  'test/cluster-suite/certificates.test.ts',
  'test/cluster-suite/policy-objects.test.ts',
];

/** Everything that `npm run test:cluster` runs. */
export const EVERYTHING = [
  'test/testbed/**/*.test.ts',
  'test/cluster-suite/**/*.test.ts',
  'test/scenarios/**/*.test.ts',
  'test/soak/soak.test.ts',
];

/** These compare instants or durations: while one of them runs, nothing else does. */
export const ALONE: readonly string[] = [
  'test/cluster-suite/drains-itself.test.ts',
  'test/cluster-suite/hold-delivery.test.ts',
  'test/cluster-suite/hold.test.ts',
  'test/cluster-suite/policy-objects.test.ts',
  'test/cluster-suite/termination-review.test.ts',
  'test/cluster-suite/termination.test.ts',
  'test/cluster-suite/truth.test.ts',
  'test/scenarios/canary.test.ts',
  'test/scenarios/node-shutdown.test.ts',
  'test/scenarios/polling.test.ts',
  'test/scenarios/replicas.test.ts',
  'test/scenarios/storm.test.ts',
  'test/scenarios/unbalanced.test.ts',
  'test/testbed/load/load.test.ts',
];
