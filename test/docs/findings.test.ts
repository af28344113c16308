import { describe, expect, test } from 'vitest';
import { TERMINATION_FINDINGS } from '../../src/audit/index.ts';
import { CHECKS } from '../../src/check/index.ts';
import { AUDIT_FINDINGS } from '../../src/core/judge/index.ts';
import { DIAGNOSES } from '../../src/diagnose/index.ts';
import { codeOf, read, tableUnder } from './markdown.ts';

const PAGE = 'docs/reference/commands.md';

describe('findings', () => {
  const documented = tableUnder(PAGE, 'What a diagnosis finds');

  test('the table has exactly the findings, in the catalogue’s order, with their severities', () => {
    expect(documented.map(({ finding, severity }) => [codeOf(finding), severity])).toEqual(
      Object.entries(DIAGNOSES).map(([code, { severity }]) => [code, severity]),
    );
  });

  test.each(documented)('$finding says what it means and what to do', (row) => {
    expect(row['what it means']).not.toBe('');
    expect(row['what to do']).not.toBe('');
  });
});

test('the table of checks has exactly the checks, in the catalogue’s order', () => {
  const documented = tableUnder(PAGE, 'What is checked');
  expect(documented.map(({ check }) => codeOf(check))).toEqual(Object.keys(CHECKS));
});

describe('what an audit finds', () => {
  const documented = tableUnder(PAGE, 'What an audit finds');

  test('the table has exactly the findings, in the catalogue’s order, with what they do to the verdict', () => {
    expect(documented.map(({ finding }) => codeOf(finding))).toEqual(Object.keys(AUDIT_FINDINGS));
    for (const { finding, verdict = '' } of documented) {
      const code = codeOf(finding) as keyof typeof AUDIT_FINDINGS;
      expect(verdict).toMatch(
        /^(NoOtherEndpoint|NeverWithdrawn|WaitShrunk)$/.test(code)
          ? /none$/
          : (AUDIT_FINDINGS[code].verdict ?? 'none'),
      );
    }
  });

  test.each(documented)('$finding says what it means and what to do', (row) => {
    expect(row['what it means']).not.toBe('');
    expect(row['what to do']).not.toBe('');
  });
});

test.each([
  'linger_removal_lag_seconds',
  'linger_removals_unresolved',
  'linger_removals_oldest_unresolved_seconds',
])('%s, which a diagnosis reads of a running Linger, is a documented metric with a stage', (name) => {
  const row = new RegExp(`^\\| \`${name}\` \\| \\w+ \\| \`stage\` \\|`, 'm');
  expect(read('docs/reference/metrics.md')).toMatch(row);
});

test('the table of what turns out at the end of a pod has exactly the findings, in the catalogue’s order', () => {
  const documented = tableUnder(PAGE, 'Termination review').map(({ finding }) => codeOf(finding));
  expect(documented).toEqual(Object.keys(TERMINATION_FINDINGS));
});
