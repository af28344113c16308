import { once } from 'node:events';
import type http from 'node:http';
import type https from 'node:https';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import type { AtEnd } from './connection.ts';

/**
 * Listens on a free port of the loopback, and closes everything at the end.
 * @returns the port
 */
export async function listening(
  server: http.Server | https.Server,
  atEnd: AtEnd = onTestFinished as AtEnd,
): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  atEnd(() => closed(server));
  return (server.address() as AddressInfo).port;
}

/** Ends every connection, and resolves once there is none. */
export async function closed(server: http.Server | https.Server): Promise<void> {
  if (!server.listening) return;
  const gone = once(server, 'close');
  server.close();
  server.closeAllConnections();
  await gone;
}
