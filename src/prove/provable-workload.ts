import {
  type LabelSelector,
  type Labels,
  LingerError,
  labelQueryOf,
  memberAt,
  NO_LABELS,
  recordsAt,
  selects,
} from '../api/index.ts';
import { countOf, kindAndName, pluralOf, type WorkloadKind } from '../audit/index.ts';
import { type ApiCall, asFailure, callApi, type KubeConnection, unlessNotFound } from '../cluster/index.ts';

const PROVABLE: readonly string[] = ['Deployment', 'StatefulSet', 'DaemonSet'];

/** What is done to the workload, once. */
export type Disturbance =
  | { readonly type: 'rollout' | 'deleteOne' | 'evict' }
  | { readonly type: 'scale'; readonly from: number; readonly to: number }
  | { readonly type: 'drain'; readonly node: string };

export interface WorkloadName {
  readonly kind: WorkloadKind;
  readonly name: string;
  readonly namespace: string;
}

/** A workload as far as it matters here. */
export interface ProvableWorkload extends WorkloadName {
  /** Of its pods, as a query. */
  readonly selector: string;
  readonly podLabels: Labels;
  readonly replicas: number;
  /** Whether all of its pods are of its newest template and ready. */
  readonly settled: boolean;
  /** Whether its pods are replaced when its template changes. */
  readonly rollsOut: boolean;
  /** Pods that a rollout may take away before others are ready. */
  readonly maxUnavailable: number;
}

/** @returns undefined for what is no KIND/NAME of a kind that can be disturbed */
export function workloadNamed(text: string, namespace: string): WorkloadName | undefined {
  const named = kindAndName(text);
  return named && PROVABLE.includes(named.kind.kind) ? { ...named, namespace } : undefined;
}

export const CALL_MS = 10_000;

/** `Deployment shop/web` */
export function describe({ kind, namespace, name }: WorkloadName): string {
  return `${kind.kind} ${namespace}/${name}`;
}

/** Reads and writes the workload and its pods. */
export class WorkloadAccess {
  readonly #connection: KubeConnection;
  readonly #name: WorkloadName;

  constructor(connection: KubeConnection, name: WorkloadName) {
    this.#connection = connection;
    this.#name = name;
  }

  /** @throws LingerError `not-found`; KubeFailure */
  async read(signal: AbortSignal): Promise<ProvableWorkload> {
    const object = await unlessNotFound(
      this.#custom(signal, (api) => api.getNamespacedCustomObject(this.#object)) as Promise<unknown>,
    );
    if (object === undefined)
      throw new LingerError('not-found', `there is no ${describe(this.#name)}; -n names another namespace`);
    return readWorkload(this.#name, object);
  }

  /** Services of the namespace that select these pods. */
  async services(labels: Labels, signal: AbortSignal): Promise<readonly ServicePort[]> {
    const { namespace } = this.#name;
    const { items } = await this.#core(signal, (api) => api.listNamespacedService({ namespace }));
    return items.flatMap(({ metadata, spec }) => {
      const selector = spec?.selector ?? {};
      if (Object.keys(selector).length === 0 || !selects({ matchLabels: selector }, labels)) return [];
      const ports = (spec?.ports ?? []).filter(({ protocol = 'TCP' }) => protocol === 'TCP');
      const clusterIp = spec?.clusterIP === 'None' ? undefined : spec?.clusterIP || undefined;
      return ports.map(({ port, name = '', appProtocol = '' }) => ({
        ...{ service: metadata?.name ?? '', port, portName: name, clusterIp },
        https: /https/i.test(`${name} ${appProtocol}`) || port === 443,
      }));
    });
  }

  /** The image of Linger's own pods, if it runs here and may be read. */
  async lingerImage(namespace: string, signal: AbortSignal): Promise<string | undefined> {
    const name = { group: 'apps', version: 'v1', plural: 'deployments', namespace, name: 'linger' };
    const found = await this.#custom(signal, (api) => api.getNamespacedCustomObject(name)).catch(
      () => undefined,
    );
    const [container] = recordsAt(found, 'spec', 'template', 'spec', 'containers');
    return typeof container?.image === 'string' ? container.image : undefined;
  }

  /** Which of these rights are missing. */
  async missing(rights: readonly Right[], signal: AbortSignal): Promise<readonly Right[]> {
    const asked = rights.map(async (right) => {
      const [, verb = '', resource = '', subresource = '', group = '', cluster] = RIGHT.exec(right) ?? [];
      const namespace = cluster === undefined ? this.#name.namespace : '';
      const resourceAttributes = { verb, group, resource, subresource, namespace };
      const body = {
        ...{ apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview' },
        spec: { resourceAttributes },
      };
      const { status } = await callApi(this.#connection, 'AuthorizationV1Api', callOf(signal), (api) =>
        api.createSelfSubjectAccessReview({ body }),
      );
      return status?.allowed === true ? [] : [right];
    });
    return (await Promise.all(asked)).flat();
  }

  /** As `kubectl rollout restart` does. @param now RFC 3339 */
  async restart(now: string, signal: AbortSignal): Promise<void> {
    const annotations = { 'kubectl.kubernetes.io/restartedAt': now };
    const body = { spec: { template: { metadata: { annotations } } } };
    await this.#custom(signal, (api) => api.patchNamespacedCustomObject({ ...this.#object, body }));
  }

  async scale(replicas: number, signal: AbortSignal): Promise<void> {
    const body = { spec: { replicas } };
    await this.#custom(signal, (api) => api.patchNamespacedCustomObjectScale({ ...this.#object, body }));
  }

  async deletePod(name: string, signal: AbortSignal): Promise<void> {
    await this.#core(signal, (api) => api.deleteNamespacedPod({ name, namespace: this.#name.namespace }));
  }

  /** @returns why a PodDisruptionBudget forbids it at present; undefined: it is done, or would be */
  async evict(name: string, signal: AbortSignal, dryRun = false): Promise<string | undefined> {
    const { namespace } = this.#name;
    const body = { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name, namespace } };
    const how = dryRun ? { dryRun: 'All' } : {};
    try {
      await this.#core(signal, (api) => api.createNamespacedPodEviction({ name, namespace, body, ...how }));
      return undefined;
    } catch (thrown) {
      const { reason, message } = asFailure(thrown);
      // 429 is how the eviction API says that a budget forbids it. Source: Kubernetes, "API-initiated eviction".
      if (reason === 'Throttled') return message;
      if (reason === 'NotFound') return undefined;
      throw thrown;
    }
  }

  /** @returns whether it could be scheduled to before */
  async cordon(node: string, unschedulable: boolean, signal: AbortSignal): Promise<boolean> {
    const { spec } = await this.#core(signal, (api) => api.readNode({ name: node }));
    const body = { spec: { unschedulable: unschedulable || null } };
    await this.#core(signal, (api) => api.patchNode({ name: node, body }));
    return spec?.unschedulable !== true;
  }

  get #object() {
    const { kind, name, namespace } = this.#name;
    return { group: 'apps', version: 'v1', plural: pluralOf(kind), namespace, name };
  }

  #custom<T>(signal: AbortSignal, use: Parameters<typeof callApi<'CustomObjectsApi', T>>[3]): Promise<T> {
    return callApi(this.#connection, 'CustomObjectsApi', callOf(signal), use);
  }

  #core<T>(signal: AbortSignal, use: Parameters<typeof callApi<'CoreV1Api', T>>[3]): Promise<T> {
    return callApi(this.#connection, 'CoreV1Api', callOf(signal), use);
  }
}

/** Of each request to the API server. */
export const callOf = (signal: AbortSignal): ApiCall => ({ signal, withinMs: CALL_MS, patch: 'merge-patch' });

export interface ServicePort {
  readonly service: string;
  readonly port: number;
  readonly portName: string;
  /** Undefined: headless; its name leads to the pods. */
  readonly clusterIp: string | undefined;
  readonly https: boolean;
}

/** `patch deployments/scale.apps`; one that is not of the namespace ends with ` (cluster)`. */
export type Right = string;
const RIGHT = /^(\w+) (\w+)(?:\/(\w+))?(?:\.([\w.]+))?( \(cluster\))?$/;

/** Without it, the withdrawal from Endpoints objects is not seen. */
export const ENDPOINTS_RIGHTS: readonly Right[] = ['list endpoints', 'watch endpoints'];

const EVICTION: Right = 'create pods/eviction';
const SERVICE_RIGHTS: readonly Right[] = [
  ...['list services', 'list endpointslices.discovery.k8s.io', 'watch endpointslices.discovery.k8s.io'],
];
const JOB_RIGHTS: readonly Right[] = [
  ...['create jobs.batch', 'patch jobs.batch', 'delete jobs.batch', 'get pods/log'],
];

/** What a run needs, and nothing else. */
export function rightsFor(
  { kind }: WorkloadName,
  disturbance: Disturbance,
  { service, job }: { readonly service: boolean; readonly job: boolean },
): readonly Right[] {
  const plural = pluralOf(kind);
  const ofDisturbance: Readonly<Record<Disturbance['type'], readonly Right[]>> = {
    rollout: [`patch ${plural}.apps`],
    scale: [`patch ${plural}/scale.apps`],
    deleteOne: ['delete pods', EVICTION],
    evict: [EVICTION],
    drain: [EVICTION, 'get nodes (cluster)', 'patch nodes (cluster)'],
  };
  return [
    ...[`get ${plural}.apps`, 'list pods', 'watch pods'],
    ...(service ? SERVICE_RIGHTS : []),
    ...(job ? JOB_RIGHTS : []),
    ...ofDisturbance[disturbance.type],
  ];
}

/** A pod that may be disturbed. */
export interface ReadyPod {
  readonly name: string;
  readonly node?: string | undefined;
  readonly createdAt: number;
}

/** Why a disturbance would leave no pod to serve, or cannot be done; undefined: it may be. */
export function obstacleTo(
  disturbance: Disturbance,
  workload: Pick<
    ProvableWorkload,
    'kind' | 'namespace' | 'name' | 'replicas' | 'settled' | 'rollsOut' | 'maxUnavailable'
  >,
  ready: readonly ReadyPod[],
): string | undefined {
  const name = describe(workload);
  if (!workload.settled) return `${name} is not settled: wait until all of its pods are up to date and ready`;
  if (disturbance.type === 'scale') {
    if (workload.kind.kind === 'DaemonSet') return `${name} cannot be scaled`;
    return disturbance.to < 1 ? '--scale to 0 would leave no ready pod' : undefined;
  }
  if (ready.length < 2)
    return `${name} has ${ready.length} ready pod${ready.length === 1 ? '' : 's'}: without a second one nothing would serve meanwhile; scale it to 2 or more`;
  if (disturbance.type === 'rollout' && !workload.rollsOut)
    return `${name} is paused, or its strategy is OnDelete: a restart would replace no pod`;
  if (disturbance.type === 'rollout' && workload.maxUnavailable >= ready.length)
    return `a rollout of ${name} may take all of its ${ready.length} ready pods away at once: lower maxUnavailable of its strategy, or replace Recreate`;
  if (disturbance.type === 'drain') {
    const there = ready.filter(({ node }) => node === disturbance.node).length;
    if (there === 0) return `no ready pod of ${name} runs on node ${disturbance.node}`;
    if (there === ready.length)
      return `all ready pods of ${name} run on node ${disturbance.node}: draining it would leave none`;
  }
  return undefined;
}

/** The pods that are taken away one by one; none for what the workload's controller chooses. */
export function chosenPods(disturbance: Disturbance, ready: readonly ReadyPod[]): readonly string[] {
  const oldest = ready.toSorted((a, b) => a.createdAt - b.createdAt || (a.name < b.name ? -1 : 1));
  if (disturbance.type === 'deleteOne' || disturbance.type === 'evict')
    return oldest.slice(0, 1).map(({ name }) => name);
  if (disturbance.type !== 'drain') return [];
  return oldest.filter(({ node }) => node === disturbance.node).map(({ name }) => name);
}

function readWorkload(named: WorkloadName, object: unknown): ProvableWorkload {
  const number = (...path: readonly string[]) => {
    const value = memberAt(object, path);
    return typeof value === 'number' ? value : 0;
  };
  const isDaemonSet = named.kind.kind === 'DaemonSet';
  const replicas = isDaemonSet
    ? number('status', 'desiredNumberScheduled')
    : ((memberAt(object, ['spec', 'replicas']) as number | undefined) ?? 1);
  const counts = isDaemonSet
    ? [number('status', 'updatedNumberScheduled'), number('status', 'numberAvailable')]
    : [number('status', 'updatedReplicas'), number('status', 'replicas'), number('status', 'readyReplicas')];
  const observed = number('status', 'observedGeneration') >= number('metadata', 'generation');
  const labels = memberAt(object, ['spec', 'template', 'metadata', 'labels']);
  return {
    ...named,
    selector: labelQueryOf((memberAt(object, ['spec', 'selector']) ?? {}) as LabelSelector),
    podLabels: (labels ?? NO_LABELS) as Labels,
    replicas,
    rollsOut:
      memberAt(object, ['spec', 'paused']) !== true &&
      memberAt(object, ['spec', 'updateStrategy', 'type']) !== 'OnDelete',
    settled: observed && counts.every((count) => count === replicas),
    maxUnavailable: maxUnavailableOf(object, replicas),
  };
}

/** Source: k8s.io/kubernetes pkg/controller/deployment/util (ResolveFenceposts): rounded down for Deployments. */
function maxUnavailableOf(object: unknown, replicas: number): number {
  if (memberAt(object, ['spec', 'strategy', 'type']) === 'Recreate') return replicas;
  const isDeployment = memberAt(object, ['kind']) === 'Deployment';
  const strategy = isDeployment ? 'strategy' : 'updateStrategy';
  const given = memberAt(object, ['spec', strategy, 'rollingUpdate', 'maxUnavailable']);
  return isDeployment ? countOf(given, '25%', replicas, Math.floor) : countOf(given, 1, replicas, Math.ceil);
}
