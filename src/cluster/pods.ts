import { STAMP_ANNOTATION, type TerminatingPod } from '../lag/index.ts';
import type { RawObject, Resource } from './resource.ts';

/** A pod's metadata, as far as its end is concerned. */
export interface PodMetadata extends TerminatingPod {
  /** Present once it terminates. RFC 3339; the end of the grace, not its beginning. */
  readonly deletionTimestamp: string | undefined;
  readonly deletionGracePeriodSeconds: number | undefined;
  /** Annotation linger.dev/stamp. */
  readonly stamp: string | undefined;
}

/** Metadata only: a deletion is metadata, and the status would cost many times the bytes. */
export function podsResource(path = '/api/v1/pods'): Resource<PodMetadata> {
  return { path, metadataOnly: true, project: projectPod };
}

export function projectPod({ metadata }: RawObject): PodMetadata {
  const { uid, namespace = '', name, labels, annotations } = metadata;
  const { deletionTimestamp, deletionGracePeriodSeconds } = metadata;
  const stamp = annotations?.[STAMP_ANNOTATION];
  return { uid, namespace, name, labels, deletionTimestamp, deletionGracePeriodSeconds, stamp };
}
