import { readFile } from 'node:fs/promises';
import type { RequestListener, Server } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo, Server as NetServer, Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
import type { KeyPair } from '../certs/index.ts';
import { LingerError } from '../core/api/index.ts';

/**
 * node:http. Not imported, because an `import` evaluates each of its exports, including getters such as WebSocket's, which
 * load a whole HTTP client (undici) that nothing here uses: 9 MB of resident memory, on Node 24.9.
 */
export const http = process.getBuiltinModule('node:http');

/** Milliseconds. */
const LIMITS = {
  // Go's http.Transport, and so the API server, drops idle connections after 90 s. If a server drops them earlier, it
  // occasionally resets a review that is already under way.
  keepAliveTimeout: 100_000,
  // The API server sends a review at once and waits at most 30 s for the answer (timeoutSeconds; by default 10 s, in
  // deploy/webhook.yaml 2 s). A client that takes longer than these to send is not the API server.
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  connectionsCheckingInterval: 1_000,
};

/** For ports without large bodies or TLS: checks connections rarely, so that the processor can rest. Milliseconds. */
export const RARELY_CHECKED = { connectionsCheckingInterval: 5_000 };
const TLS_HANDSHAKE_TIMEOUT_MS = 5_000;

/** A draining process ends this long after it has begun to close, whatever its clients do. */
const CLOSE_TIMEOUT_MS = 4_000;

/**
 * Open connections, including handshakes. Each takes 30 to 60 KB, plus at most a small body (32 KiB). Beyond the limit, a
 * new connection displaces another: the idle one whose last request is the oldest or, if none is idle, the one with the
 * oldest request.
 */
const MAX_CONNECTIONS = 1_000;
const MAX_HANDSHAKES = 250;
/** For the port of metrics and health, which the kubelet, scrapers and people use. */
const MAX_ADMIN_CONNECTIONS = 100;

/**
 * The most connections of the Hold Service, and the file descriptors that everything else needs: reviews, pages, watches,
 * files.
 */
const MAX_HOLD_CONNECTIONS = 16_384;
const OTHER_DESCRIPTORS = 2_000;

/**
 * How many connections the file descriptors of this process allow. Beyond them the system silently drops new connections, so
 * helpers must leave some for reviews.
 * @returns `limit` if it is lower than what all ports together may take
 */
export async function connectionsThatFit(): Promise<{
  readonly reviews: number;
  readonly holds: number;
  readonly limit?: number;
}> {
  // Some systems do not have this file; there is no low limit then.
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const limit = Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
  if (limit >= MAX_HOLD_CONNECTIONS + OTHER_DESCRIPTORS)
    return { reviews: MAX_CONNECTIONS, holds: MAX_HOLD_CONNECTIONS };
  const holds = Math.max(Math.floor(limit / 4), limit - OTHER_DESCRIPTORS);
  return { reviews: Math.min(MAX_CONNECTIONS, Math.floor(limit / 2)), holds, limit };
}

/** The cipher suites of TLS 1.3, and those of TLS 1.2 with forward secrecy and authenticated encryption (RFC 9325, 4.2). */
const CIPHERS = [
  'TLS_AES_128_GCM_SHA256',
  'TLS_AES_256_GCM_SHA384',
  'TLS_CHACHA20_POLY1305_SHA256',
  'ECDHE-ECDSA-AES128-GCM-SHA256',
  'ECDHE-RSA-AES128-GCM-SHA256',
  'ECDHE-ECDSA-AES256-GCM-SHA384',
  'ECDHE-RSA-AES256-GCM-SHA384',
  'ECDHE-ECDSA-CHACHA20-POLY1305',
  'ECDHE-RSA-CHACHA20-POLY1305',
].join(':');

/**
 * The TLS settings of the webhook's port, both for `webhookServer` and for `setSecureContext`, which resets any setting that
 * it is not given.
 * @param clientCa PEM of the authorities of clients' certificates
 */
export function tlsOptions({ cert, key }: KeyPair, clientCa?: string): SecureContextOptions {
  return {
    cert,
    key,
    minVersion: 'TLSv1.2',
    ciphers: CIPHERS,
    // Not undefined, because Node would then load its built-in authorities even if no certificate is verified, 30 ms at each
    // start.
    ca: clientCa ?? [],
  };
}

/** @param clientCa if given, clients are asked for a certificate; the listener decides whether they need one */
export function webhookServer(
  listener: RequestListener,
  pair: KeyPair,
  clientCa?: string,
  most = MAX_CONNECTIONS,
): HttpsServer {
  const tls = {
    ...tlsOptions(pair, clientCa),
    handshakeTimeout: TLS_HANDSHAKE_TIMEOUT_MS,
    // Not required: gateways that report have a token, and no certificate.
    ...(clientCa !== undefined && { requestCert: true, rejectUnauthorized: false }),
  };
  const own = new Connections();
  const { handshakes } = own;
  const server = createHttpsServer({ ...LIMITS, ...tls }, own.following(listener));
  connections.set(server, own);
  server.on('connection', (socket: Socket) => {
    const name = peerOf(socket);
    handshakes.set(name, socket);
    socket.once('close', () => handshakes.delete(name));
    if (handshakes.size > MAX_HANDSHAKES) handshakes.values().next().value?.destroy();
  });
  return server.on('secureConnection', (socket) => {
    handshakes.delete(peerOf(socket));
    own.add(socket, most);
  });
}

export function adminServer(listener: RequestListener): Server {
  const own = new Connections();
  const server = http.createServer({ ...LIMITS, ...RARELY_CHECKED }, own.following(listener));
  connections.set(server, own);
  return server.on('connection', (socket) => own.add(socket, MAX_ADMIN_CONNECTIONS));
}

/**
 * Starts to listen. By Node's default, `::` also accepts IPv4, or only IPv4 if the kernel has no IPv6.
 * @param onError called with errors while it listens, such as a lack of file descriptors for new connections
 * @returns the port, which the system chooses if `port` is 0
 * @throws LingerError `port-unavailable`, naming the flag
 */
export function listen(
  server: NetServer,
  host: string,
  port: number,
  flag: string,
  onError: (error: Error) => void,
): Promise<number> {
  return new Promise((resolve, reject) => {
    const refuse = (cause: NodeJS.ErrnoException) => {
      const why = cause.code === 'EADDRINUSE' ? 'another process listens there' : cause.message;
      const message = `cannot listen on ${host}:${port}: ${why}; choose another with ${flag}`;
      reject(new LingerError('port-unavailable', message, { cause }));
    };
    server.once('error', refuse);
    server.listen(host === '::' ? { port } : { host, port }, () => {
      server.off('error', refuse).on('error', onError);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

/**
 * Stops listening, and resolves when every connection has ended: idle ones at once, those with a request in progress when it
 * has been answered, and all of them after 4 s. A timer is needed, because Node no longer checks its timeouts once a server
 * is closing.
 */
export function close(server: Server | HttpsServer): Promise<void> {
  return new Promise((resolve) => {
    const { open, handshakes } = connections.get(server) ?? new Connections();
    const tooLong = setTimeout(() => {
      for (const socket of open.keys()) socket.destroy();
    }, CLOSE_TIMEOUT_MS);
    server.close(() => {
      clearTimeout(tooLong);
      resolve();
    });
    server.closeIdleConnections();
    // Go's transport keeps spare connections that have never sent a byte; Node does not count them as idle.
    for (const socket of open.keys()) if (socket.bytesRead === 0) socket.destroy();
    for (const socket of handshakes.values()) socket.destroy();
  });
}

interface Use {
  /** The number of its latest request (at first, of its opening), counted over all connections of the server. */
  at: number;
  /** How many bytes had been written when that request came. While there are no more, it has not been answered. */
  written: number;
}

/**
 * The connections of one server. They track requests without a listener on each response, which would cost as much as the
 * decision does, and without keeping responses, which the garbage collector would have to copy.
 */
class Connections {
  readonly open = new Map<Socket, Use>();
  /** By {@link peerOf}, oldest first. */
  readonly handshakes = new Map<string, Socket>();
  #count = 0;

  /** @returns a listener for the server's requests that tracks them */
  following(listener: RequestListener): RequestListener {
    return (request, response) => {
      const use = this.open.get(request.socket);
      if (use !== undefined) {
        use.at = ++this.#count;
        use.written = request.socket.bytesWritten;
      }
      listener(request, response);
    };
  }

  /** Adds a new connection. If there are more than `most`, closes the one that it displaces. */
  add(socket: Socket, most: number): void {
    socket.once('close', () => this.open.delete(socket));
    if (this.open.size >= most) this.#leastRecentlyUsed()?.destroy();
    this.open.set(socket, { at: ++this.#count, written: -1 });
  }

  #leastRecentlyUsed(): Socket | undefined {
    let least: Socket | undefined;
    let lowest = Number.POSITIVE_INFINITY;
    for (const [socket, { at, written }] of this.open) {
      const isIdle = socket.bytesWritten > written;
      // Idle connections rank before all that are in use.
      const rank = isIdle ? at - this.#count : at;
      if (rank > lowest || socket.destroyed) continue;
      lowest = rank;
      least = socket;
    }
    return least;
  }
}

const connections = new WeakMap<Server | HttpsServer, Connections>();

/** Identifies a connection before and after its handshake, for which Node uses different sockets. */
function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
