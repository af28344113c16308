export { blockYaml } from './block-yaml.ts';
export {
  becauseOf,
  explanationOf,
  explanationsIn,
  type FloorShown,
  floorShown,
  type ManifestExplanation,
  type WorkloadExplanation,
} from './explanations.ts';
export {
  type Fate,
  type FileTaken,
  JudgedManifests,
  type ManifestReport,
  POLICIES,
  type PolicyFields,
  type TextProblemAt,
  type WhatIf,
  type WorkloadDetail,
} from './manifest-report.ts';
export type { Notice } from './notices.ts';
export { shareable } from './shareable.ts';
export { keyOf, type ListQuery, matchingIn } from './workload-list.ts';
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
