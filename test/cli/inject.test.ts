import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../core/decision/sample-pod.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { emptyDirectory, linger, ROOT, run } from './linger.ts';
import { DEPLOYMENT, INJECTED_DEPLOYMENT, JOB, POD, POLICY, SERVICE, UNTOUCHED } from './manifests.ts';

const atEnd = atEndOfFile();

/** Writes the files into a new directory; returns their paths in the same order. */
async function filesOf(...texts: string[]): Promise<string[]> {
  const directory = await emptyDirectory(atEnd);
  return Promise.all(
    texts.map(async (text, index) => {
      const path = join(directory, `${index}.${text.startsWith('{') ? 'json' : 'yaml'}`);
      await writeFile(path, text);
      return path;
    }),
  );
}

const bigPods = (count: number) =>
  Array.from({ length: count }, (_, index) =>
    [
      '---',
      'apiVersion: v1',
      'kind: Pod',
      `metadata: {name: web-${index}}`,
      'spec:',
      '  containers:',
      '    - name: app',
      '      ports: [{containerPort: 80}]',
      '',
    ].join('\n'),
  ).join('');

describe.concurrent('linger inject', () => {
  it('reads standard input and inserts lines into what is given', async () => {
    expect(await linger(['inject'], { stdin: DEPLOYMENT })).toEqual({
      code: 0,
      stdout: INJECTED_DEPLOYMENT,
      stderr: 'Deployment shop/web: wait 30s, grace 30s → 60s, hook Sleep\n',
    });
  });

  it('runs from a checkout as npm run --silent linger', async () => {
    const args = ['run', '--silent', 'linger', '--', 'inject', '-'];
    const { code, stdout } = await run('npm', args, { stdin: DEPLOYMENT, cwd: ROOT });
    expect([code, stdout]).toEqual([0, INJECTED_DEPLOYMENT]);
  });

  it('takes its own output unchanged', async () => {
    const { code, stdout, stderr } = await linger(['inject'], { stdin: INJECTED_DEPLOYMENT });
    expect([code, stdout]).toEqual([0, INJECTED_DEPLOYMENT]);
    expect(stderr).toContain('AlreadyInjected');
  });

  it('leaves what does not change byte for byte', async () => {
    const stdin = `${UNTOUCHED}---\n${JOB}---\n${DEPLOYMENT}---\n# the end\n`;
    const { code, stdout } = await linger(['inject'], { stdin });
    expect([code, stdout]).toEqual([0, stdin.replace(DEPLOYMENT, INJECTED_DEPLOYMENT)]);
  });

  it.each([
    ['nothing', ''],
    ['an empty document', '---\n'],
    ['a comment', '# nothing\n'],
    ['no workload', UNTOUCHED],
  ])('gives back %s', async (_what, stdin) => {
    expect(await linger(['inject'], { stdin })).toMatchObject({ code: 0, stdout: stdin });
  });

  it('reads several files, in their order, into one stream', async () => {
    const { code, stdout } = await linger([
      'inject',
      ...(await filesOf(DEPLOYMENT, UNTOUCHED, DEPLOYMENT.trimEnd())),
    ]);
    expect([code, stdout]).toEqual([
      0,
      `${INJECTED_DEPLOYMENT}---\n${UNTOUCHED}---\n${INJECTED_DEPLOYMENT.trimEnd()}`,
    ]);
  });

  it('reads a file and standard input together', async () => {
    const [file = ''] = await filesOf(UNTOUCHED);
    const { stdout } = await linger(['inject', file, '-'], { stdin: DEPLOYMENT });
    expect(stdout).toBe(`${UNTOUCHED}---\n${INJECTED_DEPLOYMENT}`);
  });

  it('JSON in, JSON out', async () => {
    const { code, stdout } = await linger(['inject'], { stdin: `${JSON.stringify(POD, undefined, 2)}\n` });
    const out = JSON.parse(stdout) as { metadata: JsonObject; spec: JsonObject };
    expect(code).toBe(0);
    expect(out.spec).toEqual({
      containers: [{ ...POD.spec.containers[0], lifecycle: { preStop: { sleep: { seconds: 30 } } } }],
      terminationGracePeriodSeconds: 60,
    });
  });

  it('a List has its items injected', async () => {
    const list = { apiVersion: 'v1', kind: 'List', items: [POD, { ...POD, metadata: { name: 'other' } }] };
    const { code, stdout, stderr } = await linger(['inject'], { stdin: JSON.stringify(list) });
    const { items } = JSON.parse(stdout) as { items: { spec: JsonObject }[] };
    expect([code, items.map(({ spec }) => spec.terminationGracePeriodSeconds)]).toEqual([0, [60, 60]]);
    expect(stderr).toBe(
      ['web', 'other'].map((name) => `Pod default/${name}: wait 30s, grace 30s → 60s, hook Sleep\n`).join(''),
    );
  });

  it('leaves a shared YAML alias alone and says so', async () => {
    const lastLine = '            - containerPort: 8080\n';
    const anchored = DEPLOYMENT.replace('    spec:\n', '    spec: &shared\n');
    const stdin = anchored.replace(lastLine, `${lastLine}  again: *shared\n`);
    const { code, stdout, stderr } = await linger(['inject'], { stdin });
    expect([code, stdout]).toEqual([1, stdin]);
    expect(stderr).toMatch(/left unchanged.*&shared/);
  });

  it('follows --policies and --namespace', async () => {
    const [policies = ''] = await filesOf(POLICY);
    const args = ['inject', '--policies', policies, '--namespace', 'team'];
    const { stdout, stderr } = await linger(args, { stdin: JSON.stringify(POD) });
    expect(stderr).toBe('Pod team/web: wait 45s, grace 30s → 75s, hook Sleep\n');
    expect(JSON.parse(stdout)).toMatchObject({ spec: { terminationGracePeriodSeconds: 75 } });
  });

  it('only tells in mode Audit', async () => {
    const [policies = ''] = await filesOf(POLICY.replace('spec:', 'spec:\n  mode: Audit'));
    const { code, stdout, stderr } = await linger(['inject', '--policies', policies], { stdin: DEPLOYMENT });
    expect([code, stdout]).toEqual([0, DEPLOYMENT]);
    expect(stderr).toContain('mode Audit: left unchanged');
  });

  it('finds the Services among what it is given', async () => {
    const quiet = DEPLOYMENT.replace(/ {10}ports:\n.*\n/, '');
    const unrelated = SERVICE.replace('app: web', 'app: other');
    const selected = await linger(['inject'], { stdin: `${quiet}---\n${SERVICE}` });
    const unselected = await linger(['inject'], { stdin: `${quiet}---\n${unrelated}` });
    expect([selected.stderr, unselected.stderr]).toEqual([
      expect.stringContaining('wait 30s'),
      expect.stringContaining('NotServing'),
    ]);
  });

  it('policies among what it is given are not in force yet', async () => {
    const { stderr } = await linger(['inject'], { stdin: `${POLICY}---\n${DEPLOYMENT}` });
    expect(stderr).toContain('wait 30s');
  });
});

describe.concurrent('linger inject, a document that cannot be read: named, passed through, exit 1', () => {
  it.each([
    ['YAML that is none', 'a: [', /^linger: stdin:1:4: /],
    ['JSON that is none', '{"a": ', /^linger: stdin:1:\d: /],
    ['a template', 'kind: Pod\nname: {{ .Values.name }}\n', /^linger: stdin:2:8: .*helm template/],
    ['a list of objects', '- kind: Pod\n', /^linger: stdin:1:1: .*expected a Kubernetes object/],
    [
      'a workload with a key that stands twice',
      DEPLOYMENT.replace('  replicas: 3\n', '  replicas: 3\n  replicas: 4\n'),
      /^linger: stdin:9:3: the key "replicas" appears twice: remove one; passed through unchanged\n$/,
    ],
  ])('%s', async (_what, stdin, message) => {
    const { code, stdout, stderr } = await linger(['inject'], { stdin });
    expect({ code, stdout }).toEqual({ code: 1, stdout: stdin });
    expect(stderr).toMatch(message);
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });

  it('the others are injected', async () => {
    const stdin = `${DEPLOYMENT}---\na: [\n---\n${DEPLOYMENT}`;
    const { code, stdout, stderr } = await linger(['inject'], { stdin });
    expect([code, stdout]).toEqual([1, `${INJECTED_DEPLOYMENT}---\na: [\n---\n${INJECTED_DEPLOYMENT}`]);
    expect(stderr).toMatch(/^linger: stdin:\d+:4: .*; passed through unchanged$/m);
  });
});

describe.concurrent('linger inject, when something is wrong: exit 1, one line, nothing on standard output', () => {
  it.each([
    ['a file that is not there', '', ['/nonexistent.yaml'], /^linger: \/nonexistent\.yaml: cannot be read/],
    ['a good one and one that is not there', DEPLOYMENT, ['-', '/nonexistent.yaml'], /nonexistent/],
    ['a folder without manifests', '', [join(ROOT, 'src')], /there is no \*\.yaml.*-R/],
    ['an address', '', ['https://example.com/a.yaml'], /download it first/],
    ['no UTF-8', Buffer.from('a: 1\nb: caf\xe9\n', 'latin1'), [], /^linger: stdin:2:7: this is not UTF-8/],
    ['policies that are not there', DEPLOYMENT, ['--policies', '/nonexistent'], /\/nonexistent.*--policies/],
  ])('%s', async (_what, stdin, args, message) => {
    const { code, stdout, stderr } = await linger(['inject', ...args], { stdin });
    expect({ code, stdout }).toEqual({ code: 1, stdout: '' });
    expect(stderr).toMatch(message);
    expect(stderr.trim().split('\n')).toHaveLength(1);
  });

  it('an invalid policy: names file and field', async () => {
    const [policies = ''] = await filesOf(POLICY.replace('45s', 'soon'));
    const { code, stdout, stderr } = await linger(['inject', '--policies', policies], { stdin: DEPLOYMENT });
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(/^linger: 0\.yaml document 1: .*spec\.wait\.fixed.*"soon"/);
  });
});

describe.concurrent('linger inject into a pipe', () => {
  it('writes everything, however slowly it is read', async () => {
    // As in `linger inject | kubectl apply -f -`: a pipe of the shell, 64 KiB of it, and a reader that takes its time.
    const [file = ''] = await filesOf(bigPods(1000));
    const command = `"$0" src/main.ts inject "$1" 2>/dev/null | (sleep 1; cat)`;
    const { stdout } = await run('sh', ['-c', command, process.execPath, file], { cwd: ROOT });
    expect(stdout.length).toBeGreaterThan(200_000);
    expect(stdout.match(/^---$/gm)).toHaveLength(1000);
    expect(stdout.endsWith('terminationGracePeriodSeconds: 60\n')).toBe(true);
  });

  it('ends quietly when its reader has gone', async () => {
    const [file = ''] = await filesOf(bigPods(300));
    const command = `"$0" src/main.ts inject "$1" | head -n 1`;
    const { code, stdout, stderr } = await run('sh', ['-c', command, process.execPath, file], { cwd: ROOT });
    expect([code, stdout]).toEqual([0, '---\n']);
    expect(stderr.split('\n').filter((line) => line !== '' && !line.startsWith('Pod default/web-'))).toEqual(
      [],
    );
  });

  it('tells everything on standard error as well', async () => {
    // More than the 64 KiB that a pipe holds, to a reader who is in no hurry.
    const [file = ''] = await filesOf(bigPods(1500));
    const command = `"$0" src/main.ts inject "$1" 2>&1 >/dev/null | { sleep 3; cat; }`;
    const { stdout } = await run('sh', ['-c', command, process.execPath, file], { cwd: ROOT });
    expect(stdout.length).toBeGreaterThan(65_536);
    expect(stdout.trim().split('\n')).toHaveLength(1500);
  });
});
