import { setTimeout as sleep } from 'node:timers/promises';

/**
 * How far apart the second halves begin: together they would compete for the node's processors, and what is
 * measured in them would be that.
 */
const PACE_MS = 400;

/** The structure of all runs: prepare, then measure once every run is prepared. */
export interface Run<R> {
  measure(): Promise<R>;
}

/**
 * Runs all cases concurrently, as most of their time is waiting, and provides each by its name, so that
 * each test still fails by itself. No measurement begins before every preparation has ended.
 */
export function runAll<C extends { readonly name: string }, R>(
  cases: readonly C[],
  prepare: (each: C) => Promise<Run<R>>,
): (name: string) => Promise<R> {
  const preparations = cases.map(prepare);
  const settled = Promise.allSettled(preparations);
  const runs = new Map(
    cases.map(({ name }, index) => {
      const measured = settled
        .then(() => sleep(index * PACE_MS))
        .then(async () => (await preparations[index])?.measure());
      // The test that asks for it reports its failure; until then it must not count as unhandled.
      measured.catch(() => {});
      return [name, measured as Promise<R>] as const;
    }),
  );
  return (name) => runs.get(name) ?? Promise.reject(new Error(`no run is called ${name}`));
}
