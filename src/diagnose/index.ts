export { ApiReader, messageOf } from './api-reader.ts';
export { CHECKS, type Check, type CheckState, inquire } from './checks.ts';
export { isAddress } from './controller-observation.ts';
export type { Facts, Look } from './facts.ts';
export { type GatherOptions, gatherFacts } from './gather.ts';
export { checkInstallation } from './installation.ts';
export { type Overview, overviewOf } from './overview.ts';
export { checkBefore } from './preflight.ts';
export { diagnose, FINDINGS, type Finding } from './rules.ts';
