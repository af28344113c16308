import {
  API_VERSION,
  asError,
  type ClusterTerminationPolicy,
  type DiscoveryConsumer,
  type LingerDocument,
  type LingerKind,
  parseDocument,
  type TerminationPolicy,
} from '../api/index.ts';
import { type Consumer, consumerOf } from '../lag/index.ts';
import { atMostEvery } from '../timing/index.ts';
import type { KubeConnection } from './connection.ts';
import type { FailureReason, KubeFailure } from './failure.ts';
import { type ResourceWatch, type WatchOptions, watchResource } from './reflector.ts';
import type { RawObject, Resource } from './resource.ts';

/** One of Linger's own kinds, and what is kept of its objects. */
export interface CustomKind<T> {
  readonly kind: LingerKind;
  readonly path: string;
  /** How many are followed: each pod is decided by all of them. */
  readonly most: number;
  /** @param document of this kind, which its schema has accepted */
  readonly toValue: (document: LingerDocument) => T;
}

export const DISCOVERY_CONSUMERS: CustomKind<Consumer> = {
  kind: 'DiscoveryConsumer',
  path: `/apis/${API_VERSION}/discoveryconsumers`,
  // Every consumer may have a row in what the leader publishes.
  most: 200,
  toValue: (document) => {
    const { metadata, spec } = document as DiscoveryConsumer;
    return consumerOf(metadata.name, spec);
  },
};

/** With more of them than this, an operator has lost sight of what applies. */
const MOST_POLICIES = 10_000;

export const CLUSTER_TERMINATION_POLICIES: CustomKind<ClusterTerminationPolicy> = {
  kind: 'ClusterTerminationPolicy',
  path: `/apis/${API_VERSION}/clusterterminationpolicies`,
  most: MOST_POLICIES,
  toValue: (document) => document as ClusterTerminationPolicy,
};

export const TERMINATION_POLICIES: CustomKind<TerminationPolicy> = {
  kind: 'TerminationPolicy',
  path: `/apis/${API_VERSION}/terminationpolicies`,
  most: MOST_POLICIES,
  toValue: (document) => document as TerminationPolicy,
};

export interface CustomObject<T> {
  /** Empty where the kind is cluster-scoped. */
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly generation: number | undefined;
  /** undefined: this version of Linger cannot read it, and has not read an earlier one. */
  readonly value: T | undefined;
  /** Why it cannot; names every field that is wrong. */
  readonly problem: string | undefined;
  /** The spec as text: the same for two that say the same. */
  readonly spec: string;
  readonly status: unknown;
}

export function customResource<T>(kind: CustomKind<T>): Resource<CustomObject<T>> {
  return { path: kind.path, afterMetadata: 'spec', project: (raw) => customObject(kind, raw) };
}

/** Never throws: an object that cannot be read must not keep the others from being followed. */
function customObject<T>(kind: CustomKind<T>, { metadata, spec, status }: RawObject): CustomObject<T> {
  const { namespace = '', name, uid, resourceVersion, generation } = metadata;
  const identity = { namespace, name, uid, resourceVersion, generation };
  const object = { ...identity, spec: JSON.stringify(spec) ?? '', status };
  try {
    const named = namespace === '' ? { name } : { name, namespace };
    const document = { apiVersion: API_VERSION, kind: kind.kind, metadata: named, spec };
    return { ...object, value: kind.toValue(parseDocument(document, name)), problem: undefined };
  } catch (error) {
    const { message } = asError(error);
    const prefix = `${name}: ${kind.kind}: `;
    const problem = message.startsWith(prefix) ? message.slice(prefix.length) : message;
    return { ...object, value: undefined, problem };
  }
}

/** Calls are synchronous. */
export interface CustomHandlers<T> {
  /**
   * Called once they have been read, and after changes of what can be read of them; many come as one. By name.
   * @returns once they are in force: they have not been read before
   */
  onValues(values: readonly T[]): Promise<void> | void;
  /** The spec of one cannot be read, or (undefined) can be again. Its last good one stays in force. */
  onProblem(name: string, problem: string | undefined): void;
  /** Whether the kind is served, called when that changes: without its CRD, only files declare such objects. */
  onServed(served: boolean): void;
  /** Not for a kind that is not served: that is no failure. */
  onFailure(failure: KubeFailure, pauseMs: number): void;
  onCurrent(): void;
  onHandlerError(error: Error): void;
}

export interface CustomObjects<T> extends ResourceWatch {
  /** Resolves once the API server has given an answer, all of them or that there are none for us, and that is in force. It may never. */
  readonly read: Promise<void>;
  /** Whether it is certain which ones there are: they have been listed, or the kind has not been served for a while. */
  known(): boolean;
  served(): boolean;
  /** By namespace and name, in their order. */
  objects(): readonly CustomObject<T>[];
}

/**
 * How long a kind must not have been served for that to be believed: what has been measured of its objects is forgotten
 * then, and an API server that has just started might not know the kind yet.
 */
const ABSENT_AFTER_MS = 3_000;

/** A CRD that is installed later is found within this: without it, 404 is the normal answer. */
const LONGEST_PAUSE_MS = 45_000;

/** Our rights may be older than this version: then files declare the objects, and the log says why. */
const NONE_FOR_US: ReadonlySet<FailureReason> = new Set(['NotServed', 'Forbidden']);

/** 10,000 policies are sorted and compiled in some 30 ms, piece by piece: a tenant who rewrites one all the time costs little by this. */
const CHANGES_EVERY_MS = 250;

/** Follows the objects of a kind until the signal aborts, also where its CRD is not installed. */
export function followCustomResources<T>(
  kind: CustomKind<T>,
  connection: KubeConnection,
  handlers: CustomHandlers<T>,
  options: WatchOptions,
): CustomObjects<T> {
  const objects = new Map<string, CustomObject<T>>();
  const read = Promise.withResolvers<void>();
  let served: boolean | undefined;
  let listed = false;
  let known = false;
  /** Since when the kind has not been served; undefined: it is, or that is not known. */
  let absentSince: number | undefined;

  const sorted = () => [...objects].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
  const change = () =>
    handlers.onValues(sorted().flatMap(({ value }) => (value === undefined ? [] : [value])));
  const changeSoon = atMostEvery(CHANGES_EVERY_MS, change, options);
  /** The first list counts as a whole. */
  const changed = () => {
    if (listed) changeSoon();
  };

  const put = (key: string, object: CustomObject<T>) => {
    const before = objects.get(key);
    if (before === undefined && objects.size >= kind.most) {
      const problem = `only ${kind.most} objects of kind ${kind.kind} are followed; it is left out`;
      handlers.onProblem(key, problem);
      return;
    }
    // Another object of the same name has no last good spec.
    const lastGood = before?.uid === object.uid ? before.value : undefined;
    // Most changes are of the status, which Linger writes itself: nothing else is to be made anew for them.
    const value = before?.spec === object.spec ? before.value : (object.value ?? lastGood);
    objects.set(key, { ...object, value });
    if (before?.problem !== object.problem) handlers.onProblem(key, object.problem);
    if (value !== before?.value) changed();
  };

  const remove = (key: string, uid: string) => {
    const before = objects.get(key);
    // A list that finds another object of the name reports the end of the one before after its beginning.
    if (before?.uid !== uid) return;
    objects.delete(key);
    if (before.problem !== undefined) handlers.onProblem(key, undefined);
    changed();
  };

  const setServed = (now: boolean) => {
    if (now === served) return;
    served = now;
    handlers.onServed(served);
  };

  const listEnds = () => {
    const first = !listed;
    listed = true;
    known = true;
    absentSince = undefined;
    setServed(true);
    void Promise.resolve(first ? change() : undefined).then(() => read.resolve());
  };

  /** With its CRD, every object of a kind is gone. */
  const notServed = () => {
    const now = options.clock();
    absentSince ??= now;
    setServed(false);
    if (now - absentSince < ABSENT_AFTER_MS) return;
    known = true;
    if (objects.size === 0) return;
    objects.clear();
    changed();
  };

  const watch = watchResource(
    customResource(kind),
    connection,
    {
      onEvent: (event) => {
        const { namespace, name, uid } = event.identity;
        const key = namespace === '' ? name : `${namespace}/${name}`;
        if (event.type === 'deleted') remove(key, uid);
        else put(key, event.object);
      },
      onStream: ({ type }) => {
        if (type === 'ListEnds') listEnds();
        if (type === 'StreamCurrent') handlers.onCurrent();
      },
      onFailure: (failure, pauseMs) => {
        if (failure.reason === 'NotServed') notServed();
        else handlers.onFailure(failure, pauseMs);
        if (NONE_FOR_US.has(failure.reason)) read.resolve();
      },
      onHandlerError: handlers.onHandlerError,
    },
    { ...options, limits: { longestPauseMs: LONGEST_PAUSE_MS, ...options.limits } },
  );
  return {
    read: read.promise,
    known: () => known,
    served: () => served === true,
    objects: sorted,
    ...watch,
  };
}
