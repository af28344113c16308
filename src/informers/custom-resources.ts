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

/** One of Linger's own kinds, and what to keep of each object. */
export interface CustomKind<T> {
  readonly kind: LingerKind;
  readonly path: string;
  /**
   * How many objects are followed, limited because each decision evaluates all of them. One with a very long spec counts as
   * several.
   */
  readonly most: number;
  /** How many of them may be in one namespace, if that is less than its share. */
  readonly mostOfNamespace?: number;
  /** @param document of this kind, which the schema has accepted */
  readonly toValue: (document: LingerDocument) => T;
  /** Returns a replacement for an invalid object that may have been restrictive; absent: there is none. */
  readonly cautious?: (metadata: { readonly namespace: string; readonly name: string }, spec: unknown) => T;
}

export const DISCOVERY_CONSUMERS: CustomKind<Consumer> = {
  kind: 'DiscoveryConsumer',
  path: `/apis/${API_VERSION}/discoveryconsumers`,
  // Limited, because each may get a row in the published table.
  most: 200,
  toValue: (document) => {
    const { metadata, spec } = document as DiscoveryConsumer;
    return consumerOf(metadata.name, spec);
  },
};

/** With more than this, no operator could tell which ones apply. */
const MOST_POLICIES = 10_000;
/**
 * Each review of a namespace tries all of its policies, and so does the status of each policy: that is a million trials, or
 * one second.
 */
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
  /** Empty if the kind is cluster-scoped. */
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation: number | undefined;
  /**
   * The value that applies; undefined: the spec is invalid for this version of Linger, and no earlier valid spec is known.
   */
  readonly value: T | undefined;
  /** The text of the spec from which {@link value} was parsed; undefined: there is none. */
  readonly good: string | undefined;
  /** Why the spec is invalid, naming every field that is wrong. */
  readonly problem: string | undefined;
  /** The spec as canonical text, so that equal specs have equal texts. */
  readonly spec: string;
  readonly status: unknown;
  /** RFC 3339. */
  readonly created: string;
}

/** Consists of namespace and name; of the name alone if the kind is cluster-scoped. */
export function customKey({ namespace, name }: Pick<CustomObject<unknown>, 'namespace' | 'name'>): string {
  return namespace === '' ? name : `${namespace}/${name}`;
}

/** What applies instead of a spec that cannot be read, in words. */
export function effectOf({ value, good }: Pick<CustomObject<unknown>, 'value' | 'good'>): string {
  if (value === undefined) return 'none of it is in force';
  if (good !== undefined) return 'its last good spec stays in force';
  return 'no good spec of it is known, so the pods that it may select are kept in Audit';
}

export function customResource<T>(kind: CustomKind<T>): Resource<CustomObject<T>> {
  return { path: kind.path, project: (raw) => customObject(kind, raw) };
}

/** Never throws, because an invalid object must not prevent others from being followed. */
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
 * What applies for an invalid object of which this replica knows no valid spec. A policy that may have been restrictive
 * keeps its pods in Audit: either it had another spec before (as its generation shows), or it is restrictive as it is.
 */
function standIn<T>(kind: CustomKind<T>, object: CustomObject<T>): Pick<CustomObject<T>, 'value' | 'good'> {
  const spec = jsonIn(object.spec);
  const holds = (object.generation ?? 1) > 1 || speaksOfRestraint(spec);
  return { value: holds ? kind.cautious?.(object, spec) : undefined, good: undefined };
}

function weightOf({ spec }: Pick<CustomObject<unknown>, 'spec'>): number {
  return 1 + Math.floor(spec.length / SPEC_OF_ONE);
}

/** Ten times the usual length of a policy. The longest specs that the API server accepts have 100 kB. */
const SPEC_OF_ONE = 4_096;

/** Calls are synchronous. A kind that is not served is not a failure. */
export interface CustomHandlers<T>
  extends Required<Pick<WatchHandlers<T>, 'onFailure' | 'onCurrent' | 'onHandlerError'>> {
  /**
   * Called with the values in order of names: once all have been read, and after changes of valid specs, several of which
   * are combined.
   * @returns a promise that resolves once the values apply; until then they do not count as read
   */
  onValues(values: readonly T[]): Promise<void> | void;
  /** Called when an object's spec is invalid, or there is no room for it; with undefined once that is over. */
  onProblem(name: string, problem: string | undefined): void;
  /** Called when the kind starts or stops being served. Without its CRD, only files can declare such objects. */
  onServed(served: boolean): void;
}

export interface CustomObjects<T> extends ResourceWatch {
  /** Resolves once the first response, a list or an error, has been processed; may never resolve. */
  readonly read: Promise<void>;
  /** Whether all existing objects are known: they have been listed, or the kind has not been served for a while. */
  known(): boolean;
  /** undefined: the API server has not shown that, for example because it denies access. */
  served(): boolean | undefined;
  /** In order of namespace and name. */
  objects(): readonly CustomObject<T>[];
  /** The keys of objects for which there is no room. Once there is, they are added within minutes. */
  leftOut(): readonly string[];
}

/**
 * How long a kind must be unserved before its objects count as gone. Their measurements are then discarded, and an API
 * server that has just started may not know the kind yet.
 */
const ABSENT_AFTER_MS = 3_000;

/** How soon a CRD that is installed later is noticed: without the CRD, 404 is the normal response. */
const LONGEST_PAUSE_MS = 45_000;

/**
 * Failures after which the kind counts as read. If the RBAC rules are older than this version, only files declare objects,
 * and the log says why.
 */
const NONE_FOR_US: ReadonlySet<FailureReason> = new Set(['NotServed', 'Forbidden']);

/**
 * Computing 10,000 policies takes some 30 ms, in pieces. With this interval, a tenant who keeps rewriting one policy costs
 * little.
 */
const CHANGES_EVERY_MS = 250;

/** Follows the objects of a kind until the signal aborts, even if its CRD is not installed. */
export function followCustomResources<T>(
  kind: CustomKind<T>,
  connection: KubeConnection,
  handlers: CustomHandlers<T>,
  options: WatchOptions,
): CustomObjects<T> {
  const objects = new Map<string, CustomObject<T>>();
  let shares = new Shares();
  /**
   * The uids of objects for which there is no room, by key. Nothing else of them is kept, because there may be any number.
   */
  const leftOut = new Map<string, string>();
  const read = Promise.withResolvers<void>();
  let served: boolean | undefined;
  let listed = false;
  let known = false;
  /** When the kind was first found to be unserved; undefined: it is served, or that is not known. */
  let absentSince: number | undefined;

  const sorted = () => [...objects].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
  const change = () =>
    handlers.onValues(sorted().flatMap(({ value }) => (value === undefined ? [] : [value])));
  const changeSoon = throttle(CHANGES_EVERY_MS, change, options);
  /** Reports a change; during the first list nothing is reported, since it is passed on as a whole. */
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

  /** A namespace may take no more room than it leaves for the others. A kind without namespaces has all the room. */
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
    // Most changes are to the status, which Linger writes itself, and require nothing to be recomputed.
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
    // If a list finds another object of the same name, the end of the earlier one is reported only after the new one.
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

  /** When a CRD is deleted, so are all objects of its kind. */
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
          // If the server fails in between, it may have been started twice, so begin to count again.
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
