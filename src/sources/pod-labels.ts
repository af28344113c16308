import { pointer } from '../core/patch/operation.ts';
import { isRecord, isString, isStringMap, jsonIn } from '../core/schema/shape.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { WatchFailure } from '../kube/failure.ts';
import { requestObject } from '../kube/object-request.ts';
import { ask, newAgent, readText } from '../kube/request.ts';

/** A pod of Linger's own, as far as its labels and its place are concerned. */
export interface LabelledPod {
  readonly name: string;
  readonly uid: string;
  readonly labels: Readonly<Record<string, string>>;
  /** status.podIP; undefined: none yet. */
  readonly address: string | undefined;
  /** By its condition; what is being deleted is not. */
  readonly ready: boolean;
}

/** One label of one pod, from what it is to what it shall be; undefined: absent. */
export interface LabelChange {
  readonly pod: Pick<LabelledPod, 'name' | 'uid'>;
  readonly label: string;
  readonly from: string | undefined;
  readonly to: string | undefined;
}

export interface PodLabelsOptions {
  readonly connection: KubeConnection;
  /** Linger's own: it may patch pods nowhere else. */
  readonly namespace: string;
  /** Milliseconds for each request. */
  readonly requestMs: number;
}

/** More replicas than anybody runs; their list must not grow without bound. */
const MOST_PODS = 100;
const LONGEST_LIST = 8 * 1024 * 1024;

/**
 * Labels of Linger's own pods, by which Services choose among replicas that are otherwise alike. Over one connection,
 * until {@link close}.
 */
export class PodLabels {
  readonly #options: PodLabelsOptions;
  readonly #path: string;
  readonly #agent: ReturnType<typeof newAgent>;

  constructor(options: PodLabelsOptions) {
    this.#options = options;
    this.#path = `/api/v1/namespaces/${options.namespace}/pods`;
    this.#agent = newAgent(options.connection);
  }

  /**
   * @param selector as the API writes it: `linger.dev/canary=out`
   * @throws KubeFailure; the signal's reason once that has aborted
   */
  async list(selector: string, signal: AbortSignal): Promise<readonly LabelledPod[]> {
    const { connection, requestMs } = this.#options;
    const query = new URLSearchParams({ labelSelector: selector, limit: String(MOST_PODS) });
    const path = `${this.#path}?${query}`;
    const response = await ask(connection, { path, agent: this.#agent, signal, answerMs: requestMs });
    const said = jsonIn(await readText(response, LONGEST_LIST, requestMs));
    if (!isRecord(said) || !Array.isArray(said.items)) {
      throw new WatchFailure('Malformed', 'expected a list of pods');
    }
    return said.items.flatMap((item) => labelledPod(item) ?? []);
  }

  /**
   * Changes the label, if it is still what it was, of this very pod.
   * @throws ObjectFailure: `NotFound` when the pod is gone, `Refused` when it is another pod of that name, or its label
   *   has been changed since; the signal's reason once that has aborted
   */
  async change({ pod, label, from, to }: LabelChange, signal: AbortSignal): Promise<void> {
    const { connection, requestMs } = this.#options;
    const path = pointer('/metadata/labels', label);
    await requestObject(connection, {
      method: 'PATCH',
      path: `${this.#path}/${pod.name}`,
      object: [
        { op: 'test', path: '/metadata/uid', value: pod.uid },
        // A patch cannot test for absence: then adding replaces whatever is there.
        ...(from === undefined ? [] : [{ op: 'test', path, value: from }]),
        to === undefined ? { op: 'remove', path } : { op: 'add', path, value: to },
      ],
      agent: this.#agent,
      signal,
      withinMs: requestMs,
    });
  }

  close(): void {
    this.#agent.destroy();
  }
}

function labelledPod(item: unknown): LabelledPod | undefined {
  const { metadata, status } = isRecord(item) ? item : {};
  if (!isRecord(metadata) || !isString(metadata.name) || !isString(metadata.uid)) return undefined;
  const { podIP, conditions } = isRecord(status) ? status : {};
  return {
    name: metadata.name,
    uid: metadata.uid,
    labels: isStringMap(metadata.labels) ? metadata.labels : {},
    address: isString(podIP) && podIP !== '' ? podIP : undefined,
    ready: metadata.deletionTimestamp === undefined && isReady(conditions),
  };
}

function isReady(conditions: unknown): boolean {
  return (
    Array.isArray(conditions) &&
    conditions.some((each) => isRecord(each) && each.type === 'Ready' && each.status === 'True')
  );
}
