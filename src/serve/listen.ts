import type { RequestListener, Server } from 'node:http';
import { createServer as createHttpsServer, type Server as HttpsServer } from 'node:https';
import type { AddressInfo, Socket } from 'node:net';
import { LingerError } from '../core/catalog/errors.ts';
import { http } from './http.ts';

/**
 * Go's http.Transport, and so the API server, drops idle connections after 90 s. A server that drops them earlier
 * resets a review now and then that is already on its way.
 */
const KEEP_ALIVE_MS = 100_000;

/**
 * The API server writes a review at once and never waits longer than 30 s for the answer (timeoutSeconds). Whoever
 * takes longer than these to send headers, or a whole request, is not it.
 */
const HEADERS_TIMEOUT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 15_000;
/** How late those two may be noticed. */
const CHECK_INTERVAL_MS = 1_000;
const TLS_HANDSHAKE_TIMEOUT_MS = 5_000;

const LIMITS = {
  keepAliveTimeout: KEEP_ALIVE_MS,
  headersTimeout: HEADERS_TIMEOUT_MS,
  requestTimeout: REQUEST_TIMEOUT_MS,
  connectionsCheckingInterval: CHECK_INTERVAL_MS,
};

export interface KeyPair {
  /** PEM, leaf first. */
  readonly cert: string;
  /** PEM */
  readonly key: string;
}

export function webhookServer(listener: RequestListener, { cert, key }: KeyPair): HttpsServer {
  const tls = { cert, key, minVersion: 'TLSv1.2' as const, handshakeTimeout: TLS_HANDSHAKE_TIMEOUT_MS };
  return track(createHttpsServer({ ...LIMITS, ...tls }, listener), 'secureConnection');
}

export function adminServer(listener: RequestListener): Server {
  return track(http.createServer(LIMITS, listener), 'connection');
}

/**
 * Starts to listen.
 * @param onError what goes wrong while it listens, such as no file descriptor left for a connection
 * @returns the port, which the system has chosen where `port` is 0
 * @throws LingerError `port-unavailable`, naming the flag
 */
export function listen(
  server: Server | HttpsServer,
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
 * Stops listening and resolves when every connection has ended: those between two requests, and those that never
 * said anything (Go's transport keeps some in reserve), at once; those in the middle of a request when it has been
 * answered, or when it has taken too long. Node itself no longer looks at its timeouts once a server is closing.
 */
export function close(server: Server | HttpsServer): Promise<void> {
  return new Promise((resolve) => {
    const tooLong = setTimeout(() => server.closeAllConnections(), REQUEST_TIMEOUT_MS);
    server.close(() => {
      clearTimeout(tooLong);
      resolve();
    });
    server.closeIdleConnections();
    for (const socket of openSockets.get(server) ?? []) {
      if (socket.bytesRead === 0) socket.destroy();
    }
  });
}

const openSockets = new WeakMap<Server | HttpsServer, Set<Socket>>();

function track<S extends Server | HttpsServer>(server: S, event: 'connection' | 'secureConnection'): S {
  const sockets = new Set<Socket>();
  openSockets.set(server, sockets);
  server.on(event, (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  return server;
}
