import {
  type Alias,
  type Document,
  isAlias,
  isMap,
  isPair,
  isScalar,
  type ParsedNode,
  type Scalar,
  visit,
  type YAMLMap,
  type YAMLSeq,
} from 'yaml';
import type { SourceText } from './manifest-error.ts';
import { memberName, resolvePlain, resolveTagged, ScalarError } from './resolve-scalar.ts';
import {
  dereference,
  type EntryNode,
  type JsonScalar,
  type ScalarNode,
  type SourceNode,
} from './source-tree.ts';
import { collectionIndent, type PairTokens, pairTokens, seqItemEnd } from './yaml-tokens.ts';

/** Aliases can make a small text stand for an endless value; no manifest needs more copied nodes than this. */
const MAX_ALIASED_NODES = 100_000;

type AnyNode = ParsedNode | Scalar | YAMLMap | YAMLSeq | Alias | null;

interface Context {
  /** The anchor that makes the surrounding node appear in more than one place. */
  readonly sharedBy: string | undefined;
  readonly flow: boolean;
  /** Where the node stands if nothing is written for it. */
  readonly absentAt: number;
}

/** Turns one parsed document into a source tree. */
export class YamlTreeBuilder {
  readonly #source: SourceText;
  readonly #aliased: ReadonlySet<unknown>;
  /** The latest node of each anchor's name; `undefined` while that node is being built. */
  readonly #anchors = new Map<string, SourceNode | undefined>();
  readonly #sizes = new Map<SourceNode, number>();
  #aliasedNodes = 0;
  #size = 0;

  constructor(source: SourceText, document: Document.Parsed) {
    this.#source = source;
    this.#aliased = aliasedNodes(document);
  }

  build(root: ParsedNode): SourceNode {
    return this.#node(root, { sharedBy: undefined, flow: false, absentAt: root.range[0] });
  }

  #node(node: AnyNode, context: Context): SourceNode {
    if (node === null) return absent(context);
    if (isAlias(node)) return this.#alias(node, context);
    const anchor = node.anchor;
    const sharedBy = anchor !== undefined && this.#aliased.has(node) ? anchor : context.sharedBy;
    if (anchor !== undefined) this.#anchors.set(anchor, undefined);
    const sizeBefore = this.#size++;
    const built = this.#content(node, { ...context, sharedBy });
    this.#sizes.set(built, this.#size - sizeBefore);
    if (anchor !== undefined) this.#anchors.set(anchor, built);
    return built;
  }

  #content(node: Scalar | YAMLMap | YAMLSeq, context: Context): SourceNode {
    if (isScalar(node)) return this.#scalar(node, context);
    const [start, end] = rangeOf(node, context.absentAt);
    const flow = context.flow || node.flow === true;
    const placed = { layout: flow ? 'flow' : 'block', start, sharedBy: context.sharedBy } as const;
    const inside = { sharedBy: context.sharedBy, flow };
    if (isMap(node)) {
      const entries = this.#entries(node, inside);
      const column = flow ? 0 : collectionIndent(node);
      return { kind: 'map', ...placed, entries, column, end: flow ? end : (entries.at(-1)?.end ?? end) };
    }
    const items = node.items.map((item, index) => {
      const absentAt = seqItemEnd(node, index) ?? end;
      return this.#node(item as AnyNode, { ...inside, absentAt });
    });
    return { kind: 'list', ...placed, items, end: flow ? end : (items.at(-1)?.end ?? end) };
  }

  #scalar(node: Scalar, context: Context): ScalarNode {
    const [start, end] = rangeOf(node, context.absentAt);
    if (start === end) {
      // `[!!str, a]`: YAML 1.2 ends the tag before the comma, go-yaml v2 makes the comma part of it.
      if (node.tag !== undefined && context.flow && this.#source.text[start] === ',') {
        throw this.#source.errorAt(
          start,
          'kubectl takes this comma for a part of the tag: write a space before it',
        );
      }
      return absent(context, this.#resolve(node, start));
    }
    const style = SCALAR_STYLES[node.type ?? 'PLAIN'] ?? 'plain';
    const value = this.#resolve(node, start);
    return { kind: 'scalar', value, style, start, end, sharedBy: context.sharedBy };
  }

  #resolve(node: Scalar, at: number): JsonScalar {
    const text = String(node.value ?? '');
    try {
      if (node.tag !== undefined) return resolveTagged(node.tag, text);
      return node.type === 'PLAIN' || node.type === undefined ? resolvePlain(text) : text;
    } catch (cause) {
      throw cause instanceof ScalarError ? this.#source.errorAt(at, cause.message) : cause;
    }
  }

  #alias(node: Alias, context: Context): SourceNode {
    const [start, end] = rangeOf(node, context.absentAt);
    const target = this.#anchors.get(node.source);
    if (target === undefined) {
      const problem = this.#anchors.has(node.source)
        ? 'stands inside its own anchor'
        : 'has no anchor before it';
      throw this.#source.errorAt(start, `the alias *${node.source} ${problem}`);
    }
    const size = this.#sizes.get(target) ?? 1;
    this.#size += size;
    this.#aliasedNodes += size;
    if (this.#aliasedNodes > MAX_ALIASED_NODES) {
      throw this.#source.errorAt(
        start,
        `aliases repeat more than ${MAX_ALIASED_NODES} nodes: write them out`,
      );
    }
    return { kind: 'alias', name: node.source, target, start, end, sharedBy: node.source };
  }

  #entries(map: YAMLMap, context: Omit<Context, 'absentAt'>): EntryNode[] {
    const seen = new Set<string>();
    return map.items.map((pair) => {
      const tokens = pairTokens(pair);
      const entry = this.#entry(pair.key as AnyNode, pair.value as AnyNode, tokens, context);
      if (!entry.merge && seen.has(entry.key)) {
        throw this.#source.errorAt(entry.start, `the key "${entry.key}" appears twice: remove one`);
      }
      if (!entry.merge) seen.add(entry.key);
      return entry;
    });
  }

  #entry(
    keyNode: AnyNode,
    valueNode: AnyNode,
    tokens: PairTokens,
    context: Omit<Context, 'absentAt'>,
  ): EntryNode {
    const written = this.#node(keyNode, { ...context, absentAt: tokens.start });
    const name = dereference(written);
    if (name.kind !== 'scalar') throw this.#source.errorAt(written.start, 'a key must be a text: quote it');
    const plain = isScalar(keyNode) && keyNode.type === 'PLAIN';
    const colonEnd = tokens.colonEnd ?? written.end;
    this.#rejectTightColon(plain && context.flow, colonEnd, tokens);
    const value = this.#node(valueNode, { ...context, absentAt: tokens.valueEnd ?? colonEnd });
    const merge = plain && name.value === '<<';
    if (merge) this.#checkMergeSource(value);
    return {
      key: merge ? '<<' : this.#memberName(name, keyNode, written.start),
      merge,
      start: tokens.start,
      keyQuote: name.style === 'double' ? 'double' : 'other',
      colonEnd,
      hasColon: tokens.colonEnd !== undefined,
      value,
      end: Math.max(value.end, colonEnd),
    };
  }

  #memberName(name: ScalarNode, keyNode: AnyNode, at: number): string {
    try {
      return memberName(name.value, isScalar(keyNode) ? String(keyNode.value) : '');
    } catch (cause) {
      throw cause instanceof ScalarError ? this.#source.errorAt(at, cause.message) : cause;
    }
  }

  /** `{a:, b: 1}`: YAML 1.2 ends the key before the colon, go-yaml v2 makes the colon part of it. */
  #rejectTightColon(plainInFlow: boolean, colonEnd: number, tokens: PairTokens): void {
    if (!plainInFlow || tokens.colonEnd === undefined) return;
    if (/^\S/.test(this.#source.text.slice(colonEnd, colonEnd + 1))) {
      throw this.#source.errorAt(
        colonEnd,
        'kubectl takes this colon for a part of the key: write a space after it',
      );
    }
  }

  #checkMergeSource(value: SourceNode): void {
    const sources = value.kind === 'list' ? value.items : [value];
    const bad = sources.find((source) => dereference(source).kind !== 'map');
    if (bad) throw this.#source.errorAt(bad.start, 'a merge key "<<" takes a mapping or a list of mappings');
  }
}

const SCALAR_STYLES: Readonly<Record<string, ScalarNode['style']>> = {
  PLAIN: 'plain',
  QUOTE_SINGLE: 'single',
  QUOTE_DOUBLE: 'double',
  BLOCK_LITERAL: 'block',
  BLOCK_FOLDED: 'block',
} satisfies Record<Scalar.Type, ScalarNode['style']>;

function absent({ absentAt, sharedBy }: Context, value: JsonScalar = null): ScalarNode {
  return { kind: 'scalar', value, style: 'plain', start: absentAt, end: absentAt, sharedBy };
}

function rangeOf(node: { range?: readonly number[] | null | undefined }, fallback: number): [number, number] {
  return [node.range?.[0] ?? fallback, node.range?.[1] ?? fallback];
}

/** The nodes whose anchor an alias refers to; an alias means the latest anchor of its name before it. */
function aliasedNodes(document: Document.Parsed): ReadonlySet<unknown> {
  const latest = new Map<string, unknown>();
  const aliased = new Set<unknown>();
  visit(document, (_key, node) => {
    if (isAlias(node)) aliased.add(latest.get(node.source));
    else if (!isPair(node) && node !== null && typeof node === 'object' && 'anchor' in node) {
      if (typeof node.anchor === 'string') latest.set(node.anchor, node);
    }
  });
  return aliased;
}
