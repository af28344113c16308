export { CANARY_LABEL, type CanarySettings, type Flipped } from './canary.ts';
export { flipReporter, measureConsumers, registerCanaryMetrics } from './canary-run.ts';
export { ConsumerViews } from './consumer-views.ts';
export { DEREGISTRATION_RESULTS, Deregistrations, registerDeregistrationMetrics } from './deregister.ts';
export { FLIP_LIMITS } from './flip.ts';
export { type PageAnswer, readPage } from './gateway-client.ts';
export type { Inspection } from './inspect.ts';
export { registerInspectionMetrics, startInspecting } from './inspect-run.ts';
export { registerConsumerMetrics, registerLagMetrics } from './lag-metrics.ts';
export { ConsumerMeasurement, Measurement, type WaitingByStage, waitingByStage } from './measurement.ts';
export { attemptsIn, nodeTimerApp } from './node-timers.ts';
export { endpointIn, type PageEndpoint, PageFindings, type PageReader, readerOf } from './page-formats.ts';
export { MOST_WITNESSED, usualPath } from './page-request.ts';
export {
  canaryPart,
  consumersPart,
  deregistrationPart,
  heartbeatsPart,
  inspectionPart,
  measurementPart,
  reportsPart,
} from './part.ts';
export { attemptClusterIp, canaryUrl, problem } from './probe.ts';
export { registerReportMetrics } from './report-taking.ts';
export { ConsumerReports, type ReportAnswer, versionsOf } from './reports.ts';
