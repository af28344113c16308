import type { RequestListener, Server } from 'node:http';
import { http } from '../cluster/index.ts';
import { close, listen } from '../webhook/index.ts';
import { stopRequested, type Terminal } from './terminal.ts';

const MOST_CONNECTIONS = 64;
/** Connections from one address: the leader makes one request to an instance at a time. */
const MOST_OF_ONE = 8;
const REQUEST_MS = 5_000;

interface ListenAddress {
  /** Empty: all addresses. */
  readonly address: string;
  readonly port: number;
  /** The flag that errors should name. */
  readonly flag: string;
}

/**
 * Serves what the leader requests from outside of the replicas. Resolves when the process is asked to stop.
 * @param about what is served, for the line that says where
 */
export async function serveLeader(
  { address, port, flag }: ListenAddress,
  answer: RequestListener,
  { warn }: Pick<Terminal, 'warn'>,
  about: string,
): Promise<void> {
  const server = http.createServer({ requestTimeout: REQUEST_MS, headersTimeout: REQUEST_MS }, answer);
  limitConnections(server);
  const bound = await listen(server, address, port, flag, (error) => warn(`linger: ${error.message}`));
  warn(`listening on ${address === '' ? '*' : address}:${bound}; ${about}`);
  await stopRequested();
  await close(server);
}

/** Prevents one client from taking all connections. */
export function limitConnections(server: Server): void {
  server.maxConnections = MOST_CONNECTIONS;
  const open = new Map<string, number>();
  server.on('connection', (socket) => {
    const from = socket.remoteAddress ?? '';
    const others = open.get(from) ?? 0;
    if (others >= MOST_OF_ONE) {
      socket.destroy();
      return;
    }
    open.set(from, others + 1);
    socket.once('close', () => {
      const left = (open.get(from) ?? 1) - 1;
      if (left > 0) open.set(from, left);
      else open.delete(from);
    });
  });
}
