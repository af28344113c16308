import { CHANGES } from '../core/changes/change.ts';
import type { ObservedChange } from '../core/changes/observer.ts';
import type { SourceSummary } from '../core/changes/summary.ts';
import { DISCARDS, type DiscardCounts, type DiscardReason } from '../core/lag/discards.ts';
import type { LagStage } from '../core/lag/sample.ts';
import { columns } from './columns.ts';
import { showSeconds } from './seconds.ts';

/** A removal that has begun and whose end has not shown. */
export interface WaitingRemoval {
  readonly source: LagStage;
  readonly namespace: string;
  readonly service: string;
  readonly pod: string;
  readonly ageSeconds: number;
}

/** A time in which a watch told nothing, or told it late. */
export interface WatchGap {
  /** `pods`, or `pods in shop`. */
  readonly what: string;
  readonly since: Date;
  readonly seconds: number;
  readonly goesOn: boolean;
  readonly cause: string | undefined;
}

export interface WatchSummary {
  readonly seconds: number;
  readonly sources: readonly SourceSummary[];
  readonly slowest: readonly (ObservedChange & { readonly lag: number })[];
  /** Oldest first. */
  readonly unresolved: readonly WaitingRemoval[];
  readonly discarded: DiscardCounts;
  readonly gaps: readonly WatchGap[];
}

/** A node that dies leaves hundreds; how many there are is said anyway. */
const MOST_LISTED = 10;

/** What `linger watch` says at its end. */
export function renderSummary(summary: WatchSummary): string {
  const parts = [
    [`Watched for ${showSeconds(summary.seconds)}.`],
    lagLines(summary.sources),
    changeLines(summary.sources),
    section('Slowest removals', summary.slowest, ({ lag, source, namespace, service = '-', pod = '-' }) => [
      showSeconds(lag),
      source,
      `${namespace}/${service}`,
      pod,
    ]),
    section(
      'Not withdrawn yet, and for how long',
      summary.unresolved,
      ({ ageSeconds, source, namespace, service, pod }) => [
        showSeconds(ageSeconds),
        source,
        `${namespace}/${service}`,
        pod,
      ],
    ),
    discardLines(summary.discarded),
    section('Interruptions: what happened in them has no lag', summary.gaps, gapCells),
  ];
  return `${parts
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.join('\n'))
    .join('\n\n')}\n`;
}

function lagLines(sources: readonly SourceSummary[]): readonly string[] {
  const rows = sources.map(({ source, samples, lag }) => [
    `  ${source}`,
    String(samples),
    ...(lag === undefined ? ['-', '-', '-', '-'] : [lag.p50, lag.p90, lag.p99, lag.max].map(showSeconds)),
  ]);
  const header = ['Lag of removals', 'samples', 'p50', 'p90', 'p99', 'max'];
  return columns([header, ...rows], ['left', 'right', 'right', 'right', 'right', 'right']);
}

function changeLines(sources: readonly SourceSummary[]): readonly string[] {
  const rows = sources.map(({ source, changes }) => [
    `  ${source}`,
    ...CHANGES.map((change) => String(changes[change])),
  ]);
  return columns([['Changes', ...CHANGES], ...rows], ['left', ...CHANGES.map(() => 'right' as const)]);
}

function section<T>(
  title: string,
  items: readonly T[],
  cellsOf: (item: T) => readonly string[],
): readonly string[] {
  if (items.length === 0) return [];
  const shown = items.slice(0, MOST_LISTED).map(cellsOf);
  const lines = columns(shown, ['right', 'left', 'left', 'left']).map((line) => `  ${line}`);
  const rest = items.length - shown.length;
  return [`${title}`, ...lines, ...(rest > 0 ? [`  and ${rest} more`] : [])];
}

function discardLines(discarded: DiscardCounts): readonly string[] {
  const reasons = (Object.keys(DISCARDS) as DiscardReason[]).filter((reason) => discarded[reason] > 0);
  const rows = reasons.map((reason) => [`  ${discarded[reason]}`, reason, DISCARDS[reason]]);
  if (rows.length === 0) return [];
  return ['Removals without a lag, of everything watched', ...columns(rows, ['right', 'left', 'left'])];
}

function gapCells({ what, since, seconds, goesOn, cause }: WatchGap): readonly string[] {
  const lasted = `${showSeconds(seconds)}${goesOn ? ' so far' : ''}`;
  return [lasted, since.toISOString(), what, cause ?? 'nothing was heard'];
}
