import { isRecord, isString, jsonIn } from '../api/index.ts';
import type { Backoff } from '../timing/index.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure, type FailureReason, KubeFailure } from './failure.ts';
import { ask, type KubeRequest, newAgent, readChunks } from './request.ts';
import { acceptOf, pathOf, type RawObject, type Resource, type WatchLimits } from './resource.ts';

type Listed = Pick<Resource<unknown>, 'path' | 'query' | 'metadataOnly' | 'afterMetadata'>;

const BEGIN = Buffer.from(',"managedFields":[{');

/** The end of a metadata-only object with managedFields: it closes the last entry, the entries, metadata and the object. */
const END = Buffer.from('}]}}');

/**
 * Parses items of lists and watch events without managedFields: two thirds of the bytes of a pod's metadata, and most of
 * the time that parsing takes. Their bytes are skipped without being decoded. An object of any other form is parsed whole.
 *
 * They are the last field of ObjectMeta, and Go writes fields in the order of their declaration (k8s.io/apimachinery
 * pkg/apis/meta/v1). The marks of their beginning and end contain a quote outside of any string; within a string it would
 * be escaped, so no name of a label or field manager can forge a mark. Their entries have no arrays (FieldsV1 is objects
 * only); if they had, the rest would not be JSON, and the whole object is parsed.
 */
export function sparingParser({ metadataOnly = false, afterMetadata }: Omit<Listed, 'path'>) {
  /** The end of the entries, and what follows the metadata. */
  const following = afterMetadata === undefined ? undefined : Buffer.from(`}]},"${afterMetadata}":`);

  const shortened = (bytes: Buffer): string | undefined => {
    const mark = following ?? (metadataOnly ? END : undefined);
    if (mark === undefined) return undefined;
    const begin = bytes.indexOf(BEGIN);
    if (begin < 0) return undefined;
    // A metadata-only object ends with the bytes, or one brace before if it is that of an event.
    const end = bytes.indexOf(mark, mark === END ? bytes.length - END.length - 1 : begin);
    return end < 0 ? undefined : bytes.toString('utf8', 0, begin) + bytes.toString('utf8', end + 2);
  };

  /** @returns undefined for bytes that are not the JSON of an object */
  return (bytes: Buffer): Record<string, unknown> | undefined => {
    const text = shortened(bytes);
    // What cannot be parsed after all did not have the expected form.
    return (text === undefined ? undefined : objectIn(text)) ?? objectIn(bytes.toString());
  };
}

export interface PageEnd {
  /** The list's resourceVersion: all pages show the collection as of one instant. */
  readonly resourceVersion: string;
  /** The continue token; undefined: this was the last page. */
  readonly next: string | undefined;
}

/**
 * The most bytes that are buffered. An object is a few MB at most, but a page that is not formatted as API servers do it is
 * buffered whole, and a string cannot exceed 512 MB.
 */
const LONGEST_HELD = 256 * 1024 * 1024;

const ITEMS = Buffer.from('"items":[');

/**
 * Parses a page as it arrives, item by item, so that neither the page's text
 * nor all of its objects are ever in memory at once.
 *
 * The end of an item is guessed from the text with which the first item begins, and then verified: a piece counts as an item if
 * it is valid JSON on its own. Since the rest must be valid as well, no other reading of the page is possible. An invalid piece is
 * extended to the next guess; at worst the whole page is parsed at its end.
 */
export class ListReader {
  readonly #parse: ReturnType<typeof sparingParser>;
  /** Joined once they are as long as the buffer, so that joining takes time proportional to the page. */
  #chunks: Buffer[] = [];
  #chunkBytes = 0;
  /** The bytes that no item has been parsed from yet. */
  #held: Buffer = Buffer.alloc(0);
  #searched = 0;
  /** The text before the items. */
  #head: Readonly<Record<string, unknown>> | undefined;
  /** The separator of two items, with the beginning of the second. */
  #separator: Buffer | undefined;

  constructor(parse: ReturnType<typeof sparingParser>) {
    this.#parse = parse;
  }

  /** @returns the items that this chunk completes @throws KubeFailure `Malformed` when an item does not end */
  push(chunk: Buffer): readonly RawObject[] {
    this.#chunks.push(chunk);
    this.#chunkBytes += chunk.length;
    if (this.#chunkBytes < this.#held.length) return [];
    this.#join();
    if (this.#head === undefined) this.#findItems();
    if (this.#head === undefined) return [];
    this.#separator ??= separatorAt(this.#held);
    return this.#separator === undefined ? [] : this.#items(this.#separator);
  }

  /** @returns the list's metadata and the remaining items @throws KubeFailure `Malformed` for anything but a list */
  end(): PageEnd & { readonly items: readonly RawObject[] } {
    this.#join();
    const text = this.#head === undefined ? this.#held.toString() : `{"items":[${this.#held}`;
    const rest = objectIn(text);
    if (rest === undefined) throw new KubeFailure('Malformed', `expected a list, got ${text.slice(0, 100)}`);
    const { metadata } = { ...rest, ...this.#head };
    if (!isRecord(metadata) || !isString(metadata.resourceVersion)) {
      throw new KubeFailure('Malformed', 'a list without a resourceVersion');
    }
    const { resourceVersion, continue: next } = metadata;
    // For some kinds Go writes an empty list as null.
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

  /** The text before the items becomes valid JSON, a list, once it is closed. */
  #findItems(): void {
    for (;;) {
      const at = this.#held.indexOf(ITEMS, this.#searched);
      if (at < 0) {
        this.#searched = Math.max(0, this.#held.length - ITEMS.length);
        return;
      }
      const begin = at + ITEMS.length;
      this.#searched = begin;
      const head = objectIn(`${this.#held.toString('utf8', 0, begin)}]}`);
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
      const item = this.#parse(held.subarray(begin, end));
      if (item === undefined) continue;
      items.push(item as unknown as RawObject);
      begin = from;
    }
    this.#held = held.subarray(begin);
    this.#searched = Math.max(0, Math.max(from, held.length - separator.length) - begin);
    return items;
  }
}

/** Every item begins with the name of its first field. Undefined if no item, or too little of the first, has arrived. */
function separatorAt(items: Buffer): Buffer | undefined {
  const colon = items.indexOf(':');
  return colon < 0 ? undefined : Buffer.concat([Buffer.from(','), items.subarray(0, colon + 1)]);
}

function objectIn(json: string): Record<string, unknown> | undefined {
  const value = jsonIn(json);
  return isRecord(value) ? value : undefined;
}

/** Called with items as they arrive, and the number of bytes received so far. */
type OnItems = (items: readonly RawObject[], bytes: number) => void;

/**
 * Requests pages over one connection, without a resourceVersion, so that the first page is a consistent read: never older
 * than anything seen before, from any API server. `resourceVersion=0` would be cheaper for the server, but may go
 * back in time after a reconnect, and ignores `limit`: 150,000 pods in one answer of hundreds of MB. From 1.31 on the
 * watch cache serves consistent reads too, and from 1.34 their further pages.
 */
export function pagesOf(resource: Listed, connection: KubeConnection) {
  const parse = sparingParser(resource);
  const agent = newAgent(connection);
  return {
    /**
     * @param from the `next` of the previous page; undefined: the first page
     * @param onItems called with the same items again when a failed page is retried
     * @throws KubeFailure; `Expired` when the server no longer remembers the instant of the first page
     */
    async page(
      from: string | undefined,
      { limit, signal, answerMs }: Pick<KubeRequest, 'signal' | 'answerMs'> & { readonly limit: number },
      onItems: OnItems = () => undefined,
    ): Promise<PageEnd> {
      const parameters = { limit: String(limit), ...(from === undefined ? {} : { continue: from }) };
      const response = await ask(connection, {
        path: pathOf(resource, parameters),
        accept: acceptOf(resource, 'list'),
        compressed: connection.compressed,
        agent,
        signal,
        answerMs,
      });
      const reader = new ListReader(parse);
      await readChunks(response, answerMs, (chunk) => onItems(reader.push(chunk), chunk.length));
      const { items, ...end } = reader.end();
      onItems(items, 0);
      return end;
    },
    close: () => agent.destroy(),
  };
}

interface ListOptions {
  readonly limits: Pick<WatchLimits, 'pageSize' | 'answerMs'>;
  readonly signal: AbortSignal;
  readonly backoff: Backoff;
  /** Called before the first page, and whenever the list has to start over. */
  readonly onBegin: () => void;
  readonly onItems: OnItems;
  /** Called with the failure before the page is retried. */
  readonly pause: (failure: KubeFailure, pauseMs: number) => Promise<void>;
}

/**
 * The largest page. A list that takes longer than the server remembers its first page (5 minutes, by
 * etcd's compaction) would never finish; doubling the page whenever that happens lets it finish sooner.
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
  const pages = pagesOf(resource, connection);
  let limit = limits.pageSize;
  let from: string | undefined;
  let restarted = false;
  try {
    onBegin();
    for (;;) {
      try {
        const page = await pages.page(from, { limit, signal, answerMs: limits.answerMs }, onItems);
        // Not reset by a restart: successful first pages would hide that the list never gets beyond them.
        if (!restarted) backoff.reset();
        if (page.next === undefined) return page.resourceVersion;
        from = page.next;
      } catch (thrown) {
        signal.throwIfAborted();
        const failure = asFailure(thrown);
        await pause(failure, backoff.next(failure.retryAfterMs));
        signal.throwIfAborted();
        if (from === undefined || !NOT_RESUMABLE.has(failure.reason)) continue;
        from = undefined;
        restarted = true;
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
  const pages = pagesOf(resource, connection);
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

/** After these failures a list or a watch cannot be resumed where it stopped. */
export const NOT_RESUMABLE: ReadonlySet<FailureReason> = new Set([
  'Expired',
  'NotServed',
  'Refused',
  'Malformed',
  'Internal',
]);
