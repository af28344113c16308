import type { Cluster } from '../cluster.ts';
import { BackendWatch, type Endpoint } from './conntrack.ts';
import type { Backend } from './report.ts';
import type { LossKind } from './request.ts';

/** Who chooses the pod. */
export type TargetOptions =
  /** kube-proxy: every connection goes to the ClusterIP. */
  | { readonly kind: 'clusterIP'; readonly address: string; readonly port: number }
  /** A gateway with its own discovery: ready endpoints from the slices, read again every `intervalMs`. */
  | { readonly kind: 'polling'; readonly service: string; readonly intervalMs: number };

/** Where requests go, and afterwards who got them. */
export interface Target {
  readonly description: string;
  /** Where to send the next request; undefined when there is no endpoint. */
  next(): Endpoint | undefined;
  /** Where a request really went. `source` is the client's side of its connection. */
  backendOf(source: string, sentTo: Endpoint): Backend;
  /** How a request was lost, where a proxy in between knows better than the client. */
  kindOf?(source: string): LossKind | undefined;
  answered(source: string): void;
  notes(): string[];
  stop(): void;
}

export async function openTarget(
  cluster: Cluster,
  namespace: string,
  options: TargetOptions,
): Promise<Target> {
  return options.kind === 'clusterIP'
    ? clusterIpTarget(options.address, options.port)
    : pollingTarget(cluster, namespace, options.service, options.intervalMs);
}

async function clusterIpTarget(address: string, port: number): Promise<Target> {
  const watch = await BackendWatch.start(address);
  return {
    description: 'new connection per request through the ClusterIP',
    next: () => ({ address, port }),
    // kube-proxy rejects what has no endpoint before conntrack confirms it: no event, no backend.
    backendOf: (source) => {
      const backend = watch?.backendOf(source);
      return backend ?? (watch !== undefined && watch.complaint === undefined ? 'none' : undefined);
    },
    answered: (source) => watch?.forget(source),
    notes: () => {
      if (watch === undefined) return ['backends unknown: conntrack needs root and the program'];
      return watch.complaint === undefined ? [] : [`conntrack: ${watch.complaint}`];
    },
    stop: () => watch?.stop(),
  };
}

interface EndpointSlice {
  readonly ports?: readonly { readonly port?: number }[];
  readonly endpoints?: readonly {
    readonly addresses: readonly string[];
    readonly conditions?: { readonly ready?: boolean };
  }[];
}

async function pollingTarget(
  cluster: Cluster,
  namespace: string,
  service: string,
  intervalMs: number,
): Promise<Target> {
  let endpoints = await readyEndpoints(cluster, namespace, service);
  let turn = 0;
  let failures = 0;
  const timer = setInterval(() => {
    readyEndpoints(cluster, namespace, service).then(
      (fresh) => {
        endpoints = fresh;
      },
      // A gateway whose discovery fails keeps what it knows.
      () => {
        failures += 1;
      },
    );
  }, intervalMs);
  return {
    description: `new connection per request, own discovery every ${intervalMs / 1000} s`,
    next: () => endpoints[turn++ % Math.max(1, endpoints.length)],
    backendOf: (_, sentTo) => sentTo,
    answered: () => {},
    notes: () => (failures === 0 ? [] : [`${failures} of the discovery reads failed`]),
    stop: () => clearInterval(timer),
  };
}

/** The endpoints that a consumer may use: `ready` absent counts as true (discovery.k8s.io/v1). */
async function readyEndpoints(cluster: Cluster, namespace: string, service: string): Promise<Endpoint[]> {
  const slices = await cluster.list<EndpointSlice>(
    { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', namespace },
    `kubernetes.io/service-name=${service}`,
  );
  return slices.flatMap(({ endpoints = [], ports = [] }) =>
    endpoints
      .filter(({ conditions }) => conditions?.ready !== false)
      .flatMap(({ addresses: [address] }) =>
        address === undefined ? [] : [{ address, port: ports[0]?.port ?? 80 }],
      ),
  );
}
