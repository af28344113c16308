import { ManifestError, type SourceText } from './manifest-error.ts';
import type { EntryNode, ScalarNode, SourceNode } from './source-tree.ts';

/** The text breaks JSON's syntax, so that it may be meant as YAML. */
export class NotJson extends ManifestError {}

/** Kubernetes objects are some 20 levels deep; the bound keeps the reader's recursion within its stack. */
const MAX_DEPTH = 500;

/**
 * Reads one or more JSON values that stand one after another, as kubectl does.
 * @throws NotJson for broken syntax; ManifestError for duplicate keys, too large numbers, more than 500 levels
 */
export function readJsonDocuments(source: SourceText): SourceNode[] {
  const reader = new JsonReader(source);
  const documents: SourceNode[] = [];
  while (!reader.atEnd()) documents.push(reader.value(0));
  return documents;
}

class JsonReader {
  readonly #source: SourceText;
  readonly #text: string;
  #at = 0;

  constructor(source: SourceText) {
    this.#source = source;
    this.#text = source.text;
    if (this.#text.startsWith('\uFEFF')) this.#at = 1;
  }

  atEnd(): boolean {
    this.#skipSpace();
    return this.#at >= this.#text.length;
  }

  value(depth: number): SourceNode {
    this.#skipSpace();
    if (depth > MAX_DEPTH) throw this.#source.errorAt(this.#at, `nested deeper than ${MAX_DEPTH} levels`);
    if (this.#text[this.#at] === '{') return this.#object(depth);
    if (this.#text[this.#at] === '[') return this.#array(depth);
    return this.#scalar();
  }

  #object(depth: number): SourceNode {
    const start = this.#at++;
    const entries: EntryNode[] = [];
    const seen = new Set<string>();
    if (!this.#take('}')) {
      do {
        const entry = this.#entry(depth);
        if (seen.has(entry.key)) {
          throw this.#source.errorAt(entry.start, `the key "${entry.key}" appears twice: remove one`);
        }
        seen.add(entry.key);
        entries.push(entry);
      } while (this.#take(','));
      this.#expect('}', '"," or "}"');
    }
    return { kind: 'map', layout: 'flow', entries, column: 0, start, end: this.#at, sharedBy: undefined };
  }

  #entry(depth: number): EntryNode {
    this.#skipSpace();
    if (this.#text[this.#at] !== '"') throw this.#error('expected a key in double quotes');
    const name = this.#scalar();
    this.#expect(':', '":"');
    const colonEnd = this.#at;
    const value = this.value(depth + 1);
    const key = String(name.value);
    return {
      key,
      merge: false,
      start: name.start,
      keyQuote: 'double',
      colonEnd,
      hasColon: true,
      value,
      end: value.end,
    };
  }

  #array(depth: number): SourceNode {
    const start = this.#at++;
    const items: SourceNode[] = [];
    if (!this.#take(']')) {
      do items.push(this.value(depth + 1));
      while (this.#take(','));
      this.#expect(']', '"," or "]"');
    }
    return { kind: 'list', layout: 'flow', items, start, end: this.#at, sharedBy: undefined };
  }

  #scalar(): ScalarNode {
    const start = this.#at;
    const quoted = this.#text[start] === '"';
    const end = quoted ? this.#stringEnd(start) : this.#wordEnd(start);
    let value: unknown;
    try {
      value = JSON.parse(this.#text.slice(start, end));
    } catch {
      throw this.#error(quoted ? 'this string is not valid JSON' : 'expected a JSON value');
    }
    if (typeof value === 'number' && !Number.isFinite(value)) {
      throw this.#source.errorAt(start, 'this number is out of range');
    }
    this.#at = end;
    const style = quoted ? 'double' : 'plain';
    return { kind: 'scalar', value: value as ScalarNode['value'], style, start, end, sharedBy: undefined };
  }

  #stringEnd(start: number): number {
    for (let i = start + 1; i < this.#text.length; i++) {
      if (this.#text[i] === '\\') i++;
      else if (this.#text[i] === '"') return i + 1;
    }
    throw this.#error('this string has no closing quote');
  }

  #wordEnd(start: number): number {
    const word = /[-+.0-9a-zA-Z]+/y;
    word.lastIndex = start;
    return start + (word.exec(this.#text)?.[0].length ?? 0);
  }

  #skipSpace(): void {
    while (' \t\r\n'.includes(this.#text[this.#at] ?? 'end')) this.#at++;
  }

  #take(character: string): boolean {
    this.#skipSpace();
    if (this.#text[this.#at] !== character) return false;
    this.#at++;
    return true;
  }

  #expect(character: string, expected: string): void {
    if (!this.#take(character)) throw this.#error(`expected ${expected}`);
  }

  #error(problem: string): NotJson {
    const found = this.#text[this.#at];
    const got = found === undefined ? 'the end of the file' : JSON.stringify(found);
    return new NotJson(this.#source.errorAt(this.#at, `not valid JSON: ${problem}, got ${got}`).message);
  }
}
