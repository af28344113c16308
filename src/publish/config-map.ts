import type { KubeConnection } from '../kube/connection.ts';
import { type ApiObject, ObjectFailure, requestObject } from '../kube/object-request.ts';
import { newAgent } from '../kube/request.ts';
import {
  type Content,
  PUBLISHED_NAMES,
  type PublishedObject,
  sameContent,
  stampAnnotations,
  stampOf,
  untouchable,
} from '../measure/publication.ts';
import type { Leadership } from './leadership.ts';

/**
 * - `written`, `unchanged`: it is there now.
 * - `deposed`: somebody else leads.
 * - `outgrown`: it bears a higher term than ours; whether that is a later leader's, our next renewal tells.
 * - `Newer`, `Foreign`: it is not ours to write over.
 */
export type WriteOutcome = 'written' | 'unchanged' | 'deposed' | 'outgrown' | 'Newer' | 'Foreign';

export interface ConfigMapLocation {
  readonly connection: KubeConnection;
  readonly namespace: string;
  /** Who writes. */
  readonly identity: string;
  /** Milliseconds for each request. */
  readonly requestMs: number;
}

/** The ConfigMaps that replicas share. Requests go one after the other, over one connection. */
export class PublishedConfigMaps {
  readonly #location: ConfigMapLocation;
  readonly #collection: string;
  readonly #agent: ReturnType<typeof newAgent>;

  constructor(location: ConfigMapLocation) {
    this.#location = location;
    this.#collection = `/api/v1/namespaces/${location.namespace}/configmaps`;
    this.#agent = newAgent(location.connection);
  }

  /**
   * @returns undefined when there is none
   * @throws ObjectFailure
   */
  async read(object: PublishedObject, signal: AbortSignal): Promise<ApiObject | undefined> {
    try {
      return await this.#request('GET', this.#path(object), signal);
    } catch (thrown) {
      if (thrown instanceof ObjectFailure && thrown.reason === 'NotFound') return undefined;
      throw thrown;
    }
  }

  /**
   * Writes what the leader has to say, unless somebody else is entitled to: the ConfigMap is read first, and written
   * with the resourceVersion that was read. So of two writers who both believe that they lead, one fails, and one whose
   * term is over fails even if nobody has noticed yet.
   * @param epochSeconds when this is written
   * @throws ObjectFailure; `Conflict` when somebody was quicker
   */
  async write(
    object: PublishedObject,
    content: Content,
    leadership: Leadership,
    { epochSeconds, signal }: { readonly epochSeconds: number; readonly signal: AbortSignal },
  ): Promise<WriteOutcome> {
    const present = await this.read(object, signal);
    const notOurs = untouchable(present);
    if (notOurs !== undefined) return notOurs;
    const { identity } = this.#location;
    const { term, writer } = stampOf(present);
    if (term > leadership.term || (term === leadership.term && writer !== identity && writer !== '')) {
      leadership.outgrow(term);
      return 'outgrown';
    }
    if (present !== undefined && sameContent(present, content)) return 'unchanged';
    if (!leadership.holds()) return 'deposed';
    const stamp = { writer: identity, term: leadership.term, writtenAt: epochSeconds };
    const next = configMapOf(PUBLISHED_NAMES[object], content, stampAnnotations(stamp), present);
    if (present === undefined) await this.#request('POST', this.#collection, signal, next);
    else await this.#request('PUT', this.#path(object), signal, next);
    return 'written';
  }

  close(): void {
    this.#agent.destroy();
  }

  #path(object: PublishedObject): string {
    return `${this.#collection}/${PUBLISHED_NAMES[object]}`;
  }

  #request(method: 'GET' | 'POST' | 'PUT', path: string, signal: AbortSignal, object?: ApiObject) {
    const { connection, requestMs } = this.#location;
    return requestObject(connection, {
      method,
      path,
      object,
      agent: this.#agent,
      signal,
      withinMs: requestMs,
    });
  }
}

/** What others have put there besides (labels, owners) stays. */
function configMapOf(
  name: string,
  { data = {}, binaryData = {} }: Content,
  annotations: Readonly<Record<string, string>>,
  over: ApiObject | undefined,
): ApiObject {
  const labels = over?.metadata.labels ?? { 'app.kubernetes.io/name': 'linger' };
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: {
      name,
      ...over?.metadata,
      labels,
      annotations: { ...over?.metadata.annotations, ...annotations },
    },
    data,
    binaryData,
  };
}
