import { isRecord, isString } from '../../core/schema/shape.ts';

export interface PodTarget {
  readonly uid: string | undefined;
  readonly name: string | undefined;
}

const NONE: PodTarget = { uid: undefined, name: undefined };

/** The pod that a targetRef (core/v1 ObjectReference) names; of any other kind, none. */
export function podOf(targetRef: unknown): PodTarget {
  if (!isRecord(targetRef) || targetRef.kind !== 'Pod') return NONE;
  const { uid, name } = targetRef;
  return { uid: isString(uid) ? uid : undefined, name: isString(name) ? name : undefined };
}
