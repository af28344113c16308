export { newToken } from './access.ts';
export { pageApp, type Sources, type Subject } from './app.ts';
export { readPage } from './assets.ts';
export {
  type ApiError,
  type ApiRoot,
  type AuditJson,
  apiError,
  apiRoot,
  auditReport,
  type ConsumersReport,
  consumersReport,
  type ExplainReport,
  type ExplanationReport,
  explainReport,
  explanationReport,
  type LagReport,
  lagReport,
  type NowReport,
  nowReport,
  type PlaygroundReport,
  type PlaygroundRequest,
  type Problem,
  playgroundReport,
  type Topic,
  type WorkloadsReport,
  workloadsReport,
} from './contract.ts';
