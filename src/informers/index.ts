export { CopiedEndpoints, copyOf } from './copied-endpoints.ts';
export {
  CLUSTER_TERMINATION_POLICIES,
  type CustomKind,
  type CustomObject,
  type CustomObjects,
  customKey,
  customResource,
  DISCOVERY_CONSUMERS,
  effectOf,
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
export { endpointSlicesResource, endpointsResource } from './endpoints.ts';
export { type ClusterSource, followCluster } from './follow.ts';
export { ListedAddresses } from './listed-addresses.ts';
export { namespacesResource } from './namespaces.ts';
export { nodesResource } from './nodes.ts';
export { clusterPart, declaredPart, unreadProblems } from './part.ts';
export {
  type AddressedPod,
  addressedPodsResource,
  ownersOf,
  PodCounts,
  type PodGroup,
  podsResource,
  projectPod,
} from './pods.ts';
export { servicesResource } from './services.ts';
