import { execFile } from 'node:child_process';
import { chmod, mkdir, readdir, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
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

/** That of $HELM or the PATH, or the one that the testbed has built. */
async function helmOf(): Promise<string | undefined> {
  const { LINGER_CACHE: own, XDG_CACHE_HOME: caches } = process.env;
  const cache = join(own || caches || join(homedir(), '.cache'), 'linger', 'cluster');
  const built = (await readdir(cache).catch(() => [])).filter((name) => name.startsWith('helm-'));
  for (const helm of [process.env.HELM ?? 'helm', ...built.map((name) => join(cache, name, 'helm'))])
    if (await run(helm, ['version', '--short']).then(Boolean, () => false)) return helm;
  return undefined;
}
const helm = await helmOf();

describe('the chart as a dependency, by real helm', () => {
  const LINGER = `name: linger, version: ">=0.0.0-0", repository: "file://${join(ROOT, 'deploy', 'chart')}"`;
  const chart = (name: string, dependencies: string) =>
    `apiVersion: v2\nname: ${name}\nversion: 1.0.0\ndependencies: [${dependencies}]\n`;

  /** How often its webhook is installed, or why it is not. */
  async function rendered(dependency: string, values: string, namespace = 'platform') {
    const folder = await files({
      'middle/Chart.yaml': chart('middle', `{${LINGER}, condition: linger.enabled}`),
      'umbrella/Chart.yaml': chart('umbrella', dependency),
      'umbrella/values.yaml': values,
    });
    for (const each of dependency.includes('name: middle') ? ['middle', 'umbrella'] : ['umbrella'])
      await run(helm ?? '', ['dependency', 'build', join(folder, each)]);
    return run(helm ?? '', ['template', 'umbrella', join(folder, 'umbrella'), '-n', namespace]).then(
      ({ stdout }) => stdout.split('kind: MutatingWebhookConfiguration').length - 1,
      ({ stderr }: { stderr: string }) => stderr,
    );
  }

  const CONDITION = `{${LINGER}, condition: linger.enabled}`;
  const TAG = `{${LINGER}, tags: [platform]}`;
  const ALIAS = `{${LINGER}, alias: drain, condition: drain.enabled}`;
  const NESTED = '{name: middle, version: ">=0", repository: "file://../middle"}';
  // Without helm there is nothing to render with.
  it.skipIf(helm === undefined).each([
    ['enabled', CONDITION, 'linger: {enabled: true}\nglobal: {team: a}\n', 1],
    ['without a word', CONDITION, 'global: {team: a}\n', 1],
    ['disabled', CONDITION, 'linger: {enabled: false}\n', 0],
    ['with values of its own', CONDITION, 'linger: {enabled: true, mode: Audit}\n', 1],
    [
      'beside charts with globals of theirs',
      CONDITION,
      'global: {imageRegistry: r, imagePullSecrets: [a], storageClass: "", postgresql: {auth: {}}, linger: {a: [1]}}\n',
      1,
    ],
    ['with globals for it alone', CONDITION, 'linger: {global: {x: 1}}\n', 1],
    ['by a tag', TAG, 'tags: {platform: true}\n', 1],
    ['by a tag that is off', TAG, 'tags: {platform: false}\n', 0],
    ['by another name', ALIAS, 'drain: {enabled: true, replicas: 3}\n', 1],
    ['by another name, disabled', ALIAS, 'drain: {enabled: false}\n', 0],
    ['of a dependency', NESTED, 'middle: {linger: {enabled: true}}\nglobal: {team: a}\n', 1],
    ['of a dependency, disabled', NESTED, 'middle: {linger: {enabled: false}}\n', 0],
    ['of a dependency, with values', NESTED, 'middle: {linger: {replicas: 3}, global: {x: 1}}\n', 1],
  ])('%s', async (_, dependency, values, expected) => {
    expect(await rendered(dependency, values)).toBe(expected);
  });

  it.skipIf(helm === undefined).each([
    ['a value that there is not', CONDITION, 'linger: {replica: 3}\n', 'platform', /'replica' not allowed/],
    ['one two deep', NESTED, 'middle: {linger: {mode: Nope}}\n', 'platform', /mode/],
    ['kube-system', CONDITION, 'x: 1\n', 'kube-system', /--namespace kube-system: Linger may patch/],
    ['kube-system two deep', NESTED, 'x: 1\n', 'kube-system', /--namespace kube-system: Linger may patch/],
    ['kube-system by another name', ALIAS, 'x: 1\n', 'kube-system', /--namespace kube-system: Linger/],
  ])('refuses %s', async (_, dependency, values, namespace, why) => {
    expect(await rendered(dependency, values, namespace)).toMatch(why);
  });
});
