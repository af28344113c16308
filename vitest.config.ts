import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';
import { FUZZ } from './test/property/runs.ts';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // These need a cluster; `npm run test:cluster` runs them.
    exclude: ['test/testbed/**', 'test/cluster-suite/**', 'test/scenarios/**'],
    // Many tests wait for a process or a timeout; on two cores vitest would run one file after the other.
    maxWorkers: '100%',
    experimental: { viteModuleRunner: false, nodeLoader: false },
    // Hundreds of processes of the program are started: with their code compiled already, each takes half the time.
    env: { NODE_COMPILE_CACHE: fileURLToPath(new URL('node_modules/.cache/compiled', import.meta.url)) },
    // Some work for seconds; where other processes want the processors, too, for ten times as long.
    testTimeout: 60_000 * FUZZ,
    setupFiles: FUZZ === 1 ? [] : ['test/property/setup.ts'],
  },
});
