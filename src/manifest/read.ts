import { ManifestError, SourceText } from './manifest-error.ts';
import { NotJson, readJsonDocuments } from './read-json.ts';
import { readYamlDocuments } from './read-yaml.ts';
import { dereference, type JsonValue, jsonValue, type SourceNode } from './source-tree.ts';

/** One Kubernetes object; each item of a List is an object of its own. Only `readManifests` makes these. */
export interface ManifestObject {
  /** The object as kubectl would read it: plain JSON. */
  readonly value: unknown;
  /** For messages: "deploy.yaml document 2", or "deploy.yaml document 1 items[3]". */
  readonly where: string;
  /** The line on which it begins, from 1. */
  readonly line: number;
  /** Where it stands in the text. */
  readonly source: SourceNode;
  /** The document that it stands in. */
  readonly document: SourceNode;
}

export interface ManifestFile {
  readonly objects: readonly ManifestObject[];
  readonly name: string;
  readonly text: string;
  readonly format: 'yaml' | 'json';
}

/**
 * Reads Kubernetes objects: a YAML stream, or one or more JSON objects in a row. Empty documents give no object;
 * of a List the items do. Values are read by kubectl's rules (YAML 1.1 as go-yaml v2 has it).
 * @param name the file's name, for messages
 * @throws ManifestError with file, line, column and what to do
 */
export function readManifests(text: string, name: string): ManifestFile {
  const { format, documents } = readDocuments(text, name);
  const { lines } = new SourceText(name, text);
  const objects = documents.flatMap((document, index) => {
    if (document === undefined) return [];
    const line = (node: SourceNode): number => lines.at(node.start).line;
    return objectsOf({ node: document, document, where: `${name} document ${index + 1}`, line });
  });
  return { objects, name, text, format };
}

type Documents = Pick<ManifestFile, 'format'> & { readonly documents: readonly (SourceNode | undefined)[] };

/** A brace opens JSON, but also a YAML flow mapping. Like kubectl, we take it for JSON first. */
function readDocuments(text: string, name: string): Documents {
  if (!/^\uFEFF?\s*\{/.test(text)) return { format: 'yaml', documents: readYaml(text, name) };
  try {
    return { format: 'json', documents: readJsonDocuments(new SourceText(name, text)) };
  } catch (cause) {
    if (!(cause instanceof NotJson)) throw cause;
    return { format: 'yaml', documents: readYamlOr(cause, text, name) };
  }
}

/** Of two complaints about one text, JSON's is the clearer where the text looks like JSON. */
function readYamlOr(notJson: NotJson, text: string, name: string): (SourceNode | undefined)[] {
  try {
    return readYaml(text, name);
  } catch (notYaml) {
    const looksLikeJson = /^\uFEFF?\s*\{\s*"/.test(text) && !/^---/m.test(text);
    throw looksLikeJson ? notJson : notYaml;
  }
}

function readYaml(text: string, name: string): (SourceNode | undefined)[] {
  try {
    return readYamlDocuments(new SourceText(name, text));
  } catch (cause) {
    if (!(cause instanceof RangeError)) throw cause;
    throw new ManifestError(`${name}: nested too deeply to be a Kubernetes object`, { cause });
  }
}

interface Found {
  readonly node: SourceNode;
  readonly document: SourceNode;
  readonly where: string;
  readonly line: (node: SourceNode) => number;
  /** What a typed list (DeploymentList) says about items that do not say it themselves. */
  readonly inherited?: Readonly<Record<string, JsonValue>>;
}

function objectsOf(found: Found): ManifestObject[] {
  const { node, document, where, line } = found;
  const map = dereference(node);
  if (map.kind !== 'map') {
    const got = map.kind === 'list' ? 'a list' : `${JSON.stringify(jsonValue(map))}`;
    throw new ManifestError(
      `${where} (line ${line(node)}): expected a Kubernetes object (a mapping), got ${got}`,
    );
  }
  const value = { ...found.inherited, ...(jsonValue(map) as Record<string, JsonValue>) };
  const items = map.entries.find((entry) => entry.key === 'items')?.value;
  const list = items && dereference(items);
  if (list?.kind !== 'list' || typeof value.kind !== 'string' || !value.kind.endsWith('List')) {
    return [{ value, where, line: line(node), source: node, document }];
  }
  const inherited = itemType(value.kind, value.apiVersion);
  return list.items.flatMap((item, index) =>
    objectsOf({ node: item, document, where: `${where} items[${index}]`, line, inherited }),
  );
}

/** The API server's own lists (`kubectl get --raw`) name the kind once, in the list. */
function itemType(listKind: string, apiVersion: JsonValue | undefined): Record<string, JsonValue> {
  if (listKind === 'List' || apiVersion === undefined) return {};
  return { apiVersion, kind: listKind.slice(0, -'List'.length) };
}
