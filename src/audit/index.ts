export {
  AUDIT_FINDINGS,
  type Audited,
  type AuditFinding,
  type AuditReason,
  type AuditSubject,
  type AuditSummary,
  auditWorkload,
  type FindingCode,
  GOOD_REASONS,
  type RunningPod,
  summaryOfAudit,
  VERDICTS,
  type Verdict,
} from './findings.ts';
export { type AuditReport, github, junit, markdown, sarif } from './reports.ts';
export { NEIGHBOUR_KINDS, type Neighbours, neighboursIn } from './surroundings.ts';
