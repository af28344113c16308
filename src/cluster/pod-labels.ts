import type { V1Pod } from '@kubernetes/client-node';
import { pointer } from '../decision/index.ts';
import { callApi } from './client.ts';
import type { KubeConnection } from './connection.ts';

/** A pod of Linger's own, as far as its labels and its place are concerned. */
export interface LabelledPod {
  readonly name: string;
  readonly uid: string;
  readonly labels: Readonly<Record<string, string>>;
  /** status.podIP; undefined: none yet. */
  readonly address: string | undefined;
  /** By its condition; a pod that is being deleted is not ready. */
  readonly ready: boolean;
}

/** One label of one pod, from what it is to what it shall be; undefined: absent. */
interface LabelChange {
  readonly pod: Pick<LabelledPod, 'name' | 'uid'>;
  readonly label: string;
  readonly from: string | undefined;
  readonly to: string | undefined;
}

interface PodLabelsOptions {
  readonly connection: KubeConnection;
  /** Linger's own: it may patch pods nowhere else. */
  readonly namespace: string;
  /** Milliseconds for each request. */
  readonly requestMs: number;
}

/** More replicas than any installation has; their list must not grow without bound. */
const MOST_PODS = 100;

/** Labels of Linger's own pods, by which Services choose among replicas that are otherwise alike. */
export class PodLabels {
  readonly #options: PodLabelsOptions;

  constructor(options: PodLabelsOptions) {
    this.#options = options;
  }

  /**
   * @param selector as the API writes it: `linger.dev/canary=out`
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
   * Changes the label of this very pod, if it still is what it was.
   * @throws KubeFailure: `NotFound` when the pod is gone, `Refused` when it is another pod of that name, or its label
   *   has been changed since; the signal's reason once that has aborted
   */
  async change({ pod, label, from, to }: LabelChange, signal: AbortSignal): Promise<void> {
    const { connection, namespace, requestMs: withinMs } = this.#options;
    const path = pointer('/metadata/labels', label);
    const body = [
      { op: 'test', path: '/metadata/uid', value: pod.uid },
      // A patch cannot test for absence: then adding replaces whatever is there.
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
