import { readFile } from 'node:fs/promises';
import type { RequestListener, Server } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo, Server as NetServer, Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
import type { KeyPair } from '../certs/index.ts';
import { LingerError } from '../core/api/index.ts';

/**
 * node:http. An `import` of its values would read each of its exports once, and with them the getters of WebSocket and
 * its kin, which load a whole HTTP client (undici) that nothing here uses: 9 MB of resident memory, on Node 24.9.
 */
export const http = process.getBuiltinModule('node:http');

/** Milliseconds. */
const LIMITS = {
  // Go's http.Transport, and so the API server, drops idle connections after 90 s. A server that drops them earlier
  // occasionally resets a review that is already on its way.
  keepAliveTimeout: 100_000,
  // The API server writes a review at once and never waits longer than 30 s for the answer (timeoutSeconds; 10 s where
  // nothing is set, 2 s in deploy/webhook.yaml). A client that takes longer than these to send is not it.
  headersTimeout: 5_000,
  requestTimeout: 10_000,
  connectionsCheckingInterval: 1_000,
};

/** For ports without large bodies or TLS, so that the processor can rest. Milliseconds. */
export const RARELY_CHECKED = { connectionsCheckingInterval: 5_000 };
const TLS_HANDSHAKE_TIMEOUT_MS = 5_000;

/** A process that has drained ends this long after it has begun to close, whatever its clients do. */
const CLOSE_TIMEOUT_MS = 4_000;

/**
 * Open connections, including handshakes. Each takes 30 to 60 KB, and at most a small body (32 KiB). Beyond the limit, a
 * new connection displaces the idle one whose last request is the oldest or, where none is idle, the one with the oldest
 * request.
 */
const MAX_CONNECTIONS = 1_000;
const MAX_HANDSHAKES = 250;
/** On the port of metrics and health, which a kubelet, scrapers and people use. */
const MAX_ADMIN_CONNECTIONS = 100;

/** The most connections of the Hold Service, and file descriptors for all else: reviews, pages, watches, files. */
const MAX_HOLD_CONNECTIONS = 16_384;
const OTHER_DESCRIPTORS = 2_000;

/**
 * How many connections fit into the file descriptors of this process. Beyond them the system drops new connections silently,
 * so helpers must leave some to reviews.
 * @returns `limit` where it is below what all ports together may take
 */
export async function connectionsThatFit(): Promise<{
  readonly reviews: number;
  readonly holds: number;
  readonly limit?: number;
}> {
  // Missing on some systems; then there is enough.
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const limit = Number(/^Max open files +(\d+)/m.exec(limits)?.[1] ?? Number.POSITIVE_INFINITY);
  if (limit >= MAX_HOLD_CONNECTIONS + OTHER_DESCRIPTORS)
    return { reviews: MAX_CONNECTIONS, holds: MAX_HOLD_CONNECTIONS };
  const holds = Math.max(Math.floor(limit / 4), limit - OTHER_DESCRIPTORS);
  return { reviews: Math.min(MAX_CONNECTIONS, Math.floor(limit / 2)), holds, limit };
}

/** The suites of TLS 1.3, and those of TLS 1.2 with forward secrecy and authenticated encryption (RFC 9325, 4.2). */
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
 * How the webhook's port speaks TLS, for `webhookServer` and `setSecureContext`, which forgets what it is not given.
 * @param clientCa PEM of the authorities of clients' certificates
 */
export function tlsOptions({ cert, key }: KeyPair, clientCa?: string): SecureContextOptions {
  return {
    cert,
    key,
    minVersion: 'TLSv1.2',
    ciphers: CIPHERS,
    // Not undefined: even if no certificate is judged, Node would read its built-in authorities, 30 ms of every start.
    ca: clientCa ?? [],
  };
}

/** @param clientCa with it, clients are asked for a certificate; the listener decides whether they need one */
export function webhookServer(
  listener: RequestListener,
  pair: KeyPair,
  clientCa?: string,
  most = MAX_CONNECTIONS,
): HttpsServer {
  const tls = {
    ...tlsOptions(pair, clientCa),
    handshakeTimeout: TLS_HANDSHAKE_TIMEOUT_MS,
    // Gateways that report have a token, and no certificate.
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
 * Starts to listen. On `::`, left to Node's default, it takes IPv4, too, and IPv4 alone where the kernel has no IPv6.
 * @param onError what goes wrong while it listens, such as no file descriptor left for a connection
 * @returns the port, which the system has chosen where `port` is 0
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
 * Stops listening and resolves when every connection has ended: the idle ones at once, those in the middle of a request
 * when it has been answered, and all of them after 4 s. Node itself no longer looks at its timeouts once a server is
 * closing.
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
    // Go's transport keeps spare connections that never sent a byte; Node does not count them as idle.
    for (const socket of open.keys()) if (socket.bytesRead === 0) socket.destroy();
    for (const socket of handshakes.values()) socket.destroy();
  });
}

interface Use {
  /** The number of its latest request, or of its opening, counted over all connections of the server. */
  at: number;
  /** Bytes that had been written when that request came; as long as there are no more, it has no answer. */
  written: number;
}

/**
 * The connections of one server. They keep account of requests without a listener on each response, which would cost as
 * much as the decision does, and without keeping responses, which the garbage collector would then have to copy.
 */
class Connections {
  readonly open = new Map<Socket, Use>();
  /** By {@link peerOf}, the oldest first. */
  readonly handshakes = new Map<string, Socket>();
  #count = 0;

  /** @returns the listener for the server's requests */
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

  /** Takes a new connection in, and closes the one that it displaces where there are more than `most`. */
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

/** The same for a connection before and after its handshake, which are different sockets to Node. */
function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
