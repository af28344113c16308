import { setTimeout as sleep } from 'node:timers/promises';
import { ApiReader, type Json, type KubeConnection, messageOf, type RawObject } from '../cluster/index.ts';
import { count, fewOf, isString, listOf, memberAt, recordsAt } from '../core/api/index.ts';
import { servicesResource } from '../informers/index.ts';
import { type ControllerActivity, controllerFlags, DEFAULT_FLAGS } from './controller-metrics.ts';
import {
  type ControllerPod,
  controllerLeader,
  controllerPods,
  leaderFirst,
  type MetricsInput,
  type Observation,
  observeController,
  observeSaved,
  observeTwice,
  readMetricsAddress,
  seekController,
  UNSEEN,
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

export interface GatherOptions {
  /** `none`: why no cluster can be used. */
  readonly connection: KubeConnection | { readonly none: string };
  /**
   * Where to read the controller-manager's metrics: saved scrapes, older first; an address; undefined: through the API
   * server.
   */
  readonly metrics: { readonly files: readonly string[] } | MetricsInput | undefined;
  /** Its command line, if given, which takes precedence over that of its pod. */
  readonly flags: string | undefined;
  /** The metrics of a running Linger: a URL, a file or `-`. */
  readonly linger: string | undefined;
  /** Whether to watch removals if no Linger is asked. */
  readonly watch: boolean;
  /** Seconds between two looks; 0: look only once. */
  readonly intervalSeconds: number;
  readonly onWait: (seconds: number) => void;
  readonly stdin: NodeJS.ReadableStream;
  /** The time, in seconds since the epoch. */
  readonly now: () => number;
}

/**
 * Collects the facts for a diagnosis, looking twice where that shows more.
 * @throws LingerError `metrics-unreadable`, `metrics-invalid`, `settings-invalid` for a named source that cannot be used;
 * any other source that cannot be read is reported as a look
 */
export async function gatherFacts(options: GatherOptions): Promise<Facts> {
  const gathering = new Gathering(options);
  try {
    return await gathering.run();
  } finally {
    gathering.close();
  }
}

class Gathering {
  readonly #options: GatherOptions;
  readonly #api: ApiReader | undefined;
  readonly #looks: Look[] = [];
  readonly #closing = new AbortController();

  constructor(options: GatherOptions) {
    this.#options = options;
    const { connection } = options;
    if ('none' in connection) this.#looks.push({ what: 'cluster', seen: false, text: connection.none });
    else this.#api = new ApiReader(connection);
  }

  close(): void {
    this.#closing.abort();
    this.#api?.close();
  }

  async run(): Promise<Facts> {
    const { intervalSeconds, onWait, now } = this.#options;
    const listed = await this.#attempt('pods of kube-system', controllerPods);
    const leader = await this.#attempt(LEASE, (api) => controllerLeader(api, now()));
    if (leader !== undefined) this.#see(LEASE, `${leader.holder}, transition ${leader.transitions}`);
    const cluster = this.#api && (await this.#services());
    // Watch before reading metrics: a watch may take a minute to be current, and all counts should be of the same time.
    const lag = await this.#lag();
    const pods = listed && leaderFirst(listed, leader);
    const controller = await this.#controller(pods);
    const priority = await this.#priority();
    const again =
      intervalSeconds > 0 && [lag, controller, priority].some((each) => typeof each === 'function');
    if (again) {
      onWait(intervalSeconds);
      await sleep(intervalSeconds * 1000);
    }
    const end = <T>(observation: Observation<T>) =>
      typeof observation === 'function' ? observation(again) : observation;
    const seen = await Promise.all([end(controller), end(lag), end(priority)]);
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

  async #services(): Promise<ClusterFacts> {
    const services = await this.#attempt(
      'services',
      (api) => api.list(servicesResource()),
      'This needs the right to list services',
    );
    const readers = await this.#attempt(
      READERS,
      endpointsReaders,
      'This needs the right to list roles and their bindings',
    );
    if (readers !== undefined) this.#see(READERS, readers.length === 0 ? 'none' : fewOf(readers));
    const of = { endpointsReaders: readers };
    if (services === undefined) return { services: undefined, neverWithdrawn: undefined, ...of };
    this.#see('services', count(services.length, 'Service'));
    const never = services.filter(({ publishNotReadyAddresses }) => publishNotReadyAddresses);
    const examples = never.slice(0, EXAMPLES).map(({ namespace, name }) => `${namespace}/${name}`);
    return { services: services.length, neverWithdrawn: { services: never.length, examples }, ...of };
  }

  async #controller(pods: readonly ControllerPod[] | undefined): Promise<Observation<ControllerActivity>> {
    const { metrics, intervalSeconds, stdin, now } = this.#options;
    if (metrics !== undefined && 'files' in metrics)
      return observeSaved(metrics.files, stdin, intervalSeconds);
    if (metrics !== undefined) return observeController(metrics.from, () => readMetricsAddress(metrics), now);
    return this.#api === undefined ? UNSEEN : seekController(this.#api, pods, now);
  }

  async #lag(): Promise<Observation<LagFacts>> {
    const { linger, watch, stdin } = this.#options;
    if (linger !== undefined) return observeLinger(linger, stdin);
    if (this.#api === undefined || !watch) return UNSEEN;
    return observeRemovals(this.#api.connection, this.#closing.signal);
  }

  async #priority(): Promise<Observation<PriorityFacts>> {
    const what = 'priority and fairness of the API server';
    const observation = await this.#attempt(what, (api) =>
      observeTwice(
        () => api.text('/debug/api_priority_and_fairness/dump_priority_levels'),
        (first, last) => {
          const facts = priorityFacts(first ?? last, last);
          const looks = facts === undefined ? [] : [{ what, seen: true, text: `level ${facts.level}` }];
          return { facts, looks };
        },
      ),
    );
    return observation ?? UNSEEN;
  }

  #flags(pod: ControllerPod | undefined): Facts['flags'] {
    const what = 'controller-manager flags';
    const { flags } = this.#options;
    if (flags !== undefined) {
      this.#see(what, 'as given by --controller-flags');
      return controllerFlags([flags]);
    }
    if (pod !== undefined) {
      this.#see(what, `command line of pod kube-system/${pod.name}`);
      return pod.flags;
    }
    this.#looks.push({
      what,
      seen: false,
      text: 'unknown; assuming Kubernetes’ defaults (kube-api-qps 20, burst 30, 5 workers each)',
      remedy: 'Set --controller-flags "--kube-api-qps=… --concurrent-endpoint-syncs=…"',
    });
    return DEFAULT_FLAGS;
  }

  /** @returns undefined without a cluster, or after a failure, which is reported as a look */
  async #attempt<T>(
    what: string,
    ask: (api: ApiReader) => Promise<T>,
    remedy?: string,
  ): Promise<T | undefined> {
    if (this.#api === undefined) return undefined;
    try {
      return await ask(this.#api);
    } catch (thrown) {
      this.#looks.push({ what, seen: false, text: messageOf(thrown), ...(remedy && { remedy }) });
      return undefined;
    }
  }

  #see(what: string, text: string): void {
    this.#looks.push({ what, seen: true, text });
  }
}

/** The look at the accounts whose roles name Endpoints. */
const READERS = 'accounts that are granted Endpoints';

const LEASE = 'Lease of the controller-manager';

const EXAMPLES = 5;

const RBAC = '/apis/rbac.authorization.k8s.io/v1';

/** General roles of people and tools: holding one does not mean that Endpoints are read. */
const GENERAL = new Set(['cluster-admin', 'admin', 'edit', 'view']);

/**
 * Roles of the control plane. kube-proxy and CoreDNS, whose roles name Endpoints as well, have read EndpointSlices since
 * Kubernetes 1.19 and CoreDNS 1.8.1.
 */
const CONTROL_PLANE = 'system:';

type Role = RawObject & Json;

/**
 * The accounts to which a role grants Endpoints by name, except those of the control plane and of Linger. RBAC does not show
 * whether they really read them. @throws KubeFailure
 */
async function endpointsReaders(api: ApiReader): Promise<readonly string[]> {
  const list = (plural: string) =>
    api.list({ path: `${RBAC}/${plural}`, project: (raw: RawObject) => raw as Role });
  const roles = [...(await list('clusterroles')), ...(await list('roles'))].filter(mayRead);
  const granting = new Set(roles.map(({ metadata }) => `${metadata.namespace ?? ''}/${metadata.name}`));
  const bindings = [...(await list('clusterrolebindings')), ...(await list('rolebindings'))];
  const subjects = bindings.flatMap((binding) => {
    const [kind, name] = ['kind', 'name'].map((member) => memberAt(binding, ['roleRef', member]));
    const namespace = kind === 'Role' ? binding.metadata.namespace : '';
    if (!granting.has(`${namespace}/${String(name)}`)) return [];
    return recordsAt(binding, 'subjects').map((subject) =>
      [
        subject.kind,
        isString(subject.namespace) ? `${subject.namespace}/${subject.name}` : subject.name,
      ].join(' '),
    );
  });
  return [...new Set(subjects)].toSorted();
}

function mayRead(role: Role): boolean {
  const { name, labels } = role.metadata;
  if (name.startsWith(CONTROL_PLANE) || GENERAL.has(name)) return false;
  if (labels?.['app.kubernetes.io/name'] === 'linger') return false;
  return recordsAt(role, 'rules').some(
    ({ apiGroups, resources, verbs }) =>
      listOf(apiGroups).includes('') &&
      listOf(resources).includes('endpoints') &&
      listOf(verbs).some((verb) => ['list', 'watch', 'get', '*'].includes(String(verb))),
  );
}
