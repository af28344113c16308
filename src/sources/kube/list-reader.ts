import { isRecord } from '../../core/schema/shape.ts';
import { WatchFailure } from '../../kube/failure.ts';
import type { SparingParser } from './managed-fields.ts';
import type { RawObject } from './resource.ts';

/** What a page says of its list. */
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
 * Where one item ends and the next begins is guessed, by the text with which the first one begins, and the guess is
 * put to the test: a piece counts as an item when it is valid JSON by itself. As the rest is, too, there is no other
 * way to read the page. A piece that is not valid is read on to the next guess; at worst the page is parsed at its end.
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

  /**
   * @returns the items that this chunk completes
   * @throws WatchFailure `Malformed` when an item does not end
   */
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

  /**
   * @returns what the page says of the list, and the items that are left
   * @throws WatchFailure `Malformed` when it was no list
   */
  end(): PageEnd & { readonly items: readonly RawObject[] } {
    this.#join();
    const rest = parsed(this.#head === undefined ? this.#held.toString() : `{"items":[${this.#held}`);
    const { metadata } = { ...rest, ...this.#head };
    if (!isRecord(metadata) || typeof metadata.resourceVersion !== 'string') {
      throw new WatchFailure('Malformed', 'a list without a resourceVersion');
    }
    const { resourceVersion, continue: next } = metadata;
    // Go writes an empty list as null in some kinds.
    const items = rest.items ?? [];
    if (!Array.isArray(items)) throw new WatchFailure('Malformed', 'a list without items');
    return { resourceVersion, next: typeof next === 'string' && next !== '' ? next : undefined, items };
  }

  #join(): void {
    if (this.#held.length + this.#chunkBytes > LONGEST_HELD) {
      throw new WatchFailure('Malformed', `more than ${LONGEST_HELD} bytes of a list without an item`);
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

function parsed(text: string): Record<string, unknown> {
  const list = objectIn(() => JSON.parse(text));
  if (list === undefined) throw new WatchFailure('Malformed', `expected a list, got ${text.slice(0, 100)}`);
  return list;
}
