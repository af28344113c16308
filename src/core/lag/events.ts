import type { LagStage } from './sample.ts';

/** The watches, each of them in order by itself and independent of the others. */
export const STREAMS = ['pods', 'services', 'EndpointSlice', 'Endpoints'] as const satisfies readonly (
  | LagStage
  | 'pods'
  | 'services'
)[];
export type Stream = (typeof STREAMS)[number];

export interface TerminatingPod {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

/** What is needed of an EndpointSlice; whatever else the object has may be there, too. */
export interface SliceState {
  readonly namespace: string;
  readonly name: string;
  /** Label kubernetes.io/service-name. */
  readonly serviceName?: string | undefined;
  /** Label endpointslice.kubernetes.io/managed-by. */
  readonly managedBy?: string | undefined;
  readonly addressType: string;
  readonly endpoints: readonly {
    /** targetRef.uid, where the target is a Pod. */
    readonly targetUid?: string | undefined;
    /** conditions.ready; absent in the object means true (discovery/v1). */
    readonly ready: boolean;
    readonly terminating?: boolean | undefined;
  }[];
}

/** What is needed of an Endpoints object, its subsets taken together. */
export interface EndpointsState {
  readonly namespace: string;
  readonly name: string;
  /** Annotation endpoints.kubernetes.io/over-capacity is `truncated`. */
  readonly overCapacity: boolean;
  readonly ready: readonly { readonly targetUid?: string | undefined }[];
  readonly notReady: readonly { readonly targetUid?: string | undefined }[];
}

export interface ServiceState {
  readonly namespace: string;
  readonly name: string;
  /** spec.publishNotReadyAddresses, or the annotation that it replaced. */
  readonly publishNotReadyAddresses: boolean;
  readonly selector?: Readonly<Record<string, string>> | undefined;
}

interface Named {
  readonly namespace: string;
  readonly name: string;
}

/**
 * What the recorder is told, in the order in which this process learns it. `at`: milliseconds of one monotonic clock.
 *
 * - `PodTerminating`: an event or list item that shows a deletionTimestamp; saying it again does no harm.
 * - `PodDeleted`: a DELETED event, whether or not a termination was seen before.
 * - `Slice`, `Endpoints`, `Service`: the object's state, from a list or a watch alike.
 * - `ListBegins` … `ListEnds`: every object that the stream has is named in between; what is not, is gone.
 * - `StreamBroken`: the watch ended in any way but the next. Say it with the instant from which on events may be late:
 *   that of the last event, where the connection died silently.
 * - `StreamRotated`: the watch ended in good order, by the server's timeout or given up after a silence, and is resumed
 *   from the last resourceVersion at once.
 * - `StreamCurrent`: the list and what had piled up behind it have been read: from here on, an event's instant is when
 *   the thing happened.
 */
export type ClusterEvent =
  | { readonly type: 'PodTerminating' | 'PodDeleted'; readonly at: number; readonly pod: TerminatingPod }
  | { readonly type: 'Slice'; readonly at: number; readonly slice: SliceState }
  | { readonly type: 'Endpoints'; readonly at: number; readonly endpoints: EndpointsState }
  | { readonly type: 'Service'; readonly at: number; readonly service: ServiceState }
  | ({ readonly type: 'SliceDeleted' | 'EndpointsDeleted' | 'ServiceDeleted'; readonly at: number } & Named)
  | {
      readonly type: 'ListBegins' | 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent';
      readonly at: number;
      readonly stream: Stream;
    };
