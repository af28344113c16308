import { isIP, isIPv6 } from 'node:net';
import { networkInterfaces } from 'node:os';
import type { ServerOptions } from './options.ts';

/** Whether a server with this host listens on all addresses. */
export function isUnspecified(host: string): boolean {
  return host === '0.0.0.0' || host === '::';
}

/** The address on which other replicas reach this replica's Hold Service. */
export function relayAddress({
  host,
  podIp,
  holdPort,
}: Pick<ServerOptions, 'host' | 'podIp' | 'holdPort'>): string {
  const all = Object.values(networkInterfaces()).flatMap((each) => each ?? []);
  const first = all.find(({ internal, scopeid }) => !internal && !scopeid)?.address ?? '127.0.0.1';
  const address = podIp ?? (isIP(host) === 0 || isUnspecified(host) ? first : host);
  return isIPv6(address) ? `[${address}]:${holdPort}` : `${address}:${holdPort}`;
}
