import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import { createProxy } from '../../scenarios/polling/proxy.ts';
import type { Cluster } from '../../testbed/cluster.ts';
import type { LossKind } from '../../testbed/load/request.ts';

interface Slice {
  readonly endpoints?: readonly {
    readonly addresses: readonly string[];
    readonly conditions?: { readonly ready?: boolean };
  }[];
  readonly ports?: readonly { readonly port: number }[];
}

/** A connection on which nothing was answered. Instants in milliseconds since the epoch. */
export interface GatewayLoss {
  readonly openedAt: number;
  readonly failedAt: number;
  /** `address:port`; undefined: it was sent nowhere. */
  readonly backend: string | undefined;
  /** Why there was no connection to the pod; `cut`: there was one; `abandoned`: the client closed first. */
  readonly kind: LossKind | 'cut' | 'abandoned';
}

interface Opened extends Partial<Pick<GatewayLoss, 'backend'>> {
  readonly openedAt: number;
  readonly lost?: LossKind;
}

/** A gateway that reads the slices of one Service every so often, and follows them so much later. */
export interface PollingGateway {
  readonly url: string;
  /** Whether it sends to the pods that are listed now, and to no other. */
  readonly isUpToDate: () => Promise<boolean>;
  /** When it last stopped sending to an address. Milliseconds since the epoch. */
  readonly letGoOf: (address: string) => number | undefined;
  /** Since the last time it was asked. */
  readonly losses: () => readonly GatewayLoss[];
  stop(): void;
}

/**
 * @param connectTimeoutMs until an address that does not answer counts as gone
 * @param pagePort where it lists the pods that it sends to, for `inspect`
 */
export async function startPollingGateway(
  cluster: Cluster,
  {
    namespace,
    service,
    intervalMs,
    delayMs = 0,
    connectTimeoutMs = 1_000,
    pagePort,
  }: Readonly<Record<'namespace' | 'service', string>> & {
    readonly intervalMs: number;
    readonly delayMs?: number;
    readonly connectTimeoutMs?: number;
    readonly pagePort?: number | undefined;
  },
): Promise<PollingGateway> {
  let known: readonly string[] = [];
  let losses: GatewayLoss[] = [];
  let isPolling = false;
  const opened = new Map<string, Opened>();
  const letGo = new Map<string, number>();
  const path = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D${service}`;
  const poll = async () => {
    const { items } = await cluster.api.call<{ items: readonly Slice[] }>('GET', path);
    const next = items.flatMap(({ endpoints = [], ports = [] }) =>
      endpoints
        .filter(({ conditions }) => conditions?.ready !== false)
        .flatMap(({ addresses }) => addresses.map((address) => `${address}:${ports[0]?.port}`)),
    );
    return next;
  };
  known = await poll();
  const follow = async () => {
    const next = await poll();
    setTimeout(() => {
      for (const each of known) if (!next.includes(each)) letGo.set(each.replace(/:\d+$/, ''), Date.now());
      known = next;
    }, delayMs);
  };
  const timer = setInterval(() => {
    // An answer that came late must not undo what a newer one has said.
    if (isPolling) return;
    isPolling = true;
    const over = () => {
      isPolling = false;
    };
    void follow().then(over, over);
  }, intervalMs);
  const server = createProxy({
    connectTimeoutMs,
    endpoints: () => known,
    sent: ({ client, backend, lost }) => {
      const each = opened.get(client);
      if (each !== undefined) Object.assign(each, { backend, lost });
    },
  });
  // Also those that were cut by the pod before it answered.
  server.prependListener('connection', (client) => {
    const name = `${client.remoteAddress}:${client.remotePort}`;
    const each: Opened = { openedAt: Date.now() };
    opened.set(name, each);
    client.on('close', () => {
      opened.delete(name);
      if (client.bytesWritten > 0) return;
      const { openedAt, backend, lost } = each;
      const isAbandoned = backend === undefined || client.readableEnded;
      losses.push({
        openedAt,
        failedAt: Date.now(),
        backend,
        kind: lost ?? (isAbandoned ? 'abandoned' : 'cut'),
      });
    });
  });
  const page = createServer((_, response) => response.end(known.join('\n')));
  if (pagePort !== undefined) page.listen(pagePort, cluster.nodeAddress);
  server.listen(0, cluster.nodeAddress);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://${cluster.nodeAddress}:${port}`,
    isUpToDate: async () => isDeepStrictEqual((await poll()).toSorted(), known.toSorted()),
    letGoOf: (address) => letGo.get(address),
    losses: () => {
      const since = losses;
      losses = [];
      return since;
    },
    stop: () => {
      clearInterval(timer);
      server.close();
      page.close();
      page.closeAllConnections();
    },
  };
}
