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
import { type WatchOptions, watchResource } from './reflector.ts';
import type { RawObject, Resource, ResourceEvent, WatchStats } from './resource.ts';

/** One of Linger's own kinds, and what is kept of its objects. */
export interface CustomKind<T> {
  readonly kind: LingerKind;
  /** Of the collection. */
  readonly path: string;
  /** How many are followed: each pod is decided by all of them. */
  readonly most: number;
  /** @param document of this kind, which its schema has accepted */
  readonly toValue: (document: LingerDocument) => T;
}

/** Every consumer may have a row in what the leader publishes. */
export const DISCOVERY_CONSUMERS: CustomKind<Consumer> = {
  kind: 'DiscoveryConsumer',
  path: `/apis/${API_VERSION}/discoveryconsumers`,
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

/** An object of such a kind as the API server has it. */
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
  /** As the API server has it; Linger writes it, as a rule. */
  readonly status: unknown;
}

export function customResource<T>(kind: CustomKind<T>): Resource<CustomObject<T>> {
  return { path: kind.path, afterMetadata: 'spec', project: (raw) => customObject(kind, raw) };
}

/** Never throws: an object that cannot be read must not keep the others from being followed. */
function customObject<T>(kind: CustomKind<T>, { metadata, spec, status }: RawObject): CustomObject<T> {
  const { namespace = '', name, uid, resourceVersion, generation } = metadata;
  const object = {
    namespace,
    name,
    uid,
    resourceVersion,
    generation,
    spec: JSON.stringify(spec) ?? '',
    status,
  };
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
  /** Called once they have been read, and after changes of what can be read of them; many come as one. By name. */
  onValues(values: readonly T[]): void;
  /** The spec of one cannot be read, or (undefined) can be again. Its last good one stays in force. */
  onProblem(name: string, problem: string | undefined): void;
  /** Whether the kind is served, called when that changes: without its CRD, only files declare such objects. */
  onServed(served: boolean): void;
  /** Not for a kind that is not served: that is no failure. */
  onFailure(failure: KubeFailure, pauseMs: number): void;
  onCurrent(): void;
  /** What a handler threw. */
  onHandlerError(error: Error): void;
}

/** The objects of a kind, as they are followed. */
export interface CustomObjects<T> {
  /** Resolves once the API server has given an answer: all of them, or that there are none for us. It may never. */
  readonly read: Promise<void>;
  /** Whether it is certain which ones there are: they have been listed, or the kind has not been served for a while. */
  known(): boolean;
  served(): boolean;
  /** By namespace and name, in their order. */
  objects(): readonly CustomObject<T>[];
  readonly stats: WatchStats;
  /** Resolves once the signal has aborted and every connection is closed. */
  readonly ended: Promise<void>;
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

/** 10,000 policies are sorted and compiled in some 30 ms: a tenant who rewrites one all the time costs little by this. */
const CHANGES_EVERY_MS = 250;

/** Follows the objects of a kind until the signal aborts, also where its CRD is not installed. */
export function followCustomResources<T>(
  kind: CustomKind<T>,
  connection: KubeConnection,
  handlers: CustomHandlers<T>,
  options: WatchOptions,
): CustomObjects<T> {
  return new FollowedObjects(kind, handlers, options).start(connection);
}

class FollowedObjects<T> {
  readonly #kind: CustomKind<T>;
  readonly #handlers: CustomHandlers<T>;
  readonly #options: WatchOptions;
  readonly #objects = new Map<string, CustomObject<T>>();
  readonly #read = Promise.withResolvers<void>();
  #served: boolean | undefined;
  #listed = false;
  #known = false;
  readonly #changeSoon: () => void;
  /** Since when the kind has not been served; undefined: it is, or that is not known. */
  #absentSince: number | undefined;

  constructor(kind: CustomKind<T>, handlers: CustomHandlers<T>, options: WatchOptions) {
    this.#kind = kind;
    this.#handlers = handlers;
    this.#options = { ...options, limits: { longestPauseMs: LONGEST_PAUSE_MS, ...options.limits } };
    this.#changeSoon = atMostEvery(CHANGES_EVERY_MS, () => this.#change(), options);
  }

  start(connection: KubeConnection): CustomObjects<T> {
    const handlers = {
      onEvent: (event: ResourceEvent<CustomObject<T>>) => this.#take(event),
      onStream: ({ type }: { readonly type: string }) => {
        if (type === 'ListEnds') this.#listEnds();
        if (type === 'StreamCurrent') this.#handlers.onCurrent();
      },
      onFailure: (failure: KubeFailure, pauseMs: number) => this.#failed(failure, pauseMs),
      onHandlerError: this.#handlers.onHandlerError,
    };
    return {
      read: this.#read.promise,
      known: () => this.#known,
      served: () => this.#served === true,
      objects: () => this.#sorted(),
      ...watchResource(customResource(this.#kind), connection, handlers, this.#options),
    };
  }

  #take(event: ResourceEvent<CustomObject<T>>): void {
    const { namespace, name } = event.identity;
    const key = namespace === '' ? name : `${namespace}/${name}`;
    const before = this.#objects.get(key);
    if (event.type === 'deleted') {
      // A list that finds another object of the name reports the end of the one before after its beginning.
      if (before?.uid !== event.identity.uid) return;
      this.#objects.delete(key);
      if (before.problem !== undefined) this.#handlers.onProblem(key, undefined);
      this.#changed();
      return;
    }
    const { object } = event;
    const { kind, most } = this.#kind;
    if (before === undefined && this.#objects.size >= most) {
      this.#handlers.onProblem(key, `only ${most} objects of kind ${kind} are followed; it is left out`);
      return;
    }
    // Another object of the same name has no last good spec.
    const lastGood = before?.uid === object.uid ? before.value : undefined;
    // Most changes are of the status, which Linger writes itself: nothing else is to be made anew for them.
    const value = before?.spec === object.spec ? before.value : (object.value ?? lastGood);
    this.#objects.set(key, { ...object, value });
    if (before?.problem !== object.problem) this.#handlers.onProblem(key, object.problem);
    if (value !== before?.value) this.#changed();
  }

  #listEnds(): void {
    const first = !this.#listed;
    this.#listed = true;
    this.#known = true;
    this.#absentSince = undefined;
    this.#setServed(true);
    if (first) this.#change();
    this.#read.resolve();
  }

  #failed(failure: KubeFailure, pauseMs: number): void {
    if (failure.reason === 'NotServed') this.#notServed();
    else this.#handlers.onFailure(failure, pauseMs);
    if (NONE_FOR_US.has(failure.reason)) this.#read.resolve();
  }

  /** With its CRD, every object of a kind is gone. */
  #notServed(): void {
    const now = this.#options.clock();
    this.#absentSince ??= now;
    this.#setServed(false);
    if (now - this.#absentSince < ABSENT_AFTER_MS) return;
    this.#known = true;
    if (this.#objects.size === 0) return;
    this.#objects.clear();
    this.#changed();
  }

  #setServed(served: boolean): void {
    if (served === this.#served) return;
    this.#served = served;
    this.#handlers.onServed(served);
  }

  /** The first list counts as a whole. */
  #changed(): void {
    if (this.#listed) this.#changeSoon();
  }

  #change(): void {
    this.#handlers.onValues(this.#sorted().flatMap(({ value }) => (value === undefined ? [] : [value])));
  }

  #sorted(): readonly CustomObject<T>[] {
    return [...this.#objects].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, object]) => object);
  }
}
