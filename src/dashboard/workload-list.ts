import type { WorkloadsQuery, WorkloadsReport } from './contract.ts';

/** All findings of an audit. */
export type AllWorkloads = Omit<WorkloadsReport, 'matching'>;

type Finding = WorkloadsReport['findings'][number];

/** The findings of one workload, the decisive one first. */
interface Row {
  readonly own: Finding;
  readonly all: readonly Finding[];
  readonly name: string;
  /** What is searched, in lower case. */
  readonly text: string;
}

const VERDICTS: readonly string[] = ['unprotected', 'unknown', 'protected', 'skipped'];

const byVerdict = (a: Row, b: Row) => VERDICTS.indexOf(a.own.verdict) - VERDICTS.indexOf(b.own.verdict);
const byName = (a: Row, b: Row) => (a.name < b.name ? -1 : Number(a.name > b.name));
const byWait = (a: Row, b: Row) => (b.own.waitSeconds ?? -1) - (a.own.waitSeconds ?? -1);
const byOpen = (a: Row, b: Row) => (b.own.exposureSeconds ?? -1) - (a.own.exposureSeconds ?? -1);

const ORDERS: Readonly<Record<NonNullable<WorkloadsQuery['sort']>, (a: Row, b: Row) => number>> = {
  verdict: (a, b) => byVerdict(a, b) || byOpen(a, b) || byName(a, b),
  name: byName,
  wait: (a, b) => byWait(a, b) || byName(a, b),
  open: (a, b) => byOpen(a, b) || byName(a, b),
};

/** Sorted once for each report and order: 20,000 workloads take a while, and each key that is pressed asks again. */
const sorted = new WeakMap<object, Map<WorkloadsQuery['sort'], readonly Row[]>>();

function rowsOf({ findings }: AllWorkloads): readonly Row[] {
  const byWorkload = Map.groupBy(
    findings,
    ({ kind, namespace, name, file = '', line = 0 }) => `${namespace}/${name} ${kind} ${file}:${line}`,
  );
  return [...byWorkload].flatMap(([name, all]) => {
    const [own] = all;
    const text = `${name} ${all.map(({ reason }) => reason).join(' ')}`.toLowerCase();
    return own === undefined ? [] : [{ own, all, name, text }];
  });
}

function rowsIn(report: AllWorkloads, sort: WorkloadsQuery['sort']): readonly Row[] {
  const orders = sorted.get(report) ?? new Map<WorkloadsQuery['sort'], readonly Row[]>();
  sorted.set(report, orders);
  const known = orders.get(sort);
  if (known !== undefined) return known;
  const rows = sort === undefined ? rowsOf(report) : rowsIn(report, undefined).toSorted(ORDERS[sort]);
  orders.set(sort, rows);
  return rows;
}

/** The first workloads that match, with all of their findings. */
export function matchingIn(
  report: AllWorkloads,
  { search, verdict, sort, limit }: WorkloadsQuery,
): WorkloadsReport {
  const wanted = search.toLowerCase();
  const rows = rowsIn(report, sort).filter(
    ({ own, text }) => (verdict === '' || own.verdict === verdict) && text.includes(wanted),
  );
  return { ...report, findings: rows.slice(0, limit).flatMap(({ all }) => all), matching: rows.length };
}
