import { type Cluster, waitUntil } from '../../testbed/cluster.ts';
import type { Endpoint } from '../../testbed/load/conntrack.ts';
import type { Target } from '../../testbed/load/load.ts';
import type { GatewayConnection, GatewaySync, Message } from './messages.ts';
import { type ScenarioProcess, startProcess } from './process.ts';
import type { ReportAccess } from './report-access.ts';
import type { Stand } from './stand.ts';
import { Truth } from './truth.ts';

export interface GatewaysOptions {
  readonly cluster: Cluster;
  readonly instances: number;
  /** Between two syncs of an instance, give or take a tenth at random. */
  readonly intervalMs: number;
  readonly connectTimeoutMs: number;
  /** `namespace/name` of those that can be reached through the gateways. */
  readonly services: readonly string[];
  readonly reports?: ReportAccess;
  /** What they ask: one that follows EndpointSlices (the default), or one that pods enter themselves. */
  readonly discovery?: 'discovery.ts' | 'registry.ts';
}

/**
 * The gateways of S3, and the discovery service that they ask: processes of their own on the node. What they say of
 * themselves is the truth that measurements are held against.
 */
export class Gateways {
  readonly truth: Truth;
  readonly #options: GatewaysOptions;
  readonly #connections = new Map<string, GatewayConnection>();
  readonly #syncFailures: string[] = [];
  /** What each instance may send to, by Service. */
  readonly #tables = new Map<string, Map<string, Set<string>>>();
  #discovery: ScenarioProcess | undefined;
  #instances: readonly ScenarioProcess[] = [];

  private constructor(options: GatewaysOptions) {
    this.#options = options;
    this.truth = new Truth(namesOf(options.instances));
  }

  get intervalMs(): number {
    return this.#options.intervalMs;
  }

  get connectTimeoutMs(): number {
    return this.#options.connectTimeoutMs;
  }

  /** Resolves when every instance has synced once. */
  static async start(options: GatewaysOptions): Promise<Gateways> {
    const gateways = new Gateways(options);
    const { kubeconfig, nodeAddress: host } = options.cluster;
    const heard = (message: Message) => {
      if (message.event === 'changed') gateways.truth.changed(message);
    };
    const { discovery: file = 'discovery.ts' } = options;
    gateways.#discovery = await startProcess(file, { kubeconfig, host }, heard);
    const discovery = `${gateways.discovery}/instances`;
    const { intervalMs, connectTimeoutMs, services, reports } = options;
    const settings = { host, discovery, intervalMs, connectTimeoutMs, services };
    const env = reports === undefined ? {} : { NODE_EXTRA_CA_CERTS: reports.authorityFile };
    gateways.#instances = await Promise.all(
      namesOf(options.instances).map((name) => {
        const hear = (message: Message) => gateways.#hear(name, message);
        const own = reports && { url: reports.url, tokenFile: reports.tokenFiles.get(name) };
        return startProcess('gateway.ts', { ...settings, name, reports: own }, hear, env);
      }),
    );
    return gateways;
  }

  /** The URL of what they ask. */
  get discovery(): string {
    return `http://${this.#options.cluster.nodeAddress}:${this.#discovery?.ports.instances}`;
  }

  /** A client's target: every instance in turn. */
  target(service: string): Target {
    const host = this.#options.cluster.nodeAddress;
    const endpoints = this.#instances.map(({ ports }) => ({ address: host, port: ports[service] ?? 0 }));
    let turn = 0;
    return {
      description: `${endpoints.length} gateways that sync every ${this.#options.intervalMs / 1_000} s`,
      next: () => endpoints[turn++ % endpoints.length],
      backendOf: (source) => {
        const sent = this.#connections.get(source);
        if (sent === undefined) return undefined;
        return sent.backend === undefined ? 'none' : endpointOf(sent.backend);
      },
      kindOf: (source) => this.#connections.get(source)?.lost,
      answered: () => undefined,
      notes: () => this.#syncFailures.map((problem) => `a gateway could not sync: ${problem}`),
      stop: () => undefined,
    };
  }

  /** Makes a Service with this ClusterIP whose endpoints are the instances, for those that go through any of them. */
  async expose(namespace: string, service: string, clusterIP: string): Promise<void> {
    const { cluster } = this.#options;
    const name = 'gateways';
    const spec = { clusterIP, ports: [{ name: 'http', port: 80 }] };
    const object = { apiVersion: 'v1', kind: 'Service', metadata: { name, namespace }, spec };
    await cluster.create(object);
    // A slice has one port for all of its endpoints, and each process has another.
    for (const [index, instance] of this.#instances.entries()) {
      const labels = { 'kubernetes.io/service-name': name };
      const slice = {
        apiVersion: 'discovery.k8s.io/v1',
        kind: 'EndpointSlice',
        metadata: { name: `${name}-${index}`, namespace, labels },
        addressType: 'IPv4',
        endpoints: [{ addresses: [cluster.nodeAddress] }],
        ports: [{ name: 'http', port: instance.ports[service] ?? 0, protocol: 'TCP' }],
      };
      await cluster.create(slice);
    }
  }

  /** Resolves once every instance may send to each pod of a stand. */
  async know({ service, replicas }: Stand): Promise<void> {
    const all = () =>
      [...this.#tables.values()].every((known) => (known.get(service)?.size ?? 0) === replicas);
    await waitUntil(`the gateways to know ${replicas} endpoints of ${service}`, all, { intervalMs: 50 });
  }

  async stop(): Promise<void> {
    await Promise.all(
      [...this.#instances, ...(this.#discovery ? [this.#discovery] : [])].map((each) => each.stop()),
    );
  }

  #hear(gateway: string, message: Message): void {
    if (message.event === 'synced') {
      this.truth.synced(gateway, message);
      this.#follow(gateway, message);
    }
    if (message.event === 'reported') this.truth.reported(gateway, message);
    if (message.event === 'syncFailed') this.#syncFailures.push(`${gateway}: ${message.problem}`);
    if (message.event === 'connection') this.#connections.set(message.client, message);
  }

  #follow(gateway: string, { removed, added }: GatewaySync): void {
    const table = this.#tables.get(gateway) ?? new Map<string, Set<string>>();
    this.#tables.set(gateway, table);
    for (const { service, address } of removed) table.get(service)?.delete(address);
    for (const { service, address } of added) {
      table.set(service, (table.get(service) ?? new Set<string>()).add(address));
    }
  }
}

export function namesOf(instances: number): readonly string[] {
  return Array.from({ length: instances }, (_, index) => `gw-${index + 1}`);
}

function endpointOf(text: string): Endpoint {
  const [address = '', port = ''] = text.split(':');
  return { address, port: Number(port) };
}
