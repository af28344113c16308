/** Runs all steps at once, where no other work waits. */
export function taken<T>(steps: Generator<unknown, T>): T {
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}
