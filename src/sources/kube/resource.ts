import type { Labels } from '../../core/cluster/selector.ts';

/** What every object of the API has, as far as anything here reads it. */
export interface RawMetadata {
  readonly name: string;
  /** Absent where the kind is not namespaced. */
  readonly namespace?: string;
  readonly uid: string;
  readonly resourceVersion: string;
  /** Raised by each change of the spec, in kinds that count. */
  readonly generation?: number;
  readonly labels?: Labels;
  readonly annotations?: Labels;
  /** RFC 3339. The end of the grace, not its beginning. */
  readonly deletionTimestamp?: string;
  readonly deletionGracePeriodSeconds?: number;
}

/** An object as the API server sends it. */
export interface RawObject {
  readonly metadata: RawMetadata;
  readonly spec?: unknown;
  readonly status?: unknown;
}

/** A collection to follow, and what is kept of each object. */
export interface Resource<T> {
  /** Such as `/api/v1/pods` or `/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices`. */
  readonly path: string;
  readonly query?: { readonly labelSelector?: string; readonly fieldSelector?: string };
  /** Ask for metadata only (meta.k8s.io/v1 PartialObjectMetadata). */
  readonly metadataOnly?: boolean;
  /**
   * The field that follows metadata in the object's JSON, unless {@link metadataOnly}. By it the managedFields, which
   * nobody here reads, are skipped instead of parsed.
   */
  readonly afterMetadata?: string;
  /** Called as soon as an object is parsed; the rest of it is garbage from then on. */
  readonly project: (raw: RawObject) => T;
}

/** What an object is known by. */
export interface ObjectIdentity {
  /** Empty where the kind is not namespaced. */
  readonly namespace: string;
  readonly name: string;
  readonly uid: string;
}

/**
 * What happened to an object. `at`: when it arrived here, in milliseconds of the caller's monotonic clock.
 *
 * - `added`, `modified`: its state. `listed`: it comes from a list, which names every object, changed or not.
 * - `deleted`: `relist`: nobody saw it happen; a list, or an object of the same name, showed that it is gone. Then
 *   there is no last state to tell.
 */
export type ResourceEvent<T> = { readonly identity: ObjectIdentity; readonly at: number } & (
  | { readonly type: 'added' | 'modified'; readonly object: T; readonly listed: boolean }
  | { readonly type: 'deleted'; readonly relist: false; readonly object: T }
  | { readonly type: 'deleted'; readonly relist: true }
);

const PARTIAL = 'g=meta.k8s.io;v=v1';

/** The Accept header; a list and a watch of metadata have kinds of their own. */
export function acceptOf(
  { metadataOnly }: Pick<Resource<unknown>, 'metadataOnly'>,
  verb: 'list' | 'watch',
): string {
  if (metadataOnly !== true) return 'application/json';
  return `application/json;as=PartialObjectMetadata${verb === 'list' ? 'List' : ''};${PARTIAL}`;
}

/** Path and query of a request for the resource. */
export function pathOf(
  { path, query = {} }: Pick<Resource<unknown>, 'path' | 'query'>,
  parameters: Readonly<Record<string, string>>,
): string {
  return `${path}?${new URLSearchParams({ ...query, ...parameters })}`;
}
