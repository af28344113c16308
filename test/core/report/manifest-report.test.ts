import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { JudgedManifests, POLICIES } from '../../../src/core/report/index.ts';
import { auditReport, explainReport } from '../../../src/dashboard/index.ts';
import { linger } from '../../cli/linger.ts';
import { filesUnder, ROOT } from '../../docs/markdown.ts';

const FILE = 'manifest.yaml';
const judge = (text: string, policies = '') => new JudgedManifests([{ name: FILE, text }], policies);
const detailsOf = (judged: JudgedManifests) =>
  judged.report.rows.map(({ address }) => judged.detail(address)!);

const POD = `apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
    - name: web
      image: web
      ports: [{containerPort: 80}]
`;
const SERVICE = `---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
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
    const [problem, ...more] = judge(manifest).report.problems;
    expect(more).toEqual([]);
    expect(problem).toMatchObject({ file: FILE, line });
    expect(problem?.text).toMatch(/^[^:]{1,12}\S.*\w/);
    expect(problem?.text).not.toMatch(/manifest\.yaml|^linger:|^document/);
  });

  it('leaves the others judged', () => {
    const judged = judge(`${POD}---\na: b: c\n`);
    expect(detailsOf(judged)).toMatchObject([{ plan: { name: 'web', waitSeconds: 30 } }]);
    expect(judged.report.problems).toHaveLength(1);
  });

  it('hostile characters do not reach the page as they are', () => {
    const { problems } = judge('- \u202eabc\u001b[31m: x: y\n').report;
    expect(JSON.stringify(problems)).not.toMatch(/[\p{Cc}\p{Cf}]/u);
  });
});

describe('the headline', () => {
  const deployment = (name: string, app: string) =>
    `---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: ${name}, namespace: NS}\nspec:\n  replicas: 2\n  template:\n    metadata: {labels: {app: ${app}}}\n    spec: {containers: [{name: app, image: a, ports: [{containerPort: 80}]}]}\n`;
  const job =
    '---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: once}\nspec: {template: {spec: {containers: [{name: a, image: a}]}}}\n';
  const inNamespace = (text: string, namespace: string) => text.replaceAll('NS', namespace);

  it.each([
    ['', 'No workload yet'],
    [POD + SERVICE, '1 of 1 loses requests when it rolls'],
    [POD, '0 of 1 lose requests when they roll; 1 is assumed to'],
    [job, '0 of 1 lose requests when they roll; 1 is fine'],
    [
      POD + SERVICE + inNamespace(deployment('a', 'a') + deployment('b', 'b'), 'other') + job,
      '1 of 4 loses requests when it rolls; 2 are assumed to; 1 is fine',
    ],
  ])('of case %#', (text, headline) => {
    expect(judge(text).report.headline).toBe(headline);
  });

  it('says what is assumed', () => {
    const { basis } = judge(POD + SERVICE).report;
    expect(basis.join(' ')).toMatch(/How long is assumed: nothing is measured/);
  });

  it('costs no drain while nothing waits, and with Linger the wait', () => {
    const judged = judge(POD + SERVICE);
    const { before, after } = judged.whatIf({});
    expect([before.drainSeconds, after.drainSeconds]).toEqual([0, 30]);
  });

  it('says how many each basis is of, where there are several', () => {
    const consumer =
      'apiVersion: linger.dev/v1alpha1\nkind: DiscoveryConsumer\nmetadata: {name: edge}\nspec: {appliesTo: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}}, measure: {declared: {lag: 20s}}}\n';
    const served = (namespace: string) =>
      (POD + SERVICE).replaceAll('{name: web', `{namespace: ${namespace}, name: web`);
    const { basis } = judge([served('shop'), served('mail'), served('chat')].join('---\n'), consumer).report;
    expect(basis.filter((text) => text.startsWith('How long'))).toEqual([
      expect.stringMatching(/^How long is declared by edge.* \(1 of them\)\.$/),
      expect.stringMatching(/^How long is assumed.* \(2 of them\)\.$/),
    ]);
  });
});

describe('a policy', () => {
  const POLICY = 'apiVersion: linger.dev/v1alpha1\nkind: ClusterTerminationPolicy\nmetadata: {name: a}\n';

  it('decides', () => {
    const judged = judge(POD, `${POLICY}spec: {wait: {from: Fixed, fixed: 7s}}\n`);
    expect(judged.report.problems).toEqual([]);
    const [detail] = detailsOf(judged);
    expect(detail).toMatchObject({
      plan: { waitSeconds: 7 },
      because: 'The wait is declared by ClusterTerminationPolicy/a.',
    });
    const origin = 'ClusterTerminationPolicy/a';
    expect(detail?.plan.fields).toContainEqual({ field: 'wait.fixed', value: '7s', origin });
  });

  it('that is wrong has its line and the reason, and the pod is judged without it', () => {
    const wrong = `${POLICY}spec: {priority: 1}\n---\n${POLICY.replace('a}', 'b}')}spec: {mode: Wrong}\n`;
    const { problems, summary } = judge(POD, wrong).report;
    expect(problems).toMatchObject([
      { file: POLICIES, line: 9, text: expect.stringContaining('spec.mode') as string },
    ]);
    expect(summary.workloads).toBe(1);
  });

  it('that is no YAML has its line', () => {
    expect(judge(POD, `${POLICY}spec: [\n`).report.problems).toMatchObject([{ file: POLICIES, line: 4 }]);
  });

  it('among the manifests does not count, and that is said at its line', () => {
    expect(judge(`${POD}---\n${POLICY}spec: {mode: "Off"}\n`).report.problems).toMatchObject([
      { file: FILE, line: 10, text: expect.stringMatching(/move it/) as string },
    ]);
  });

  it('to apply: Audit first, then Enforce, for the namespaces at hand alone', () => {
    const { before, after, audit, enforce } = judge(POD + SERVICE).whatIf({
      wait: { from: 'Fixed', fixed: '9s' },
    });
    expect([before.verdicts.unprotected, after.verdicts.protected]).toEqual([1, 1]);
    expect(enforce).toBe(audit.replace('mode: Audit', 'mode: Enforce'));
    expect(audit).toContain('values:\n          - default\n');
    expect(audit).not.toContain('priority');
    // What is printed is a policy that can be applied, and decides.
    const [detail] = detailsOf(judge(POD + SERVICE, enforce));
    expect(detail?.plan).toMatchObject({ waitSeconds: 9, mode: 'Enforce' });
  });
});

describe('one workload', () => {
  it('has the patch of its document alone, with its comments', () => {
    const text = `${POD}# kept\n---\n${POD.replaceAll('web', 'api')}`;
    const judged = judge(text);
    const [web, api] = detailsOf(judged);
    expect(web?.patch?.after).toContain('# kept');
    expect(web?.patch?.after).toContain('terminationGracePeriodSeconds: 60');
    expect(web?.patch?.after).not.toContain('name: api');
    expect((web?.patch?.after ?? '') + (api?.patch?.after ?? '')).toBe(judged.patched()[0]?.text);
  });

  it('has pictures of its termination: as it is, and with the patch', () => {
    const [detail] = detailsOf(judge(POD + SERVICE));
    expect(detail?.charts.map(({ summary }) => summary)).toEqual([
      'SIGTERM after 0 s: requests are lost for up to 30 s.',
      'SIGTERM after 30 s: everything has dropped the pod by then.',
    ]);
    expect(detail?.charts[0]?.lanes[0]).toMatchObject({ note: '30 s (assumed)' });
  });
});

describe('the same as in the terminal', () => {
  const manifests = filesUnder('docs/examples').filter((path) => /^docs\/examples\/[^/]+\.yaml$/.test(path));
  const read = (path: string) => readFile(join(ROOT, path), 'utf8');
  const policies = 'docs/examples/policies/extend-sleeps.yaml';
  const judged = async (path: string, under = '') =>
    new JudgedManifests([{ name: path, text: await read(path) }], under);

  it.each(manifests)('%s is explained as by linger explain', async (path) => {
    const { stdout } = await linger(['explain', path, '--policies', policies, '-o', 'json']);
    const printed = explainReport.parse(JSON.parse(stdout));
    const details = detailsOf(await judged(path, await read(policies)));
    const plans = printed.plans.map((each) => {
      const { file: _, line: __, ...plan } = each as typeof each & { file: string; line: number };
      return plan;
    });
    expect(details.map(({ plan }) => plan)).toEqual(plans);
  });

  it.each(manifests)('%s is judged as by linger audit', async (path) => {
    const { stdout } = await linger(['audit', '-f', path, '-o', 'json']);
    const { rows, summary } = (await judged(path)).report;
    expect({ findings: rows.flatMap(({ findings }) => findings), summary }).toEqual(
      auditReport.parse(JSON.parse(stdout)),
    );
  });

  it.each(manifests)('%s changes as by linger inject', async (path) => {
    const { stdout } = await linger(['inject', path]);
    expect((await judged(path)).patched()[0]?.text).toBe(stdout);
  });
});
