import { printable } from '../api/index.ts';
import { SKIP_REASONS } from '../decision/index.ts';
import {
  AUDIT_FINDINGS,
  type AuditFinding,
  type AuditReason,
  type AuditSummary,
  headlineOf,
  isFinding,
  subjectOf,
} from './findings.ts';

/** What `linger audit --output json` prints, and the source of all other formats. */
export interface AuditReport {
  /** Grouped by workload. */
  readonly findings: readonly AuditFinding[];
  readonly summary: AuditSummary;
  /** A full sentence if new pods get no hook at this moment. */
  readonly noHooks?: string | undefined;
}

/**
 * The findings grouped by workload. Workloads of the same name are told apart by their place, because `dev/app.yaml` and
 * `prod/app.yaml` are often one input.
 */
export function byWorkload(findings: readonly AuditFinding[]): ReadonlyMap<string, readonly AuditFinding[]> {
  // The column is needed because a JSON file may be a single line.
  const placeOf = ({ file = '', line, column = 1, source }: AuditFinding) =>
    `${file}${line === undefined ? '' : `:${line}`}${column > 1 ? `:${column}` : ''}${source === undefined ? '' : `, rendered from ${source}`}`;
  const named = Map.groupBy(findings, subjectOf);
  return new Map(
    [...named].flatMap(([subject, all]) => {
      const places = Map.groupBy(all, placeOf);
      return places.size === 1
        ? [[subject, all] as const]
        : [...places].map(([place, own]) => [`${subject} (${place})`, own] as const);
    }),
  );
}

/** Only findings that call for action. */
function reportedIn({ findings }: AuditReport) {
  return findings.flatMap((finding) => (finding.level === null ? [] : [{ finding, level: finding.level }]));
}

/** The text of a finding together with the evidence for its numbers. */
function saidOf({ text, evidence }: AuditFinding): string {
  return evidence === null ? text : `${text} (lag: ${evidence.text})`;
}

/**
 * SARIF 2.1.0 for code scanning. A finding in a cluster has no file, so its location is the object's name.
 * @param version of Linger
 */
export function sarif(report: AuditReport, version: string): object {
  const reported = reportedIn(report);
  const rules = [...new Set(reported.map(({ finding }) => finding.reason))];
  const results = reported.map(({ finding, level }) => ({
    ruleId: finding.reason,
    level,
    message: { text: `${subjectOf(finding)}: ${saidOf(finding)}` },
    locations: [
      {
        ...(finding.file !== undefined && {
          physicalLocation: {
            artifactLocation: { uri: finding.file.split('/').map(encodeURIComponent).join('/') },
            ...(finding.line !== undefined && { region: { startLine: finding.line } }),
          },
        }),
        logicalLocations: [{ fullyQualifiedName: subjectOf(finding), kind: 'resource' }],
      },
    ],
  }));
  const driver = {
    name: 'linger',
    version,
    informationUri: 'https://linger.dev',
    rules: rules.map(ruleOf),
  };
  return {
    $schema: 'https://json.schemastore.org/sarif-2.1.0.json',
    version: '2.1.0',
    runs: [{ tool: { driver }, results }],
  };
}

/** What code scanning shows beside a result: what the reason means, and how to fix it. */
function ruleOf(id: AuditReason): object {
  const found = isFinding(id) ? AUDIT_FINDINGS[id] : undefined;
  const means =
    id in SKIP_REASONS ? SKIP_REASONS[id as keyof typeof SKIP_REASONS].means : (found?.means ?? id);
  return {
    id,
    shortDescription: { text: id },
    fullDescription: { text: unlinked(means) },
    ...(found !== undefined && {
      help: { text: unlinked(found.cure) },
      defaultConfiguration: { level: found.level },
    }),
  };
}

/** Removes links, because those of the catalogues are relative to a page of the reference. */
function unlinked(text: string): string {
  return text.replaceAll(/\[([^\]]+)\]\([^)]+\)/g, '$1');
}

/** Workflow commands, by which GitHub Actions shows findings at their lines. Source: actions/toolkit core/command.ts. */
export function github(report: AuditReport): string {
  const data = (text: string) => printable(text).replaceAll('%', '%25');
  const property = (text: string) => data(text).replaceAll(':', '%3A').replaceAll(',', '%2C');
  const lines = reportedIn(report).map(({ finding, level }) => {
    const { file, line, reason } = finding;
    const place =
      file === undefined ? '' : `file=${property(file)},${line === undefined ? '' : `line=${line},`}`;
    const text = data(`${subjectOf(finding)}: ${saidOf(finding)}`);
    return `::${level === 'warning' ? 'warning' : 'notice'} ${place}title=${property(reason)}::${text}\n`;
  });
  return lines.join('');
}

/** A test case for each workload: unprotected ones fail, skipped ones are skipped. */
export function junit({ findings, summary }: AuditReport): string {
  const cases = byWorkload(findings);
  const lines = [...cases].map(([name, all]) => {
    const [own] = all as [AuditFinding];
    const file = own.file === undefined ? '' : ` file="${xml(own.file)}"`;
    const said = all.map((each) => xml(`${each.reason}: ${saidOf(each)}`)).join('&#10;');
    const head = `    <testcase classname="linger.${xml(own.namespace)}" name="${xml(name)}"${file}`;
    if (own.verdict === 'unprotected')
      return `${head}>\n      <failure message="${xml(own.reason)}">${said}</failure>\n    </testcase>`;
    if (own.verdict === 'skipped')
      return `${head}>\n      <skipped message="${xml(own.reason)}"/>\n    </testcase>`;
    return all.length === 1 && own.verdict === 'protected'
      ? `${head}/>`
      : `${head}>\n      <system-out>${said}</system-out>\n    </testcase>`;
  });
  const { unprotected, skipped } = summary.verdicts;
  return junitSuite('linger audit', { tests: cases.size, failures: unprotected, skipped }, lines);
}

/** @param counts of the test cases, by the name of the attribute */
export function junitSuite(
  name: string,
  counts: Readonly<Record<string, number>>,
  cases: readonly string[],
): string {
  const attributes = Object.entries(counts)
    .map(([key, count]) => `${key}="${count}"`)
    .join(' ');
  const body = cases.map((each) => `${each}\n`).join('');
  return `<?xml version="1.0" encoding="UTF-8"?>\n<testsuites ${attributes}>\n  <testsuite name="${name}" ${attributes}>\n${body}  </testsuite>\n</testsuites>\n`;
}

const ENTITIES: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };

/** Escapes text for an element or an attribute. */
export function xml(text: string): string {
  return printable(text).replaceAll(/[&<>"]/g, (char) => ENTITIES[char] ?? char);
}

/** Characters that have a meaning in Markdown, or in HTML within it. */
const MARKDOWN = /[\\`*_{}[\]<>&#|~!$]/g;
/** Characters at which GitHub and GitLab recognise mentions and links. */
const ADDRESSED = /@|:(?=\/\/)|(?<=www)\./gi;

/** Escapes text from manifests, so that it cannot create links or mentions. */
export function markdownCell(text: string): string {
  return (
    printable(text)
      .replaceAll(MARKDOWN, (char) => `\\${char}`)
      // A zero-width space breaks mentions and links: they are recognised only after escapes and entities have been decoded.
      .replaceAll(ADDRESSED, (char) => `${char}\u200b`)
  );
}

/** A comment for a merge request. Text from manifests is escaped, so it cannot create links or mentions. */
export function markdown({ findings, summary }: AuditReport): string {
  const named = [...byWorkload(findings)].flatMap(([subject, all]) =>
    all.map((each) => ({ ...each, subject })),
  );
  const rows = named.map(({ subject, verdict, reason, waitSeconds, exposureSeconds, evidence, text }) => {
    const seconds = (value: number | null) => (value === null ? '' : `${value} s`);
    const numbers = [seconds(waitSeconds), seconds(exposureSeconds), evidence?.text ?? ''];
    const cells = [subject, verdict, reason, ...numbers, text];
    return `| ${cells.map(markdownCell).join(' | ')} |\n`;
  });
  const head = `**linger audit**: ${headlineOf(summary)}\n`;
  if (rows.length === 0) return head;
  return `${head}\n| workload | verdict | reason | wait | open for | lag | |\n|---|---|---|---|---|---|---|\n${rows.join('')}`;
}
