import { Counter, type Registry } from '@prometheus-io/client';
import {
  asFailure,
  callApi,
  type KubeConnection,
  listSome,
  newAgent,
  type RawObject,
  type Resource,
  type ResourceEvent,
  unlessNotFound,
  watchResource,
} from '../cluster/index.ts';
import { type Labels, labelOf, NO_LABELS, recordsAt } from '../core/api/index.ts';
import type { Leadership, Runnable } from '../manager/index.ts';
import type { Logger } from '../telemetry/index.ts';
import { pause } from '../timing/index.ts';
import { shutdownBudgetOf } from './release-rules.ts';

interface NodeShutdownOptions {
  readonly connection: KubeConnection;
  readonly logger: Logger;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  readonly random: () => number;
  /** Whether to delete the pods of such a node, so that slices withdraw them at once. */
  readonly deletes: boolean;
  /** Called with how many seconds the pod with this uid has left; undefined: its node is no longer shutting down. */
  readonly onPod: (uid: string, budget: number | undefined) => void;
}

interface ObservedNode {
  readonly name: string;
  readonly labels: Labels;
  readonly isShuttingDown: boolean;
}

interface PodOnNode {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /**
   * The pod must not be deleted: a DaemonSet would replace it on the same node, and a mirror pod does not belong to the API
   * server.
   */
  readonly stays: boolean;
  readonly isDeleted: boolean;
}

const MIRROR_ANNOTATION = 'kubernetes.io/config.mirror';
const ANSWER_MS = 5_000;
/** More pods than a kubelet can run. */
const MOST_PODS = 2_000;
const AT_ONCE = 16;
const RETRY_MS = 1_000;
const MOST_ATTEMPTS = 30;

/** The kubelet says so in its condition Ready. Source: pkg/kubelet/nodestatus/setters.go and nodeshutdown. */
const SHUTTING_DOWN = /\bshutting down\b/;

const NODES: Resource<ObservedNode> = {
  path: '/api/v1/nodes',
  project: ({ metadata: { name, labels = NO_LABELS }, status }) => {
    const ready = recordsAt(status, 'conditions').find(({ type }) => type === 'Ready');
    return {
      name,
      labels,
      isShuttingDown: ready?.status === 'False' && SHUTTING_DOWN.test(String(ready.message)),
    };
  },
};

/** Those pods of a node that have not ended. */
function podsOn(node: string): Resource<PodOnNode> {
  return {
    path: '/api/v1/pods',
    query: { fieldSelector: `spec.nodeName=${node},status.phase!=Succeeded,status.phase!=Failed` },
    metadataOnly: true,
    project: ({ metadata }) => ({
      namespace: metadata.namespace ?? '',
      name: metadata.name,
      uid: metadata.uid,
      stays:
        isDaemon(metadata) || labelOf(metadata.annotations ?? NO_LABELS, MIRROR_ANNOTATION) !== undefined,
      isDeleted: metadata.deletionTimestamp !== undefined,
    }),
  };
}

function isDaemon({ ownerReferences }: RawObject['metadata']): boolean {
  return recordsAt(ownerReferences).some(
    ({ kind, controller }) => kind === 'DaemonSet' && controller === true,
  );
}

/**
 * Watches for nodes that shut down. Their kubelet stops pods without deleting them, so slices list the pods until they have
 * ended (kubernetes#116965). Hold learns how much time the pods have; if the operator allows it, the pods are deleted.
 */
export class NodeShutdowns implements Runnable {
  readonly name = 'node-shutdown';
  readonly #options: NodeShutdownOptions;
  /** The nodes that are shutting down, and how many seconds they leave their pods. */
  readonly #nodes = new Map<string, number>();
  /** By node: the pods about which Hold has been informed. */
  readonly #told = new Map<string, readonly string[]>();
  /** The watch of this term as leader. */
  #watch: ReturnType<typeof watchResource> | undefined;
  #deleted: Counter<'result'> | undefined;

  constructor(options: NodeShutdownOptions) {
    this.#options = options;
  }

  metrics(registry: Registry): void {
    this.#deleted = registerNodeShutdownMetrics(registry);
  }

  async lead(leadership: Leadership): Promise<void> {
    const { connection, clock, random, logger } = this.#options;
    const { signal } = leadership;
    this.#nodes.clear();
    for (const node of this.#told.keys()) this.#over(node);
    const handlers = {
      onEvent: (event: ResourceEvent<ObservedNode>) => {
        const node = event.type === 'deleted' ? undefined : event.object;
        if (node?.isShuttingDown !== true) this.#over(event.identity.name);
        else if (!this.#nodes.has(node.name)) {
          this.#nodes.set(node.name, shutdownBudgetOf(node.labels));
          void this.#shutDown(node.name, leadership);
        }
      },
      onHandlerError: (err: Error) => logger.error({ err }, 'node event dropped; this is a bug in Linger'),
    };
    this.#watch = watchResource(NODES, connection, handlers, { signal, clock, random });
    await this.#watch.ended;
  }

  /** How many seconds this node leaves its pods; undefined: it is not shutting down; `unread`: not known yet. */
  readonly budgetOf = (node: string): number | 'unread' | undefined =>
    this.#nodes.get(node) ?? (this.#watch?.stats.lists ? undefined : 'unread');

  /** Ends the shutdown of a node. Pods that did not end in time run on after a reboot, and may be deleted some other day. */
  #over(node: string): void {
    this.#nodes.delete(node);
    for (const uid of this.#told.get(node) ?? []) this.#options.onPod(uid, undefined);
    this.#told.delete(node);
  }

  async #shutDown(node: string, leadership: Leadership): Promise<void> {
    const { logger, deletes } = this.#options;
    logger.info({ node, budget: this.#nodes.get(node), deletes }, 'node is shutting down');
    for (let attempt = 1; attempt <= MOST_ATTEMPTS && leadership.holds(); attempt += 1) {
      const budget = this.#nodes.get(node);
      if (budget === undefined) return;
      const problem = await this.#passOver(node, budget, leadership);
      if (problem === undefined) return;
      logger.warn(
        { node, problem },
        'deleting the pods of a node that is shutting down failed; retrying every second',
      );
      if (!(await pause(RETRY_MS, leadership.signal))) return;
    }
  }

  /** Informs Hold about the pods of a node, and deletes them if allowed. @returns what went wrong; undefined: nothing */
  async #passOver(node: string, budget: number, leadership: Leadership): Promise<string | undefined> {
    const { connection, deletes, onPod, logger } = this.#options;
    const { signal } = leadership;
    const agent = newAgent(connection, AT_ONCE);
    try {
      const pods = await listSome(podsOn(node), connection, { signal, answerMs: ANSWER_MS, most: MOST_PODS });
      if (!this.#nodes.has(node)) return undefined;
      const uids = pods.map(({ uid }) => uid);
      this.#told.set(node, uids);
      for (const uid of uids) onPod(uid, budget);
      if (!deletes) return undefined;
      const due = pods.filter(({ stays, isDeleted }) => !stays && !isDeleted);
      const problems: string[] = [];
      const call = { signal, withinMs: ANSWER_MS, agent };
      const remove = async (next: Iterator<PodOnNode>): Promise<void> => {
        for (let each = next.next(); !each.done && leadership.holds(); each = next.next()) {
          const { namespace, name, uid } = each.value;
          try {
            const body = { preconditions: { uid } };
            await unlessNotFound(
              callApi(connection, 'CoreV1Api', call, (core) =>
                core.deleteNamespacedPod({ namespace, name, body }),
              ),
            );
            this.#deleted?.inc({ result: 'deleted' });
          } catch (thrown) {
            const failure = asFailure(thrown);
            // A new pod of that name, which runs elsewhere.
            if (failure.reason === 'Conflict') continue;
            this.#deleted?.inc({ result: 'failed' });
            problems.push(`${namespace}/${name}: ${failure.reason}: ${failure.message}`);
          }
        }
      };
      const next = due.values();
      await Promise.all(Array.from({ length: AT_ONCE }, () => remove(next)));
      if (due.length > 0)
        logger.info(
          { node, pods: due.length, failed: problems.length },
          'deleted the pods of a node that is shutting down',
        );
      return problems[0];
    } catch (thrown) {
      const { reason, message } = asFailure(thrown);
      return `${reason}: ${message}`;
    } finally {
      agent.destroy();
    }
  }
}

export function registerNodeShutdownMetrics(registry: Registry) {
  const deleted = new Counter({
    name: 'linger_hold_node_shutdown_pods_total',
    help: 'Pods that this replica has deleted because their node was shutting down (--delete-on-node-shutdown), by result.',
    reference:
      'Pods of [nodes that shut down](operations.md#nodes-that-shut-down) that this replica `deleted`, or `failed` to delete.',
    labelNames: ['result'] as const,
    registers: [registry],
  });
  for (const result of ['deleted', 'failed']) deleted.inc({ result }, 0);
  return deleted;
}
