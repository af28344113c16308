export {
  CLUSTER_DNS,
  CLUSTER_IP,
  type Consumer,
  ConsumerEstimator,
  type ConsumerLag,
  consumerOf,
  type Direction,
  findsByItself,
  type Measure,
  type MeasureKind,
  STANDARD_CONSUMERS,
  sendsThrough,
  sendsTo,
  WITNESSED_ENOUGH,
  witnessName,
} from './consumer.ts';
export {
  CONDITIONS,
  type ConditionReason,
  type ConsumerFacts,
  type ConsumerTable,
  type ConsumerView,
  consumersFromJson,
  consumersToText,
  consumerView,
  hasChanged,
  type LagView,
  type MeasurementState,
  sendsToNone,
  type UnseenPods,
  unreadableView,
} from './consumer-view.ts';
export {
  type Density,
  type Lags,
  lagsOf,
  type MeasuredLag,
  quantileOf,
  stepsOf,
  totalOf,
  wholeOf,
} from './distribution.ts';
export {
  CHANGES,
  type ChangeKind,
  ChangeObserver,
  ChangeSummary,
  Interruptions,
  type ObservedChange,
  type ObserverOptions,
  PodSelection,
  type SourceSummary,
} from './endpoint-changes.ts';
export type { EndpointChange, EndpointGroup } from './endpoint-index.ts';
export { ENDPOINTS_CHOICES, type EndpointsChoice } from './endpoints-upkeep.ts';
export { LagEstimator } from './estimator.ts';
export {
  type Acknowledged,
  type ClusterEvent,
  compareVersions,
  ENDPOINT_SOURCES,
  type EndpointSource,
  type EndpointsState,
  HEARTBEAT_STREAMS,
  type HeartbeatStream,
  type PodKey,
  type PodMetadata,
  type RemovalSample,
  type ServiceState,
  type SliceState,
  STREAMS,
  type StageSample,
  type Stream,
  type TerminatingPod,
} from './events.ts';
export { type Enough, type Episode, type HistoryPart, LagHistory, type Period } from './lag-history.ts';
export {
  BUILT_IN_ENOUGH,
  isDueAtOnce,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedRow,
  type PlannedTable,
} from './planned-lag.ts';
export { plannedFromJson, plannedToText, shrunkTable } from './planned-lag-codec.ts';
export {
  CONTROL_PLANE,
  knownLags,
  type LagSource,
  NONE_YET,
  type PlannedLag,
  plannedLags,
} from './planned-lag-query.ts';
export { type Departed, type PodAddress, PodAddresses, type ServiceName } from './pod-addresses.ts';
export {
  DISCARDS,
  type DiscardCounts,
  type DiscardReason,
  LagRecorder,
  type UnresolvedRemoval,
} from './recorder.ts';
export {
  type InstanceName,
  type InstancesState,
  ReportedSyncs,
  type StageVersions,
  type SyncClaim,
  type SyncResult,
} from './reported-syncs.ts';
export { Arrival, type Attempt, Departure, ENOUGH_SIGHTINGS, type Instant } from './sightings.ts';
export { HEARTBEAT_ANNOTATION, heartbeatOf, heartbeatText } from './watch-delay.ts';
