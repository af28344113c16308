import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';

/** A change, in the form of a watch event. */
interface Change {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly revision: number;
  readonly object: ModelObject;
}

export interface ModelObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly resourceVersion: string;
  };
  readonly data?: Readonly<Record<string, string>>;
}

export const MODEL_PATH = '/api/v1/namespaces/model/configmaps';

/** The API server's part of the list-watch protocol for one collection, over a real socket, with a memory to lose. */
export class ModelApiServer {
  readonly server = http.createServer((request, response) => this.#answer(request, response));
  readonly #objects = new Map<string, ModelObject>();
  readonly #watches = new Set<http.ServerResponse>();
  /** The collection at the revision of each list that is continued, for its further pages. */
  readonly #snapshots = new Map<string, readonly ModelObject[]>();
  #changes: Change[] = [];
  #revision = 100;
  #forgotten = 100;
  #uids = 0;

  static async start(): Promise<ModelApiServer> {
    const model = new ModelApiServer();
    model.server.listen(0, '127.0.0.1');
    await once(model.server, 'listening');
    return model;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.server.address() as AddressInfo).port}`);
  }

  /** The objects that exist, by name: the truth. */
  get objects(): ReadonlyMap<string, ModelObject> {
    return this.#objects;
  }

  get revision(): number {
    return this.#revision;
  }

  put(name: string, value: string): void {
    const before = this.#objects.get(name);
    this.#uids += before === undefined ? 1 : 0;
    const uid = before?.metadata.uid ?? `uid-${this.#uids}`;
    const object = this.#objectOf(name, uid, value);
    this.#objects.set(name, object);
    this.#change(before === undefined ? 'ADDED' : 'MODIFIED', object);
  }

  remove(name: string): void {
    const before = this.#objects.get(name);
    if (before === undefined) return;
    this.#objects.delete(name);
    this.#change('DELETED', this.#objectOf(name, before.metadata.uid, before.data?.value ?? ''));
  }

  /** Something else in the same etcd was written. */
  writeElsewhere(): void {
    this.#revision += 1;
  }

  bookmark(): void {
    const metadata = { resourceVersion: String(this.#revision) };
    for (const watch of this.#watches) {
      watch.write(line({ type: 'BOOKMARK', object: { kind: 'ConfigMap', apiVersion: 'v1', metadata } }));
    }
  }

  /** Forgets everything before now: lists that go on and watches from before get a 410. */
  compact(): void {
    this.#changes = [];
    this.#forgotten = this.#revision;
    this.#snapshots.clear();
  }

  /** etcd was restored from a backup of some time ago. */
  rollBack(revisions: number): void {
    this.#revision -= revisions;
    this.compact();
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    this.server.close();
    await once(this.server, 'close');
  }

  #objectOf(name: string, uid: string, value: string): ModelObject {
    this.#revision += 1;
    const metadata = { name, namespace: 'model', uid, resourceVersion: String(this.#revision) };
    return { apiVersion: 'v1', kind: 'ConfigMap', metadata, data: { value } };
  }

  #change(type: Change['type'], object: ModelObject): void {
    const change = { type, revision: this.#revision, object };
    this.#changes.push(change);
    for (const watch of this.#watches) watch.write(line({ type, object }));
  }

  #answer(request: http.IncomingMessage, response: http.ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://model');
    if (pathname !== MODEL_PATH) refuse(response, 404, 'NotFound');
    else if (searchParams.get('watch') === 'true') this.#watch(searchParams, response);
    else this.#list(searchParams, response);
  }

  #watch(parameters: URLSearchParams, response: http.ServerResponse): void {
    const from = Number(parameters.get('resourceVersion'));
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    if (from < this.#forgotten) {
      const message = `too old resource version: ${from}`;
      response.end(
        line({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired', message } }),
      );
      return;
    }
    for (const { type, revision, object } of this.#changes) {
      if (revision > from) response.write(line({ type, object }));
    }
    this.#watches.add(response);
    response.on('close', () => this.#watches.delete(response));
  }

  #list(parameters: URLSearchParams, response: http.ServerResponse): void {
    const limit = Number(parameters.get('limit') ?? 0) || Number.POSITIVE_INFINITY;
    const token = parameters.get('continue');
    const [revision = String(this.#revision), start = '0'] = token === null ? [] : token.split('/');
    const all = token === null ? [...this.#objects.values()] : this.#snapshots.get(revision);
    if (all === undefined) {
      refuse(response, 410, 'Expired');
      return;
    }
    const items = all.slice(Number(start), Number(start) + limit);
    const end = Number(start) + items.length;
    const more = end < all.length;
    if (more) this.#snapshots.set(revision, all);
    const metadata = { resourceVersion: revision, ...(more ? { continue: `${revision}/${end}` } : {}) };
    send(response, 200, { kind: 'ConfigMapList', apiVersion: 'v1', metadata, items });
  }
}

function line(event: unknown): string {
  return `${JSON.stringify(event)}\n`;
}

function send(response: http.ServerResponse, status: number, body: unknown): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

function refuse(response: http.ServerResponse, code: number, reason: string): void {
  send(response, code, {
    kind: 'Status',
    apiVersion: 'v1',
    status: 'Failure',
    code,
    reason,
    message: reason,
  });
}
