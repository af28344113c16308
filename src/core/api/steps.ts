/** Runs all steps at once, for callers that keep no other work waiting. */
export function taken<T>(steps: Generator<unknown, T>): T {
  let step = steps.next();
  while (step.done !== true) step = steps.next();
  return step.value;
}
