import { FOREIGN_LIMITS } from '../api/index.ts';
import { memberName, resolvePlain, resolveTagged, ScalarError } from './scalars.ts';
import { quote, type SourceText } from './source-text.ts';
import {
  dereference,
  type EntryNode,
  type ListNode,
  type MapNode,
  markShared,
  type ReadDocument,
  type ScalarNode,
  type SourceNode,
} from './source-tree.ts';

/** Aliases can expand a small text to a huge value; no document needs more copied nodes than this. */
const MAX_ALIASED_NODES = FOREIGN_LIMITS.policy.parts.most;

/** No document needs more levels; the bound keeps the reader's recursion within its stack. */
const MAX_DEPTH = FOREIGN_LIMITS.policy.depth;

/** A key that is written without `?` ends on its own line, at most this far on. */
const MAX_KEY_LENGTH = 1024;

const [TAB, LINE_FEED, RETURN, SPACE] = [9, 10, 13, 32] as const;
const [QUOTE, HASH, PERCENT, APOSTROPHE, COMMA] = [34, 35, 37, 39, 44] as const;
const [DASH, COLON, QUESTION] = [45, 58, 63] as const;
const [BANG, AMPERSAND, ASTERISK, GREATER, BACKSLASH, BAR] = [33, 38, 42, 62, 92, 124] as const;
const [BRACKET, BRACKET_END, BRACE, BRACE_END] = [91, 93, 123, 125] as const;
/** The result of `#code` after the end of the document. */
const END = -1;

const ANCHOR_NAME = /[0-9A-Za-z_-]+/y;
const TAG = /!(?:<[^>\s]*>|[0-9A-Za-z_\-;/?:@&=+$,.!~*'()[\]%]*)/y;
/** The beginning of a JSON object, and of a YAML flow mapping. */
const JSON_BEGINS = /^\uFEFF?\s*\{/;
const JSON_WORD = /^(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?)$/;
/** The words of a plain scalar on one line; inside brackets, without the characters that separate or end entries. */
const BLOCK_WORDS = /(?:[ \t]*(?:[^ \t\r\n:#]+|:(?![ \t\r\n]|$)|(?<![ \t\r\n])#))+/y;
const FLOW_WORDS = /(?:[ \t]*(?:[^ \t\r\n:#,?[\]{}]+|:(?![ \t\r\n]|$)|(?<![ \t\r\n])#))+/y;
const BREAK = /\r\n?|\n/;
const QUOTED_MARK = /[\r\n](?:---|\.\.\.)[ \t\r\n]/;
/** Characters with a special meaning inside quotes. */
const SINGLE_SPECIAL = /''|[ \t\r\n]+/g;
const DOUBLE_SPECIAL =
  /\\[\r\n][ \t\r\n]*|\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[\s\S])|[ \t\r\n]+/g;
const BLOCK_HEADER = /[|>](?:([+-])([0-9])?|([0-9])([+-])?)?[ \t]*(?:#[^\r\n]*)?/y;
/** Characters that go-yaml rejects, and those that it treats as line breaks although editors do not. */
const UNREADABLE = /(?![\t\n\r])\p{Cc}|[\u2028\u2029\uFFFE\uFFFF]|\r(?!\n)|\p{Cs}/u;

/** The anchor and the tag before a node. */
interface Properties {
  readonly anchor?: string;
  readonly tag?: string;
  /** The offset after the last of them; undefined if there are none. */
  readonly end?: number;
}

const NONE: Properties = {};

/** The reader's state: all that is needed to continue from this point. */
interface ReaderState {
  readonly at: number;
  readonly end: number;
  readonly lineStart: number;
  /** The column of the innermost block collection. */
  readonly indent: number;
  /** The number of open flow collections. */
  readonly flow: number;
  /** Whether a block collection, or a key without `?`, may begin here. */
  readonly keyAllowed: boolean;
  /** Whether everything so far may be JSON, which is less strict than YAML about line breaks. */
  readonly json: boolean;
}

/**
 * Parses one YAML document by the rules of go-yaml v2: they differ from those of YAML 1.2 in
 * the meaning of plain scalars and in where text may continue. (`scannerc.go` and `parserc.go` are the reference: quoted text
 * may continue at any column, and so may a flow collection; after a bracket a comment needs no space before it.)
 * @param start the offset after `---`, or of the beginning of the text
 * @param later a key of the root whose list is parsed item by item, each when it is asked for, so that not all are in memory
 * @throws YamlError for anything that go-yaml refuses
 */
export function readYamlDocument(
  source: SourceText,
  start: number,
  end: number,
  later?: string,
): ReadDocument {
  const part = source.text.slice(start, end);
  const json = JSON_BEGINS.test(part);
  const unreadable = json ? null : UNREADABLE.exec(part);
  if (unreadable) throw source.errorAt(start + unreadable.index, unreadableCharacter(unreadable[0]));
  const at = part.startsWith('\uFEFF') ? start + 1 : start;
  const keyAllowed = start === 0 || source.text[start - 1] === '\n';
  const lineStart = keyAllowed ? at : source.lineStart(start);
  return new YamlReader(
    source,
    { at, end, lineStart, indent: -1, flow: 0, keyAllowed, json },
    later,
  ).document();
}

function unreadableCharacter(character: string): string {
  const code = character.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0');
  if (character === '\0') return 'the file is not UTF-8: it holds U+0000; save it as UTF-8';
  const problem = /[\r\u0085\u2028\u2029]/.test(character) ? 'a line break' : 'no text';
  return `the character U+${code} is ${problem}: remove it, or write it as an escape in double quotes`;
}

class YamlReader {
  readonly #source: SourceText;
  readonly #text: string;
  #at: number;
  #end: number;
  #lineStart: number;
  #indent: number;
  #flow: number;
  #keyAllowed: boolean;
  #json: boolean;
  #depth = 0;
  /** The latest node of each anchor, with its number of nodes; `undefined` while it is being read. */
  readonly #anchors = new Map<string, { readonly node: SourceNode; readonly size: number } | undefined>();
  /** The number of anchors and aliases so far. */
  #references = 0;
  #size = 0;
  #aliasedNodes = 0;
  readonly #duplicates: { readonly key: string; readonly at: number }[] = [];
  readonly #later: string | undefined;
  /** Whether the next sequence is the one whose items are parsed later. */
  #isItems = false;

  constructor(
    source: SourceText,
    { at, end, lineStart, indent, flow, keyAllowed, json }: ReaderState,
    later?: string,
  ) {
    this.#later = later;
    this.#source = source;
    this.#text = source.text;
    this.#at = at;
    this.#end = end;
    this.#lineStart = lineStart;
    this.#indent = indent;
    this.#flow = flow;
    this.#keyAllowed = keyAllowed;
    this.#json = json;
  }

  document(): ReadDocument {
    this.#skip();
    const directive = this.#code() === PERCENT && this.#column() === 0;
    while (this.#code() === PERCENT && this.#column() === 0) {
      this.#at = this.#lineEnd();
      this.#skip();
    }
    // The document that directives refer to begins at the next `---`.
    const root = directive || this.#isEnd() ? undefined : this.#blockNode(false);
    this.#skip();
    const another = this.#json && this.#code() === BRACE;
    if (!this.#isEnd() && !another) throw this.#misplaced();
    return { root, duplicates: this.#duplicates, json: this.#json, next: another ? this.#at : undefined };
  }

  #code(ahead = 0): number {
    const at = this.#at + ahead;
    return at < this.#end ? this.#text.charCodeAt(at) : END;
  }

  #isBlankAfter(ahead = 1): boolean {
    const code = this.#code(ahead);
    return code <= SPACE && (code === SPACE || isBreak(code) || code === TAB || code === END);
  }

  #column(): number {
    return this.#at - this.#lineStart;
  }

  /** The end of this line's content, before its line break. */
  #lineEnd(): number {
    const found = this.#text.indexOf('\n', this.#at);
    const at = found === -1 || found > this.#end ? this.#end : found;
    return at > this.#at && this.#text.charCodeAt(at - 1) === RETURN ? at - 1 : at;
  }

  /** Skips a line break; the end of the text counts as one. */
  #break(): void {
    if (this.#code() === RETURN) this.#at++;
    if (this.#code() === LINE_FEED) this.#at++;
    this.#lineStart = this.#at;
  }

  /** Moves to the next token, over blanks, comments and line breaks. `...` ends the document. */
  #skip(): void {
    for (;;) {
      let code = this.#code();
      while (code === SPACE || (code === TAB && this.#mayBeTab())) {
        // If this tab may stand here, so may the blanks behind it, which have been looked at once.
        this.#at += code === TAB ? this.#blanks() : 1;
        code = this.#code();
      }
      if (code === HASH) {
        this.#at = this.#lineEnd();
        code = this.#code();
      }
      if (!isBreak(code)) break;
      this.#break();
      if (this.#flow === 0) this.#keyAllowed = true;
    }
    if (this.#isMark('...')) this.#endAtMark();
  }

  /** A tab separates tokens but does not indent. Before a comment it is harmless. */
  #mayBeTab(): boolean {
    return this.#flow > 0 || !this.#keyAllowed || this.#isWithoutContent();
  }

  #blanks(): number {
    let ahead = 0;
    while (this.#code(ahead) === SPACE || this.#code(ahead) === TAB) ahead++;
    return ahead;
  }

  /** Whether the rest of the line is blank, or a comment. */
  #isWithoutContent(): boolean {
    const code = this.#code(this.#blanks());
    return code === HASH || code === END || isBreak(code);
  }

  #isMark(mark: '...' | '---'): boolean {
    return this.#column() === 0 && this.#text.startsWith(mark, this.#at) && this.#isBlankAfter(3);
  }

  #endAtMark(): void {
    const mark = this.#at;
    this.#at += 3;
    const end = this.#end;
    this.#keyAllowed = false;
    this.#skip();
    if (this.#at < end) {
      throw this.#error('nothing is read between "..." and "---": write "---" before this');
    }
    this.#end = mark;
    this.#at = mark;
    this.#lineStart = mark;
  }

  #isEnd(): boolean {
    return this.#at >= this.#end;
  }

  /** Whether the enclosing block collection ends before this token. */
  #isOutside(): boolean {
    return this.#isEnd() || this.#column() < this.#indent;
  }

  #isDash(): boolean {
    return this.#code() === DASH && this.#isBlankAfter();
  }

  #isBlockScalar(): boolean {
    return this.#code() === BAR || this.#code() === GREATER;
  }

  /** A node in block context, at its first token. */
  #blockNode(indentless: boolean): SourceNode {
    let outer = NONE;
    for (;;) {
      const { start, line, allowed } = { start: this.#at, line: this.#lineStart, allowed: this.#keyAllowed };
      const own = this.#properties();
      const same = this.#lineStart === line;
      if (own.end !== undefined && (!same || this.#isEnd())) {
        outer = this.#joined(outer, own);
        if (!this.#hasNode(indentless)) return this.#named(outer, () => this.#absent(outer));
        continue;
      }
      const code = this.#code();
      if (this.#isDash() || (code === QUESTION && this.#isBlankAfter())) {
        if (!this.#keyAllowed) throw this.#misplaced();
        const properties = this.#joined(outer, own);
        return this.#named(properties, () =>
          this.#isDash() ? this.#blockSequence() : this.#blockMapping(undefined, this.#column()),
        );
      }
      if (this.#isBlockScalar()) {
        const properties = this.#joined(outer, own);
        return this.#named(properties, () => this.#blockScalar(properties));
      }
      const node = this.#atom(own);
      if (allowed && this.#lineStart === line && this.#isColon(start)) {
        return this.#named(outer, () => this.#blockMapping({ node, start }, start - line));
      }
      if (outer.end === undefined) return node;
      const properties = this.#joined(outer, own);
      return this.#named(outer, () => (node.kind === 'scalar' ? this.#scalar(node, properties) : node));
    }
  }

  /** Whether this token begins a value, rather than following an absent one. */
  #hasNode(indentless: boolean): boolean {
    if (this.#isEnd()) return false;
    const column = this.#column();
    if (column !== this.#indent) return column > this.#indent;
    return (indentless && this.#isDash()) || this.#isBlockScalar();
  }

  /** Moves to the colon of a key without `?`, over the blanks before it. */
  #isColon(keyStart: number): boolean {
    const ahead = this.#blanks();
    if (this.#code(ahead) !== COLON || !(this.#flow > 0 || this.#isBlankAfter(ahead + 1))) return false;
    this.#at += ahead;
    return this.#at - keyStart <= MAX_KEY_LENGTH;
  }

  #blockSequence(): ListNode {
    const [start, indent, isList] = [this.#at, this.#indent, this.#isItems];
    this.#enter();
    this.#isItems = false;
    this.#indent = this.#column();
    const items: SourceNode[] = [];
    do {
      this.#at++;
      const absentAt = this.#at;
      this.#keyAllowed = true;
      this.#skip();
      items.push(this.#hasNode(false) ? this.#item(isList) : this.#absent(NONE, absentAt));
      this.#skip();
    } while (!this.#isOutside() && this.#column() === this.#indent && this.#isDash());
    // A list without indentation of its own ends at the next key of the enclosing mapping.
    const ended = this.#isOutside() || (this.#column() === this.#indent && this.#indent === indent);
    if (!ended) throw this.#misplaced();
    this.#indent = indent;
    this.#depth--;
    return { kind: 'list', layout: 'block', items, start, end: items.at(-1)?.end ?? start };
  }

  /** It is checked now, and parsed again when its turn comes, so that not all are in memory. */
  #item(isList: boolean): SourceNode {
    if (!isList) return this.#itemNode();
    const source = this.#source;
    const place: ReaderState = {
      at: this.#at,
      end: this.#end,
      lineStart: this.#lineStart,
      indent: this.#indent,
      flow: this.#flow,
      keyAllowed: true,
      json: this.#json,
    };
    const before = this.#references;
    const node = this.#itemNode();
    if (this.#references > before) return node;
    const { start, end } = node;
    return { kind: 'later', read: () => new YamlReader(source, place).#itemNode(), start, end };
  }

  #itemNode(): SourceNode {
    return this.#flow > 0 ? this.#flowItem() : this.#blockNode(false);
  }

  #blockMapping(first: { node: SourceNode; start: number } | undefined, column: number): MapNode {
    const [start, indent] = [first?.start ?? this.#at, this.#indent];
    this.#enter();
    this.#indent = column;
    const entries: EntryNode[] = [];
    let key = first;
    do {
      entries.push(key === undefined ? this.#blockEntry() : this.#entry(key.node, key.start, true));
      key = undefined;
      this.#skip();
    } while (!this.#isOutside() && this.#column() === column);
    if (!this.#isOutside()) throw this.#misplaced();
    this.#indent = indent;
    this.#depth--;
    return this.#map('block', entries, column, start, entries.at(-1)?.end ?? start);
  }

  #map(layout: MapNode['layout'], entries: EntryNode[], column: number, start: number, end: number): MapNode {
    const seen = new Set<string>();
    for (const { key, merge, start: at } of entries) {
      if (!merge && seen.has(key)) this.#duplicates.push({ key, at });
      seen.add(key);
    }
    return { kind: 'map', layout, entries, column, start, end };
  }

  #blockEntry(): EntryNode {
    if (this.#code() === QUESTION && this.#isBlankAfter()) return this.#explicitEntry();
    const { start, line } = { start: this.#at, line: this.#lineStart };
    const own = this.#properties();
    if (this.#lineStart !== line || this.#isEnd()) throw this.#error('expected a key and a colon', start);
    const node = this.#atom(own);
    if (this.#lineStart !== line || !this.#isColon(start)) {
      throw this.#error('expected a colon and a space behind this key', start);
    }
    return this.#entry(node, start, true);
  }

  #explicitEntry(): EntryNode {
    const { start, column } = { start: this.#at, column: this.#column() };
    this.#at++;
    this.#keyAllowed = true;
    this.#skip();
    const node = this.#hasNode(true) ? this.#blockNode(true) : this.#absent(NONE, start + 1);
    this.#skip();
    const hasColon =
      !this.#isEnd() && this.#column() === column && this.#code() === COLON && this.#isBlankAfter();
    if (hasColon) this.#keyAllowed = true;
    return this.#entry(node, start, hasColon);
  }

  /**
   * The entry of a key, with the value after its colon, if there is one here.
   * @param start the offset of the key's anchor or tag, or of the key
   */
  #entry(node: SourceNode, start: number, hasColon: boolean): EntryNode {
    const colonEnd = hasColon ? ++this.#at : node.end;
    const scalar = node.kind === 'scalar' ? node : undefined;
    const merge = scalar?.style === 'plain' && scalar.text === '<<';
    const key = merge ? '<<' : this.#memberName(node);
    this.#isItems = key === this.#later && this.#depth === 1;
    const value = hasColon ? this.#value(colonEnd) : this.#absent(NONE, colonEnd);
    if (merge) this.#checkMergeSource(value);
    const quoted = scalar?.style === 'double';
    const end = Math.max(value.end, colonEnd);
    return { key, merge, start, quoted, colonEnd, hasColon, value, end };
  }

  #value(colonEnd: number): SourceNode {
    this.#skip();
    if (this.#flow > 0) return isFlowEnd(this.#code()) ? this.#absent(NONE, colonEnd) : this.#flowNode();
    return this.#hasNode(true) ? this.#blockNode(true) : this.#absent(NONE, colonEnd);
  }

  #memberName(node: SourceNode): string {
    const name = dereference(node);
    if (name.kind !== 'scalar') throw this.#error('a key must be a text: quote it', node.start);
    return this.#resolved(node.start, () => memberName(name.value, name.text));
  }

  /** The value of a scalar. What go-yaml refuses is refused, with its position. */
  #resolved<T>(at: number, resolve: () => T): T {
    try {
      return resolve();
    } catch (cause) {
      throw cause instanceof ScalarError ? this.#error(cause.message, at) : cause;
    }
  }

  #checkMergeSource(value: SourceNode): void {
    const sources = value.kind === 'list' ? value.items : [value];
    const bad = sources.find((source) => dereference(source).kind !== 'map');
    if (bad) throw this.#error('a merge key "<<" takes a mapping or a list of mappings', bad.start);
  }

  #flowNode(): SourceNode {
    const properties = this.#properties();
    if (properties.end !== undefined && (isFlowEnd(this.#code()) || this.#code() === COLON)) {
      return this.#named(properties, () => this.#absent(properties));
    }
    return this.#atom(properties);
  }

  #flowSequence(): ListNode {
    const isList = this.#isItems;
    this.#isItems = false;
    const start = this.#open();
    const items: SourceNode[] = [];
    while (!this.#isClosed(BRACKET_END, start)) {
      items.push(this.#item(isList));
      this.#separate(BRACKET_END);
    }
    return { kind: 'list', layout: 'flow', items, start, end: this.#close() };
  }

  /** An item of a flow sequence, which may be a mapping of one entry without braces. */
  #flowItem(): SourceNode {
    const start = this.#at;
    if (this.#code() === QUESTION) return this.#pair(this.#flowEntry(), start);
    const line = this.#lineStart;
    const node = this.#flowNode();
    this.#skip();
    if (this.#code() !== COLON) return node;
    if (this.#lineStart !== line) throw this.#misplaced();
    return this.#pair(this.#entry(node, start, true), start);
  }

  #pair(entry: EntryNode, start: number): MapNode {
    return this.#map('flow', [entry], 0, start, entry.end);
  }

  #flowMapping(): MapNode {
    const start = this.#open();
    const entries: EntryNode[] = [];
    while (!this.#isClosed(BRACE_END, start)) {
      entries.push(this.#flowEntry());
      this.#separate(BRACE_END);
    }
    return this.#map('flow', entries, 0, start, this.#close());
  }

  #flowEntry(): EntryNode {
    const { start, line } = { start: this.#at, line: this.#lineStart };
    const explicit = this.#code() === QUESTION;
    if (explicit) {
      this.#at++;
      this.#skip();
    }
    const absent = explicit && (isFlowEnd(this.#code()) || this.#code() === COLON);
    const node = absent ? this.#absent(NONE, start + 1) : this.#flowNode();
    this.#skip();
    const hasColon = this.#code() === COLON;
    if (hasColon && !explicit && !this.#json && this.#lineStart !== line) throw this.#misplaced();
    return this.#entry(node, start, hasColon);
  }

  #open(): number {
    this.#enter();
    this.#flow++;
    const start = this.#at++;
    this.#skip();
    return start;
  }

  #close(): number {
    this.#flow--;
    this.#depth--;
    this.#keyAllowed = false;
    return ++this.#at;
  }

  /** Skips a comma, if one follows; otherwise the collection must end here. */
  #separate(close: number): void {
    this.#skip();
    if (this.#code() === COMMA) {
      this.#at++;
      this.#skip();
    } else if (this.#code() !== close && !this.#isEnd()) {
      throw this.#error(`expected "," or "${String.fromCharCode(close)}" here`);
    }
  }

  #isClosed(close: number, start: number): boolean {
    if (this.#isEnd())
      throw this.#error(`this bracket has no closing "${String.fromCharCode(close)}"`, start);
    return this.#code() === close;
  }

  #enter(): void {
    if (++this.#depth > MAX_DEPTH) throw this.#error(`nested too deeply: more than ${MAX_DEPTH} levels`);
  }

  /** A scalar on one or more lines, an alias or a flow collection. */
  #atom(properties: Properties): SourceNode {
    const code = this.#code();
    if (code === ASTERISK) {
      if (properties.end === undefined) return this.#alias();
      throw this.#error('an alias has no anchor or tag of its own');
    }
    return this.#named(properties, () => {
      if (code === BRACKET) return this.#flowSequence();
      if (code === BRACE) return this.#flowMapping();
      this.#keyAllowed = false;
      if (code === QUOTE || code === APOSTROPHE) return this.#quoted(code === QUOTE, properties);
      if (!this.#mayBeginPlain(code)) throw this.#misplaced();
      return this.#plain(properties);
    });
  }

  #mayBeginPlain(code: number): boolean {
    if (code === DASH) return this.#code(1) !== SPACE && this.#code(1) !== TAB;
    if (code === QUESTION || code === COLON) return this.#flow === 0 && !this.#isBlankAfter();
    return code > SPACE && !INDICATORS.has(code);
  }

  #scalar({ text, style, start, end }: Omit<ScalarNode, 'kind' | 'value'>, { tag }: Properties): ScalarNode {
    const plain = style === 'plain';
    const value = this.#resolved(start, () => {
      if (tag !== undefined) return resolveTagged(tag, text);
      return plain ? resolvePlain(text) : text;
    });
    if (this.#json && plain && typeof value === 'string')
      throw this.#error('this number is out of range', start);
    return { kind: 'scalar', value, text, style, start, end };
  }

  #absent(properties: Properties, at = properties.end ?? this.#at): ScalarNode {
    return this.#scalar({ text: '', style: 'plain', start: at, end: at }, properties);
  }

  /** The anchor and the tag at this token; in block context only those on this line. */
  #properties(): Properties {
    let properties = NONE;
    for (;;) {
      const [code, line, start] = [this.#code(), this.#lineStart, this.#at];
      if (code === AMPERSAND) {
        properties = this.#joined(properties, { anchor: this.#name('an anchor'), end: this.#at });
      } else if (code === BANG) {
        TAG.lastIndex = start;
        const tag = TAG.exec(this.#text)?.[0] ?? '!';
        this.#at += tag.length;
        if (!this.#isBlankAfter(0)) throw this.#error('expected a space behind this tag', start);
        const name = tag.startsWith('!<') ? tag.slice(2, -1) : tag;
        properties = this.#joined(properties, { tag: name, end: this.#at });
      } else {
        return properties;
      }
      this.#keyAllowed = false;
      this.#skip();
      if (this.#flow === 0 && this.#lineStart !== line) return properties;
    }
  }

  #joined(outer: Properties, own: Properties): Properties {
    if (own.end === undefined) return outer;
    if ((outer.anchor !== undefined && own.anchor !== undefined) || (outer.tag && own.tag)) {
      throw this.#error('a node has at most one anchor and one tag', own.end);
    }
    return { ...outer, ...own };
  }

  #name(what: string): string {
    const start = this.#at++;
    ANCHOR_NAME.lastIndex = this.#at;
    const name = ANCHOR_NAME.exec(this.#text)?.[0] ?? '';
    this.#at += name.length;
    if (name === '' || !(this.#isBlankAfter(0) || '?:,]}%@`'.includes(this.#text[this.#at] ?? ' '))) {
      throw this.#error(`the name of ${what} has letters, digits, "_" and "-" only`, start);
    }
    return name;
  }

  /** Builds a node and registers its anchor, which cannot be referred to while the node is being built. */
  #named(properties: Properties, build: () => SourceNode): SourceNode {
    const { anchor } = properties;
    const before = this.#size++;
    if (anchor === undefined) return build();
    this.#references++;
    this.#anchors.set(anchor, undefined);
    const node = build();
    this.#anchors.set(anchor, { node, size: this.#size - before });
    return node;
  }

  #alias(): SourceNode {
    const start = this.#at;
    const name = this.#name('an alias');
    this.#keyAllowed = false;
    const target = this.#anchors.get(name);
    if (target === undefined) {
      const problem = this.#anchors.has(name) ? 'is used inside its own anchor' : 'has no anchor before it';
      throw this.#error(`the alias *${name.slice(0, 80)} ${problem}`, start);
    }
    this.#references++;
    this.#size += target.size;
    this.#aliasedNodes += target.size;
    if (this.#aliasedNodes > MAX_ALIASED_NODES) {
      throw this.#error(`aliases repeat more than ${MAX_ALIASED_NODES} nodes: write them out`, start);
    }
    markShared(target.node, name);
    return { kind: 'alias', name, target: target.node, start, end: this.#at, sharedBy: name };
  }

  #plain(properties: Properties): ScalarNode {
    const start = this.#at;
    const least = this.#indent + 1;
    const words = this.#flow > 0 ? FLOW_WORDS : BLOCK_WORDS;
    let [text, end, gap] = ['', start, ''];
    for (;;) {
      words.lastIndex = this.#at;
      const line = words.exec(this.#text)?.[0];
      if (line === undefined) break;
      text += gap + line;
      end = words.lastIndex;
      this.#at = end;
      this.#at += this.#blanks();
      if (!isBreak(this.#code())) break;
      const breaks = this.#plainBreaks(least);
      this.#keyAllowed = true;
      const outside = this.#flow === 0 && this.#column() < least;
      if (outside || this.#isMark('...') || this.#isMark('---')) break;
      gap = breaks === 1 ? ' ' : '\n'.repeat(breaks - 1);
    }
    this.#json &&= JSON_WORD.test(text);
    return this.#scalar({ text, style: 'plain', start, end }, properties);
  }

  #plainBreaks(least: number): number {
    let breaks = 0;
    for (;;) {
      const code = this.#code();
      if (isBreak(code)) {
        this.#break();
        breaks++;
      } else if (code === SPACE) {
        this.#at++;
      } else if (code === TAB) {
        if (this.#column() < least && !this.#isWithoutContent())
          throw this.#error('a tab does not indent: use spaces');
        this.#at += this.#blanks();
      } else {
        return breaks;
      }
    }
  }

  #quoted(double: boolean, properties: Properties): ScalarNode {
    const start = this.#at;
    this.#json &&= double;
    const close = this.#closingQuote(start + 1, double);
    const written = close === undefined ? '---' : this.#text.slice(start + 1, close);
    // Nothing continues after the beginning of the next document.
    if (close === undefined || QUOTED_MARK.test(written))
      throw this.#error('this quote is never closed', start);
    const text = written.replace(double ? DOUBLE_SPECIAL : SINGLE_SPECIAL, (special: string, at: number) => {
      if (special === "''") return "'";
      if (!special.startsWith('\\')) return folded(special);
      // An escaped line break yields nothing; each empty line after it yields a line break.
      if (BREAK.test(special)) return folded(special).replace(/^ $/, '');
      return this.#escape(special, start + 1 + at);
    });
    const lastBreak = Math.max(written.lastIndexOf('\n'), written.lastIndexOf('\r'));
    if (lastBreak >= 0) this.#lineStart = start + 1 + lastBreak + 1;
    this.#at = close + 1;
    return this.#scalar({ text, style: double ? 'double' : 'single', start, end: this.#at }, properties);
  }

  #closingQuote(from: number, double: boolean): number | undefined {
    const closing = double ? '"' : "'";
    let at = this.#text.indexOf(closing, from);
    while (at !== -1 && at < this.#end) {
      let escapes = 0;
      while (double && this.#text.charCodeAt(at - escapes - 1) === BACKSLASH) escapes++;
      const doubled = !double && this.#text.charCodeAt(at + 1) === APOSTROPHE;
      if (escapes % 2 === 0 && !doubled) return at;
      at = this.#text.indexOf(closing, at + (doubled ? 2 : 1));
    }
    return undefined;
  }

  /** The character of an escape sequence, except that of a line break. */
  #escape(written: string, at: number): string {
    const code = written[1] ?? '';
    const digits = HEX_DIGITS[code];
    if (digits === undefined) {
      const value = Object.hasOwn(ESCAPES, code) ? ESCAPES[code] : undefined;
      if (code === '/' && this.#json) return code;
      if (value === undefined) throw this.#error(`"\\${code}" is no escape of YAML: write "\\\\"`, at);
      return value;
    }
    const point = written.length === 2 + digits ? Number.parseInt(written.slice(2), 16) : Infinity;
    const surrogate = point >= 0xd8_00 && point <= 0xdf_ff;
    if (point > 0x10_ff_ff || (surrogate && !this.#json)) {
      throw this.#error(`expected ${digits} hexadecimal digits of a character behind "\\${code}"`, at);
    }
    return String.fromCodePoint(point);
  }

  #blockScalar(properties: Properties): ScalarNode {
    const start = this.#at;
    const literal = this.#code() === BAR;
    BLOCK_HEADER.lastIndex = start;
    const header = BLOCK_HEADER.exec(this.#text) ?? [''];
    const chomping = header[1] ?? header[4];
    const digit = header[2] ?? header[3];
    this.#at += header[0].length;
    if (digit === '0' || !(this.#isEnd() || isBreak(this.#code()))) {
      throw this.#error('expected a line end behind the sign of a block text', start);
    }
    this.#break();
    let end = this.#at;
    let indent = digit === undefined ? 0 : Math.max(this.#indent, 0) + Number(digit);
    let breaks: number;
    [indent, breaks] = this.#blockBreaks(indent, start);
    let text = '';
    let ended = 0;
    let wasBlank = false;
    while (this.#column() === indent && !this.#isEnd()) {
      const blank = this.#code() === SPACE || this.#code() === TAB;
      const folds = !literal && ended > 0 && !wasBlank && !blank;
      if (folds && breaks === 0) text += ' ';
      text += '\n'.repeat((folds ? 0 : ended) + breaks);
      wasBlank = blank;
      const lineEnd = this.#lineEnd();
      text += this.#text.slice(this.#at, lineEnd);
      this.#at = lineEnd;
      this.#break();
      ended = 1;
      end = this.#at;
      [indent, breaks] = this.#blockBreaks(indent, start);
    }
    if (chomping !== '-') text += '\n'.repeat(ended);
    if (chomping === '+') {
      text += '\n'.repeat(breaks);
      if (breaks > 0) end = this.#lineStart;
    }
    this.#keyAllowed = true;
    return this.#scalar({ text, style: 'block', start, end }, properties);
  }

  /** Skips empty lines and the next line's indentation, and learns the indentation if it is not known yet. */
  #blockBreaks(indent: number, start: number): [indent: number, breaks: number] {
    let breaks = 0;
    let most = 0;
    for (;;) {
      while ((indent === 0 || this.#column() < indent) && this.#code() === SPACE) this.#at++;
      most = Math.max(most, this.#column());
      if ((indent === 0 || this.#column() < indent) && this.#code() === TAB) {
        throw this.#error('a tab does not indent the lines of this text: use spaces', start);
      }
      if (!isBreak(this.#code())) break;
      this.#break();
      breaks++;
    }
    return [indent === 0 ? Math.max(most, this.#indent + 1, 1) : indent, breaks];
  }

  /** The error for a token that is not allowed here. */
  #misplaced(): Error {
    const code = this.#code();
    if (code === TAB) return this.#error('a tab does not indent: use spaces');
    if (code === END) return this.#error('the document ends in the middle of something');
    const next = this.#text.slice(this.#at, this.#lineEnd());
    if (/^:(\s|$)/.test(next))
      return this.#error('a second colon on a line: quote the value, or put it on a line of its own');
    if (/^[-?](\s|$)/.test(next)) return this.#error(`"${next[0]}" must begin a line of its own here`);
    if (/^[@`%|>]/.test(next)) return this.#error(`"${next[0]}" cannot begin a value: quote it`);
    return this.#error(`${quote(next)} cannot stand here: is its indentation right?`);
  }

  #error(message: string, at = this.#at): Error {
    return this.#source.errorAt(at, message);
  }
}

/** Blanks are kept; a line break with the blanks around it becomes a space, each further one a line break. */
function folded(space: string): string {
  const ends = space.split(BREAK).length - 1;
  if (ends === 0) return space;
  return ends === 1 ? ' ' : '\n'.repeat(ends - 1);
}

function isBreak(code: number): boolean {
  return code === LINE_FEED || code === RETURN;
}

/** Characters that end a value inside brackets. */
function isFlowEnd(code: number): boolean {
  return code === COMMA || code === BRACKET_END || code === BRACE_END;
}

/** Characters that cannot begin a plain scalar, besides `-`, `?` and `:`. */
const INDICATORS: ReadonlySet<number> = new Set([...',[]{}#&*!|>\'"%@`'].map((c) => c.charCodeAt(0)));

const HEX_DIGITS: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 };
const ESCAPES: Readonly<Record<string, string>> = {
  '0': '\0',
  a: '\x07',
  b: '\b',
  t: '\t',
  '\t': '\t',
  n: '\n',
  v: '\v',
  f: '\f',
  r: '\r',
  e: '\x1B',
  ' ': ' ',
  '"': '"',
  "'": "'",
  '\\': '\\',
  N: '\u0085',
  _: '\u00A0',
  L: '\u2028',
  P: '\u2029',
};
