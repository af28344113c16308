import { canonicalAddress } from '../../certs/index.ts';
import { FOREIGN_LIMITS, isRecord, jsonIn, type PageFormat } from '../../core/api/index.ts';

/**
 * Pages on which gateways and discovery services list their endpoints, parsed as streams. A listed address is not always in
 * use, since some gateways keep listing terminating endpoints. How a page shows that depends on its format, so each format
 * has its own reader.
 */

/** An address of a pod, in canonical spelling. */
export interface PageEndpoint {
  /** As {@link canonicalAddress} writes it. */
  readonly address: string;
  /** Empty: not known, so any port matches. */
  readonly ports: readonly number[];
}

/** Stands for the ports of a wanted endpoint where they are not known. */
const ANY_PORT = 0;

/** A pod is in few of Envoy's clusters; with more than this the page is read unfiltered. */
export const MOST_CLUSTERS = 32;
/** Longer filters of cluster names are not sent. */
export const LONGEST_FILTER = 2_000;

/** What a page shows about the wanted endpoints. */
export class PageFindings {
  /** By address, whether it is in use by port; undefined: a listing that names no port; {@link ANY_PORT}: by some port. */
  readonly endpoints: ReadonlyMap<string, ReadonlyMap<number | undefined, boolean>>;
  /** The names of the Envoy clusters that list any of them; more than {@link MOST_CLUSTERS}: not all are here. */
  readonly clusters: ReadonlySet<string>;
  /** By address, when it left, where that is known. */
  readonly leftAt: ReadonlyMap<string, number>;

  constructor(
    endpoints: PageFindings['endpoints'],
    clusters: ReadonlySet<string>,
    leftAt: ReadonlyMap<string, number> = new Map(),
  ) {
    this.endpoints = endpoints;
    this.clusters = clusters;
    this.leftAt = leftAt;
  }

  /** What something that knows no ports lists, and when an address left that it listed. */
  static at(addresses: ReadonlyMap<string, true | number>): PageFindings {
    const all = [...addresses];
    const found = all.map(([address, at]) => [address, new Map([[undefined, at === true]])] as const);
    const left = all.flatMap(([address, at]) => (at === true ? [] : [[address, at] as const]));
    return new PageFindings(new Map(found), new Set(), new Map(left));
  }

  /** `listed`: on the page, but marked as not in use. */
  of({ address, ports }: PageEndpoint): 'using' | 'listed' | 'absent' {
    const found = this.endpoints.get(address) ?? [];
    const own = [...found].filter(
      ([port]) => port === undefined || ports.length === 0 || ports.includes(port),
    );
    if (own.length === 0) return 'absent';
    return own.some(([, used]) => used) ? 'using' : 'listed';
  }
}

export function readerOf(format: PageFormat, wanted: Iterable<PageEndpoint>): PageReader {
  return new READERS[format](wanted);
}

/** The most bytes that are read of a page. */
export const LONGEST_PAGE = FOREIGN_LIMITS.page.bytes;

/** `10.0.0.1:8080`, `[fd00::1]:8080`; perhaps with a scheme before and a path behind. */
const AUTHORITY = /^(?:([a-z][-a-z0-9+.]*):\/\/)?(\[[^\]]+\]|[^:/?#]+)(?::(\d{1,5}))?(?:[/?#]|$)/i;
const DEFAULT_PORTS: Readonly<Record<string, number>> = { http: 80, h2c: 80, https: 443 };

interface Endpoint {
  readonly address: string;
  readonly port: number | undefined;
}

/** @returns undefined where the host is no address */
export function endpointIn(text: string): Endpoint | undefined {
  const [, scheme = '', host = '', port] = AUTHORITY.exec(text) ?? [];
  const address = canonicalAddress(host.replace(/^\[|\]$/g, ''));
  if (address === undefined) return undefined;
  return { address, port: port === undefined ? DEFAULT_PORTS[scheme.toLowerCase()] : Number(port) };
}

/** The address as written before a port. */
export function authorityOf(address: string, port: number): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Reads one page, in time linear in its length. */
export abstract class PageReader {
  readonly #wanted = new Map<string, Set<number>>();
  readonly #found = new Map<string, Map<number | undefined, boolean>>();
  readonly #clusters = new Set<string>();

  constructor(wanted: Iterable<PageEndpoint>) {
    for (const { address, ports } of wanted) {
      const all = this.#wanted.get(address) ?? new Set();
      for (const port of ports.length === 0 ? [ANY_PORT] : ports) all.add(port);
      this.#wanted.set(address, all);
    }
  }

  abstract write(chunk: Buffer): void;

  /** Call after the last chunk. @returns the findings, or the problem as a phrase after `the page` */
  end(): PageFindings | string {
    return this.problem() ?? new PageFindings(this.#found, this.#clusters);
  }

  /** Called after the last chunk. @returns the problem with the page, as a phrase after `the page` */
  protected abstract problem(): string | undefined;

  /** Adds a listing; an endpoint is in use if any of its listings is. @returns whether its address is wanted */
  protected list(endpoint: Endpoint | undefined, used: boolean): boolean {
    if (endpoint === undefined) return false;
    const { address, port } = endpoint;
    const wanted = this.#wanted.get(address);
    if (wanted === undefined) return false;
    const ports = this.#found.get(address) ?? new Map<number | undefined, boolean>();
    this.#found.set(address, ports);
    const counts = port === undefined ? [undefined] : [port, ANY_PORT].filter((each) => wanted.has(each));
    for (const each of counts) ports.set(each, used || ports.get(each) === true);
    return true;
  }

  protected listedBy(cluster: string): void {
    if (this.#clusters.size <= MOST_CLUSTERS) this.#clusters.add(cluster.slice(0, LONGEST_FILTER + 1));
  }
}

/** Reads a page token by token, however it is cut into chunks. */
abstract class TokenReader extends PageReader {
  /** Matches a token. The last token of a chunk may continue in the next. */
  protected abstract readonly tokens: RegExp;
  /** Tokens that are longer than this are {@link abridged}. */
  protected abstract readonly longest: number;
  #rest = '';

  write(chunk: Buffer): void {
    // One character for each byte: only ASCII is compared, and no character can be split between chunks.
    const text = this.#rest + chunk.toString('latin1');
    this.#rest = '';
    for (const { 0: token, index } of text.matchAll(this.tokens)) {
      const kept = token.length > this.longest ? this.abridged(token) : token;
      if (index + token.length === text.length) this.#rest = kept;
      else if (kept.length <= this.longest) this.token(kept);
      else this.skipped();
    }
  }

  override end(): PageFindings | string {
    this.write(END_OF_TOKEN);
    return super.end();
  }

  /** Shortens a long token, or the beginning of one: here to just enough to show that it is too long, so it is skipped. */
  protected abridged(token: string): string {
    return token.slice(0, this.longest + 1);
  }

  protected abstract token(text: string): void;

  /** A token was too long. */
  protected skipped(): void {}

  protected problem(): string | undefined {
    return undefined;
  }
}

const END_OF_TOKEN = Buffer.from('\n');
const LONGEST_LINE = 4 * 1024;

/**
 * Reads a page line by line. A page with an overlong line is unreadable, since an address on that line would seem absent.
 */
abstract class LinePageReader extends TokenReader {
  protected readonly tokens = /[^\r\n]+/g;
  protected readonly longest = LONGEST_LINE;
  #hasLongLine = false;

  protected override skipped(): void {
    this.#hasLongLine = true;
  }

  protected override problem(): string | undefined {
    return this.#hasLongLine ? 'has a line of more than 4 KiB' : undefined;
  }
}

const ENVOY_LINE = /::(?:added_via_api|observability_name|default_priority|high_priority|health_flags)::/;
const ENVOY_HOST = /^(?:\[[0-9a-f:.]+\]|[\d.]+):\d{1,5}$/i;
const PRIORITY = /^\d{1,3}$/;

/** `CLUSTER::ADDRESS:PORT::WHAT::VALUE`; a cluster's name may have `::` in it, as an IPv6 address has. */
function envoyHostIn(line: string, what: 'health_flags' | 'priority') {
  const mark = `::${what}::`;
  const end = line.lastIndexOf(mark);
  if (end < 0) return undefined;
  const bracket = line.lastIndexOf(']:', end) < 0 ? -1 : line.lastIndexOf('::[', end);
  const begin = bracket < 0 ? line.lastIndexOf('::', end - 1) : bracket;
  const name = line.slice(begin + 2, end);
  // A pipe or an internal listener has no address.
  if (begin < 0 || !ENVOY_HOST.test(name)) return undefined;
  return { cluster: line.slice(0, begin), name, value: line.slice(end + mark.length) };
}

// Source: envoy source/common/upstream/host_utility.cc and host_description.h.
const WITHDRAWN = /\/failed_eds_health|\/eds_status_draining/;
const UNHEALTHY = /\/failed_|\/eds_status_draining/;

interface EnvoyHost {
  readonly name: string;
  readonly flags: string;
  priority: string;
}

/**
 * Envoy's `/clusters` as text: lines `CLUSTER::ADDRESS::health_flags::FLAGS`, then `…::priority::N`. A host is out of use
 * when its discovery marks it as not healthy; not when it was ejected or fails Envoy's own checks, from which it may come
 * back. Where less than half of a priority's hosts are healthy, Envoy panics and sends to all of them (50 % is the
 * default of healthy_panic_threshold; the page does not show other values).
 */
class EnvoyReader extends LinePageReader {
  #cluster = '';
  #host: EnvoyHost | undefined;
  /** The number of hosts of each priority of this cluster. */
  readonly #priorities = new Map<string, { all: number; healthy: number }>();
  /** The wanted hosts of this cluster that its discovery has marked as not healthy. */
  #withdrawn: EnvoyHost[] = [];
  #isEmpty = true;
  #isKnown = false;

  protected token(line: string): void {
    this.#isEmpty = false;
    const listed = envoyHostIn(line, 'health_flags');
    const ranked = listed === undefined ? envoyHostIn(line, 'priority') : undefined;
    this.#isKnown ||= listed !== undefined || ranked !== undefined || ENVOY_LINE.test(line);
    if (ranked !== undefined && this.#host?.name === ranked.name && PRIORITY.test(ranked.value))
      this.#host.priority = ranked.value;
    if (listed === undefined) return;
    const { cluster, name, value } = listed;
    if (cluster !== this.#cluster) this.#settleCluster();
    else this.#settleHost();
    this.#cluster = cluster;
    this.#host = { name, flags: value, priority: '0' };
  }

  protected override problem(): string | undefined {
    this.#settleCluster();
    const strange = this.#isEmpty || this.#isKnown ? undefined : 'is not what Envoy answers at /clusters';
    return super.problem() ?? strange;
  }

  #settleHost(): void {
    const host = this.#host;
    if (host === undefined) return;
    this.#host = undefined;
    const { name, flags, priority } = host;
    const count = this.#priorities.get(priority) ?? { all: 0, healthy: 0 };
    count.all += 1;
    if (!UNHEALTHY.test(flags)) count.healthy += 1;
    this.#priorities.set(priority, count);
    const isWithdrawn = WITHDRAWN.test(flags);
    if (!this.list(endpointIn(name), !isWithdrawn)) return;
    this.listedBy(this.#cluster);
    if (isWithdrawn) this.#withdrawn.push(host);
  }

  #settleCluster(): void {
    this.#settleHost();
    for (const { name, priority } of this.#withdrawn) {
      const { all = 0, healthy = 0 } = this.#priorities.get(priority) ?? {};
      if (healthy * 2 < all) this.list(endpointIn(name), true);
    }
    this.#withdrawn = [];
    this.#priorities.clear();
  }
}

/**
 * The bits of srv_admin_state for maintenance by an operator, by the configuration, by another server, or for want of an
 * address.
 */
const MAINTENANCE = 0x01 | 0x02 | 0x04 | 0x20 | 0x40;

/**
 * HAProxy's statistics as CSV (`/stats;csv`, `show stat`), or its `show servers state`. A server is out of use when it is
 * in maintenance, as is one whose address has vanished from DNS; not when its checks fail, since it may come back.
 */
class HaproxyReader extends LinePageReader {
  #columns: ReadonlyMap<string, number> = new Map();
  #first = '';
  #hasAddresses = false;
  #hasNameless = false;
  #isWide = false;

  protected token(line: string): void {
    if (line.startsWith('# pxname,')) this.#head(cellsOf(line.slice(2)));
    else if (line.startsWith('# be_id ')) this.#head(line.slice(2).split(' ', MOST_COLUMNS + 1));
    else if (this.#first === 'pxname') this.#statistics(cellsOf(line));
    else if (this.#first === 'be_id') this.#state(line.split(' ', MOST_COLUMNS));
  }

  protected override problem(): string | undefined {
    if (this.#isWide) return `has more than ${MOST_COLUMNS} columns`;
    const broken = super.problem();
    if (broken !== undefined) return broken;
    if (this.#first === '') return 'is neither statistics of HAProxy as CSV nor its servers’ state';
    if (!this.#hasAddresses && this.#hasNameless)
      return 'lists servers without their addresses, which `stats show-legends` shows';
    return undefined;
  }

  #head(columns: readonly string[]): void {
    this.#isWide ||= columns.length > MOST_COLUMNS;
    this.#columns = new Map(columns.map((name, at) => [name, at]));
    this.#first = columns[0] ?? '';
  }

  #cell(cells: readonly string[], column: string): string {
    return cells[this.#columns.get(column) ?? -1] ?? '';
  }

  #statistics(cells: readonly string[]): void {
    const name = this.#cell(cells, 'svname');
    if (name === 'FRONTEND' || name === 'BACKEND' || this.#cell(cells, 'type') !== '2') return;
    const inUse = !this.#cell(cells, 'status').startsWith('MAINT');
    this.#server(this.#cell(cells, 'addr'), inUse);
  }

  #state(cells: readonly string[]): void {
    const address = this.#cell(cells, 'srv_addr');
    const inUse = (Number(this.#cell(cells, 'srv_admin_state')) & MAINTENANCE) === 0;
    const isAddress = canonicalAddress(address) !== undefined;
    this.#server(isAddress ? authorityOf(address, Number(this.#cell(cells, 'srv_port'))) : address, inUse);
  }

  #server(text: string, inUse: boolean): void {
    const endpoint = endpointIn(text);
    this.#hasAddresses ||= endpoint !== undefined;
    this.#hasNameless ||= inUse && text === '';
    this.list(endpoint, inUse);
  }
}

/** HAProxy 3.2 has some 100. */
const MOST_COLUMNS = FOREIGN_LIMITS.page.parts.most;

/** Splits a line of CSV. A cell with a comma is quoted, and a quote within it is doubled. */
function cellsOf(line: string): readonly string[] {
  if (!line.includes('"')) return line.split(',', MOST_COLUMNS + 1);
  const cells: string[] = [];
  for (let at = 0; at <= line.length && cells.length <= MOST_COLUMNS; ) {
    const isQuoted = line[at] === '"';
    const close = isQuoted ? closingQuote(line, at + 1) : at;
    const comma = line.indexOf(',', close);
    const end = comma < 0 ? line.length : comma;
    cells.push(isQuoted ? line.slice(at + 1, close).replaceAll('""', '"') : line.slice(at, end));
    at = end + 1;
  }
  return cells;
}

function closingQuote(line: string, from: number): number {
  for (let at = line.indexOf('"', from); at >= 0; at = line.indexOf('"', at + 2))
    if (line[at + 1] !== '"') return at;
  return line.length;
}

interface JsonFrame {
  readonly end: '}' | ']';
  url: string;
  fenced: boolean;
}

const URL_MEMBERS = new Set(['"url"', '"address"']);
const DEEPEST = 64;
/** Enough for the address in it. */
const LONGEST_URL = 512;

/**
 * Traefik's `/api/http/services` (or tcp, or udp) as JSON: objects with a member `url` or `address`. A server is out of
 * use when it is `"fenced": true`, as is one whose pod is terminating.
 */
class TraefikReader extends TokenReader {
  /** A string (at the end of a chunk perhaps the beginning of one), a mark, or a word. */
  protected readonly tokens = /"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?$)|[{}[\]:,]|[^\s"{}[\]:,]+/gs;
  protected readonly longest = 4096;
  readonly #stack: JsonFrame[] = [];
  /** Compared unescaped: Go does not escape the names and addresses that are searched for. */
  #key = '';
  #latest = '';
  #begun = false;
  #broken = false;

  protected token(text: string): void {
    const frame = this.#stack.at(-1);
    if (text === '{' || text === '[') this.#open(text);
    else if (frame === undefined) this.#broken = true;
    else if (text === '}' || text === ']') this.#close(frame, text);
    else if (text === ':') this.#key = this.#latest;
    else if (text === ',') this.#key = '';
    else if (this.#key === '"fenced"') frame.fenced ||= text === 'true';
    else if (URL_MEMBERS.has(this.#key) && text.startsWith('"')) frame.url = text.slice(1, -1);
    else this.#latest = text;
  }

  /** Rules and certificates may be long. Without escapes, the last character shows whether the string has ended. */
  protected override abridged(text: string): string {
    const plain = text.replaceAll(/\\./gs, '');
    return plain.slice(0, -1).slice(0, LONGEST_URL) + plain.slice(-1);
  }

  protected override problem(): string | undefined {
    const isWhole = this.#begun && this.#stack.length === 0 && !this.#broken;
    return isWhole ? undefined : 'is not what Traefik answers at /api/http/services';
  }

  #open(mark: '{' | '['): void {
    if (this.#stack.length >= DEEPEST || (this.#stack.length === 0 && this.#begun)) this.#broken = true;
    else this.#stack.push({ end: mark === '{' ? '}' : ']', url: '', fenced: false });
    this.#begun = true;
    this.#key = '';
  }

  #close({ end, url, fenced }: JsonFrame, mark: '}' | ']'): void {
    this.#stack.pop();
    if (mark !== end) this.#broken = true;
    this.#key = '';
    this.list(endpointIn(url), !fenced);
  }
}

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

/** The answer of `linger witness` for an address. */
const WITNESSED: readonly unknown[] = ['using', 'listed', 'absent'];
const LONGEST_ANSWER = 16 * 1024;

/** The answer of `linger witness`: an object from `ADDRESS:PORT` to what its page shows. */
class WitnessReader extends PageReader {
  #text = '';

  write(chunk: Buffer): void {
    if (this.#text.length <= LONGEST_ANSWER) this.#text += chunk.toString('latin1');
  }

  protected problem(): string | undefined {
    const strange = 'is not what linger witness answers';
    const json = this.#text.length > LONGEST_ANSWER ? undefined : jsonIn(this.#text);
    if (!isRecord(json)) return strange;
    for (const [name, said] of Object.entries(json)) {
      const endpoint = endpointIn(name);
      if (endpoint === undefined || !WITNESSED.includes(said)) return strange;
      if (said !== 'absent') this.list(endpoint, said === 'using');
    }
    return undefined;
  }
}

const READERS: Readonly<Record<PageFormat, new (wanted: Iterable<PageEndpoint>) => PageReader>> = {
  Envoy: EnvoyReader,
  HAProxy: HaproxyReader,
  Traefik: TraefikReader,
  Text: TextReader,
  Witness: WitnessReader,
};
