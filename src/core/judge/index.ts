export {
  type AuditReport,
  byWorkload,
  github,
  junit,
  junitSuite,
  markdown,
  markdownCell,
  sarif,
  xml,
} from './audit-formats.ts';
export {
  AUDIT_FINDINGS,
  type Audited,
  type AuditFinding,
  type AuditLevel,
  type AuditSubject,
  type AuditSummary,
  type AuditVerdict,
  auditWorkload,
  GOOD_REASONS,
  type GraceCut,
  headlineOf,
  isFinding,
  livenessInWords,
  NO_WAIT,
  neededOf,
  type RunningPod,
  relatedTo,
  subjectOf,
  summaryOfAudit,
  VERDICTS,
} from './findings.ts';
export { type HookFacts, type HooksNow, hooksNow } from './hooks-now.ts';
export { misplacedIn } from './misplaced.ts';
export { anyPodOf, KnownPods, type PodsOf } from './peers.ts';
export {
  additionsIn,
  calledBy,
  isAsked,
  RELATED_KINDS,
  type RelatedObjects,
  relatedObjectsIn,
  relating,
  WEBHOOK,
  WEBHOOK_KIND,
} from './related-objects.ts';
export { waysToInstall } from './renders.ts';
export { countOf } from './rollouts.ts';
export { type Judged, judgedOf, patched } from './standing-plan.ts';
export { type Suggestion, suggest } from './suggest.ts';
