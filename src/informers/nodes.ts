import { isIP, isIPv6 } from 'node:net';
import { isDeepStrictEqual } from 'node:util';
import type { KubeConnection, WatchOptions } from '../cluster/index.ts';
import {
  asFailure,
  type FailureReason,
  type KubeFailure,
  kubeVersion,
  type RawObject,
  type Resource,
  type ResourceEvent,
  WATCH_LIMITS,
} from '../cluster/index.ts';
import { isString, listOf, memberAt, recordsAt } from '../core/api/index.ts';
import {
  type Fleet,
  fleetOf,
  type NodeFacts,
  type SettlingFleet,
  settle,
  UNSETTLED,
} from '../core/decision/index.ts';
import { Backoff, pause, throttle, tick } from '../timing/index.ts';
import { putChanged } from './kept.ts';

/**
 * Values of the label `type` that mark virtual nodes: `virtual-kubelet` is set by virtual-kubelet and by cloud providers'
 * nodes that are based on it, `kwok` by KWOK. Liqo has a label of its own.
 */
const VIRTUAL_TYPES: ReadonlySet<string> = new Set(['virtual-kubelet', 'kwok']);
const LIQO_TYPE = 'liqo.io/type';

/** The taint that keeps ordinary pods off a virtual node. Source: virtual-kubelet cmd/virtual-kubelet (DefaultTaintKey). */
const VIRTUAL_TAINT = 'virtual-kubelet.io/provider';

/** Whole Nodes, because the kubelet's version is not in the metadata. */
export function nodesResource(): Resource<NodeFacts> {
  return { path: '/api/v1/nodes', project: projectNode };
}

export function projectNode({ metadata, spec, status }: RawObject): NodeFacts {
  const { name, labels = {} } = metadata;
  const reported = (member: string) => {
    const text = memberAt(status, ['nodeInfo', member]);
    return isString(text) ? text : '';
  };
  const virtual =
    VIRTUAL_TYPES.has(labels.type ?? '') ||
    labels[LIQO_TYPE] === 'virtual-node' ||
    recordsAt(spec, 'taints').some(({ key }) => key === VIRTUAL_TAINT);
  return {
    name,
    labels,
    virtual,
    addresses: addressesOf(spec, status),
    kubeletVersion: reported('kubeletVersion'),
    operatingSystem: reported('operatingSystem'),
    architecture: reported('architecture'),
    osImage: reported('osImage'),
    containerRuntimeVersion: reported('containerRuntimeVersion'),
  };
}

/**
 * The node's own addresses, and the first of each range of its pods, which is a bridge's, if there is one (the bridge
 * plugin's `isGateway`).
 */
function addressesOf(spec: unknown, status: unknown): string[] {
  const own = recordsAt(status, 'addresses').map(({ address }) => address);
  const ranges = listOf(memberAt(spec, ['podCIDRs']))
    .filter(isString)
    .map(firstIn);
  return [...own, ...ranges].filter((each) => isString(each) && isIP(each) !== 0) as string[];
}

/** `10.0.7.1` of `10.0.7.0/24`, `fd00:7::1` of `fd00:7::/64` */
function firstIn(range: string): string | undefined {
  const [network = ''] = range.split('/');
  return isIPv6(network) ? `${network}1` : network.replace(/(?<!\d)\d+$/, (last) => String(Number(last) + 1));
}

export class FleetVersions {
  readonly #nodes = new Map<string, NodeFacts>();
  /** Cached until something changes. */
  #observed: Fleet | undefined;
  #apiServer: string | undefined;
  #nodesListed = false;
  #state: SettlingFleet = UNSETTLED;

  /** @returns whether anything relevant has changed, because a Node's status is written every few seconds */
  putNode(node: NodeFacts): boolean {
    if (!putChanged(this.#nodes, node.name, node)) return false;
    this.#observed = undefined;
    return true;
  }

  deleteNode(name: string): boolean {
    this.#observed = undefined;
    return this.#nodes.delete(name);
  }

  nodesListed(): void {
    this.#nodesListed = true;
  }

  /** @param version as reported, such as `v1.36.3`; any other text is ignored */
  apiServerIs(version: string): void {
    this.#observed = undefined;
    this.#apiServer = version;
  }

  /**
   * The current fleet; see `settle` for when a change takes effect. Call this after each change and periodically.
   * @param seconds of a monotonic clock
   * @returns undefined until everything has been read once, because correcting a partial answer would take ten minutes
   */
  observe(seconds: number): Fleet | undefined {
    if (!this.#nodesListed || this.#apiServer === undefined) return undefined;
    this.#observed ??= fleetOf(this.#apiServer, [...this.#nodes.values()]);
    this.#state = settle(this.#state, this.#observed, seconds);
    return this.#state.inForce;
  }
}

/** Upgrades take longer than this, and a new version takes effect only after ten minutes. */
const VERSION_EVERY_MS = 300_000;

const SETTLE_EVERY_MS = 30_000;

/**
 * Failures that count as an answer without a version, so that the fleet becomes known even if the server never tells its
 * own.
 */
const WILL_NOT_SAY: ReadonlySet<FailureReason> = new Set(['Forbidden', 'NotFound', 'Refused', 'Malformed']);

interface FleetHandlers {
  onFleet(fleet: Fleet): void;
  /** Called when the request for the API server's version failed; it is retried after the pause. */
  onFailure(failure: KubeFailure, pauseMs: number): void;
  /** Called when the version is known, for the first time or again. */
  onCurrent(): void;
}

/**
 * Follows the version of the API server by polling, and those of the Nodes by the events that it is given.
 * @param options.everyMs the shortest time between two evaluations after changes of Nodes
 */
export function followFleet(
  connection: KubeConnection,
  { onFleet, onFailure, onCurrent }: FleetHandlers,
  options: WatchOptions & { readonly everyMs: number },
) {
  const { clock, signal } = options;
  const versions = new FleetVersions();
  let inForce: Fleet | undefined;

  const observe = () => {
    const fleet = versions.observe(clock() / 1000);
    if (fleet === undefined || isDeepStrictEqual(fleet, inForce)) return;
    inForce = fleet;
    onFleet(fleet);
  };
  const observeSoon = throttle(options.everyMs, observe, options);

  const letSettle = async () => {
    while (await tick(SETTLE_EVERY_MS, signal)) observe();
  };

  /** Polls, because API servers are upgraded while this process runs. */
  const followVersion = async () => {
    const backoff = new Backoff({ ...WATCH_LIMITS, ...options.limits }, options.random);
    let known = false;
    let waitMs: number;
    do {
      try {
        versions.apiServerIs(await kubeVersion(connection, signal));
        known = true;
        onCurrent();
        backoff.reset();
        waitMs = VERSION_EVERY_MS;
      } catch (thrown) {
        if (signal.aborted) return;
        const failure = asFailure(thrown);
        if (!known && WILL_NOT_SAY.has(failure.reason)) versions.apiServerIs('');
        waitMs = backoff.next(failure.retryAfterMs);
        onFailure(failure, waitMs);
      }
      observeSoon();
    } while (await pause(waitMs, signal));
  };

  return {
    known: () => inForce !== undefined,
    node: (event: ResourceEvent<NodeFacts>) => {
      const { name } = event.identity;
      const gone = event.type === 'deleted';
      if (gone ? versions.deleteNode(name) : versions.putNode(event.object)) observeSoon();
    },
    nodesListed: () => {
      versions.nodesListed();
      observe();
    },
    ended: Promise.all([followVersion(), letSettle()]),
  };
}
