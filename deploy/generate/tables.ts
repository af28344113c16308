import { readdirSync, readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { TERMINATION_FINDINGS } from '../../src/audit/index.ts';
import { CERTIFICATE_ERRORS } from '../../src/certs/index.ts';
import { CHECKS } from '../../src/check/index.ts';
import { VERBS } from '../../src/cli/commands.ts';
import { type Flag, type Flags, flagName, variableName } from '../../src/cli/flags.ts';
import { CONNECTION_ERRORS, OBJECT_FAILURES, RESTARTS } from '../../src/cluster/index.ts';
import {
  type Curable,
  clusterTerminationPolicySpec,
  discoveryConsumerSpec,
  discoveryConsumerStatus,
  ERRORS,
  EXITS,
  type Explained,
  formatDuration,
  REPORT_RESULTS,
  terminationPolicySpec,
} from '../../src/core/api/index.ts';
import {
  BUILT_IN_VALUES,
  DURATION_FIELDS,
  type Field,
  NOTES,
  SKIP_QUESTIONS,
  SKIP_REASONS,
  WAIT_REASONS,
} from '../../src/core/decision/index.ts';
import { AUDIT_FINDINGS } from '../../src/core/judge/index.ts';
import { CONDITIONS, DISCARDS } from '../../src/core/lag/index.ts';
import { DIAGNOSES } from '../../src/diagnose/index.ts';
import { RELEASE_REASONS } from '../../src/hold/index.ts';
import { REFUSALS } from '../../src/leader/index.ts';
import { DEREGISTRATION_RESULTS, FLIP_RESULTS } from '../../src/measurement/index.ts';
import { LOSS_CAUSES } from '../../src/prove/index.ts';
import { ALERTS } from './alerts.ts';
import { type DocumentedField, fieldsOf } from './documented-fields.ts';
import { clusterMetrics, type Described, serverMetrics } from './registered-metrics.ts';

const ROOT = join(import.meta.dirname, '../..');

/** A table in Markdown: headings, then what they say of each row. */
function table<Row>(rows: Iterable<Row>, columns: Readonly<Record<string, (row: Row) => string>>): string {
  const line = (cells: readonly string[]) =>
    `|${cells.map((cell) => (cell === '' ? ' |' : ` ${cell} |`)).join('')}`;
  const body = Array.from(rows, (row) => line(Object.values(columns).map((cell) => escaped(cell(row)))));
  const names = Object.keys(columns);
  return [line(names), `|${names.map(() => '---|').join('')}`, ...body].join('\n');
}

/** A bar ends a cell, even within code. */
function escaped(cell: string): string {
  return cell.replaceAll(/(?<!\\)\|/g, '\\|');
}

type Of<Entry> = readonly [code: string, entry: Entry];

function code<Entry>([name]: Of<Entry>): string {
  return `\`${name}\``;
}

function means([, { means: said, more }]: Of<Explained>): string {
  return more === undefined ? said : `${said} ${more}`;
}

function cure([, entry]: Of<Curable>): string {
  return entry.cure;
}

function ofErrors(errors: Readonly<Record<string, Curable>>): string {
  return table(Object.entries(errors), { code, 'what is wrong': means, 'what to do': cure });
}

function ofReasons(reasons: Readonly<Record<string, Curable>>): string {
  return table(Object.entries(reasons), { reason: code, 'what happened': means, 'what to do': cure });
}

/** The reasons of each question, in the order of the catalogue. */
function skipQuestions(): string {
  const asked = Map.groupBy(Object.entries(SKIP_REASONS), ([, reason]) => reason.asked);
  return table(asked, {
    'asked in this order': ([question]) => SKIP_QUESTIONS[question],
    reasons: ([, reasons]) => reasons.map(code).join(', '),
  });
}

function auditFindings(): string {
  const findings: Readonly<
    Record<string, Curable & { verdict: string | null; sometimes?: string; level: string }>
  > = AUDIT_FINDINGS;
  return table(Object.entries(findings), {
    finding: code,
    verdict: ([, { verdict, sometimes }]) =>
      `${sometimes === undefined ? '' : `${sometimes}, otherwise `}${verdict ?? 'none'}`,
    level: ([, { level }]) => level,
    'what it means': means,
    'what to do': cure,
  });
}

/** `--namespace`, `-n` */
function names([key, { short }]: Of<Flag<unknown>>): string {
  return `\`--${flagName(key)}\`${short === undefined ? '' : `, \`-${short}\``}`;
}

function variable([key]: Of<Flag<unknown>>): string {
  return `\`${variableName(key)}\``;
}

function byDefault([, { fallback }]: Of<Flag<unknown>>): string {
  return fallback === undefined ? 'none' : `\`${fallback}\``;
}

function meaning([, { description, reference }]: Of<Flag<unknown>>): string {
  return reference ?? `${description.charAt(0).toUpperCase()}${description.slice(1)}.`;
}

function ofFlags(verb: string, flags: Flags): string {
  const rows = Object.entries(flags);
  return verb === 'serve'
    ? table(rows, { flag: names, variable, default: byDefault, meaning })
    : table(rows, { flag: names, default: byDefault, meaning });
}

const FLAG_TABLES = Object.entries<{ readonly flags: Flags }>(VERBS)
  .filter(([, { flags }]) => Object.keys(flags).length > 0)
  .map(([verb, { flags }]) => [`${verb}-flags`, () => ofFlags(verb, flags)] as const);

function commands(): string {
  return table(Object.entries(VERBS), {
    command: ([verb]) => `[\`${verb}\`](#${verb})`,
    'what it does': ([, { reference }]) => reference,
  });
}

function ofMetrics(metrics: readonly Described[]): string {
  return table(metrics, {
    metric: ({ name }) => `\`${name}\``,
    type: ({ type }) => type,
    labels: ({ labelNames }) => labelNames.map((label) => `\`${label}\``).join(', '),
    meaning: ({ help, reference }) => reference ?? help,
  });
}

const fieldName = ({ path }: DocumentedField) => `\`${path}\``;

/** In the words of a policy: durations as it says them, lists as YAML. */
function policyDefault({ path, absent }: DocumentedField): string {
  const field = path as Field;
  const value = BUILT_IN_VALUES[field];
  if (value === undefined) return absent ?? 'none';
  if (Array.isArray(value)) return `\`[${value.join(', ')}]\``;
  return `\`${DURATION_FIELDS.has(field) ? formatDuration(Number(value)) : String(value)}\``;
}

function policyFields(): string {
  const ofTeams = new Set(fieldsOf(terminationPolicySpec).map(({ path }) => path));
  return table(fieldsOf(clusterTerminationPolicySpec), {
    field: fieldName,
    default: policyDefault,
    values: ({ values }) => values,
    meaning: ({ path, meaning: said }) => (ofTeams.has(path) ? said : `*Cluster only.* ${said}`),
  });
}

function consumerFields(): string {
  return table(fieldsOf(discoveryConsumerSpec), {
    field: fieldName,
    values: ({ values, isRequired }) => (isRequired ? `${values}; required` : values),
    meaning: ({ meaning: said }) => said,
  });
}

/** Every table that a page takes from a catalogue, between `<!-- table: NAME -->` and `<!-- end -->`. */
export const TABLES: Readonly<Record<string, () => string>> = {
  'skip-questions': skipQuestions,
  'skip-reasons': () =>
    table(Object.entries(SKIP_REASONS), { reason: code, 'what it means': means, 'what to do': cure }),
  notes: () =>
    table(Object.entries(NOTES), {
      note: code,
      warns: ([, { warns }]) => (warns ? 'yes' : 'no'),
      'what it means': means,
      'what to do': cure,
    }),
  'wait-reasons': () => table(Object.entries(WAIT_REASONS), { why: code, 'what it means': means }),
  'release-reasons': () => table(Object.entries(RELEASE_REASONS), { reason: code, when: means }),
  'deregistration-results': () =>
    table(Object.entries(DEREGISTRATION_RESULTS), { reason: code, when: means }),
  conditions: () =>
    table(Object.entries(CONDITIONS), {
      reason: code,
      status: ([, { status }]) => status,
      'what it means': means,
      'what to do': cure,
    }),
  errors: () =>
    table(Object.entries(ERRORS), {
      code,
      'exit code': ([, { exit }]) => String(exit),
      'what is wrong': means,
      'what to do': cure,
    }),
  'connection-errors': () => ofErrors(CONNECTION_ERRORS),
  'certificate-errors': () => ofErrors(CERTIFICATE_ERRORS),
  'watch-restarts': () => ofReasons(RESTARTS),
  'publish-failures': () => ofReasons(OBJECT_FAILURES),
  refusals: () =>
    table(Object.entries(REFUSALS), { reason: code, 'what it means': means, 'what to do': cure }),
  discards: () => table(Object.entries(DISCARDS), { reason: code, 'what happened': means }),
  'audit-findings': auditFindings,
  'termination-findings': () =>
    table(Object.entries(TERMINATION_FINDINGS), {
      finding: code,
      'what it means': means,
      'what to do': cure,
    }),
  diagnoses: () =>
    table(Object.entries(DIAGNOSES), {
      finding: code,
      severity: ([, { severity }]) => severity,
      'what it means': means,
      'what to do': cure,
    }),
  checks: () =>
    table(Object.entries(CHECKS), { check: code, when: ([, { when }]) => when, 'what is checked': means }),
  'loss-causes': () => table(Object.entries(LOSS_CAUSES), { cause: code, meaning: means }),
  'policy-fields': policyFields,
  'consumer-fields': consumerFields,
  commands,
  'exit-codes': () =>
    table(Object.values(EXITS), {
      'exit code': ({ code: number }) => `\`${number}\``,
      meaning: ({ means: said }) => said,
    }),
  'flip-results': () =>
    table(Object.entries(FLIP_RESULTS), { result: code, 'what happened': means, 'what to do': cure }),
  'report-results': () =>
    table(Object.entries(REPORT_RESULTS), {
      reason: code,
      status: ([, { status }]) => String(status),
      'what it means': means,
      'what to do': cure,
    }),
  'consumer-status': () =>
    table(fieldsOf(discoveryConsumerStatus), { field: fieldName, meaning: ({ meaning: said }) => said }),
  alerts: () => table(Object.entries(ALERTS), { alert: code, 'what it means': means, 'what to do': cure }),
  metrics: () => ofMetrics(serverMetrics),
  'cluster-metrics': () => ofMetrics(clusterMetrics),
  ...Object.fromEntries(FLAG_TABLES),
};

const MARKED = /(?<=^<!-- table: (?<name>[\w-]+) -->\n)(?:\|.*\n)*(?=<!-- end -->$)/gm;

/** A page with its tables as they are now. @throws Error for a table that there is not */
function pageText(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8').replaceAll(MARKED, (_, name: string) => {
    const text = TABLES[name];
    if (text === undefined)
      throw new Error(`${path}: there is no table "${name}" in deploy/generate/tables.ts`);
    return `${text()}\n`;
  });
}

const PAGES = [
  'README.md',
  'certs/README.md',
  ...readdirSync(join(ROOT, 'docs'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => relative(ROOT, join(ROOT, 'docs', name))),
];

/** The pages with tables. */
export const TABLE_PAGES: readonly { readonly path: string; readonly text: () => string }[] = PAGES.filter(
  (path) => readFileSync(join(ROOT, path), 'utf8').includes('\n<!-- table: '),
)
  .toSorted()
  .map((path) => ({ path, text: () => pageText(path) }));
