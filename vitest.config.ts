import { defineConfig } from 'vitest/config';
import { FUZZ } from './test/property/runs.ts';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // These need a cluster; `npm run test:cluster` runs them.
    exclude: ['test/testbed/**', 'test/cluster-suite/**', 'test/scenarios/**'],
    // Many tests wait for a process or a timeout; on two cores vitest would run one file after the other.
    maxWorkers: '100%',
    // Modules are loaded by Node and not rewritten: that costs hot loops half their speed.
    experimental: { viteModuleRunner: false, nodeLoader: false },
    globalSetup: ['test/cli/build.ts'],
    // Some work for seconds; where other processes want the processors, too, for ten times as long.
    testTimeout: 60_000 * FUZZ,
    setupFiles: FUZZ === 1 ? [] : ['test/property/setup.ts'],
  },
});
