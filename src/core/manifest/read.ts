import { asError } from '../api/index.ts';
import {
  dereference,
  type JsonValue,
  jsonValue,
  quote,
  type ReadDocument,
  readYamlDocument,
  type SourceNode,
  SourceText,
  YamlError,
} from '../yaml/index.ts';
import { ManifestError } from './manifest-error.ts';

/** Each item of a List is an object of its own. */
export interface ManifestObject {
  /** The object as kubectl reads it: plain JSON. */
  readonly value: unknown;
  /** For messages: "deploy.yaml document 2", or "deploy.yaml document 1 items[3]". */
  readonly where: string;
  /** Where it begins, from 1. */
  readonly line: number;
  readonly column: number;
  /** The line of a member, or of the last one on the way to it that is there. */
  readonly lineOf: (path: readonly PropertyKey[]) => number;
  readonly source: SourceNode;
  /** A mapping in it has a duplicate key. kubectl takes the last one, which is hardly ever intended. */
  readonly duplicateKey: ManifestError | undefined;
}

/** One document of a manifest: part of its text, including the `---` that begins it. */
export interface ManifestDocument {
  readonly start: number;
  readonly end: number;
  readonly source: SourceText;
  readonly json: boolean;
  /** Its objects, one at a time, with problems in place of those that cannot be read. */
  readonly objects: () => Iterable<ManifestObject | ManifestError>;
}

/**
 * Reads Kubernetes objects as kubectl does: a YAML stream, or consecutive JSON objects. Empty documents yield nothing;
 * a List yields its items.
 * @param name the file's name, for messages
 * @returns all objects, and the problems of those that could not be read
 */
export function readManifests(text: string, name: string) {
  const objects: ManifestObject[] = [];
  const problems: ManifestError[] = [];
  for (const document of readDocuments(text, name)) {
    for (const found of document.objects()) {
      if (found instanceof ManifestError) problems.push(found);
      else objects.push(found);
    }
  }
  return { objects, problems };
}

const MARK = /^---(?=[ \t\r\n]|$)/gm;

/**
 * The documents of a manifest, read one at a time, so that only one is in memory. Together they make up the whole
 * text. One that cannot be read yields a problem in place of its objects, and the following ones are still read.
 */
export function* readDocuments(text: string, name: string): Generator<ManifestDocument> {
  const source = new SourceText(name, text);
  let count = 0;
  for (const { start, content, end } of parts(text)) {
    let [from, at]: [number, number | undefined] = [start, content];
    while (at !== undefined) {
      const read = readPart(source, at, end);
      const failed = read instanceof ManifestError;
      // The text before the first `---` is a document only if it has content.
      if (failed || read.root !== undefined || content > start) count++;
      const where = `${name} document ${count}`;
      at = failed ? undefined : read.next;
      const begins = from;
      const objects = failed ? () => [read] : () => guarded({ ...read, source, where }, begins);
      yield { start: from, end: at ?? end, source, json: !failed && read.json, objects };
      from = at ?? end;
    }
  }
}

/** A line that begins with `---` begins a document, whatever surrounds it; its content begins behind that. */
function* parts(text: string) {
  let [start, content] = [0, 0];
  for (const { index } of text.matchAll(MARK)) {
    if (index > 0) yield { start, content, end: index };
    [start, content] = [index, index + '---'.length];
  }
  yield { start, content, end: text.length };
}

function readPart(source: SourceText, at: number, end: number): ReadDocument | ManifestError {
  try {
    return readYamlDocument(source, at, end, 'items');
  } catch (cause) {
    return failureOf(cause, source, at);
  }
}

/** A document that cannot be read does not affect the others. */
function failureOf(cause: unknown, source: SourceText, at: number): ManifestError {
  if (cause instanceof ManifestError) return cause;
  if (cause instanceof YamlError) return new ManifestError(cause.message, { cause, place: cause.place });
  const place = { ...source.at(at), problem: `cannot be read (${asError(cause).message})` };
  const { line, column, problem } = place;
  return new ManifestError(`${source.name}:${line}:${column}: ${problem}`, { cause, place });
}

function* guarded(found: Found, at: number): Generator<ManifestObject | ManifestError> {
  try {
    yield* objectsOf(found);
  } catch (cause) {
    yield failureOf(cause, found.source, at);
  }
}

/** A document, or an item of a List. */
interface Found extends Pick<ReadDocument, 'root' | 'duplicates'> {
  readonly where: string;
  readonly source: SourceText;
  /** The apiVersion and kind that a typed list (DeploymentList) implies for its items. */
  readonly inherited?: Readonly<Record<string, JsonValue>>;
}

function* objectsOf(found: Found): Generator<ManifestObject | ManifestError> {
  const { root, where, source, duplicates } = found;
  if (root === undefined) return;
  const node = root.kind === 'later' ? root.read() : root;
  const map = dereference(node);
  const { line, column } = source.at(node.start);
  if (map.kind !== 'map') {
    const got = map.kind === 'list' ? 'a list' : quote(String(jsonValue(map)));
    const problem = `expected a Kubernetes object (a mapping with apiVersion and kind), got ${got}`;
    const message = `${source.name}:${line}:${column}: ${where}: ${problem}`;
    yield new ManifestError(message, { place: { line, column, problem } });
    return;
  }
  const member = (key: string) => map.entries.findLast((entry) => entry.key === key)?.value;
  const scalar = (key: string) => {
    const value = member(key);
    return value === undefined ? found.inherited?.[key] : jsonValue(value);
  };
  const items = member('items');
  const list = items && dereference(items);
  const kind = scalar('kind');
  if (list?.kind !== 'list' || typeof kind !== 'string' || !kind.endsWith('List')) {
    const duplicate = duplicates.find(({ at }) => at >= node.start && at < node.end);
    const value = { ...found.inherited, ...(jsonValue(map) as Record<string, JsonValue>) };
    const duplicateKey = duplicate && duplicateError(duplicate, source);
    const lineOf = (path: readonly PropertyKey[]) => source.at(startOf(node, path)).line;
    yield { value, where, line, column, lineOf, source: node, duplicateKey };
    return;
  }
  const inherited = itemType(kind, scalar('apiVersion'));
  for (const [index, item] of list.items.entries())
    yield* objectsOf({ ...found, root: item, where: `${where} items[${index}]`, inherited });
}

function startOf(node: SourceNode, path: readonly PropertyKey[]): number {
  let [here, start] = [dereference(node), node.start];
  for (const key of path) {
    const entry = here.kind === 'map' ? here.entries.findLast((each) => each.key === key) : undefined;
    const next = here.kind === 'list' ? here.items[Number(key)] : entry?.value;
    if (next === undefined) break;
    start = entry?.start ?? next.start;
    here = dereference(next);
  }
  return start;
}

function duplicateError({ key, at }: ReadDocument['duplicates'][number], source: SourceText): ManifestError {
  return failureOf(source.errorAt(at, `the key ${quote(key)} appears twice: remove one`), source, at);
}

/** The API server's own lists (`kubectl get --raw`) state the kind only once, in the list. */
function itemType(listKind: string, apiVersion: JsonValue | undefined): Record<string, JsonValue> {
  if (listKind === 'List' || apiVersion === undefined) return {};
  return { apiVersion, kind: listKind.slice(0, -'List'.length) };
}
