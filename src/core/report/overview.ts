import {
  type ClusterSnapshot,
  type Exposure,
  evidenceOf,
  explain,
  exposureOf,
  requestOf,
} from '../decision/index.ts';
import {
  type Audited,
  type AuditFinding,
  type AuditSubject,
  type AuditSummary,
  neededOf,
  subjectOf,
  summaryOfAudit,
} from '../judge/index.ts';
import { CONTROL_PLANE } from '../lag/index.ts';
import { type Chart, spanOf } from '../timeline/index.ts';
import type { WorkloadExplanation } from './explanations.ts';
import { plannedChart } from './planned-chart.ts';
import { planOfRunning } from './workloads.ts';

/**
 * What happens to a workload’s requests during a rollout.
 * - `lost`: something is known to send to its pods, which stop before it has followed.
 * - `assumed`: the same, but nothing here shows that something sends to them.
 */
export const FATES = ['lost', 'assumed', 'fine', 'unknown'] as const;
export type Fate = (typeof FATES)[number];

/** A workload with its verdict. */
export interface JudgedWorkload {
  readonly subject: AuditSubject;
  readonly audited: Audited;
}

/** A workload of a list. */
export interface WorkloadRow<F = AuditFinding> {
  /** `Deployment/shop/web`; the second of that name is `Deployment/shop/web~2`. */
  readonly address: string;
  readonly fate: Fate;
  /** The decisive one first. */
  readonly findings: readonly F[];
}

/** A summary of all workloads, the same for manifests and for a cluster. */
export interface WorkloadsOverview {
  /** `3 of 11 lose requests when they roll; 5 are assumed to; 3 are fine` */
  readonly headline: string;
  /** What the headline is based on, in one sentence each. */
  readonly basis: readonly string[];
  readonly summary: AuditSummary;
  readonly fates: Readonly<Record<Fate, number>>;
  /** One row for each workload, in the order of the audit. */
  readonly rows: readonly WorkloadRow[];
}

/** Yields after each workload, because thousands take a while. */
export function* overviewOf(
  judged: readonly JudgedWorkload[],
  snapshot: ClusterSnapshot,
): Generator<void, WorkloadsOverview> {
  const fates: Record<Fate, number> = { lost: 0, assumed: 0, fine: 0, unknown: 0 };
  const rows: WorkloadRow[] = [];
  for (const [index, address] of addressesOf(judged).entries()) {
    const each = judged[index];
    if (each === undefined) continue;
    const fate = fateOf(each, snapshot);
    fates[fate] += 1;
    rows.push({ address, fate, findings: each.audited.findings });
    yield;
  }
  const open = judged.filter((_, index) => ['lost', 'assumed'].includes(rows[index]?.fate ?? 'unknown'));
  return {
    headline: headlineOfFates(fates),
    basis: basisOf(fates, open, snapshot),
    summary: summaryOfAudit(judged.map(({ audited }) => audited)),
    fates,
    rows,
  };
}

/** The addresses under which lists and links refer to workloads, in the same order. */
function addressesOf(judged: readonly Pick<JudgedWorkload, 'subject'>[]): readonly string[] {
  const times = new Map<string, number>();
  return judged.map(({ subject: { workload, namespace } }) => {
    const address = `${workload.kind}/${namespace}/${workload.name}`;
    const time = (times.get(address) ?? 0) + 1;
    times.set(address, time);
    return time === 1 ? address : `${address}~${time}`;
  });
}

export function fateOf({ subject, audited: { findings } }: JudgedWorkload, snapshot: ClusterSnapshot): Fate {
  const [own] = findings;
  if (own?.verdict === 'protected' || own?.verdict === 'skipped') return 'fine';
  if (own?.verdict !== 'unprotected') return 'unknown';
  const exposure = exposureOf(requestOf(subject), snapshot);
  if (exposure === undefined || own.reason === 'UndeclaredConsumer') return 'lost';
  return hasSender(exposure) ? 'lost' : 'assumed';
}

/** `stands`: the workload's pods have what they need; `helps`: they do not, but Linger's plan would give it to them. */
export function standingOf(judged: JudgedWorkload, snapshot: ClusterSnapshot) {
  const stands = fateOf(judged, snapshot) === 'fine';
  return { stands, helps: !stands && judged.audited.wouldBe };
}

/** Whether a Service or a declared consumer leads to these pods. */
function hasSender({ services, consumers }: Exposure): boolean {
  const hasClient = services !== 'unknown' && services.length > 0;
  return hasClient || consumers.some(({ builtIn }) => !builtIn);
}

function headlineOfFates({ lost, assumed, fine, unknown }: WorkloadsOverview['fates']): string {
  const all = lost + assumed + fine + unknown;
  if (all === 0) return 'No workload yet';
  const [are, they] = lost === 1 ? ['loses', 'it rolls'] : ['lose', 'they roll'];
  const parts = [
    `${lost} of ${all} ${are} requests when ${they}`,
    ...(assumed > 0 ? [`${assumed} ${assumed === 1 ? 'is' : 'are'} assumed to`] : []),
    ...(fine > 0 ? [`${fine} ${fine === 1 ? 'is' : 'are'} fine`] : []),
    ...(unknown > 0 ? [`of ${unknown} it is not known`] : []),
  ];
  return parts.join('; ');
}

const MOST_TEXTS = 3;

function basisOf(
  { lost, assumed, unknown }: WorkloadsOverview['fates'],
  open: readonly JudgedWorkload[],
  snapshot: ClusterSnapshot,
): readonly string[] {
  const exposed = open.flatMap(({ audited }) => audited.findings);
  const texts = Map.groupBy(
    exposed.flatMap(({ exposureSeconds, evidence }) =>
      (exposureSeconds ?? 0) > 0 ? (evidence?.text ?? []) : [],
    ),
    (text) => text,
  );
  const forHowMany = (count: number) => (texts.size > 1 ? ` (${count} of them)` : '');
  return [
    ...worstInWords(open, snapshot),
    ...(lost > 0 ? ['Lose: a Service or a route leads to their pods, which stop before it follows.'] : []),
    ...(assumed > 0 ? ['Assumed: their containers declare ports, and no Service here selects them.'] : []),
    ...(unknown > 0 ? ['Not known: the reason stands beside each.'] : []),
    ...[...texts]
      .slice(0, MOST_TEXTS)
      .map(([text, { length }]) => `How long is ${text}${forHowMany(length)}.`),
  ];
}

/** The workload whose pods get requests for the longest time after they have stopped, unless it is like all others. */
function worstInWords(open: readonly JudgedWorkload[], snapshot: ClusterSnapshot): readonly string[] {
  const exposureOfEach = ({ audited }: JudgedWorkload) => audited.findings[0]?.exposureSeconds ?? 0;
  const [worst, ...others] = open.toSorted((a, b) => exposureOfEach(b) - exposureOfEach(a));
  const own = worst?.audited.findings[0];
  if (worst === undefined || own === undefined) return [];
  const seconds = exposureOfEach(worst);
  const through = slowestFor(worst.subject, snapshot);
  const isAlike = others.every((each) => exposureOfEach(each) === seconds);
  if (seconds <= 0 || (isAlike && through === undefined)) return [];
  const howLong = seconds >= 1e9 ? spanOf(seconds) : `for ${spanOf(seconds)}`;
  const by = through === undefined ? '' : ` through ${through}`;
  return [`Worst: ${subjectOf(own)}, ${howLong}${by}.`];
}

/** The consumer that is the last to follow removals of these pods; undefined: none is known. */
function slowestFor(subject: AuditSubject, snapshot: ClusterSnapshot): string | undefined {
  const { estimate } = explain(planOfRunning(subject, snapshot));
  const consumers = (estimate?.parts ?? []).filter(({ name }) => name !== CONTROL_PLANE);
  return consumers.toSorted((a, b) => (b.lagSeconds ?? 0) - (a.lagSeconds ?? 0))[0]?.name;
}

/** Charts of its termination, as it is and with Linger’s wait; empty: nothing is known of it. */
export function plannedCharts(
  { subject, audited: { findings, wouldBe } }: JudgedWorkload,
  plan: WorkloadExplanation,
  snapshot: ClusterSnapshot,
): readonly Chart[] {
  const [own] = findings;
  const exposure = exposureOf(requestOf(subject), snapshot);
  if (own === undefined || exposure === undefined || own.waitSeconds === null) return [];
  const lag = neededOf(exposure);
  const { basis } = evidenceOf(exposure);
  const now = plannedChart({
    title: `${subjectOf(own)}: as it is`,
    lag,
    basis,
    wait: own.waitSeconds,
    grace: own.graceSeconds ?? plan.baseGraceSeconds ?? 30,
  });
  const { waitSeconds, graceSeconds, outcome } = plan;
  const changes = waitSeconds !== null && waitSeconds !== own.waitSeconds && outcome === 'inject';
  // No chart of the wait if the wait alone would not help, because the chart would suggest that it does.
  if (!changes || graceSeconds === null || !wouldBe) return [now];
  const then = { title: 'With the patch', lag, basis, wait: waitSeconds, grace: graceSeconds };
  return [now, plannedChart(then)];
}
