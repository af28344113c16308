import { setTimeout as sleep } from 'node:timers/promises';
import type { Cluster, WatchEvent } from '../cluster.ts';

/** What happened to a pod and when, in milliseconds since the epoch. */
export interface PodLife {
  readonly pod: string;
  readonly uid: string;
  address: string | undefined;
  /** When we saw that its deletion had been asked for; some milliseconds late. */
  deletedAt: number | undefined;
  /** When the application logged SIGTERM. */
  sigtermAt: number | undefined;
  /** When we saw that the API server had forgotten it. */
  goneAt: number | undefined;
}

interface PodObject {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly deletionTimestamp?: string;
  };
  readonly status?: {
    readonly podIP?: string;
    readonly containerStatuses?: readonly {
      readonly name: string;
      readonly state?: { readonly running?: object };
    }[];
  };
}

export interface LivesOptions {
  readonly cluster: Cluster;
  readonly namespace: string;
  readonly podSelector: string;
  /** The application's container, whose log tells the time of SIGTERM. */
  readonly container: string;
}

/** Follows the lives of the pods behind a Service: the API for deletions, their logs for SIGTERM. */
export class PodLives {
  readonly #options: LivesOptions;
  readonly #lives = new Map<string, PodLife>();
  readonly #followed = new Set<string>();
  readonly #abort = new AbortController();
  #watching: Promise<void> = Promise.resolve();

  constructor(options: LivesOptions) {
    this.#options = options;
  }

  /** Resolves when the pods that exist now are known. */
  async start(): Promise<void> {
    const version = await this.#list();
    this.#watching = this.#watchOn(version);
  }

  async stop(): Promise<void> {
    this.#abort.abort();
    await this.#watching;
  }

  /** The pod that has or had an address: the last to get it, should it have been given again. */
  at(address: string): PodLife | undefined {
    return [...this.#lives.values()].findLast((life) => life.address === address);
  }

  get all(): readonly PodLife[] {
    return [...this.#lives.values()];
  }

  get #path(): string {
    const { namespace, podSelector } = this.#options;
    return `/api/v1/namespaces/${namespace}/pods?labelSelector=${encodeURIComponent(podSelector)}`;
  }

  async #list(): Promise<string> {
    const list = await this.#options.cluster.api.call<{
      items: PodObject[];
      metadata: { resourceVersion: string };
    }>('GET', this.#path);
    const present = new Set(list.items.map(({ metadata }) => metadata.uid));
    for (const life of this.#lives.values()) if (!present.has(life.uid)) life.goneAt ??= Date.now();
    for (const pod of list.items) this.#see(pod);
    return list.metadata.resourceVersion;
  }

  async #watchOn(from: string): Promise<void> {
    const { signal } = this.#abort;
    let version = from;
    while (!signal.aborted) {
      const path = `${this.#path}&watch=true&allowWatchBookmarks=true&resourceVersion=${version}`;
      try {
        await this.#options.cluster.api.watch<PodObject>(path, (event) => this.#event(event), signal);
        version = await this.#list();
      } catch {
        // The API server restarts, or the version is too old: start over, unless we were stopped.
        if (signal.aborted) return;
        await sleep(200);
        version = await this.#list().catch(() => version);
      }
    }
  }

  #event({ type, object }: WatchEvent<PodObject>): void {
    if (type === 'BOOKMARK' || type === 'ERROR') return;
    const life = this.#see(object);
    if (type !== 'DELETED') return;
    life.deletedAt ??= Date.now();
    life.goneAt ??= Date.now();
  }

  #see(pod: PodObject): PodLife {
    const { name, uid, deletionTimestamp } = pod.metadata;
    const life: PodLife = this.#lives.get(uid) ?? {
      pod: name,
      uid,
      address: undefined,
      deletedAt: undefined,
      sigtermAt: undefined,
      goneAt: undefined,
    };
    this.#lives.set(uid, life);
    life.address = pod.status?.podIP ?? life.address;
    if (deletionTimestamp !== undefined) life.deletedAt ??= Date.now();
    const status = pod.status?.containerStatuses?.find(
      (container) => container.name === this.#options.container,
    );
    if (status?.state?.running !== undefined) this.#follow(life);
    return life;
  }

  #follow(life: PodLife): void {
    if (this.#followed.has(life.uid)) return;
    this.#followed.add(life.uid);
    const { cluster, namespace, container } = this.#options;
    cluster
      .followLogs(namespace, life.pod, container, (line) => readSigterm(life, line), this.#abort.signal)
      // Cut off: followed again when the next event shows the container running.
      .catch(() => this.#followed.delete(life.uid));
  }
}

function readSigterm(life: PodLife, line: string): void {
  if (!line.includes('"sigterm"')) return;
  try {
    const { event, time } = JSON.parse(line) as { event: string; time: string };
    if (event === 'sigterm') life.sigtermAt = Date.parse(time);
  } catch {
    // Not one of the application's own lines.
  }
}
