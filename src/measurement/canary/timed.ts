import type { LabelledPod } from '../../cluster/index.ts';
import type { ClusterDns } from '../cluster-dns/dns.ts';
import type { TimedConsumer } from './flip.ts';

export interface KnownReplica {
  readonly pod: LabelledPod;
  readonly address: string;
  /** The identity with which its canary server answers. */
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

/** What is needed to make attempts. */
export interface AttemptContext {
  /** Linger's own. */
  readonly namespace: string;
  readonly dns: ClusterDns;
  /** Whether probe URLs may lead to link-local addresses and to cloud metadata. */
  readonly allowLinkLocal: boolean;
  /** Called when a probe has connected to this address. */
  readonly onProbe: (address: string) => void;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
}

/** A kind of measure for consumers that the canary times. */
export interface TimedByCanary<M> {
  /** What it cannot see, as a sentence to show with its numbers. */
  readonly limit: string;
  /** The interval between flips in milliseconds, if the consumer specifies one; absent: that of `--canary-every`. */
  readonly everyMs?: (measure: M) => number;
  /**
   * Whether each node's kube-proxy follows by itself. If so, node timers take part, and there are extra flips for it alone.
   */
  readonly perNode?: boolean;
  /** How to make attempts through the consumer. */
  readonly attempts: (
    measure: M,
    met: Met,
    context: AttemptContext,
  ) => Promise<Pick<TimedConsumer, 'service' | 'subject' | 'leastMisses' | 'ask'>>;
}

/**
 * There may be several instances behind a URL or the address of DNS, and a slow one may be reached rarely. These are 3 s of
 * attempts.
 */
export const SHARED_MISSES = 120;
