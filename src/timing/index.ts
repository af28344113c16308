export { Backoff } from './backoff.ts';
export { answerOffLoop, OffLoop, workerUrl } from './off-loop.ts';
export { inPieces, pause, RateLimit, Schedule, serialize, throttle, tick, withSignal } from './pacing.ts';
