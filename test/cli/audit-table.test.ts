import { afterEach, describe, expect, it } from 'vitest';
import { renderAudit, renderNames } from '../../src/cli/audit-table.ts';
import { fitTablesTo } from '../../src/cli/terminal.ts';
import type { AuditFinding, AuditReport } from '../../src/core/judge/index.ts';
import { linger } from './linger.ts';

const MEASURED = {
  basis: 'measured',
  removals: 812,
  historySeconds: 432_000,
  text: 'measured: 812 removals over 5 d',
} as const;

function finding(name: string, more: Partial<AuditFinding> = {}): AuditFinding {
  return {
    kind: 'Deployment',
    namespace: 'shop',
    name,
    verdict: 'unprotected',
    reason: 'NotInjected',
    level: 'warning',
    waitSeconds: 0,
    graceSeconds: 30,
    exposureSeconds: 9,
    evidence: MEASURED,
    text: 'no wait',
    ...more,
  };
}

function report(...findings: readonly AuditFinding[]): AuditReport {
  const verdicts = { protected: 0, unprotected: findings.length, skipped: 0, unknown: 0 };
  const summary = { workloads: findings.length, verdicts, wouldBe: 0, reasons: {}, skipped: {} };
  return { findings, summary: { ...summary, rolloutSeconds: 0, drainSeconds: 0 } };
}

const table = (...findings: readonly AuditFinding[]) =>
  renderAudit(report(...findings), { wide: false, colour: false });
const wide = (...findings: readonly AuditFinding[]) =>
  renderAudit(report(...findings), { wide: true, colour: false });

describe('a cause is said once, with its workloads below', () => {
  it('one workload', () => {
    expect(table(finding('web')).trimEnd().split('\n').at(-1)).toBe(
      'Deployment shop/web: NotInjected: no wait',
    );
  });

  it('several with the same words', () => {
    const text = table(finding('a'), finding('b'), finding('c'));
    expect(text).toContain(
      'NotInjected, these 3: no wait\n    Deployment shop/a, Deployment shop/b, Deployment shop/c\n',
    );
    expect(text.match(/no wait/g)).toHaveLength(1);
  });

  it.each([1, 2])('%i that differ in names and numbers alone', (count) => {
    const all = Array.from({ length: count }, (_, index) =>
      finding(`w${index}`, { text: `Service s${index} has ${index + 2}s for container c${index}` }),
    );
    const isMerged = count > 1;
    expect(table(...all).includes(`these ${count}:`)).toBe(isMerged);
    // In full, one by one, all the same.
    for (const { text } of all) expect(wide(...all)).toContain(text);
  });

  it('not what is said of another reason', () => {
    expect(table(finding('a'), finding('b', { reason: 'AuditOnly' }))).not.toContain('these 2');
  });

  it('warnings first', () => {
    const text = table(
      finding('a', { level: 'note', verdict: 'protected', text: 'a note' }),
      finding('b', { level: 'note', verdict: 'protected', text: 'a note' }),
      finding('c', { text: 'a warning' }),
    );
    expect(text.indexOf('a warning')).toBeLessThan(text.indexOf('a note'));
  });

  it('names twelve, and all with -o wide', () => {
    const all = Array.from({ length: 20 }, (_, index) => finding(`w${index}`));
    const below = (text: string) => text.split('\n').find((line) => line.startsWith('    ')) ?? '';
    expect(below(table(...all))).toMatch(/w11, and 8 others$/);
    expect(below(wide(...all))).toMatch(/w19$/);
  });
});

describe('what the numbers rest on', () => {
  it('in one word in the table, in full in -o wide, which is wider', () => {
    const widest = (text: string) => Math.max(...text.split('\n').map(({ length }) => length));
    expect(table(finding('web'))).toMatch(/unprotected .* 9s {2}measured {2}NotInjected/);
    expect(wide(finding('web'))).toMatch(
      /unprotected .* 9s {2}measured: 812 removals over 5 d {2}NotInjected/,
    );
    expect(widest(wide(finding('web')))).toBeGreaterThan(widest(table(finding('web'))));
  });

  it('in a line of the summary where it is the same for all', () => {
    expect(table(finding('a'), finding('b'))).toContain('the lag is measured: 812 removals over 5 d\n');
    const other = { ...MEASURED, basis: 'assumed', text: 'assumed: x' } as const;
    expect(table(finding('a'), finding('b', { evidence: other }))).toContain(
      'the lag of 1 workload is assumed: x\n',
    );
  });

  it.each(['json', 'sarif', 'junit', 'github', 'markdown', 'wide'])('in -o %s', async (output) => {
    const stdin =
      'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {replicas: 2, template: {spec: {containers: [{name: a, ports: [{containerPort: 80}]}]}}}\n';
    const { stdout } = await linger(['audit', '-o', output, '-'], { stdin });
    expect(stdout).toContain('assumed: nothing is measured yet, and 30s is built in');
  });
});

describe('on a terminal', () => {
  afterEach(() => fitTablesTo(Number.POSITIVE_INFINITY));

  it.each([80, 100, 120])('no line is wider than its %i columns', (columns) => {
    fitTablesTo(columns);
    const text = 'a sentence of some words that goes on and on, as those of findings do '.repeat(3).trim();
    const all = ['a', 'b', 'c', 'd', 'e', 'f'].map((name) => finding(name, { text, file: 'base/web.yaml' }));
    const lines = table(...all, finding('g', { text, file: 'base/g.yaml' })).split('\n');
    expect(lines.filter(({ length }) => length > columns)).toEqual([]);
  });

  it('what has no room in the table stands below', () => {
    fitTablesTo(80);
    const text = table(finding('web', { file: 'base/web.yaml', line: 12 }));
    expect(text).not.toMatch(/GRACE|FILE/);
    expect(text).toContain('Deployment shop/web (base/web.yaml:12): NotInjected');
    fitTablesTo(60);
    expect(table(finding('web'))).not.toContain('OPEN FOR  LAG');
  });

  it('verdicts have a colour', () => {
    const text = renderAudit(report(finding('web')), { wide: false, colour: true });
    expect(text).toContain('\u001b[31munprotected\u001b[0m  Deployment');
  });

  it.each([
    [{}, false],
    [{ FORCE_COLOR: '1' }, true],
    [{ FORCE_COLOR: '1', NO_COLOR: '1' }, true],
    [{ FORCE_COLOR: '0' }, false],
    [{ NO_COLOR: '1' }, false],
  ] as const)('with %j: coloured %j where there is none', async (env, isColoured) => {
    const stdin =
      'apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {spec: {containers: [{name: a}]}}}\n';
    const { stdout } = await linger(['audit', '-o', 'wide', '-'], { stdin, env });
    expect(stdout.includes('\u001b[')).toBe(isColoured);
  });
});

it.each([
  [[], true],
  [['--kubeconfig', '/nowhere/config'], false],
])('without a kubeconfig, %j: says -f: %j', async (flags, isSaid) => {
  const { code, stderr } = await linger(['audit', ...flags], { env: { HOME: '/nowhere', KUBECONFIG: '' } });
  expect([code, stderr.includes('linger audit -f FILE')]).toEqual([1, isSaid]);
});

it('-o name: as kubectl names what is open', () => {
  const all = [
    finding('web'),
    finding('db', { kind: 'StatefulSet', verdict: 'unknown' }),
    finding('ok', { verdict: 'protected' }),
    finding('bare', { kind: 'Pod' }),
    finding('x', { kind: 'RayCluster', verdict: 'unknown' }),
  ];
  expect(renderNames(report(...all))).toBe(
    'deployment.apps/web\nstatefulset.apps/db\npod/bare\nraycluster/x\n',
  );
  expect(renderNames(report())).toBe('');
});
