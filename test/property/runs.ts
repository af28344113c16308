/**
 * How many times as often `npm run fuzz:properties` tries each property. Its seeds are new in each run, as those of `npm test`:
 * what is rare shows there first, and is reported with the seed that repeats it.
 */
export const FUZZ = Number(process.env.FUZZ ?? '1');

/** @param usual how often a run of the tests tries a property */
export function runs(usual: number): { readonly numRuns: number } {
  return { numRuns: usual * FUZZ };
}
