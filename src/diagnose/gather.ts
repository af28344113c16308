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
  type MetricsInput,
  messageOf,
  type Observation,
  type Observed,
  observeAddress,
  observeSaved,
  observeSought,
  readMetricsFile,
  seekMetrics,
  unseen,
} from './controller-observation.ts';
import {
  type ClusterFacts,
  type Facts,
  type LagFacts,
  type LeaderFacts,
  type Look,
  type PriorityFacts,
  priorityFacts,
} from './facts.ts';
import { observeLinger, observeRemovals } from './lag-observation.ts';

const SERVICES = '/api/v1/services';
const COUNTED = {
  endpointSlices: '/apis/discovery.k8s.io/v1/endpointslices',
  pods: '/api/v1/pods',
  nodes: '/api/v1/nodes',
} as const;

/** Service names that are worth showing. */
const EXAMPLES = 5;

/** Pages of the Services; as many as client-go asks for. */
const PAGE = 500;

interface Census {
  readonly facts: ClusterFacts;
  readonly looks: readonly Look[];
}

/** Counts what controllers have to do with. What may not be counted is left out, and said. */
async function takeCensus(api: ApiReader, signal: AbortSignal): Promise<Census> {
  const looks: Look[] = [];
  const attempt = async <T>(what: string, ask: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await ask();
    } catch (thrown) {
      const remedy = `It takes the right to list ${what}`;
      looks.push({ what, seen: false, text: messageOf(thrown, signal), remedy });
      return undefined;
    }
  };
  const services = await attempt('services', () => serviceCounts(api));
  const facts: ClusterFacts = {
    services: services?.services,
    endpointSlices: await attempt('endpointslices', () => countOf(api, COUNTED.endpointSlices)),
    pods: await attempt('pods', () => countOf(api, COUNTED.pods)),
    nodes: await attempt('nodes', () => countOf(api, COUNTED.nodes)),
    neverWithdrawn: services?.neverWithdrawn,
  };
  return { facts, looks };
}

/** One object and how many more there are: the API server counts for us (metav1.ListMeta.remainingItemCount). */
async function countOf(api: ApiReader, path: string): Promise<number> {
  const { metadata, items } = await api.json(`${path}?limit=1`);
  const remaining = isRecord(metadata) ? metadata.remainingItemCount : undefined;
  return (Array.isArray(items) ? items.length : 0) + (typeof remaining === 'number' ? remaining : 0);
}

async function serviceCounts(api: ApiReader) {
  let services = 0;
  let never = 0;
  const examples: string[] = [];
  let from = '';
  do {
    const more = from === '' ? '' : `&continue=${encodeURIComponent(from)}`;
    const { metadata, items } = await api.json(`${SERVICES}?limit=${PAGE}${more}`);
    for (const item of Array.isArray(items) ? (items as RawObject[]) : []) {
      const { namespace, name, publishNotReadyAddresses } = projectService(item);
      services += 1;
      if (!publishNotReadyAddresses) continue;
      never += 1;
      if (examples.length < EXAMPLES) examples.push(`${namespace}/${name}`);
    }
    from = isRecord(metadata) && isString(metadata.continue) ? metadata.continue : '';
  } while (from !== '');
  return { services, neverWithdrawn: { services: never, examples } };
}

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

const PRIORITY_LEVELS = '/debug/api_priority_and_fairness/dump_priority_levels';

/** Undefined: they could not be listed. */
type ControllerPods = readonly ControllerPod[] | undefined;

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
    const { intervalSeconds, onWait, signal } = this.#options;
    const [pods, leader, cluster] = await this.#still();
    // The watch first: it may take a minute to be current, and what is counted should be of the same time.
    const lag = await this.#lag();
    const candidates = pods && leaderFirst(pods, leader);
    const controller = await this.#controller(candidates);
    const priority = await this.#priority();
    const again = intervalSeconds > 0 && [lag, controller, priority].some(({ live }) => live);
    // Not one of the timers that let a process end: between two looks nothing else need be going on.
    if (again) {
      onWait(intervalSeconds);
      await sleep(intervalSeconds * 1000, undefined, { signal });
    }
    signal.throwIfAborted();
    const seen = await Promise.all([controller.end(again), lag.end(again), priority.end(again)]);
    for (const { looks } of seen) this.#looks.push(...looks);
    const [{ facts: activity }, { facts: measured }, { facts: fairness }] = seen;
    const flags = this.#flags(candidates?.[0]);
    return {
      controller: activity,
      flags,
      leader,
      priority: fairness,
      lag: measured,
      cluster,
      looks: this.#looks,
    };
  }

  /** What does not change while one looks. */
  async #still(): Promise<[ControllerPods, LeaderFacts | undefined, ClusterFacts | undefined]> {
    const { signal, epochSeconds } = this.#options;
    if (this.#server === undefined) return [undefined, undefined, undefined];
    const { api } = this.#server;
    const [pods, leader, census] = await Promise.all([
      this.#attempt('pods of kube-system', () => controllerPods(api)),
      this.#attempt('Lease of the controller-manager', () => controllerLeader(api, epochSeconds())),
      takeCensus(api, signal),
    ]);
    this.#looks.push(...census.looks);
    if (leader !== undefined) {
      this.#see('Lease of the controller-manager', `${leader.holder}, transition ${leader.transitions}`);
    }
    this.#see('cluster', censusInWords(census.facts));
    return [pods, leader, census.facts];
  }

  async #controller(pods: ControllerPods): Promise<Observation<ControllerActivity>> {
    const { metrics, intervalSeconds, stdin, signal } = this.#options;
    if (metrics !== undefined && 'files' in metrics) {
      const read = async (from: string) => ({ from, text: await readMetricsFile(from, stdin) });
      return observeSaved(await Promise.all(metrics.files.map(read)), intervalSeconds);
    }
    if (metrics !== undefined) return observeAddress(metrics, this.#options, signal);
    if (this.#server === undefined) return unseen();
    return observeSought(await seekMetrics(this.#server.api, pods, signal), this.#options, signal);
  }

  #lag(): Promise<Observation<LagFacts>> {
    const { linger, watch, stdin, signal } = this.#options;
    if (linger !== undefined) return observeLinger(linger, stdin, signal);
    if (this.#server !== undefined && watch) return observeRemovals(this.#server.connection, this.#options);
    return Promise.resolve(unseen());
  }

  async #priority(): Promise<Observation<PriorityFacts>> {
    if (this.#server === undefined) return unseen();
    const { api } = this.#server;
    const what = 'priority and fairness of the API server';
    const before = await this.#attempt(what, () => api.text(PRIORITY_LEVELS));
    if (before === undefined) return unseen();
    const end = async (again: boolean): Promise<Observed<PriorityFacts>> => {
      const after = again ? await this.#attempt(what, () => api.text(PRIORITY_LEVELS)) : before;
      const facts = after === undefined ? undefined : priorityFacts(before, after);
      const looks = facts === undefined ? [] : [{ what, seen: true, text: `level ${facts.level}` }];
      return { facts, looks };
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

  async #attempt<T>(what: string, ask: () => Promise<T>): Promise<T | undefined> {
    try {
      return await ask();
    } catch (thrown) {
      this.#looks.push({ what, seen: false, text: messageOf(thrown, this.#options.signal) });
      return undefined;
    }
  }

  #see(what: string, text: string): void {
    this.#looks.push({ what, seen: true, text });
  }
}

function censusInWords({ services, endpointSlices, pods, nodes }: ClusterFacts): string {
  const counted = [
    [services, 'Service'],
    [endpointSlices, 'EndpointSlice'],
    [pods, 'Pod'],
    [nodes, 'Node'],
  ] as const;
  return counted.flatMap(([number, one]) => (number === undefined ? [] : [count(number, one)])).join(', ');
}
