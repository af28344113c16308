export { leaveWithout, run } from './run.ts';
