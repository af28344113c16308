import { type Cluster, FakeNode, type FakePod, inParallel, waitUntil } from '../testbed/cluster.ts';
import { network } from '../testbed/network.ts';

interface Member {
  readonly service: string;
  /** A pod that stays and changes its readiness. */
  readonly pod: FakePod;
  /** A pod that terminates, in the Services that have one to lose. */
  readonly victims: FakePod[];
}

export interface FleetOptions {
  readonly prefix: string;
  readonly services: number;
  /** Pods that may be terminated, spread evenly over the Services. */
  readonly victims: number;
  /** Default: a new one, named after the prefix. */
  readonly namespace?: string;
  /** How a pod is terminated. Default: it is only deleted. */
  readonly terminate?: (node: FakeNode, pod: FakePod) => Promise<void>;
}

/** Many headless Services with one or two pods each, on a fake node: the makings of a storm. */
export class Fleet {
  readonly namespace: string;
  readonly #cluster: Cluster;
  readonly #node: FakeNode;
  readonly #members: readonly Member[];
  readonly #terminate: NonNullable<FleetOptions['terminate']>;

  private constructor(
    cluster: Cluster,
    namespace: string,
    node: FakeNode,
    members: readonly Member[],
    terminate: FleetOptions['terminate'] = (of, pod) => of.terminate(pod),
  ) {
    this.#terminate = terminate;
    this.#cluster = cluster;
    this.namespace = namespace;
    this.#node = node;
    this.#members = members;
  }

  /** Resolves when slices and Endpoints list every pod. */
  static async start(cluster: Cluster, options: FleetOptions): Promise<Fleet> {
    const { prefix, services, victims, terminate } = options;
    const namespace = options.namespace ?? (await cluster.namespace(prefix));
    const node = await FakeNode.start(cluster.api, network.nodeName);
    const members = membersOf(namespace, services, victims);
    const fleet = new Fleet(cluster, namespace, node, members, terminate);
    await inParallel(members, ({ service }) =>
      cluster.api.call('POST', `/api/v1/namespaces/${namespace}/services`, {
        body: {
          metadata: { name: service },
          spec: { clusterIP: 'None', selector: { app: service }, ports: [{ port: 80 }] },
        },
      }),
    );
    await node.run(members.flatMap(({ pod, victims: more }) => [pod, ...more]));
    await fleet.settled(services + victims);
    return fleet;
  }

  get services(): readonly string[] {
    return this.#members.map(({ service }) => service);
  }

  /** Changes the readiness of one pod of every Service. */
  setReady(ready: boolean): Promise<void> {
    return this.#node.setReady(
      this.#members.map(({ pod }) => pod),
      ready,
    );
  }

  /** Changes a label of every Service, which controllers copy to its slices and Endpoints. */
  async relabel(value: string): Promise<void> {
    await inParallel(this.#members, ({ service }) =>
      this.#cluster.api.call('PATCH', `/api/v1/namespaces/${this.namespace}/services/${service}`, {
        body: { metadata: { labels: { round: value } } },
        contentType: 'application/merge-patch+json',
      }),
    );
  }

  /** Takes pods that may be terminated, spread over the fleet's Services. */
  takeVictims(count: number): readonly FakePod[] {
    const rich = this.#members.filter(({ victims }) => victims.length > 0);
    const step = rich.length / count;
    return Array.from({ length: count }, (_, index) => {
      const victim = rich[Math.floor(index * step)]?.victims.pop();
      if (victim === undefined) throw new Error(`the fleet of ${this.namespace} has too few victims`);
      return victim;
    });
  }

  terminate(pod: FakePod): Promise<void> {
    return this.#terminate(this.#node, pod);
  }

  /** Waits until slices and Endpoints list this many pods as ready. */
  async settled(ready: number, timeoutMs = 600_000): Promise<void> {
    const look = async () => {
      const counts = await Promise.all([this.#inSlices(), this.#inEndpoints()]);
      if (counts.every((count) => count === ready)) return true;
      throw new Error(`${counts.join(' and ')} of ${ready}`);
    };
    await waitUntil('slices and Endpoints to list the fleet', look, { timeoutMs, intervalMs: 1_000 });
  }

  /** Resolves once everything is gone: pending work of controllers would delay the next scenario. */
  async remove(): Promise<void> {
    await this.#node.finishAll(this.namespace);
    await this.#node.remove();
    const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: this.namespace } };
    await this.#cluster.delete(namespace, { wait: true, timeoutMs: 300_000 });
  }

  async #inSlices(): Promise<number> {
    type List = { items: { endpoints: { conditions: { ready: boolean } }[] | null }[] };
    const path = `/apis/discovery.k8s.io/v1/namespaces/${this.namespace}/endpointslices`;
    const { items } = await this.#cluster.api.call<List>('GET', path);
    return items.flatMap(({ endpoints }) => endpoints ?? []).filter(({ conditions }) => conditions.ready)
      .length;
  }

  async #inEndpoints(): Promise<number> {
    type List = { items: { subsets?: { addresses?: unknown[] }[] }[] };
    const { items } = await this.#cluster.api.call<List>(
      'GET',
      `/api/v1/namespaces/${this.namespace}/endpoints`,
    );
    return items.flatMap(({ subsets = [] }) => subsets.flatMap(({ addresses = [] }) => addresses)).length;
  }
}

function membersOf(namespace: string, services: number, victims: number): readonly Member[] {
  return Array.from({ length: services }, (_, index) => {
    const service = `svc-${index}`;
    const labels = { app: service };
    const own = Math.floor(((index + 1) * victims) / services) - Math.floor((index * victims) / services);
    return {
      service,
      pod: { namespace, name: `${service}-stays`, labels },
      victims: Array.from({ length: own }, (_, number) => ({
        namespace,
        name: `${service}-victim-${number}`,
        labels,
      })),
    };
  });
}
