import type { KubeConnection } from '../kube/connection.ts';
import { type ApiObject, ObjectFailure, requestObject } from '../kube/object-request.ts';
import { newAgent } from '../kube/request.ts';
import { type LeaseRecord, leaseObject, leaseRecordOf } from './lease-record.ts';

/** A Lease as it was read or written. */
export interface StoredLease {
  readonly record: LeaseRecord;
  /** To be written over: with its resourceVersion, so that of two who write over the same one fails. */
  readonly object: ApiObject;
}

/** Where the Lease is kept. Both throw ObjectFailure. */
export interface LeaseStore {
  /** @returns undefined when there is none */
  read(): Promise<StoredLease | undefined>;
  /** @param over what it replaces; undefined: there is none, or so it was */
  write(record: LeaseRecord, over: StoredLease | undefined): Promise<StoredLease>;
}

export interface LeaseLocation {
  readonly connection: KubeConnection;
  readonly namespace: string;
  readonly name: string;
  /** Milliseconds for each request. */
  readonly requestMs: number;
}

/** The Lease of an API server. Over one connection, which is kept: it is asked every second or two. */
export class ApiLeaseStore implements LeaseStore {
  readonly #location: LeaseLocation;
  readonly #collection: string;
  readonly #agent: ReturnType<typeof newAgent>;
  readonly #closing = new AbortController();

  constructor(location: LeaseLocation) {
    this.#location = location;
    this.#collection = `/apis/coordination.k8s.io/v1/namespaces/${location.namespace}/leases`;
    this.#agent = newAgent(location.connection);
  }

  async read(): Promise<StoredLease | undefined> {
    try {
      return storedLease(await this.#request('GET', this.#path));
    } catch (thrown) {
      if (thrown instanceof ObjectFailure && thrown.reason === 'NotFound') return undefined;
      throw thrown;
    }
  }

  async write(record: LeaseRecord, over: StoredLease | undefined): Promise<StoredLease> {
    const object = leaseObject(this.#location.name, record, over?.object);
    const written =
      over === undefined
        ? await this.#request('POST', this.#collection, object)
        : await this.#request('PUT', this.#path, object);
    return storedLease(written);
  }

  close(): void {
    this.#closing.abort();
    this.#agent.destroy();
  }

  get #path(): string {
    return `${this.#collection}/${this.#location.name}`;
  }

  #request(method: 'GET' | 'POST' | 'PUT', path: string, object?: ApiObject): Promise<ApiObject> {
    const { connection, requestMs } = this.#location;
    const [agent, signal] = [this.#agent, this.#closing.signal];
    return requestObject(connection, { method, path, object, agent, signal, withinMs: requestMs });
  }
}

function storedLease(object: ApiObject): StoredLease {
  return { record: leaseRecordOf(object), object };
}
