export {
  type Forgotten,
  REFUSALS,
  readConsumers,
  readForgotten,
  readHold,
  readPlanned,
  readShortfalls,
  SHARED_ANNOTATIONS,
  SHARED_NAMES,
} from './codec.ts';
export { registerFloorMetrics } from './floor.ts';
export { restoreHistory } from './history-objects.ts';
export { LEADER_LABEL, labelLeader } from './leader-label.ts';
export { builtInPolicyPart, floorPart, leaderLabelPart, publishingPart } from './part.ts';
export { newStatus, PUBLISH_LIMITS, registerPublishMetrics } from './publish-context.ts';
export { type PublishingOptions, startPublishing } from './publishing.ts';
export { followPublished, readConfigMap, recordForgotten } from './store.ts';
