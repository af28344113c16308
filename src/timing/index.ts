export { Backoff } from './backoff.ts';
export { answerOffLoop, besides, OffLoop } from './off-loop.ts';
export { atMostEvery, inPieces, oneByOne, pause, RateLimit, Schedule, tick, withSignal } from './pacing.ts';
