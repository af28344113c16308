import http from 'node:http';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import type { KubeConnection } from '../../src/cluster/index.ts';
import type { HeldPod } from '../../src/hold/index.ts';
import { PodLookup } from '../../src/hold/pod-lookup.ts';
import { createLogger } from '../../src/telemetry/index.ts';
import { listening } from '../webhook/listening.ts';

// Which the first call would wait for: it takes a busy machine some seconds.
beforeAll(async () => void (await import('../../src/cluster/client-node.ts')), 60_000);

const POD = { namespace: 'shop', name: 'web-1', uid: 'u1', deletion: undefined } as HeldPod;

/** @param pod what the API server has of that name; undefined: none, a number: it refuses with this status */
async function lookupIn(has: object | number | undefined, budgets: Record<string, number | 'unread'> = {}) {
  let pod = has;
  const asked: { readonly path: string; readonly at: number }[] = [];
  const lines: string[] = [];
  const server = http.createServer((request, response) => {
    asked.push({ path: request.url ?? '', at: performance.now() });
    const status = typeof pod === 'number' ? pod : pod === undefined ? 404 : 200;
    const body = typeof pod === 'object' ? pod : { kind: 'Status', code: status };
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  });
  const ended = new AbortController();
  onTestFinished(() => ended.abort());
  const connection: KubeConnection = {
    server: new URL(`http://127.0.0.1:${await listening(server)}`),
    credentials: async () => ({}),
  };
  const lookup = new PodLookup({
    connection,
    logger: createLogger('info', { write: (line: string) => void lines.push(line) }),
    clock: () => performance.now(),
    nodeBudgetOf: (node) => budgets[node],
    signal: ended.signal,
  });
  const becomes = (next: typeof has) => {
    pod = next;
  };
  return { lookup, asked, lines, budgets, becomes };
}

const running = (metadata: object = {}, status: object = { phase: 'Running' }) => ({
  metadata: { namespace: 'shop', name: 'web-1', uid: 'u1', ...metadata },
  spec: { nodeName: 'one' },
  status,
});
const disrupted = (status: string) => ({ conditions: [{ type: 'DisruptionTarget', status }] });
const deletion = { deletionTimestamp: '2026-11-22T10:00:30Z', deletionGracePeriodSeconds: 30 };

it.each<[string, object | undefined, object]>([
  ['no pod', undefined, { found: 'Deleted', timestamp: '', graceSeconds: 0 }],
  ['another of its name', running({ uid: 'u2' }), { found: 'Deleted', timestamp: '', graceSeconds: 0 }],
  [
    'a deletion',
    running(deletion),
    { found: 'Deleted', timestamp: '2026-11-22T10:00:30.000Z', graceSeconds: 30 },
  ],
  ['an eviction', running({}, disrupted('True')), { found: 'Evicted' }],
  ['a pod that has failed', running({}, { phase: 'Failed' }), { found: 'Evicted' }],
  ['a pod that has ended', running({}, { phase: 'Succeeded' }), { found: 'Evicted' }],
])('answers at once: %s', async (_, pod, expected) => {
  const { lookup, asked } = await lookupIn(pod);
  const begun = performance.now();
  expect(await lookup.ask(POD)).toEqual(expected);
  expect(performance.now() - begun).toBeLessThan(900);
  expect(asked.map(({ path }) => path)).toEqual(['/api/v1/namespaces/shop/pods/web-1']);
});

it('answers with what the node leaves, where that is shutting down', async () => {
  const { lookup } = await lookupIn(running(), { one: 45 });
  expect(await lookup.ask(POD)).toEqual({ found: 'NodeShutdown', budget: 45 });
});

it('waits for a node to say so before it calls that a restart', async () => {
  const { lookup, budgets } = await lookupIn(running({}, disrupted('False')));
  setTimeout(() => Object.assign(budgets, { one: 15 }), 300);
  expect(await lookup.ask(POD)).toEqual({ found: 'NodeShutdown', budget: 15 });
  delete budgets.one;
  expect(await lookup.ask(POD)).toEqual({ found: 'Restart' });
});

it('does not call it a restart before the nodes have been read', async () => {
  const { lookup, budgets } = await lookupIn(running(), { one: 'unread' });
  expect(await lookup.ask(POD)).toBeUndefined();
  budgets.one = 45;
  expect(await lookup.ask(POD)).toEqual({ found: 'NodeShutdown', budget: 45 });
});

it('asks nothing where the watch has shown the deletion meanwhile', async () => {
  const { lookup, asked } = await lookupIn(undefined);
  const pod = { ...POD, deletion: { at: 0, graceSeconds: 7 } };
  expect(await lookup.ask(pod)).toEqual({ found: 'Deleted', timestamp: '', graceSeconds: 7 });
  expect(asked).toEqual([]);
});

it('asks 40 times a second at most', async () => {
  const { lookup, asked } = await lookupIn(undefined);
  const begun = performance.now();
  await Promise.all(Array.from({ length: 21 }, () => lookup.ask(POD)));
  // The first may be late on a busy machine, and the last only later than that.
  expect((asked.at(-1)?.at ?? 0) - begun).toBeGreaterThan(490);
});

it('answers nothing where it cannot ask, and logs that once, and its end', async () => {
  const { lookup, lines, becomes } = await lookupIn(403);
  expect([await lookup.ask(POD), await lookup.ask(POD)]).toEqual([undefined, undefined]);
  expect(lines).toHaveLength(1);
  expect(lines[0]).toContain('looking up a held pod failed');
  becomes(running(deletion));
  expect(await lookup.ask(POD)).toMatchObject({ found: 'Deleted' });
  expect(lines[1]).toContain('looking up held pods recovered');
});
