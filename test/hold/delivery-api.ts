import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';

interface StoredObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  readonly [member: string]: unknown;
}

const ONE = /^\/api\/v1\/namespaces\/([^/]+)\/(configmaps|pods)\/([^/?]+)/;

/** The part of an API server that delivering the helper needs: watches of ConfigMaps, and server-side apply. */
export class DeliveryApi {
  /** By kind, namespace and name. */
  readonly objects = new Map<string, StoredObject>();
  readonly applied: { readonly path: string; readonly body: Record<string, unknown> }[] = [];
  /** The status code with which a request is refused. */
  refuse: (method: string, path: string) => number | undefined = () => undefined;
  /** The status of a pod as the kubelet would report it. */
  run: (pod: Record<string, unknown>) => object = () => ({ phase: 'Succeeded' });
  readonly #watches = new Set<http.ServerResponse>();
  readonly #history: { readonly revision: number; readonly line: string }[] = [];
  #revision = 1;
  readonly #server = http.createServer((request, response) => void this.#serve(request, response));

  static async start(): Promise<DeliveryApi> {
    const api = new DeliveryApi();
    api.#server.listen(0, '127.0.0.1');
    await once(api.#server, 'listening');
    return api;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  put(kind: string, namespace: string, name: string, body: Record<string, unknown> = {}): StoredObject {
    this.#revision += 1;
    const key = `${kind}/${namespace}/${name}`;
    const given = (body.metadata ?? {}) as object;
    const uid = this.objects.get(key)?.metadata.uid ?? `uid-${this.#revision}`;
    const metadata = { ...given, name, namespace, uid, resourceVersion: String(this.#revision) };
    const object = { ...body, metadata };
    const type = this.objects.has(key) ? 'MODIFIED' : 'ADDED';
    this.objects.set(key, object);
    if (kind === 'configmaps') this.#tell(type, object);
    return object;
  }

  remove(kind: string, namespace: string, name: string): StoredObject | undefined {
    const key = `${kind}/${namespace}/${name}`;
    const object = this.objects.get(key);
    this.objects.delete(key);
    this.#revision += 1;
    if (kind === 'configmaps' && object !== undefined) this.#tell('DELETED', object);
    return object;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  #tell(type: string, object: StoredObject): void {
    const line = `${JSON.stringify({ type, object })}\n`;
    this.#history.push({ revision: this.#revision, line });
    for (const watch of this.#watches) watch.write(line);
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = '', url = '' } = request;
    const { pathname, searchParams } = new URL(url, 'http://model');
    const code = this.refuse(method, pathname);
    if (code !== undefined) return send(response, code, { kind: 'Status', code, message: 'refused' });
    const [, namespace = '', kind = '', name = ''] = ONE.exec(pathname) ?? [];
    if (method === 'PATCH') {
      const body = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>;
      this.applied.push({ path: pathname, body });
      return send(
        response,
        200,
        this.put(kind, namespace, name, kind === 'pods' ? { ...body, status: this.run(body) } : body),
      );
    }
    if (method === 'DELETE') {
      const object = this.remove(kind, namespace, name);
      return object === undefined
        ? send(response, 404, { kind: 'Status', code: 404, reason: 'NotFound' })
        : send(response, 200, object);
    }
    const wanted = searchParams.get('fieldSelector')?.replace('metadata.name=', '');
    const of = pathname.endsWith('/pods') ? 'pods/' : 'configmaps/';
    const items = [...this.objects].filter(
      ([key, { metadata }]) => key.startsWith(of) && metadata.name === wanted,
    );
    if (searchParams.get('watch') === null)
      return send(response, 200, {
        kind: 'List',
        metadata: { resourceVersion: String(this.#revision) },
        items: items.map(([, object]) => object),
      });
    response.writeHead(200, { 'content-type': 'application/json' });
    const since = Number(searchParams.get('resourceVersion'));
    for (const { revision, line } of this.#history) if (revision > since) response.write(line);
    const metadata = { resourceVersion: String(this.#revision) };
    response.write(`${JSON.stringify({ type: 'BOOKMARK', object: { metadata } })}\n`);
    this.#watches.add(response);
    response.on('close', () => this.#watches.delete(response));
  }
}

function send(response: http.ServerResponse, code: number, body: unknown): void {
  response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}
