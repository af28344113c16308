import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { type Cell, chartsOf, clientsTable, isFresh, type Results } from '../../bench/drain/report.ts';
import { TERMINATION_FINDINGS } from '../../src/audit/index.ts';
import { CERTIFICATE_ERRORS } from '../../src/certs/index.ts';
import { CHECKS } from '../../src/check/index.ts';
import { VERBS, type Verb } from '../../src/cli/commands.ts';
import { type Flag, flagName } from '../../src/cli/flags.ts';
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
  PAGE_FORMATS,
  type PageFormatKind,
  REPORT_RESULTS,
  terminationPolicySpec,
} from '../../src/core/api/index.ts';
import {
  BUILT_IN_VALUES,
  DURATION_FIELDS,
  type Field,
  NOTES,
  OVERRIDABLE,
  SKIP_QUESTIONS,
  SKIP_REASONS,
  WAIT_REASONS,
} from '../../src/core/decision/index.ts';
import { AUDIT_FINDINGS } from '../../src/core/judge/index.ts';
import { CONDITIONS, DISCARDS } from '../../src/core/lag/index.ts';
import { chartSvg } from '../../src/core/timeline/index.ts';
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
  const line = (cells: readonly string[]) => `|${cells.join('|')}|`;
  const body = Array.from(rows, (row) => line(Object.values(columns).map((cell) => escaped(cell(row)))));
  const names = Object.keys(columns);
  return [line(names), line(names.map(() => '---')), ...body].join('\n');
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

/** The notes, and a line for those that are warnings, too. */
function notes(): string {
  const all = Object.entries<Curable & { readonly warns: boolean }>(NOTES);
  const warned = all.filter(([, { warns }]) => warns).map(code);
  const rows = table(all, { note: code, 'what it means': means, 'what to do': cure });
  return `${rows}\n\nThe pod's creator also gets as a warning: ${warned.join(', ')}.`;
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

/** The reasons, and a line for those that the annotation overrides. */
function skipReasons(): string {
  const all = Object.entries(SKIP_REASONS);
  const rows = table(all, { reason: code, 'what it means': means, 'what to do': cure });
  const overridden = Array.from(OVERRIDABLE, (reason) => `\`${reason}\``).join(', ');
  return `${rows}\n\n\`linger.dev/inject: "true"\` overrides ${overridden}.`;
}

type Finding = Curable & { readonly verdict: string | null; readonly sometimes?: string };

/** A finding that only repeats the note of its name: the pages have the note. */
function isNote([name, finding]: Of<Finding>): boolean {
  const note = (NOTES as Readonly<Record<string, Curable>>)[name];
  return note !== undefined && finding.means === note.means;
}

function verdictOf([, { verdict, sometimes }]: Of<Finding>): string {
  return `${sometimes === undefined ? '' : `${sometimes}, otherwise `}${verdict ?? 'none'}`;
}

/** The findings, and a line for those that are notes. */
function auditFindings(): string {
  const findings = Object.entries<Finding>(AUDIT_FINDINGS);
  const notes = Map.groupBy(findings.filter(isNote), verdictOf);
  const also = Array.from(notes, ([verdict, of]) => `${of.map(code).join(', ')} (${verdict})`);
  const rows = table(
    findings.filter((finding) => !isNote(finding)),
    // What to do is in the text of each finding.
    { finding: code, verdict: verdictOf, 'what it means': means },
  );
  return `${rows}\n\nThe [notes](reasons.md#notes) of these names are findings, too: ${also.join('; ')}.`;
}

/** `--namespace`, `-n` */
function names([key, { short }]: Of<Flag<unknown>>): string {
  return `\`--${flagName(key)}\`${short === undefined ? '' : `, \`-${short}\``}`;
}

function meaning([, { description, reference, fallback }]: Of<Flag<unknown>>): string {
  const said = reference ?? `${description.charAt(0).toUpperCase()}${description.slice(1)}.`;
  // Switches are off without being set.
  return fallback === undefined || fallback === 'false' ? said : `${said} Default \`${fallback}\`.`;
}

const VERB_FLAGS = Object.entries<Verb>(VERBS)
  .filter(([, { flags, group }]) => Object.keys(flags).length > 0 && group !== 'internal')
  .map(([verb, { flags, examples }]) => ({ verb, flags: Object.entries(flags), examples }));

/** What makes a flag the same in several commands. */
const identity = (flag: Of<Flag<unknown>>) => `${names(flag)} ${meaning(flag)}`;

/** The flags that mean the same in three commands or more, by their identity. */
const SHARED: ReadonlyMap<string, Of<Flag<unknown>>> = new Map(
  [
    ...Map.groupBy(
      VERB_FLAGS.flatMap(({ flags }) => flags),
      identity,
    ),
  ].flatMap(([key, [flag, ...others]]) =>
    flag !== undefined && others.length >= 2 ? [[key, flag] as const] : [],
  ),
);

const FLAG_COLUMNS = { flag: names, meaning };

/** A command's own flags, the names of those that it shares, and its examples. */
function ofFlags(flags: readonly Of<Flag<unknown>>[], examples: Verb['examples']): string {
  const [shared, own] = [true, false].map((isShared) =>
    flags.filter((flag) => SHARED.has(identity(flag)) === isShared),
  );
  const also = shared?.map(([key]) => `\`--${flagName(key)}\``).join(', ');
  const parts = [
    ...(own?.length ? [table(own, FLAG_COLUMNS)] : []),
    ...(also ? [`[Shared](#shared-flags): ${also}.`] : []),
    // The help has two, and what they do.
    ['```sh', ...examples.slice(0, 1).map(([line]) => line), '```'].join('\n'),
  ];
  return parts.join('\n\n');
}

const resultsOf = <T>(file: string) =>
  JSON.parse(readFileSync(join(ROOT, 'bench/results', file), 'utf8')) as T;

const count = (value: number) => value.toLocaleString('en-US');
const lostIn = (cells: readonly Cell[]) => cells.reduce((total, { lost }) => total + lost, 0);
const sentIn = (cells: readonly Cell[]) => cells.reduce((total, { sent }) => total + sent, 0);
const isThrottled = ({ disturbance }: Cell) => disturbance === 'throttled';

function lostOf(cells: readonly Cell[]): string {
  const lost = lostIn(cells);
  return `${lost === 0 ? '**0**' : count(lost)}/${count(sentIn(cells))}`;
}

/** `5`, `5 to 11` */
function span(values: readonly number[], digits = 0): string {
  const [least, most] = [Math.min(...values), Math.max(...values)].map((each) => each.toFixed(digits));
  return least === most ? `${least}` : `${least} to ${most}`;
}

/** Those that are one run. */
const runsIn = (cells: readonly Cell[]) =>
  Map.groupBy(cells, ({ strategy, disturbance, run }) => `${strategy}, ${disturbance}, ${run}`);

/** The strategies of `npm run bench:drain`, as docs/benchmarks.md says them. */
const STRATEGIES: Readonly<Record<string, string>> = {
  nothing: 'nothing',
  'sleep 5': '`sleep 5`',
  'sleep 15': '`sleep 15`',
  'sleep 30': '`sleep 30`',
  'pod-graceful-drain 0.1.1': 'pod-graceful-drain 0.1.1, its defaults',
  'Linger Sleep': 'Linger `Sleep`, the gateway’s interval declared',
  'Linger Hold': 'Linger `Hold`, no gateway declared, `hold.min: 5s`',
  'Linger Hold declared': 'Linger `Hold`, gateways inspected, `hold.min: 0s`',
};

const DISTURBANCES = ['rollout', 'scale', 'drain', 'throttled', 'storm'];

/** What each strategy lost of everything, under what it was measured with. */
function drainStrategies(): string {
  const { machine, kubernetes, cells } = resultsOf<Results>('drain.json');
  const runs = [...runsIn(cells).keys()].map((each) => each.replace(/, \d+$/, ''));
  const each = [...Map.groupBy(runs, (cell) => cell).values()].map(({ length }) => length);
  const head =
    `**Kubernetes ${kubernetes.replace(/^v/, '')}, ${runs.length} runs, ${span(each)} of each cell**, in random order, ` +
    `at a load of ${span(
      cells.map(({ load }) => load),
      1,
    )}; ${machine}:`;
  const rows = Object.entries(STRATEGIES).map(([strategy, what]) => {
    const own = cells.filter((cell) => cell.strategy === strategy);
    return { what, own, fresh: own.filter(isFresh) };
  });
  const body = table(rows, {
    strategy: ({ what }) => what,
    runs: ({ own }) => String(runsIn(own).size),
    'lost/sent on new connections': ({ fresh }) => lostOf(fresh),
    'of these while throttled': ({ fresh }) => count(lostIn(fresh.filter(isThrottled))),
    'lost/sent on connections that stay open': ({ own }) => lostOf(own.filter((cell) => !isFresh(cell))),
  });
  return `${head}\n\n${body}`;
}

/** The same by disturbance, with what single runs lost and the seconds from the deletion to SIGTERM. */
function drainDisturbances(): string {
  const fresh = resultsOf<Results>('drain.json').cells.filter(isFresh);
  return table(Object.entries(STRATEGIES), {
    strategy: ([, what]) => what.replace(/,.*/, (rest) => (rest.includes('inspected') ? ', inspected' : '')),
    ...Object.fromEntries(
      DISTURBANCES.map((disturbance) => [
        disturbance,
        ([strategy]: Of<string>) => {
          const own = fresh.filter((cell) => cell.strategy === strategy && cell.disturbance === disturbance);
          const waits = own.flatMap((cell) => cell.waits);
          const each = [...runsIn(own).values()].map(lostIn);
          const spread = lostIn(own) > 0 && each.length > 1 ? `; ${span(each)}` : '';
          return `${lostOf(own).replaceAll('*', '')}${spread} (${waits.length === 0 ? '–' : span(waits)})`;
        },
      ]),
    ),
  });
}

/** For each disturbance, what each client saw. */
const DRAIN_CLIENTS = Object.fromEntries(
  DISTURBANCES.map((disturbance) => [
    `drain-${disturbance}`,
    () => clientsTable(resultsOf<Results>('drain.json').cells, disturbance, Object.keys(STRATEGIES)),
  ]),
);

/** bench/results/drain.svg */
export const drainPicture = (): string =>
  chartSvg(
    chartsOf(resultsOf<Results>('drain.json').cells, {
      disturbances: DISTURBANCES,
      strategies: Object.keys(STRATEGIES),
    }),
  );

interface BalanceResults {
  readonly machine: string;
  readonly kubernetes: string;
  readonly controllerRuntime: string;
  readonly load: readonly [before: number, after: number];
  readonly seconds: number;
  readonly rate: number;
  readonly burst: number;
  readonly results: readonly {
    readonly name: string;
    readonly protocols: readonly string[];
    readonly reviews: number;
    readonly shares: readonly number[];
    readonly p50Ms: number;
    readonly p90Ms: number;
    readonly p99Ms: number;
    /** Not known of some. */
    readonly cpuMs: number | null;
  }[];
}

/** How reviews are spread over three replicas, under what it was measured with. */
function balance(): string {
  const { machine, kubernetes, controllerRuntime, load, seconds, rate, burst, results } =
    resultsOf<BalanceResults>('balance.json');
  const head =
    `**Kubernetes ${kubernetes.replace(/^v/, '')}, controller-runtime ${controllerRuntime.replace(/^v/, '')}, ${seconds} s after a ` +
    `rolling restart**, ${burst} pods at once, at most ${rate} a second, at a load of ${load.join(' to ')}; ${machine}:`;
  const percent = (share: number) => `${Math.round(100 * share)}`;
  const body = table(results, {
    'three replicas of': ({ name }) => name,
    'reviews by': ({ protocols }) => protocols.join(', ') || 'HTTP/1.1',
    reviews: ({ reviews }) => count(reviews),
    'share of each replica, %': ({ shares }) => shares.map(percent).join(', '),
    'creation of a pod, p50, p90, p99': ({ p50Ms, p90Ms, p99Ms }) => `${p50Ms}, ${p90Ms}, ${p99Ms} ms`,
    'CPU of the replicas': ({ cpuMs }) => (cpuMs === null ? '–' : `${cpuMs} ms a review`),
  });
  return `${head}\n\n${body}`;
}

/** What waits, in the words of each README, and the strategies of `npm run bench:drain` that it covers. */
const DRAIN_ROWS: readonly {
  readonly en: string;
  readonly zh: string;
  readonly strategies: readonly string[];
}[] = [
  { en: 'nothing', zh: '不等待', strategies: ['nothing'] },
  { en: '`sleep 5` in a preStop hook', zh: 'preStop 中 `sleep 5`', strategies: ['sleep 5'] },
  { en: '`sleep 15`', zh: '`sleep 15`', strategies: ['sleep 15'] },
  { en: '`sleep 30`', zh: '`sleep 30`', strategies: ['sleep 30'] },
  ...['pod-graceful-drain 0.1.1'].map((name) => ({ en: name, zh: name, strategies: [name] })),
  { en: 'Linger, default hook `Sleep`', zh: 'Linger 默认钩子 `Sleep`', strategies: ['Linger Sleep'] },
  {
    en: 'Linger, hook `Hold`',
    zh: 'Linger 钩子 `Hold`',
    strategies: ['Linger Hold', 'Linger Hold declared'],
  },
];

const DRAIN_HEADINGS = {
  en: [
    'what waits (Kubernetes VERSION)',
    'lost',
    'of these while the control plane was throttled',
    'of requests',
    'runs',
  ],
  zh: ['等待方式（Kubernetes VERSION）', '丢失', '其中控制面限流时丢失', '请求总数', '轮数'],
} as const;

type Language = 'en' | 'zh';

/** Requests on new connections that were lost, by what waits: connections that stay open are the application's to drain. */
function drainRows(language: Language) {
  const { kubernetes, cells } = resultsOf<Results>('drain.json');
  const rows = DRAIN_ROWS.map(({ [language]: what, strategies }) => {
    const own = cells.filter((cell) => isFresh(cell) && strategies.includes(cell.strategy));
    const throttled = lostIn(own.filter(isThrottled));
    return { what, strategies, lost: lostIn(own), throttled, sent: sentIn(own), runs: runsIn(own).size };
  });
  return { kubernetes: kubernetes.replace(/^v/, ''), rows };
}

function drain(language: Language): string {
  const { kubernetes, rows } = drainRows(language);
  const [what, lost, throttled, sent, runs] = DRAIN_HEADINGS[language];
  return table(rows, {
    [what.replace('VERSION', kubernetes)]: (row) => row.what,
    [lost]: (row) => (row.lost === 0 ? '**0**' : count(row.lost)),
    [throttled]: (row) => count(row.throttled),
    [sent]: (row) => count(row.sent),
    [runs]: (row) => String(row.runs),
  });
}

/** The first sentence of each README: what the best hook loses, and what the default one does. */
function drainClaim(language: Language): string {
  const { rows } = drainRows(language);
  const of = (strategy: string) => {
    const row = rows.find(({ strategies }) => strategies.includes(strategy));
    if (row === undefined) throw new Error(`bench/results/drain.json: no row of ${strategy}`);
    const { lost, sent, runs, throttled } = row;
    return {
      lost: count(lost),
      sent: count(sent),
      runs,
      throttled: throttled === lost ? 'all' : count(throttled),
    };
  };
  const [hold, sleep] = [of('Linger Hold'), of('Linger Sleep')];
  return language === 'en'
    ? `**Linger keeps Kubernetes pods from losing requests when they terminate: with its hook \`Hold\`, ${hold.lost} of ${hold.sent} requests on new connections were lost in ${hold.runs} runs of rollouts, drains, scale-downs, storms and a throttled control plane; with its default hook, \`Sleep\`, ${sleep.lost} of ${sleep.sent} in ${sleep.runs} runs, ${sleep.throttled} of them while the control plane was throttled.**`
    : `**Linger 让 Kubernetes 的 Pod 在终止时不丢请求：在滚动发布、节点排空、缩容、端点风暴和控制面限流的测试中，钩子 \`Hold\` 运行 ${hold.runs} 轮，新建连接上的 ${hold.sent} 个请求丢失 ${hold.lost} 个；默认钩子 \`Sleep\` 运行 ${sleep.runs} 轮，${sleep.sent} 个请求丢失 ${sleep.lost} 个，${sleep.throttled === 'all' ? '全部' : `其中 ${sleep.throttled} 个`}发生在控制面限流期间。**`;
}

const FLAG_TABLES = VERB_FLAGS.map(
  ({ verb, flags, examples }) => [`${verb}-flags`, () => ofFlags(flags, examples)] as const,
);

function commands(): string {
  const shown = Object.entries<Verb>(VERBS).filter(([, { group }]) => group !== 'internal');
  return table(shown, {
    command: ([verb]) => `[\`${verb}\`](#${verb})`,
    'what it does': ([, { reference }]) => reference,
  });
}

function ofMetrics(metrics: readonly Described[]): string {
  return table(metrics, {
    'metric and labels': ({ name, labelNames }) =>
      labelNames.length === 0 ? `\`${name}\`` : `\`${name}{${labelNames.join(',')}}\``,
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

/** Fields that mean the same, such as those of TLS, share a row. */
function consumerFields(): string {
  const values = ({ values: said, isRequired }: DocumentedField) => (isRequired ? `${said}; required` : said);
  const alike = Map.groupBy(fieldsOf(discoveryConsumerSpec), (field) => `${values(field)} ${field.meaning}`);
  return table(alike.values(), {
    field: (fields) => fields.map(fieldName).join(', '),
    values: ([field]) => (field === undefined ? '' : values(field)),
    meaning: ([field]) => field?.meaning ?? '',
  });
}

/** Every table that a page takes from a catalogue, between `<!-- table: NAME -->` and `<!-- end -->`. */
export const TABLES: Readonly<Record<string, () => string>> = {
  'skip-questions': skipQuestions,
  'skip-reasons': skipReasons,
  notes,
  'wait-reasons': () => table(Object.entries(WAIT_REASONS), { why: code, 'what it means': means }),
  'page-formats': () =>
    table(Object.entries<PageFormatKind>(PAGE_FORMATS), {
      '`format`': code,
      page: ([, { page }]) => page,
      'an address is in use while it is listed, unless': ([, { unless }]) => unless,
    }),
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
      'what is wrong': means,
      'what to do': cure,
    }),
  'connection-errors': () => ofErrors(CONNECTION_ERRORS),
  'certificate-errors': () => ofErrors(CERTIFICATE_ERRORS),
  'watch-restarts': () => ofReasons(RESTARTS),
  // What a watch may meet, too, is in its table.
  'publish-failures': () =>
    ofReasons(
      Object.fromEntries(
        Object.entries<Curable>(OBJECT_FAILURES).filter(
          ([reason, { cure: todo }]) =>
            (RESTARTS as Readonly<Record<string, Curable>>)[reason]?.cure !== todo,
        ),
      ),
    ),
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
  checks: () => table(Object.entries(CHECKS), { check: code, 'what is checked': means }),
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
    table(
      Map.groupBy(fieldsOf(discoveryConsumerStatus), ({ meaning: said }) => said),
      { field: ([, fields]) => fields.map(fieldName).join(', '), meaning: ([said]) => said },
    ),
  alerts: () => table(Object.entries(ALERTS), { alert: code, cause: means, cure }),
  metrics: () => ofMetrics(serverMetrics),
  'cluster-metrics': () => ofMetrics(clusterMetrics),
  'shared-flags': () => table(SHARED.values(), FLAG_COLUMNS),
  drain: () => drain('en'),
  'drain-zh': () => drain('zh'),
  'drain-claim': () => drainClaim('en'),
  'drain-claim-zh': () => drainClaim('zh'),
  'drain-strategies': drainStrategies,
  'drain-disturbances': drainDisturbances,
  ...DRAIN_CLIENTS,
  balance,
  ...Object.fromEntries(FLAG_TABLES),
};

const MARKED = /(?<=^<!-- table: (?<name>[\w-]+) -->\n)(?:(?!<!--).*\n)*(?=<!-- end -->$)/gm;

/** A catalogue's links are relative to docs/reference; these are for a page elsewhere. */
function rebased(text: string, page: string): string {
  const folder = dirname(page);
  return text.replaceAll(/\]\((?![a-z]+:|#)([^)#]+)(#[^)]*)?\)/g, (_, target: string, anchor = '') => {
    const path = join('docs/reference', target);
    return `](${path === page ? '' : relative(folder, path)}${anchor})`;
  });
}

/** A page with its tables as they are now. @throws Error for a table that there is not */
function pageText(path: string): string {
  return readFileSync(join(ROOT, path), 'utf8').replaceAll(MARKED, (_, name: string) => {
    const text = TABLES[name];
    if (text === undefined)
      throw new Error(`${path}: there is no table "${name}" in deploy/generate/tables.ts`);
    return `${dirname(path) === 'docs/reference' ? text() : rebased(text(), path)}\n`;
  });
}

const PAGES = [
  'README.md',
  'README.zh-CN.md',
  'certs/README.md',
  'bench/results/measurements.md',
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
