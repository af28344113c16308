import type { Agent, IncomingMessage } from 'node:http';
import https from 'node:https';
import { isIP } from 'node:net';
import { pipeline, type Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import type { Credentials, KubeConnection } from './connection.ts';
import { failureOfStatus, KubeFailure } from './failure.ts';

/**
 * node:http, without the 9 MB that an `import` of it takes: see webhook/server.ts, which is not imported here to avoid
 * loading it.
 */
export const http = process.getBuiltinModule('node:http');

/** There is no route, no source address of that family, or the kernel does not support the family. */
const NO_ROUTE: ReadonlySet<unknown> = new Set(['ENETUNREACH', 'EADDRNOTAVAIL', 'EAFNOSUPPORT']);

/**
 * Connecting a datagram socket sends nothing and asks only the kernel, so nothing outside this host can make a route
 * disappear.
 */
function hasRoute(address: string): Promise<boolean> {
  const { createSocket } = process.getBuiltinModule('node:dgram');
  return new Promise((resolve) => {
    const socket = createSocket(isIP(address) === 6 ? 'udp6' : 'udp4');
    const end = (error?: Error & { readonly code?: unknown }) => {
      resolve(!NO_ROUTE.has(error?.code));
      socket.close();
    };
    socket.once('error', end).connect(443, address, end);
  });
}

/**
 * Those of the addresses whose family (IPv4 or IPv6) this host has no route to, because it is not connected to such a
 * network. None if all addresses are of one family, even if they are unreachable.
 */
export async function withoutRoute(
  addresses: readonly string[],
  isRouted = hasRoute,
): Promise<readonly string[]> {
  const families = [...Map.groupBy(addresses, isIP).values()];
  if (families.length < 2) return [];
  for (const family of families) {
    let reached = false;
    for (const address of family) reached ||= await isRouted(address);
    if (!reached) return family;
  }
  return [];
}

export interface KubeRequest {
  readonly method?: string;
  /** Path and query, such as `/api/v1/pods?limit=500`. */
  readonly path: string;
  readonly body?: { readonly contentType: string; readonly text: string } | undefined;
  readonly accept?: string;
  /** Whether to accept a compressed response. Default: false. */
  readonly compressed?: boolean | undefined;
  readonly agent: Agent;
  readonly signal: AbortSignal;
  /** How long the response may take to begin. Milliseconds. */
  readonly answerMs: number;
}

/** A Status has a one-line message; an error page of a proxy may be anything. */
const LONGEST_REFUSAL = 64 * 1024;

/** After this idle time, the kernel probes whether the peer still exists, and gives up 10 s (10 probes) later. */
const KEEP_ALIVE_MS = 30_000;

/**
 * A connection pool for one purpose, with at most `most` connections; closed by `destroy()` or the signal. It uses HTTP/1.1,
 * like node:https, in which a new connection is the only way to reach another API server: GOAWAY exists only in HTTP/2.
 */
export function newAgent({ server }: KubeConnection, most = 1, signal?: AbortSignal): Agent {
  const options = { keepAlive: true, maxSockets: most };
  const agent = server.protocol === 'http:' ? new http.Agent(options) : new https.Agent(options);
  signal?.addEventListener('abort', () => agent.destroy(), { once: true });
  return agent;
}

/**
 * Sends a request; resolves once a response with status 2xx has begun, which the caller must read or destroy.
 * @throws KubeFailure for any other status, or if no response comes; the signal's reason once that has aborted
 */
export async function ask(connection: KubeConnection, request: KubeRequest): Promise<IncomingMessage> {
  const { signal, answerMs } = request;
  const credentials = await readCredentials(connection, signal);
  const response = await answerTo(connection, credentials, request);
  const { statusCode = 0, headers } = response;
  if (statusCode === 401) connection.refused?.(credentials);
  if (statusCode >= 200 && statusCode < 300) return response;
  const body = await readText(response, LONGEST_REFUSAL, answerMs).catch(() => '');
  signal.throwIfAborted();
  throw failureOfStatus(statusCode, body, headers['retry-after']);
}

/** A whole response. @throws KubeFailure `Malformed` if it is longer than `most` bytes, `Cut` if it ends early */
export async function readText(response: IncomingMessage, most: number, stallMs: number): Promise<string> {
  const bytes = await readBytes(response, most, stallMs);
  if (bytes === undefined) throw new KubeFailure('Malformed', `an answer of more than ${most} bytes`);
  return bytes.toString('utf8');
}

const FIRST_ROOM = 64 * 1024;

/**
 * Reads a whole response.
 * @param room the buffer of an earlier response, which is overwritten
 * @returns undefined if it is longer than `most` bytes
 * @throws KubeFailure `Cut` if it ends early
 */
export async function readBytes(
  response: IncomingMessage,
  most: number,
  stallMs: number,
  room: ArrayBufferLike = new ArrayBuffer(FIRST_ROOM),
): Promise<Buffer | undefined> {
  let read = Buffer.from(room);
  const tooLong = new Error('too long');
  let bytes = 0;
  try {
    await readChunks(response, stallMs, (chunk) => {
      const end = bytes + chunk.length;
      if (end > most) throw tooLong;
      if (end > read.length) read = Buffer.concat([read.subarray(0, bytes)], 2 * end);
      chunk.copy(read, bytes);
      bytes = end;
    });
  } catch (thrown) {
    if (thrown === tooLong) return undefined;
    throw thrown;
  }
  return read.subarray(0, bytes);
}

/**
 * Milliseconds of work before the event loop turns to other connections. Node reads up to 2 MB from one connection first,
 * and a review must not wait for that many events.
 */
const TURN_MS = 25;

/**
 * Reads a response as it arrives, uncompressed.
 * @param onChunk if it throws an error, the response ends and the error is passed on
 * @param onStall called if nothing has arrived for `stallMs`, before the response is abandoned
 * @throws KubeFailure `Cut` if it ends early; the error with which the response was destroyed
 */
export async function readChunks(
  response: IncomingMessage,
  stallMs: number,
  onChunk: (chunk: Buffer) => void,
  onStall: () => void = () => undefined,
): Promise<void> {
  let bytes = 0;
  let spentMs = 0;
  const stalled = () => {
    onStall();
    response.destroy(new Error(`nothing arrived for ${stallMs} ms`));
  };
  const timer = setTimeout(stalled, stallMs).unref();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const cut = (why: string) =>
    reject(new KubeFailure('Cut', `the answer was cut off after ${bytes} bytes: ${why}`));
  const body = uncompressed(response);
  body.on('data', (chunk: Buffer) => {
    timer.refresh();
    bytes += chunk.length;
    const begun = performance.now();
    try {
      onChunk(chunk);
      spentMs += performance.now() - begun;
      if (spentMs < TURN_MS) return;
      spentMs = 0;
      body.pause();
      setImmediate(() => body.resume());
    } catch (error) {
      reject(error);
      response.destroy();
    }
  });
  body.on('end', resolve);
  body.on('error', (error) => (error instanceof KubeFailure ? reject(error) : cut(messageOf(error))));
  body.on('close', () => cut('the connection was closed'));
  try {
    await promise;
  } finally {
    clearTimeout(timer);
  }
}

/** More than zlib's default of 16 KiB, because each chunk is searched for items of a list. */
const UNCOMPRESSED_CHUNK = 64 * 1024;

function uncompressed(response: IncomingMessage): Readable {
  if (response.headers['content-encoding'] !== 'gzip') return response;
  const gunzip = createGunzip({ chunkSize: UNCOMPRESSED_CHUNK });
  // An error in either stream destroys both.
  pipeline(response, gunzip, () => undefined);
  return gunzip;
}

/** Limited in time, because a credential plugin or a login server may take longer than the request's timeout. */
async function readCredentials(connection: KubeConnection, signal: AbortSignal): Promise<Credentials> {
  const { promise: aborted, reject } = Promise.withResolvers<never>();
  const abort = () => reject(signal.reason);
  signal.addEventListener('abort', abort, { once: true });
  try {
    signal.throwIfAborted();
    const credentials = await Promise.race([connection.credentials(), aborted]);
    signal.throwIfAborted();
    return credentials;
  } catch (error) {
    signal.throwIfAborted();
    throw new KubeFailure('Unauthorized', `no credentials: ${messageOf(error)}`);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}

function answerTo(
  { server }: KubeConnection,
  { headers: authorization, ...credentials }: Credentials,
  { method = 'GET', path, body, accept = 'application/json', signal, answerMs, ...request }: KubeRequest,
): Promise<IncomingMessage> {
  const prefix = server.pathname.replace(/\/$/, '');
  const headers = {
    accept,
    ...(request.compressed && { 'accept-encoding': 'gzip' }),
    ...authorization,
    // Without a length, Node does not frame the body of a DELETE, and the API server reads none.
    ...(body && { 'content-type': body.contentType, 'content-length': Buffer.byteLength(body.text) }),
    'user-agent': 'linger',
  };
  const agent = credentials.agent ?? request.agent;
  const options = { ...credentials, method, agent, signal, headers };
  const target = new URL(prefix + path, server);
  return new Promise((resolve, reject) => {
    const request =
      server.protocol === 'http:' ? http.request(target, options) : https.request(target, options);
    request.on('socket', (socket) => socket.setKeepAlive(true, KEEP_ALIVE_MS));
    // Not the socket’s own timeout, which starts only once there is a connection.
    const late = () => request.destroy(new Error(`no answer within ${answerMs} ms`));
    const timer = setTimeout(late, answerMs).unref();
    request.on('response', (response) => {
      clearTimeout(timer);
      resolve(response);
    });
    request.on('error', (error) => {
      clearTimeout(timer);
      if (signal.aborted) reject(signal.reason);
      else reject(new KubeFailure('Unreachable', `${server.host}: ${messageOf(error)}`));
    });
    // Passed to end(), so that the headers include its length.
    request.end(body?.text);
  });
}

/** If connecting fails for several addresses, the error is an AggregateError without a message. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}
