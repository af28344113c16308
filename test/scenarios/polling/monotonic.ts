/**
 * Milliseconds of CLOCK_MONOTONIC, which all processes of a machine share: what one has seen can be compared with what
 * another has done. (performance.now() begins at 0 in each process.)
 */
export function monotonicMs(): number {
  return Number(process.hrtime.bigint() / 1_000n) / 1_000;
}
