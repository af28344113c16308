export { BUILT_IN_POLICY_NAME, createBuiltInPolicy } from './built-in-policy.ts';
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
export { restoreHistory } from './history-objects.ts';
export { LEADER_LABEL, labelLeader } from './leader-label.ts';
export type { Place } from './lease.ts';
export { effectOf, policyStatuses } from './policy-statuses.ts';
export { newStatus, PUBLISH_LIMITS, registerPublishMetrics } from './publish-status.ts';
export { type PublishingOptions, startPublishing } from './publishing.ts';
export { followPublished, readConfigMap, recordForgotten } from './store.ts';
