import type { Cluster } from '../../testbed/cluster.ts';
import { waitUntil } from '../../testbed/cluster.ts';

const LOOK_MS = 100;

interface Slice {
  readonly endpoints?: readonly {
    readonly addresses: readonly string[];
    readonly conditions?: { readonly ready?: boolean };
  }[];
}

interface CopierOptions {
  readonly from: Cluster;
  readonly to: Cluster;
  readonly namespace: string;
  readonly service: string;
  /** The namespace of the copy there. */
  readonly copies: string;
  readonly delayMs: number;
}

/** Copies the ready addresses of a Service to one without a selector in another cluster, late by a constant. */
export class Copier {
  /** Milliseconds since the epoch, by the address that left the copy then. */
  readonly goneAt = new Map<string, number>();
  readonly clusterIp: string;
  readonly #options: CopierOptions;
  readonly #states: { readonly at: number; readonly addresses: readonly string[] }[] = [];
  #copied: readonly string[] = [];
  #ending = false;
  readonly #ended: Promise<void>;

  private constructor(options: CopierOptions, clusterIp: string) {
    this.#options = options;
    this.clusterIp = clusterIp;
    this.#ended = this.#run();
  }

  /** Resolves when the copy has the addresses that there are. */
  static async start(options: CopierOptions): Promise<Copier> {
    const { to, copies, namespace, service } = options;
    const name = `${namespace}-${service}`;
    const metadata = { namespace: copies, name };
    const created = await to.create<{ spec: { clusterIP: string } }>({
      apiVersion: 'v1',
      kind: 'Service',
      metadata,
      ...({ spec: { ports: [{ port: 80, targetPort: 8080 }] } } as object),
    });
    const labels = { 'kubernetes.io/service-name': name, 'endpointslice.kubernetes.io/managed-by': 'copier' };
    await to.create({
      apiVersion: 'discovery.k8s.io/v1',
      kind: 'EndpointSlice',
      ...({ addressType: 'IPv4', ports: [{ port: 8080 }], endpoints: [] } as object),
      metadata: { ...metadata, labels } as { name: string },
    });
    const copier = new Copier(options, created.spec.clusterIP);
    await waitUntil('a copy', () => copier.#copied.length > 0, { timeoutMs: options.delayMs + 30_000 });
    return copier;
  }

  async stop(): Promise<void> {
    this.#ending = true;
    await this.#ended;
  }

  async #run(): Promise<void> {
    const { delayMs } = this.#options;
    while (!this.#ending) {
      this.#states.push({ at: Date.now(), addresses: await this.#ready() });
      const due = this.#states.findLast(({ at }) => Date.now() - at >= delayMs);
      if (due !== undefined) {
        this.#states.splice(0, this.#states.indexOf(due));
        await this.#copy(due.addresses);
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  async #ready(): Promise<readonly string[]> {
    const { from, namespace, service } = this.#options;
    const slices = await from.list<Slice>(
      { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', namespace },
      `kubernetes.io/service-name=${service}`,
    );
    const endpoints = slices.flatMap((slice) => slice.endpoints ?? []);
    return endpoints
      .filter(({ conditions }) => conditions?.ready)
      .flatMap(({ addresses }) => addresses)
      .toSorted();
  }

  async #copy(addresses: readonly string[]): Promise<void> {
    if (addresses.join() === this.#copied.join()) return;
    const { to, copies, namespace, service } = this.#options;
    const metadata = { namespace: copies, name: `${namespace}-${service}` };
    const endpoints = addresses.map((address) => ({ addresses: [address], conditions: { ready: true } }));
    await to.patch({ apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', metadata }, { endpoints });
    for (const address of this.#copied)
      if (!addresses.includes(address)) this.goneAt.set(address, Date.now());
    this.#copied = addresses;
  }
}
