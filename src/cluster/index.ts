export { AccessReviews, type TokenUser } from './access-reviews.ts';
export { type ApiCall, callApi, kubeVersion, unlessNotFound } from './client.ts';
export { type Credentials, inClusterConnection, type KubeConnection, readKubeconfig } from './connection.ts';
export {
  CLUSTER_TERMINATION_POLICIES,
  type CustomKind,
  type CustomObject,
  type CustomObjects,
  customKey,
  customResource,
  DISCOVERY_CONSUMERS,
  followCustomResources,
  TERMINATION_POLICIES,
} from './custom-resources.ts';
export {
  type EndpointScope,
  EndpointWatch,
  type EndpointWatchHandlers,
  namespaceExists,
  tryScope,
} from './endpoint-watch.ts';
export { endpointSlicesResource } from './endpoints.ts';
export { asFailure, CONCERNS_ONE_NAMESPACE, type FailureReason, KubeFailure } from './failure.ts';
export { type ClusterHandlers, type ClusterSource, followCluster } from './follow.ts';
export { listAll, listSome } from './list.ts';
export { namespacesResource } from './namespaces.ts';
export { nodesResource } from './nodes.ts';
export { ObjectEvents } from './object-events.ts';
export { type LabelledPod, PodLabels } from './pod-labels.ts';
export { addressedPodsResource, ownersOf, type PodGroup, type PodMetadata } from './pods.ts';
export {
  followObject,
  type ObjectHandlers,
  type ResourceWatch,
  type WatchOptions,
  watchResource,
} from './reflector.ts';
export { ask, http, newAgent, readText } from './request.ts';
export {
  type ObjectIdentity,
  type RawObject,
  type Resource,
  type ResourceEvent,
  WATCH_LIMITS,
  type WatchHandlers,
  type WatchStats,
} from './resource.ts';
export { neverWithdraws, servicesResource } from './services.ts';
export { DeadWatches, registerWatchMetrics } from './watch-metrics.ts';
