import type { Consumer } from '../../core/consumers/consumer.ts';
import { type Answer, attempt, canaryUrl, type Problem } from './attempt.ts';
import type { TimedConsumer } from './followed-consumer.ts';
import { resolve } from './resolve.ts';
import type { ServiceAddress } from './service.ts';

/** Consumers that the canary measures. */
export type Timed = Consumer & { readonly measure: { readonly kind: 'probe' | 'clusterIp' } };

export function isTimed(consumer: Consumer): consumer is Timed {
  return consumer.measure.kind === 'probe' || consumer.measure.kind === 'clusterIp';
}

/** One kube-proxy stands behind a ClusterIP, seen from one node: a second of others' answers is enough. */
const CLUSTER_IP_MISSES = 40;
/** Behind a URL there may be several gateways, of which the last to follow is met seldom: 3 s. */
const PROBE_MISSES = 120;

/** How often a probe is flipped for where its author does not say. */
const PROBE_EVERY_MS = 30_000;

/** What the canary cannot see: shown beside its numbers. */
const A_LABEL = 'The canary is removed by its label: what a consumer does only at a termination is not seen.';
const LIMITS = {
  clusterIp: [
    'It sees the kube-proxy of the node where the leader runs; those of other nodes may take longer.',
    A_LABEL,
  ],
  probe: [
    'It sees the instances that the URL leads to from where the leader runs. Up to 3 of them are timed to 0.1 s on average; of 20 the slowest is timed 0.7 s short.',
    A_LABEL,
  ],
};

export function limitsOf({ measure }: Timed, alone: boolean): readonly string[] {
  const limits = LIMITS[measure.kind];
  if (!alone) return limits;
  return [...limits, 'Linger has one replica, which calls itself: that takes another way through the node.'];
}

/** @param clusterEveryMs how often a ClusterIP is flipped for of itself */
export function everyMsOf({ measure }: Timed, clusterEveryMs: number): number {
  if (measure.kind === 'clusterIp') return clusterEveryMs;
  return measure.every === undefined ? PROBE_EVERY_MS : measure.every * 1000;
}

/** @param service what a ClusterIP leads to */
export async function timedConsumer(
  consumer: Timed,
  service: ServiceAddress,
  attemptMs: number,
  signal: AbortSignal,
): Promise<TimedConsumer> {
  const { name, measure } = consumer;
  if (measure.kind === 'clusterIp') {
    const { address, port } = service;
    const url = canaryUrl(address, port);
    const ask = () => attempt({ url, address, timeoutMs: attemptMs });
    return {
      name,
      subject: 'A connection to the ClusterIP of linger-canary',
      leastMisses: CLUSTER_IP_MISSES,
      ask,
    };
  }
  const ask = asking(new URL(measure.url), await resolve(new URL(measure.url), signal), attemptMs);
  return { name, subject: 'The probe', leastMisses: PROBE_MISSES, ask };
}

/** Each address in turn. */
function asking(
  url: URL,
  resolved: { readonly addresses: readonly string[] } | Problem,
  timeoutMs: number,
): () => Promise<Answer> {
  if (!('addresses' in resolved)) return () => Promise.resolve(resolved);
  const { addresses } = resolved;
  let turn = 0;
  return () => {
    const address = addresses[turn++ % addresses.length] as string;
    return attempt({ url, address, timeoutMs });
  };
}
