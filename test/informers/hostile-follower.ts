import { followCluster } from '../../src/informers/follow.ts';

// Follows a cluster until the last pod has been seen, and prints what became of the process.

// What the image has bundled takes a second to load here.
await import('../../src/cluster/client-node.ts');

/** What the follower says of itself. */
export interface Followed {
  /** Pods that are not known, by namespace. */
  readonly unread: Readonly<Record<string, number>>;
  /** The longest that the event loop was busy without a turn for others: processor time of its thread, milliseconds. */
  readonly longestTurn: number;
  readonly peakRssMb: number;
}

const [server = '', last = ''] = process.argv.slice(2);
const stopping = new AbortController();
let peakRss = 0;
let longest = 0;
let before = process.threadCpuUsage();
const turn = () => {
  const { user, system } = process.threadCpuUsage(before);
  longest = Math.max(longest, (user + system) / 1000);
  peakRss = Math.max(peakRss, process.memoryUsage.rss());
  before = process.threadCpuUsage();
  if (!stopping.signal.aborted) setImmediate(turn);
};

const source = followCluster(
  { server: new URL(server), credentials: async () => ({}) },
  {
    onSnapshot: () => undefined,
    onEvent: () => undefined,
    onPod: ({ identity }) => {
      if (identity.name === last) stopping.abort();
    },
    onFailure: (what, { message }) => console.error(what, message),
    onCurrent: () => undefined,
    onHandlerError: (_, error) => {
      throw error;
    },
  },
  { signal: stopping.signal, clock: () => performance.now(), random: Math.random, namespace: 'linger' },
);
turn();
stopping.signal.addEventListener('abort', () => {
  const unread = Object.fromEntries(source.unread().pods);
  console.log(
    JSON.stringify({ unread, longestTurn: longest, peakRssMb: peakRss / 2 ** 20 } satisfies Followed),
  );
  process.exit(0);
});
