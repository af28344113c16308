import type { LabelledPod } from '../../cluster/index.ts';
import type { ClusterDns } from '../cluster-dns/dns.ts';
import type { TimedConsumer } from './flip.ts';

export interface KnownReplica {
  readonly pod: LabelledPod;
  readonly address: string;
  /** The identity that its canary server answers with. */
  readonly identity: string;
}

export type SilentReplica = Omit<KnownReplica, 'identity'>;

/** The Service and the replicas of a flip. */
export interface Met {
  readonly service: { readonly address: string; readonly port: number };
  readonly canary: KnownReplica;
  readonly fellows: readonly KnownReplica[];
  readonly silent: readonly SilentReplica[];
}

/** What attempts are made with. */
export interface AttemptContext {
  /** Linger's own. */
  readonly namespace: string;
  readonly dns: ClusterDns;
  /** Whether probe URLs may lead to link-local addresses and cloud metadata. */
  readonly allowLinkLocal: boolean;
  /** A probe has connected to this address. */
  readonly onProbe: (address: string) => void;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** A measure whose consumers the canary times. */
export interface TimedByCanary<M> {
  /** What it cannot see, as a sentence shown beside its numbers. */
  readonly limit: string;
  /** Milliseconds between two flips that the consumer asks for; absent: the canary's own pace, by `--canary-every`. */
  readonly everyMs?: (measure: M) => number;
  /** Whether the kube-proxy of each node follows for itself: then node timers join in, and it is flipped for alone, too. */
  readonly perNode?: boolean;
  /** How attempts through the consumer are made. */
  readonly attempts: (
    measure: M,
    met: Met,
    context: AttemptContext,
  ) => Promise<Pick<TimedConsumer, 'service' | 'subject' | 'leastMisses' | 'ask'>>;
}

/** Behind a URL or the address of DNS there may be several instances, and a slow one may be met rarely: 3 s. */
export const SHARED_MISSES = 120;
