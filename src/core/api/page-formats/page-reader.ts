import { canonicalAddress } from '../canonical-address.ts';
import { FOREIGN_LIMITS } from '../limits.ts';

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

/** Stands for the ports of a wanted endpoint if they are not known. */
const ANY_PORT = 0;

/**
 * How many clusters a filter may name: a pod is in few of Envoy's clusters, and with more than this the page is read
 * unfiltered.
 */
export const MOST_CLUSTERS = 32;
/** Longer filters of cluster names are not sent. */
export const LONGEST_FILTER = 2_000;

/** What a page shows about the wanted endpoints. */
export class PageFindings {
  /**
   * By address, then by port: whether it is in use. The port is undefined for a listing that names none, and
   * {@link ANY_PORT} if the wanted port is not known.
   */
  readonly endpoints: ReadonlyMap<string, ReadonlyMap<number | undefined, boolean>>;
  /**
   * The names of Envoy clusters that list any of them. If there are more than {@link MOST_CLUSTERS}, the set is incomplete.
   */
  readonly clusters: ReadonlySet<string>;
  /** By address: when it stopped being listed, if that is known. */
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

/**
 * How the pages of one kind of gateway show which addresses are in use. Each kind is a file beside this one, and an entry in
 * `PAGE_FORMATS`.
 */
export interface PageFormatKind {
  /** Path and query where the page usually is; absent: `/`. */
  readonly path?: string;
  /** Which page it is. Markdown. */
  readonly page: string;
  /** A clause for the reference: an address is in use while it is listed, unless … */
  readonly unless: string;
  readonly Reader: new (wanted: Iterable<PageEndpoint>) => PageReader;
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

  /**
   * @param text the next bytes of the page as latin1, one character per byte, because only ASCII is compared, and no
   * character can be split between chunks
   */
  abstract write(text: string): void;

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
export abstract class TokenReader extends PageReader {
  /** Matches a token. The last token of a chunk may continue in the next. */
  protected abstract readonly tokens: RegExp;
  /** Tokens that are longer than this are {@link abridged}. */
  protected abstract readonly longest: number;
  #rest = '';

  write(more: string): void {
    const text = this.#rest + more;
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

  /**
   * Shortens a long token, or its beginning; by default to just enough to show that it is too long, so that it is skipped.
   */
  protected abridged(token: string): string {
    return token.slice(0, this.longest + 1);
  }

  protected abstract token(text: string): void;

  /** Called when a token was too long. */
  protected skipped(): void {}

  protected problem(): string | undefined {
    return undefined;
  }
}

const END_OF_TOKEN = '\n';
const LONGEST_LINE = 4 * 1024;

/**
 * Reads a page line by line. A page with an overlong line is unreadable, since an address on that line would seem absent.
 */
export abstract class LinePageReader extends TokenReader {
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

interface JsonFrame {
  readonly end: '}' | ']';
  /** The members of the object that are read; undefined: none so far. */
  members: Record<string, string> | undefined;
}

const DEEPEST = 64;
/** Enough for the address in it. */
const LONGEST_VALUE = 512;

/** Reads a page of JSON: any objects in it, each on its own. */
export abstract class JsonPageReader extends TokenReader {
  /** The names of the members to read. They are compared without unescaping, because the servers do not escape them. */
  protected abstract readonly members: readonly string[];
  /** What the page is, after `is not what`. */
  protected abstract readonly what: string;
  /** A string (at the end of a chunk perhaps the beginning of one), a mark, or a word. */
  protected readonly tokens = /"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?$)|[{}[\]:,]|[^\s"{}[\]:,]+/gs;
  protected readonly longest = 4096;
  readonly #stack: JsonFrame[] = [];
  #key = '';
  #latest = '';
  #begun = false;
  #broken = false;

  /** @param members those that it has of the ones that are read: strings without their quotes, words as they are */
  protected abstract object(members: Readonly<Record<string, string>>): void;

  protected token(text: string): void {
    const frame = this.#stack.at(-1);
    if (text === '{' || text === '[') this.#open(text);
    else if (frame === undefined) this.#broken = true;
    else if (text === '}' || text === ']') this.#close(frame, text);
    else if (text === ':') this.#key = this.#latest;
    else if (text === ',') this.#key = '';
    else if (this.#key === '') this.#latest = text;
    else this.#value(frame, text);
  }

  /** Rules and certificates may be long. Without escapes, the last character shows whether the string has ended. */
  protected override abridged(text: string): string {
    const plain = text.replaceAll(/\\./gs, '');
    return plain.slice(0, -1).slice(0, LONGEST_VALUE) + plain.slice(-1);
  }

  protected override problem(): string | undefined {
    const isWhole = this.#begun && this.#stack.length === 0 && !this.#broken;
    return isWhole ? undefined : `is not what ${this.what}`;
  }

  #value(frame: JsonFrame, text: string): void {
    const name = this.#key.slice(1, -1);
    if (!this.members.includes(name)) return;
    frame.members ??= {};
    frame.members[name] = text.startsWith('"') ? text.slice(1, -1) : text;
  }

  #open(mark: '{' | '['): void {
    if (this.#stack.length >= DEEPEST || (this.#stack.length === 0 && this.#begun)) this.#broken = true;
    else this.#stack.push({ end: mark === '{' ? '}' : ']', members: undefined });
    this.#begun = true;
    this.#key = '';
  }

  #close({ end, members }: JsonFrame, mark: '}' | ']'): void {
    this.#stack.pop();
    if (mark !== end) this.#broken = true;
    this.#key = '';
    if (members !== undefined) this.object(members);
  }
}
