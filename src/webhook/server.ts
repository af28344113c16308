import type { RequestListener, Server } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo, Server as NetServer, Socket } from 'node:net';
import type { SecureContextOptions } from 'node:tls';
import { LingerError } from '../api/index.ts';

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
  // How late those two timeouts may be noticed.
  connectionsCheckingInterval: 1_000,
};

/** On ports without large bodies or TLS: fewer looks let the processor rest. Milliseconds. */
export const RARELY_CHECKED = { connectionsCheckingInterval: 5_000 };
const TLS_HANDSHAKE_TIMEOUT_MS = 5_000;

/** A process that has drained ends this long after it has begun to close, whatever its clients do. */
const CLOSE_TIMEOUT_MS = 4_000;

/**
 * Open connections, including handshakes. Each takes 30 to 60 KB, and at most a small body (32 KiB). Beyond the limit, a
 * new connection displaces the one that has been idle for longest or, where none is idle, the one answered longest ago.
 */
const MAX_CONNECTIONS = 1_000;
const MAX_HANDSHAKES = 250;

export interface KeyPair {
  /** PEM, leaf first. */
  readonly cert: string;
  /** PEM */
  readonly key: string;
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
    // Not undefined: where it judges no certificate, Node would read the authorities that it brings along, 30 ms of every
    // start.
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
  const server = limited(createHttpsServer({ ...LIMITS, ...tls }, listener), 'secureConnection', most);
  const { handshakes } = connectionsOf(server);
  server.on('connection', (socket: Socket) => {
    const name = peerOf(socket);
    handshakes.set(name, socket);
    socket.once('close', () => handshakes.delete(name));
    if (handshakes.size > MAX_HANDSHAKES) firstOf(handshakes.values())?.destroy();
  });
  server.on('secureConnection', (socket) => handshakes.delete(peerOf(socket)));
  return server;
}

export function adminServer(listener: RequestListener): Server {
  return limited(
    http.createServer({ ...LIMITS, ...RARELY_CHECKED }, listener),
    'connection',
    MAX_CONNECTIONS,
  );
}

/**
 * Starts to listen.
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
      const why = cause.code === 'EADDRINUSE' ? 'something else listens there' : cause.message;
      const message = `cannot listen on ${host}:${port}: ${why}; choose another with ${flag}`;
      reject(new LingerError('port-unavailable', message, { cause }));
    };
    server.once('error', refuse);
    server.listen({ host, port }, () => {
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
    const { all, handshakes } = connectionsOf(server);
    const tooLong = setTimeout(() => {
      for (const socket of all) socket.destroy();
    }, CLOSE_TIMEOUT_MS);
    server.close(() => {
      clearTimeout(tooLong);
      resolve();
    });
    server.closeIdleConnections();
    // Go's transport keeps spare connections that never sent a byte; Node does not count them as idle.
    for (const socket of all) if (socket.bytesRead === 0) socket.destroy();
    for (const socket of handshakes.values()) socket.destroy();
  });
}

interface Connections {
  /** The least recently used first. */
  readonly all: Set<Socket>;
  /** Those with a request that has not been answered. */
  readonly busy: Set<Socket>;
  /** By {@link peerOf}, the oldest first. */
  readonly handshakes: Map<string, Socket>;
}

const connections = new WeakMap<Server | HttpsServer, Connections>();

function connectionsOf(server: Server | HttpsServer): Connections {
  const known = connections.get(server) ?? { all: new Set(), busy: new Set(), handshakes: new Map() };
  connections.set(server, known);
  return known;
}

function limited<S extends Server | HttpsServer>(
  server: S,
  event: 'connection' | 'secureConnection',
  most: number,
): S {
  const { all, busy } = connectionsOf(server);
  server.on(event, (socket: Socket) => {
    all.add(socket);
    socket.once('close', () => {
      all.delete(socket);
      busy.delete(socket);
    });
    if (all.size > most)
      (firstOf(all, (each) => each !== socket && !busy.has(each)) ?? firstOf(all))?.destroy();
  });
  server.on('request', ({ socket }, response) => {
    busy.add(socket);
    response.once('close', () => {
      busy.delete(socket);
      if (all.delete(socket) && !socket.destroyed) all.add(socket);
    });
  });
  return server;
}

function firstOf<T>(items: Iterable<T>, suits: (item: T) => boolean = () => true): T | undefined {
  for (const item of items) if (suits(item)) return item;
  return undefined;
}

/** The same for a connection before and after its handshake, which are different sockets to Node. */
function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
