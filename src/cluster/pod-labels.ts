import type { V1Pod } from '@kubernetes/client-node';
import { pointer } from '../core/api/index.ts';
import { callApi } from './client.ts';
import type { KubeConnection } from './connection.ts';

export interface LabelledPod {
  readonly name: string;
  readonly uid: string;
  readonly labels: Readonly<Record<string, string>>;
  /** status.podIP; undefined: none yet. */
  readonly address: string | undefined;
  /** The condition Ready; false while the pod terminates. */
  readonly ready: boolean;
}

/** A change of one label. A value is undefined if the label is absent before or after it. */
interface LabelChange {
  readonly pod: Pick<LabelledPod, 'name' | 'uid'>;
  readonly label: string;
  readonly from: string | undefined;
  readonly to: string | undefined;
}

interface PodLabelsOptions {
  readonly connection: KubeConnection;
  /** Linger's own namespace, the only one in which it may patch pods. */
  readonly namespace: string;
  readonly requestMs: number;
}

/** More replicas than any installation has. */
const MOST_PODS = 100;

/** Labels on Linger's own pods, by which Services select some of the replicas. */
export class PodLabels {
  readonly #options: PodLabelsOptions;

  constructor(options: PodLabelsOptions) {
    this.#options = options;
  }

  /**
   * @param selector in the API's syntax: `linger.dev/canary=out`
   * @throws KubeFailure; the signal's reason once that has aborted
   */
  async list(selector: string, signal: AbortSignal): Promise<readonly LabelledPod[]> {
    const { connection, namespace, requestMs: withinMs } = this.#options;
    const query = { namespace, labelSelector: selector, limit: MOST_PODS };
    const { items } = await callApi(connection, 'CoreV1Api', { signal, withinMs }, (core) =>
      core.listNamespacedPod(query),
    );
    return items.flatMap((pod) => labelledPod(pod) ?? []);
  }

  /**
   * Changes the label of exactly this pod, provided that it still has the expected value.
   * @throws KubeFailure: `NotFound` if the pod is gone, `Refused` if a different pod has its name now, or if the label has
   * been changed since; the signal's reason once that has aborted
   */
  async change({ pod, label, from, to }: LabelChange, signal: AbortSignal): Promise<void> {
    const { connection, namespace, requestMs: withinMs } = this.#options;
    const path = pointer('/metadata/labels', label);
    const body = [
      { op: 'test', path: '/metadata/uid', value: pod.uid },
      // A JSON patch cannot test for absence, so in that case `add` overwrites any value.
      ...(from === undefined ? [] : [{ op: 'test', path, value: from }]),
      to === undefined ? { op: 'remove', path } : { op: 'add', path, value: to },
    ];
    await callApi(connection, 'CoreV1Api', { signal, withinMs }, (core) =>
      core.patchNamespacedPod({ name: pod.name, namespace, body }),
    );
  }
}

function labelledPod({ metadata, status }: V1Pod): LabelledPod | undefined {
  const { name, uid, labels = {}, deletionTimestamp } = metadata ?? {};
  if (name === undefined || uid === undefined) return undefined;
  const isReady =
    status?.conditions?.some((each) => each.type === 'Ready' && each.status === 'True') ?? false;
  const ready = deletionTimestamp === undefined && isReady;
  return { name, uid, labels, address: status?.podIP || undefined, ready };
}
