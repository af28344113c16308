import {
  authorityOf,
  canonicalAddress,
  LONGEST_FILTER,
  MOST_CLUSTERS,
  type PageEndpoint,
  type PageFormat,
} from '../../core/api/index.ts';
import type { PodAddress } from '../../core/lag/index.ts';

/** About how many addresses a witness is asked at a time. */
export const MOST_WITNESSED = 64;
/** How many of them belong to pods in question; the others show whether an instance knows the Service at all. */
const MOST_ASKED = 48;
const PORTS_OF_POD = 3;

export function endpointsOf(pods: readonly PodAddress[]): readonly PageEndpoint[] {
  const byAddress = Map.groupBy(pods, ({ address }) => canonicalAddress(address) ?? address);
  return [...byAddress].map(([address, of]) => ({
    address,
    ports: [...new Set(of.flatMap(({ ports }) => ports))],
  }));
}

/** The questions that have waited longest, as many as fit into one request to `linger witness`. */
export function whatFits<
  Asked extends {
    readonly endpoints: readonly PageEndpoint[];
    readonly verdicts: ReadonlyMap<string, { readonly askedAt: number }>;
  },
>(questions: readonly Asked[], instance: string): readonly Asked[] {
  const askedAt = ({ verdicts }: Asked) => verdicts.get(instance)?.askedAt ?? 0;
  const fitting: Asked[] = [];
  let left = MOST_ASKED;
  for (const question of questions.toSorted((a, b) => askedAt(a) - askedAt(b))) {
    const names = question.endpoints.flatMap(({ ports }) => ports).length;
    if (names > left) continue;
    fitting.push(question);
    left -= names;
  }
  return fitting;
}

/** How many more pods fit into a request to `linger witness`, at a few ports each. */
export function roomBeside(own: readonly PageEndpoint[]): number {
  const left = MOST_ASKED - own.flatMap(({ ports }) => ports).length;
  return Math.max(0, Math.floor(left / PORTS_OF_POD));
}

/** The URL of the page, filtered to what is needed if possible. */
export function pageUrl(
  page: URL,
  format: PageFormat | undefined,
  endpoints: readonly PageEndpoint[],
  clusters: ReadonlySet<string>,
): URL {
  const url = new URL(page);
  if (format === 'Witness') {
    const names = endpoints.flatMap(({ address, ports }) => ports.map((port) => authorityOf(address, port)));
    url.pathname += `/${[...new Set(names)].slice(0, MOST_WITNESSED).join(',')}`;
  }
  if (
    format === 'Envoy' &&
    clusters.size > 0 &&
    clusters.size <= MOST_CLUSTERS &&
    !url.searchParams.has('filter')
  ) {
    // A regular expression for names of clusters; older Envoys ignore it.
    const names = [...clusters].map((name) => name.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));
    const filter = `^(${names.join('|')})$`;
    if (filter.length <= LONGEST_FILTER) url.searchParams.set('filter', filter);
  }
  return url;
}
