import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, test } from 'vitest';
import { parse } from 'yaml';
import { ROOT } from '../cli/linger.ts';
import { read } from '../docs/markdown.ts';

interface Step {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}
interface Job {
  readonly 'timeout-minutes'?: number;
  readonly permissions?: Readonly<Record<string, string>>;
  readonly needs?: string | readonly string[];
  readonly steps: readonly Step[];
}
interface Workflow {
  readonly on: Readonly<Record<string, unknown>>;
  readonly permissions: object;
  readonly jobs: Readonly<Record<string, Job>>;
}

const FILES = readdirSync(join(ROOT, '.github/workflows')).map((name) => `.github/workflows/${name}`);
const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
const workflowOf = (file: string) => parse(read(file)) as Workflow;

describe.each(FILES)('%s', (file) => {
  const { permissions, jobs } = workflowOf(file);
  const steps = Object.values(jobs).flatMap((job) => job.steps);

  it('pins each action by a commit, and says which version that is', () => {
    const uses = [...read(file).matchAll(/uses: (.+)$/gm)].map(([, action]) => action);
    expect(uses.length).toBeGreaterThan(0);
    for (const action of uses) expect(action).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$/);
  });

  it('gives each job the rights that it names, a bound of time, and checkouts no credentials', () => {
    expect(permissions).toEqual({});
    for (const job of Object.values(jobs)) {
      expect(job.permissions).toBeDefined();
      expect(job['timeout-minutes']).toBeGreaterThan(0);
    }
    for (const { uses = '', with: inputs } of steps)
      if (uses.startsWith('actions/checkout@')) expect(inputs).toEqual({ 'persist-credentials': false });
  });

  it('runs scripts and files that there are', () => {
    const commands = steps.map(({ run = '' }) => run).join('\n');
    const named = [...commands.matchAll(/npm run ([\w:-]+)/g)].map(([, script = '']) => script);
    for (const script of named) expect(scripts).toHaveProperty([script]);
    const paths = [...commands.matchAll(/(?:node|sudo env "PATH=\$PATH") (\S+)/g)].map(
      ([, path = '']) => path,
    );
    for (const { with: inputs } of steps) if (typeof inputs?.file === 'string') paths.push(inputs.file);
    for (const path of paths) expect([path, existsSync(join(ROOT, path))]).toEqual([path, true]);
  });

  it('puts nothing that others choose into a command: a shell takes variables, and no expressions of events', () => {
    for (const { run = '' } of steps) expect(run).not.toMatch(/\$\{\{(?!\s*matrix\.)/);
  });
});

test('one version of each action', () => {
  const pins = new Set(
    FILES.flatMap((file) => [...read(file).matchAll(/uses: (.+)$/gm)].map(([, pin]) => pin)),
  );
  const actions = [...pins].map((pin = '') => pin.split('@')[0]);
  expect(new Set(actions).size).toBe(actions.length);
});

test('nothing is published before everything has been tried', () => {
  const { on, jobs } = workflowOf('.github/workflows/release.yml');
  expect(Object.keys(on)).toEqual(['push']);
  const publishing = Object.entries(jobs).filter(([, { permissions = {} }]) =>
    Object.values(permissions).includes('write'),
  );
  expect(publishing.map(([name]) => name).toSorted()).toEqual(['files', 'images']);
  // The archives are not made where the tag and the versions of the checkout disagree.
  expect(jobs.archives?.steps.map(({ run }) => run)).toContain(
    'node deploy/release.ts archive out --tag "$GITHUB_REF_NAME"',
  );
  for (const [, { needs = [] }] of publishing)
    expect([needs].flat()).toEqual(expect.arrayContaining(['test', 'archives']));
});

test('what is published to npm is a file, and says where its source is, as its provenance does', () => {
  const text = read('.github/workflows/release.yml');
  const published = [...text.matchAll(/npm publish (\S+)/g)].map(([, path]) => path);
  expect(published).toEqual(['./out/*.tgz']);
  expect(text).toContain('--repository "$GITHUB_SERVER_URL/$GITHUB_REPOSITORY"');
});

test('images are built for both architectures, with their bill of materials and provenance', () => {
  const inputs = (file: string) =>
    Object.values(workflowOf(file).jobs)
      .flatMap(({ steps }) => steps)
      .filter(({ uses }) => uses?.startsWith('docker/build-push-action@'))
      .map((step) => step.with);
  const built = { file: 'deploy/Containerfile', platforms: 'linux/amd64,linux/arm64' };
  expect(inputs('.github/workflows/ci.yml')).toMatchObject([built]);
  expect(inputs('.github/workflows/release.yml')).toMatchObject([
    { ...built, sbom: true, provenance: 'mode=max', push: true },
  ]);
});
