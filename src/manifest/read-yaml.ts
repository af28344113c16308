import { type Document, LineCounter, type ParsedNode, parseAllDocuments } from 'yaml';
import type { SourceText } from './manifest-error.ts';
import type { SourceNode } from './source-tree.ts';
import { YamlTreeBuilder } from './yaml-tree.ts';

type YamlDocument = Document.Parsed<ParsedNode>;

/**
 * Reads a YAML stream; an empty document gives `undefined`. Scalars are resolved by kubectl's rules, whatever a
 * `%YAML` directive says.
 * @throws ManifestError for what does not parse, and for what kubectl would read in another way than the author
 */
export function readYamlDocuments(source: SourceText): (SourceNode | undefined)[] {
  rejectOtherLineBreaks(source);
  const lineCounter = new LineCounter();
  const parsed = parseAllDocuments(source.text, {
    // "failsafe" leaves every scalar as text: the YAML 1.2 rules must not get to see it.
    schema: 'failsafe',
    merge: false,
    resolveKnownTags: false,
    uniqueKeys: false,
    keepSourceTokens: true,
    prettyErrors: false,
    lineCounter,
  });
  // An empty stream is an array with a mark of its own.
  const documents: YamlDocument[] = [...parsed] as YamlDocument[];
  return documents.map((document, index) => readDocument(source, document, index));
}

function readDocument(source: SourceText, document: YamlDocument, index: number): SourceNode | undefined {
  const [failure] = document.errors;
  if (failure) {
    const deep = failure.code === 'RESOURCE_EXHAUSTION';
    throw source.errorAt(
      failure.pos[0],
      deep ? 'nested too deeply to be a Kubernetes object' : failure.message,
    );
  }
  const root = document.contents as ParsedNode | null;
  if (isAbsent(root)) return undefined;
  if (index > 0 && !document.directives.docStart) {
    throw source.errorAt(
      root.range[0],
      'kubectl reads nothing between "..." and "---": write "---" before this',
    );
  }
  return new YamlTreeBuilder(source, document).build(root);
}

function isAbsent(root: ParsedNode | null): root is null {
  return root === null || (root.range[0] === root.range[1] && root.tag === undefined);
}

/**
 * A lone CR, NEL, LS and PS end a line in YAML 1.1 (kubectl) and are ordinary characters in YAML 1.2: a comment
 * or a text that holds one would be cut in two by kubectl only.
 */
function rejectOtherLineBreaks(source: SourceText): void {
  const found = /\r(?!\n)|[\u0085\u2028\u2029]/.exec(source.text);
  if (!found) return;
  const code = found[0].charCodeAt(0).toString(16).toUpperCase().padStart(4, '0');
  throw source.errorAt(
    found.index,
    `the character U+${code} is a line break for kubectl: remove it, or write it as an escape in double quotes`,
  );
}
