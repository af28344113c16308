import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { KubeConnection } from '../cluster/index.ts';
import { pause } from '../timing/index.ts';
import { type Recording, requestKey } from './recording.ts';

/** A cluster that repeats what was recorded. */
export interface Replay {
  readonly connection: KubeConnection;
  /** Its time, which passes as fast as real time. Seconds since the epoch. */
  readonly now: () => number;
}

/**
 * Serves a recording from its beginning until the signal aborts, only to this machine. It behaves like the API server, with
 * lists and watches that continue as time passes.
 */
export async function startReplay(recording: Recording, signal: AbortSignal): Promise<Replay> {
  const begun = performance.now();
  const elapsed = () => (performance.now() - begun) / 1000;
  // The server is never the first to close a connection, because its client may be about to use it again.
  const server = createServer({ keepAliveTimeout: 0 }, (request, response) => {
    if (new URL(request.url ?? '', 'http://replay').searchParams.has('watch'))
      void watch(recording, request, response, elapsed);
    else answer(recording, request, response, elapsed());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const end = () => {
    server.close();
    server.closeAllConnections();
  };
  signal.addEventListener('abort', end, { once: true });
  const { port } = server.address() as AddressInfo;
  const connection = {
    server: new URL(`http://127.0.0.1:${port}`),
    name: 'the recording',
    credentials: async () => ({}),
  };
  return { connection, now: () => recording.from + elapsed() };
}

interface List {
  readonly metadata: { resourceVersion: string };
  readonly items: KubeObject[];
}

interface KubeObject {
  readonly metadata: { readonly uid: string; readonly resourceVersion: string };
}

interface WatchEvent {
  readonly type: string;
  readonly object: KubeObject;
}

const isNewer = (a: string, b: string) => BigInt(a) > BigInt(b);

function answer(
  { answers, watches }: Recording,
  request: IncomingMessage,
  response: ServerResponse,
  now: number,
): void {
  const key = requestKey(request);
  const known = answers[key] ?? [];
  const found = known.findLast(([at]) => at <= now) ?? known[0];
  if (found === undefined && !isServed(answers, request)) {
    response.writeHead(404, { 'content-type': 'text/plain' }).end('404 page not found\n');
    return;
  }
  if (found === undefined) {
    // Not 404, which would mean that the cluster had none.
    const message = `not in this recording: ${key}`;
    const status = { kind: 'Status', apiVersion: 'v1', status: 'Failure', reason: 'Forbidden', code: 403 };
    response.writeHead(403, { 'content-type': 'application/json' });
    response.end(JSON.stringify({ ...status, message }));
    return;
  }
  const [, status, type, body] = found;
  const lines = watches[key];
  response.writeHead(status, { 'content-type': type });
  response.end(lines === undefined ? body : JSON.stringify(listAt(JSON.parse(body) as List, lines, now)));
}

const GROUP_VERSION = /^\/apis\/([^/]+\/[^/]+)\//;

/** Whether the cluster served the request's API group, according to its list of API groups; true if that is not known. */
function isServed(answers: Recording['answers'], { url = '' }: IncomingMessage): boolean {
  const [, wanted] = GROUP_VERSION.exec(url) ?? [];
  const [, , , groups] = answers['GET /apis']?.[0] ?? [];
  return wanted === undefined || groups === undefined || groups.includes(`"groupVersion":"${wanted}"`);
}

/** A list that includes the events up to that time. */
function listAt(list: List, lines: Recording['watches'][string], now: number): List {
  const objects = new Map(list.items.map((each) => [each.metadata.uid, each]));
  let { resourceVersion } = list.metadata;
  for (const [at, line] of lines) {
    if (at > now) break;
    const { type, object } = JSON.parse(line) as WatchEvent;
    if (!isNewer(object.metadata.resourceVersion, resourceVersion)) continue;
    resourceVersion = object.metadata.resourceVersion;
    if (type === 'DELETED') objects.delete(object.metadata.uid);
    else if (type !== 'BOOKMARK') objects.set(object.metadata.uid, object);
  }
  return { ...list, metadata: { ...list.metadata, resourceVersion }, items: [...objects.values()] };
}

async function watch(
  { watches }: Recording,
  request: IncomingMessage,
  response: ServerResponse,
  elapsed: () => number,
): Promise<void> {
  const from = new URL(request.url ?? '', 'http://replay').searchParams.get('resourceVersion') ?? '0';
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  response.writeHead(200, { 'content-type': 'application/json' }).flushHeaders();
  for (const [at, line] of watches[requestKey(request)] ?? []) {
    const { object } = JSON.parse(line) as WatchEvent;
    if (!isNewer(object.metadata.resourceVersion, from)) continue;
    if (!(await pause(Math.max(0, at - elapsed()) * 1000, gone.signal))) return;
    response.write(`${line}\n`);
  }
}
