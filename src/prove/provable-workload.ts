import { type Kind, kindAndName, POD, pathOf, pluralOf, type WorkloadKind } from '../audit/index.ts';
import { asFailure, callPath, type KubeConnection, unlessNotFound } from '../cluster/index.ts';
import {
  isRecord,
  isString,
  type LabelSelector,
  type Labels,
  LingerError,
  labelQueryOf,
  memberAt,
  NO_LABELS,
  recordsAt,
  selects,
} from '../core/api/index.ts';
import { countOf } from '../core/judge/index.ts';
import { wallClock } from './traffic.ts';

const PROVABLE: readonly string[] = ['Deployment', 'StatefulSet', 'DaemonSet', 'Rollout'];

/** What is done to the workload, once per run. */
export type Disturbance =
  | { readonly type: 'rollout' | 'deleteOne' | 'evict' }
  | { readonly type: 'scale'; readonly from: number; readonly to: number }
  | { readonly type: 'drain'; readonly node: string };

export interface WorkloadName {
  readonly kind: WorkloadKind;
  readonly name: string;
  readonly namespace: string;
}

/** What a run needs to know of a workload. */
export interface ProvableWorkload extends WorkloadName {
  /** A label query that selects its pods. */
  readonly selector: string;
  readonly podLabels: Labels;
  readonly replicas: number;
  /** Whether all of its pods are ready and have its newest template. */
  readonly settled: boolean;
  /** Whether all of its pods are replaced when its template changes. */
  readonly rollsOut: boolean;
  /** How many pods a rollout may remove before others are ready. */
  readonly maxUnavailable: number;
}

/** @returns undefined for text that is not KIND/NAME of a kind that can be disturbed */
export function workloadNamed(text: string, namespace: string): WorkloadName | undefined {
  const named = kindAndName(text);
  return named && PROVABLE.includes(named.kind.kind) ? { ...named, namespace } : undefined;
}

export const CALL_MS = 10_000;
/** When a pod is deleted, webhooks may take 30 s each; after a minute, the API server itself gives up. */
const END_MS = 65_000;

/** `Deployment shop/web` */
export const fullName = ({ kind, namespace, name }: WorkloadName): string =>
  `${kind.kind} ${namespace}/${name}`;

type Method = 'GET' | 'POST' | 'PATCH' | 'DELETE';
/**
 * Gets, patches or deletes an object of any kind. A patch is a merge patch.
 * @returns undefined if there is nothing to get or to delete
 * @throws KubeFailure
 */
export type Request = (
  method: Method,
  path: string,
  signal: AbortSignal,
  object?: object,
) => Promise<unknown>;

export function requestTo(connection: KubeConnection, withinMs = CALL_MS): Request {
  return (method, path, signal, object) => {
    const call = { signal, withinMs, patch: 'merge-patch' } as const;
    const answer = callPath(connection, { method, path, object }, call);
    return method === 'GET' || method === 'DELETE' ? unlessNotFound(answer) : answer;
  };
}

export const core = (kind: string): Kind => ({ apiVersion: 'v1', kind });
export const objectPath = (of: Kind, namespace: string | undefined, name: string): string =>
  `${pathOf(of, namespace)}/${encodeURIComponent(name)}`;

/** The Services that select pods with these labels. */
export function selecting(services: unknown, labels: Labels): readonly Record<string, unknown>[] {
  return recordsAt(services, 'items').filter(({ spec }) => {
    const matchLabels = memberAt(spec, ['selector']);
    if (!isRecord(matchLabels) || Object.keys(matchLabels).length === 0) return false;
    return selects({ matchLabels: matchLabels as Labels }, labels);
  });
}

/** Reads and writes the workload and its pods. */
export class WorkloadAccess {
  readonly #request: Request;
  readonly #end: Request;
  readonly #name: WorkloadName;
  readonly #path: string;

  constructor(connection: KubeConnection, name: WorkloadName) {
    this.#request = requestTo(connection);
    this.#end = requestTo(connection, END_MS);
    this.#name = name;
    this.#path = objectPath(name.kind, name.namespace, name.name);
  }

  /** @throws LingerError `not-found`; KubeFailure */
  async read(signal: AbortSignal): Promise<ProvableWorkload> {
    const object = await this.#request('GET', this.#path, signal);
    if (object === undefined)
      throw new LingerError('not-found', `there is no ${fullName(this.#name)}; -n names another namespace`);
    return readWorkload(this.#name, await withOwnTemplate(this.#request, this.#name, object, signal));
  }

  /** Services of the namespace that select these pods. */
  async services(labels: Labels, signal: AbortSignal): Promise<readonly ServicePort[]> {
    const all = await this.#request('GET', pathOf(core('Service'), this.#name.namespace), signal);
    return selecting(all, labels).flatMap(({ metadata, spec }) => {
      const ip = memberAt(spec, ['clusterIP']);
      const clusterIp = isString(ip) && ip !== '' && ip !== 'None' ? ip : undefined;
      const ports = recordsAt(spec, 'ports').filter(({ protocol = 'TCP' }) => protocol === 'TCP');
      return ports.map(({ port, targetPort, name = '', appProtocol = '' }) => ({
        target: Number(clusterIp === undefined && Number.isInteger(targetPort) ? targetPort : port),
        service: String(memberAt(metadata, ['name'])),
        port: Number(port),
        portName: String(name),
        clusterIp,
        https: /https/i.test(`${name} ${appProtocol}`) || port === 443,
      }));
    });
  }

  /** The image of Linger's own pods, if Linger runs here and its pods may be read. */
  async lingerImage(namespace: string, signal: AbortSignal): Promise<string | undefined> {
    const path = objectPath({ apiVersion: 'apps/v1', kind: 'Deployment' }, namespace, 'linger');
    const found = await this.#request('GET', path, signal).catch(() => undefined);
    const [container] = recordsAt(found, 'spec', 'template', 'spec', 'containers');
    return isString(container?.image) ? container.image : undefined;
  }

  /** Which of these rights are missing. */
  async missing(rights: readonly Right[], signal: AbortSignal): Promise<readonly Right[]> {
    const asked = rights.map(async (right) => {
      const [, verb = '', resource = '', subresource = '', group = '', cluster] = RIGHT.exec(right) ?? [];
      const namespace = cluster === undefined ? this.#name.namespace : '';
      const resourceAttributes = { verb, group, resource, subresource, namespace };
      const review = { ...ACCESS_REVIEW, spec: { resourceAttributes } };
      const answer = await this.#request('POST', pathOf(ACCESS_REVIEW), signal, review);
      return memberAt(answer, ['status', 'allowed']) === true ? [] : [right];
    });
    return (await Promise.all(asked)).flat();
  }

  /**
   * Restarts the workload as `kubectl rollout restart` does, and a Rollout as `kubectl argo rollouts restart`. @param now
   * RFC 3339
   */
  async restart(now: string, signal: AbortSignal): Promise<void> {
    if (this.#name.kind.kind === 'Rollout') {
      // Its controller evicts older pods, as many at once as may be unavailable.
      await this.#request('PATCH', this.#path, signal, { spec: { restartAt: now.replace(/\.\d+Z$/, 'Z') } });
      return;
    }
    const annotations = { 'kubectl.kubernetes.io/restartedAt': now };
    await this.#request('PATCH', this.#path, signal, { spec: { template: { metadata: { annotations } } } });
  }

  async scale(replicas: number, signal: AbortSignal): Promise<void> {
    await this.#request('PATCH', `${this.#path}/scale`, signal, { spec: { replicas } });
  }

  async deletePod(name: string, signal: AbortSignal): Promise<void> {
    await this.#end('DELETE', objectPath(POD, this.#name.namespace, name), signal);
  }

  /**
   * @returns why a PodDisruptionBudget currently forbids the eviction; undefined: it was made, or (as a dry run) would be
   */
  async evict(name: string, signal: AbortSignal, dryRun = false): Promise<string | undefined> {
    const { namespace } = this.#name;
    const eviction = { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name, namespace } };
    const path = `${objectPath(POD, namespace, name)}/eviction${dryRun ? '?dryRun=All' : ''}`;
    try {
      await this.#end('POST', path, signal, eviction);
      return undefined;
    } catch (thrown) {
      const { reason, message } = asFailure(thrown);
      // With 429, the eviction API says that a budget forbids it. Source: Kubernetes, "API-initiated eviction".
      if (reason === 'Throttled') return message;
      if (reason === 'NotFound') return undefined;
      throw thrown;
    }
  }

  /**
   * Cordons a node, so that it gets no new pods.
   * @param begin called with a function that undoes this, unless the node was cordoned already. It is called before the
   * request, which may take effect even if it is interrupted
   */
  async cordon(
    node: string,
    signal: AbortSignal,
    begin: (uncordon: (signal: AbortSignal) => Promise<unknown>) => void,
  ): Promise<void> {
    const path = objectPath(core('Node'), undefined, node);
    const set = (unschedulable: true | null, within: AbortSignal) =>
      this.#request('PATCH', path, within, { spec: { unschedulable } });
    const before = await this.#request('GET', path, signal);
    if (memberAt(before, ['spec', 'unschedulable']) !== true) begin((within) => set(null, within));
    await set(true, signal);
  }
}

/**
 * Adds the template and selector of another workload (`workloadRef`) to a Rollout that refers to it. Source: argo-rollouts
 * 1.10, rollout/templateref.go.
 * @throws LingerError `prove-refused`; KubeFailure
 */
export async function withOwnTemplate(
  request: Request,
  named: WorkloadName,
  object: unknown,
  signal: AbortSignal,
): Promise<unknown> {
  const spec = memberAt(object, ['spec']);
  if (!isRecord(object) || !isRecord(spec) || !isRecord(spec.workloadRef)) return object;
  const { workloadRef, ...rest } = spec;
  const { apiVersion, kind, name } = workloadRef;
  const refers = `${fullName(named)} takes its template from ${kind} ${name} (workloadRef)`;
  // A PodTemplate has no selector.
  if (apiVersion !== 'apps/v1' || (kind !== 'Deployment' && kind !== 'ReplicaSet') || !isString(name))
    throw new LingerError('prove-refused', `${refers}: expected an apps/v1 Deployment or ReplicaSet`);
  const found = await request('GET', objectPath({ apiVersion, kind }, named.namespace, name), signal);
  if (found === undefined) throw new LingerError('prove-refused', `${refers}, which does not exist`);
  const [selector, template] = ['selector', 'template'].map((member) => memberAt(found, ['spec', member]));
  return { ...object, spec: { ...rest, selector, template } };
}

const ACCESS_REVIEW: Kind = { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview' };

export interface ServicePort {
  readonly service: string;
  readonly port: number;
  /**
   * The port to connect to: for a headless Service, its target port, because its name leads to pods directly, and nothing in
   * between translates ports.
   */
  readonly target: number;
  readonly portName: string;
  /** Undefined: the Service is headless, so its name leads to the pods. */
  readonly clusterIp: string | undefined;
  readonly https: boolean;
}

/** `patch deployments/scale.apps`; a right that is not limited to the namespace ends with ` (cluster)`. */
export type Right = string;
const RIGHT = /^(\w+) (\w+)(?:\/(\w+))?(?:\.([\w.]+))?( \(cluster\))?$/;

/** Without these, the withdrawal from Endpoints objects is not seen. */
export const ENDPOINTS_RIGHTS: readonly Right[] = ['list endpoints', 'watch endpoints'];

const EVICTION: Right = 'create pods/eviction';
const SERVICE_RIGHTS: readonly Right[] = [
  ...['list services', 'list endpointslices.discovery.k8s.io', 'watch endpointslices.discovery.k8s.io'],
];
const JOB_RIGHTS = ['create jobs.batch', 'patch jobs.batch', 'delete jobs.batch', 'get pods/log'] as const;

/** The rights that a run needs, and no others. */
export function rightsFor(
  { kind }: WorkloadName,
  disturbance: Disturbance,
  { service, job }: { readonly service: boolean; readonly job: boolean },
): readonly Right[] {
  const plural = pluralOf(kind);
  const [group = ''] = kind.apiVersion.split('/');
  const ofDisturbance: Readonly<Record<Disturbance['type'], readonly Right[]>> = {
    rollout: [`patch ${plural}.${group}`],
    scale: [`patch ${plural}/scale.${group}`],
    deleteOne: ['delete pods', EVICTION],
    evict: [EVICTION],
    drain: [EVICTION, 'get nodes (cluster)', 'patch nodes (cluster)'],
  };
  return [
    ...[`get ${plural}.${group}`, 'list pods', 'watch pods'],
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

/** Why a disturbance would leave no pod to serve, or cannot be made; undefined: it can. */
export function obstacleTo(
  disturbance: Disturbance,
  workload: Omit<ProvableWorkload, 'selector' | 'podLabels'>,
  ready: readonly ReadyPod[],
): string | undefined {
  const name = fullName(workload);
  if (!workload.settled) return `${name} is not settled: wait until all of its pods are up to date and ready`;
  if (disturbance.type === 'scale') {
    if (workload.kind.kind === 'DaemonSet') return `${name} cannot be scaled`;
    return disturbance.to < 1 ? '--scale to 0 would leave no ready pod' : undefined;
  }
  if (ready.length < 2)
    return `${name} has ${ready.length} ready pod${ready.length === 1 ? '' : 's'}: without a second one nothing would serve meanwhile; scale it to 2 or more`;
  if (disturbance.type === 'rollout' && !workload.rollsOut)
    return `${name} is paused, or its strategy is OnDelete or has a partition: a restart would not replace its pods`;
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

/** The pods to remove one by one; none if the workload's controller chooses them. */
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
  // Argo's observedGeneration is a string.
  const observed =
    Number(memberAt(object, ['status', 'observedGeneration']) ?? 0) >= number('metadata', 'generation');
  const labels = memberAt(object, ['spec', 'template', 'metadata', 'labels']);
  return {
    ...named,
    selector: labelQueryOf((memberAt(object, ['spec', 'selector']) ?? {}) as LabelSelector),
    podLabels: (labels ?? NO_LABELS) as Labels,
    replicas,
    rollsOut:
      memberAt(object, ['spec', 'paused']) !== true &&
      number('spec', 'updateStrategy', 'rollingUpdate', 'partition') === 0 &&
      memberAt(object, ['spec', 'updateStrategy', 'type']) !== 'OnDelete',
    settled: observed && !isRestarting(object) && counts.every((count) => count === replicas),
    maxUnavailable: maxUnavailableOf(object, replicas),
  };
}

/**
 * Whether Argo's controller still has pods of a Rollout to restart: between two restarts, up to half a minute apart, all
 * others are ready. Source: argo-rollouts 1.10, rollout/restart.go and utils/replicaset (NeedsRestart).
 */
function isRestarting(object: unknown): boolean {
  const [asked, done] = [
    memberAt(object, ['spec', 'restartAt']),
    memberAt(object, ['status', 'restartedAt']),
  ];
  return isString(asked) && asked !== done && Date.parse(asked) <= wallClock();
}

/** Source: k8s.io/kubernetes pkg/controller/deployment/util (ResolveFenceposts): rounded down for Deployments. */
function maxUnavailableOf(object: unknown, replicas: number): number {
  if (memberAt(object, ['spec', 'strategy', 'type']) === 'Recreate') return replicas;
  const kind = memberAt(object, ['kind']);
  if (kind === 'Rollout') {
    const given = memberAt(object, ['spec', 'strategy', 'canary', 'maxUnavailable']);
    // A restart removes at least one pod.
    return Math.max(1, countOf(given, '25%', replicas, Math.floor));
  }
  const isDeployment = kind === 'Deployment';
  const strategy = isDeployment ? 'strategy' : 'updateStrategy';
  const given = memberAt(object, ['spec', strategy, 'rollingUpdate', 'maxUnavailable']);
  return isDeployment ? countOf(given, '25%', replicas, Math.floor) : countOf(given, 1, replicas, Math.ceil);
}
