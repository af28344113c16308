import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { containerRuntime } from '../../bench/containerfile.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const { nodeFlags, program, environment, warmUps, files } = containerRuntime(ROOT);
const text = readFileSync(join(ROOT, 'deploy', 'Containerfile'), 'utf8');
const stages = new Map(
  text
    .split(/^FROM /m)
    .slice(1)
    .map((stage) => [/^.+ AS (\w+)$/m.exec(stage.split('\n')[0] ?? '')?.[1] ?? 'final', stage]),
);
const stage = (name: string) => stages.get(name) ?? '';
const [build, compile, final] = [stage('build'), stage('compile'), stage('final')];

it('fills the compile cache with the very command that runs later', () => {
  // V8 takes no compiled code that was made with other flags.
  const runs = [...compile.matchAll(/^RUN (.*)\bnode (.*?) serve .* (.+)$/gm)];
  const filled = runs.map(([, , words]) => words);
  expect(new Set(filled)).toEqual(new Set([[...nodeFlags, program].join(' ')]));
  expect(warmUps).toHaveLength(filled.length);
  for (const [, how, , end] of runs) {
    // The two architectures are built at the same time, and in one network one of them could not listen.
    expect(how).toBe('--network=none ');
    // One that failed has compiled next to nothing: then there is to be no image.
    expect(end).toBe('$!');
  }
  // With the parts that only a server with a cluster has.
  for (const words of warmUps) expect(Object.keys(files)).toContain(words[words.indexOf('--kubeconfig') + 1]);
  const settings = (stage: string) => /^ENV .+$/m.exec(stage)?.[0];
  expect(settings(compile)).toBe(settings(final));
  expect(compile.indexOf('\nENV ')).toBeLessThan(compile.indexOf('\nRUN --network=none node'));
  // Node takes what was compiled for its own user only.
  const user = (stage: string) => /^USER .+$/m.exec(stage)?.[0];
  expect(user(compile)).toBe(user(final));
  expect(compile.indexOf('\nUSER ')).toBeLessThan(compile.indexOf('\nRUN --network=none node'));
});

it('pins its bases by digest, and takes Node from the image that has compiled for it', () => {
  const bases = [...text.matchAll(/^FROM (?:--platform=\S+ )?(\S+)/gm)].map(([, base = '']) => base);
  for (const base of bases.filter((each) => each !== 'scratch'))
    expect(base).toMatch(/:[\w-]+@sha256:[0-9a-f]{64}$/);
  const node = bases.filter((base) => base.startsWith('node:'));
  expect(new Set(node).size).toBe(1);
  // The bundle is built where it is fast, and compiled for where it runs.
  expect(build).toMatch(/^--platform=\$BUILDPLATFORM /);
  expect(compile).not.toContain('--platform');
});

it('is read by the builder’s own frontend: none is fetched by a tag that can be moved', () => {
  expect(text).not.toMatch(/^#\s*syntax\s*=/im);
});

it('has no shell, and no root', () => {
  expect(final).toMatch(/^gcr\.io\/distroless\/cc-debian12:nonroot@/);
  expect(/^USER (.+)$/m.exec(final)?.[1]).toBe('65532:65532');
});

it('the helper’s image holds the helper of each architecture, and nothing else', () => {
  expect(stage('helper')).toContain('scratch');
  const [, source = ''] = /^COPY (\S+) \/hold$/m.exec(stage('helper')) ?? [];
  for (const architecture of ['amd64', 'arm64'])
    expect(existsSync(join(ROOT, source.replace('$TARGETARCH', architecture)))).toBe(true);
});

it('ships nothing that was generated at build time but the program and its compile cache', () => {
  const copied = [...final.matchAll(/^COPY (.+)$/gm)].map(([, what]) => what);
  expect(copied).toEqual([
    '--from=compile /usr/local/bin/node /usr/local/bin/node',
    'package.json /app/',
    '--from=build /app/dist ./dist',
    '--from=compile --chown=65532:65532 /app/cache ./cache',
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
