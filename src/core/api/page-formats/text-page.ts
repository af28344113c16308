import { canonicalAddress } from '../canonical-address.ts';
import { type PageFormatKind, TokenReader } from './page-reader.ts';

const IPV4_IN_RUN = /(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?!\d|\.\d)(?::(\d{1,5})(?![\d.:]))?/g;

/** The most colons of a run that may contain an IPv6 address: the address has at most seven, a port one, a prefix a few. */
const MOST_COLONS = 12;

/**
 * Any page: an address that appears on it as a whole token is in use. 10.0.0.1 does not match 10.0.0.10, and fd00::1
 * matches FD00:0:0:0:0:0:0:1. A port directly behind the address must match, too; without one, any port does.
 */
class TextReader extends TokenReader {
  /** Runs of the characters of addresses. */
  protected readonly tokens = /[0-9A-Za-z.:%[\]]+/g;
  protected readonly longest = 256;

  protected token(run: string): void {
    for (const [, address = '', port] of run.matchAll(IPV4_IN_RUN)) this.#found(address, port);
    const colons = run.split(':').length - 1;
    if (colons <= MOST_COLONS && (colons >= 2 || run.includes(']:'))) this.#ipv6(run);
  }

  #ipv6(run: string): void {
    if (run.includes('[')) {
      for (const [, bracketed = '', port] of run.matchAll(/\[([^[\]]+)\](?::(\d{1,5}))?/g))
        this.#found(bracketed, port);
      return;
    }
    const bare = withoutMarks(run);
    if (this.#foundIpv6(bare)) return;
    // Something precedes the address, such as `inet6:`.
    for (let at = bare.indexOf(':'); at >= 0; at = bare.indexOf(':', at + 1))
      this.#foundIpv6(bare.slice(at + 1));
  }

  /** Reads `fd00::1:8080` in both ways: without brackets a port is written like a group. @returns whether it is any */
  #foundIpv6(text: string): boolean {
    const at = text.lastIndexOf(':');
    const before = text.slice(0, at);
    const port = text.slice(at + 1);
    const isWhole = mayBeIpv6(text) && this.#found(text, undefined);
    const isBefore = PORT.test(port) && mayBeIpv6(before) && this.#found(before, port);
    return isWhole || isBefore;
  }

  /** @returns whether it is an address */
  #found(text: string, port: string | undefined): boolean {
    const address = canonicalAddress(text);
    if (address === undefined) return false;
    this.list({ address, port: port === undefined ? undefined : Number(port) }, true);
    return true;
  }
}

const PORT = /^\d{1,5}$/;

/** Strips punctuation at the ends: `fd00::1.` at the end of a sentence, `fd00::1:` before a colon. */
function withoutMarks(run: string): string {
  let end = run.length;
  while (end > 0 && (run[end - 1] === '.' || run[end - 1] === ']')) end -= 1;
  if (run[end - 1] === ':' && run[end - 2] !== ':') end -= 1;
  return run.slice(run[0] === ':' && run[1] !== ':' ? 1 : 0, end);
}

/** A cheap look before the address is parsed: it has eight groups, of which the last two may be four decimals, or `::`. */
function mayBeIpv6(text: string): boolean {
  if (text.includes('::')) return true;
  const colons = text.split(':').length - 1;
  return colons === 7 || (colons === 6 && text.includes('.'));
}

export const TEXT = {
  page: 'any, such as that of Eureka, Consul or Nacos',
  unless: 'never. The address must match as a whole; a port after it counts',
  Reader: TextReader,
} as const satisfies PageFormatKind;
