/** Where a connection comes from. */
export interface Source {
  readonly address: string;
  readonly port: number;
}

/**
 * Ports outside 32768–60999, from which Linux takes those of connections that did not
 * choose (net.ipv4.ip_local_port_range): no other connection takes ours away. 36,280 of them.
 */
export const usablePorts: readonly number[] = [...span(1_024, 32_767), ...span(61_000, 65_535)];

function span(from: number, to: number): number[] {
  return Array.from({ length: to - from + 1 }, (_, i) => from + i);
}

export function sourceKey(source: Source): string {
  return `${source.address}:${source.port}`;
}

/**
 * Every source (address and port) once, spread over the addresses, none of those
 * in `taken`: neither a connection of this run nor the memory of an earlier one
 * (conntrack keeps a closed connection for two minutes) can disturb another.
 */
export function* sources(addresses: readonly string[], taken: ReadonlySet<string>): Generator<Source> {
  for (const port of usablePorts) {
    for (const address of addresses) {
      const source = { address, port };
      if (!taken.has(sourceKey(source))) yield source;
    }
  }
}
