import { z } from 'zod';
import { fewOf, grouped } from '../core/api/index.ts';
import { junitSuite, markdownCell, xml } from '../core/judge/index.ts';
import type { Chart, Lane, Span } from '../core/timeline/index.ts';
import type { ProveResult } from './proving.ts';
import { LOSS_KINDS } from './traffic-plan.ts';
import { type FailedRequest, LOSS_CAUSES, type PodLife, percentUp } from './verdict.ts';

const MOST_FAILURES = 1_000;

const counts = z.record(z.string(), z.number());
const instant = z.iso.datetime().nullable();
const seconds = z.number().nullable();

const explained = z.strictObject({
  at: z.iso.datetime(),
  tookMs: z.number(),
  way: z.string(),
  kind: z.enum([...LOSS_KINDS, 'slow']),
  cause: z.enum(Object.keys(LOSS_CAUSES) as [keyof typeof LOSS_CAUSES]),
  pods: z.array(z.string()),
  after: z.strictObject({ event: z.string(), seconds: z.number() }).nullable(),
  sinceDeletion: seconds,
  sinceWithdrawal: seconds,
});

/** The output of `linger prove --output json`. Instants are UTC; spans are seconds. */
export const proveReport = z.strictObject({
  workload: z.string(),
  disturbance: z.string(),
  startedAt: z.iso.datetime(),
  disturbedAt: z.iso.datetime(),
  endedAt: z.iso.datetime(),
  /** How many pods sent, and their nodes. */
  senders: z.number(),
  nodes: z.array(z.string()),
  sent: z.number(),
  lost: z.number(),
  slow: z.number(),
  /**
   * Requests sent while a pod was terminating; if none of them was lost, also the share that may be lost, at 95 %
   * confidence.
   */
  atRisk: z.number(),
  upperBound: seconds,
  verdict: z.string(),
  advice: z.strictObject({ wait: z.number(), waitFor98: z.number() }).nullable(),
  ways: z.array(
    z.strictObject({
      name: z.string(),
      keepAlive: z.boolean(),
      sent: z.number(),
      lost: z.number(),
      slow: z.number(),
      kinds: counts,
      causes: counts,
      atRisk: z.number(),
      upperBound: seconds,
      lag: z.strictObject({ least: z.number(), most: z.number() }).nullable(),
    }),
  ),
  pods: z.array(
    z.strictObject({
      name: z.string(),
      node: z.string().nullable(),
      wait: z.union([z.number(), z.literal('Hold')]),
      deletedAt: instant,
      withdrawnAt: instant,
      withdrawnFromEndpointsAt: instant,
      sigtermAt: instant,
      endedAt: instant,
      goneAt: instant,
    }),
  ),
  /** The requests that were lost, and those that were answered slowly: the first 1,000 of each. */
  failures: z.array(explained),
  slowAnswers: z.array(explained),
  notes: z.array(z.string()),
});
export type ProveReport = z.infer<typeof proveReport>;

/** The output of `linger prove --compare --output json`. */
export const comparison = z.strictObject({
  workload: z.string(),
  disturbance: z.string(),
  verdict: z.string(),
  without: proveReport,
  with: proveReport,
});
export type Comparison = z.infer<typeof comparison>;

/** Compares the same disturbance of two copies. */
export function compare(without: ProveReport, protectedBy: ProveReport): Comparison {
  const { workload, disturbance } = protectedBy;
  const side = (word: string, { sent, lost, pods }: ProveReport) =>
    `${word} Linger (${waitsOf(pods)}) ${grouped(lost)} of ${grouped(sent)} requests lost`;
  const { lost, upperBound, verdict } = protectedBy;
  const bound =
    upperBound === null ? '' : `, with 95 % confidence at most ${percentUp(upperBound)} of those at risk`;
  const meaning = () => {
    if (lost > 0) return ` With Linger: ${verdict}`;
    if (without.lost > 0) return '';
    return ' Through the Service this disturbance loses nothing even without Linger: raise --rate, or prove the original behind its gateway (--url), which follows later.';
  };
  const sides = `${side('Without', without)}; ${side('with', protectedBy)}${lost === 0 ? bound : ''}.`;
  return { workload, disturbance, verdict: `${sides}${meaning()}`, without, with: protectedBy };
}

/** `wait 15 s`, `Hold` */
function waitsOf(pods: ProveReport['pods']): string {
  const waits = new Set(pods.map(({ wait }) => (wait === 'Hold' ? wait : `wait ${wait} s`)));
  return fewOf([...waits]) || 'no pod was deleted';
}

/** A line for each side. */
export function sidesOf({ without, with: protectedBy }: Comparison): readonly (readonly string[])[] {
  const sides = Object.entries({ without, with: protectedBy }).map(([side, report]) => [
    ...[side, waitsOf(report.pods), grouped(report.sent), grouped(report.lost), grouped(report.slow)],
    grouped(report.atRisk),
  ]);
  return [['LINGER', 'WAIT', 'SENT', 'LOST', 'SLOW', 'AT RISK'], ...sides];
}

export function reportOf(
  { verdict, pods, startedAt, disturbedAt, endedAt, senders, nodes, notes }: ProveResult,
  { workload, disturbance }: Pick<ProveReport, 'workload' | 'disturbance'>,
): ProveReport {
  const { sentence, failures, slowAnswers, ways, ...totals } = verdict;
  return {
    workload,
    disturbance,
    startedAt: iso(startedAt),
    disturbedAt: iso(disturbedAt),
    endedAt: iso(endedAt),
    senders,
    nodes: [...nodes],
    ...totals,
    verdict: sentence,
    ways: [...ways],
    pods: pods.filter(({ deletedAt }) => deletedAt !== undefined).map(podOf),
    failures: failures.slice(0, MOST_FAILURES).map(explainedOf),
    slowAnswers: slowAnswers.slice(0, MOST_FAILURES).map(explainedOf),
    notes: [...notes, ...cutNote('lost', failures), ...cutNote('slow', slowAnswers)],
  };
}

const cutNote = (what: string, { length }: readonly FailedRequest[]): readonly string[] =>
  length > MOST_FAILURES
    ? [
        `of ${grouped(length)} ${what} requests, only the first ${grouped(MOST_FAILURES)} are listed and grouped`,
      ]
    : [];

function explainedOf({ at, pods, ...of }: FailedRequest): z.infer<typeof explained> {
  return { ...of, at: iso(at), pods: [...pods] };
}

function podOf({ name, node, wait, ...life }: PodLife): ProveReport['pods'][number] {
  const at = (value: number | undefined) => (value === undefined ? null : iso(value));
  return {
    name,
    node: node ?? null,
    wait,
    deletedAt: at(life.deletedAt),
    withdrawnAt: at(life.withdrawnAt),
    withdrawnFromEndpointsAt: at(life.endpointsAt),
    sigtermAt: at(life.sigtermAt),
    endedAt: at(life.endedAt),
    goneAt: at(life.goneAt),
  };
}

const iso = (at: number): string => new Date(at).toISOString();

/** The rows of the text forms: each way, each deleted pod, and the lost or slow requests by their explanation. */
export function tablesOf(
  report: ProveReport,
): Readonly<Record<'ways' | 'pods' | 'failures', readonly (readonly string[])[]>> {
  const list = (of: Readonly<Record<string, number>>) =>
    Object.entries(of)
      .map(([name, count]) => `${grouped(count)} ${name}`)
      .join(', ') || '-';
  const ways = report.ways.map(({ name, sent, lost, slow, kinds, causes, lag, atRisk, upperBound }) => [
    ...[name, grouped(sent), grouped(lost), grouped(slow), list(kinds), list(causes)],
    lag === null ? '-' : `${lag.least.toFixed(1)} to ${lag.most.toFixed(1)}s`,
    upperBound === null ? grouped(atRisk) : `${grouped(atRisk)} (≤ ${percentUp(upperBound)})`,
  ]);
  const pods = report.pods.map(({ name, node, wait, deletedAt, ...life }) => {
    const since = (at: string | null) =>
      at === null || deletedAt === null
        ? '-'
        : `${((Date.parse(at) - Date.parse(deletedAt)) / 1_000).toFixed(1)}s`;
    const { withdrawnAt, withdrawnFromEndpointsAt, sigtermAt, endedAt, goneAt } = life;
    const instants = [withdrawnAt, withdrawnFromEndpointsAt, sigtermAt, endedAt, goneAt].map(since);
    return [
      name,
      node ?? '-',
      deletedAt?.slice(11, 23) ?? '-',
      wait === 'Hold' ? wait : `${wait}s`,
      ...instants,
    ];
  });
  const groups = Map.groupBy(
    [...report.failures, ...report.slowAnswers],
    ({ way, kind, cause, pods: named }) => [way, kind, cause, named.join(', ') || '-'].join('\n'),
  );
  const failures = [...groups].map(([key, all]) => {
    const [way = '', kind = '', cause = '', named = ''] = key.split('\n');
    const [first] = all;
    const after =
      first?.after === null || first === undefined
        ? '-'
        : `${first.after.seconds.toFixed(1)}s after ${first.after.event}`;
    return [grouped(all.length), way, kind, cause, named, first?.at.slice(11, 23) ?? '-', after];
  });
  return {
    ways: [['WAY', 'SENT', 'LOST', 'SLOW', 'KINDS', 'CAUSES', 'LAG', 'AT RISK'], ...ways],
    pods: [['POD', 'NODE', 'DELETED', 'WAIT', 'SLICE', 'ENDPOINTS', 'SIGTERM', 'ENDED', 'GONE'], ...pods],
    failures:
      failures.length === 0
        ? []
        : [['REQUESTS', 'WAY', 'KIND', 'CAUSE', 'POD, OR ONE OF', 'FIRST', 'FIRST AFTER'], ...failures],
  };
}

/** A test case for each way; those that lost requests fail. */
export function junitOf(report: ProveReport, verdict = report.verdict): string {
  const cases = report.ways.map(({ name, sent, lost }) => {
    const head = `    <testcase classname="linger.prove" name="${xml(`${titleOf(report)}, through ${name}`)}"`;
    if (lost === 0) return `${head}/>`;
    const message = `${grouped(lost)} of ${grouped(sent)} requests lost`;
    return `${head}>\n      <failure message="${message}">${xml(verdict)}</failure>\n    </testcase>`;
  });
  const failures = report.ways.filter(({ lost }) => lost > 0).length;
  return junitSuite('linger prove', { tests: cases.length, failures }, cases);
}

export const titleOf = ({ workload, disturbance }: Pick<ProveReport, 'workload' | 'disturbance'>): string =>
  `${workload}: ${disturbance}`;

function markdownTable(rows: readonly (readonly string[])[]): string {
  const [head = [], ...rest] = rows;
  return [head, head.map(() => '---'), ...rest.map((row) => row.map(markdownCell))]
    .map((row) => `| ${row.join(' | ')} |\n`)
    .join('');
}

export function markdownOf(report: ProveReport): string {
  const { ways, pods, failures } = tablesOf(report);
  const tables = [ways, pods, failures].filter((rows) => rows.length > 1).map(markdownTable);
  const notes = report.notes.map((note) => `- ${markdownCell(note)}\n`).join('');
  const head = `**linger prove**, ${markdownCell(titleOf(report))}: ${markdownCell(report.verdict)}\n`;
  return [head, ...tables, ...(notes === '' ? [] : [notes])].join('\n');
}

export function markdownOfBoth(found: Comparison): string {
  const head = `**linger prove --compare**, ${markdownCell(titleOf(found))}: ${markdownCell(found.verdict)}\n`;
  return [head, markdownTable(sidesOf(found)), markdownOf(found.without), markdownOf(found.with)].join('\n');
}

/** One chart of both runs, on the same axis. */
export function drawingOfBoth(found: Comparison, without: Chart, protectedBy: Chart): Chart {
  const lanesOf = (word: string, { lanes }: Chart) =>
    lanes.map((lane) => ({ ...lane, label: `${word}: ${lane.label}` }));
  return {
    title: titleOf(found),
    summary: found.verdict,
    marks: protectedBy.marks,
    from: Math.min(without.from, protectedBy.from),
    to: Math.max(without.to, protectedBy.to),
    lanes: [...lanesOf('without', without), ...lanesOf('with', protectedBy)],
  };
}

/** How many deleted pods are drawn: those with the most losses first. */
const MOST_LANES = 40;

/**
 * The chart of a run: a lane for each way with its requests, and one for each deleted pod with the requests that it may have
 * lost.
 */
export function drawingOf(
  { verdict, outcomes, pods, startedAt, disturbedAt, endedAt }: ProveResult,
  title: string,
): Chart {
  const since = (at: number) => (at - disturbedAt) / 1_000;
  const ofWays = verdict.ways.map(({ name: label, sent, lost: count }, index): Lane => {
    const own = outcomes.filter(({ way }) => way === index);
    const dots = own.map((each) => ({ at: since(each.at), lost: each.lost !== undefined }));
    return { label, note: `${grouped(count)} of ${grouped(sent)} lost`, dots };
  });
  const lossesOf = ({ name }: PodLife) =>
    verdict.failures
      .filter((each) => each.pods.includes(name))
      .map(({ at }) => ({ at: since(at), lost: true }));
  const went = pods
    .filter(({ deletedAt }) => deletedAt !== undefined)
    .map((life) => ({ life, dots: lossesOf(life) }));
  const ofPods = went
    .toSorted((a, b) => b.dots.length - a.dots.length)
    .slice(0, MOST_LANES)
    .toSorted((a, b) => (a.life.deletedAt ?? 0) - (b.life.deletedAt ?? 0))
    .map(({ life, dots }): Lane => {
      const note = life.wait === 'Hold' ? 'Hold' : `wait ${life.wait} s`;
      return { label: life.name, note, spans: spansOf(life, since, endedAt), dots };
    });
  const left = went.length - ofPods.length;
  return {
    title,
    summary: verdict.sentence,
    from: since(startedAt),
    to: since(endedAt),
    marks: [{ at: 0, label: 'disturbed' }],
    lanes: [...ofWays, ...ofPods, ...(left > 0 ? [{ label: `and ${left} more pods` }] : [])],
  };
}

function spansOf(life: PodLife, since: (at: number) => number, endedAt: number): readonly Span[] {
  const { deletedAt = endedAt, goneAt = endedAt } = life;
  const sigtermAt = Math.min(life.sigtermAt ?? life.endedAt ?? goneAt, goneAt);
  const spans: readonly Span[] = [
    { from: since(deletedAt), to: since(sigtermAt), tone: 'waits' },
    { from: since(sigtermAt), to: since(goneAt), tone: 'stops' },
  ];
  return spans.filter(({ from, to }) => to > from);
}
