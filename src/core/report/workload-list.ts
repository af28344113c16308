import { causeInWords } from './causes.ts';
import type { Fate, WorkloadRow } from './overview.ts';

/** The part of a finding that lists need. */
interface Listed {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly reason: string;
  readonly waitSeconds: number | null;
  readonly exposureSeconds: number | null;
  readonly file?: string | undefined;
}

type Row<F extends Listed = Listed> = WorkloadRow<F>;

export const SORTS = ['fate', 'name', 'wait', 'open'] as const;
export type Sort = (typeof SORTS)[number];
export const GROUPINGS = ['cause', 'namespace'] as const;
export type Grouping = (typeof GROUPINGS)[number];

export interface ListQuery {
  /** Words, each to be found in the name, the namespace, the kind or a reason; all of them must match, in any order. */
  readonly search: string;
  /** undefined: all. */
  readonly fate?: Fate | undefined;
  /** A reason that its findings must contain; empty or absent: any. */
  readonly reason?: string | undefined;
  /** Absent: in the order of `audit`. */
  readonly sort?: Sort | undefined;
  /** Reverses the order. */
  readonly reverse?: boolean | undefined;
  readonly group?: Grouping | undefined;
  /** The address of a workload to return even if it does not match. */
  readonly open?: string | undefined;
  readonly limit: number;
}

export interface WorkloadList<F> {
  /** The first rows that match. */
  readonly rows: readonly WorkloadRow<F>[];
  /** How many match. */
  readonly matching: number;
  /** The number of matches in each group, the largest group first; empty: the list is not grouped. */
  readonly groups: readonly { readonly name: string; readonly workloads: number }[];
  /** The workload requested by {@link ListQuery.open}, even if it does not match; null: it does not exist. */
  readonly opened: WorkloadRow<F> | null;
}

const FATE_ORDER: readonly Fate[] = ['lost', 'assumed', 'unknown', 'fine'];

type Order = (a: Row, b: Row) => number;

const nameOf = ({ findings: [own] }: Row) => `${own?.namespace}/${own?.name}`;
const byFate: Order = (a, b) => FATE_ORDER.indexOf(a.fate) - FATE_ORDER.indexOf(b.fate);
const byName: Order = (a, b) => (nameOf(a) < nameOf(b) ? -1 : Number(nameOf(a) > nameOf(b)));
const byWait: Order = (a, b) => (b.findings[0]?.waitSeconds ?? -1) - (a.findings[0]?.waitSeconds ?? -1);
const byOpen: Order = (a, b) =>
  (b.findings[0]?.exposureSeconds ?? -1) - (a.findings[0]?.exposureSeconds ?? -1);

const ORDERS: Readonly<Record<Sort, Order>> = {
  fate: (a, b) => byFate(a, b) || byOpen(a, b) || byName(a, b),
  name: byName,
  wait: (a, b) => byWait(a, b) || byName(a, b),
  open: (a, b) => byOpen(a, b) || byName(a, b),
};

/** The group of a row: the cause or the namespace of its decisive finding. */
export function groupOf({ findings: [own] }: Row, grouping: Grouping): string {
  return (grouping === 'cause' ? own?.reason : own?.namespace) ?? '';
}

/** Sorted lists by report and order, because sorting 20,000 workloads takes a while and each key press queries again. */
const sorted = new WeakMap<object, Map<Sort, readonly Row[]>>();
/** The searchable text of each row, in lower case. */
const texts = new WeakMap<Row, string>();

function textOf(row: Row): string {
  const known = texts.get(row);
  if (known !== undefined) return known;
  const reasons = row.findings.map(({ reason }) => `${reason} ${causeInWords(reason)}`);
  const text = [row.address, row.findings[0]?.file, ...reasons].join(' ').toLowerCase();
  texts.set(row, text);
  return text;
}

function rowsIn(rows: readonly Row[], sort: Sort | undefined): readonly Row[] {
  if (sort === undefined) return rows;
  const orders = sorted.get(rows) ?? new Map<Sort, readonly Row[]>();
  sorted.set(rows, orders);
  const known = orders.get(sort) ?? rows.toSorted(ORDERS[sort]);
  orders.set(sort, known);
  return known;
}

/** @param text in lower case @returns whether all words of a search are in it, in any order */
export function matchesWords(text: string, search: string): boolean {
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

export function listOf<F extends Listed>(rows: readonly WorkloadRow<F>[], query: ListQuery): WorkloadList<F> {
  const { search, fate, reason = '', sort, reverse = false, group, open, limit } = query;
  const matching = (rowsIn(rows, sort) as readonly Row<F>[]).filter(
    (row) =>
      (fate === undefined || row.fate === fate) &&
      (reason === '' || row.findings.some((each) => each.reason === reason)) &&
      matchesWords(textOf(row), search),
  );
  const ordered = reverse ? matching.toReversed() : matching;
  const grouped =
    group === undefined
      ? []
      : [...Map.groupBy(ordered, (row) => groupOf(row, group))].toSorted(
          ([a, one], [b, other]) => other.length - one.length || (a < b ? -1 : 1),
        );
  const inOrder = group === undefined ? ordered : grouped.flatMap(([, all]) => all);
  return {
    rows: inOrder.slice(0, limit),
    matching: matching.length,
    groups: grouped.map(([name, all]) => ({ name, workloads: all.length })),
    opened: rows.find(({ address }) => address === open) ?? null,
  };
}
