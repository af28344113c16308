export { Backoff } from './backoff.ts';
export { answerOffLoop, OffLoop, workerUrl } from './off-loop.ts';
export { RateLimit, Schedule, throttle } from './pacing.ts';
export { NEVER, pause, tick, withSignal } from './pause.ts';
export { inPieces, Slices, serialize } from './pieces.ts';
