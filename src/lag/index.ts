export { setNewest } from './busiest.ts';
export {
  type Consumer,
  ConsumerEstimator,
  type ConsumerLag,
  consumerOf,
  type Direction,
  findsByItself,
  type Measure,
  STANDARD_CONSUMERS,
  sendsThrough,
  sendsTo,
  WITNESSED_ENOUGH,
  witnessName,
} from './consumer.ts';
export {
  CONDITIONS,
  type ConditionReason,
  type ConsumerTable,
  type ConsumerView,
  consumersFromJson,
  consumersToText,
  consumerView,
  hasChanged,
  type LagView,
  type MeasurementState,
  unreadableView,
} from './consumer-view.ts';
export { type Density, type Lags, type MeasuredLag, quantileOf } from './distribution.ts';
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
export { LagEstimator } from './estimator.ts';
export {
  type Acknowledged,
  type ClusterEvent,
  compareVersions,
  type EndpointsState,
  LAG_STAGES,
  type LagStage,
  type RemovalSample,
  type ServiceState,
  type SliceState,
  STAMPED_STREAMS,
  STREAMS,
  type StageSample,
  type Stamp,
  type StampedStream,
  type Stream,
  type TerminatingPod,
} from './events.ts';
export { type Enough, type Episode, type HistoryPart, LagHistory, type Span } from './lag-history.ts';
export {
  BUILT_IN_ENOUGH,
  CONTROL_PLANE,
  type LagSource,
  NONE_YET,
  NOTHING_PLANNED,
  nextPlanned,
  type PlannedLag,
  type PlannedRow,
  type PlannedTable,
  plannedFromJson,
  plannedLags,
  plannedToText,
  shrunkTable,
} from './planned.ts';
export { type PodAddress, PodAddresses, type ServiceName } from './pod-addresses.ts';
export { STAMP_ANNOTATION, stampOf, stampText } from './punctuality.ts';
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
