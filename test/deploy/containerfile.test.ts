import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { containerRuntime } from '../../bench/containerfile.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const { nodeFlags, environment } = containerRuntime(ROOT);

it('the image’s compile cache is filled by the very command that runs later', () => {
  // V8 takes no compiled code that was made with other flags.
  const text = readFileSync(join(ROOT, 'deploy', 'Containerfile'), 'utf8');
  const filled = /^RUN node (.*?)src\/main\.ts serve /m.exec(text)?.[1]?.trim().split(' ') ?? [];
  expect(filled.filter((flag) => flag !== '')).toEqual(nodeFlags);
  expect(text.indexOf('\nENV ')).toBeLessThan(text.indexOf('\nRUN node'));
});

it('what benchmarks and the cluster suite run is read off the image', () => {
  expect(nodeFlags).toEqual(['--heap-growing-percent=50']);
  expect(environment).toEqual({
    NODE_COMPILE_CACHE: '/app/cache',
    NODE_OPTIONS: '--max-semi-space-size=2',
    MALLOC_ARENA_MAX: '2',
  });
});
