import http from 'node:http';
import type { AddressInfo } from 'node:net';
import type { AtEnd } from '../webhook/connection.ts';
import { closed, listening } from '../webhook/listening.ts';

/** An object of the model, as the API server would send it. */
export interface ModelObject {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly [member: string]: unknown;
  };
  readonly [member: string]: unknown;
}

/** What a request for a path meets instead of an answer: a status, or nothing at all. */
export type Refusal = number | 'silence';

const PATHS = {
  namespaces: '/api/v1/namespaces',
  services: '/api/v1/services',
  nodes: '/api/v1/nodes',
  pods: '/api/v1/pods',
  endpointslices: '/apis/discovery.k8s.io/v1/endpointslices',
  endpoints: '/api/v1/endpoints',
  discoveryconsumers: '/apis/linger.dev/v1alpha1/discoveryconsumers',
  clusterterminationpolicies: '/apis/linger.dev/v1alpha1/clusterterminationpolicies',
  terminationpolicies: '/apis/linger.dev/v1alpha1/terminationpolicies',
} as const;
/** Those that have a CRD. */
const CUSTOM: readonly string[] = ['discoveryconsumers', 'clusterterminationpolicies', 'terminationpolicies'];
export type ModelResource = keyof typeof PATHS;

/** The part of an API server that Linger follows, over a real socket: some collections and a version. */
export class ModelCluster {
  /** Asked about each request, by resource or `version`. At first there are no CRDs. */
  refuse: (what: ModelResource | 'version') => Refusal | undefined = (what) =>
    CUSTOM.includes(what) ? 404 : undefined;
  version = 'v1.36.3';
  /** Single objects, or the status code of a refusal, by their path, such as `/api/v1/namespaces/linger/configmaps/linger-planned`. */
  readonly single = new Map<string, unknown>();
  readonly #server = http.createServer((request, response) => this.#answer(request, response));
  readonly #objects = new Map<string, ModelObject>();
  readonly #watches = new Map<http.ServerResponse, ModelResource>();
  #revision = 100;

  static async start(atEnd: AtEnd): Promise<ModelCluster> {
    const model = new ModelCluster();
    await listening(model.#server, atEnd);
    return model;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  /** A kubeconfig for it, as text. */
  get kubeconfig(): string {
    return JSON.stringify({
      'current-context': 'model',
      clusters: [{ name: 'model', cluster: { server: this.url.href } }],
      users: [],
      contexts: [{ name: 'model', context: { cluster: 'model' } }],
    });
  }

  /** Whether a watch would bring a change: the model does not repeat what came before one. */
  isWatched(resource: ModelResource): boolean {
    return [...this.#watches.values()].includes(resource);
  }

  put(resource: ModelResource, object: ModelObject): void {
    const key = keyOf(resource, object);
    const before = this.#objects.get(key);
    this.#revision += 1;
    const { name, uid = `uid-of-${name}` } = object.metadata;
    const metadata = { ...object.metadata, uid, resourceVersion: String(this.#revision) };
    const stored = { ...object, metadata };
    this.#objects.set(key, stored);
    this.#tell(resource, before === undefined ? 'ADDED' : 'MODIFIED', stored);
  }

  remove(resource: ModelResource, object: ModelObject): void {
    const key = keyOf(resource, object);
    const before = this.#objects.get(key);
    if (before === undefined) return;
    this.#objects.delete(key);
    this.#revision += 1;
    const metadata = { ...before.metadata, resourceVersion: String(this.#revision) };
    this.#tell(resource, 'DELETED', { ...before, metadata });
  }

  /** Ends every connection; requests to come are answered as ever. */
  cut(): void {
    this.#server.closeAllConnections();
  }

  /** Ends every watch in good order, as an API server does every few minutes. */
  rotate(): void {
    for (const watch of this.#watches.keys()) watch.end();
  }

  stop(): Promise<void> {
    return closed(this.#server);
  }

  #tell(resource: ModelResource, type: string, object: unknown): void {
    for (const [watch, followed] of this.#watches) {
      if (followed === resource) watch.write(`${JSON.stringify({ type, object })}\n`);
    }
  }

  #answer(request: http.IncomingMessage, response: http.ServerResponse): void {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://model');
    const single = this.single.get(pathname);
    if (single !== undefined) {
      response
        .writeHead(typeof single === 'number' ? single : 200, { 'content-type': 'application/json' })
        .end(JSON.stringify(single));
      return;
    }
    const what = pathname === '/version' ? 'version' : resourceAt(pathname);
    const refusal = what === undefined ? 404 : this.refuse(what);
    if (refusal === 'silence') return;
    response.writeHead(refusal ?? 200, { 'content-type': 'application/json' });
    if (refusal !== undefined || what === undefined)
      response.end(JSON.stringify({ kind: 'Status', message: 'refused' }));
    else if (what === 'version') response.end(JSON.stringify({ gitVersion: this.version }));
    else if (searchParams.get('watch') === 'true') this.#watch(what, response);
    else response.end(JSON.stringify(this.#list(what)));
  }

  #watch(resource: ModelResource, response: http.ServerResponse): void {
    response.flushHeaders();
    this.#watches.set(response, resource);
    response.on('close', () => this.#watches.delete(response));
  }

  #list(resource: ModelResource): unknown {
    const items = [...this.#objects]
      .filter(([key]) => key.startsWith(`${resource} `))
      .map(([, object]) => object);
    return { metadata: { resourceVersion: String(this.#revision) }, items };
  }
}

function keyOf(resource: ModelResource, { metadata }: ModelObject): string {
  return `${resource} ${metadata.namespace ?? ''}/${metadata.name}`;
}

function resourceAt(path: string): ModelResource | undefined {
  return (Object.keys(PATHS) as ModelResource[]).find((resource) => PATHS[resource] === path);
}

const meta = (namespace: string, name: string) => ({ namespace, name });

export const namespaceObject = (name: string, more: object = {}): ModelObject => ({
  metadata: { name, ...more },
});

export const serviceObject = (namespace: string, name: string, spec: object = {}): ModelObject => ({
  metadata: meta(namespace, name),
  spec: { selector: { app: name }, ...spec },
});

export const nodeObject = (name: string, kubeletVersion: string): ModelObject => ({
  metadata: { name },
  status: { nodeInfo: { kubeletVersion, architecture: 'amd64' } },
});

export const podObject = (namespace: string, name: string, terminating = false): ModelObject => ({
  metadata: {
    ...meta(namespace, name),
    ...(terminating ? { deletionTimestamp: '2026-01-01T00:00:30Z', deletionGracePeriodSeconds: 30 } : {}),
  },
});

/** The slice of a Service, which lists these pods as ready. */
export const sliceObject = (namespace: string, service: string, ...pods: string[]): ModelObject => ({
  metadata: {
    ...meta(namespace, `${service}-1`),
    labels: { 'kubernetes.io/service-name': service },
  },
  addressType: 'IPv4',
  endpoints: pods.map((name) => ({
    addresses: ['10.0.0.1'],
    conditions: { ready: true },
    targetRef: { kind: 'Pod', namespace, name, uid: `uid-of-${name}` },
  })),
});
