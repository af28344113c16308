import type { PageFormat } from '../api/index.ts';
import { isRecord } from '../api/index.ts';

/**
 * Pages on which gateways and discovery services list their endpoints, read chunk by chunk without ever being held whole.
 * A listed address is not always in use, since some gateways go on listing terminating endpoints; how a page shows that
 * depends on its format, so each format has its own reader.
 */

/** An address of a pod, in canonical spelling. */
export interface PageEndpoint {
  /** As {@link canonicalAddress} writes it. */
  readonly address: string;
  /** Empty: not known, so any port matches. */
  readonly ports: readonly number[];
}

/** What a page shows about the wanted addresses. */
export class PageFindings {
  /** By address, whether it is in use by port; undefined: a listing that names no port. */
  readonly #found = new Map<string, Map<number | undefined, boolean>>();
  /** The names of the Envoy clusters that list any of them. */
  readonly clusters = new Set<string>();

  /** An address is in use if any of its listings is. */
  add(address: string, port: number | undefined, used: boolean): void {
    const ports = this.#found.get(address) ?? new Map<number | undefined, boolean>();
    if (ports.size < MOST_PORTS || ports.has(port)) ports.set(port, used || ports.get(port) === true);
    else ports.set(undefined, used || ports.get(undefined) === true);
    this.#found.set(address, ports);
  }

  /** `listed`: on the page, but marked as not in use. */
  of({ address, ports }: PageEndpoint): 'using' | 'listed' | 'absent' {
    const found = this.#found.get(address) ?? [];
    const own = [...found].filter(
      ([port]) => port === undefined || ports.length === 0 || ports.includes(port),
    );
    if (own.length === 0) return 'absent';
    return own.some(([, used]) => used) ? 'using' : 'listed';
  }
}

/** A page that lists one address with more ports than this is not a gateway's. */
const MOST_PORTS = 64;

export interface PageReader {
  write(chunk: Buffer): void;
  /** To be called after the last chunk. @returns what is wrong, to follow the words `the page`, or what was found */
  end(): PageFindings | string;
}

/** @param wanted canonical addresses */
export function readerOf(format: PageFormat, wanted: ReadonlySet<string>): PageReader {
  return new READERS[format](wanted);
}

/** The most bytes that are read of a page. */
export const LONGEST_PAGE = 16 * 1024 * 1024;

const OCTET = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const IPV4 = new RegExp(`^${OCTET}(?:\\.${OCTET}){3}$`);
const GROUP = /^[0-9a-f]{1,4}$/i;

/**
 * An address in the one spelling that addresses are compared in: IPv4 as four decimals, also where it is mapped into
 * IPv6; IPv6 as eight groups.
 * @returns undefined for what is no address
 */
export function canonicalAddress(text: string): string | undefined {
  if (IPV4.test(text)) return text;
  const [bare = ''] = text.split('%');
  const groups = bare.includes(':') ? groupsOf(bare) : undefined;
  if (groups === undefined) return undefined;
  const [high = 0, low = 0] = groups.slice(6);
  const isMapped = groups.slice(0, 5).every((group) => group === 0) && groups[5] === 0xffff;
  if (isMapped) return [high >> 8, high & 255, low >> 8, low & 255].join('.');
  return groups.map((group) => group.toString(16)).join(':');
}

function groupsOf(text: string): readonly number[] | undefined {
  const [before = '', after, more] = text.split('::');
  if (more !== undefined) return undefined;
  const head = groupList(before, after === undefined);
  const tail = after === undefined ? [] : groupList(after, true);
  if (head === undefined || tail === undefined) return undefined;
  const missing = 8 - head.length - tail.length;
  if (after === undefined ? missing !== 0 : missing < 1) return undefined;
  return [...head, ...Array<number>(missing).fill(0), ...tail];
}

/** @param last whether an IPv4 address may stand at its end */
function groupList(text: string, last: boolean): readonly number[] | undefined {
  if (text === '') return [];
  const parts = text.split(':');
  const end = parts.at(-1) ?? '';
  const embedded = last && IPV4.test(end) ? end.split('.').map(Number) : undefined;
  const hex = embedded === undefined ? parts : parts.slice(0, -1);
  if (!hex.every((part) => GROUP.test(part))) return undefined;
  const groups = hex.map((part) => Number.parseInt(part, 16));
  if (embedded === undefined) return groups;
  const [a = 0, b = 0, c = 0, d = 0] = embedded;
  return [...groups, (a << 8) | b, (c << 8) | d];
}

/** `10.0.0.1:8080`, `[fd00::1]:8080`; perhaps with a scheme before and a path behind. */
const AUTHORITY = /^(?:([a-z][-a-z0-9+.]*):\/\/)?(\[[^\]]+\]|[^:/?#]+)(?::(\d{1,5}))?(?:[/?#]|$)/i;
const DEFAULT_PORTS: Readonly<Record<string, number>> = { http: 80, h2c: 80, https: 443 };

/** @returns undefined where the host is no address */
export function endpointIn(
  text: string,
): { readonly address: string; readonly port: number | undefined } | undefined {
  const [, scheme = '', host = '', port] = AUTHORITY.exec(text) ?? [];
  const address = canonicalAddress(host.replace(/^\[|\]$/g, ''));
  if (address === undefined) return undefined;
  return { address, port: port === undefined ? DEFAULT_PORTS[scheme.toLowerCase()] : Number(port) };
}

/** As it is written beside a port. */
export function authorityOf(address: string, port: number): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/** Of Envoy and HAProxy; one that is longer is left out. */
const LONGEST_LINE = 64 * 1024;

/** Lines of text, however they are cut into chunks. */
abstract class LineReader implements PageReader {
  protected readonly wanted: ReadonlySet<string>;
  protected readonly findings = new PageFindings();
  #rest = '';
  #skipping = false;

  constructor(wanted: ReadonlySet<string>) {
    this.wanted = wanted;
  }

  write(chunk: Buffer): void {
    // Every byte a character: what is compared is ASCII, and no character can be cut in two.
    const text = this.#rest + chunk.toString('latin1');
    let begin = 0;
    for (let end = text.indexOf('\n'); end >= 0; end = text.indexOf('\n', begin)) {
      this.#take(text.slice(begin, end));
      begin = end + 1;
    }
    this.#rest = text.slice(begin);
    if (this.#rest.length > LONGEST_LINE) {
      this.#skipping = true;
      this.#rest = '';
    }
  }

  end(): PageFindings | string {
    if (this.#rest !== '') this.#take(this.#rest);
    this.#rest = '';
    return this.problem() ?? this.findings;
  }

  protected abstract line(text: string): void;

  /** At the end, what is wrong. */
  protected abstract problem(): string | undefined;

  #take(text: string): void {
    if (!this.#skipping && text.length <= LONGEST_LINE)
      this.line(text.endsWith('\r') ? text.slice(0, -1) : text);
    this.#skipping = false;
  }
}

const HOST = /^(.*)::(\[[^\]]+\]|[\d.]+):(\d{1,5})::(health_flags|priority)::(.*)$/;
const ENVOY_LINE = /::(?:added_via_api|observability_name|default_priority|high_priority|health_flags)::/;

interface EnvoyHost {
  readonly name: string;
  readonly flags: string;
  priority: string;
}

interface EnvoyPriority {
  all: number;
  healthy: number;
}

/**
 * Envoy's `/clusters` as text: lines `CLUSTER::ADDRESS::health_flags::FLAGS`, then `…::priority::N`. A host is out of use
 * when its discovery marks it as not healthy; not when it was ejected or fails Envoy's own checks, from which it may come
 * back. Where less than half of a priority's hosts are healthy, Envoy panics and sends to all of them (50 % is the
 * default of healthy_panic_threshold; the page does not show other values).
 */
class EnvoyReader extends LineReader {
  #cluster = '';
  #host: EnvoyHost | undefined;
  readonly #priorities = new Map<string, EnvoyPriority>();
  /** Of this cluster, those that its discovery says are not healthy, by priority. */
  #withdrawn: EnvoyHost[] = [];
  #lines = 0;
  #known = 0;

  protected line(text: string): void {
    if (text === '') return;
    this.#lines += 1;
    if (!text.includes('::health_flags::') && !text.includes('::priority::')) {
      if (ENVOY_LINE.test(text)) this.#known += 1;
      return;
    }
    const [, cluster = '', host = '', port = '', what, value = ''] = HOST.exec(text) ?? [];
    // A pipe or an internal listener has no address.
    if (what === undefined) return;
    this.#known += 1;
    const name = `${host}:${port}`;
    if (what === 'priority') {
      if (this.#host?.name === name) this.#host.priority = value;
      return;
    }
    if (cluster !== this.#cluster) this.#settleCluster();
    else this.#settleHost();
    this.#cluster = cluster;
    this.#host = { name, flags: value, priority: '0' };
  }

  protected problem(): string | undefined {
    this.#settleCluster();
    return this.#lines > 0 && this.#known === 0 ? 'is not what Envoy answers at /clusters' : undefined;
  }

  #settleHost(): void {
    const host = this.#host;
    if (host === undefined) return;
    this.#host = undefined;
    const { flags, priority } = host;
    const count = this.#priorities.get(priority) ?? { all: 0, healthy: 0 };
    count.all += 1;
    if (!UNHEALTHY.test(flags)) count.healthy += 1;
    this.#priorities.set(priority, count);
    const { address, port } = endpointIn(host.name) ?? {};
    if (address === undefined || !this.wanted.has(address)) return;
    this.findings.clusters.add(this.#cluster);
    if (WITHDRAWN.test(flags)) this.#withdrawn.push(host);
    else this.findings.add(address, port, true);
  }

  #settleCluster(): void {
    this.#settleHost();
    for (const { name, priority } of this.#withdrawn) {
      const { all = 0, healthy = 0 } = this.#priorities.get(priority) ?? {};
      const { address, port } = endpointIn(name) ?? {};
      if (address !== undefined) this.findings.add(address, port, healthy * 2 < all);
    }
    this.#withdrawn = [];
    this.#priorities.clear();
  }
}

// Source: envoy source/common/upstream/host_utility.cc and host_description.h.
const WITHDRAWN = /\/failed_eds_health|\/eds_status_draining/;
const UNHEALTHY = /\/failed_|\/eds_status_draining/;

/** Of srv_admin_state: in maintenance by an operator, by the configuration, by another server, or for want of an address. */
const MAINTENANCE = 0x01 | 0x02 | 0x04 | 0x20 | 0x40;

/**
 * HAProxy's statistics as CSV (`/stats;csv`, `show stat`), or its `show servers state`. A server is out of use when it is
 * in maintenance, as is one whose address has vanished from DNS; not when its checks fail, since it may come back.
 */
class HaproxyReader extends LineReader {
  #columns: readonly string[] | undefined;
  #row: ((cells: readonly string[]) => void) | undefined;
  #addresses = 0;
  #nameless = 0;

  protected line(text: string): void {
    if (text.startsWith('# pxname,')) {
      this.#columns = text.slice(2).split(',');
      this.#row = this.#statistics;
    } else if (text.startsWith('# be_id ')) {
      this.#columns = text.slice(2).split(' ');
      this.#row = this.#state;
    } else if (text !== '') this.#row?.(this.#row === this.#state ? text.split(' ') : cellsOf(text));
  }

  protected problem(): string | undefined {
    if (this.#columns === undefined) return 'is neither statistics of HAProxy as CSV nor its servers’ state';
    if (this.#addresses === 0 && this.#nameless > 0)
      return 'lists servers without their addresses, which `stats show-legends` shows';
    return undefined;
  }

  #cell(cells: readonly string[], column: string): string {
    return cells[this.#columns?.indexOf(column) ?? -1] ?? '';
  }

  readonly #statistics = (cells: readonly string[]) => {
    const name = this.#cell(cells, 'svname');
    if (name === 'FRONTEND' || name === 'BACKEND' || this.#cell(cells, 'type') !== '2') return;
    const inUse = !this.#cell(cells, 'status').startsWith('MAINT');
    this.#server(this.#cell(cells, 'addr'), inUse);
  };

  readonly #state = (cells: readonly string[]) => {
    const address = this.#cell(cells, 'srv_addr');
    const inUse = (Number(this.#cell(cells, 'srv_admin_state')) & MAINTENANCE) === 0;
    const bare = canonicalAddress(address);
    this.#server(
      bare === undefined ? address : authorityOf(bare, Number(this.#cell(cells, 'srv_port'))),
      inUse,
    );
  };

  #server(text: string, inUse: boolean): void {
    const { address, port } = endpointIn(text) ?? {};
    if (address !== undefined) this.#addresses += 1;
    else if (inUse && text === '') this.#nameless += 1;
    if (address !== undefined && this.wanted.has(address)) this.findings.add(address, port, inUse);
  }
}

/** Of a line of CSV; a cell with a comma in it is quoted, and a quote in that is doubled. */
function cellsOf(line: string): readonly string[] {
  if (!line.includes('"')) return line.split(',');
  return [...line.matchAll(/("(?:[^"]|"")*"|[^,]*)(?:,|$)/g)].map(([, cell = '']) =>
    cell.startsWith('"') ? cell.slice(1, -1).replaceAll('""', '"') : cell,
  );
}

interface JsonFrame {
  readonly isObject: boolean;
  url: string | undefined;
  fenced: boolean;
}

const LONGEST_STRING = 4096;
const DEEPEST = 64;

/**
 * Traefik's `/api/http/services` (or tcp, or udp) as JSON: objects with a member `url` or `address`. A server is out of
 * use when it is `"fenced": true`, as is one whose pod is terminating.
 */
class TraefikReader implements PageReader {
  readonly #wanted: ReadonlySet<string>;
  readonly #findings = new PageFindings();
  readonly #stack: JsonFrame[] = [];
  #isText = false;
  #isEscaped = false;
  #text = '';
  #word = '';
  #name: string | undefined;
  #key: string | undefined;
  #begun = false;
  #broken = false;

  constructor(wanted: ReadonlySet<string>) {
    this.#wanted = wanted;
  }

  write(chunk: Buffer): void {
    for (const character of chunk.toString('latin1')) {
      if (this.#isText) this.#inText(character);
      else this.#outside(character);
    }
  }

  end(): PageFindings | string {
    const isWhole = this.#begun && this.#stack.length === 0 && !this.#isText && !this.#broken;
    return isWhole ? this.#findings : 'is not what Traefik answers at /api/http/services';
  }

  #inText(character: string): void {
    if (character === '"' && !this.#isEscaped) {
      this.#isText = false;
      this.#endOfText();
      return;
    }
    this.#isEscaped = character === '\\' && !this.#isEscaped;
    if (this.#text.length < LONGEST_STRING) this.#text += character;
  }

  #endOfText(): void {
    const frame = this.#stack.at(-1);
    if (frame?.isObject !== true) return;
    // Both for names and for addresses: Go escapes neither, and nothing that it would escape is searched for.
    if (this.#key === undefined) this.#name = this.#text;
    else if (this.#key === 'url' || this.#key === 'address') frame.url = this.#text;
  }

  #outside(character: string): void {
    switch (character) {
      case '"':
        this.#isText = true;
        this.#isEscaped = false;
        this.#text = '';
        break;
      case '{':
      case '[':
        this.#open(character === '{');
        break;
      case '}':
      case ']':
        this.#close(character === '}');
        break;
      case ':':
        this.#key = this.#name;
        break;
      case ',':
        this.#endOfMember();
        break;
      case ' ':
      case '\n':
      case '\r':
      case '\t':
        break;
      default:
        if (this.#stack.length === 0) this.#broken = true;
        if (this.#word.length < 16) this.#word += character;
    }
  }

  #open(isObject: boolean): void {
    if (this.#stack.length >= DEEPEST || (this.#stack.length === 0 && this.#begun)) this.#broken = true;
    else this.#stack.push({ isObject, url: undefined, fenced: false });
    this.#begun = true;
    this.#name = undefined;
    this.#key = undefined;
  }

  #close(isObject: boolean): void {
    this.#endOfMember();
    const frame = this.#stack.pop();
    if (frame?.isObject !== isObject) this.#broken = true;
    const { address, port } = endpointIn(frame?.url ?? '') ?? {};
    if (address !== undefined && this.#wanted.has(address))
      this.#findings.add(address, port, frame?.fenced !== true);
  }

  #endOfMember(): void {
    const frame = this.#stack.at(-1);
    if (frame !== undefined && this.#key === 'fenced' && this.#word === 'true') frame.fenced = true;
    this.#word = '';
    this.#name = undefined;
    this.#key = undefined;
  }
}

const LONGEST_RUN = 256;
const IPV4_IN_RUN = new RegExp(
  `(?<![\\d.])(${OCTET}(?:\\.${OCTET}){3})(?!\\d|\\.\\d)(?::(\\d{1,5})(?![\\d.:]))?`,
  'g',
);

/**
 * Any page: an address that appears on it as a whole token is in use. 10.0.0.1 does not match 10.0.0.10, and fd00::1
 * matches FD00:0:0:0:0:0:0:1. A port directly behind the address must match, too; without one, any port does.
 */
class TextReader implements PageReader {
  readonly #wanted: ReadonlySet<string>;
  readonly #findings = new PageFindings();
  #rest = '';
  #skipping = false;

  constructor(wanted: ReadonlySet<string>) {
    this.#wanted = wanted;
  }

  write(chunk: Buffer): void {
    this.#take(this.#rest + chunk.toString('latin1'), false);
  }

  end(): PageFindings {
    this.#take(`${this.#rest} `, true);
    return this.#findings;
  }

  /** Takes all runs of address characters, except the last, which may continue in the next chunk. */
  #take(text: string, whole: boolean): void {
    const last = whole ? text.length : lastSeparator(text) + 1;
    for (const { 0: run, index } of text.slice(0, last).matchAll(RUN)) {
      const goesOn = this.#skipping && index === 0;
      if (!goesOn && run.length <= LONGEST_RUN) this.#run(run);
    }
    if (last > 0) this.#skipping = false;
    this.#rest = text.slice(last);
    if (this.#rest.length <= LONGEST_RUN) return;
    // No address is this long.
    this.#skipping = true;
    this.#rest = '';
  }

  #run(run: string): void {
    for (const [, address = '', port] of run.matchAll(IPV4_IN_RUN)) this.#found(address, port);
    const colons = run.split(':').length - 1;
    if (colons >= 2 || run.includes(']:')) this.#ipv6(run);
  }

  #ipv6(run: string): void {
    if (run.includes('[')) {
      for (const [, bracketed = '', port] of run.matchAll(/\[([^[\]]+)\](?::(\d{1,5}))?/g))
        this.#found(canonicalAddress(bracketed), port);
      return;
    }
    const bare = run
      .replaceAll(']', '')
      .replace(/^:(?!:)|(?<!:):$/g, '')
      .replace(/\.+$/, '');
    const whole = readIpv6(bare);
    if (whole.length > 0) {
      for (const [address, ofPort] of whole) this.#found(address, ofPort);
      return;
    }
    // Something precedes the address, such as `inet6:`.
    for (let at = bare.indexOf(':'); at >= 0; at = bare.indexOf(':', at + 1))
      for (const [address, ofPort] of readIpv6(bare.slice(at + 1))) this.#found(address, ofPort);
  }

  #found(address: string | undefined, port: string | undefined): void {
    if (address === undefined || !this.#wanted.has(address)) return;
    this.#findings.add(address, port === undefined ? undefined : Number(port), true);
  }
}

const RUN = /[0-9A-Za-z.:%[\]]+/g;
const SEPARATOR = /[^0-9A-Za-z.:%[\]]/;

function lastSeparator(text: string): number {
  for (let at = text.length - 1; at >= 0; at -= 1) if (SEPARATOR.test(text[at] ?? '')) return at;
  return -1;
}

/** Both ways to read `fd00::1:8080`: without brackets a port is written like a group. */
function readIpv6(text: string): readonly (readonly [address: string, port: string | undefined])[] {
  const found: (readonly [string, string | undefined])[] = [];
  const address = text.includes(':') ? canonicalAddress(text) : undefined;
  if (address !== undefined) found.push([address, undefined]);
  const [, before = '', port] = /^(.*[^:]):(\d{1,5})$/.exec(text) ?? [];
  const shorter = before.includes(':') ? canonicalAddress(before) : undefined;
  if (shorter !== undefined) found.push([shorter, port]);
  return found;
}

/** What `linger witness` answers about an address. */
export const WITNESSED = ['using', 'listed', 'absent'] as const;
const LONGEST_ANSWER = 16 * 1024;

/** The answer of `linger witness`: an object from `ADDRESS:PORT` to what its page shows. */
class WitnessReader implements PageReader {
  readonly #wanted: ReadonlySet<string>;
  #text = '';

  constructor(wanted: ReadonlySet<string>) {
    this.#wanted = wanted;
  }

  write(chunk: Buffer): void {
    if (this.#text.length <= LONGEST_ANSWER) this.#text += chunk.toString('latin1');
  }

  end(): PageFindings | string {
    const strange = 'is not what linger witness answers';
    const json = this.#text.length > LONGEST_ANSWER ? undefined : parsed(this.#text);
    if (!isRecord(json)) return strange;
    const findings = new PageFindings();
    for (const [name, said] of Object.entries(json)) {
      const { address, port } = endpointIn(name) ?? {};
      if (address === undefined || !WITNESSED.some((each) => each === said)) return strange;
      if (said !== 'absent' && this.#wanted.has(address)) findings.add(address, port, said === 'using');
    }
    return findings;
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const READERS: Readonly<Record<PageFormat, new (wanted: ReadonlySet<string>) => PageReader>> = {
  Envoy: EnvoyReader,
  HAProxy: HaproxyReader,
  Traefik: TraefikReader,
  Text: TextReader,
  Witness: WitnessReader,
};
