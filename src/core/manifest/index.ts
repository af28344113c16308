export { editDocument, type ManifestEdit } from './edit.ts';
export { decodeText, type Encoding, encodeText } from './encoding.ts';
export { ManifestError } from './manifest-error.ts';
export { parsePolicyFiles, policiesOfMap, sortDocuments, usable } from './policy-documents.ts';
export {
  documentsOf,
  joined,
  POLICY_FILE,
  type PolicyEntry,
  type PolicyFile,
  type PolicyProblem,
  type PolicyReading,
  type PolicyState,
  withLastGood,
} from './policy-entries.ts';
export { type ManifestDocument, type ManifestObject, readDocuments, readManifests } from './read.ts';
