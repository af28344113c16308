import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { stringify } from 'yaml';
import { alertCases, alertRules } from '../docs/alert-cases.ts';
import { ensurePromtool } from '../testbed/binaries.ts';
import { run } from '../testbed/command.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { LONG } from './form.ts';

const ALERTS = join(import.meta.dirname, '..', '..', 'deploy', 'alerts.yaml');

// Judged by Prometheus itself, which takes minutes to build. Every run checks that alerts name existing metrics (test/docs/alerts.test.ts).
describe.runIf(LONG)('the alerts, to Prometheus', () => {
  const scratch = mkdtempSync(join(tmpdir(), 'linger-alerts-'));
  let program = '';

  beforeAll(async () => {
    program = await ensurePromtool(clusterSettings().cacheDir, (line) => console.log(line));
  }, 1_800_000);
  afterAll(() => rmSync(scratch, { recursive: true }));

  it('are rules that it takes', { timeout: 60_000 }, async () => {
    const { code, stdout, stderr } = await run([program, 'check', 'rules', '--lint-fatal', ALERTS]);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toContain(`SUCCESS: ${alertRules.length} rules found`);
  });

  it.each(alertRules)(
    '$alert fires on what it is for, and on nothing else',
    { timeout: 60_000 },
    async (rule) => {
      for (const { at, every = '1m', labels = {}, fires, silent } of alertCases[rule.alert]!) {
        const course = (
          name: string,
          series: Readonly<Record<string, string>>,
          expected: readonly object[],
        ) => ({
          name,
          interval: every,
          input_series: Object.entries(series).map(([metric, values]) => ({ series: metric, values })),
          alert_rule_test: [{ eval_time: at, alertname: rule.alert, exp_alerts: expected }],
        });
        const fired = { exp_labels: { ...rule.labels, ...labels }, exp_annotations: rule.annotations };
        const file = join(scratch, `${rule.alert}.yaml`);
        const tests = [course('fires', fires, [fired]), course('silent', silent, [])];
        writeFileSync(file, stringify({ rule_files: [ALERTS], evaluation_interval: every, tests }));
        const { code, stdout, stderr } = await run([program, 'test', 'rules', file]);
        expect([code, code === 0 ? '' : stdout + stderr]).toEqual([0, '']);
      }
    },
  );
});
