import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { containerRuntime } from '../../bench/containerfile.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const { nodeFlags, program, environment } = containerRuntime(ROOT);
const text = readFileSync(join(ROOT, 'deploy', 'Containerfile'), 'utf8');
const [build = '', final = ''] = text.split(/^FROM /m).slice(1);

it('fills the compile cache with the very command that runs later', () => {
  // V8 takes no compiled code that was made with other flags.
  const filled = /^RUN node (.*?) serve /m.exec(build)?.[1]?.split(' ');
  expect(filled).toEqual([...nodeFlags, program]);
  const settings = (stage: string) => /^ENV .+$/m.exec(stage)?.[0];
  expect(settings(build)).toBe(settings(final));
  expect(build.indexOf('\nENV ')).toBeLessThan(build.indexOf('\nRUN node'));
});

it('ships nothing that was generated at build time but the program and its compile cache', () => {
  const copied = [...final.matchAll(/^COPY (.+)$/gm)].map(([, what]) => what);
  expect(copied).toEqual([
    'package.json ./',
    '--from=build /app/dist ./dist',
    '--from=build /app/cache ./cache',
  ]);
  expect(final).not.toMatch(/^(RUN|ADD) /m);
});

it('is what benchmarks and the cluster suite run', () => {
  expect(nodeFlags).toEqual(['--heap-growing-percent=50']);
  expect(program).toBe('dist/main.js');
  expect(environment).toEqual({
    NODE_COMPILE_CACHE: '/app/cache',
    NODE_OPTIONS: '--max-semi-space-size=2',
    MALLOC_ARENA_MAX: '2',
  });
});

it('copies every file of deploy/ that the build is made of', () => {
  const copied = /^COPY (deploy\/.+) \.\/deploy\/$/m.exec(build)?.[1]?.split(' ') ?? [];
  const imported = copied.flatMap((file) =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(/ from '\.\/(.+?)';/g)].map(
      ([, name]) => `deploy/${name}`,
    ),
  );
  expect(copied).toContain('deploy/build.ts');
  expect(copied).toEqual(expect.arrayContaining(imported));
});
