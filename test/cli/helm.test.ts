import { execFile } from 'node:child_process';
import { chmod, mkdir, writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { emptyDirectory, ROOT, shipped } from './linger.ts';

const POD = 'spec: {containers: [{name: a, ports: [{containerPort: 80}]}]}';
const deployment = (name: string) =>
  `apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: ${name}}\nspec: {replicas: 2, template: {${POD}}}\n`;

async function files(of: Readonly<Record<string, string>>): Promise<string> {
  const folder = await emptyDirectory();
  for (const [name, text] of Object.entries(of)) {
    await mkdir(join(folder, dirname(name)), { recursive: true });
    await writeFile(join(folder, name), text);
  }
  return folder;
}

const CHART = {
  'repo/shop/Chart.yaml': 'apiVersion: v2\nname: store\nversion: 1.0.0\n',
  'repo/shop/values.yaml': 'x: {{ not yaml }}\n',
  'repo/shop/templates/web.yaml': '{{ template }}\n',
  'repo/plain.yaml': deployment('plain'),
};

/** A PATH with a program that stands for helm: what audits do with its output and its exit is the subject. */
async function pathWith(script: string): Promise<string> {
  const folder = await files({ helm: `#!/bin/sh\n${script}\n` });
  await chmod(join(folder, 'helm'), 0o755);
  return `${folder}${delimiter}/usr/bin${delimiter}/bin`;
}

async function audited(of: Readonly<Record<string, string>>, path: string, ...flags: readonly string[]) {
  const cwd = await files(of);
  const args = ['audit', '--webhook', '-R', '-f', 'repo', '-o', 'json', ...flags];
  const { code, stdout, stderr } = await shipped(args, { cwd, env: { PATH: path } });
  const { findings } = JSON.parse(stdout) as AuditReport;
  return { code, stderr, rows: findings.map(({ name, verdict, file }) => `${name} ${verdict} ${file}`) };
}

describe('a Helm chart among manifests', () => {
  it('is rendered, and its workloads stand in its templates', async () => {
    const rendered = `---\n# Source: store/templates/web.yaml\n${deployment('web')}---\n# Source: store/charts/db/templates/db.yaml\n${deployment('db')}`;
    const path = await pathWith(`cat <<'END'\n${rendered}END`);
    const { code, rows, stderr } = await audited(CHART, path);
    expect([code, rows]).toEqual([
      0,
      [
        'plain protected repo/plain.yaml',
        'web protected repo/shop/templates/web.yaml',
        'db protected repo/shop/charts/db/templates/db.yaml',
      ],
    ]);
    expect(stderr).toContain('repo/shop is a Helm chart: rendered with helm template repo/shop');
  });

  it('that cannot be rendered is named, with what helm says, and the rest is judged', async () => {
    const path = await pathWith('echo "found in Chart.yaml, but missing in charts/: db" >&2; exit 1');
    const { code, rows, stderr } = await audited(CHART, path);
    expect([code, rows]).toEqual([1, ['plain protected repo/plain.yaml']]);
    expect(stderr).toContain('helm template repo/shop: found in Chart.yaml, but missing in charts/: db');
  });

  it('is named where there is no helm', async () => {
    const { code, stderr } = await audited(CHART, '/nowhere');
    expect([code, stderr]).toEqual([1, expect.stringContaining('render it first (helm template repo/shop)')]);
  });

  it('helm reaches no network: neither by a proxy nor by git', async () => {
    const path = await pathWith('echo "$HTTPS_PROXY $GIT_ALLOW_PROTOCOL" >&2; exit 1');
    expect((await audited(CHART, path)).stderr).toContain('http://127.0.0.1:1 none');
  });

  it('a library renders nothing, and that is no fault', async () => {
    const of = { ...CHART, 'repo/shop/Chart.yaml': 'name: lib\nversion: 1.0.0\ntype: library\n' };
    const { code, rows } = await audited(of, '/nowhere');
    expect([code, rows]).toEqual([0, ['plain protected repo/plain.yaml']]);
  });

  it('inject does not render it', async () => {
    const cwd = await files(CHART);
    const env = { PATH: await pathWith('echo rendered >&2') };
    const { stderr } = await shipped(['inject', '--in-place', '-R', '-f', 'repo'], { cwd, env });
    expect(stderr).toContain('render it first');
  });
});

const run = promisify(execFile);
const HELM = process.env.HELM ?? 'helm';
const hasHelm = await run(HELM, ['version', '--short']).then(
  () => true,
  () => false,
);

describe('the chart as a dependency, by real helm', () => {
  // Without helm on the PATH (or in $HELM) there is nothing to render with.
  it.skipIf(!hasHelm).each([
    ['enabled', 'linger: {enabled: true}\nglobal: {team: a}\n', true],
    ['without a word', 'global: {team: a}\n', true],
    ['disabled', 'linger: {enabled: false}\n', false],
  ])('%s', async (_, values, isThere) => {
    const chart = join(ROOT, 'deploy', 'chart');
    const folder = await files({
      'umbrella/Chart.yaml': `apiVersion: v2\nname: umbrella\nversion: 1.0.0\ndependencies: [{name: linger, version: ">=0.0.0-0", repository: "file://${chart}", condition: linger.enabled}]\n`,
      'umbrella/values.yaml': values,
    });
    const umbrella = join(folder, 'umbrella');
    await run(HELM, ['dependency', 'build', umbrella]);
    const { stdout } = await run(HELM, ['template', 'umbrella', umbrella]);
    expect(stdout.includes('kind: MutatingWebhookConfiguration')).toBe(isThere);
  });
});
