import { type ApiClient, ApiError } from './api.ts';

/** As much of an object as names it. Every object is also a reference to itself. */
export interface ObjectReference {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name?: string; readonly namespace?: string };
}

interface ResourceList {
  readonly resources: readonly { name: string; kind: string; namespaced: boolean }[];
}

/** Knows where the API server serves each kind, by asking it. */
export class ResourcePaths {
  readonly #api: ApiClient;
  readonly #lists = new Map<string, Promise<ResourceList>>();

  constructor(api: ApiClient) {
    this.#api = api;
  }

  /** The path of an object's collection, for example `/apis/apps/v1/namespaces/a/deployments`. */
  async collection(reference: ObjectReference): Promise<string> {
    const { apiVersion, kind } = reference;
    const root = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
    const resource = await this.#resource(root, kind);
    if (!resource.namespaced) return `${root}/${resource.name}`;
    return `${root}/namespaces/${reference.metadata.namespace ?? 'default'}/${resource.name}`;
  }

  /** The path of one object. Throws when the reference has no name. */
  async object(reference: ObjectReference): Promise<string> {
    const { name } = reference.metadata;
    if (name === undefined) throw new Error(`a ${reference.kind} without metadata.name cannot be addressed`);
    return `${await this.collection(reference)}/${name}`;
  }

  async #resource(root: string, kind: string): Promise<{ name: string; namespaced: boolean }> {
    // Asked once more when a kind is missing: its CRD may have come since.
    for (const fresh of [false, true]) {
      const list = await this.#list(root, fresh);
      const found = list.resources.find((resource) => resource.kind === kind && !resource.name.includes('/'));
      if (found !== undefined) return found;
    }
    throw new Error(`the API server knows no ${kind} at ${root}`);
  }

  #list(root: string, fresh: boolean): Promise<ResourceList> {
    const known = fresh ? undefined : this.#lists.get(root);
    if (known !== undefined) return known;
    const asked = this.#api.call<ResourceList>('GET', root);
    this.#lists.set(root, asked);
    // A failure must not be remembered.
    asked.catch(() => this.#lists.delete(root));
    return asked;
  }
}

/** Turns a NotFound into undefined; everything else stays an error. */
export async function unlessMissing<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return undefined;
    throw error;
  }
}
