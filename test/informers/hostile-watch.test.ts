import { execFile } from 'node:child_process';
import { once } from 'node:events';
import http from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import type { Followed } from './hostile-follower.ts';

/** Half of the memory limit in deploy/deployment.yaml: what Node takes for its heap there. */
const HEAP_MB = 256;
const LIMIT_MB = 512;
const LOOP_MS = 250;

const many = (count: number, entry: (index: number) => readonly [string, string]) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => entry(index)));
const LARGE = JSON.stringify(many(13_000, (label) => [`${label}`.padEnd(30, 'k'), 'x'.repeat(63)] as const));
/** V8 hashes nine digits by the low 24 bits of their value. */
const colliding = JSON.stringify(
  many(20_000, (index) => [`key-${index}`, String(2e8 + index * 2 ** 15)] as const),
);
const plan = (text: string, index: number) => `"annotations":{"linger.dev/plan":"${index} ${text}"}`;
const LONG = 'x'.repeat(250_000);
const LONGEST_KEPT = 'x'.repeat(8_000);

/** @param metadata a member, as JSON: large objects are not made again and again */
function pod(name: string, metadata: string): string {
  const identity = `"name":"${name}","namespace":"attacker","uid":"uid-${name}","resourceVersion":"200"`;
  return `{"metadata":{${identity},${metadata}}}`;
}

/** What one tenant has created; Pending pods suffice. */
const pods: readonly (() => string)[] = [
  ...Array.from(
    { length: 126 },
    (_, index) => () => pod(`labels-${index}`, `"labels":{"n":"${index}",${LARGE.slice(1)}`),
  ),
  ...Array.from({ length: 1_000 }, (_, index) => () => pod(`plan-${index}`, plan(LONG, index))),
  // As large as each may be.
  ...Array.from({ length: 10_000 }, (_, index) => () => pod(`many-${index}`, plan(LONGEST_KEPT, index))),
];

const events = [
  ...Array.from({ length: 8 }, (_, index) => pod(`collide-${index}`, `"labels":${colliding}`)),
  pod('last', '"labels":{}'),
].map((object) => `{"type":"ADDED","object":${object}}\n`);

function* itemsOf(page: readonly (() => string)[]): Generator<string> {
  for (const [index, each] of page.entries()) yield `${index === 0 ? '' : ','}${each()}`;
  yield ']}';
}

/** An API server with these pods and nothing else. */
async function apiServer(): Promise<string> {
  const server = http.createServer((request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'http://model');
    const isPods = pathname === '/api/v1/pods';
    response.writeHead(200, { 'content-type': 'application/json' });
    if (pathname === '/version') response.end('{"gitVersion":"v1.36.3"}');
    else if (searchParams.get('watch') === 'true') {
      response.flushHeaders();
      if (isPods) for (const event of events) response.write(event);
    } else {
      const from = Number(searchParams.get('continue') ?? '0');
      const next = from + Number(searchParams.get('limit'));
      const more = isPods && next < pods.length ? String(next) : '';
      response.write(`{"metadata":{"resourceVersion":"100","continue":"${more}"},"items":[`);
      Readable.from(itemsOf(isPods ? pods.slice(from, next) : [])).pipe(response);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close().closeAllConnections());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

test('a tenant’s pods neither fill the heap nor hold the event loop', async () => {
  const follower = join(import.meta.dirname, 'hostile-follower.ts');
  const flags = [`--max-old-space-size=${HEAP_MB}`, follower, await apiServer(), 'last'];
  const { stdout } = await promisify(execFile)(process.execPath, flags);
  const followed: Followed = JSON.parse(stdout);
  // All that are too large, and of the others those that would take more than the tenant leaves to others.
  expect(followed.unread.attacker).toBeGreaterThanOrEqual(126 + 1_000 + 8);
  expect(followed.unread.attacker).toBeLessThan(126 + 1_000 + 8 + 10_000);
  expect(followed.longestTurn).toBeLessThan(LOOP_MS);
  expect(followed.peakRssMb).toBeLessThan(LIMIT_MB);
}, 300_000);
