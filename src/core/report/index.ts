export { blockYaml } from './block-yaml.ts';
export { causeInWords } from './causes.ts';
export {
  becauseOf,
  EXPLAINED,
  explanationOf,
  explanationsIn,
  type FloorShown,
  floorShown,
  type ManifestExplanation,
  type WorkloadExplanation,
} from './explanations.ts';
export {
  type FileTaken,
  JudgedManifests,
  type ManifestReport,
  POLICIES,
  type PolicyFields,
  type Progress,
  policyText,
  type TextProblemAt,
  type WhatIf,
  type WorkloadDetail,
} from './manifest-report.ts';
export type { Notice } from './notices.ts';
export { outlinedPatch } from './outline.ts';
export {
  FATES,
  type Fate,
  fateOf,
  type JudgedWorkload,
  overviewOf,
  plannedCharts,
  standingOf,
  type WorkloadRow,
  type WorkloadsOverview,
} from './overview.ts';
export { shareable } from './shareable.ts';
export {
  GROUPINGS,
  type Grouping,
  groupOf,
  type ListQuery,
  listOf,
  matchesWords,
  SORTS,
  type Sort,
  type WorkloadList,
} from './workload-list.ts';
export {
  type FoundWorkload,
  type ManifestProblem,
  type ManifestText,
  partsIn,
  planOf,
  planOfRunning,
  type Reading,
  type Selection,
  type Surveyed,
  survey,
  withEmbedded,
  workloadsIn,
} from './workloads.ts';
