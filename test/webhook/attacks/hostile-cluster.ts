import { once } from 'node:events';
import http from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { Readable } from 'node:stream';
import type { AtEnd } from '../connection.ts';
import { closed, listening } from '../listening.ts';

/** A kind of objects, by its path. */
const PATHS = {
  pods: '/api/v1/pods',
  services: '/api/v1/services',
  namespaces: '/api/v1/namespaces',
  nodes: '/api/v1/nodes',
  endpoints: '/api/v1/endpoints',
  endpointslices: '/apis/discovery.k8s.io/v1/endpointslices',
  discoveryconsumers: '/apis/linger.dev/v1alpha1/discoveryconsumers',
  clusterterminationpolicies: '/apis/linger.dev/v1alpha1/clusterterminationpolicies',
  terminationpolicies: '/apis/linger.dev/v1alpha1/terminationpolicies',
  deployments: '/apis/apps/v1/deployments',
  ingresses: '/apis/networking.k8s.io/v1/ingresses',
  ingressclasses: '/apis/networking.k8s.io/v1/ingressclasses',
  poddisruptionbudgets: '/apis/policy/v1/poddisruptionbudgets',
} as const;
export type Kind = keyof typeof PATHS;
const KINDS = Object.keys(PATHS) as Kind[];

/** JSON of an object, made when it is sent: all of them together would not fit into memory. */
export type Made = () => string;

interface Stored {
  readonly metadata: { readonly resourceVersion?: string; readonly name?: string };
  readonly data?: Readonly<Record<string, unknown>>;
  readonly status?: { readonly podIP?: string };
}

/**
 * An API server whose objects are made as they are sent, in pages as they are asked for; and single objects, such as the Lease
 * by which a replica leads, which are stored as they are written.
 */
export class HostileCluster {
  readonly #server = http.createServer((request, response) => void this.#serve(request, response));
  readonly #objects = new Map<Kind, readonly Made[]>();
  readonly #watches = new Map<http.ServerResponse, Kind>();
  readonly #single = new Map<string, Stored>();
  /** Watches of single objects, with the paths of these. */
  readonly #followers = new Map<http.ServerResponse, string>();
  #revision = 100;
  /** The Authorization headers of all requests. */
  readonly credentials = new Set<string>();

  static async start(atEnd: AtEnd): Promise<HostileCluster> {
    const cluster = new HostileCluster();
    await listening(cluster.#server, atEnd);
    return cluster;
  }

  get kubeconfig(): string {
    const server = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return JSON.stringify({
      'current-context': 'model',
      clusters: [{ name: 'model', cluster: { server } }],
      users: [],
      contexts: [{ name: 'model', context: { cluster: 'model' } }],
    });
  }

  stop(): Promise<void> {
    return closed(this.#server);
  }

  /** A single object, by its path. */
  stored(path: string): unknown {
    return this.#single.get(path);
  }

  store(path: string, object: object): void {
    this.#revision += 1;
    const { metadata } = object as Stored;
    this.#single.set(path, {
      ...object,
      metadata: { uid: 'single', ...metadata, resourceVersion: String(this.#revision) },
    } as Stored);
    for (const [watch, followed] of this.#followers)
      if (followed === path)
        watch.write(`${JSON.stringify({ type: 'MODIFIED', object: this.#single.get(path) })}\n`);
  }

  forget(path: string): void {
    this.#single.delete(path);
  }

  /** The objects of a kind, for lists to come. */
  list(kind: Kind, objects: readonly Made[]): void {
    this.#objects.set(kind, objects);
  }

  /** Resolves once the watches have taken these events. */
  async send(kind: Kind, type: 'ADDED' | 'MODIFIED' | 'DELETED', objects: readonly Made[]): Promise<void> {
    const watches = [...this.#watches].filter(([, followed]) => followed === kind);
    if (watches.length === 0) throw new Error(`no watch of ${kind}`);
    for (const object of objects) {
      this.#revision += 1;
      const line = `{"type":"${type}","object":${object().replace('"VERSION"', `"${this.#revision}"`)}}\n`;
      for (const [watch] of watches)
        if (!watch.write(line)) await new Promise((drained) => watch.once('drain', drained));
    }
  }

  async #serve(request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    this.credentials.add(request.headers.authorization ?? '');
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://model');
    const kind = KINDS.find((each) => PATHS[each] === pathname);
    const [, address] = /^status\.podIP=(.+)$/.exec(searchParams.get('fieldSelector') ?? '') ?? [];
    if (pathname === '/version') send(response, 200, { gitVersion: 'v1.36.3' });
    else if (address !== undefined) {
      const items = [...this.#single.values()].filter(({ status }) => status?.podIP === address);
      send(response, 200, { kind: 'PodList', metadata: {}, items });
    } else if (kind === undefined && searchParams.has('fieldSelector'))
      this.#follow(pathname, searchParams, response);
    else if (kind === undefined) await this.#carryOut(pathname, request, response);
    else if (searchParams.get('watch') === 'true') {
      response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
      this.#watches.set(response, kind);
      response.on('close', () => this.#watches.delete(response));
    } else {
      const all = this.#objects.get(kind) ?? [];
      const from = Number(searchParams.get('continue') ?? '0');
      const next = from + Number(searchParams.get('limit') ?? all.length);
      const more = next < all.length ? String(next) : '';
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write(`{"metadata":{"resourceVersion":"${this.#revision}","continue":"${more}"},"items":[`);
      Readable.from(itemsOf(all.slice(from, next))).pipe(response);
    }
  }

  /** A list or a watch of one object by its name. */
  #follow(path: string, searchParams: URLSearchParams, response: http.ServerResponse): void {
    const [, name = ''] = searchParams.get('fieldSelector')?.split('=') ?? [];
    const object = `${path}/${name}`;
    if (searchParams.get('watch') === 'true') {
      response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
      this.#followers.set(response, object);
      response.on('close', () => this.#followers.delete(response));
      return;
    }
    const items = [this.#single.get(object) ?? []].flat();
    send(response, 200, { kind: 'List', metadata: { resourceVersion: String(this.#revision) }, items });
  }

  async #carryOut(path: string, request: http.IncomingMessage, response: http.ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const object = text === '' ? undefined : (JSON.parse(text) as Stored);
    const itsPath = request.method === 'POST' ? `${path}/${object?.metadata?.name}` : path;
    const isWrite = request.method === 'POST' || request.method === 'PUT';
    const before = this.#single.get(itsPath);
    if (isWrite && object !== undefined) this.store(itsPath, object);
    // A Secret is applied, or merged.
    if (request.method === 'PATCH' && object !== undefined) {
      const [, namespace, name] = /\/namespaces\/([^/]+)\/[^/]+\/([^/]+)$/.exec(itsPath) ?? [];
      const metadata = { ...before?.metadata, ...object.metadata, namespace, name };
      this.store(itsPath, { ...before, ...object, metadata, data: { ...before?.data, ...object.data } });
    }
    const stored = this.#single.get(itsPath);
    // A watch shows what is written, such as heartbeats.
    const kind = KINDS.find((each) => each === itsPath.split('/').at(-2));
    if (request.method !== 'GET' && stored !== undefined && kind !== undefined)
      for (const [watch, followed] of this.#watches)
        if (followed === kind) watch.write(`${JSON.stringify({ type: 'MODIFIED', object: stored })}\n`);
    if (stored === undefined) send(response, 404, { kind: 'Status', code: 404, reason: 'NotFound' });
    else send(response, request.method === 'POST' ? 201 : 200, stored);
  }
}

function* itemsOf(page: readonly Made[]): Generator<string> {
  for (const [index, each] of page.entries()) yield `${index === 0 ? '' : ','}${each()}`;
  yield ']}';
}

function send(response: http.ServerResponse, code: number, body: unknown): void {
  response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

/** @param metadata further members, as JSON @param members of the object besides, as JSON */
export function made(namespace: string, name: string, metadata = '', members = ''): string {
  const identity = `"name":"${name}","namespace":"${namespace}","uid":"uid-${name}","resourceVersion":"VERSION"`;
  return `{"metadata":{${identity}${metadata && `,${metadata}`}}${members && `,${members}`}}`;
}

export const TERMINATING = '"deletionTimestamp":"2026-01-01T00:00:30Z","deletionGracePeriodSeconds":30';

/** A slice that lists these pods. @param uids JSON texts of their uids */
export function slice(
  namespace: string,
  name: string,
  service: string,
  pods: readonly string[],
  ready = true,
) {
  const endpoints = pods.map(
    (pod, index) =>
      `{"addresses":["10.${(index >> 16) & 255}.${(index >> 8) & 255}.${index & 255}"],"conditions":{"ready":${ready}},` +
      `"targetRef":{"kind":"Pod","namespace":"${namespace}","name":"${pod.slice(0, 60)}","uid":"uid-${pod}"}}`,
  );
  const labels = `"labels":{"kubernetes.io/service-name":"${service}"}`;
  const members = `"addressType":"IPv4","ports":[{"port":8080}],"endpoints":[${endpoints.join()}]`;
  return made(namespace, name, labels, members);
}

export function service(namespace: string, name: string, app = name): string {
  return made(namespace, name, '', `"spec":{"clusterIP":"10.96.0.7","selector":{"app":"${app}"}}`);
}

export async function freePort(): Promise<number> {
  const free = createServer().listen(0, '127.0.0.1');
  await once(free, 'listening');
  const { port } = free.address() as AddressInfo;
  await new Promise((done) => free.close(done));
  return port;
}

export const range = (count: number): readonly number[] => Array.from({ length: count }, (_, index) => index);

/** The Service of another namespace, whose pods are listed by fifty slices, a hundred each. */
export const WEB = range(5_000).map((index) => `web-${index}`);
export const webSlices = (ready: boolean): readonly Made[] =>
  range(50).map((i) => () => slice('shop', `web-${i}`, 'web', WEB.slice(i * 100, i * 100 + 100), ready));

/** The tenant's pods: each of its Services lists all of them. */
export const EVIL_PODS = range(100).map((index) => `evil-${index}`);
export const EVIL_SERVICES = range(600).map((index) => `evil-${index}`);
export const evilSlices: readonly Made[] = EVIL_SERVICES.map(
  (name) => () => slice('evil', name, name, EVIL_PODS),
);

/** The same pods, as they terminate. */
export const ending = (namespace: string, names: readonly string[], app: string): readonly Made[] =>
  names.map((name) => () => made(namespace, name, `"labels":{"app":"${app}"},${TERMINATING}`));
