import { CHANGES, type ChangeKind } from '../core/changes/change.ts';
import type { ObservedChange } from '../core/changes/observer.ts';
import { LAG_STAGES, type LagStage } from '../core/lag/sample.ts';
import { showSeconds } from './seconds.ts';

/** A change as `linger watch --output json` prints it, one a line. */
export interface ChangeLine {
  /** RFC 3339 in UTC, with milliseconds: when it was observed. */
  readonly time: string;
  readonly namespace: string;
  /** Null: a slice that belongs to no Service. */
  readonly service: string | null;
  /** Null: the address is no pod's. */
  readonly pod: string | null;
  readonly ip: string;
  readonly change: ChangeKind;
  readonly source: LagStage;
  readonly lagSeconds: number | null;
}

export function changeLine(change: ObservedChange, time: Date): ChangeLine {
  const { namespace, service, pod, ip, source, lag } = change;
  return {
    time: time.toISOString(),
    namespace,
    service: service ?? null,
    pod: pod ?? null,
    ip,
    change: change.change,
    source,
    lagSeconds: lag === undefined ? null : toMilliseconds(lag),
  };
}

/** The clock is finer than what two watches can be told apart by. */
function toMilliseconds(seconds: number): number {
  return Math.round(seconds * 1000) / 1000;
}

export interface ChangeTableOptions {
  /** Whether to say whose namespace: not where there is only one. */
  readonly namespaces: boolean;
  readonly colour: boolean;
}

/** SGR codes; a terminal's own palette decides what they look like. */
const COLOURS: Readonly<Record<ChangeKind, number>> = {
  added: 36,
  ready: 32,
  notReady: 33,
  terminating: 33,
  removed: 31,
};

/** Of what is printed from the first line on; names of Services and pods are longer now and then. */
const WIDTHS = [
  '≤12:00:00.000'.length,
  Math.max(...CHANGES.map((change) => change.length)),
  '59m59s'.length + 1,
  Math.max(...LAG_STAGES.map((source) => source.length)),
  'shop/catalog'.length,
  'web-7d4b9c6f5d-x2v7q'.length,
  0,
] as const;
const RIGHT_ALIGNED: ReadonlySet<number> = new Set([0, 2]);
const CHANGE_COLUMN = 1;

/**
 * Rows of a table that grows for as long as it is watched: columns are as wide as what has come so far needs, and names
 * are never cut, so that they can be copied. With ordinary names a row has 100 characters.
 */
export class ChangeTable {
  readonly #options: ChangeTableOptions;
  readonly #widths: number[] = [...WIDTHS];

  constructor(options: ChangeTableOptions) {
    this.#options = options;
  }

  header(): string {
    return this.#row(['TIME (UTC)', 'CHANGE', 'LAG', 'SOURCE', 'SERVICE', 'POD', 'IP']);
  }

  /** `≤` before the time says that it happened at some instant before. */
  row(change: ObservedChange, time: Date): string {
    const { seen, lag, source, namespace, service = '-', pod = '-', ip } = change;
    const clock = time.toISOString().slice('2026-01-01T'.length, -1);
    const cells = [
      seen === 'live' ? clock : `≤${clock}`,
      change.change,
      lag === undefined ? '-' : showSeconds(lag),
      source,
      this.#options.namespaces ? `${namespace}/${service}` : service,
      pod,
      ip,
    ];
    return this.#row(cells, this.#options.colour ? COLOURS[change.change] : undefined);
  }

  #row(cells: readonly string[], colour?: number): string {
    const padded = cells.map((cell, column) => {
      const width = Math.max(this.#widths[column] ?? 0, cell.length);
      this.#widths[column] = column === cells.length - 1 ? 0 : width;
      const text = RIGHT_ALIGNED.has(column) ? cell.padStart(width) : cell.padEnd(width);
      return column === CHANGE_COLUMN && colour !== undefined ? `\u001b[${colour}m${text}\u001b[0m` : text;
    });
    return `${padded.join('  ')}\n`;
  }
}
