import type { Histogram } from '@prometheus-io/client';
import type { Logger } from 'pino';

/** The kinds of event-loop work that foreign bytes cause; `other` is work without a name here. */
export const LOOP_WORK = [
  'watch',
  'list',
  'review',
  'policies',
  'hold',
  'push',
  'curves',
  'audit',
  'other',
] as const;
export type LoopWork = (typeof LOOP_WORK)[number];
type NamedWork = Exclude<LoopWork, 'other'>;

/** Milliseconds. Shorter work is not counted. */
const COUNTED_MS = 10;
/** No review should wait for anything longer than this. */
const LOGGED_MS = 250;
/** Between two log lines about the same work. */
const LOGGED_EVERY_MS = 10_000;

/** How often to check whether the event loop is running. */
const LOOK_EVERY_MS = 250;

let observe: ((work: LoopWork, milliseconds: number) => void) | undefined;
/** The named work since the last check, in milliseconds. */
let named = 0;

/** Does work that blocks the event loop, and measures how long it takes. */
export function onLoop<T>(work: NamedWork, call: () => T): T {
  const begun = performance.now();
  try {
    return call();
  } finally {
    const milliseconds = performance.now() - begun;
    named += milliseconds;
    if (milliseconds >= COUNTED_MS) observe?.(work, milliseconds);
  }
}

/** {@link onLoop} for each step of a long computation. */
export function* stepsOnLoop<T>(work: NamedWork, steps: Generator<unknown, T>): Generator<unknown, T> {
  for (;;) {
    const step = onLoop(work, () => steps.next());
    if (step.done === true) return step.value;
    yield;
  }
}

/**
 * Reports the work of this process from now on: as a metric, and as a log line where it took too long. Work without a name
 * is detected by a timer that is late: always if it takes half a second, and often if it takes a quarter.
 * @param isAnswering whether reviews can arrive; before that, none can be delayed
 * @param pause resolves after this many milliseconds, with false once the process ends
 */
export function reportLoopTime(
  histogram: Histogram<'work'>,
  logger: Logger,
  isAnswering: () => boolean,
  pause: (milliseconds: number) => Promise<boolean>,
): void {
  const loggedAt = new Map<LoopWork, number>();
  observe = (work, milliseconds) => {
    histogram.observe({ work }, milliseconds / 1000);
    const now = performance.now();
    const isRecent = now - (loggedAt.get(work) ?? Number.NEGATIVE_INFINITY) < LOGGED_EVERY_MS;
    if (milliseconds < LOGGED_MS || isRecent || !isAnswering()) return;
    loggedAt.set(work, now);
    logger.warn({ work, milliseconds: Math.round(milliseconds) }, 'event loop blocked; reviews delayed');
  };
  void lookForOther(pause);
}

async function lookForOther(pause: (milliseconds: number) => Promise<boolean>): Promise<void> {
  for (let before = performance.now(); await pause(LOOK_EVERY_MS); before = performance.now()) {
    const milliseconds = performance.now() - before - LOOK_EVERY_MS - named;
    named = 0;
    if (milliseconds >= LOGGED_MS) observe?.('other', milliseconds);
  }
}
