/** Where the API server lists endpoints, each a stage of the control plane: other controllers with rate limits of their own write them. */
export const ENDPOINT_SOURCES = ['EndpointSlice', 'Endpoints'] as const;
export type EndpointSource = (typeof ENDPOINT_SOURCES)[number];

/** A withdrawal: the slices of a Service, or its Endpoints, stopped listing a terminating pod as ready. */
export interface StageSample {
  readonly stage: EndpointSource;
  readonly namespace: string;
  /** The Service. */
  readonly name: string;
  /** The pod's uid. */
  readonly uid: string;
  /** Seconds from the start of the termination until the withdrawal showed. */
  readonly lag: number;
  /** When the withdrawal showed: milliseconds of the caller's monotonic clock. */
  readonly at: number;
  /** The resourceVersion of the withdrawing object; undefined where it vanished unseen. */
  readonly version: string | undefined;
}

/** A removed pod: its lag ends when all objects that listed it as ready at its termination have withdrawn it. */
export interface RemovalSample {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  /** Seconds: the longest of the withdrawals'. */
  readonly lag: number;
  /** When the last withdrawal showed. */
  readonly at: number;
  /** Never empty. */
  readonly withdrawals: readonly StageSample[];
}

/** The watches: each in order by itself, and independent of the others. */
export const STREAMS = ['pods', 'services', ...ENDPOINT_SOURCES] as const;
export type Stream = (typeof STREAMS)[number];

/** The streams that a removal is measured by. */
export const HEARTBEAT_STREAMS = ['pods', ...ENDPOINT_SOURCES] as const;
export type HeartbeatStream = (typeof HEARTBEAT_STREAMS)[number];

export interface TerminatingPod {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

/** What is kept of a pod: its metadata only. */
export interface PodMetadata extends TerminatingPod {
  /** undefined: not known; see {@link unread}. */
  readonly labels: Readonly<Record<string, string>> | undefined;
  /** Present once it terminates. RFC 3339; the end of the grace, not its beginning. */
  readonly deletionTimestamp: string | undefined;
  readonly deletionGracePeriodSeconds: number | undefined;
  /** Annotation linger.dev/heartbeat. */
  readonly heartbeat: string | undefined;
  /** The token's hash and the creation time, for the Hold Service; absent without a token. */
  readonly hold?: PodHold | undefined;
  /** Annotation linger.dev/plan. */
  readonly plan?: string | undefined;
  /** Such as `ReplicaSet/web-7d9f`; undefined: none. */
  readonly controller?: string | undefined;
  /** The workload that owns the controller, such as `Deployment/web`. */
  readonly owner?: string | undefined;
  /** Its labels or its plan are too large, or its namespace has taken all the room there is: they are not known. */
  readonly unread?: true | undefined;
}

interface PodHold {
  /** Annotation linger.dev/hold-token: SHA-256, in hex. */
  readonly token: string;
  readonly created: string;
}

/** A uid is no secret, so objects may name that of another namespace's pod: only those of its own namespace count. */
export type PodKey = Pick<TerminatingPod, 'namespace' | 'uid'>;

export interface SliceState {
  readonly namespace: string;
  readonly name: string;
  readonly version?: string | undefined;
  /** Label kubernetes.io/service-name. */
  readonly serviceName?: string | undefined;
  /** Label endpointslice.kubernetes.io/managed-by. */
  readonly managedBy?: string | undefined;
  readonly addressType: string;
  readonly endpoints: readonly {
    /** targetRef.uid and name, where the target is a Pod. */
    readonly targetUid?: string | undefined;
    readonly targetName?: string | undefined;
    readonly addresses?: readonly string[];
    /** conditions.ready; absent in the object means true (discovery/v1). */
    readonly ready: boolean;
    readonly terminating?: boolean | undefined;
  }[];
  /** The port numbers of every endpoint. */
  readonly ports?: readonly number[];
  /** Its endpoints are unknown: there is no room for them. */
  readonly unread?: true | undefined;
}

export interface EndpointsAddress {
  readonly targetUid?: string | undefined;
  readonly targetName?: string | undefined;
  readonly ip?: string;
}

export interface EndpointsState {
  readonly namespace: string;
  readonly name: string;
  readonly version?: string | undefined;
  /** Annotation endpoints.kubernetes.io/over-capacity is `truncated`. */
  readonly overCapacity: boolean;
  readonly ready: readonly EndpointsAddress[];
  readonly notReady: readonly EndpointsAddress[];
  /** Its addresses are unknown: there is no room for them. */
  readonly unread?: true | undefined;
}

export interface ServiceState {
  readonly namespace: string;
  readonly name: string;
  /** spec.publishNotReadyAddresses, or the annotation that it replaced. */
  readonly publishNotReadyAddresses: boolean;
  readonly selector?: Readonly<Record<string, string>> | undefined;
}

export interface Acknowledged {
  readonly number: number;
  readonly at: number;
}

/** A heartbeat that one of Linger's replicas wrote, to show how late each stream is; see `WatchDelay`. */
export interface Heartbeat {
  /** Identifies the writer's process: numbers and instants of different writers cannot be compared. */
  readonly life: string;
  /** Counts the heartbeats of one stream. */
  readonly number: number;
  /** When it was sent: milliseconds of its monotonic clock. */
  readonly sentAt: number;
  /** The latest heartbeat of each stream that the API server had acknowledged, and when, by the same clock; 0: none yet. */
  readonly acknowledged: Readonly<Record<HeartbeatStream, Acknowledged>>;
}

/**
 * The input of the recorder, in the order in which this process learns it. `at`: milliseconds of one monotonic clock.
 *
 * - `PodTerminating`: an event or list item that shows a deletionTimestamp; repeating it is harmless.
 * - `PodDeleted`: a DELETED event, whether or not a termination was seen before.
 * - `Slice`, `Endpoints`, `Service`: the object's state, from a list or a watch alike.
 * - `ListBegins` … `ListEnds`: every object of the stream is named in between; for each that has vanished comes a deletion
 *   before `ListEnds`.
 * - `StreamBroken`: the watch ended in any way other than `StreamRotated`. `at` is the instant from which on events may be
 *   late: that of the last event, where the connection died silently.
 * - `StreamRotated`: the watch ended cleanly, by the server's timeout or given up after a silence, and is resumed from the
 *   last resourceVersion at once.
 * - `StreamCurrent`: the list and the backlog behind it have been read: from here on, an event's instant is when it
 *   happened.
 * - `Heartbeat`: a heartbeat arrived by this stream.
 */
export type ClusterEvent =
  | { readonly type: 'PodTerminating' | 'PodDeleted'; readonly at: number; readonly pod: TerminatingPod }
  | { readonly type: 'Slice'; readonly at: number; readonly slice: SliceState }
  | { readonly type: 'Endpoints'; readonly at: number; readonly endpoints: EndpointsState }
  | { readonly type: 'Service'; readonly at: number; readonly service: ServiceState }
  | {
      readonly type: 'SliceDeleted' | 'EndpointsDeleted' | 'ServiceDeleted';
      readonly at: number;
      readonly namespace: string;
      readonly name: string;
      readonly version?: string | undefined;
    }
  | {
      readonly type: 'Heartbeat';
      readonly at: number;
      readonly from: HeartbeatStream;
      readonly heartbeat: Heartbeat;
    }
  | StreamEvent;

export interface StreamEvent {
  readonly type: 'ListBegins' | 'ListEnds' | 'StreamBroken' | 'StreamRotated' | 'StreamCurrent';
  readonly at: number;
  readonly stream: Stream;
}

/**
 * The order of two resourceVersions of one resource (KEP-5504: decimal integers).
 * @returns negative, 0 or positive; undefined where one of them is no decimal integer
 */
export function compareVersions(a: string, b: string): number | undefined {
  if (!DECIMAL.test(a) || !DECIMAL.test(b)) return undefined;
  return a.length - b.length || (a < b ? -1 : Number(a > b));
}

const DECIMAL = /^(0|[1-9]\d*)$/;
