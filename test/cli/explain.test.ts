import { symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { EXPLAINED } from '../../src/core/report/index.ts';
import type { ExplainReport } from '../../src/dashboard/index.ts';
import type { JsonObject } from '../core/decision/sample-pod.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger, ROOT } from './linger.ts';
import { DEPLOYMENT, JOB, POD, POLICY } from './manifests.ts';

const atEnd = atEndOfFile();
const ANNOTATED = DEPLOYMENT.replace(
  '      labels: {app:   web}\n',
  '      labels: {app: web}\n      annotations: {linger.dev/wait: 20s, linger.dev/hook: Magic}\n',
);

async function explain(stdin: string, args: readonly string[] = []) {
  const policies = join(await emptyDirectory(atEnd), 'base.yaml');
  await writeFile(policies, POLICY);
  return linger(['explain', '--policies', policies, ...args], { stdin });
}

interface Explained {
  readonly plans: readonly (JsonObject & { fields: readonly JsonObject[]; notes: readonly JsonObject[] })[];
}

async function plansOf(stdin: string, args: readonly string[] = []): Promise<Explained['plans']> {
  const { code, stdout } = await explain(stdin, ['--output', 'json', ...args]);
  expect(code).toBe(0);
  const explained = JSON.parse(stdout) as Explained;
  expect(Object.keys(explained)).toEqual(['plans']);
  return explained.plans;
}

describe.concurrent('linger explain', () => {
  it('says for people what is decided, where each value comes from, and what was ignored', async () => {
    const { code, stdout } = await explain(`${ANNOTATED}---\n${JOB}`);
    expect(code).toBe(0);
    expect(stdout).toBe(`\
Deployment shop/web
  outcome  inject
  wait     45s (declared by ClusterTerminationPolicy/base)
  grace    30s → 75s
  hook     Sleep in app
  policy
    wait.from       Fixed  ClusterTerminationPolicy/base; Fixed from Pod linger.dev/wait ignored: overrides.pods
    wait.fixed      45s    ClusterTerminationPolicy/base; 20s from Pod linger.dev/wait ignored: overrides.pods
    overrides.pods  false  ClusterTerminationPolicy/base
  all other fields are built-in
  note InvalidAnnotation: Pod: linger.dev/hook: expected Auto, Sleep, Exec or Hold, got "Magic"; ignored
  note OverrideIgnored: wait.from, wait.fixed from Pod linger.dev/wait are ignored: overrides.pods is false (ClusterTerminationPolicy/base)

Job shop/migrate
  outcome  skip: Job
  why      Pods of Jobs are excluded: no traffic is routed to them, and a native sleep outlives a container that has already exited (kubernetes#134338).
  policy
    wait.from       Fixed  ClusterTerminationPolicy/base
    wait.fixed      45s    ClusterTerminationPolicy/base
    overrides.pods  false  ClusterTerminationPolicy/base
  all other fields are built-in

2 workloads: 1 inject, 1 skip (1 Job)
`);
  });

  it('--output json, an injection: the members that are promised, and their types', async () => {
    const [plan] = await plansOf(ANNOTATED);
    const { fields, notes, ...rest } = plan ?? { fields: [], notes: [] };
    expect(rest).toMatchObject({
      kind: 'Deployment',
      namespace: 'shop',
      name: 'web',
      outcome: 'inject',
      mode: 'Enforce',
      reason: null,
      waitSeconds: 45,
      graceSeconds: 75,
      hook: 'Sleep',
      containers: ['app'],
    });
    expect(fields).toContainEqual({ field: 'wait.percentile', value: 99, origin: 'built-in' });
    expect(fields).toContainEqual({ field: 'grace.max', value: '10m', origin: 'built-in' });
    expect(fields).toContainEqual({ field: 'exclude', value: ['Job', 'DaemonSet'], origin: 'built-in' });
    expect(fields).toContainEqual({
      field: 'wait.fixed',
      value: '45s',
      origin: 'ClusterTerminationPolicy/base',
      ignored: [{ value: '20s', origin: 'Pod linger.dev/wait', because: 'overrides.pods' }],
    });
    expect(fields.map(({ field }) => field)).toEqual([...new Set(fields.map(({ field }) => field))]);
    expect(notes.map(({ code }) => code)).toEqual(['InvalidAnnotation', 'OverrideIgnored']);
    for (const each of notes) expect(Object.keys(each)).toEqual(['code', 'text']);
  });

  it('--output json, a skip: what does not exist is null or empty', async () => {
    expect(await plansOf(JOB)).toEqual([
      expect.objectContaining({
        kind: 'Job',
        namespace: 'shop',
        name: 'migrate',
        outcome: 'skip',
        mode: 'Enforce',
        reason: 'Job',
        waitSeconds: null,
        graceSeconds: null,
        hook: null,
        containers: [],
        notes: [],
      }),
    ]);
  });

  it('--output json, nothing to explain: an empty list, and a word about it', async () => {
    const { code, stdout, stderr } = await explain('', ['--output', 'json']);
    expect([code, JSON.parse(stdout)]).toEqual([0, { plans: [] }]);
    expect(stderr).toMatch(/no Pod or workload/);
  });

  it('--output yaml says the same', async () => {
    const { stdout } = await explain(ANNOTATED, ['--output', 'yaml']);
    expect(parse(stdout)).toEqual({ plans: await plansOf(ANNOTATED) });
  });

  it('--mode-limit caps every mode, and the origin says so', async () => {
    const [plan] = await plansOf(DEPLOYMENT, ['--mode-limit', 'audit']);
    expect(plan?.mode).toBe('Audit');
    expect(plan?.fields[0]).toMatchObject({ field: 'mode', value: 'Audit', origin: 'flag --mode-limit' });
    const [off] = await plansOf(DEPLOYMENT, ['--mode-limit', 'Off']);
    expect([off?.outcome, off?.reason]).toEqual(['skip', 'ModeOff']);
  });

  it('--namespace is that of the objects that name none', async () => {
    const plans = await plansOf(`${JSON.stringify(POD)}`, ['--namespace', 'team']);
    expect(plans.map(({ namespace }) => namespace)).toEqual(['team']);
  });

  it('reads several files', async () => {
    const directory = await emptyDirectory(atEnd);
    await writeFile(join(directory, 'a.yaml'), DEPLOYMENT);
    await writeFile(join(directory, 'b.json'), JSON.stringify(POD));
    const { stdout } = await linger(['explain', join(directory, 'a.yaml'), join(directory, 'b.json')]);
    expect(stdout.split('\n').filter((line) => /^\w/.test(line))).toEqual([
      'Deployment shop/web',
      'Pod default/web',
      '2 workloads: 2 inject, 0 skip',
    ]);
  });
});

describe.concurrent('linger explain --fail-on', () => {
  it.each([
    ['nothing', [], 0],
    ['a reason that occurs', ['--fail-on', 'Job'], 3],
    ['a reason that does not', ['--fail-on', 'NotServing'], 0],
    ['a note that occurs', ['--fail-on', 'InvalidAnnotation'], 3],
    ['several, with commas', ['--fail-on', 'NotServing,OverrideIgnored'], 3],
    ['any skip', ['--fail-on', 'skip'], 3],
  ])('%s', async (_what, args, expected) => {
    const { code, stdout } = await explain(`${ANNOTATED}---\n${JOB}`, args);
    expect(code).toBe(expected);
    expect(stdout).toContain('Deployment shop/web');
  });

  it('a finding that only an audit reports would never be found: exit 2, with the way out', async () => {
    const { code, stdout, stderr } = await explain(JOB, ['--fail-on', 'skip,NotInjected']);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toBe(
      'linger: --fail-on: explain never reports NotInjected: use linger audit --fail-on NotInjected [settings-invalid]\n',
    );
  });

  it('knows all codes that it reports', async () => {
    const args = ['-R', '-f', join(ROOT, 'test/testdata/audit'), '-f', join(ROOT, 'test/testdata/cases')];
    const { stdout } = await linger(['explain', '-o', 'json', ...args]);
    const { plans } = JSON.parse(stdout) as ExplainReport;
    const codes = new Set(plans.flatMap(({ notes }) => notes.map(({ code }) => code)));
    // Of the judge, not of the decision.
    expect([...codes]).toEqual(expect.arrayContaining(['HookTooShort', 'NeverWithdrawn', 'NoOtherEndpoint']));
    expect([...codes].filter((code) => !EXPLAINED.includes(code))).toEqual([]);
  });

  it('an unknown code would never be found: exit 2', async () => {
    const { code, stdout, stderr } = await explain(JOB, ['--fail-on', 'NotServng']);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(
      /^linger: --fail-on: expected some of .*NotServing.*, got "NotServng" \[settings-invalid\]\n$/,
    );
  });

  it('a manifest that is not there is no object of the cluster', async () => {
    const { code, stderr } = await linger(['explain', 'deploy/web.yaml'], { env: { KUBECONFIG: '/none' } });
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^linger: deploy\/web\.yaml: cannot be read /)]);
  });

  it('a kustomization that cannot be read is named', async () => {
    const folder = await emptyDirectory(atEnd);
    await symlink(join(folder, 'nowhere'), join(folder, 'kustomization.yaml'));
    const { code, stderr } = await linger(['explain', '-f', folder]);
    expect([code, stderr]).toEqual([
      1,
      expect.stringMatching(/kustomization\.yaml: cannot be read .*\[manifest-invalid\]\n$/),
    ]);
  });

  it('a manifest that cannot be read is no finding: exit 1', async () => {
    const { code, stdout } = await explain('a: [', ['--fail-on', 'skip']);
    expect([code, stdout]).toEqual([1, '']);
  });
});
