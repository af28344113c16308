/** What a list of workloads takes of a finding. */
interface Listed {
  readonly kind: string;
  readonly namespace: string;
  readonly name: string;
  readonly verdict: string;
  readonly reason: string;
  readonly waitSeconds: number | null;
  readonly exposureSeconds: number | null;
  readonly file?: string | undefined;
  readonly line?: number | undefined;
}

export interface ListQuery {
  /** Words, each part of the name, namespace, kind or of a reason. */
  readonly search: string;
  /** Empty: all. */
  readonly verdict: string;
  /** One that its workloads have; empty or absent: all. */
  readonly reason?: string | undefined;
  /** Without it, in the order of `audit`. */
  readonly sort?: 'verdict' | 'name' | 'wait' | 'open' | undefined;
  /** The other way round. */
  readonly reverse?: boolean | undefined;
  readonly limit: number;
}

/** The findings of one workload, the decisive one first. */
interface Row<F extends Listed> {
  readonly own: F;
  readonly all: readonly F[];
  readonly name: string;
  /** What is searched, in lower case. */
  readonly text: string;
}

/** Of findings: the workload, by its place where there are several of a name. */
export function keyOf({ file = '', line = 0, kind, namespace, name }: Omit<Listed, 'verdict'>): string {
  return `${namespace}/${name} ${kind} ${file}:${line}`;
}

const VERDICTS: readonly string[] = ['unprotected', 'unknown', 'protected', 'skipped'];

type Order = (a: Row<Listed>, b: Row<Listed>) => number;

const byVerdict: Order = (a, b) => VERDICTS.indexOf(a.own.verdict) - VERDICTS.indexOf(b.own.verdict);
const byName: Order = (a, b) => (a.name < b.name ? -1 : Number(a.name > b.name));
const byWait: Order = (a, b) => (b.own.waitSeconds ?? -1) - (a.own.waitSeconds ?? -1);
const byOpen: Order = (a, b) => (b.own.exposureSeconds ?? -1) - (a.own.exposureSeconds ?? -1);

const ORDERS: Readonly<Record<NonNullable<ListQuery['sort']>, Order>> = {
  verdict: (a, b) => byVerdict(a, b) || byOpen(a, b) || byName(a, b),
  name: byName,
  wait: (a, b) => byWait(a, b) || byName(a, b),
  open: (a, b) => byOpen(a, b) || byName(a, b),
};

/** Sorted once for each report and order: 20,000 workloads take a while, and each key that is pressed asks again. */
const sorted = new WeakMap<object, Map<ListQuery['sort'], readonly Row<Listed>[]>>();

function rowsOf(findings: readonly Listed[]): readonly Row<Listed>[] {
  const byWorkload = Map.groupBy(findings, keyOf);
  return [...byWorkload].flatMap(([name, all]) => {
    const [own] = all;
    const text = `${name} ${all.map(({ reason }) => reason).join(' ')}`.toLowerCase();
    return own === undefined ? [] : [{ own, all, name, text }];
  });
}

function rowsIn(findings: readonly Listed[], sort: ListQuery['sort']): readonly Row<Listed>[] {
  const orders = sorted.get(findings) ?? new Map<ListQuery['sort'], readonly Row<Listed>[]>();
  sorted.set(findings, orders);
  const known = orders.get(sort);
  if (known !== undefined) return known;
  const rows = sort === undefined ? rowsOf(findings) : rowsIn(findings, undefined).toSorted(ORDERS[sort]);
  orders.set(sort, rows);
  return rows;
}

/** The first workloads that match, with all of their findings; `matching`: how many match. */
export function matchingIn<F extends Listed>(
  findings: readonly F[],
  { search, verdict, reason = '', sort, reverse = false, limit }: ListQuery,
): { readonly findings: readonly F[]; readonly matching: number } {
  const words = search.toLowerCase().split(/\s+/);
  const rows = (rowsIn(findings, sort) as readonly Row<F>[]).filter(
    ({ own, all, text }) =>
      (verdict === '' || own.verdict === verdict) &&
      (reason === '' || all.some((each) => each.reason === reason)) &&
      words.every((word) => text.includes(word)),
  );
  const first = reverse ? rows.slice(-limit).toReversed() : rows.slice(0, limit);
  return { findings: first.flatMap(({ all }) => all), matching: rows.length };
}
