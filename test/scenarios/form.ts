/**
 * Scenarios have two forms: a short one for every run of the cluster suite, and the one whose numbers stand in
 * docs/benchmarks.md (`npm run scenarios`).
 */
export const LONG = process.env.SCENARIOS === 'long';

export function byForm<T>(short: T, long: T): T {
  return LONG ? long : short;
}
