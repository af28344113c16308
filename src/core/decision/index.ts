export {
  type ClusterSnapshot,
  type ClusterView,
  type Documents,
  type HoldAbsence,
  type HoldSupply,
  type LocatedObject,
  NO_DOCUMENTS,
  NO_SOURCES,
  newSnapshotHolder,
  type SnapshotChange,
  type SnapshotHolder,
  type Sources,
  snapshotOf,
} from './cluster-snapshot.ts';
export { type ContainerWait, eatenInWords, eatsGrace, ownDrainOf } from './containers.ts';
export {
  containerWaits,
  decide,
  type Exposure,
  exposureOf,
  observersOf,
  type PodRequest,
  planNotes,
  requestOf,
  screen,
  trafficOf,
} from './decide.ts';
export { BASES, type Basis, type Evidence, evidenceOf } from './evidence.ts';
export { type Explained, type ExplainedField, type Explanation, explain, summaryOf } from './explanation.ts';
export {
  atLeast,
  FLEET_SETTLE_SECONDS,
  type Fleet,
  fleetOf,
  type NodeFacts,
  nodeKind,
  parseVersion,
  type SettlingFleet,
  settle,
  supportsNativeSleep,
  UNSETTLED,
} from './fleet.ts';
export {
  FLOOR_VERSIONS,
  type Floor,
  type FloorEntry,
  floorData,
  floorEntry,
  floorOf,
  floorText,
  floorWaits,
  unreadableFloorLines,
} from './floor.ts';
export { holdObstacle, holdUnreached } from './hold-delivery.ts';
export { NODE_BUDGET_LABEL, NODE_BUDGET_SHARE, nodeBudgetOf } from './node-budget.ts';
export { type Operation, patchFor, patchInForce, undoFor } from './patch.ts';
export { nodeBudget } from './placement.ts';
export {
  type Decision,
  fitGrace,
  type HoldPlan,
  isAudit,
  longestWait,
  type Plan,
  promiseOf,
  type Skip,
} from './plan.ts';
export { isMarker, parsePlan, renderPlan } from './plan-codec.ts';
export { graceOf, nodeSelectorTerms, type Pod } from './pod.ts';
export { essentialsOf } from './pod-members.ts';
export { annotationLayers } from './policy-annotations.ts';
export { effectivePolicy } from './policy-merge.ts';
export { wantsHold } from './policy-set.ts';
export { shadowedPolicies } from './policy-shadowing.ts';
export {
  BUILT_IN,
  BUILT_IN_POLICY,
  BUILT_IN_VALUES,
  DURATION_FIELDS,
  digestOf,
  type Field,
} from './policy-values.ts';
export { namespaceView, policiesSelecting, policyView } from './policy-view.ts';
export {
  admissionWarning,
  NOTES,
  type Note,
  type NoteCode,
  OVERRIDABLE,
  SKIP_QUESTIONS,
  SKIP_REASONS,
  type SkipReason,
  warningsOf,
} from './reasons.ts';
export { type SimulatedEvent, type SimulatedWait, simulate } from './simulation.ts';
export {
  chooseWait,
  type DefaultWait,
  defaultWait,
  shareInWords,
  WAIT_REASONS,
  type WaitChoice,
  type WaitReason,
} from './wait.ts';
export {
  hasController,
  meantKind,
  templateReferenceOf,
  type Workload,
  withTemplate,
  workloadKey,
  workloadOf,
} from './workload.ts';
