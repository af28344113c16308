export { editDocument, type ManifestEdit } from './edit.ts';
export { decodeText, type Encoding, encodeText } from './encoding.ts';
export { ManifestError } from './manifest-error.ts';
export { policiesOfMap, problemsIn, readPolicies, sortDocuments } from './policy-documents.ts';
export { followPolicyFiles, type PolicyState } from './policy-files.ts';
export { type ManifestDocument, type ManifestObject, readDocuments, readManifests } from './read.ts';
