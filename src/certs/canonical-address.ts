import { isIPv4, isIPv6 } from 'node:net';

/** IPv6 has at most 45 characters, an interface's name 15. */
const LONGEST_ADDRESS = 64;

/**
 * An address in the one spelling that addresses are compared in: IPv4 as four decimals, also where it is mapped into
 * IPv6; IPv6 as in RFC 5952, without a zone.
 * @returns undefined for what is no address
 */
export function canonicalAddress(text: string): string | undefined {
  if (text.length > LONGEST_ADDRESS) return undefined;
  if (isIPv4(text)) return text;
  const [bare = ''] = text.split('%');
  if (!isIPv6(bare)) return undefined;
  // The URL parser writes RFC 5952 with no dotted tail, one spelling for each address.
  const spelled = new URL(`http://[${bare}]`).hostname.slice(1, -1);
  const [, ...halves] = /^::ffff:([\da-f]+):([\da-f]+)$/.exec(spelled) ?? [];
  if (halves.length === 0) return spelled;
  const numbers = halves.map((half) => Number.parseInt(half, 16));
  return numbers.flatMap((number) => [number >> 8, number & 255]).join('.');
}
