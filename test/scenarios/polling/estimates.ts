import type { V1ConfigMap } from '@kubernetes/client-node';
import { quantileOf } from '../../../src/core/lag/index.ts';
import { readPlanned, SHARED_NAMES } from '../../../src/leader/index.ts';
import { percentileOf } from '../../cluster-suite/support/agreement.ts';
import { type Cluster, waitUntil } from '../../testbed/cluster.ts';
import type { TrueLag } from './truth.ts';

/** What Linger's leader has published of one consumer, or of the control plane. */
export interface PublishedLag {
  readonly samples: number;
  /** Milliseconds. */
  readonly quantileMs: (percentile: number) => number;
}

/**
 * @param consumer undefined: the control plane
 * @returns undefined as long as there is nothing
 */
export async function publishedLag(cluster: Cluster, consumer?: string): Promise<PublishedLag | undefined> {
  const metadata = { name: SHARED_NAMES.planned, namespace: 'linger' };
  const planned = readPlanned(
    await cluster.get<V1ConfigMap>({ apiVersion: 'v1', kind: 'ConfigMap', metadata }),
  );
  if (planned.outcome !== 'read') return undefined;
  const row = consumer === undefined ? planned.value.cluster : planned.value.consumers.get(consumer);
  if (row === undefined) return undefined;
  const { slow: density } = row;
  return { samples: row.samples, quantileMs: (percentile) => 1_000 * quantileOf(density, percentile) };
}

/** That of kube-proxy, once it has been timed as often as waits are taken from. */
export function kubeProxyLag(cluster: Cluster): Promise<PublishedLag> {
  const look = async () => {
    const found = await publishedLag(cluster, 'cluster-ip');
    return found !== undefined && found.samples >= 100 ? found : undefined;
  };
  return waitUntil('a hundred lags of kube-proxy', look, { timeoutMs: 600_000, intervalMs: 1_000 });
}

/**
 * A percentile of the sum of the control plane's lag and that of a client that polls at an interval: worked out from a thousand
 * percentiles of the one and the uniform distribution of the other, with nothing of Linger's. Milliseconds.
 */
export function combinedMs(controlPlane: PublishedLag, intervalMs: number, percentile: number): number {
  const addends = Array.from({ length: 1_000 }, (_, index) => controlPlane.quantileMs((index + 0.5) / 10));
  const share = (ms: number) =>
    addends.reduce((sum, addend) => sum + Math.min(1, Math.max(0, (ms - addend) / intervalMs)), 0) /
    addends.length;
  let [low, high] = [0, intervalMs + Math.max(...addends)];
  while (high - low > 1) {
    const middle = (low + high) / 2;
    [low, high] = share(middle) < percentile / 100 ? [middle, high] : [low, middle];
  }
  return high;
}

/** A percentile as Linger estimates it beside what it really is. Milliseconds. */
export interface Comparison {
  readonly percentile: number;
  readonly estimateMs: number;
  readonly truthMs: number;
  /** The same, of when Linger had the report; the truth where there are no reports. */
  readonly toldMs: number;
}

export function compare(
  estimate: PublishedLag,
  truth: readonly TrueLag[],
  percentiles: readonly number[],
): readonly Comparison[] {
  const lags = truth.map(({ lagMs }) => lagMs);
  const told = truth.map(({ lagMs, toldMs }) => (Number.isNaN(toldMs) ? lagMs : toldMs));
  return percentiles.map((percentile) => ({
    percentile,
    estimateMs: estimate.quantileMs(percentile),
    truthMs: percentileOf(lags, percentile),
    toldMs: percentileOf(told, percentile),
  }));
}

const RELATIVE = 0.1;
const ABSOLUTE_MS = 300;

/**
 * Whether it is within 10 % or 300 ms, whichever is more. What Linger was told late, because processes waited for a
 * processor, it cannot have known earlier: that much later is right as well.
 */
export function agrees({ estimateMs, truthMs, toldMs }: Comparison): boolean {
  const within = (reference: number) => Math.max(ABSOLUTE_MS, RELATIVE * reference);
  return estimateMs >= truthMs - within(truthMs) && estimateMs <= toldMs + within(toldMs);
}
