import { isMainThread } from 'node:worker_threads';

// Loaded into a replica before its program: measures how long its main thread computes without a turn for others, and prints
// that on SIGWINCH. Processor time, because on a busy machine a thread is kept waiting for as long.

/** What a replica says of itself, since it has last said so. */
export interface Turns {
  readonly msg: 'turns';
  readonly longest: number;
  /** Since its start. */
  readonly mostResidentMiB: number;
}

let longest = 0;
let before = process.threadCpuUsage();
const look = () => {
  const { user, system } = process.threadCpuUsage(before);
  longest = Math.max(longest, (user + system) / 1000);
  before = process.threadCpuUsage();
};
if (isMainThread) {
  setInterval(look, 1).unref();
  process.on('SIGWINCH', () => {
    look();
    const mostResidentMiB = process.resourceUsage().maxRSS / 1024;
    console.log(JSON.stringify({ msg: 'turns', longest, mostResidentMiB } satisfies Turns));
    longest = 0;
  });
}
