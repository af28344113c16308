import { setImmediate as turn } from 'node:timers/promises';

/**
 * The longest that this thread computes in one turn of the event loop while `during` goes on, in milliseconds. CPU
 * time, because on a busy machine a thread may be kept waiting for as long. Turns within one millisecond count as one:
 * looking after each would keep a processor busy where the thread only waits.
 */
export async function longestTurn(during: () => Promise<unknown>): Promise<number> {
  let longest = 0;
  let before = process.threadCpuUsage();
  const look = () => {
    const { user, system } = process.threadCpuUsage(before);
    longest = Math.max(longest, (user + system) / 1000);
    before = process.threadCpuUsage();
  };
  const looking = setInterval(look, 1);
  await during().finally(() => clearInterval(looking));
  await turn();
  look();
  return longest;
}
