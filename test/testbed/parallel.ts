/** As many as keep one API server busy without queueing at it (its default is 400 requests at once). */
const WIDTH = 24;

/** Does the work for each item, several at a time, in their order. Rejects with the first failure. */
export async function inParallel<T>(
  items: readonly T[],
  work: (item: T, index: number) => Promise<unknown>,
  width = WIDTH,
): Promise<void> {
  const left = items.entries();
  const worker = async () => {
    for (const [index, item] of left) await work(item, index);
  };
  await Promise.all(Array.from({ length: Math.min(width, items.length) }, worker));
}
