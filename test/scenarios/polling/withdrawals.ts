import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster } from '../../testbed/cluster.ts';

export interface WithdrawalsOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly name: string;
  /** Milliseconds between two, give or take half of it at random. */
  readonly everyMs: number;
  readonly signal: AbortSignal;
}

/** So many addresses are in the slice to begin with, and again whenever all have been withdrawn. */
const ADDRESSES = 250;

/**
 * A Service whose EndpointSlice is written by hand: addresses leave it one by one, by a write each, with no pod and no
 * controller behind. Many removals for readers of slices, and none that Linger could measure.
 */
export async function withdrawOneByOne(options: WithdrawalsOptions): Promise<void> {
  const { cluster, namespace, name, everyMs, signal } = options;
  const spec = { clusterIP: 'None', ports: [{ port: 80 }] };
  const service = { apiVersion: 'v1', kind: 'Service', metadata: { name, namespace }, spec };
  await cluster.create(service);
  let left = all();
  const slice = () => ({
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name, namespace, labels: { 'kubernetes.io/service-name': name } },
    addressType: 'IPv4',
    endpoints: left.map((address) => ({ addresses: [address] })),
    ports: [{ port: 80, protocol: 'TCP' }],
  });
  await cluster.create(slice());
  while (!signal.aborted) {
    await sleep(everyMs * (0.5 + Math.random()));
    left = left.length === 0 ? all() : left.slice(1);
    await cluster.patch(slice(), { endpoints: slice().endpoints });
  }
}

/** 192.0.2.0/24 is for documentation (RFC 5737): no host has these addresses. */
function all(): readonly string[] {
  return Array.from({ length: ADDRESSES }, (_, index) => `192.0.2.${index + 1}`);
}
