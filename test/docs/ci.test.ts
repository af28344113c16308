import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { emptyDirectory, pathWithLinger, run } from '../cli/linger.ts';
import { blocksOf, read } from './markdown.ts';

const PAGE = 'docs/service.md';
const GOOD = read('docs/examples/web.yaml');
// Every pod ends before another begins: no wait helps.
const BAD = GOOD.replace('  replicas: 3\n', '  replicas: 3\n  strategy: {type: Recreate}\n');

const blocks = blocksOf(PAGE);

/** The one file on the page with this text. */
function fileWith<T>(text: string): T {
  const [file, ...more] = blocks.filter((block) => block.language === 'yaml' && block.text.includes(text));
  expect(more).toEqual([]);
  return parse(file?.text ?? '') as T;
}

/** Where a pipeline would run: `k8s` with manifests, and `linger` on the PATH. */
async function checkout(manifest: string) {
  const cwd = await emptyDirectory();
  await mkdir(join(cwd, 'k8s'));
  await writeFile(join(cwd, 'k8s', 'web.yaml'), manifest);
  const PATH = await pathWithLinger();
  return {
    cwd,
    read: (file: string) => readFile(join(cwd, file), 'utf8'),
    sh: (command: string, env: Record<string, string> = {}) =>
      run('sh', ['-ec', command], { cwd, env: { ...env, PATH } }),
  };
}

const isOurs = (command: string | undefined) => command?.startsWith('linger ') ?? false;

const INSTALL = /^npm install --global \S+\/linger-(\S+)\.tgz$/;

test('pipelines install the version that npm pack would make', () => {
  const versions = blocks.flatMap(({ text }) =>
    text.split('\n').flatMap((line) => INSTALL.exec(line.replace(/^[ -]+(run: )?/, ''))?.[1] ?? []),
  );
  const { version } = JSON.parse(read('package.json')) as { version: string };
  expect(versions).toEqual([version, version]);
});

describe('GitHub Actions', () => {
  const { steps } = fileWith<{ jobs: { audit: { steps: Record<string, unknown>[] } } }>('runs-on').jobs.audit;
  const [annotate = '', report = ''] = steps.map(({ run: line }) => String(line)).filter(isOurs);

  test('what passes is annotated with nothing', async () => {
    const { sh } = await checkout(GOOD);
    expect(await sh(annotate)).toEqual({ code: 0, stdout: '', stderr: '' });
  });

  test('what fails is annotated at its line, and uploaded all the same', async () => {
    const { sh, read: readIn } = await checkout(BAD);
    const { code, stdout } = await sh(annotate);
    expect({ code, stdout }).toEqual({
      code: 3,
      stdout: expect.stringMatching(
        /^::warning file=k8s\/web\.yaml,line=1,title=NoOtherEndpoint::/,
      ) as string,
    });
    const upload = steps.find(({ uses }) => /upload-sarif/.test(String(uses)));
    expect(upload).toMatchObject({ if: 'always()', with: { sarif_file: 'linger.sarif' } });
    expect((await sh(report)).code).toBe(0);
    const { runs } = JSON.parse(await readIn('linger.sarif')) as {
      runs: { results: { locations: object[] }[] }[];
    };
    expect(runs[0]?.results[0]?.locations[0]).toMatchObject({
      physicalLocation: { artifactLocation: { uri: 'k8s/web.yaml' } },
    });
  });
});

describe('GitLab', () => {
  const { linger } = fileWith<{
    linger: { script: string[]; artifacts: { when: string; reports: { junit: string } } };
  }>('junit: linger.xml');

  test.each([
    ['passes', GOOD, 0, 'failures="0"'],
    ['fails', BAD, 3, 'failures="1"'],
  ])('what %s leaves its report', async (_, manifest, expected, failures) => {
    const { sh, read: readIn } = await checkout(manifest);
    const { code } = await sh(linger.script.filter(isOurs).join('\n'));
    expect(code).toBe(expected);
    expect(linger.artifacts.when).toBe('always');
    expect(await readIn(linger.artifacts.reports.junit)).toContain(failures);
  });
});

test('pre-commit: the entry fails a commit that would lose requests', async () => {
  const [hook] = fileWith<{
    repos: { hooks: { entry: string; files: string; pass_filenames: boolean }[] }[];
  }>('pass_filenames').repos.flatMap(({ hooks }) => hooks);
  const { sh } = await checkout(BAD);
  expect(hook?.pass_filenames).toBe(false);
  expect('k8s/web.yaml').toMatch(new RegExp(hook?.files ?? '$^'));
  expect((await sh(hook?.entry ?? '')).code).toBe(3);
});

test('Helm: the plugin on the page is that of the examples', () => {
  const file = parse(read('examples/helm-post-renderer/plugin.yaml')) as unknown;
  expect(fileWith('postrenderer/v1')).toEqual(file);
});

test('Argo CD: the plugin prints the manifests with their waits', async () => {
  const { spec } = fileWith<{ spec: { generate: { command: string[]; args: string[] } } }>(
    'ConfigManagementPlugin',
  );
  const { sh } = await checkout(GOOD);
  expect(spec.generate.command).toEqual(['sh', '-c']);
  const { code, stdout } = await sh(spec.generate.args[0] ?? '', { ARGOCD_APP_NAMESPACE: 'shop' });
  expect(code).toBe(0);
  expect(stdout).toContain('seconds: 30');
  expect(stdout).toContain('kind: Service');
});

test('Flux: the check fails until the waits are committed, and then passes', async () => {
  const check = blocks.find(({ text }) => text.includes('git diff'))?.text ?? '';
  const { sh } = await checkout(GOOD);
  const commit = 'git add . && git -c user.name=a -c user.email=a@example.org commit --quiet --message=a';
  expect((await sh(`git init --quiet && ${commit}`)).code).toBe(0);
  expect((await sh(check)).code).toBe(1);
  expect((await sh(`${commit}\n${check}`.replace('git add .', 'git add --update'))).code).toBe(0);
});
