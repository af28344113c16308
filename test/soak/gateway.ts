import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { ApiClient } from '../testbed/cluster.ts';

interface SliceList {
  readonly items: readonly {
    readonly endpoints?: readonly {
      readonly addresses: readonly string[];
      readonly conditions: { ready?: boolean };
    }[];
  }[];
}

/** A discovery service that polls the slices of one namespace, and shows on a page which addresses its clients get. */
export class PollingGateway {
  /** When an address was first missing from the page after it had been there. Milliseconds since the epoch. */
  readonly gone = new Map<string, number>();
  readonly #listed = new Set<string>();
  readonly #server = http.createServer((_, response) => response.end([...this.#listed].join('\n')));
  readonly #stopping = new AbortController();
  #polling: Promise<void> = Promise.resolve();
  #namespace: string | undefined;

  static async start(api: ApiClient, host: string, everyMs: number): Promise<PollingGateway> {
    const gateway = new PollingGateway();
    gateway.#server.listen(0, host);
    await once(gateway.#server, 'listening');
    gateway.#polling = gateway.#poll(api, everyMs);
    return gateway;
  }

  get url(): string {
    const { address, port } = this.#server.address() as AddressInfo;
    return `http://${address}:${port}/`;
  }

  follow(namespace: string): void {
    this.#namespace = namespace;
    this.gone.clear();
  }

  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#polling;
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #poll(api: ApiClient, everyMs: number): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      if (this.#namespace !== undefined) {
        const path = `/apis/discovery.k8s.io/v1/namespaces/${this.#namespace}/endpointslices`;
        // While the API server is away it goes on with what it knows.
        await api.call<SliceList>('GET', path).then(
          (list) => this.#show(list),
          () => undefined,
        );
      }
      await sleep(everyMs, undefined, { signal }).catch(() => undefined);
    }
  }

  #show({ items }: SliceList): void {
    const ready = items
      .flatMap(({ endpoints }) => endpoints ?? [])
      .filter(({ conditions }) => conditions.ready !== false)
      .flatMap(({ addresses }) => addresses);
    const now = new Set(ready);
    for (const address of this.#listed) {
      if (now.has(address)) continue;
      this.#listed.delete(address);
      this.gone.set(address, Date.now());
    }
    for (const address of now) this.#listed.add(address);
  }
}
