import { once } from 'node:events';
import net, { type AddressInfo, type Socket } from 'node:net';

/** A server behind the balancer. */
export interface Target {
  readonly name: string;
  readonly host: string;
  readonly port: number;
}

interface Pair {
  readonly target: Target;
  readonly client: Socket;
  readonly server: Socket;
}

/**
 * A TCP load balancer as clouds put in front of API servers: it passes bytes on, knows nothing of TLS or requests,
 * and gives each new connection to the server that has the fewest. Those that a server already has stay where they are.
 */
export class Balancer {
  /** New connections are reset. */
  refusing = false;
  readonly #targets: readonly Target[];
  readonly #server = net.createServer((client) => this.#accept(client));
  readonly #pairs = new Set<Pair>();
  readonly #given = new Map<Target, number>();
  readonly #waiting = new Set<Socket>();

  private constructor(targets: readonly Target[]) {
    this.#targets = targets;
    for (const target of targets) this.#given.set(target, 0);
  }

  static async start(host: string, targets: readonly Target[]): Promise<Balancer> {
    const balancer = new Balancer(targets);
    balancer.#server.listen(0, host);
    await once(balancer.#server, 'listening');
    return balancer;
  }

  get address(): { readonly host: string; readonly port: number } {
    const { address, port } = this.#server.address() as AddressInfo;
    return { host: address, port };
  }

  /** Connections that are open now, by server. */
  get open(): Readonly<Record<string, number>> {
    return this.#byName((target) => this.#openTo(target));
  }

  /** Connections that were ever given, by server. */
  get given(): Readonly<Record<string, number>> {
    return this.#byName((target) => this.#given.get(target) ?? 0);
  }

  /** The ports from which the connections to clients come that are open now, to cut them off without a word. */
  get clientPorts(): readonly number[] {
    return [...this.#pairs].map(({ client }) => client.remotePort ?? 0);
  }

  /** What comes over the connections that are open now is lost from here on, and neither side notices. */
  freeze(): void {
    for (const { client, server } of this.#pairs)
      for (const socket of [client, server]) socket.unpipe().resume();
  }

  /** Every connection is reset, on both sides. */
  cut(): void {
    for (const { client, server } of this.#pairs)
      for (const socket of [client, server]) socket.resetAndDestroy();
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const { client, server } of this.#pairs) for (const socket of [client, server]) socket.destroy();
    for (const client of this.#waiting) client.destroy();
    await closed;
  }

  #byName(count: (target: Target) => number): Record<string, number> {
    return Object.fromEntries(this.#targets.map((target) => [target.name, count(target)]));
  }

  #openTo(target: Target): number {
    return [...this.#pairs].filter((pair) => pair.target === target).length;
  }

  #accept(client: Socket): void {
    client.on('error', () => undefined);
    if (this.refusing) {
      client.resetAndDestroy();
      return;
    }
    this.#waiting.add(client);
    client.on('close', () => this.#waiting.delete(client));
    // Equal ones in turn, or the first would get every connection that is alone.
    const order = [...this.#targets].sort(
      (a, b) => this.#openTo(a) - this.#openTo(b) || (this.#given.get(a) ?? 0) - (this.#given.get(b) ?? 0),
    );
    this.#connect(client, order);
  }

  /** A server that refuses is passed over, as a health check would have it. */
  #connect(client: Socket, [target, ...others]: readonly Target[]): void {
    if (target === undefined) {
      client.resetAndDestroy();
      return;
    }
    const server = net.connect({ host: target.host, port: target.port });
    const next = () => this.#connect(client, others);
    server.once('error', next);
    server.once('connect', () => {
      server.off('error', next);
      this.#join({ target, client, server });
    });
  }

  #join(pair: Pair): void {
    const { target, client, server } = pair;
    this.#waiting.delete(client);
    if (client.destroyed) {
      server.destroy();
      return;
    }
    this.#given.set(target, (this.#given.get(target) ?? 0) + 1);
    this.#pairs.add(pair);
    server.on('error', () => client.resetAndDestroy());
    client.on('error', () => server.resetAndDestroy());
    for (const [one, other] of [
      [client, server],
      [server, client],
    ] as const) {
      one.setNoDelay(true).pipe(other);
      one.on('close', () => {
        this.#pairs.delete(pair);
        other.destroySoon();
      });
    }
  }
}
