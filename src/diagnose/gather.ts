import { setTimeout as sleep } from 'node:timers/promises';
import { isRecord, isString } from '../api/index.ts';
import { type KubeConnection, projectService, type RawObject } from '../cluster/index.ts';
import { count } from './amounts.ts';
import { type ControllerActivity, controllerFlags, DEFAULT_FLAGS } from './controller-metrics.ts';
import {
  ApiReader,
  type Clocks,
  type ControllerPod,
  controllerLeader,
  controllerPods,
  leaderFirst,
  listOf,
  type MetricsInput,
  messageOf,
  type Observation,
  observeController,
  observeSaved,
  readMetricsAddress,
  readMetricsFile,
  seekMetrics,
  unseen,
} from './controller-observation.ts';
import {
  type ClusterFacts,
  type Facts,
  type LagFacts,
  type Look,
  type PriorityFacts,
  priorityFacts,
} from './facts.ts';
import { observeLinger, observeRemovals } from './lag-observation.ts';

export interface GatherOptions extends Clocks {
  /** Or why no cluster is asked. */
  readonly connection: KubeConnection | { readonly none: string };
  /** The controller-manager's metrics: saved scrapes, the older first; an address; undefined: by the API server. */
  readonly metrics: { readonly files: readonly string[] } | MetricsInput | undefined;
  /** Words of its command line, where they are given; they win over those of its pod. */
  readonly flags: readonly string[] | undefined;
  /** The metrics of a running Linger: a URL, a file or `-`. */
  readonly linger: string | undefined;
  /** Whether to watch removals where no Linger is asked. */
  readonly watch: boolean;
  /** Between two looks; 0: look once. */
  readonly intervalSeconds: number;
  /** Called before that is waited for. */
  readonly onWait: (seconds: number) => void;
  readonly stdin: NodeJS.ReadableStream;
  readonly signal: AbortSignal;
  /** In [0, 1). */
  readonly random: () => number;
}

/**
 * Looks at everything that a diagnosis is made from, twice where that shows more.
 * @throws LingerError `metrics-unreadable`, `metrics-invalid`, `settings-invalid`, for what was named and cannot be
 *   used; what was not named and cannot be seen is a look that says so
 */
export async function gatherFacts(options: GatherOptions): Promise<Facts> {
  const stopping = new AbortController();
  const signal = AbortSignal.any([options.signal, stopping.signal]);
  const { connection } = options;
  const server = 'none' in connection ? undefined : { connection, api: new ApiReader(connection, signal) };
  try {
    return await new Gathering({ ...options, signal }, server).run();
  } finally {
    stopping.abort();
    server?.api.close();
  }
}

interface Server {
  readonly connection: KubeConnection;
  readonly api: ApiReader;
}

class Gathering {
  readonly #options: GatherOptions;
  readonly #server: Server | undefined;
  readonly #looks: Look[] = [];

  constructor(options: GatherOptions, server: Server | undefined) {
    this.#options = options;
    this.#server = server;
    const { connection } = options;
    if ('none' in connection) this.#looks.push({ what: 'cluster', seen: false, text: connection.none });
  }

  async run(): Promise<Facts> {
    const { intervalSeconds, onWait, signal, epochSeconds } = this.#options;
    const listed = await this.#attempt('pods of kube-system', controllerPods);
    const leader = await this.#attempt(LEASE, (api) => controllerLeader(api, epochSeconds()));
    if (leader !== undefined) this.#see(LEASE, `${leader.holder}, transition ${leader.transitions}`);
    const cluster = this.#server && (await this.#census());
    // The watch before metrics: it may take a minute to be current, and what is counted should be of the same time.
    const lag = await this.#lag();
    const pods = listed && leaderFirst(listed, leader);
    const controller = await this.#controller(pods);
    const priority = await this.#priority();
    const again = intervalSeconds > 0 && [lag, controller, priority].some(({ live }) => live);
    // Not one of the timers that let a process end: between two looks nothing else need be going on.
    if (again) {
      onWait(intervalSeconds);
      await sleep(intervalSeconds * 1000, undefined, { signal });
    }
    signal.throwIfAborted();
    const seen = await Promise.all([controller.end(again), lag.end(again), priority.end(again)]);
    this.#looks.push(...seen.flatMap(({ looks }) => looks));
    return {
      controller: seen[0].facts,
      flags: this.#flags(pods?.[0]),
      leader,
      priority: seen[2].facts,
      lag: seen[1].facts,
      cluster,
      looks: this.#looks,
    };
  }

  /** Counts what controllers have to do with. What may not be counted is left out, and said. */
  async #census(): Promise<ClusterFacts> {
    const listed = <T>(what: string, ask: (api: ApiReader) => Promise<T>) =>
      this.#attempt(what, ask, `It takes the right to list ${what}`);
    const services = await listed('services', serviceCounts);
    const facts = {
      services: services?.services,
      endpointSlices: await listed('endpointslices', countOf('/apis/discovery.k8s.io/v1/endpointslices')),
      pods: await listed('pods', countOf('/api/v1/pods')),
      nodes: await listed('nodes', countOf('/api/v1/nodes')),
      neverWithdrawn: services?.neverWithdrawn,
    };
    const counted = {
      Service: facts.services,
      EndpointSlice: facts.endpointSlices,
      Pod: facts.pods,
      Node: facts.nodes,
    };
    const words = Object.entries(counted).flatMap(([kind, number]) =>
      number === undefined ? [] : [count(number, kind)],
    );
    this.#see('cluster', words.join(', '));
    return facts;
  }

  async #controller(pods: readonly ControllerPod[] | undefined): Promise<Observation<ControllerActivity>> {
    const { metrics, intervalSeconds, stdin, signal } = this.#options;
    if (metrics !== undefined && 'files' in metrics) {
      const read = async (from: string) => ({ from, text: await readMetricsFile(from, stdin) });
      return observeSaved(await Promise.all(metrics.files.map(read)), intervalSeconds);
    }
    if (metrics !== undefined) {
      const again = () => readMetricsAddress(metrics, signal);
      const way = { from: metrics.from, first: await again(), again };
      return observeController(way, [], this.#options, signal);
    }
    if (this.#server === undefined) return unseen();
    const { way, looks } = await seekMetrics(this.#server.api, pods, signal);
    return way === undefined ? unseen(looks) : observeController(way, looks, this.#options, signal);
  }

  async #lag(): Promise<Observation<LagFacts>> {
    const { linger, watch, stdin, signal } = this.#options;
    if (linger !== undefined) return observeLinger(linger, stdin, signal);
    if (this.#server === undefined || !watch) return unseen();
    return observeRemovals(this.#server.connection, this.#options);
  }

  async #priority(): Promise<Observation<PriorityFacts>> {
    const what = 'priority and fairness of the API server';
    const read = () =>
      this.#attempt(what, (api) => api.text('/debug/api_priority_and_fairness/dump_priority_levels'));
    const before = await read();
    if (before === undefined) return unseen();
    const end = async (again: boolean) => {
      const after = again ? await read() : before;
      const facts = after === undefined ? undefined : priorityFacts(before, after);
      return {
        facts,
        looks: facts === undefined ? [] : [{ what, seen: true, text: `level ${facts.level}` }],
      };
    };
    return { live: true, end };
  }

  #flags(pod: ControllerPod | undefined): Facts['flags'] {
    const what = 'controller-manager flags';
    const { flags } = this.#options;
    if (flags !== undefined) {
      this.#see(what, 'as given by --controller-flags');
      return controllerFlags(flags);
    }
    if (pod !== undefined) {
      this.#see(what, `command line of pod kube-system/${pod.name}`);
      return pod.flags;
    }
    this.#looks.push({
      what,
      seen: false,
      text: 'not seen; Kubernetes’ defaults are assumed (kube-api-qps 20, burst 30, 5 workers each)',
      remedy: 'Say them: --controller-flags "--kube-api-qps=… --concurrent-endpoint-syncs=…"',
    });
    return DEFAULT_FLAGS;
  }

  /** @returns undefined where there is no cluster, or it does not say: then a look says why */
  async #attempt<T>(
    what: string,
    ask: (api: ApiReader) => Promise<T>,
    remedy?: string,
  ): Promise<T | undefined> {
    if (this.#server === undefined) return undefined;
    try {
      return await ask(this.#server.api);
    } catch (thrown) {
      const text = messageOf(thrown, this.#options.signal);
      this.#looks.push({ what, seen: false, text, ...(remedy === undefined ? {} : { remedy }) });
      return undefined;
    }
  }

  #see(what: string, text: string): void {
    this.#looks.push({ what, seen: true, text });
  }
}

const LEASE = 'Lease of the controller-manager';

/** One object and how many more there are: the API server counts for us (metav1.ListMeta.remainingItemCount). */
function countOf(path: string): (api: ApiReader) => Promise<number> {
  return async (api) => {
    const { metadata, items } = await api.json(`${path}?limit=1`);
    const remaining = isRecord(metadata) ? metadata.remainingItemCount : undefined;
    return listOf(items).length + (typeof remaining === 'number' ? remaining : 0);
  };
}

/** Pages of the Services; as many as client-go asks for. */
const PAGE = 500;

/** Service names that are worth showing. */
const EXAMPLES = 5;

async function serviceCounts(api: ApiReader) {
  let services = 0;
  const never: string[] = [];
  let from = '';
  do {
    const more = from === '' ? '' : `&continue=${encodeURIComponent(from)}`;
    const { metadata, items } = await api.json(`/api/v1/services?limit=${PAGE}${more}`);
    for (const item of listOf(items)) {
      const { namespace, name, publishNotReadyAddresses } = projectService(item as RawObject);
      services += 1;
      if (publishNotReadyAddresses) never.push(`${namespace}/${name}`);
    }
    from = isRecord(metadata) && isString(metadata.continue) ? metadata.continue : '';
  } while (from !== '');
  return { services, neverWithdrawn: { services: never.length, examples: never.slice(0, EXAMPLES) } };
}
