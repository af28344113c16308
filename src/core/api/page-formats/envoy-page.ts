import { endpointIn, LinePageReader, type PageFormatKind } from './page-reader.ts';

const ENVOY_LINE = /::(?:added_via_api|observability_name|default_priority|high_priority|health_flags)::/;
const ENVOY_HOST = /^(?:\[[0-9a-f:.]+\]|[\d.]+):\d{1,5}$/i;
const PRIORITY = /^\d{1,3}$/;

/** `CLUSTER::ADDRESS:PORT::WHAT::VALUE`; a cluster's name may have `::` in it, as an IPv6 address has. */
function envoyHostIn(line: string, what: 'health_flags' | 'priority') {
  const mark = `::${what}::`;
  const end = line.lastIndexOf(mark);
  if (end < 0) return undefined;
  const bracket = line.lastIndexOf(']:', end) < 0 ? -1 : line.lastIndexOf('::[', end);
  const begin = bracket < 0 ? line.lastIndexOf('::', end - 1) : bracket;
  const name = line.slice(begin + 2, end);
  // Pipes and internal listeners have no address.
  if (begin < 0 || !ENVOY_HOST.test(name)) return undefined;
  return { cluster: line.slice(0, begin), name, value: line.slice(end + mark.length) };
}

// Source: envoy source/common/upstream/host_utility.cc and host_description.h.
const WITHDRAWN = /\/failed_eds_health|\/eds_status_draining/;
const UNHEALTHY = /\/failed_|\/eds_status_draining/;

interface EnvoyHost {
  readonly name: string;
  readonly flags: string;
  priority: string;
}

/**
 * Envoy's `/clusters` as text: lines `CLUSTER::ADDRESS::health_flags::FLAGS`, then `…::priority::N`. A host is out of use if
 * its discovery marks it as not healthy, but not if it was ejected or fails Envoy's own checks, because it may then come
 * back. If less than half of a priority's hosts are healthy, Envoy panics and sends to all of them (50 % is the default of
 * healthy_panic_threshold; the page does not show other values).
 */
class EnvoyReader extends LinePageReader {
  #cluster = '';
  #host: EnvoyHost | undefined;
  /** The number of hosts of each priority of this cluster. */
  readonly #priorities = new Map<string, { all: number; healthy: number }>();
  /** The wanted hosts of this cluster that its discovery has marked as not healthy. */
  #withdrawn: EnvoyHost[] = [];
  #isEmpty = true;
  #isKnown = false;

  protected token(line: string): void {
    this.#isEmpty = false;
    const listed = envoyHostIn(line, 'health_flags');
    const ranked = listed === undefined ? envoyHostIn(line, 'priority') : undefined;
    this.#isKnown ||= listed !== undefined || ranked !== undefined || ENVOY_LINE.test(line);
    if (ranked !== undefined && this.#host?.name === ranked.name && PRIORITY.test(ranked.value))
      this.#host.priority = ranked.value;
    if (listed === undefined) return;
    const { cluster, name, value } = listed;
    if (cluster !== this.#cluster) this.#settleCluster();
    else this.#settleHost();
    this.#cluster = cluster;
    this.#host = { name, flags: value, priority: '0' };
  }

  protected override problem(): string | undefined {
    this.#settleCluster();
    const strange = this.#isEmpty || this.#isKnown ? undefined : 'is not what Envoy answers at /clusters';
    return super.problem() ?? strange;
  }

  #settleHost(): void {
    const host = this.#host;
    if (host === undefined) return;
    this.#host = undefined;
    const { name, flags, priority } = host;
    const count = this.#priorities.get(priority) ?? { all: 0, healthy: 0 };
    count.all += 1;
    if (!UNHEALTHY.test(flags)) count.healthy += 1;
    this.#priorities.set(priority, count);
    const isWithdrawn = WITHDRAWN.test(flags);
    if (!this.list(endpointIn(name), !isWithdrawn)) return;
    this.listedBy(this.#cluster);
    if (isWithdrawn) this.#withdrawn.push(host);
  }

  #settleCluster(): void {
    this.#settleHost();
    for (const { name, priority } of this.#withdrawn) {
      const { all = 0, healthy = 0 } = this.#priorities.get(priority) ?? {};
      if (healthy * 2 < all) this.list(endpointIn(name), true);
    }
    this.#withdrawn = [];
    this.#priorities.clear();
  }
}

export const ENVOY = {
  path: '/clusters',
  page: '`/clusters` of the admin port, as text',
  unless:
    "its `health_flags` have `/failed_eds_health` or `/eds_status_draining`. Envoy's own ejections do not count, nor does a priority of which less than half is healthy, where Envoy sends to all",
  Reader: EnvoyReader,
} as const satisfies PageFormatKind;
