import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { reporter } from '../../../examples/report-client.ts';
import { entriesOnlyIn, say, type Table } from './messages.ts';
import { monotonicMs } from './monotonic.ts';
import { createProxy } from './proxy.ts';

// One gateway of S3: a TCP proxy that asks a discovery service for endpoints every so often, and knows nothing else.
// node gateway.ts '{…}', see GatewaySettings

export interface GatewaySettings {
  readonly name: string;
  readonly host: string;
  /** `GET` of it is the table. */
  readonly discovery: string;
  /** Between two syncs, give or take a tenth at random. */
  readonly intervalMs: number;
  readonly connectTimeoutMs: number;
  /** Each gets a port of its own. */
  readonly services: readonly string[];
  /** Where syncs are reported, and whose token goes along; undefined: nowhere. */
  readonly reports?: { readonly url: string; readonly tokenFile: string };
}

const JITTER = 0.1;
/** A discovery service that hangs must not stop the loop. */
const DISCOVERY_TIMEOUT_MS = 5_000;

const settings = JSON.parse(process.argv[2] ?? '') as GatewaySettings;
let table: Table = {};

async function sync(): Promise<void> {
  const began = monotonicMs();
  const signal = AbortSignal.timeout(DISCOVERY_TIMEOUT_MS);
  const next = (await (await fetch(settings.discovery, { signal })).json()) as Table;
  const [removed, added] = [entriesOnlyIn(table, next), entriesOnlyIn(next, table)];
  table = next;
  say({ event: 'synced', began, ended: monotonicMs(), removed, added });
}

const { intervalMs, reports } = settings;
const around = reports === undefined ? undefined : reporter(reports.url, reports.tokenFile);
const reportedSync = () => around?.(sync) ?? sync();

async function poll(): Promise<void> {
  for (;;) {
    await sleep(intervalMs * (1 + JITTER * (2 * Math.random() - 1)));
    await reportedSync().catch((error: Error) =>
      say({ event: 'syncFailed', at: monotonicMs(), problem: error.message }),
    );
  }
}

/** The client of the reports keeps to itself what becomes of them. */
function tellOfReports(): void {
  const { fetch } = globalThis;
  const askedAt = new Map<string, number>();
  globalThis.fetch = async (...request) => {
    const sentAt = monotonicMs();
    const answer = await fetch(...request);
    const { method, body } = request[1] ?? {};
    if (method !== 'POST' || !answer.ok) return answer;
    const { cursor } = JSON.parse(String(body)) as { cursor: string };
    const cursorAskedAt = askedAt.get(cursor) ?? Number.NEGATIVE_INFINITY;
    if (cursor !== '') say({ event: 'reported', at: monotonicMs(), cursorAskedAt });
    askedAt.set(answer.headers.get('linger-cursor') ?? '', sentAt);
    return answer;
  };
}

async function listen(service: string): Promise<[string, number]> {
  const { connectTimeoutMs, host } = settings;
  const proxy = createProxy({ connectTimeoutMs, endpoints: () => table[service] ?? [], sent: say });
  proxy.listen(0, host);
  await once(proxy, 'listening');
  return [service, (proxy.address() as AddressInfo).port];
}

tellOfReports();
process.stdin.on('end', () => process.exit(0)).resume();

// Gateways that are started together do not stay in step.
await sleep(intervalMs * Math.random());
// The first one, too: Linger waits for an instance from its first report on, and this one is about to serve.
await reportedSync();
const ports = await Promise.all(settings.services.map(listen));
say({ event: 'listening', ports: Object.fromEntries(ports) });
await poll();
