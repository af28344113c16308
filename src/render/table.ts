import { SKIP_REASONS } from '../core/catalog/reasons.ts';
import { BUILT_IN } from '../core/policy/values.ts';
import type { ExplainedField, Explanation } from './explanation.ts';

/** Explanations for people: a block for each workload. */
export function renderTable(plans: readonly Explanation[]): string {
  return plans.map(renderPlan).join('\n');
}

function renderPlan(plan: Explanation): string {
  const lines = [`${plan.kind} ${plan.namespace}/${plan.name}`, ...rows(outcomeRows(plan))];
  const said = plan.fields.filter(({ origin, ignored }) => origin !== BUILT_IN || ignored !== undefined);
  if (said.length > 0) lines.push('  policy', ...rows(said.map(fieldRow), '    '));
  if (plan.fields.length > said.length)
    lines.push(`  ${said.length > 0 ? 'all other fields' : 'all fields'} are built-in`);
  for (const { code, text } of plan.notes) lines.push(`  note ${code}: ${text}`);
  return `${lines.join('\n')}\n`;
}

function outcomeRows(plan: Explanation): readonly (readonly string[])[] {
  if (plan.outcome === 'skip') {
    const why = plan.reason === null ? '' : SKIP_REASONS[plan.reason];
    return [
      ['outcome', `skip: ${plan.reason}`],
      ['why', why],
    ];
  }
  return [
    ['outcome', plan.mode === 'Audit' ? 'inject, but only told: mode Audit' : 'inject'],
    ['wait', `${plan.waitSeconds}s (${WAIT_SENTENCES[plan.why ?? ''] ?? plan.why})`],
    ...(plan.estimate === null ? [] : [['estimate', plan.estimate.text]]),
    ['grace', `${plan.baseGraceSeconds}s → ${plan.graceSeconds}s`],
    ['hook', `${plan.hook} in ${plan.containers.join(', ')}`],
  ];
}

const WAIT_SENTENCES: Readonly<Record<string, string>> = {
  fixed: 'fixed by policy or annotation',
  initial: 'initial: not enough has been measured yet',
  measured: 'measured',
  storm: 'measured; the tail lies beyond wait.max',
};

function fieldRow({ field, value, origin, ignored = [] }: ExplainedField): readonly string[] {
  const refused = ignored.map((each) => `${show(each.value)} from ${each.origin} ignored: ${each.because}`);
  return [field, show(value), [origin, ...refused].join('; ')];
}

function show(value: unknown): string {
  if (!Array.isArray(value)) return String(value);
  return value.length === 0 ? '(none)' : value.join(', ');
}

/** Columns as wide as their widest cell; the last one as it is. */
function rows(cells: readonly (readonly string[])[], indent = '  '): readonly string[] {
  const columns = Math.max(0, ...cells.map((row) => row.length));
  const widths = Array.from({ length: columns }, (_, column) =>
    Math.max(...cells.map((row) => row[column]?.length ?? 0)),
  );
  return cells.map((row) => {
    const padded = row.map((cell, column) =>
      column === row.length - 1 ? cell : cell.padEnd(widths[column] ?? 0),
    );
    return indent + padded.join('  ');
  });
}
