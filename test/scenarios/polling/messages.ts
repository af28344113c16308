import type { LossKind } from '../../testbed/load/request.ts';

/** What the processes of the scenario say, one JSON object a line. Instants are {@link monotonicMs}. */

/** Addresses (`ip:port`) by Service (`namespace/name`): the ready ones, each once. */
export type Table = Readonly<Record<string, readonly string[]>>;

/** One address of one Service. */
export interface Entry {
  readonly service: string;
  readonly address: string;
}

/** The discovery service has seen the EndpointSlices change. */
export interface DiscoveryChange {
  readonly event: 'changed';
  readonly at: number;
  readonly removed: readonly Entry[];
  readonly added: readonly Entry[];
}

/** A gateway has asked the discovery service and goes by what it said from `ended` on. */
export interface GatewaySync {
  readonly event: 'synced';
  readonly began: number;
  readonly ended: number;
  readonly removed: readonly Entry[];
  readonly added: readonly Entry[];
}

/** Linger has taken a gateway's report: by then it knows of the last sync. */
export interface GatewayReport {
  readonly event: 'reported';
  readonly at: number;
  /** When it had asked for the cursor that it sends back. */
  readonly cursorAskedAt: number;
}

/** A gateway could not ask; it goes on with what it knows. */
export interface GatewaySyncFailed {
  readonly event: 'syncFailed';
  readonly at: number;
  readonly problem: string;
}

/** Where a gateway has sent a connection. */
export interface GatewayConnection {
  readonly event: 'connection';
  /** The client's side, `address:port`. */
  readonly client: string;
  /** undefined: it knows of no endpoint. */
  readonly backend: string | undefined;
  /** Why there is none; undefined: it is connected. */
  readonly lost?: LossKind;
}

/** Ready to be used; the port of the discovery service, or of each Service behind a gateway. */
export interface Listening {
  readonly event: 'listening';
  readonly ports: Readonly<Record<string, number>>;
}

export type Message =
  | DiscoveryChange
  | GatewaySync
  | GatewayReport
  | GatewaySyncFailed
  | GatewayConnection
  | Listening;

export function say(message: Message): void {
  process.stdout.write(`${JSON.stringify(message)}\n`);
}

/** What one table has and the other has not. */
export function entriesOnlyIn(table: Table, other: Table): readonly Entry[] {
  return Object.entries(table).flatMap(([service, addresses]) => {
    const known = new Set(other[service]);
    return addresses.filter((address) => !known.has(address)).map((address) => ({ service, address }));
  });
}
