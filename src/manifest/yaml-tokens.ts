import type { CST, Pair, YAMLMap, YAMLSeq } from 'yaml';

/** What the concrete syntax tree knows about a mapping's entry and its values do not. All are offsets. */
export interface PairTokens {
  /** The entry's first character: `?`, an anchor or tag of the key, or the key itself. */
  readonly start: number;
  /** Behind the colon, if there is one. */
  readonly colonEnd: number | undefined;
  /** Behind the value's anchor and tag, if there is any: an absent value stands there. */
  readonly valueEnd: number | undefined;
}

const PROPERTIES: ReadonlySet<string> = new Set(['anchor', 'tag']);

export function pairTokens(pair: Pair): PairTokens {
  const token = (pair as { srcToken?: CST.CollectionItem }).srcToken;
  if (token === undefined) throw new TypeError('the YAML parser was not asked to keep its tokens');
  const opening = token.start.find((t) => t.type === 'explicit-key-ind' || PROPERTIES.has(t.type));
  const keyOffset = token.key === null ? undefined : token.key?.offset;
  const colon = token.sep?.find((t) => t.type === 'map-value-ind');
  const properties = token.sep?.findLast((t) => PROPERTIES.has(t.type));
  return {
    start: opening?.offset ?? keyOffset ?? colon?.offset ?? 0,
    colonEnd: colon && endOf(colon),
    valueEnd: properties && endOf(properties),
  };
}

/** Behind the dash of a block sequence's item, or behind the item's anchor or tag. */
export function seqItemEnd(seq: YAMLSeq, index: number): number | undefined {
  const token = seq.srcToken;
  if (token?.type !== 'block-seq') return undefined;
  const last = token.items[index]?.start.findLast((t) => t.type === 'seq-item-ind' || PROPERTIES.has(t.type));
  return last && endOf(last);
}

/** The column of a block mapping's keys. */
export function collectionIndent(map: YAMLMap): number {
  return map.srcToken?.type === 'block-map' ? map.srcToken.indent : 0;
}

function endOf(token: CST.SourceToken): number {
  return token.offset + token.source.length;
}
