import {
  followObject,
  type KubeConnection,
  type KubeFailure,
  type ObjectIdentity,
  type RawObject,
  type Resource,
  type WatchHandlers,
  watchResource,
} from '../cluster/index.ts';
import {
  ANNOTATION,
  isRecord,
  isString,
  LingerError,
  leastSecondsOf,
  memberAt,
  readHook,
  recordsAt,
} from '../core/api/index.ts';
import { parsePlan } from '../core/decision/index.ts';
import { endpointSlicesResource, endpointsResource, ownersOf } from '../informers/index.ts';
import { pause } from '../timing/index.ts';
import type { ProvableWorkload } from './provable-workload.ts';
import { wallClock } from './traffic.ts';
import type { PodLife } from './verdict.ts';

interface PodState {
  readonly uid: string;
  /** `Deployment/web` */
  readonly owner: string | undefined;
  readonly addresses: readonly string[];
  readonly node: string | undefined;
  readonly ready: boolean;
  /** The grace, in seconds, with which it is being deleted; undefined: it is not being deleted. */
  readonly grace: number | undefined;
  readonly createdAt: number;
  /** When its last container ended, by the node's clock, in whole seconds. */
  readonly endedAt: number | undefined;
  readonly wait: number | 'Hold';
}

/** The pods of a workload and what happens to each, from watches of pods, EndpointSlices and Endpoints. */
export class PodLives {
  readonly #lives = new Map<string, PodLife & { ready: boolean }>();
  /** The uids of the pods that each slice, or the Endpoints object, lists as ready. */
  readonly #listed = {
    slice: new Map<string, ReadonlySet<string>>(),
    endpoints: new Map<string, ReadonlySet<string>>(),
  };
  readonly #ended: Promise<void>[] = [];
  /** Why some events were not seen as they happened. */
  readonly problems = new Set<string>();

  /** Resolves once all existing objects have been listed. @throws LingerError `cluster-unreachable` */
  async start(
    connection: KubeConnection,
    { workload: { kind, name, namespace, selector }, service, withEndpoints, signal }: LivesOptions,
  ): Promise<void> {
    const watches: Promise<unknown>[] = [];
    const options = { clock: wallClock, random: Math.random, signal };
    const failing = (of: string) => (failure: KubeFailure) => this.problems.add(`${of}: ${failure.message}`);
    const follow = <T>(resource: Resource<T>, onEvent: WatchHandlers<T>['onEvent']) => {
      const listed = Promise.withResolvers<void>();
      watches.push(listed.promise);
      const handlers = { onEvent, onListed: listed.resolve, onFailure: failing(resource.path) };
      this.#ended.push(watchResource(resource, connection, handlers, options).ended);
    };
    const path = `/api/v1/namespaces/${namespace}`;
    const pods = { path: `${path}/pods`, query: { labelSelector: selector }, project: podState };
    /**
     * Follows a pod that has lost its labels. It may live on, because some tools remove the labels first and delete the pod
     * later; its end begins with the removal of the labels.
     */
    const followOutside = (life: PodLife, identity: ObjectIdentity, at: number) => {
      life.deletedAt = at;
      const over = new AbortController();
      signal.addEventListener('abort', () => over.abort(), { once: true });
      const onObject = (state: PodState | undefined) => {
        if (state?.uid === identity.uid) this.#pod(identity, state, wallClock());
        else {
          this.#gone(identity, wallClock(), undefined);
          over.abort();
        }
        if (life.sigtermAt !== undefined) life.wait = Math.round((life.sigtermAt - at) / 1_000);
      };
      const handlers = { onObject, onFailure: failing(pods.path) };
      const within = { ...options, signal: over.signal };
      this.#ended.push(followObject(connection, { ...pods, name: identity.name }, handlers, within).ended);
    };
    // The selector may also match pods of another workload, such as a canary's; and an adopted ReplicaSet may have any name.
    const isOwn = ({ owner = '' }: PodState) =>
      owner === `${kind.kind}/${name}` ||
      (/^(Deployment|Rollout)$/.test(kind.kind) && owner.startsWith('ReplicaSet/'));
    follow(pods, (event) => {
      const { identity, at } = event;
      const life = this.#lives.get(identity.uid);
      if (event.type === 'deleted') {
        const last = event.relist ? undefined : event.object;
        if (life?.deletedAt !== undefined || last?.grace !== undefined) this.#gone(identity, at, last);
        else if (life !== undefined) followOutside(life, identity, at);
      } else if (life !== undefined || isOwn(event.object)) this.#pod(identity, event.object, at);
    });
    if (service !== undefined) {
      const labelSelector = `kubernetes.io/service-name=${service}`;
      const slices = `/apis/discovery.k8s.io/v1/namespaces/${namespace}/endpointslices`;
      follow({ ...endpointSlicesResource(slices), query: { labelSelector } }, (event) => {
        const endpoints = event.type === 'deleted' ? [] : event.object.endpoints;
        const ready = endpoints.flatMap((each) => (each.ready ? (each.targetUid ?? []) : []));
        this.#list('slice', event.identity.name, new Set(ready), event.at);
      });
    }
    if (service !== undefined && withEndpoints) {
      const query = { fieldSelector: `metadata.name=${service}` };
      follow({ ...endpointsResource(`${path}/endpoints`), query }, (event) => {
        const endpoints = event.type === 'deleted' ? [] : event.object.ready;
        const ready = endpoints.flatMap(({ targetUid }) => targetUid ?? []);
        this.#list('endpoints', event.identity.name, new Set(ready), event.at);
      });
    }
    if (Array.isArray(await Promise.race([Promise.all(watches), pause(LIST_MS, signal)]))) return;
    const why = [...this.problems].join('; ');
    throw new LingerError('cluster-unreachable', `pods and endpoints could not be listed: ${why}`);
  }

  get all(): readonly PodLife[] {
    return [...this.#lives.values()];
  }

  /** Pods that are ready and are not being deleted. */
  get ready(): readonly PodLife[] {
    return [...this.#lives.values()].filter((each) => each.ready && each.deletedAt === undefined);
  }

  /** How many pods were deleted since then and still exist. */
  terminating(since: number): number {
    return this.all.filter(({ deletedAt = -1, goneAt }) => deletedAt >= since && goneAt === undefined).length;
  }

  /** Resolves when the watches have ended. */
  async ended(): Promise<void> {
    await Promise.all(this.#ended);
  }

  #pod({ uid, name }: ObjectIdentity, state: PodState, at: number): void {
    const { addresses, node, ready, grace, createdAt, endedAt, wait } = state;
    const life = this.#lives.get(uid) ?? { name, createdAt, ready, wait };
    Object.assign(life, { node, ready, wait, ...(endedAt !== undefined && { endedAt }) });
    // A pod that has ended may no longer have addresses.
    if (addresses.length > 0) life.addresses = addresses;
    if (grace !== undefined) {
      life.deletedAt ??= at;
      // The kubelet does not wait for hooks beyond the grace, which a second deletion may cut.
      if (wait !== 'Hold') life.sigtermAt = Math.min(life.sigtermAt ?? at + wait * 1_000, at + grace * 1_000);
    }
    this.#lives.set(uid, life);
  }

  #gone({ uid }: ObjectIdentity, at: number, last: PodState | undefined): void {
    const life = this.#lives.get(uid);
    if (life === undefined) return;
    life.goneAt ??= at;
    life.deletedAt ??= at;
    if (last?.endedAt !== undefined) life.endedAt = last.endedAt;
  }

  /**
   * Pods are identified by uid, because two pods may have the same address (on a node's network, or one after the other),
   * and one pod may have two (one of each family).
   */
  #list(source: 'slice' | 'endpoints', name: string, now: ReadonlySet<string>, at: number): void {
    const before = this.#listed[source].get(name) ?? [];
    this.#listed[source].set(name, now);
    const lists = [...this.#listed[source].values()];
    for (const uid of before) {
      const life = this.#lives.get(uid);
      // Another slice may still list it.
      if (life === undefined || lists.some((each) => each.has(uid))) continue;
      if (source === 'slice') life.withdrawnAt ??= at;
      else life.endpointsAt ??= at;
    }
    for (const uid of now) {
      const life = this.#lives.get(uid);
      if (life === undefined || life.deletedAt !== undefined) continue;
      // It was just not ready for a while, and was not withdrawn.
      if (source === 'endpoints') delete life.endpointsAt;
      else if (life.withdrawnAt !== undefined) {
        life.unready = [...(life.unready ?? []), { from: life.withdrawnAt, to: at }];
        delete life.withdrawnAt;
      }
    }
  }
}

interface LivesOptions {
  readonly workload: Pick<ProvableWorkload, 'kind' | 'name' | 'namespace' | 'selector'>;
  /** Undefined: traffic goes only through gateways. */
  readonly service: string | undefined;
  readonly withEndpoints: boolean;
  readonly signal: AbortSignal;
}

const LIST_MS = 20_000;

function podState({ metadata, spec, status }: RawObject): PodState {
  const statuses = recordsAt(status, 'containerStatuses');
  const ends = statuses.map((each) => memberAt(each, ['state', 'terminated', 'finishedAt']));
  const allEnded = ends.length > 0 && ends.every(isString);
  const conditions = recordsAt(status, 'conditions');
  const text = (value: unknown) => (isString(value) ? value : undefined);
  return {
    uid: metadata.uid,
    owner: ownersOf(metadata).owner,
    addresses: recordsAt(status, 'podIPs').flatMap(({ ip }) => text(ip) ?? []),
    node: text(memberAt(spec, ['nodeName'])),
    ready: conditions.some(({ type, status: is }) => type === 'Ready' && is === 'True'),
    grace: metadata.deletionTimestamp === undefined ? undefined : (metadata.deletionGracePeriodSeconds ?? 0),
    createdAt: Date.parse(metadata.creationTimestamp ?? ''),
    endedAt: allEnded ? Math.max(...ends.map((each) => Date.parse(String(each)))) : undefined,
    wait: waitOf(metadata.annotations?.[ANNOTATION.plan], spec),
  };
}

/**
 * How long SIGTERM is delayed in the container that is delayed the least, because any container may be the one that serves.
 */
function waitOf(plan: string | undefined, spec: unknown): number | 'Hold' {
  const { hold, wait = 0, containers = [] } = parsePlan(plan ?? '') ?? {};
  if (hold !== undefined && hold.observe !== true) return 'Hold';
  const seconds = recordsAt(spec, 'containers').map(({ name, lifecycle }) => {
    // A helper that only observes waits as long as the plan says.
    if (hold !== undefined && containers.includes(String(name))) return wait;
    const hook = memberAt(lifecycle, ['preStop']);
    return isRecord(hook) ? leastSecondsOf(readHook(hook)) : 0;
  });
  return Math.min(...seconds);
}
