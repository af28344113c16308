export { readYamlDocument } from './read-yaml.ts';
export { resolvePlain } from './scalars.ts';
export { quote, SourceText, type TextProblem, YamlError } from './source-text.ts';
export {
  dereference,
  type EntryNode,
  type JsonMap,
  type JsonScalar,
  type JsonValue,
  jsonValue,
  type MapNode,
  mergedMembers,
  type ReadDocument,
  type ScalarNode,
  type SourceNode,
} from './source-tree.ts';
export { type Encoding, encodingOf, fileText } from './text-encoding.ts';
