import { randomBytes } from 'node:crypto';
import { ApiClient, ApiError } from './api.ts';
import type { ApiServer } from './api-servers.ts';
import { untilCalm } from './calm.ts';
import { type CommandOptions, type CommandResult, must, run } from './command.ts';
import { type Addresses, accessCluster, type ClusterAccess } from './connection.ts';
import { type ObjectReference, ResourcePaths, unlessMissing } from './objects.ts';
import type { SecondNode } from './second-node.ts';
import type { ComponentName } from './settings.ts';
import { type WaitOptions, waitUntil } from './waiting.ts';

export { type ApiAnswer, ApiClient, ApiError, type WatchEvent } from './api.ts';
export type { ApiServer } from './api-servers.ts';
export { type AuditEvent, auditPosition, instantOf, readAudit } from './audit.ts';
export { Balancer } from './balancer.ts';
export { FakeNode, type FakePod } from './fake-node.ts';
export { images } from './images.ts';
export type { ObjectReference } from './objects.ts';
export { inParallel } from './parallel.ts';
export type { SecondNode } from './second-node.ts';
export { type WaitOptions, WaitTimeout, waitUntil } from './waiting.ts';

/** Any object as the API server answers it, with the parts that every object has. */
export interface KubernetesObject extends ObjectReference {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid: string;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly labels?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
    readonly deletionGracePeriodSeconds?: number;
  };
}

/** What a suite writes: an object without what the API server fills in. */
export interface NewObject extends Omit<ObjectReference, 'metadata'> {
  readonly metadata: { readonly name?: string; readonly generateName?: string; readonly namespace?: string };
}

export interface CreateOptions {
  /** `?dryRun=All`: admission and validation run, nothing is stored. */
  readonly dryRun?: boolean;
}

export interface DeleteOptions {
  /** Default: the pod's own. */
  readonly graceSeconds?: number;
  /** Whether to wait until the object is gone. Default false. */
  readonly wait?: boolean;
  /** Milliseconds, with `wait`. Default 120,000. */
  readonly timeoutMs?: number;
}

/** Opens the cluster that KUBECONFIG names, else our own. Throws when it cannot be reached. */
export async function openCluster(): Promise<Cluster> {
  const access = await accessCluster();
  const api = new ApiClient(access.connection);
  const { minor } = await api.call<{ readonly minor: string }>('GET', '/version');
  // Only who uses them needs the right to list nodes.
  const addresses = await access
    .addresses(() => firstNodeAddress(api))
    .catch((error: unknown) => error as Error);
  // Providers add a sign: 32+.
  return new Cluster(access, api, addresses, Number.parseInt(minor, 10));
}

async function firstNodeAddress(api: ApiClient): Promise<string> {
  const nodes = await api.call<{ items: { status: { addresses: { type: string; address: string }[] } }[] }>(
    'GET',
    '/api/v1/nodes',
  );
  const address = nodes.items[0]?.status.addresses.find(({ type }) => type === 'InternalIP')?.address;
  if (address === undefined)
    throw new Error('no node has an InternalIP; a cluster without one cannot be used');
  return address;
}

/** A running cluster, from inside its network. Close it: that deletes the namespaces it made. */
export class Cluster {
  readonly api: ApiClient;
  /** The API server's minor version: 37 of v1.37.2. */
  readonly minor: number;
  /** Or why they are not known. */
  readonly #addresses: Addresses | Error;
  readonly #access: ClusterAccess;
  readonly #paths: ResourcePaths;
  readonly #namespaces = new Set<string>();
  readonly #apiServers: ApiServer[] = [];
  #secondNode: SecondNode | undefined;
  /** The cluster's own is the first. */
  #lastApiServer = 1;

  constructor(access: ClusterAccess, api: ApiClient, addresses: Addresses | Error, minor: number) {
    this.#access = access;
    this.minor = minor;
    this.api = api;
    this.#addresses = addresses;
    this.#paths = new ResourcePaths(api);
  }

  /** Where the API server and pods reach a server that the suite starts on this machine. */
  get nodeAddress(): string {
    return this.#ours().nodeAddress;
  }

  /** Addresses of this machine from which load clients may connect. */
  get clientAddresses(): readonly string[] {
    return this.#ours().clientAddresses;
  }

  /** Resolves when the controllers have written everything that is to be written; see {@link untilCalm}. */
  calm(): Promise<void> {
    return untilCalm(this.api);
  }

  /** Whether it is the cluster that this project boots: only there components can be restarted. */
  get own(): boolean {
    return this.#access.own;
  }

  get kubeconfig(): string {
    return this.#access.kubeconfig;
  }

  /** kubelet's directory of static pods; undefined in a cluster that is not ours. */
  get staticPodDirectory(): string | undefined {
    return this.#access.staticPodDirectory;
  }

  /** JSON lines of audit.k8s.io/v1 about pods, slices and Endpoints; undefined in a cluster that is not ours. */
  get auditLog(): string | undefined {
    return this.#access.auditLog;
  }

  /** Makes the images of a docker-archive known to all nodes that there are. Only in our own cluster. */
  async importImages(archive: Buffer): Promise<void> {
    if (this.#access.importImages === undefined)
      throw new Error('images can be imported into our own cluster only');
    await Promise.all([this.#access.importImages(archive), this.#secondNode?.importImages(archive)]);
  }

  /** Runs kubectl. A non-zero exit is a result, not an exception. */
  kubectl(args: readonly string[], options: CommandOptions = {}): Promise<CommandResult> {
    return run([...this.#access.kubectl, ...args], options);
  }

  /** Runs kubectl, which must succeed. @returns what it says on standard output @throws CommandFailure */
  mustKubectl(args: readonly string[], options: CommandOptions = {}): Promise<string> {
    return must([...this.#access.kubectl, ...args], options);
  }

  /** The object, or undefined when there is none. */
  async get<T = KubernetesObject>(reference: ObjectReference): Promise<T | undefined> {
    return unlessMissing(this.api.call<T>('GET', await this.#paths.object(reference)));
  }

  /** The objects of a kind in a namespace (all that the kind has when it is not namespaced). */
  async list<T = KubernetesObject>(
    reference: Pick<ObjectReference, 'apiVersion' | 'kind'> & { namespace?: string },
    labelSelector = '',
  ): Promise<T[]> {
    const { apiVersion, kind, namespace } = reference;
    const path = await this.#paths.collection({
      apiVersion,
      kind,
      metadata: namespace === undefined ? {} : { namespace },
    });
    const query = `?labelSelector=${encodeURIComponent(labelSelector)}`;
    return (await this.api.call<{ items: T[] }>('GET', path + query)).items;
  }

  /** Creates an object and returns it as stored. Throws ApiError; `.reason` says why. */
  async create<T = KubernetesObject>(object: NewObject, options: CreateOptions = {}): Promise<T> {
    return this.api.call<T>('POST', await this.#createPath(object, options), { body: object });
  }

  /** Like {@link create}, with the status and the warnings that admission gave, and never throwing on a refusal. */
  async tryCreate<T = KubernetesObject>(object: NewObject, options: CreateOptions = {}) {
    return this.api.request<T>('POST', await this.#createPath(object, options), { body: object });
  }

  /** Applies a JSON merge patch. */
  async patch<T = KubernetesObject>(reference: ObjectReference, patch: unknown): Promise<T> {
    const contentType = 'application/merge-patch+json';
    return this.api.call<T>('PATCH', await this.#paths.object(reference), { body: patch, contentType });
  }

  /** Deletes an object; one that is not there counts as deleted. */
  async delete(reference: ObjectReference, options: DeleteOptions = {}): Promise<void> {
    const path = await this.#paths.object(reference);
    const grace = options.graceSeconds === undefined ? {} : { gracePeriodSeconds: options.graceSeconds };
    await unlessMissing(
      this.api.call('DELETE', path, { body: { propagationPolicy: 'Background', ...grace } }),
    );
    if (options.wait !== true) return;
    await waitUntil(`${path} to be gone`, async () => (await this.get(reference)) === undefined, {
      timeoutMs: options.timeoutMs ?? 120_000,
    });
  }

  /** Waits until an object exists and satisfies a condition; returns it as it was then. */
  async waitFor<T = KubernetesObject>(
    reference: ObjectReference,
    satisfied: (object: T) => boolean,
    options: WaitOptions = {},
  ): Promise<T> {
    const { kind, metadata } = reference;
    let seen: T | undefined;
    try {
      return await waitUntil(
        `${kind} ${metadata.namespace ?? ''}/${metadata.name}`,
        async () => {
          seen = await this.get<T>(reference);
          return seen !== undefined && satisfied(seen) ? seen : undefined;
        },
        options,
      );
    } catch (error) {
      const status = (seen as { status?: unknown } | undefined)?.status;
      throw new Error(`${(error as Error).message}; its status: ${JSON.stringify(status)?.slice(0, 2000)}`);
    }
  }

  /** A container's log so far. */
  async containerLogs(namespace: string, pod: string, container: string, previous = false): Promise<string> {
    const path = `/api/v1/namespaces/${namespace}/pods/${pod}/log`;
    return this.api.call<string>('GET', `${path}?container=${container}&previous=${previous}`);
  }

  /** Calls `line` with each line of a container's log until the container has ended. */
  async followLogs(
    namespace: string,
    pod: string,
    container: string,
    line: (text: string) => void,
    signal: AbortSignal = new AbortController().signal,
  ): Promise<void> {
    await this.api.lines(
      `/api/v1/namespaces/${namespace}/pods/${pod}/log?container=${container}&follow=true`,
      line,
      signal,
    );
  }

  /** Creates a namespace with a unique name, ready for pods; {@link close} deletes it. */
  async namespace(prefix: string, labels: Readonly<Record<string, string>> = {}): Promise<string> {
    const name = `${prefix}-${randomBytes(3).toString('hex')}`;
    // Before it is there: who is interrupted meanwhile deletes it, too.
    this.#namespaces.add(name);
    try {
      await this.api.call('POST', '/api/v1/namespaces', { body: { metadata: { name, labels } } });
    } catch (error) {
      if (error instanceof ApiError) this.#namespaces.delete(name);
      throw error;
    }
    // Without it pods are refused; a throttled controller-manager takes seconds to make it.
    await waitUntil(`the default ServiceAccount of ${name}`, () =>
      unlessMissing(this.api.call('GET', `/api/v1/namespaces/${name}/serviceaccounts/default`)),
    );
    return name;
  }

  /** Deletes one that {@link namespace} made, whose pods have a second to end; neither is waited for. */
  async removeNamespace(name: string): Promise<void> {
    const path = `/api/v1/namespaces/${name}`;
    await unlessMissing(this.api.call('DELETE', path));
    await unlessMissing(this.api.call('DELETE', `${path}/pods`, { body: { gracePeriodSeconds: 1 } }));
    this.#namespaces.delete(name);
  }

  /** Restarts a component with extra flags, none by default. Throws in a cluster that is not ours. */
  async restart(component: ComponentName, flags: readonly string[] = []): Promise<void> {
    if (this.#access.restart === undefined)
      throw new Error('components of a foreign cluster cannot be restarted');
    await this.#access.restart(component, flags);
  }

  /**
   * Starts one more API server on the same etcd, with a port and an audit log of its own; {@link close} stops it.
   * Throws in a cluster that is not ours.
   */
  async startApiServer(flags: readonly string[] = []): Promise<ApiServer> {
    if (this.#access.startApiServer === undefined)
      throw new Error('a foreign cluster cannot be given API servers');
    this.#lastApiServer += 1;
    const server = await this.#access.startApiServer(this.#lastApiServer, flags);
    this.#apiServers.push(server);
    return server;
  }

  /**
   * Starts a second node, which has the images of {@link images} and those that are imported later; {@link close} removes
   * it. Throws in a cluster that is not ours.
   */
  async startNode(): Promise<SecondNode> {
    if (this.#access.startNode === undefined) throw new Error('a foreign cluster cannot be given nodes');
    this.#secondNode = await this.#access.startNode();
    return this.#secondNode;
  }

  /**
   * Deletes the namespaces that this object made, and its connections. Their end is not waited for here, but when the
   * cluster is opened next, and so their pods have a second.
   */
  async close(): Promise<void> {
    await Promise.all(this.#apiServers.splice(0).map((server) => server.stop()));
    for (const name of [...this.#namespaces]) await this.removeNamespace(name);
    await this.#secondNode?.remove();
    this.#secondNode = undefined;
    this.api.close();
    this.#access.close();
  }

  #ours(): Addresses {
    if (this.#addresses instanceof Error) throw this.#addresses;
    return this.#addresses;
  }

  async #createPath(object: NewObject, { dryRun = false }: CreateOptions): Promise<string> {
    return `${await this.#paths.collection(object)}${dryRun ? '?dryRun=All' : ''}`;
  }
}
