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
  type FoundWorkload,
  type ManifestProblem,
  type ManifestText,
  planOf,
  planOfRunning,
  type Reading,
  type Selection,
  type Surveyed,
  survey,
  withEmbedded,
  workloadsIn,
} from './workloads.ts';
