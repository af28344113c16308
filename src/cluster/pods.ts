import { isRecord, isString } from '../api/index.ts';
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

/** A pod that runs, and where. */
export interface AddressedPod {
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
  /** status.podIP; undefined: it has none yet, or has ended. */
  readonly address: string | undefined;
}

/** Whole pods, of which there are few: addresses are in the status. */
export function addressedPodsResource(
  path: string,
  query: NonNullable<Resource<unknown>['query']>,
): Resource<AddressedPod> {
  return { path, query, afterMetadata: 'spec', project: projectAddress };
}

function projectAddress({ metadata: { namespace = '', name, uid }, status }: RawObject): AddressedPod {
  const { podIP, phase } = isRecord(status) ? status : {};
  const address = phase === 'Running' && isString(podIP) && podIP !== '' ? podIP : undefined;
  return { namespace, name, uid, address };
}
