import {
  type ApiCall,
  callApi,
  followObject,
  type KubeConnection,
  KubeFailure,
  type ObjectHandlers,
  type RawObject,
  unlessNotFound,
  type WatchOptions,
} from '../cluster/index.ts';
import type { PlannedTable } from '../core/lag/index.ts';
import {
  type ConfigMap,
  type Content,
  type Forgotten,
  forgottenText,
  notOurs,
  readForgotten,
  readPlanned,
  SHARED_ANNOTATIONS,
  SHARED_NAMES,
  type Shared,
  sameContent,
  stampAnnotations,
  stampOf,
} from './codec.ts';
import type { LeaseLeadership } from './election.ts';

/**
 * - `written`, `unchanged`: the content is stored.
 * - `deposed`: this replica no longer leads.
 * - `outgrown`: the ConfigMap carries a higher term than this replica's; the next renewal shows whether another one leads.
 * - `Newer`, `Foreign`: the ConfigMap must not be overwritten.
 */
export type WriteOutcome = 'written' | 'unchanged' | 'deposed' | 'outgrown' | 'Newer' | 'Foreign';

interface StoreOptions {
  readonly connection: KubeConnection;
  readonly namespace: string;
  readonly identity: string;
  readonly requestMs: number;
  readonly epochSeconds: () => number;
}

export class SharedStore {
  readonly #options: StoreOptions;

  constructor(options: StoreOptions) {
    this.#options = options;
  }

  /** @throws KubeFailure */
  read(name: string, signal: AbortSignal): Promise<ConfigMap | undefined> {
    const { connection, namespace, requestMs } = this.#options;
    return readConfigMap(connection, namespace, name, { signal, withinMs: requestMs });
  }

  /**
   * Writes the leader's content. The ConfigMap is read first and written with the resourceVersion that was read: if two
   * replicas both believe that they lead, one write fails, and a deposed leader fails even before it learns of it.
   * @throws KubeFailure; `Conflict` when another writer was quicker
   */
  async write(
    name: string,
    content: Content,
    leadership: LeaseLeadership,
    signal: AbortSignal,
  ): Promise<WriteOutcome> {
    const present = await this.read(name, signal);
    const left = notOurs(present);
    if (left !== undefined) return left;
    const { connection, namespace, identity, requestMs, epochSeconds } = this.#options;
    const { term, writer } = stampOf(present);
    if (term > leadership.term || (term === leadership.term && writer !== identity && writer !== '')) {
      leadership.outgrow(term);
      return 'outgrown';
    }
    if (present !== undefined && sameContent(present, content)) return 'unchanged';
    if (!leadership.holds()) return 'deposed';
    const stamp = stampAnnotations({ writer: identity, term: leadership.term, writtenAt: epochSeconds() });
    const body = configMapOf(name, content, stamp, present);
    await callApi(connection, 'CoreV1Api', { signal, withinMs: requestMs }, (api) =>
      present === undefined
        ? api.createNamespacedConfigMap({ namespace, body })
        : api.replaceNamespacedConfigMap({ namespace, name, body }),
    );
    return 'written';
  }
}

/** @returns undefined if it does not exist @throws KubeFailure */
export function readConfigMap(
  connection: KubeConnection,
  namespace: string,
  name: string,
  call: ApiCall,
): Promise<ConfigMap | undefined> {
  return unlessNotFound(
    callApi(connection, 'CoreV1Api', call, (api) => api.readNamespacedConfigMap({ namespace, name })),
  );
}

/** Longer than any history except a quiet cluster's, which has been rewritten by then. */
const FORGOTTEN_KEPT_SECONDS = 30 * 86_400;
const MOST_ATTEMPTS = 5;

/**
 * Records in `linger-planned` that a span should be forgotten. Every replica watches that ConfigMap and removes the span
 * from what it has measured; thanks to the record, replicas that start later, or restore an older history, do the same.
 * @throws KubeFailure `NotFound` if nothing has been published yet
 */
export async function recordForgotten(
  connection: KubeConnection,
  namespace: string,
  forgotten: Forgotten,
  epochSeconds: number,
  call: ApiCall,
): Promise<void> {
  const name = SHARED_NAMES.planned;
  for (let attempt = 1; ; attempt += 1) {
    try {
      const present = await callApi(connection, 'CoreV1Api', call, (api) =>
        api.readNamespacedConfigMap({ namespace, name }),
      );
      const kept = readForgotten(present).filter(({ to }) => to > epochSeconds - FORGOTTEN_KEPT_SECONDS);
      const annotations = { [SHARED_ANNOTATIONS.forgotten]: forgottenText([...kept, forgotten]) };
      // With the resourceVersion that was read, because the leader and other users write it as well.
      const body = { metadata: { resourceVersion: present.metadata?.resourceVersion, annotations } };
      await callApi(connection, 'CoreV1Api', { ...call, patch: 'merge-patch' }, (api) =>
        api.patchNamespacedConfigMap({ namespace, name, body }),
      );
      return;
    } catch (thrown) {
      const conflict = thrown instanceof KubeFailure && thrown.reason === 'Conflict';
      if (!conflict || attempt === MOST_ATTEMPTS) throw thrown;
    }
  }
}

/** Keeps labels, owners and annotations that others have set. */
function configMapOf(
  name: string,
  { data = {}, binaryData = {}, annotations: besides }: Content,
  stamp: Record<string, string>,
  present: ConfigMap | undefined,
) {
  const labels = present?.metadata?.labels ?? { 'app.kubernetes.io/name': 'linger' };
  const annotations = { ...present?.metadata?.annotations, ...besides, ...stamp };
  return { metadata: { name, ...present?.metadata, labels, annotations }, data, binaryData };
}

/** The ConfigMap of the published curves, as the watch of every replica sees it. */
export interface PublishedPlanned {
  readonly planned: Shared<PlannedTable>;
  readonly forgotten: readonly Forgotten[];
}

/**
 * Follows what the leader publishes. It is watched rather than polled, so that replicas differ only for milliseconds after a
 * change: the pods of one ReplicaSet are reviewed by all of them, seconds apart, and should get the same wait.
 */
export function followPublished(
  connection: KubeConnection,
  namespace: string,
  handlers: ObjectHandlers<PublishedPlanned>,
  options: WatchOptions,
): ReturnType<typeof followObject> {
  const path = `/api/v1/namespaces/${namespace}/configmaps`;
  const project = (object: RawObject) => ({ planned: readPlanned(object), forgotten: readForgotten(object) });
  return followObject(connection, { path, name: SHARED_NAMES.planned, project }, handlers, options);
}
