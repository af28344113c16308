export { type ClusterAuditSettings, registerAuditMetrics } from './cluster-audit.ts';
export {
  everyOne,
  gather,
  type LiveWorkload,
  listKind,
  listWebhooks,
  liveWorkload,
  MOST_OBJECTS,
  type RunningPods,
  TRUNCATED,
  truncatedInWords,
} from './cluster-workloads.ts';
export {
  type Kind,
  kindAndName,
  objectsIn,
  POD,
  pathOf,
  pluralOf,
  WORKLOAD_KINDS,
  type WorkloadKind,
} from './kinds.ts';
export { clusterAuditPart, terminationReviewPart } from './part.ts';
export { REPORT_ANNOTATION } from './policy-reports.ts';
export { registerTerminationMetrics } from './termination-review.ts';
export {
  type EndedPods,
  isShortfall,
  type JudgedEnd,
  KEPT_SECONDS,
  ROW_SECONDS,
  type Shortfall,
  sentenceOf,
  sumOfEnded,
  TERMINATION_FINDINGS,
  type TerminationFinding,
  TerminationLog,
  type TerminationRecord,
  terminationsIn,
} from './terminations.ts';
