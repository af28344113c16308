export { AccessReviews, type TokenUser } from './access-reviews.ts';
export { ApiReader, type Json, messageOf, oneLine } from './api-reader.ts';
export { type ApiCall, callApi, callPath, kubeVersion, unlessNotFound } from './client.ts';
export { type Credentials, inClusterConnection, type KubeConnection, readKubeconfig } from './connection.ts';
export {
  asFailure,
  CONCERNS_ONE_NAMESPACE,
  CONNECTION_ERRORS,
  type FailureReason,
  KubeFailure,
  OBJECT_FAILURES,
  RESTARTS,
} from './failure.ts';
export { listOnce, listSome } from './list.ts';
export { type ObjectEvent, ObjectEvents } from './object-events.ts';
export { OVER_CAPACITY } from './object-json.ts';
export { type LabelledPod, PodLabels } from './pod-labels.ts';
export {
  followObject,
  LineReader,
  type ObjectHandlers,
  type ResourceWatch,
  type WatchOptions,
  watchResource,
} from './reflector.ts';
export { ask, http, newAgent, readText, withoutRoute } from './request.ts';
export {
  newStats,
  type ObjectIdentity,
  type RawMetadata,
  type RawObject,
  type Resource,
  type ResourceEvent,
  type StreamChange,
  WATCH_LIMITS,
  type WatchHandlers,
  type WatchLimits,
  type WatchStats,
} from './resource.ts';
export { DeadWatches, registerWatchMetrics } from './watch-metrics.ts';
export { watchReporting, watchReportingOf } from './watch-reporting.ts';
