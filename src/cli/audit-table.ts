import { WORKLOAD_KINDS } from '../audit/index.ts';
import { formatDuration } from '../core/api/index.ts';
import {
  type AuditFinding,
  type AuditReport,
  type AuditSummary,
  type AuditVerdict,
  byWorkload,
  headlineOf,
  subjectOf,
} from '../core/judge/index.ts';
import { columns, fits, indented, painted, paragraphs } from './terminal.ts';

interface Look {
  readonly wide: boolean;
  readonly colour: boolean;
}

/** A summary of one screen, the workloads, unprotected ones first, then the findings by their causes. */
export function renderAudit({ findings, summary, noHooks }: AuditReport, { wide, colour }: Look): string {
  const shown = [...byWorkload(findings)]
    .filter(([, [own, ...more]]) => wide || own?.verdict !== 'skipped' || more.length > 0)
    .toSorted(([, [a]], [, [b]]) => orderOf(a) - orderOf(b));
  const { table, left } = fitting(shown, wide);
  const named = left.has('FILE')
    ? shown.map(([subject, all]) => [`${subject}${placeOf(all[0])}`, all] as const)
    : shown;
  const colours = (line: string) =>
    line.replace(/^(unprotected|unknown|protected|skipped)/, (word) =>
      painted(word, COLOURS[word as AuditVerdict], colour),
    );
  const text = paragraphs(
    [noHooks ?? [], summaryLines(summary, findings)].flat(),
    table,
    ...causesOf(named, wide),
  );
  return text.split('\n').map(colours).join('\n');
}

const COLOURS: Readonly<Record<AuditVerdict, number>> = {
  unprotected: 31,
  unknown: 33,
  protected: 32,
  skipped: 2,
};

interface Column {
  readonly title: string;
  readonly cell: (own: AuditFinding, all: readonly AuditFinding[], wide: boolean) => string;
  readonly right?: true;
}

const COLUMNS: readonly Column[] = [
  { title: 'VERDICT', cell: ({ verdict }) => verdict },
  { title: 'WORKLOAD', cell: subjectOf },
  { title: 'WAIT', cell: ({ waitSeconds }) => seconds(waitSeconds), right: true },
  { title: 'GRACE', cell: ({ graceSeconds }) => seconds(graceSeconds), right: true },
  { title: 'OPEN FOR', cell: ({ exposureSeconds }) => seconds(exposureSeconds), right: true },
  { title: 'LAG', cell: ({ evidence }, _, wide) => (wide ? evidence?.text : evidence?.basis) ?? '-' },
  { title: 'FILE', cell: ({ file = '-', line }) => (line === undefined ? file : `${file}:${line}`) },
  { title: 'REASONS', cell: (_, all) => all.map(({ reason }) => reason).join(', ') },
];

/** The columns that a narrow terminal does without, in this order: files also show with the causes, lags in the summary. */
const SPARED = ['GRACE', 'FILE', 'LAG'];

function fitting(workloads: Workloads, wide: boolean) {
  const isOfFiles = workloads.some(([, [own]]) => own?.file !== undefined);
  const there = COLUMNS.filter(({ title }) => isOfFiles || title !== 'FILE');
  const left = new Set<string>();
  const drawn = () => {
    const shown = there.filter(({ title }) => !left.has(title));
    const rows = workloads.flatMap(([, all]) => {
      const [own] = all;
      return own === undefined ? [] : [shown.map(({ cell }) => cell(own, all, wide))];
    });
    const alignment = shown.map(({ right }) => (right === true ? 'right' : 'left'));
    return rows.length === 0 ? [] : columns([shown.map(({ title }) => title), ...rows], alignment);
  };
  let table = drawn();
  for (const next of wide ? [] : SPARED) {
    if (fits(table)) break;
    left.add(next);
    table = drawn();
  }
  return { table, left };
}

function placeOf(own: AuditFinding | undefined): string {
  if (own?.file === undefined) return '';
  return ` (${own.line === undefined ? own.file : `${own.file}:${own.line}`})`;
}

function orderOf(finding: AuditFinding | undefined): number {
  return ['unprotected', 'unknown', 'protected', 'skipped'].indexOf(finding?.verdict ?? '');
}

function seconds(value: number | null): string {
  if (value === null) return '-';
  return value >= 1e9 ? 'for ever' : `${value}s`;
}

/** The text of a finding, and the workloads that have it. */
interface Cause {
  readonly finding: AuditFinding;
  readonly subjects: readonly string[];
}

/** If there are more similar texts than this, the first stands for all of them. */
const MOST_ALIKE = 1;
/** How many workloads are named for each cause; the table has all of them. */
const MOST_NAMED = 12;

type Workloads = readonly (readonly [subject: string, all: readonly AuditFinding[]])[];

/**
 * A block for each cause, which is stated once, followed by its workloads. Warnings come first, then the most frequent
 * causes.
 */
function causesOf(workloads: Workloads, wide: boolean): readonly (readonly string[])[] {
  const said = workloads.flatMap(([subject, all]) =>
    all.filter(({ level }) => wide || level !== null).map((finding) => ({ finding, subject })),
  );
  const alike = Map.groupBy(said, ({ finding }) => `${finding.reason} ${sortOf(finding.text)}`);
  const causes = [...alike.values()].flatMap((all): Cause[] => {
    const same = Map.groupBy(all, ({ finding }) => finding.text);
    const groups = !wide && same.size > MOST_ALIKE ? [all] : [...same.values()];
    return groups.flatMap((each) => {
      const [first] = each;
      return first === undefined
        ? []
        : [{ finding: first.finding, subjects: each.map(({ subject }) => subject) }];
    });
  });
  const rank = ({ finding: { level, verdict } }: Cause) =>
    level === 'warning' && verdict === 'unprotected' ? 0 : level === 'warning' ? 1 : level === null ? 3 : 2;
  const sorted = causes.toSorted((a, b) => rank(a) - rank(b) || b.subjects.length - a.subjects.length);
  return sorted.map(({ finding: { reason, text }, subjects }) => {
    const [only = '', ...more] = subjects;
    if (more.length === 0) return indented(`${only}: ${reason}: ${text}`, '', '  ');
    const named = wide ? subjects : subjects.slice(0, MOST_NAMED);
    const others = subjects.length - named.length;
    const isOne = workloads.every(([subject, all]) =>
      all.every((each) => each.reason !== reason || each.text === text || !subjects.includes(subject)),
    );
    const like = isOne ? '' : ` (of ${only}; -o wide has each)`;
    return [
      ...indented(`${reason}, these ${subjects.length}: ${text}${like}`, '', '  '),
      ...indented(`${named.join(', ')}${others > 0 ? `, and ${others} others` : ''}`, '    ', '    '),
    ];
  });
}

/** A text without names and numbers. */
function sortOf(text: string): string {
  return text
    .replaceAll(/"[^"]*"/g, '')
    .replaceAll(/\b([A-Z]\w+|container|containers) \S+/g, '$1')
    .split(' ')
    .filter((word) => !/[\d/]/.test(word))
    .join(' ');
}

function summaryLines(summary: AuditSummary, findings: readonly AuditFinding[]): readonly string[] {
  const { wouldBe, rolloutSeconds, drainSeconds } = summary;
  return [
    headlineOf(summary),
    ...(wouldBe === 0
      ? []
      : [`${wouldBe} of them would be protected by Linger (its webhook, or inject) in mode Enforce`]),
    `the waits add ${formatDuration(rolloutSeconds)} to all rollouts together, and at most ${formatDuration(drainSeconds)} to the drain of a node`,
    ...lagsIn(findings),
  ].flatMap((line) => indented(line, '', '  '));
}

/** If there are more lags than this, they are only shown in the column. */
const MOST_LAGS = 2;

/** The complete evidence for the lags; the column has room for only one word each. */
function lagsIn(findings: readonly AuditFinding[]): readonly string[] {
  const owns = [...byWorkload(findings).values()].flatMap(([own]) => own?.evidence?.text ?? []);
  const texts = [...Map.groupBy(owns, (text) => text)].toSorted(([, a], [, b]) => b.length - a.length);
  const shown = texts.slice(0, MOST_LAGS).map(([text, { length }]) => {
    const whose = texts.length === 1 ? '' : ` of ${length} ${length === 1 ? 'workload' : 'workloads'}`;
    return `the lag${whose} is ${text}`;
  });
  return texts.length > MOST_LAGS ? [...shown, 'other lags: -o wide'] : shown;
}

/** `deployment.apps/web`, as kubectl names them: the workloads that are unprotected or unknown. */
export function renderNames({ findings }: AuditReport): string {
  const open = findings.filter(({ verdict }) => verdict === 'unprotected' || verdict === 'unknown');
  const names = open.map(({ kind, name }) => {
    const known = WORKLOAD_KINDS.find((each) => each.kind === kind);
    const [group] = known?.apiVersion.includes('/') ? known.apiVersion.split('/') : [];
    return `${kind.toLowerCase()}${group === undefined ? '' : `.${group}`}/${name}`;
  });
  return names.length === 0 ? '' : paragraphs([...new Set(names)]);
}
