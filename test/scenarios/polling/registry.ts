import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { entriesOnlyIn, say, type Table } from './messages.ts';
import { monotonicMs } from './monotonic.ts';

// A discovery service that pods enter themselves, and know nothing of Kubernetes: GET /enter and GET /leave with
// service, pod and at (`ip:port`), where entering is the heartbeat, too. PUT /out/POD keeps an instance out whatever its
// heartbeats say. GET /instances answers with those that are in.
// node registry.ts '{"host": "10.200.0.1"}'

interface Instance {
  readonly service: string;
  readonly at: string;
  heartbeat: number;
  out: boolean;
}

const EXPIRES_MS = 30_000;
const LOOK_MS = 1_000;

const { host } = JSON.parse(process.argv[2] ?? '') as { readonly host: string };
const instances = new Map<string, Instance>();
let table: Table = {};

function changed(): void {
  const entered = [...instances.values()].filter(({ out }) => !out);
  const services = [...Map.groupBy(entered, ({ service }) => service)];
  const next: Table = Object.fromEntries(services.map(([service, of]) => [service, of.map(({ at }) => at)]));
  const [removed, added] = [entriesOnlyIn(table, next), entriesOnlyIn(next, table)];
  table = next;
  if (removed.length > 0 || added.length > 0) say({ event: 'changed', at: monotonicMs(), removed, added });
}

/** @returns whether the request makes sense here */
function take(method: string | undefined, { pathname, searchParams }: URL): boolean {
  const [, what, out = ''] = pathname.split('/');
  const pod = searchParams.get('pod') ?? '';
  if (method === 'PUT' && what === 'out') {
    const instance = instances.get(out);
    if (instance !== undefined) instance.out = true;
    return instance !== undefined;
  }
  if (what === 'enter') {
    const [service, at] = [searchParams.get('service') ?? '', searchParams.get('at') ?? ''];
    const { out = false } = instances.get(pod) ?? {};
    instances.set(pod, { service, at, heartbeat: monotonicMs(), out });
  } else if (what === 'leave') instances.delete(pod);
  return what === 'enter' || what === 'leave' || what === 'instances';
}

// Its parent holds the other end.
process.stdin.on('end', () => process.exit(0)).resume();

const server = http.createServer(({ method, url = '' }, response) => {
  const known = take(method, new URL(url, 'http://registry'));
  changed();
  response.writeHead(known ? 200 : 404, { 'content-type': 'application/json' });
  response.end(known ? JSON.stringify(table) : '{}');
});
setInterval(() => {
  for (const [pod, { heartbeat }] of instances)
    if (monotonicMs() - heartbeat > EXPIRES_MS) instances.delete(pod);
  changed();
}, LOOK_MS);
server.listen(0, host);
await once(server, 'listening');
say({ event: 'listening', ports: { instances: (server.address() as AddressInfo).port } });
