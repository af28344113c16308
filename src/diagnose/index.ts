export { isAddress } from './controller-observation.ts';
export type { Facts, Look } from './facts.ts';
export { type GatherOptions, gatherFacts } from './gather.ts';
export { DIAGNOSES, type Diagnosed, diagnose } from './rules.ts';
