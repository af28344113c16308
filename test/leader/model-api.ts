import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import jsonPatch, { type Operation } from 'fast-json-patch';

/** An object as the API server stores it. */
export interface ApiObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: {
    readonly name: string;
    readonly resourceVersion?: string;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly [member: string]: unknown;
  };
  readonly [member: string]: unknown;
}

export interface ModelRequest {
  readonly method: string;
  readonly path: string;
  readonly object: ApiObject | undefined;
}

/** What a request meets instead of the server. */
export interface Refusal {
  readonly status: number;
  readonly retryAfter?: number;
}

/** As much of an API server as reading, watching and writing single objects takes, with its rules about resourceVersions. */
export class ModelApi {
  /** By path. */
  readonly objects = new Map<string, ApiObject>();
  readonly requests: ModelRequest[] = [];
  /** Asked about each request. */
  refuse: (request: ModelRequest) => Refusal | undefined = () => undefined;
  /** Called after each change, and right before a request is carried out. */
  onChange: (path: string) => void = () => undefined;
  before: (request: ModelRequest) => void = () => undefined;
  /** Whether a watch of this object shows nothing for now. */
  isLate: (path: string) => boolean = () => false;
  #revision = 0;
  /** Open watches of one object each. */
  readonly #watches = new Set<{ readonly path: string; readonly response: http.ServerResponse }>();
  readonly #server = http.createServer((request, response) => void this.#serve(request, response));

  static async start(): Promise<ModelApi> {
    const api = new ModelApi();
    api.#server.listen(0, '127.0.0.1');
    await once(api.#server, 'listening');
    return api;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  put(path: string, object: Omit<ApiObject, 'metadata'> & { readonly metadata: object }): ApiObject {
    this.#revision += 1;
    const metadata = { ...object.metadata, resourceVersion: String(this.#revision) };
    const stored = { ...object, metadata } as unknown as ApiObject;
    this.#show(this.objects.has(path) ? 'MODIFIED' : 'ADDED', path, stored);
    this.objects.set(path, stored);
    this.onChange(path);
    return stored;
  }

  delete(path: string): void {
    const gone = this.objects.get(path);
    this.#revision += 1;
    if (gone !== undefined) this.#show('DELETED', path, gone);
    this.objects.delete(path);
    this.onChange(path);
  }

  #show(type: string, path: string, object: ApiObject): void {
    if (this.isLate(path)) return;
    for (const watch of this.#watches)
      if (watch.path === path) watch.response.write(`${JSON.stringify({ type, object: withUid(object) })}\n`);
  }

  /** Writes to this path so far. */
  writes(path: string): number {
    const collection = path.slice(0, path.lastIndexOf('/'));
    const name = path.slice(collection.length + 1);
    return this.requests.filter(
      (each) =>
        (each.method === 'PUT' && each.path === path) ||
        (each.method === 'POST' && each.path === collection && each.object?.metadata.name === name),
    ).length;
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, 'close');
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const { method = '', url = '' } = request;
    const { pathname, searchParams } = new URL(url, 'http://model');
    const [, name] = /^metadata\.name=(.+)$/.exec(searchParams.get('fieldSelector') ?? '') ?? [];
    const path = name === undefined ? pathname : `${pathname}/${name}`;
    const asked = { method, path, object: text === '' ? undefined : (JSON.parse(text) as ApiObject) };
    this.requests.push(asked);
    const refusal = this.refuse(asked);
    if (refusal !== undefined) {
      answer(response, refusal.status, 'Refused', refusal.retryAfter);
      return;
    }
    this.before(asked);
    if (name === undefined) this.#carryOut(asked, response);
    else if (searchParams.has('watch'))
      this.#watch(path, searchParams.get('resourceVersion') ?? '', response);
    else {
      const items = [this.objects.get(path) ?? []].flat().map(withUid);
      send(response, 200, { kind: 'List', metadata: { resourceVersion: String(this.#revision) }, items });
    }
  }

  #watch(path: string, since: string, response: http.ServerResponse): void {
    response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
    const watch = { path, response };
    this.#watches.add(watch);
    response.once('close', () => this.#watches.delete(watch));
    const present = this.objects.get(path);
    if (present !== undefined && Number(present.metadata.resourceVersion) > Number(since))
      this.#show('MODIFIED', path, present);
  }

  #carryOut({ method, path, object }: ModelRequest, response: http.ServerResponse): void {
    const itsPath = method === 'POST' ? `${path}/${object?.metadata.name}` : path.replace(/\/status$/, '');
    const present = this.objects.get(itsPath);
    const version = present?.metadata.resourceVersion;
    if (method === 'POST' && present !== undefined) answer(response, 409, 'AlreadyExists');
    else if (method === 'POST' && object !== undefined) send(response, 201, this.put(itsPath, object));
    else if (method === 'PATCH' && present === undefined && object?.kind !== undefined && itsPath === path)
      send(response, 201, this.put(itsPath, object));
    else if (present === undefined) answer(response, 404, 'NotFound');
    else if (object === undefined) send(response, 200, present);
    else if (Array.isArray(object)) send(response, 200, this.put(itsPath, jsonPatched(present, object)));
    // A server-side apply by the only owner of the data.
    else if (method === 'PATCH' && object.kind === 'ConfigMap')
      send(response, 200, this.put(itsPath, { ...present, data: object.data }));
    else if (object.metadata.resourceVersion !== version) answer(response, 409, 'Conflict');
    else if (method === 'PATCH') send(response, 200, this.put(itsPath, patched(present, object)));
    else send(response, 200, this.put(path, object));
  }
}

function withUid(object: ApiObject): ApiObject {
  return { ...object, metadata: { uid: object.metadata.name, ...object.metadata } };
}

function jsonPatched(present: ApiObject, patch: readonly Operation[]): ApiObject {
  return jsonPatch.applyPatch(structuredClone(present), patch).newDocument;
}

/** A server-side apply of a status by its only owner, or a merge patch of annotations and data. */
function patched(present: ApiObject, patch: ApiObject): ApiObject {
  if (patch.status === undefined) {
    const annotations = { ...present.metadata.annotations, ...patch.metadata.annotations };
    const data = patch.data === undefined ? {} : { data: { ...Object(present.data), ...Object(patch.data) } };
    return { ...present, ...data, metadata: { ...present.metadata, annotations } };
  }
  const ours = conditionsIn(patch.status);
  // What its only owner applies no more is gone.
  const types = new Set(['Ready', 'HoldUsable', ...ours.map(({ type }) => type)]);
  const others = conditionsIn(present.status).filter(({ type }) => !types.has(type));
  return { ...present, status: { ...patch.status, conditions: [...others, ...ours] } };
}

function conditionsIn(status: unknown): readonly { readonly type: string }[] {
  const { conditions = [] } = (typeof status === 'object' ? status : {}) as {
    conditions?: { type: string }[];
  };
  return conditions;
}

function answer(response: http.ServerResponse, code: number, reason: string, retryAfter?: number): void {
  if (retryAfter !== undefined) response.setHeader('retry-after', retryAfter);
  send(response, code, { kind: 'Status', code, reason, message: reason });
}

function send(response: http.ServerResponse, code: number, body: unknown): void {
  response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
