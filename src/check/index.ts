export { CHECKS, type Check, type CheckState, inquire } from './checks.ts';
export { floorState } from './floor.ts';
export { hooksNowIn } from './hooks-now.ts';
export { checkInstallation, type Senders } from './installation.ts';
export { overviewOf } from './overview.ts';
export { changersOf } from './pod-changers.ts';
export { checkBefore } from './preflight.ts';
export { modeLimitOf, unreachedInWords } from './replicas.ts';
