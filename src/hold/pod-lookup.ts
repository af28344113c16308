import type { V1Pod } from '@kubernetes/client-node';
import { callApi, type KubeConnection, newAgent, unlessNotFound } from '../cluster/index.ts';
import { asError } from '../core/api/index.ts';
import { type Logger, LogOnce } from '../telemetry/index.ts';
import { pause } from '../timing/index.ts';
import type { HeldPod } from './held-pods.ts';
import type { PodState } from './holds.ts';

interface PodLookupOptions {
  readonly connection: KubeConnection;
  readonly logger: Logger;
  readonly clock: () => number;
  /** How many seconds this node leaves its pods; undefined: it is not shutting down. */
  readonly nodeBudgetOf: (node: string) => number | 'unread' | undefined;
  readonly signal: AbortSignal;
}

const REQUEST_MS = 5_000;
/**
 * How many requests run concurrently. They use their own connections, so that renewing the Lease never waits behind them.
 */
const CONNECTIONS = 4;
/**
 * Requests a second. If the watch is late for a thousand deletions, they are asked about at this rate until it has caught
 * up.
 */
const PER_SECOND = 40;
/**
 * A kubelet that shuts down reports that on its Node while it stops the first pods, and the watch delivers it a moment
 * later.
 */
const NODE_LATE_MS = 1_000;

/**
 * Asks the API server, with quorum reads, about pods whose hooks run although no deletion is known: because of a liveness
 * restart, a node that shuts down, or a watch that is behind.
 */
export class PodLookup {
  readonly #options: PodLookupOptions;
  readonly #once: LogOnce;
  readonly #agent: ReturnType<typeof newAgent>;
  /** When the next request may be sent. */
  #nextAt = 0;

  constructor(options: PodLookupOptions) {
    this.#options = options;
    this.#once = new LogOnce(options.logger);
    this.#agent = newAgent(options.connection, CONNECTIONS, options.signal);
  }

  /** @returns undefined if the API server cannot be asked */
  async ask(pod: HeldPod): Promise<PodState | undefined> {
    try {
      const found = await this.#ask(pod);
      this.#once.over('lookup', {}, 'looking up held pods recovered');
      return found;
    } catch (thrown) {
      const { message: problem } = asError(thrown);
      if (!this.#options.signal.aborted)
        this.#once.warn('lookup', { problem }, 'looking up a held pod failed; retrying every second');
      return undefined;
    }
  }

  async #ask(pod: HeldPod): Promise<PodState> {
    await this.#turn();
    // The watch may have caught up in the meantime.
    const { deletion } = pod;
    if (deletion !== undefined)
      return { found: 'Deleted', timestamp: '', graceSeconds: deletion.graceSeconds };
    const { name, namespace, uid } = pod;
    // Without a resourceVersion, for a quorum read instead of one from the API server's cache.
    const found = await unlessNotFound(
      callApi(this.#options.connection, 'CoreV1Api', this.#call, (core) =>
        core.readNamespacedPod({ name, namespace }),
      ),
    );
    if (found?.metadata?.uid !== uid) return { found: 'Deleted', timestamp: '', graceSeconds: 0 };
    const { deletionTimestamp, deletionGracePeriodSeconds = 0 } = found.metadata;
    if (deletionTimestamp !== undefined) {
      const timestamp = new Date(deletionTimestamp).toISOString();
      return { found: 'Deleted', timestamp, graceSeconds: deletionGracePeriodSeconds };
    }
    if (isStopped(found)) return { found: 'Evicted' };
    const { nodeBudgetOf, signal } = this.#options;
    const node = found.spec?.nodeName ?? '';
    if (nodeBudgetOf(node) === undefined) await pause(NODE_LATE_MS, signal);
    const budget = nodeBudgetOf(node);
    if (budget === 'unread') throw new Error('nodes are being read: its own may be shutting down');
    return budget === undefined ? { found: 'Restart' } : { found: 'NodeShutdown', budget };
  }

  async #turn(): Promise<void> {
    const { clock, signal } = this.#options;
    const now = clock();
    const at = Math.max(now, this.#nextAt);
    this.#nextAt = at + 1000 / PER_SECOND;
    if (at > now) await pause(at - now, signal);
  }

  get #call() {
    return { signal: this.#options.signal, withinMs: REQUEST_MS, agent: this.#agent };
  }
}

/** Whether the kubelet is ending the pod without a deletion, by eviction or preemption. */
function isStopped({ status }: V1Pod): boolean {
  const disrupted = status?.conditions?.some(
    (each) => each.type === 'DisruptionTarget' && each.status === 'True',
  );
  return disrupted === true || status?.phase === 'Failed' || status?.phase === 'Succeeded';
}
