import { hash } from 'node:crypto';
import type { RawObject, Resource, ResourceEvent } from '../cluster/index.ts';
import {
  ANNOTATION,
  isRecord,
  isString,
  type Labels,
  labelOf,
  NO_LABELS,
  recordsAt,
  Shares,
} from '../core/api/index.ts';
import { HEARTBEAT_ANNOTATION, type PodMetadata } from '../core/lag/index.ts';
import { keptLabels } from './kept.ts';

/** Only metadata: a deletion shows there, and the status would multiply the traffic. */
export function podsResource(path = '/api/v1/pods'): Resource<PodMetadata> {
  return { path, metadataOnly: true, project: projectPod };
}

/** Room for a plan of a hundred containers; usually a pod has a handful, and its plan 300 bytes. */
const LONGEST_PLAN = 8 * 1024;

const TOKEN = /^[0-9a-f]{64}$/;

export function projectPod({ metadata }: RawObject): PodMetadata {
  const { uid, namespace = '', name, annotations, leftOut } = metadata;
  const { deletionTimestamp, deletionGracePeriodSeconds, creationTimestamp: created = '' } = metadata;
  const labels = keptLabels(metadata);
  const heartbeat = annotations?.[HEARTBEAT_ANNOTATION];
  const plan = annotations?.[ANNOTATION.plan];
  const token = annotations?.[ANNOTATION.holdToken];
  const unread = leftOut || labels === undefined || (plan?.length ?? 0) > LONGEST_PLAN;
  return {
    uid,
    namespace,
    name,
    labels,
    deletionTimestamp,
    deletionGracePeriodSeconds,
    heartbeat,
    plan: unread ? undefined : plan,
    ...ownersOf({ ...metadata, labels }),
    ...(token !== undefined && TOKEN.test(token) && { hold: { token, created } }),
    ...(unread && { unread }),
  };
}

/** Kinds that create ReplicaSets, each with the label that contains the last part of the ReplicaSet's name. */
const MAKERS = { Deployment: 'pod-template-hash', Rollout: 'rollouts-pod-template-hash' } as const;

/**
 * A pod's controller and workload. The workload follows from the name of a ReplicaSet, which consists of its owner's name
 * and the hash of its pods. Source: k8s.io/kubernetes pkg/controller/deployment/sync.go.
 */
export function ownersOf({
  labels = NO_LABELS,
  ownerReferences,
}: {
  readonly labels?: Labels | undefined;
  readonly ownerReferences?: unknown;
}) {
  const found = recordsAt(ownerReferences).find((owner) => owner.controller === true);
  const { kind, name } = found ?? {};
  // The API server accepts any text as an owner's kind and name, but only the name of an object can be an owner.
  if (!isString(kind) || !KIND.test(kind) || !isString(name) || !OBJECT_NAME.test(name))
    return { controller: undefined, owner: undefined };
  return { controller: `${kind}/${name}`, owner: makerOf(kind, name, labels) };
}

const KIND = /^[A-Za-z][A-Za-z0-9]{0,62}$/;
/** DNS-1123 subdomains, plus the other characters that some kinds allow. */
const OBJECT_NAME = /^[A-Za-z0-9][-.:\w]{0,252}$/;

function makerOf(kind: string, name: string, labels: Labels): string {
  for (const [maker, key] of Object.entries(MAKERS)) {
    const suffix = labelOf(labels, key);
    if (kind === 'ReplicaSet' && suffix !== undefined && name.endsWith(`-${suffix}`))
      return `${maker}/${name.slice(0, -suffix.length - 1)}`;
  }
  return `${kind}/${name}`;
}

export interface AddressedPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** status.podIP; undefined: the pod has none yet, or has ended. */
  readonly address: string | undefined;
  /** undefined: the pod is not scheduled yet. */
  readonly node: string | undefined;
}

/** Whole pods, because addresses are in the status; only few pods are read this way. */
export function addressedPodsResource(
  path: string,
  query: NonNullable<Resource<unknown>['query']>,
): Resource<AddressedPod> {
  return { path, query, project: projectAddress };
}

function projectAddress({ metadata, spec, status }: RawObject): AddressedPod {
  const { namespace = '', name, uid } = metadata;
  const { podIP, phase } = isRecord(status) ? status : {};
  const address = phase === 'Running' && isString(podIP) && podIP !== '' ? podIP : undefined;
  const node = isRecord(spec) && isString(spec.nodeName) ? spec.nodeName : undefined;
  return { namespace, name, uid, address, node };
}

/** Pods of one workload with the same labels and the same plan. */
export interface PodGroup {
  readonly namespace: string;
  /** undefined: unknown. */
  readonly labels: Labels | undefined;
  /** Such as `Deployment/web`; undefined: they have none, or are terminating. */
  readonly owner: string | undefined;
  /** Annotation linger.dev/plan, the same for all pods of a ReplicaSet. */
  readonly plan: string | undefined;
  /** Whether labels and plan are unknown. */
  readonly unread: boolean;
  readonly count: number;
}

/**
 * Characters of all labels and plans, plus a flat cost per label: enough for 150,000 pods that all have different labels.
 */
const MOST_WEIGHT = 96 * 1024 * 1024;
const WEIGHT_OF_GROUP = 256;
const WEIGHT_OF_LABEL = 48;

/** Several times as many as an audit reads. */
const MOST_BARE = 2_000;

type BarePod = Pick<PodMetadata, 'namespace' | 'name'>;

/**
 * Counts pods by labels and plan. All pods of a Deployment share one entry, so a pod takes only a reference of some 50
 * bytes. Each namespace has a limited share of the entries; pods beyond that are unknown.
 */
export class PodCounts {
  /** Keyed by digest, because the text may be as long as all labels together. */
  readonly #groups = new Map<string, Counted>();
  readonly #groupOf = new Map<string, Counted>();
  readonly #shares = new Shares();
  readonly #most: number;
  readonly #bare = new Map<string, BarePod>();
  readonly #bareShares = new Shares();
  /** How many pods are unknown for lack of room. Once there is room again, a new list adds them. */
  #withoutRoom = 0;

  constructor(most = MOST_WEIGHT) {
    this.#most = most;
  }

  /** @returns the event with what is kept of the pod, which it shares with others of its group */
  apply(event: ResourceEvent<PodMetadata>): ResourceEvent<PodMetadata> {
    const { uid } = event.identity;
    const before = this.#groupOf.get(uid);
    this.#keepBare(event);
    if (event.type === 'deleted') {
      this.#groupOf.delete(uid);
      this.#leave(before);
      return event;
    }
    const group = this.#groupFor(event.object, before);
    if (group !== before) {
      group.count += 1;
      if (group.withoutRoom) this.#withoutRoom += 1;
      this.#groupOf.set(uid, group);
      this.#leave(before);
    }
    const { labels, plan, unread } = group;
    return { ...event, object: { ...event.object, labels, plan, ...(unread && { unread }) } };
  }

  #keepBare(event: ResourceEvent<PodMetadata>): void {
    const { uid, namespace, name } = event.identity;
    const runs = event.type !== 'deleted' && event.object.deletionTimestamp === undefined;
    const isBare = runs && event.object.controller === undefined;
    if (isBare === this.#bare.has(uid)) return;
    if (isBare && !this.#bareShares.hasRoomFor(namespace, 1, MOST_BARE)) return;
    this.#bareShares.add(namespace, isBare ? 1 : -1);
    if (isBare) this.#bare.set(uid, { namespace, name });
    else this.#bare.delete(uid);
  }

  /** Pods without a controller, as many as there is room for. */
  bare(): Iterable<BarePod> {
    return this.#bare.values();
  }

  #groupFor(pod: PodMetadata, before: Counted | undefined): Counted {
    const { namespace, deletionTimestamp, unread = false } = pod;
    const owner = deletionTimestamp === undefined ? pod.owner : undefined;
    const text = unread ? '' : `${pod.plan ?? ''} ${JSON.stringify(pod.labels)}`;
    const key = hash('sha256', `${namespace} ${owner ?? ''} ${unread} ${text}`, 'base64url');
    if (key === before?.key) return before;
    const known = this.#groups.get(key);
    if (known !== undefined) return known;
    const labels = Object.keys(pod.labels ?? NO_LABELS).length;
    const weight = WEIGHT_OF_GROUP + (unread ? 0 : text.length + WEIGHT_OF_LABEL * labels);
    const group = { key, namespace, owner, labels: pod.labels, plan: pod.plan, unread, count: 0, weight };
    return this.#shares.hasRoomFor(namespace, weight, this.#most)
      ? this.#add({ ...group, withoutRoom: false })
      : this.#unreadIn(namespace);
  }

  /** The group of all pods beyond the share of their namespace. */
  #unreadIn(namespace: string): Counted {
    const key = `${namespace} without room`;
    const nothing = { owner: undefined, labels: undefined, plan: undefined, count: 0, weight: 0 };
    return (
      this.#groups.get(key) ?? this.#add({ key, namespace, ...nothing, unread: true, withoutRoom: true })
    );
  }

  #add(group: Counted): Counted {
    this.#groups.set(group.key, group);
    this.#shares.add(group.namespace, group.weight);
    return group;
  }

  #leave(group: Counted | undefined): void {
    if (group === undefined) return;
    group.count -= 1;
    if (group.withoutRoom) this.#withoutRoom -= 1;
    if (group.count > 0) return;
    this.#groups.delete(group.key);
    this.#shares.add(group.namespace, -group.weight);
  }

  groups(): Iterable<PodGroup> {
    return this.#groups.values();
  }

  /** Whether there may be room now for pods that are unknown. */
  get hasRoomAgain(): boolean {
    return this.#withoutRoom > 0 && 2 * this.#shares.total < this.#most;
  }

  /** How many pods are unknown, by namespace. */
  get unread(): ReadonlyMap<string, number> {
    const counts = new Map<string, number>();
    for (const { namespace, count, unread } of this.#groups.values())
      if (unread) counts.set(namespace, (counts.get(namespace) ?? 0) + count);
    return counts;
  }
}

interface Counted extends PodGroup {
  readonly key: string;
  readonly weight: number;
  /** Pods that would be known if their namespace had room. */
  readonly withoutRoom: boolean;
  count: number;
}
