export { Backoff, type BackoffLimits } from './backoff.ts';
export { answerOffLoop, besides, OffLoop, OffLoopError } from './off-loop.ts';
export { atMostEvery, inPieces, pause, Schedule, withDeadline } from './pacing.ts';
