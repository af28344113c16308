export { CANARY_LABEL, type CanarySettings, type Flipped } from './canary/canary.ts';
export { flipReporter, registerCanaryMetrics } from './canary/canary-run.ts';
export { FLIP_LIMITS } from './canary/flip.ts';
export { ConsumerViews } from './consumer-views.ts';
export {
  DEREGISTRATION_RESULTS,
  Deregistrations,
  registerDeregistrationMetrics,
} from './deregister/deregister.ts';
export type { Inspection } from './inspect/inspect.ts';
export { registerInspectionMetrics, startInspecting } from './inspect/inspect-run.ts';
export { inspectedInstances } from './inspect/inspected-instances.ts';
export { MOST_WITNESSED } from './inspect/page-request.ts';
export { type ConsumerInstances, consumerInstances } from './instances.ts';
export { LAG_METRICS, registerConsumerMetrics, registerLagMetrics } from './lag-metrics.ts';
export { measureConsumers } from './measured-consumers.ts';
export { ConsumerMeasurement, Measurement, type WaitingByStage, waitingByStage } from './measurement.ts';
export { attemptsIn, nodeTimerApp } from './node-timers/node-timers.ts';
export {
  canaryPart,
  consumersPart,
  deregistrationPart,
  heartbeatsPart,
  inspectionPart,
  instancesPart,
  measurementPart,
  reportsPart,
} from './part.ts';
export { registerReportMetrics } from './reports/report-taking.ts';
export { reportingInstances } from './reports/reporting-instances.ts';
export { ConsumerReports, type ReportAnswer, versionsOf } from './reports/reports.ts';
export { type PageAnswer, readPage } from './requests/gateway-client.ts';
export { attemptClusterIp, canaryUrl, FLIP_RESULTS, problem } from './requests/probe.ts';
