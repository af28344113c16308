import net from 'node:net';
import type { LossKind } from '../../testbed/load/request.ts';
import type { GatewayConnection } from './messages.ts';

export interface ProxyOptions {
  readonly connectTimeoutMs: number;
  /** `ip:port` of those that a new connection may be sent to, now. */
  readonly endpoints: () => readonly string[];
  /** Called for each connection once its outcome is known, and before its client knows it. */
  readonly sent: (connection: GatewayConnection) => void;
}

const KINDS: Readonly<Record<string, LossKind>> = {
  ECONNREFUSED: 'refused',
  ECONNRESET: 'reset',
  ETIMEDOUT: 'timeout',
  EHOSTUNREACH: 'unreachable',
  ENETUNREACH: 'unreachable',
};

/**
 * A TCP proxy: each new connection goes to the next endpoint, and stays there for as long as it lives. One that cannot
 * be made is reset; it is not tried elsewhere, since what is lost is what is counted.
 */
export function createProxy({ connectTimeoutMs, endpoints, sent }: ProxyOptions): net.Server {
  let turn = 0;
  const accept = (client: net.Socket) => {
    const from = `${client.remoteAddress}:${client.remotePort}`;
    const known = endpoints();
    const backend = known[turn++ % Math.max(1, known.length)];
    const told = (lost?: LossKind) =>
      sent({ event: 'connection', client: from, backend, ...(lost === undefined ? {} : { lost }) });
    const lose = (kind: LossKind) => {
      told(kind);
      client.resetAndDestroy();
    };
    client.on('error', () => client.destroy());
    if (backend === undefined) return lose('noEndpoint');
    const [host = '', port = ''] = backend.split(':');
    const server = net.connect({ host, port: Number(port), allowHalfOpen: true, noDelay: true });
    let isSettled = false;
    const giveUp = () => {
      if (isSettled) return;
      server.destroy();
      lose('timeout');
    };
    // After this process has stalled, its timers run before its sockets are read.
    const timer = setTimeout(() => setImmediate(giveUp), connectTimeoutMs);
    const settle = () => {
      isSettled = true;
      clearTimeout(timer);
    };
    const failed = (error: NodeJS.ErrnoException) => {
      settle();
      const kind = KINDS[error.code ?? ''];
      // No fault of the network's, such as no port being left: the scenario itself is wrong.
      if (kind === undefined) throw error;
      lose(kind);
    };
    server.once('error', failed);
    server.once('connect', () => {
      settle();
      server.off('error', failed);
      told();
      splice(client, server);
    });
    client.once('close', () => server.destroy());
  };
  return net.createServer({ allowHalfOpen: true, pauseOnConnect: true, noDelay: true }, accept);
}

/** Passes on bytes, ends and resets. */
function splice(client: net.Socket, server: net.Socket): void {
  server.on('error', () => client.resetAndDestroy());
  server.once('close', () => {
    // What it has sent is on its way to the client: only then is there nothing left to do.
    if (client.writableEnded) client.destroySoon();
  });
  client.pipe(server);
  server.pipe(client);
}
