import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { ApiClient, ownConnection } from '../../testbed/api.ts';
import { entriesOnlyIn, say, type Table } from './messages.ts';
import { monotonicMs } from './monotonic.ts';
import { type EndpointSlice, tableOf } from './slices.ts';

// The discovery service of S3: watches EndpointSlices, and answers GET /instances with what is ready.
// node discovery.ts '{"kubeconfig": "…", "host": "10.200.0.1"}'

export interface DiscoverySettings {
  readonly kubeconfig: string;
  readonly host: string;
}

const PATH = '/apis/discovery.k8s.io/v1/endpointslices';
const AGAIN_MS = 200;

const { kubeconfig, host } = JSON.parse(process.argv[2] ?? '') as DiscoverySettings;
const api = new ApiClient(ownConnection(kubeconfig));
const slices = new Map<string, EndpointSlice>();
let table: Table = {};
let answer = '{}';

function changed(): void {
  const at = monotonicMs();
  const next = tableOf(slices.values());
  const [removed, added] = [entriesOnlyIn(table, next), entriesOnlyIn(next, table)];
  table = next;
  answer = JSON.stringify(table);
  if (removed.length > 0 || added.length > 0) say({ event: 'changed', at, removed, added });
}

const keyOf = ({ metadata }: EndpointSlice) => `${metadata.namespace}/${metadata.name}`;

async function list(): Promise<string> {
  type List = { items: EndpointSlice[]; metadata: { resourceVersion: string } };
  const { items, metadata } = await api.call<List>('GET', PATH);
  slices.clear();
  for (const slice of items) slices.set(keyOf(slice), slice);
  changed();
  return metadata.resourceVersion;
}

/** Lists, watches from there, and starts again when the watch ends. */
async function follow(from: string): Promise<void> {
  let version = from;
  for (;;) {
    const path = `${PATH}?watch=true&resourceVersion=${version}`;
    const watching = api.watch<EndpointSlice>(
      path,
      ({ type, object }) => {
        if (type === 'ERROR' || type === 'BOOKMARK') return;
        if (type === 'DELETED') slices.delete(keyOf(object));
        else slices.set(keyOf(object), object);
        changed();
      },
      new AbortController().signal,
    );
    await watching.catch(() => undefined);
    await sleep(AGAIN_MS);
    version = await list().catch(() => version);
  }
}

// Its parent holds the other end.
process.stdin.on('end', () => process.exit(0)).resume();

const version = await list();
const server = http.createServer((request, response) => {
  const known = request.method === 'GET' && request.url === '/instances';
  response.writeHead(known ? 200 : 404, { 'content-type': 'application/json' });
  response.end(known ? answer : '{}');
});
server.listen(0, host);
await once(server, 'listening');
say({ event: 'listening', ports: { instances: (server.address() as AddressInfo).port } });
await follow(version);
