import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { defineConfig, type UserWorkspaceConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { FUZZ } from './test/property/runs.ts';

// These need a cluster; `npm run test:cluster` runs them.
const OF_CLUSTER = [
  'test/testbed/**',
  'test/cluster-suite/**',
  'test/scenarios/**',
  'test/soak/soak.test.ts',
];

/**
 * These measure their own process, its turns, its time or its memory: nobody else's modules and garbage may be in it. The longest
 * come first: the others begin when the last of these has ended.
 */
const OF_ONE_PROCESS = [
  'test/hold/helper.test.ts',
  'test/measurement/canary.test.ts',
  'test/webhook/slow-clients.test.ts',
  'test/server/serve-policies.test.ts',
  'test/webhook/reports/strangers.test.ts',
  'test/webhook/reports/verdicts.test.ts',
];

/**
 * Attacks, simulations, large texts and histories, the release and what the bundle takes: minutes of processor time.
 * `npm run test:long` takes them, four files at a time.
 */
const OF_LONG_STEP = [
  'test/webhook/attacks/attacks.test.ts',
  'test/hold/attacks.test.ts',
  'test/core/decision/simulated-weeks.test.ts',
  'test/core/decision/simulation.test.ts',
  'test/leader/history-objects.test.ts',
  'test/deploy/release.test.ts',
  'test/deploy/bundle.test.ts',
  'test/webhook/attacks/samples.test.ts',
  'test/webhook/flood.test.ts',
  'test/webhook/hostile.test.ts',
  'test/cli/memory.test.ts',
];

/** The page in a real Chromium, which takes both processors: what is timed beside it comes late. `npm run test:browser`. */
const OF_BROWSER = [
  'test/cli/dashboard.test.ts',
  'test/page/views.test.ts',
  'test/page/manifests.test.ts',
  'test/page/timeline.test.ts',
];

/** A quarter of a minute or more each, much of it waiting: what begins last must not be one of them. */
const LONG = [
  'test/measurement/stale-upstreams.test.ts',
  'test/measurement/deregister.test.ts',
  'test/server/serve-start.test.ts',
  'test/webhook/secrets.test.ts',
  'test/check/checks.test.ts',
  'test/server/serve-shutdown.test.ts',
  'test/audit/cluster-audit.test.ts',
  'test/cluster/exec-plugin.test.ts',
  'test/server/serve-reload.test.ts',
  'test/policy-files/policy-watch.test.ts',
];

const gone = [...OF_ONE_PROCESS, ...OF_LONG_STEP, ...OF_BROWSER, ...LONG].filter((file) => !existsSync(file));
if (gone.length > 0) throw new Error(`vitest.config.ts names tests that are not there: ${gone.join(', ')}`);

/** Without the durations of a former run, as in CI, vitest would go by the size of the files. */
class LongFirst extends BaseSequencer {
  override async sort(specifications: TestSpecification[]): Promise<TestSpecification[]> {
    const first = [...OF_ONE_PROCESS, ...OF_LONG_STEP, ...LONG];
    const rank = ({ moduleId }: TestSpecification) => {
      const at = first.findIndex((file) => moduleId.endsWith(`/${file}`));
      return at < 0 ? first.length : at;
    };
    return (await super.sort(specifications)).toSorted((a, b) => rank(a) - rank(b));
  }
}

/** Of every project. */
const common: UserWorkspaceConfig['test'] = {
  // Modules are loaded by Node and not rewritten: that costs hot loops half their speed.
  experimental: { viteModuleRunner: false, nodeLoader: false },
  // Some work for seconds; where other processes want the processors, too, for ten times as long.
  testTimeout: 90_000 * FUZZ,
  hookTimeout: 60_000,
  setupFiles: FUZZ === 1 ? [] : ['test/property/setup.ts'],
};

export default defineConfig({
  test: {
    // Many tests wait for a process or a timeout: on two cores vitest would run one file after the other, two leave them without
    // work for a third of the time, and four for a seventh.
    maxWorkers: 3 * availableParallelism(),
    sequence: { sequencer: LongFirst },
    // Here and not in `common`: a project that inherited it would run it again.
    globalSetup: ['test/scratch.ts', 'test/cli/build.ts'],
    projects: [
      {
        test: {
          ...common,
          name: 'shared',
          include: ['test/**/*.test.ts'],
          exclude: [...OF_CLUSTER, ...OF_ONE_PROCESS, ...OF_LONG_STEP, ...OF_BROWSER],
          // Loading Linger once for each file took a third of all processor time.
          isolate: false,
        },
      },
      { test: { ...common, name: 'measured', include: OF_ONE_PROCESS } },
      { test: { ...common, name: 'long', include: OF_LONG_STEP } },
      { test: { ...common, name: 'browser', include: OF_BROWSER } },
    ],
  },
});
