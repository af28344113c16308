import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { explainTexts } from '../../src/cli/playground-report.ts';
import { explainReport, playgroundReport } from '../../src/dashboard/index.ts';
import { filesUnder, ROOT } from '../docs/markdown.ts';
import { linger } from './linger.ts';

const explain = (manifest: string, policies = '') => {
  const report = explainTexts({ manifest, policies });
  // Strict: the API answers with exactly what its schema says.
  expect(playgroundReport.parse(report)).toEqual(report);
  return report;
};

const POD = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
    - name: web
      image: web
      ports: [{containerPort: 80}]
`;

describe('a manifest that cannot be read', () => {
  it.each([
    ['wrong indentation', 'apiVersion: v1\nkind: Pod\n  name: x\n', 3],
    ['two values on one line', `${POD}---\na: b: c\n`, 10],
    ['JSON that breaks off', '\n{"kind": "Pod",\n', 2],
    ['no object', '- a\n', 1],
    [
      'a Service whose selector is no map',
      'apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {selector: 5}\n',
      4,
    ],
    ['a key twice', POD.replace('spec:', 'kind: Pod\nspec:'), 4],
    [
      'an API version that is gone',
      `${POD}---\napiVersion: extensions/v1beta1\nkind: Deployment\nmetadata: {name: old}\n`,
      10,
    ],
  ])('%s: the line and the reason', (_, manifest, line) => {
    const [problem, ...more] = explain(manifest).problems;
    expect(more).toEqual([]);
    expect(problem).toMatchObject({ in: 'manifest', line });
    expect(problem?.text).toMatch(/^[^:]{1,12}\S.*\w/);
    expect(problem?.text).not.toMatch(/manifest\.yaml|^linger:|^document/);
  });

  it('leaves the others explained', () => {
    const { plans, problems } = explain(`${POD}---\na: b: c\n`);
    expect(plans).toMatchObject([{ name: 'web', waitSeconds: 30 }]);
    expect(problems).toHaveLength(1);
  });

  it('hostile characters do not reach the page as they are', () => {
    const { problems } = explain('- \u202eabc\u001b[31m: x: y\n');
    expect(JSON.stringify(problems)).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  });
});

it('so many pods that their diff would take long are explained all the same', () => {
  const many = Array.from({ length: 700 }, () => POD).join('---\n');
  const { plans, problems, diff } = explain(many);
  expect([plans.length, diff]).toEqual([700, '']);
  expect(problems).toMatchObject([
    { line: null, text: expect.stringContaining('linger inject --diff') as string },
  ]);
});

describe('a policy', () => {
  const POLICY = 'apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: a}\n';

  it('decides', () => {
    const { plans, problems } = explain(POD, `${POLICY}spec: {wait: {from: Fixed, fixed: 7s}}\n`);
    expect(problems).toEqual([]);
    expect(plans).toMatchObject([
      { waitSeconds: 7, because: 'The wait is declared by ClusterTerminationPolicy/a.' },
    ]);
    expect(plans[0]?.fields).toContainEqual({
      field: 'wait.fixed',
      value: '7s',
      origin: 'ClusterTerminationPolicy/a',
    });
  });

  it('that is wrong has its line and the reason, and the pod is explained without it', () => {
    const { plans, problems } = explain(
      POD,
      `${POLICY}spec: {priority: 1}\n---\n${POLICY.replace('a}', 'b}')}spec: {mode: Wrong}\n`,
    );
    expect(problems).toMatchObject([
      { in: 'policies', line: 9, text: expect.stringContaining('spec.mode') as string },
    ]);
    expect(plans).toHaveLength(1);
  });

  it('that is no YAML has its line', () => {
    expect(explain(POD, `${POLICY}spec: [\n`).problems).toMatchObject([{ in: 'policies', line: 4 }]);
  });

  it('among the manifests does not count, and that is said at its line', () => {
    const { problems } = explain(`${POD}---\n${POLICY}spec: {mode: "Off"}\n`);
    expect(problems).toMatchObject([
      { in: 'manifest', line: 10, text: expect.stringMatching(/move it/) as string },
    ]);
  });
});

describe('the same as in the terminal', () => {
  const manifests = filesUnder('docs/examples').filter((path) => /^docs\/examples\/[^/]+\.yaml$/.test(path));
  const read = (path: string) => readFile(join(ROOT, path), 'utf8');

  it.each(manifests)('%s is explained as by linger explain', async (path) => {
    const policies = 'docs/examples/policies/extend-sleeps.yaml';
    const { stdout } = await linger(['explain', path, '--policies', policies, '-o', 'json']);
    const printed = explainReport.parse(JSON.parse(stdout));
    const { plans } = explain(await read(path), await read(policies));
    const known = plans.map(({ because: _, ...plan }) => ({ ...plan, file: path }));
    expect(known).toEqual(printed.plans);
  });

  it.each(manifests)('%s changes as by linger inject --diff', async (path) => {
    const { stdout } = await linger(['inject', path, '--diff']);
    expect(explain(await read(path)).diff.replaceAll('manifest.yaml', path)).toBe(stdout);
  });
});
