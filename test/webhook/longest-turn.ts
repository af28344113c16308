/**
 * The longest that this thread computes in one turn of the event loop while `during` goes on, in milliseconds. CPU
 * time, because on a busy machine a thread may be kept waiting for as long.
 */
export async function longestTurn(during: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let over = false;
  let before = process.threadCpuUsage();
  const watch = () => {
    const { user, system } = process.threadCpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
    before = process.threadCpuUsage();
    if (!over) setImmediate(watch);
  };
  setImmediate(watch);
  await during().finally(() => {
    over = true;
  });
  await new Promise((resolve) => setImmediate(() => setImmediate(resolve)));
  return longest;
}
