export type { Operation } from '../core/patch/operation.ts';
export { type EditedManifests, editManifests, type ManifestEdit } from './edit.ts';
export { ManifestError } from './manifest-error.ts';
export { type ManifestFile, type ManifestObject, readManifests } from './read.ts';
