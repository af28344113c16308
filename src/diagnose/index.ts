export { isAddress } from './controller-observation.ts';
export type { Facts, Look } from './facts.ts';
export { FINDINGS, type Finding } from './findings.ts';
export { type GatherOptions, gatherFacts } from './gather.ts';
export { diagnose } from './rules.ts';
