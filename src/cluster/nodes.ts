import { isRecord, isString } from '../api/index.ts';
import {
  type Fleet,
  fleetOf,
  type NodeVersion,
  type SettlingFleet,
  settle,
  UNSETTLED,
} from '../decision/index.ts';
import { atMostEvery, Backoff, pause } from '../timing/index.ts';
import { kubeVersion } from './client.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure, type FailureReason, type KubeFailure } from './failure.ts';
import {
  type RawObject,
  type Resource,
  type ResourceEvent,
  WATCH_LIMITS,
  type WatchLimits,
} from './resource.ts';

export interface NodeProjection extends NodeVersion {
  readonly name: string;
}

/**
 * Labels by which virtual nodes say so: `type=virtual-kubelet` is set by virtual-kubelet and the clouds' nodes that are
 * made of it, `type=kwok` by KWOK's; Liqo has one of its own.
 */
const VIRTUAL_TYPES: ReadonlySet<string> = new Set(['virtual-kubelet', 'kwok']);
const LIQO_TYPE = 'liqo.io/type';

/** Keeps ordinary pods off a virtual node. Source: virtual-kubelet cmd/virtual-kubelet (DefaultTaintKey). */
const VIRTUAL_TAINT = 'virtual-kubelet.io/provider';

/** Nodes whole: their metadata do not say which kubelet they run. */
export function nodesResource(): Resource<NodeProjection> {
  return { path: '/api/v1/nodes', afterMetadata: 'spec', project: projectNode };
}

export function projectNode({ metadata, spec, status }: RawObject): NodeProjection {
  const { name, labels = {} } = metadata;
  const nodeInfo = isRecord(status) ? status.nodeInfo : undefined;
  const version = isRecord(nodeInfo) ? nodeInfo.kubeletVersion : undefined;
  const virtual =
    VIRTUAL_TYPES.has(labels.type ?? '') || labels[LIQO_TYPE] === 'virtual-node' || isTaintedVirtual(spec);
  return { name, kubeletVersion: isString(version) ? version : '', virtual };
}

function isTaintedVirtual(spec: unknown): boolean {
  const taints = isRecord(spec) ? spec.taints : undefined;
  return Array.isArray(taints) && taints.some((taint) => isRecord(taint) && taint.key === VIRTUAL_TAINT);
}

/** The versions that the cluster's Nodes and its API server report, as they change. */
export class FleetVersions {
  readonly #nodes = new Map<string, NodeVersion>();
  #apiServer: string | undefined;
  #nodesListed = false;
  #state: SettlingFleet = UNSETTLED;

  /** @returns whether it says anything new: a Node's status is written every few seconds */
  putNode(name: string, { kubeletVersion, virtual }: NodeVersion): boolean {
    const before = this.#nodes.get(name);
    if (before?.kubeletVersion === kubeletVersion && before.virtual === virtual) return false;
    this.#nodes.set(name, { kubeletVersion, virtual });
    return true;
  }

  deleteNode(name: string): boolean {
    return this.#nodes.delete(name);
  }

  nodesListed(): void {
    this.#nodesListed = true;
  }

  /** @param version as it says, such as `v1.36.3`; any other text does not count */
  apiServerIs(version: string): void {
    this.#apiServer = version;
  }

  /**
   * What is in force now; see `settle` for when a change counts. To be asked after each change and now and then.
   * @param seconds of a monotonic clock
   * @returns undefined until everything has been read once: half an answer would then take ten minutes to correct
   */
  observe(seconds: number): Fleet | undefined {
    if (!this.#nodesListed || this.#apiServer === undefined) return undefined;
    this.#state = settle(this.#state, fleetOf(this.#apiServer, [...this.#nodes.values()]), seconds);
    return this.#state.inForce;
  }
}

/** Upgrades take longer than this, and a new answer counts only when it has held for ten minutes. */
const VERSION_EVERY_MS = 300_000;

/** How often to look whether a changed fleet has held long enough. */
const SETTLE_EVERY_MS = 30_000;

/** A server that answers like this does not tell us its version, so it does not count. */
const WILL_NOT_SAY: ReadonlySet<FailureReason> = new Set(['Forbidden', 'NotFound', 'Refused', 'Malformed']);

export interface FleetHandlers {
  /** Another fleet is in force. */
  onFleet(fleet: Fleet): void;
  /** The question for the API server's version failed; it is asked again after the pause. */
  onFailure(failure: KubeFailure, pauseMs: number): void;
  /** The version is known: for the first time, or again. */
  onCurrent(): void;
}

export interface FleetOptions {
  readonly signal: AbortSignal;
  /** Monotonic milliseconds. */
  readonly clock: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  readonly limits?: Partial<WatchLimits>;
  /** The least time between two looks that changed Nodes ask for. */
  readonly everyMs: number;
}

/** The versions of the API server, which it asks for now and then, and of the Nodes, whose events it is given. */
export class FollowedFleet {
  readonly #connection: KubeConnection;
  readonly #handlers: FleetHandlers;
  readonly #options: FleetOptions;
  readonly #versions = new FleetVersions();
  readonly #observeSoon: () => void;
  #told: Fleet | undefined;

  constructor(connection: KubeConnection, handlers: FleetHandlers, options: FleetOptions) {
    this.#connection = connection;
    this.#handlers = handlers;
    this.#options = options;
    this.#observeSoon = atMostEvery(options.everyMs, () => this.#observe(), options);
  }

  /** Whether `onFleet` has been called. */
  get known(): boolean {
    return this.#told !== undefined;
  }

  node(event: ResourceEvent<NodeProjection>): void {
    const { name } = event.identity;
    const gone = event.type === 'deleted';
    const changed = gone ? this.#versions.deleteNode(name) : this.#versions.putNode(name, event.object);
    if (changed) this.#observeSoon();
  }

  nodesListed(): void {
    this.#versions.nodesListed();
    this.#observe();
  }

  /** Resolves once the signal has aborted. */
  async follow(): Promise<void> {
    await Promise.all([this.#followVersion(), this.#letSettle()]);
  }

  #observe(): void {
    const fleet = this.#versions.observe(this.#options.clock() / 1000);
    if (fleet === undefined || JSON.stringify(fleet) === JSON.stringify(this.#told)) return;
    this.#told = fleet;
    this.#handlers.onFleet(fleet);
  }

  async #letSettle(): Promise<void> {
    while (await pause(SETTLE_EVERY_MS, this.#options.signal)) this.#observe();
  }

  /** Asks again and again: API servers are upgraded under a process that runs. */
  async #followVersion(): Promise<void> {
    const { signal, random, limits } = this.#options;
    const backoff = new Backoff({ ...WATCH_LIMITS, ...limits }, random);
    let known = false;
    let waitMs: number;
    do {
      try {
        this.#versions.apiServerIs(await kubeVersion(this.#connection, signal));
        known = true;
        this.#handlers.onCurrent();
        backoff.reset();
        waitMs = VERSION_EVERY_MS;
      } catch (thrown) {
        if (signal.aborted) return;
        const failure = asFailure(thrown);
        if (!known && WILL_NOT_SAY.has(failure.reason)) this.#versions.apiServerIs('');
        waitMs = backoff.next(failure.retryAfterMs);
        this.#handlers.onFailure(failure, waitMs);
      }
      this.#observeSoon();
    } while (await pause(waitMs, signal));
  }
}
