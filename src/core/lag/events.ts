/**
 * Where the API server lists endpoints. Each is a stage of the control plane of its own, because different controllers with
 * their own rate limits write them.
 */
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
  /** Seconds from the start of the termination until the withdrawal was seen. */
  readonly lag: number;
  /** When the withdrawal was seen: milliseconds of the caller's monotonic clock. */
  readonly at: number;
  /** The resourceVersion of the object that withdrew the pod; undefined where the object was found missing. */
  readonly version: string | undefined;
}

/** A removed pod: its lag ends when all objects that listed it as ready at its termination have withdrawn it. */
export interface RemovalSample {
  readonly namespace: string;
  readonly pod: string;
  readonly uid: string;
  /** Seconds: the longest lag of its withdrawals. */
  readonly lag: number;
  /** When the last withdrawal was seen. */
  readonly at: number;
  /** Never empty. */
  readonly withdrawals: readonly StageSample[];
}

/** The watches. Each delivers its events in order, but independently of the others. */
export const STREAMS = ['pods', 'services', ...ENDPOINT_SOURCES] as const;
export type Stream = (typeof STREAMS)[number];

/** The streams from which removals are measured. */
export const HEARTBEAT_STREAMS = ['pods', ...ENDPOINT_SOURCES] as const;
export type HeartbeatStream = (typeof HEARTBEAT_STREAMS)[number];

export interface TerminatingPod {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  readonly labels?: Readonly<Record<string, string>> | undefined;
}

/** What is kept of a pod's metadata. Its spec and status are not watched. */
export interface PodMetadata extends TerminatingPod {
  /** undefined: not known; see {@link unread}. */
  readonly labels: Readonly<Record<string, string>> | undefined;
  /** Present once it terminates. RFC 3339; the instant at which its grace ends, not at which the termination began. */
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
  /** Its labels or its plan are unknown, because they are too large or the namespace has used up its room. */
  readonly unread?: true | undefined;
}

interface PodHold {
  /** Annotation linger.dev/hold-token: SHA-256, in hex. */
  readonly token: string;
  readonly created: string;
}

/** The uid alone is not enough: uids are no secret, so an object may name the uid of a pod in another namespace. */
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
  /** The port numbers of each endpoint. */
  readonly ports?: readonly number[];
  /** Its endpoints are unknown, because there was no room for them. */
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
  /** Its addresses are unknown, because there was no room for them. */
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
  /** Identifies the writer's process. Numbers and instants of different writers cannot be compared. */
  readonly life: string;
  /** Counts the heartbeats of one stream. */
  readonly number: number;
  /** When it was sent: milliseconds of its monotonic clock. */
  readonly sentAt: number;
  /**
   * For each stream, the latest heartbeat that the API server had acknowledged, and when, by the writer's clock; 0: none
   * yet.
   */
  readonly acknowledged: Readonly<Record<HeartbeatStream, Acknowledged>>;
}

/**
 * The input of the recorder, in order of arrival. `at`: milliseconds of one monotonic clock.
 *
 * - `PodTerminating`: an event or list item that shows a deletionTimestamp; repeating it is harmless.
 * - `PodDeleted`: a DELETED event, with or without an earlier `PodTerminating`.
 * - `Slice`, `Endpoints`, `Service`: the object's state, from a list or a watch alike.
 * - `ListBegins` … `ListEnds`: every object of the stream is reported in between, followed by a deletion for each that has
 *   vanished.
 * - `StreamBroken`: the watch ended in any way other than `StreamRotated`. `at` is the instant from which events may be
 *   late; where the connection died silently, that of the last event.
 * - `StreamRotated`: the watch ended cleanly, by the server's timeout or because it was abandoned after a silence, and is
 *   resumed at once from the last resourceVersion.
 * - `StreamCurrent`: the list and the backlog behind it have been read: from here on, events arrive as they happen.
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
