export type { Chart } from '../core/timeline/index.ts';
export { obstacleToCopy, referencesOf, type Side } from './copy-objects.ts';
export { newRunName, RUN_LABEL } from './leased-job.ts';
export { PodLives } from './lives.ts';
export {
  type Disturbance,
  ENDPOINTS_RIGHTS,
  fullName,
  obstacleTo,
  rightsFor,
  type ServicePort,
  WorkloadAccess,
  type WorkloadName,
  workloadNamed,
} from './provable-workload.ts';
export { type ProveResult, prove, refuseUnsafe, wordsOf } from './proving.ts';
export {
  type Comparison,
  compare,
  comparison,
  drawingOf,
  drawingOfBoth,
  junitOf,
  markdownOf,
  markdownOfBoth,
  type ProveReport,
  proveReport,
  reportOf,
  sidesOf,
  tablesOf,
  titleOf,
} from './report.ts';
export { sendTraffic } from './traffic.ts';
export { TrafficJob } from './traffic-job.ts';
export {
  LONGEST_RUN,
  lineOf,
  MOST_RATE,
  PORTS,
  type RequestOutcome,
  readLine,
  runSeconds,
  type TrafficPlan,
  trafficPlan,
  type Way,
} from './traffic-plan.ts';
export { LOSS_CAUSES } from './verdict.ts';
export {
  copyRights,
  namespaceOf,
  ORIGINAL_RIGHTS,
  readOriginal,
  removeNamespace,
  WorkloadCopy,
} from './workload-copy.ts';
