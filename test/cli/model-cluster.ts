import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { AtEnd } from '../webhook/connection.ts';
import { listening } from '../webhook/listening.ts';

type Json = Readonly<Record<string, unknown>>;

export interface ModelObject extends Json {
  readonly metadata: Json & {
    readonly name: string;
    readonly namespace: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
}

interface Change {
  readonly collection: string;
  readonly type: string;
  readonly object: ModelObject;
  readonly revision: number;
}

/** Collections that `linger watch` reads, by the last part of their path. */
type Collection = 'pods' | 'services' | 'endpointslices' | 'endpoints';

/** An API server with the collections that endpoints are made of, over a real socket. Every caller is its user. */
export class ModelCluster {
  readonly #server = http.createServer((request, response) => this.#answer(request, response));
  readonly #objects = new Map<string, ModelObject>();
  readonly #watches = new Set<(change: Change) => void>();
  readonly #history: Change[] = [];
  #revision = 100;
  /** Paths asked for. */
  readonly asked: string[] = [];
  /** What everything is answered with, if not with objects. */
  refusal: { readonly code: number; readonly message: string; readonly lists?: boolean } | undefined;

  static async start(atEnd: AtEnd): Promise<ModelCluster> {
    const cluster = new ModelCluster();
    await listening(cluster.#server, atEnd);
    return cluster;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  put(collection: Collection, object: ModelObject): void {
    const key = keyOf(collection, object);
    const type = this.#objects.has(key) ? 'MODIFIED' : 'ADDED';
    this.#change(collection, type, object);
    this.#objects.set(key, this.#stamped(object, key));
  }

  remove(collection: Collection, object: ModelObject): void {
    this.#objects.delete(keyOf(collection, object));
    this.#change(collection, 'DELETED', object);
  }

  #change(collection: string, type: string, object: ModelObject): void {
    this.#revision += 1;
    const stamped = this.#stamped(object, keyOf(collection, object));
    const change = { collection, type, object: stamped, revision: this.#revision };
    this.#history.push(change);
    for (const tell of this.#watches) tell(change);
  }

  #stamped(object: ModelObject, uid: string): ModelObject {
    const metadata = { uid, ...object.metadata, resourceVersion: String(this.#revision) };
    return { ...object, metadata };
  }

  #answer(request: http.IncomingMessage, response: http.ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://model');
    this.asked.push(pathname);
    const collection = pathname.split('/').at(-1) ?? '';
    const isWatch = searchParams.get('watch') === 'true';
    const isRefused = isWatch || this.refusal?.lists !== false;
    if (this.refusal !== undefined && isRefused) status(response, this.refusal.code, this.refusal.message);
    else if (/\/namespaces\/[^/]+$/.test(pathname)) this.#namespace(collection, response);
    else if (isWatch) this.#watch(collection, searchParams, response);
    else this.#list(collection, searchParams, response);
  }

  #namespace(name: string, response: http.ServerResponse): void {
    if (name === 'nowhere') status(response, 404, `namespaces "${name}" not found`);
    else send(response, 200, { kind: 'Namespace', metadata: { name } });
  }

  #list(collection: string, parameters: URLSearchParams, response: http.ServerResponse): void {
    const items = [...this.#objects]
      .filter(([key, object]) => key.startsWith(`${collection}/`) && isSelected(object, parameters))
      .map(([, object]) => object);
    const metadata = { resourceVersion: String(this.#revision) };
    send(response, 200, { kind: 'List', metadata, items });
  }

  #watch(collection: string, parameters: URLSearchParams, response: http.ServerResponse): void {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    const from = Number(parameters.get('resourceVersion'));
    const tell = (change: Change) => {
      const { type, object } = change;
      if (change.collection !== collection || !isSelected(object, parameters)) return;
      response.write(`${JSON.stringify({ type, object })}\n`);
    };
    for (const change of this.#history) if (change.revision > from) tell(change);
    this.#watches.add(tell);
    response.on('close', () => this.#watches.delete(tell));
  }
}

/** By `metadata.name=NAME` and `LABEL in (VALUES)`: what is asked for here. */
function isSelected({ metadata }: ModelObject, parameters: URLSearchParams): boolean {
  const field = parameters.get('fieldSelector');
  const label = /^(\S+) in \((.*)\)$/.exec(parameters.get('labelSelector') ?? '');
  if (field !== null && field !== `metadata.name=${metadata.name}`) return false;
  return label === null || label[2]?.split(',').includes(metadata.labels?.[label[1] ?? ''] ?? '') === true;
}

function keyOf(collection: string, { metadata }: ModelObject): string {
  return `${collection}/${metadata.namespace}/${metadata.name}`;
}

function status(response: http.ServerResponse, code: number, message: string): void {
  send(response, code, { kind: 'Status', apiVersion: 'v1', status: 'Failure', code, message });
}

function send(response: http.ServerResponse, code: number, body: unknown): void {
  response.writeHead(code, { 'content-type': 'application/json' }).end(JSON.stringify(body));
}

export const service = (name: string, namespace = 'shop'): ModelObject => ({
  metadata: { namespace, name },
  spec: { selector: { app: name }, clusterIP: '10.96.0.7' },
});

/** A pod of that name; its uid is `uid-NAME`. */
export const pod = (name: string, more: Json = {}, namespace = 'shop'): ModelObject => ({
  metadata: { namespace, name, uid: `uid-${name}`, labels: { app: 'web' }, ...more },
});

export const terminating = (name: string): ModelObject =>
  pod(name, { deletionTimestamp: '2026-01-01T00:00:30Z', deletionGracePeriodSeconds: 30 });

const targetOf = (name: string) => ({ kind: 'Pod', name, uid: `uid-${name}` });

/** The address of pod a is 10.244.1.97. */
export const ipOf = (name: string) => `10.244.1.${name.charCodeAt(0)}`;

/** The slice of the Service: pods by name, and how each is listed. */
export function slice(
  service: string,
  pods: Readonly<Record<string, 'ready' | 'notReady' | 'terminating'>>,
  namespace = 'shop',
): ModelObject {
  const endpoints = Object.entries(pods).map(([name, state]) => ({
    addresses: [ipOf(name)],
    conditions: { ready: state === 'ready', terminating: state === 'terminating' },
    targetRef: targetOf(name),
  }));
  const labels = { 'kubernetes.io/service-name': service };
  return { metadata: { namespace, name: `${service}-1`, labels }, addressType: 'IPv4', endpoints };
}

export function endpoints(service: string, ready: readonly string[], namespace = 'shop'): ModelObject {
  const addresses = ready.map((name) => ({ ip: ipOf(name), targetRef: targetOf(name) }));
  return { metadata: { namespace, name: service }, subsets: ready.length === 0 ? [] : [{ addresses }] };
}
