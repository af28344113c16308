import {
  type Fleet,
  fleetOf,
  type NodeVersion,
  type SettlingFleet,
  settle,
  UNSETTLED,
} from '../core/cluster/fleet.ts';

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
