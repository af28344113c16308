import type { ConsumerView, LagView } from './view.ts';

/** A percentile that has moved by less than this share is no news: histograms are that coarse, and samples chance. */
const MOVED = 0.05;

/**
 * Whether a view says something that people should not have to wait for: another condition, other instances, another
 * lag. That there are more samples of the same is none.
 * @param told what was said before
 */
export function isNews(view: ConsumerView, told: ConsumerView): boolean {
  const { condition } = view;
  const judged = told.condition;
  return (
    view.measure !== told.measure ||
    view.instances !== told.instances ||
    condition.status !== judged.status ||
    condition.reason !== judged.reason ||
    condition.message !== judged.message ||
    view.limits.join('\n') !== told.limits.join('\n') ||
    hasMoved(view.removals, told.removals) ||
    hasMoved(view.additions, told.additions)
  );
}

function hasMoved(lag: LagView | null, told: LagView | null): boolean {
  if (lag === null || told === null) return lag !== told;
  return isOther(lag.p50, told.p50) || isOther(lag.p99, told.p99);
}

function isOther(value: number, told: number): boolean {
  return Math.abs(value - told) > MOVED * Math.max(value, told);
}
