import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/cluster/**/*.test.ts', 'test/cluster-suite/**/*.test.ts', 'test/scenarios/**/*.test.ts'],
    // One cluster, one webhook configuration: files would disturb each other.
    fileParallelism: false,
    // A rolling update with waits and graces takes minutes.
    testTimeout: 300_000,
    hookTimeout: 180_000,
    reporters: ['verbose'],
  },
});
