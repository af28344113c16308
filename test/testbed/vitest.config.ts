import { defineConfig } from 'vitest/config';
import { LONG } from '../scenarios/form.ts';
import { EVERYTHING, SCENARIOS } from './files.ts';

export default defineConfig({
  test: {
    // Modules are loaded by Node and not rewritten: a file of the suite starts in half the processor time.
    experimental: { viteModuleRunner: false, nodeLoader: false },
    globalSetup: ['test/scratch.ts', 'test/cli/build.ts'],
    setupFiles: ['test/testbed/setup.ts'],
    include: process.env.BENCH === undefined ? (LONG ? SCENARIOS : EVERYTHING) : [process.env.BENCH],
    // One cluster, one webhook configuration: files would disturb each other.
    fileParallelism: false,
    // A rolling update with waits and graces takes minutes.
    testTimeout: 300_000,
    hookTimeout: 180_000,
    reporters: ['verbose'],
  },
});
