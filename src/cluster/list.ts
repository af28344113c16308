import type { Agent } from 'node:http';
import { isRecord, isString } from '../api/index.ts';
import type { Backoff } from '../timing/index.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure, type FailureReason, KubeFailure } from './failure.ts';
import { ask, type KubeRequest, newAgent, readChunks } from './request.ts';
import { acceptOf, pathOf, type RawObject, type Resource, type WatchLimits } from './resource.ts';

type Listed = Pick<Resource<unknown>, 'path' | 'query' | 'metadataOnly' | 'afterMetadata'>;

const BEGIN = Buffer.from(',"managedFields":[{');

/** How an object of metadata only ends when it has managedFields: the last entry, the entries, metadata, object. */
const END = { item: Buffer.from('}]}}'), event: Buffer.from('}]}}}') };

/** An object as an item of a list, or a watch event with an object in it. */
export type Frame = keyof typeof END;

/**
 * Parses objects without their managedFields: two thirds of the bytes of a pod's metadata, and most of the time that
 * parsing takes. They are skipped as bytes, and never become text. An object of another form is parsed as it is.
 *
 * They are the last field of ObjectMeta, and Go writes fields in the order of their declaration (k8s.io/apimachinery
 * pkg/apis/meta/v1). The marks of their beginning and end contain a quote outside of any string; within a string it would
 * be escaped, so no name of a label or field manager can forge a mark. Their entries have no arrays (FieldsV1 is objects
 * only); if they had, the rest would not be JSON, and the whole object is parsed.
 */
export class SparingParser {
  readonly #metadataOnly: boolean;
  /** The end of the entries, and what follows the metadata. */
  readonly #following: Buffer | undefined;

  constructor({ metadataOnly = false, afterMetadata }: Omit<Listed, 'path'>) {
    this.#metadataOnly = metadataOnly;
    this.#following = afterMetadata === undefined ? undefined : Buffer.from(`}]},"${afterMetadata}":`);
  }

  /** @throws SyntaxError when it is not JSON */
  parse(bytes: Buffer, frame: Frame): unknown {
    const text = this.#shortened(bytes, frame);
    if (text !== undefined) {
      try {
        return JSON.parse(text);
      } catch {
        // Not of the form that it seemed to be.
      }
    }
    return JSON.parse(bytes.toString());
  }

  #shortened(bytes: Buffer, frame: Frame): string | undefined {
    const mark = this.#following ?? (this.#metadataOnly ? END[frame] : undefined);
    if (mark === undefined) return undefined;
    const begin = bytes.indexOf(BEGIN);
    if (begin < 0) return undefined;
    const end = bytes.indexOf(mark, this.#following === undefined ? bytes.length - mark.length : begin);
    return end < 0 ? undefined : bytes.toString('utf8', 0, begin) + bytes.toString('utf8', end + 2);
  }
}

export interface PageEnd {
  /** Of the whole list: all pages show the collection as it was at one instant. */
  readonly resourceVersion: string;
  /** Where to go on; undefined: that was all. */
  readonly next: string | undefined;
}

/**
 * The longest that is held. An object is a few MB at most; but a page that is not written as API servers write it is
 * held whole, and a string cannot have more than 512 MB.
 */
const LONGEST_HELD = 256 * 1024 * 1024;

const ITEMS = Buffer.from('"items":[');
const COLON = 58;
const NONE: readonly RawObject[] = [];

/**
 * Reads a page as it arrives: each item is parsed by itself as soon as it is complete, so that neither the page's text
 * nor all of its objects are ever in memory together.
 *
 * Where an item ends is guessed, by the text with which the first one begins, and tested: a piece counts as an item when
 * it is valid JSON by itself. As the rest is, too, there is no other way to read the page. A piece that is not valid is
 * read on to the next guess; at worst the page is parsed at its end.
 */
export class ListReader {
  readonly #parser: SparingParser;
  /** Joined once they are as long as what is held already, so that joining costs time in proportion to the page. */
  #chunks: Buffer[] = [];
  #chunkBytes = 0;
  /** What has not become an item yet. */
  #held: Buffer = Buffer.alloc(0);
  #searched = 0;
  /** What stands before the items. */
  #head: Readonly<Record<string, unknown>> | undefined;
  /** Between two items, and the beginning of the second one. */
  #separator: Buffer | undefined;

  constructor(parser: SparingParser) {
    this.#parser = parser;
  }

  /** @returns the items that this chunk completes @throws KubeFailure `Malformed` when an item does not end */
  push(chunk: Buffer): readonly RawObject[] {
    this.#chunks.push(chunk);
    this.#chunkBytes += chunk.length;
    if (this.#chunkBytes < this.#held.length) return NONE;
    this.#join();
    if (this.#head === undefined) this.#findItems();
    if (this.#head === undefined) return NONE;
    this.#separator ??= separatorAt(this.#held);
    return this.#separator === undefined ? NONE : this.#items(this.#separator);
  }

  /** @returns what the page says of the list, and the items that are left @throws KubeFailure `Malformed` for no list */
  end(): PageEnd & { readonly items: readonly RawObject[] } {
    this.#join();
    const text = this.#head === undefined ? this.#held.toString() : `{"items":[${this.#held}`;
    const rest = objectIn(() => JSON.parse(text));
    if (rest === undefined) throw new KubeFailure('Malformed', `expected a list, got ${text.slice(0, 100)}`);
    const { metadata } = { ...rest, ...this.#head };
    if (!isRecord(metadata) || !isString(metadata.resourceVersion)) {
      throw new KubeFailure('Malformed', 'a list without a resourceVersion');
    }
    const { resourceVersion, continue: next } = metadata;
    // Go writes an empty list as null in some kinds.
    const items = rest.items ?? [];
    if (!Array.isArray(items)) throw new KubeFailure('Malformed', 'a list without items');
    return { resourceVersion, next: isString(next) && next !== '' ? next : undefined, items };
  }

  #join(): void {
    if (this.#held.length + this.#chunkBytes > LONGEST_HELD) {
      throw new KubeFailure('Malformed', `more than ${LONGEST_HELD} bytes of a list without an item`);
    }
    this.#held = Buffer.concat([this.#held, ...this.#chunks]);
    this.#chunks = [];
    this.#chunkBytes = 0;
  }

  /** What stands before the items is a list by itself, once it is closed. */
  #findItems(): void {
    for (;;) {
      const at = this.#held.indexOf(ITEMS, this.#searched);
      if (at < 0) {
        this.#searched = Math.max(0, this.#held.length - ITEMS.length);
        return;
      }
      const begin = at + ITEMS.length;
      this.#searched = begin;
      const head = objectIn(() => JSON.parse(`${this.#held.toString('utf8', 0, begin)}]}`));
      if (head === undefined) continue;
      this.#head = head;
      this.#held = this.#held.subarray(begin);
      this.#searched = 0;
      return;
    }
  }

  #items(separator: Buffer): readonly RawObject[] {
    const items: RawObject[] = [];
    const held = this.#held;
    let begin = 0;
    let from = this.#searched;
    for (;;) {
      const end = held.indexOf(separator, from);
      if (end < 0) break;
      from = end + 1;
      const item = objectIn(() => this.#parser.parse(held.subarray(begin, end), 'item'));
      if (item === undefined) continue;
      items.push(item as unknown as RawObject);
      begin = from;
    }
    this.#held = held.subarray(begin);
    this.#searched = Math.max(0, Math.max(from, held.length - separator.length) - begin);
    return items;
  }
}

/** The first field's name is what every item begins with. Undefined when there is no item, or not as much of it. */
function separatorAt(items: Buffer): Buffer | undefined {
  const colon = items.indexOf(COLON);
  return colon < 0 ? undefined : Buffer.concat([Buffer.from(','), items.subarray(0, colon + 1)]);
}

function objectIn(parse: () => unknown): Record<string, unknown> | undefined {
  try {
    const value = parse();
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** Called with items as they arrive, and how many bytes have. */
type OnItems = (items: readonly RawObject[], bytes: number) => void;

/**
 * Asks for pages over one connection. No resourceVersion is given, so the first page is a consistent read: never older
 * than anything seen before, from whichever API server. `resourceVersion=0` would be cheaper for the server, but may go
 * back in time after a reconnect, and ignores `limit`: 150,000 pods in one answer of hundreds of MB. From 1.31 on the
 * watch cache serves consistent reads too, and from 1.34 their further pages.
 */
export class Pages {
  readonly #resource: Listed;
  readonly #parser: SparingParser;
  readonly #connection: KubeConnection;
  readonly #agent: Agent;

  constructor(resource: Listed, connection: KubeConnection) {
    this.#resource = resource;
    this.#parser = new SparingParser(resource);
    this.#connection = connection;
    this.#agent = newAgent(connection);
  }

  /**
   * @param from the `next` of the page before; undefined: the first
   * @param onItems after a failure, the page's next attempt brings the same items again
   * @throws KubeFailure; `Expired` when the server no longer remembers the instant of the first page
   */
  async page(
    from: string | undefined,
    { limit, signal, answerMs }: Pick<KubeRequest, 'signal' | 'answerMs'> & { readonly limit: number },
    onItems: OnItems = () => undefined,
  ): Promise<PageEnd> {
    const parameters = { limit: String(limit), ...(from === undefined ? {} : { continue: from }) };
    const response = await ask(this.#connection, {
      path: pathOf(this.#resource, parameters),
      accept: acceptOf(this.#resource, 'list'),
      compressed: this.#connection.compressed,
      agent: this.#agent,
      signal,
      answerMs,
    });
    const reader = new ListReader(this.#parser);
    await readChunks(response, answerMs, (chunk) => onItems(reader.push(chunk), chunk.length));
    const { items, ...end } = reader.end();
    onItems(items, 0);
    return end;
  }

  close(): void {
    this.#agent.destroy();
  }
}

interface ListOptions {
  readonly limits: Pick<WatchLimits, 'pageSize' | 'answerMs'>;
  readonly signal: AbortSignal;
  readonly backoff: Backoff;
  /** Called before the first page, and again when the list has to start again. */
  readonly onBegin: () => void;
  readonly onItems: OnItems;
  /** Called with what went wrong before the page is asked for again. */
  readonly pause: (failure: KubeFailure, pauseMs: number) => Promise<void>;
}

/**
 * The longest that pages grow. A list that takes longer than the server's memory of its first page (5 minutes, by
 * etcd's compaction) would never end; twice as many objects in a page, whenever that happens, ends it sooner.
 */
const LARGEST_PAGE_SIZE = 16_000;

/**
 * Reads a collection from beginning to end. A page that fails is requested again, since starting over would cost the
 * most just when the server is overloaded.
 * @returns the resourceVersion to watch from
 * @throws the signal's reason once that has aborted, and nothing else
 */
export async function listAll(
  resource: Listed,
  connection: KubeConnection,
  { limits, signal, backoff, onBegin, onItems, pause }: ListOptions,
): Promise<string> {
  const pages = new Pages(resource, connection);
  let limit = limits.pageSize;
  let from: string | undefined;
  let anew = false;
  try {
    onBegin();
    for (;;) {
      try {
        const page = await pages.page(from, { limit, signal, answerMs: limits.answerMs }, onItems);
        // Not after a restart: first pages that succeed would hide that the list never gets any further.
        if (!anew) backoff.reset();
        if (page.next === undefined) return page.resourceVersion;
        from = page.next;
      } catch (thrown) {
        signal.throwIfAborted();
        const failure = asFailure(thrown);
        await pause(failure, backoff.next(failure.retryAfterMs));
        signal.throwIfAborted();
        if (from === undefined || !ANEW.has(failure.reason)) continue;
        from = undefined;
        anew = true;
        if (failure.reason === 'Expired') limit = Math.min(2 * limit, LARGEST_PAGE_SIZE);
        onBegin();
      }
    }
  } finally {
    pages.close();
  }
}

/**
 * A few objects, read once: the caller asks again when it needs them again.
 * @param most objects; the others are left out
 * @throws KubeFailure; the signal's reason once that has aborted
 */
export async function listSome<T>(
  resource: Resource<T>,
  connection: KubeConnection,
  { signal, answerMs, most }: Pick<KubeRequest, 'signal' | 'answerMs'> & { readonly most: number },
): Promise<readonly T[]> {
  const pages = new Pages(resource, connection);
  const found: T[] = [];
  const onItems: OnItems = (items) => {
    for (const item of items) if (found.length < most) found.push(resource.project(item));
  };
  try {
    let from: string | undefined;
    do {
      const limit = Math.min(most - found.length, SOME_PAGE);
      from = (await pages.page(from, { limit, signal, answerMs }, onItems)).next;
    } while (from !== undefined && found.length < most);
    return found;
  } finally {
    pages.close();
  }
}

const SOME_PAGE = 500;

/** After these, the place where a list or a watch stopped is of no use. */
export const ANEW: ReadonlySet<FailureReason> = new Set([
  'Expired',
  'NotServed',
  'Refused',
  'Malformed',
  'Internal',
]);
