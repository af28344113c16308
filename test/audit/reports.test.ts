import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { AUDIT_FINDINGS, type AuditReport } from '../../src/core/judge/index.ts';
import { linger, ROOT } from '../cli/linger.ts';

/** One of each verdict; the text of the last has characters that each form must escape. */
const MANIFEST = `\
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: app, image: a, readinessProbe: {tcpSocket: {port: 80}}}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: own, namespace: shop}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 10
      containers: [{name: '50%|<a>', image: a, readinessProbe: {tcpSocket: {port: 80}}, lifecycle: {preStop: {sleep: {seconds: 10}}}}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: shop}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: a}]}}}
`;

let folder = '';
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'linger-audit-'));
  await writeFile(join(folder, 'app.yaml'), MANIFEST);
  // Reports name files as they are given: relative to where a person stands.
  process.chdir(folder);
});
afterAll(async () => {
  process.chdir(ROOT);
  await rm(folder, { recursive: true });
});

const audit = (...args: readonly string[]) => linger(['audit', '-f', 'app.yaml', '--webhook', ...args]);

const EATEN =
  'container "50%|<a>": its own hook waits 10s, and the grace is 10s, so the application is killed 2s after SIGTERM; raise terminationGracePeriodSeconds by the length of the hook';

const LAG = 'assumed: nothing is measured yet, and 30s is built in';

describe.concurrent('linger audit of manifests', () => {
  test('table: one screen first, then what is wrong', async () => {
    const { stdout, code } = await audit();
    expect(code).toBe(0);
    expect(stdout).toBe(`\
3 workloads: 1 protected, 1 unprotected, 1 skipped (1 Job), 0 unknown
the waits add 0s to all rollouts together, and at most 30s to the drain of a node
the lag is ${LAG}

VERDICT      WORKLOAD             WAIT  GRACE  OPEN FOR  LAG      FILE         REASONS
unprotected  Deployment shop/own   10s    10s       20s  assumed  app.yaml:15  GraceEaten
protected    Deployment shop/web   30s    60s        0s  assumed  app.yaml:6   Injected

Deployment shop/own: GraceEaten: ${EATEN}
`);
  });

  test('github: a command at the line, with what would end it early escaped', async () => {
    const { stdout } = await audit('-o', 'github');
    expect(stdout).toBe(
      `::warning file=app.yaml,line=15,title=GraceEaten::Deployment shop/own: ${EATEN.replace('%', '%25')} (lag: ${LAG})\n`,
    );
  });

  test('sarif: a result for what is wrong, at its file and line', async () => {
    const { stdout } = await audit('-o', 'sarif');
    const { version, runs } = JSON.parse(stdout) as {
      version: string;
      runs: { tool: { driver: { name: string; rules: { id: string }[] } }; results: unknown[] }[];
    };
    expect(version).toBe('2.1.0');
    expect(runs[0]?.tool.driver).toMatchObject({
      name: 'linger',
      rules: [
        {
          id: 'GraceEaten',
          fullDescription: { text: AUDIT_FINDINGS.GraceEaten.means },
          help: { text: AUDIT_FINDINGS.GraceEaten.cure },
          defaultConfiguration: { level: 'warning' },
        },
      ],
    });
    expect(runs[0]?.results).toEqual([
      {
        ruleId: 'GraceEaten',
        level: 'warning',
        message: { text: `Deployment shop/own: ${EATEN} (lag: ${LAG})` },
        locations: [
          {
            physicalLocation: { artifactLocation: { uri: 'app.yaml' }, region: { startLine: 15 } },
            logicalLocations: [{ fullyQualifiedName: 'Deployment shop/own', kind: 'resource' }],
          },
        ],
      },
    ]);
  });

  test('a notice stays a notice on a workload that loses requests for another reason', async () => {
    const both = MANIFEST.replace(
      'metadata: {labels: {app: web}}\n    spec:\n',
      'metadata: {labels: {app: web}, annotations: {linger.dev/waits: 5s}}\n    spec:\n',
    );
    await writeFile(join(folder, 'both.yaml'), both);
    const print = async (format: string) =>
      (await linger(['audit', '-f', 'both.yaml', '--webhook', '-o', format])).stdout;
    expect(
      [...(await print('github')).matchAll(/^::(\w+) .*title=(\w+)/gm)].map(([, ...said]) => said),
    ).toEqual([
      ['warning', 'GraceEaten'],
      ['notice', 'UnknownAnnotation'],
    ]);
    const { findings } = JSON.parse(await print('json')) as AuditReport;
    const own = findings.filter(({ name }) => name === 'own');
    expect(own.map(({ verdict, level }) => [verdict, level])).toEqual([
      ['unprotected', 'warning'],
      ['unprotected', 'note'],
    ]);
    const { runs } = JSON.parse(await print('sarif')) as { runs: { results: { level: string }[] }[] };
    expect(runs[0]?.results.map(({ level }) => level)).toEqual(['warning', 'note']);
  });

  test('junit: a case for each workload', async () => {
    const { stdout } = await audit('-o', 'junit');
    const escaped = EATEN.replaceAll('"', '&quot;').replace('<a>', '&lt;a&gt;');
    expect(stdout).toBe(`\
<?xml version="1.0" encoding="UTF-8"?>
<testsuites tests="3" failures="1" skipped="1">
  <testsuite name="linger audit" tests="3" failures="1" skipped="1">
    <testcase classname="linger.shop" name="Deployment shop/web" file="app.yaml"/>
    <testcase classname="linger.shop" name="Deployment shop/own" file="app.yaml">
      <failure message="GraceEaten">GraceEaten: ${escaped} (lag: ${LAG})</failure>
    </testcase>
    <testcase classname="linger.shop" name="Job shop/once" file="app.yaml">
      <skipped message="Job"/>
    </testcase>
  </testsuite>
</testsuites>
`);
  });

  test('markdown: a table whose cells are not ended by what stands in them', async () => {
    const { stdout } = await audit('-o', 'markdown');
    expect(stdout).toContain('3 workloads: 1 protected, 1 unprotected, 1 skipped (1 Job), 0 unknown\n');
    expect(stdout).toContain(
      `| Deployment shop/own | unprotected | GraceEaten | 10 s | 20 s | ${LAG} | ${EATEN.replace('|', '\\|').replace('<', '\\<').replace('>', '\\>')} |\n`,
    );
  });

  describe('of a hostile manifest', () => {
    const name = String.raw`"w\n::error::x\e[2J\u202E|\\| <img src=x> [a](http://evil) @all \uFFFE"`;
    const hostile = MANIFEST.replace('name: own', `name: ${name}`);
    beforeAll(() => writeFile(join(folder, 'a b.yaml'), hostile));
    const print = async (format: string) => (await linger(['audit', '-f', 'a b.yaml', '-o', format])).stdout;

    test.each(['table', 'wide', 'github', 'junit', 'markdown'])(
      '%s: no line is added, no cursor moves',
      async (format) => {
        const stdout = await print(format);
        const lines = stdout.split('\n');
        expect(lines.filter((line) => /^\s*::error/.test(line))).toEqual([]);
        // A space of no width keeps names from being called in Markdown.
        for (const line of lines)
          expect(line.replaceAll('@\u200b', '').replaceAll(':\u200b', '')).not.toMatch(
            /[\p{Cc}\p{Cf}\uFFFE]/u,
          );
        expect(stdout).toContain('u001b');
      },
    );

    test('markdown: a row has its cells, and the name is text in it', async () => {
      const row = (await print('markdown')).split('\n').find((line) => line.includes('img')) ?? '';
      const cells = row.replaceAll(/\\./g, '').split('|');
      expect(cells).toHaveLength(9);
      expect(cells[1]).not.toMatch(/[<>[\]]|@a|:\//);
    });

    test('sarif: a file is a URI', async () => {
      expect(await print('sarif')).toContain('"uri": "a%20b.yaml"');
    });
  });

  test.each([
    [['--since', '2h', '--server-dry-run'], /--since and --server-dry-run: /],
    [['--since', '2h', '--suggest'], /--since and --suggest: /],
    [['--since', '2h', '-l', 'app=web'], /--since and --selector: /],
    [['--suggest', '-o', 'sarif'], /--suggest and --output sarif: /],
    [['--suggest', '--fail-on', 'any'], /--suggest and --fail-on: /],
    [['-n', 'shop', '-A'], /--namespace and --all-namespaces: /],
  ])('%j: says which flag would be ignored', async (flags, expected) => {
    const { code, stdout, stderr } = await linger(['audit', ...flags, '--kubeconfig', 'none']);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toMatch(expected);
  });

  test.each([
    ['any', 3],
    ['unprotected', 3],
    ['GraceEaten', 3],
    ['Job', 3],
    ['unknown', 0],
    ['NotInjected,HookTooShort', 0],
  ])('--fail-on %s: exit %i', async (codes, expected) => {
    expect((await audit('--fail-on', codes)).code).toBe(expected);
  });

  test('a word that --fail-on does not know is named, with all that it knows', async () => {
    const { code, stderr } = await audit('--fail-on', 'HookToShort');
    expect(code).toBe(2);
    expect(stderr).toMatch(/--fail-on: expected some of any, protected, .*HookTooShort.*, got "HookToShort"/);
  });

  test('--server-dry-run of files alone: says that it lacks a cluster', async () => {
    const { code, stderr } = await audit('--server-dry-run');
    expect(code).toBe(2);
    expect(stderr).toMatch(/--server-dry-run: needs a cluster; name it with --kubeconfig or --context/);
  });

  test('a document that cannot be read is named, the others are audited, and the exit code says so', async () => {
    await writeFile(join(folder, 'broken.yaml'), `${MANIFEST}---\na: [\n`);
    const { code, stdout, stderr } = await linger(['audit', '-f', 'broken.yaml', '-o', 'json']);
    expect(code).toBe(1);
    expect(stderr).toMatch(/broken\.yaml:\d+/);
    expect((JSON.parse(stdout) as { summary: { workloads: number } }).summary.workloads).toBe(3);
  });
});
