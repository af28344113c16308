import { Resolver } from 'node:dns/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '../../testbed/cluster.ts';
import type { Slice } from './programmed-rules.ts';

/** From when a slice no longer listed an address as ready until no client of DNS had to believe in it. Milliseconds. */
export interface DnsDeparture {
  readonly address: string;
  /** When the test's own watch brought the slice, by `performance.now()`. */
  readonly at: number;
  readonly lag: number;
  /** For how long DNS itself went on naming the address. */
  readonly named: number;
}

const EVERY_MS = 20;

/**
 * The clients of one headless Service, seen from outside of Linger: a resolver that asks DNS all the time, and each time
 * may believe the answer for as long as its TTL says; the EndpointSlice by a watch.
 */
export class DnsClients {
  readonly departures: DnsDeparture[] = [];
  readonly #ending = new AbortController();
  readonly #ended: Promise<unknown>;
  #ready: ReadonlySet<string> = new Set();
  /** By address: when DNS named it last, and until when clients may believe in it. */
  readonly #named = new Map<string, { last: number; until: number }>();
  /** By address: since when no slice lists it. */
  readonly #withdrawn = new Map<string, number>();
  /** Answers that named no replica, or did not come. */
  failures = 0;

  constructor(cluster: Cluster, server: string, namespace: string, service: string) {
    this.#ended = Promise.all([
      this.#watch(cluster, namespace, service),
      this.#ask(server, `${service}.${namespace}.svc.cluster.local`),
    ]);
  }

  async stop(): Promise<void> {
    this.#ending.abort();
    await this.#ended;
  }

  async #watch({ api }: Cluster, namespace: string, service: string): Promise<void> {
    const selector = encodeURIComponent(`kubernetes.io/service-name=${service}`);
    const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?watch=1&labelSelector=${selector}`;
    const { signal } = this.#ending;
    while (!signal.aborted) {
      await api
        .watch<Slice>(path, ({ object }) => this.#listed(object, performance.now()), signal)
        .catch((error: unknown) => {
          if (!signal.aborted) throw error;
        });
    }
  }

  #listed({ endpoints }: Slice, at: number): void {
    const ready = (endpoints ?? []).filter(({ conditions }) => conditions.ready);
    const now = new Set(ready.flatMap(({ addresses }) => addresses));
    for (const address of this.#ready) if (!now.has(address)) this.#withdrawn.set(address, at);
    for (const address of now) this.#withdrawn.delete(address);
    this.#ready = now;
  }

  async #ask(server: string, name: string): Promise<void> {
    const { signal } = this.#ending;
    while (!signal.aborted) {
      // Each from a port of its own, as clients are.
      const resolver = new Resolver({ timeout: 1_000, tries: 1 });
      resolver.setServers([server]);
      try {
        const records = await resolver.resolve4(name, { ttl: true });
        const now = performance.now();
        for (const { address, ttl } of records) {
          const until = Math.max(now + ttl * 1000, this.#named.get(address)?.until ?? 0);
          this.#named.set(address, { last: now, until });
        }
        this.#settle(new Set(records.map(({ address }) => address)));
      } catch {
        this.failures += 1;
      }
      await sleep(EVERY_MS);
    }
  }

  #settle(named: ReadonlySet<string>): void {
    for (const [address, at] of this.#withdrawn) {
      if (named.has(address)) continue;
      const { last, until } = this.#named.get(address) ?? { last: at, until: at };
      this.#withdrawn.delete(address);
      this.#named.delete(address);
      this.departures.push({
        address,
        at,
        lag: Math.max(0, until - at),
        named: Math.max(0, last - at),
      });
    }
  }
}
