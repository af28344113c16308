export {
  type AuditReport,
  byWorkload,
  github,
  junit,
  junitSuite,
  levelOf,
  markdown,
  markdownCell,
  sarif,
  xml,
} from './audit-formats.ts';
export { ClusterAudit, type ClusterAuditSettings, registerAuditMetrics } from './cluster-audit.ts';
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
  AUDIT_FINDINGS,
  type Audited,
  type AuditFinding,
  type AuditSubject,
  type AuditSummary,
  type AuditVerdict,
  auditWorkload,
  GOOD_REASONS,
  type GraceCut,
  headlineOf,
  type RunningPod,
  subjectOf,
  summaryOfAudit,
  VERDICTS,
} from './findings.ts';
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
export { misplacedIn } from './misplaced.ts';
export { REPORT_ANNOTATION } from './policy-reports.ts';
export {
  additionsIn,
  isAsked,
  RELATED_KINDS,
  type RelatedObjects,
  relatedObjectsIn,
  WEBHOOK,
  WEBHOOK_KIND,
} from './related-objects.ts';
export { countOf } from './rollouts.ts';
export { type Suggestion, suggest } from './suggest.ts';
export { registerTerminationMetrics, TerminationReview } from './termination-review.ts';
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
