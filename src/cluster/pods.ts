import { ANNOTATION, isRecord, isString, type Labels, labelOf, NO_LABELS, recordsAt } from '../api/index.ts';
import { STAMP_ANNOTATION, type TerminatingPod } from '../lag/index.ts';
import type { RawObject, Resource, ResourceEvent } from './resource.ts';

/** The part of a pod's metadata that concerns its termination. */
export interface PodMetadata extends TerminatingPod {
  /** Present once it terminates. RFC 3339; the end of the grace, not its beginning. */
  readonly deletionTimestamp: string | undefined;
  readonly deletionGracePeriodSeconds: number | undefined;
  /** Annotation linger.dev/stamp. */
  readonly stamp: string | undefined;
  /** What the Hold Service needs to know about a pod with a token; absent from all others. */
  readonly hold?: PodHold | undefined;
  /** Annotation linger.dev/plan. */
  readonly plan?: string | undefined;
  /** Its controller, such as `ReplicaSet/web-7d9f`; undefined: it has none. */
  readonly controller?: string | undefined;
  /** The workload that owns the controller, such as `Deployment/web`. */
  readonly owner?: string | undefined;
}

interface PodHold {
  /** Annotation linger.dev/hold-token. */
  readonly token: string;
  readonly created: string;
}

/** Metadata only: a deletion is metadata, and the status would cost many times the bytes. */
export function podsResource(path = '/api/v1/pods'): Resource<PodMetadata> {
  return { path, metadataOnly: true, project: projectPod };
}

export function projectPod({ metadata }: RawObject): PodMetadata {
  const { uid, namespace = '', name, labels, annotations } = metadata;
  const { deletionTimestamp, deletionGracePeriodSeconds } = metadata;
  const stamp = annotations?.[STAMP_ANNOTATION];
  const plan = annotations?.[ANNOTATION.plan];
  const pod = { uid, namespace, name, labels, deletionTimestamp, deletionGracePeriodSeconds, stamp, plan };
  const token = annotations?.[ANNOTATION.holdToken];
  const { creationTimestamp: created = '' } = metadata;
  return { ...pod, ...ownersOf(metadata), ...(token !== undefined && { hold: { token, created } }) };
}

/** Kinds that create ReplicaSets, by the label that holds the ReplicaSet's own part of its name. */
const MAKERS = { Deployment: 'pod-template-hash', Rollout: 'rollouts-pod-template-hash' } as const;

/**
 * A pod's controller and workload: a ReplicaSet is named after its owner and the hash of its pods.
 * Source: k8s.io/kubernetes pkg/controller/deployment/sync.go.
 */
export function ownersOf({
  labels = NO_LABELS,
  ownerReferences,
}: Pick<RawObject['metadata'], 'labels' | 'ownerReferences'>) {
  const found = recordsAt(ownerReferences).find((owner) => owner.controller === true);
  if (found === undefined) return { controller: undefined, owner: undefined };
  const [kind, name] = [String(found.kind), String(found.name)];
  return { controller: `${kind}/${name}`, owner: makerOf(kind, name, labels) };
}

function makerOf(kind: string, name: string, labels: Labels): string {
  for (const [maker, key] of Object.entries(MAKERS)) {
    const hash = labelOf(labels, key);
    if (kind === 'ReplicaSet' && hash !== undefined && name.endsWith(`-${hash}`))
      return `${maker}/${name.slice(0, -hash.length - 1)}`;
  }
  return `${kind}/${name}`;
}

export interface AddressedPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** status.podIP; undefined: it has none yet, or has ended. */
  readonly address: string | undefined;
}

/** Whole pods, since addresses are in the status; there are few of them. */
export function addressedPodsResource(
  path: string,
  query: NonNullable<Resource<unknown>['query']>,
): Resource<AddressedPod> {
  return { path, query, afterMetadata: 'spec', project: projectAddress };
}

function projectAddress({ metadata: { namespace = '', name, uid }, status }: RawObject): AddressedPod {
  const { podIP, phase } = isRecord(status) ? status : {};
  const address = phase === 'Running' && isString(podIP) && podIP !== '' ? podIP : undefined;
  return { namespace, name, uid, address };
}

/** Pods of one workload with the same labels and the same plan. */
export interface PodGroup {
  readonly namespace: string;
  readonly labels: Labels;
  /** Such as `Deployment/web`; undefined: they have none, or terminate. */
  readonly owner: string | undefined;
  /** Annotation linger.dev/plan, the same for all pods of a ReplicaSet. */
  readonly plan: string | undefined;
  readonly count: number;
}

/**
 * Counts pods by their labels. The pods of a Deployment share one entry, so a pod costs only a reference,
 * some 50 bytes.
 */
export class PodCounts {
  readonly #groups = new Map<string, Counted>();
  readonly #groupOf = new Map<string, Counted>();

  apply(event: ResourceEvent<PodMetadata>): void {
    const { uid, namespace } = event.identity;
    const before = this.#groupOf.get(uid);
    if (event.type === 'deleted') {
      this.#groupOf.delete(uid);
      this.#leave(before);
      return;
    }
    const { labels = NO_LABELS, plan, deletionTimestamp } = event.object;
    const owner = deletionTimestamp === undefined ? event.object.owner : undefined;
    const key = `${namespace} ${owner ?? ''} ${plan ?? ''} ${JSON.stringify(labels)}`;
    if (key === before?.key) return;
    const group = this.#groups.get(key) ?? { key, namespace, labels, owner, plan, count: 0 };
    if (group.count === 0) this.#groups.set(key, group);
    group.count += 1;
    this.#groupOf.set(uid, group);
    this.#leave(before);
  }

  #leave(group: Counted | undefined): void {
    if (group === undefined) return;
    group.count -= 1;
    if (group.count === 0) this.#groups.delete(group.key);
  }

  groups(): Iterable<PodGroup> {
    return this.#groups.values();
  }
}

interface Counted extends PodGroup {
  readonly key: string;
  count: number;
}
