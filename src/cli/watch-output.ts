import { printable } from '../core/api/index.ts';
import {
  CHANGES,
  type ChangeKind,
  type ChangeSummary,
  DISCARDS,
  type DiscardCounts,
  type DiscardReason,
  ENDPOINT_SOURCES,
  type ObservedChange,
  type SourceSummary,
  type UnresolvedRemoval,
} from '../core/lag/index.ts';
import { columns, paragraphs, showSeconds } from './terminal.ts';

/**
 * A change as a line of `linger watch --output json`. Null: the slice has no Service, the address has no pod, or there is no
 * lag.
 */
export function changeLine(change: ObservedChange, time: Date, context?: string) {
  const { namespace, service, pod = null, ip, source, lag } = change;
  return {
    time: time.toISOString(),
    ...(context !== undefined && { context }),
    namespace,
    service: service === '' ? null : service,
    pod,
    ip,
    change: change.change,
    source,
    // Watches differ by milliseconds, so more digits would be meaningless.
    lagSeconds: lag === undefined ? null : Math.round(lag * 1000) / 1000,
  };
}

/** Values of JSON are also values of YAML. */
export function yamlDocument(line: object): string {
  const members = Object.entries(line).map(([key, value]) => `${key}: ${printable(JSON.stringify(value))}\n`);
  return `---\n${members.join('')}`;
}

/** Whether to print namespaces (unless there is only one), dates and colours. */
interface ChangeTableOptions {
  readonly namespaces: boolean;
  readonly dates?: boolean;
  readonly colour: boolean;
  /** Whether to print the clusters' contexts. */
  readonly contexts?: boolean;
}

/** SGR codes; the terminal's palette determines the actual colours. */
const COLOURS: Readonly<Record<ChangeKind, number>> = {
  added: 36,
  ready: 32,
  notReady: 33,
  terminating: 33,
  removed: 31,
};

/** The initial widths of columns; some names of Services and pods are longer. */
const WIDTHS = [
  '≤12:00:00.000'.length,
  Math.max(...CHANGES.map((change) => change.length)),
  '59m59s'.length + 1,
  Math.max(...ENDPOINT_SOURCES.map((source) => source.length)),
  'shop/catalog'.length,
  'web-7d4b9c6f5d-x2v7q'.length,
  0,
] as const;
const CONTEXT_COLUMN = 4;
const RIGHT_ALIGNED: ReadonlySet<number> = new Set([0, 2]);
const CHANGE_COLUMN = 1;

/**
 * The rows of a growing table: columns are as wide as has been needed so far. Names are never cut, so that they can be
 * copied. With ordinary names a row has 100 characters.
 */
export class ChangeTable {
  readonly #options: ChangeTableOptions;
  readonly #widths: number[];

  constructor(options: ChangeTableOptions) {
    this.#options = options;
    this.#widths = this.#within(WIDTHS, 0);
  }

  header(): string {
    const names = ['TIME (UTC)', 'CHANGE', 'LAG', 'SOURCE', 'SERVICE', 'POD', 'IP'];
    return this.#row(this.#within(names, 'CONTEXT'));
  }

  #within<T>(cells: readonly T[], context: T): T[] {
    return cells.toSpliced(CONTEXT_COLUMN, 0, ...(this.#options.contexts === true ? [context] : []));
  }

  /** `≤` before the time means that it happened at some earlier instant. */
  row(change: ObservedChange, time: Date, context = ''): string {
    const { seen, lag, source, namespace, pod = '-', ip } = change;
    const service = change.service || '-';
    const from = this.#options.dates === true ? 0 : '2026-01-01T'.length;
    const clock = time.toISOString().slice(from, -1);
    const cells = [
      seen === 'live' ? clock : `≤${clock}`,
      change.change,
      lag === undefined ? '-' : showSeconds(lag),
      source,
      this.#options.namespaces ? `${namespace}/${service}` : service,
      pod,
      ip,
    ];
    return this.#row(this.#within(cells, context), this.#options.colour ? COLOURS[change.change] : undefined);
  }

  #row(cells: readonly string[], colour?: number): string {
    const padded = cells.map(printable).map((cell, column) => {
      const width = Math.max(this.#widths[column] ?? 0, cell.length);
      this.#widths[column] = column === cells.length - 1 ? 0 : width;
      const text = RIGHT_ALIGNED.has(column) ? cell.padStart(width) : cell.padEnd(width);
      return column === CHANGE_COLUMN && colour !== undefined ? `\u001b[${colour}m${text}\u001b[0m` : text;
    });
    return `${padded.join('  ')}\n`;
  }
}

export interface WatchSummary extends Pick<ChangeSummary, 'slowest'> {
  /** If several clusters are watched, the context of this one. */
  readonly context?: string | undefined;
  readonly seconds: number;
  readonly sources: readonly SourceSummary[];
  /** The removals that have not ended yet, oldest first. */
  readonly unresolved: readonly (Pick<UnresolvedRemoval, 'stage' | 'namespace' | 'name' | 'pod'> & {
    readonly ageSeconds: number;
  })[];
  readonly discarded: DiscardCounts;
  /** When a watch (`pods`, or `pods in shop`) delivered nothing, or delivered late. */
  readonly gaps: readonly {
    readonly what: string;
    readonly since: Date;
    readonly seconds: number;
    readonly goesOn: boolean;
    readonly cause: string | undefined;
  }[];
}

/** How many are listed: a node failure leaves hundreds, and their number is shown anyway. */
const MOST_LISTED = 10;

/** The summary at the end of `linger watch`. */
export function renderSummary(summary: WatchSummary): string {
  const { context, seconds, sources, slowest, unresolved, discarded, gaps } = summary;
  const lags = sources.map(({ source, samples, lag }) => [
    `  ${source}`,
    String(samples),
    ...(lag === undefined ? ['-', '-', '-', '-'] : [lag.p50, lag.p90, lag.p99, lag.max].map(showSeconds)),
  ]);
  const changes = sources.map((source) => [
    `  ${source.source}`,
    ...CHANGES.map((change) => String(source.changes[change])),
  ]);
  const discards = REASONS.filter((reason) => discarded[reason] > 0);
  return paragraphs(
    [`Watched ${context === undefined ? '' : `${context} `}for ${showSeconds(seconds)}.`],
    columns([['Lag of removals', 'samples', 'p50', 'p90', 'p99', 'max'], ...lags], NUMBERS),
    columns([['Changes', ...CHANGES], ...changes], NUMBERS),
    section('Slowest removals', slowest, ({ lag, source, namespace, service, pod = '-' }) => [
      showSeconds(lag),
      source,
      `${namespace}/${service || '-'}`,
      pod,
    ]),
    section(
      'Not withdrawn yet, and for how long',
      unresolved,
      ({ ageSeconds, stage, namespace, name, pod }) => [
        showSeconds(ageSeconds),
        stage,
        `${namespace}/${name}`,
        pod,
      ],
    ),
    section('Removals without a lag, of everything watched', discards, (reason) => [
      String(discarded[reason]),
      reason,
      DISCARDS[reason].means,
    ]),
    section('Interruptions: changes during them have no lag', gaps, (gap) => [
      `${showSeconds(gap.seconds)}${gap.goesOn ? ' so far' : ''}`,
      gap.since.toISOString(),
      gap.what,
      gap.cause ?? 'nothing was received',
    ]),
  );
}

export const REASONS = Object.keys(DISCARDS) as DiscardReason[];
/** Alignments for the columns of either table. */
const NUMBERS = ['left', ...Array<'right'>(6).fill('right')] as const;

function section<T>(title: string, items: readonly T[], cellsOf: (item: T) => readonly string[]) {
  if (items.length === 0) return [];
  const lines = columns(items.slice(0, MOST_LISTED).map(cellsOf), ['right']).map((line) => `  ${line}`);
  const rest = items.length - lines.length;
  return [title, ...lines, ...(rest > 0 ? [`  and ${rest} more`] : [])];
}
