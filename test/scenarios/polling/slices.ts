import type { Table } from './messages.ts';

/** As much of a discovery.k8s.io/v1 EndpointSlice as a discovery service reads. */
export interface EndpointSlice {
  readonly metadata: {
    readonly name: string;
    readonly namespace: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  readonly addressType: string;
  readonly ports?: readonly { readonly port?: number }[] | null;
  readonly endpoints?:
    | readonly {
        readonly addresses: readonly string[];
        readonly conditions?: { readonly ready?: boolean };
      }[]
    | null;
}

/** The addresses that may be used, by Service. `ready` absent counts as true (discovery.k8s.io/v1). */
export function tableOf(slices: Iterable<EndpointSlice>): Table {
  const table: Record<string, Set<string>> = {};
  for (const { metadata, addressType, ports, endpoints } of slices) {
    const name = metadata.labels?.['kubernetes.io/service-name'];
    if (name === undefined || addressType !== 'IPv4') continue;
    const port = ports?.[0]?.port ?? 80;
    const service = `${metadata.namespace}/${name}`;
    table[service] ??= new Set();
    for (const { addresses, conditions } of endpoints ?? []) {
      const [address] = addresses;
      if (conditions?.ready !== false && address !== undefined) table[service].add(`${address}:${port}`);
    }
  }
  return Object.fromEntries(Object.entries(table).map(([service, set]) => [service, [...set].sort()]));
}
