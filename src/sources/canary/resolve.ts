import { lookup } from 'node:dns/promises';
import { BlockList, isIP } from 'node:net';
import { pause } from '../pause.ts';
import type { Problem } from './attempt.ts';

/** DNS clients ask again after 5 s; whoever has not answered a second time is away. */
const WITHIN_MS = 8_000;

/** Finds IPv4 addresses that are written as IPv6 ones, too. */
const LINK_LOCAL = new BlockList();
LINK_LOCAL.addSubnet('169.254.0.0', 16, 'ipv4');
LINK_LOCAL.addSubnet('fe80::', 10, 'ipv6');

/**
 * The addresses of a URL's host. Asked for once in a flip and not for each attempt: those would wait for each other in
 * the few threads that resolve names, and for everything else that is read there.
 */
export async function resolve(
  url: URL,
  signal: AbortSignal,
): Promise<{ readonly addresses: readonly string[] } | Problem> {
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const addresses = isIP(host) === 0 ? await lookUp(host, signal) : [host];
  if (typeof addresses === 'string') return unreachable(`cannot resolve its host (${addresses})`);
  // Clouds keep credentials there (169.254.169.254), and no gateway that pods send their traffic to has such an address.
  const allowed = addresses.filter(
    (address) => !LINK_LOCAL.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4'),
  );
  if (allowed.length === 0) return unreachable('is not sent to link-local addresses');
  return { addresses: allowed };
}

async function lookUp(host: string, signal: AbortSignal): Promise<readonly string[] | string> {
  const found = lookup(host, { all: true }).then(
    (all) => all.map(({ address }) => address),
    (error: NodeJS.ErrnoException) => error.code ?? error.name,
  );
  const late = pause(WITHIN_MS, signal).then(() => 'no answer in time');
  return Promise.race([found, late]);
}

function unreachable(message: string): Problem {
  return { reason: 'Unreachable', message, turnedAway: false };
}
