import type { Fleet } from '../core/cluster/fleet.ts';
import type { KubeConnection } from '../kube/connection.ts';
import { asFailure, type RestartReason, type WatchFailure } from '../kube/failure.ts';
import { kubeVersion } from '../kube/version.ts';
import { atMostEvery } from './at-most-every.ts';
import { FleetVersions } from './fleet.ts';
import { Backoff } from './kube/backoff.ts';
import { WATCH_LIMITS, type WatchLimits } from './kube/limits.ts';
import type { NodeProjection } from './kube/nodes.ts';
import type { ResourceEvent } from './kube/resource.ts';
import { pause } from './pause.ts';

/** Upgrades take longer than this, and a new answer counts only when it has held for ten minutes. */
const VERSION_EVERY_MS = 300_000;

/** How often to look whether a changed fleet has held long enough. */
const SETTLE_EVERY_MS = 30_000;

/** A server that answers so will not say its version to us: then it does not count. */
const WILL_NOT_SAY: ReadonlySet<RestartReason> = new Set(['Forbidden', 'NotServed', 'Refused', 'Malformed']);

export interface FleetHandlers {
  /** Another fleet is in force. */
  onFleet(fleet: Fleet): void;
  /** The question for the API server's version failed; it is asked again after the pause. */
  onFailure(failure: WatchFailure, pauseMs: number): void;
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

/** The versions of the cluster's API server, which it asks for, and of its Nodes, which it is told. */
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

  /** Whether a fleet has been told. */
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
