import type { FailureReason, KubeConnection, RawObject, Resource, WatchHandlers } from '../cluster/index.ts';
import { type ResourceWatch, type WatchOptions, watchResource } from '../cluster/index.ts';
import {
  API_VERSION,
  asError,
  type ClusterTerminationPolicy,
  cautiousPolicy,
  type DiscoveryConsumer,
  jsonIn,
  type LingerDocument,
  type LingerKind,
  parseDocument,
  Shares,
  speaksOfRestraint,
  type TerminationPolicy,
} from '../core/api/index.ts';
import { type Consumer, consumerOf } from '../core/lag/index.ts';
import { throttle } from '../timing/index.ts';

/** One of Linger's own kinds, and what is kept of each object. */
export interface CustomKind<T> {
  readonly kind: LingerKind;
  readonly path: string;
  /** How many are followed, since each decision evaluates all of them. A very long spec counts as several. */
  readonly most: number;
  /** How many of one namespace are, where that is less than its share. */
  readonly mostOfNamespace?: number;
  /** @param document of this kind, which its schema has accepted */
  readonly toValue: (document: LingerDocument) => T;
  /** Replaces an invalid object that might have been restrictive; absent: nothing replaces it. */
  readonly cautious?: (metadata: { readonly namespace: string; readonly name: string }, spec: unknown) => T;
}

export const DISCOVERY_CONSUMERS: CustomKind<Consumer> = {
  kind: 'DiscoveryConsumer',
  path: `/apis/${API_VERSION}/discoveryconsumers`,
  // Each may get a row in the published table.
  most: 200,
  toValue: (document) => {
    const { metadata, spec } = document as DiscoveryConsumer;
    return consumerOf(metadata.name, spec);
  },
};

/** Beyond this number no operator can tell which ones apply. */
const MOST_POLICIES = 10_000;
/** Each of a namespace's reviews tries all of these, and so does the status of each: a million trials, a second. */
const MOST_OF_NAMESPACE = 1_000;

export const CLUSTER_TERMINATION_POLICIES: CustomKind<ClusterTerminationPolicy> = {
  kind: 'ClusterTerminationPolicy',
  path: `/apis/${API_VERSION}/clusterterminationpolicies`,
  most: MOST_POLICIES,
  toValue: (document) => document as ClusterTerminationPolicy,
  cautious: (metadata, spec) =>
    cautiousPolicy('ClusterTerminationPolicy', metadata, spec) as ClusterTerminationPolicy,
};

export const TERMINATION_POLICIES: CustomKind<TerminationPolicy> = {
  kind: 'TerminationPolicy',
  path: `/apis/${API_VERSION}/terminationpolicies`,
  most: MOST_POLICIES,
  mostOfNamespace: MOST_OF_NAMESPACE,
  toValue: (document) => document as TerminationPolicy,
  cautious: (metadata, spec) => cautiousPolicy('TerminationPolicy', metadata, spec) as TerminationPolicy,
};

export interface CustomObject<T> {
  /** Empty where the kind is cluster-scoped. */
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation: number | undefined;
  /** The value in force; undefined: the spec is invalid for this version of Linger, and no earlier valid spec is known. */
  readonly value: T | undefined;
  /** The spec that {@link value} was parsed from, as text; undefined: none. */
  readonly good: string | undefined;
  /** Why the spec is invalid; names every field that is wrong. */
  readonly problem: string | undefined;
  /** The spec as canonical text: equal specs have equal texts. */
  readonly spec: string;
  readonly status: unknown;
  /** RFC 3339. */
  readonly created: string;
}

/** By namespace and name, or by name where the kind is cluster-scoped. */
export function customKey({ namespace, name }: Pick<CustomObject<unknown>, 'namespace' | 'name'>): string {
  return namespace === '' ? name : `${namespace}/${name}`;
}

/** What applies instead of a spec that cannot be read. */
export function effectOf({ value, good }: Pick<CustomObject<unknown>, 'value' | 'good'>): string {
  if (value === undefined) return 'none of it is in force';
  if (good !== undefined) return 'its last good spec stays in force';
  return 'no good spec of it is known, so the pods that it may select are kept in Audit';
}

export function customResource<T>(kind: CustomKind<T>): Resource<CustomObject<T>> {
  return { path: kind.path, project: (raw) => customObject(kind, raw) };
}

/** Never throws: an invalid object must not stop the others from being followed. */
function customObject<T>(kind: CustomKind<T>, { metadata, spec, status }: RawObject): CustomObject<T> {
  const { namespace = '', name, uid, resourceVersion, generation, creationTimestamp = '' } = metadata;
  const identity = { namespace, name, uid, resourceVersion, generation, created: creationTimestamp };
  const text = JSON.stringify(spec) ?? '';
  const object = { ...identity, spec: text, status };
  const { value, problem } = readSpec(kind, identity, spec);
  return { ...object, value, problem, good: value === undefined ? undefined : text };
}

function readSpec<T>(
  kind: CustomKind<T>,
  { namespace, name }: { readonly namespace: string; readonly name: string },
  spec: unknown,
): { readonly value: T | undefined; readonly problem: string | undefined } {
  try {
    const named = namespace === '' ? { name } : { name, namespace };
    const document = { apiVersion: API_VERSION, kind: kind.kind, metadata: named, spec };
    return { value: kind.toValue(parseDocument(document, name)), problem: undefined };
  } catch (error) {
    const { message } = asError(error);
    const prefix = `${name}: ${kind.kind}: `;
    return {
      value: undefined,
      problem: message.startsWith(prefix) ? message.slice(prefix.length) : message,
    };
  }
}

/**
 * What is in force for an invalid object of which this replica knows no valid spec. A policy that may have been restrictive
 * keeps its pods in Audit: it had another spec before (its generation shows that), or is restrictive as it stands.
 */
function standIn<T>(kind: CustomKind<T>, object: CustomObject<T>): Pick<CustomObject<T>, 'value' | 'good'> {
  const spec = jsonIn(object.spec);
  const holds = (object.generation ?? 1) > 1 || speaksOfRestraint(spec);
  return { value: holds ? kind.cautious?.(object, spec) : undefined, good: undefined };
}

function weightOf({ spec }: Pick<CustomObject<unknown>, 'spec'>): number {
  return 1 + Math.floor(spec.length / SPEC_OF_ONE);
}

/** Ten times the usual length of a policy. The longest that the API server accepts have 100 kB. */
const SPEC_OF_ONE = 4_096;

/** Calls are synchronous. That a kind is not served is no failure. */
export interface CustomHandlers<T>
  extends Required<Pick<WatchHandlers<T>, 'onFailure' | 'onCurrent' | 'onHandlerError'>> {
  /**
   * Called, in order of names, once all have been read and after changes of valid specs; many changes come as one.
   * @returns a promise that resolves once they are in force; until then they do not count as read
   */
  onValues(values: readonly T[]): Promise<void> | void;
  /** An object's spec is invalid, or there is no room for it; or (undefined) not any more. */
  onProblem(name: string, problem: string | undefined): void;
  /** Called when the kind starts or stops being served: without its CRD, only files declare such objects. */
  onServed(served: boolean): void;
}

export interface CustomObjects<T> extends ResourceWatch {
  /** Resolves once the first response, a list or an error, has taken effect; may never resolve. */
  readonly read: Promise<void>;
  /** Whether all existing objects are known: they have been listed, or the kind has not been served for a while. */
  known(): boolean;
  /** undefined: the API server has not said, for example because it denies access. */
  served(): boolean | undefined;
  /** By namespace and name, in their order. */
  objects(): readonly CustomObject<T>[];
  /** The keys of those for which there is no room; they are taken in within minutes once there is. */
  leftOut(): readonly string[];
}

/**
 * How long a kind must have been unserved before its objects count as gone: their measurements are then discarded,
 * and an API server that has just started may not know the kind yet.
 */
const ABSENT_AFTER_MS = 3_000;

/** A CRD that is installed later is noticed within this time: without the CRD, 404 is the normal response. */
const LONGEST_PAUSE_MS = 45_000;

/** The RBAC rules may be older than this version: then only files declare the objects, and the log says why. */
const NONE_FOR_US: ReadonlySet<FailureReason> = new Set(['NotServed', 'Forbidden']);

/** 10,000 policies take some 30 ms, in pieces: a tenant who keeps rewriting one costs little at this interval. */
const CHANGES_EVERY_MS = 250;

/** Follows the objects of a kind until the signal aborts, also where its CRD is not installed. */
export function followCustomResources<T>(
  kind: CustomKind<T>,
  connection: KubeConnection,
  handlers: CustomHandlers<T>,
  options: WatchOptions,
): CustomObjects<T> {
  const objects = new Map<string, CustomObject<T>>();
  let shares = new Shares();
  /** The uids, by key, of objects that do not fit. Nothing else of them is kept, because there may be any number. */
  const leftOut = new Map<string, string>();
  const read = Promise.withResolvers<void>();
  let served: boolean | undefined;
  let listed = false;
  let known = false;
  /** When the kind was first found unserved; undefined: it is served, or that is not known. */
  let absentSince: number | undefined;

  const sorted = () => [...objects].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
  const change = () =>
    handlers.onValues(sorted().flatMap(({ value }) => (value === undefined ? [] : [value])));
  const changeSoon = throttle(CHANGES_EVERY_MS, change, options);
  /** The first list is passed on as a whole. */
  const changed = () => {
    if (listed) changeSoon();
  };

  const { most, mostOfNamespace = most } = kind;
  const leaveOut = (key: string, uid: string) => {
    if (leftOut.get(key) === uid) return;
    leftOut.set(key, uid);
    const within = mostOfNamespace < most ? `, ${mostOfNamespace} of a namespace` : '';
    handlers.onProblem(
      key,
      `only ${most} objects of kind ${kind.kind} are followed${within}; it is left out`,
    );
  };

  /** A namespace takes no more than it leaves to the others; a kind without namespaces has all the room. */
  const hasRoom = (object: CustomObject<T>): boolean => {
    const weight = weightOf(object);
    const { namespace } = object;
    if (namespace === '') return shares.total + weight <= most;
    return shares.hasRoomFor(namespace, weight, most) && shares.of(namespace) + weight <= mostOfNamespace;
  };

  const forget = (key: string, object: CustomObject<T>) => {
    objects.delete(key);
    shares.add(object.namespace, -weightOf(object));
    changed();
  };

  const put = (key: string, object: CustomObject<T>) => {
    const before = objects.get(key);
    if (before !== undefined) shares.add(before.namespace, -weightOf(before));
    if (!hasRoom(object)) {
      if (before !== undefined) {
        objects.delete(key);
        changed();
      }
      leaveOut(key, object.uid);
      return;
    }
    const isBack = leftOut.delete(key);
    shares.add(object.namespace, weightOf(object));
    const mine = before?.uid === object.uid ? before : undefined;
    // Most changes are to the status, which Linger writes itself: nothing has to be recomputed for them.
    const inForce = mine?.spec === object.spec ? mine : inForceOf(object, mine);
    const { value, good } = inForce;
    objects.set(key, { ...object, value, good });
    if (isBack || before?.problem !== object.problem) handlers.onProblem(key, object.problem);
    if (value !== before?.value) changed();
  };

  const inForceOf = (object: CustomObject<T>, before: CustomObject<T> | undefined) => {
    if (object.value !== undefined) return object;
    if (before?.good !== undefined) return before;
    return standIn(kind, object);
  };

  const remove = (key: string, uid: string) => {
    if (leftOut.get(key) === uid) {
      leftOut.delete(key);
      handlers.onProblem(key, undefined);
    }
    const before = objects.get(key);
    // A list that finds another object of the name reports the end of the one before after its beginning.
    if (before?.uid !== uid) return;
    forget(key, before);
    if (before.problem !== undefined) handlers.onProblem(key, undefined);
  };

  const setServed = (now: boolean) => {
    if (now === served) return;
    served = now;
    handlers.onServed(served);
  };

  const listEnds = () => {
    known = true;
    absentSince = undefined;
    setServed(true);
    const first = !listed;
    listed = true;
    void Promise.resolve(first ? change() : undefined).then(read.resolve);
  };

  /** When a CRD is deleted, so is every object of its kind. */
  const notServed = () => {
    const now = options.clock();
    absentSince ??= now;
    setServed(false);
    if (now - absentSince < ABSENT_AFTER_MS) return;
    known = true;
    if (objects.size === 0) return;
    objects.clear();
    leftOut.clear();
    shares = new Shares();
    changed();
  };

  const watch = watchResource(
    customResource(kind),
    connection,
    {
      onEvent: (event) => {
        const { namespace, name, uid } = event.identity;
        const key = customKey({ namespace, name });
        if (event.type === 'deleted') remove(key, uid);
        else put(key, event.object);
      },
      onListed: listEnds,
      onCurrent: handlers.onCurrent,
      onFailure: (failure, pauseMs) => {
        if (failure.reason === 'NotServed') notServed();
        else {
          // A server that fails in between may have been started twice.
          absentSince = undefined;
          handlers.onFailure(failure, pauseMs);
        }
        if (NONE_FOR_US.has(failure.reason)) read.resolve();
      },
      onHandlerError: handlers.onHandlerError,
    },
    {
      ...options,
      limits: { longestPauseMs: LONGEST_PAUSE_MS, ...options.limits },
      relist: () => leftOut.size > 0 && shares.total < kind.most,
    },
  );
  return {
    read: read.promise,
    known: () => known,
    served: () => served,
    objects: sorted,
    leftOut: () => [...leftOut.keys()],
    ...watch,
  };
}
