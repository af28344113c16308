import { join, resolve } from 'node:path';
import { runOnCluster } from './on-cluster.ts';
import { positive, readOptions, someOf } from './options.ts';

// What a disturbance loses by strategy and client, on the test cluster, with `linger prove` as the instrument: drain/cells.test.ts.

const usage = `usage: node bench/drain.ts [--quick] [--runs N] [--only NAME,…] [--strategies NAME,…] [--own NAME=WHAT] [--out FILE] [--resume]
  --quick  one rollout with each of five strategies and two clients, some minutes once the cluster is up
  --runs   of each cell (default 5; 1 with --quick)
  --only   some of the disturbances: rollout, scale, drain, throttled, storm
  --strategies  some of: nothing, sleep 5, sleep 15, sleep 30, Linger Sleep, Linger Hold, Linger Hold declared
  --own    your own strategy: a manifest (FILE.yaml), or a command of sh with KUBECONFIG and NAMESPACE in its environment;
           applied to each new namespace before the application is, with Linger off there
  --out    JSON (default bench/results/drain.json, drain-quick.json with --quick); the SVG lies beside it
  --resume goes on with the runs that this file does not have yet; each is written as soon as it is over
It needs what npm run test:cluster needs.`;
const text = { type: 'string' } as const;
const DISTURBANCES = ['rollout', 'scale', 'drain', 'throttled', 'storm'] as const;

export interface DrainSettings {
  readonly quick: boolean;
  readonly runs: number;
  readonly only: readonly string[];
  /** Empty: all. */
  readonly strategies: readonly string[];
  readonly own: { readonly name: string; readonly what: string } | undefined;
  readonly out: string;
  readonly resume: boolean;
}

function ownOf(text: string): DrainSettings['own'] {
  const [, name, what] = /^([^=,]+)=(.+)$/.exec(text) ?? [];
  if (name === undefined || what === undefined)
    throw new Error('--own: expected NAME=FILE.yaml or NAME=COMMAND');
  return { name, what };
}

const settings = readOptions(
  process.argv.slice(2),
  {
    quick: { type: 'boolean', default: false },
    runs: text,
    only: text,
    strategies: text,
    own: text,
    out: text,
    resume: { type: 'boolean', default: false },
  },
  usage,
  ({ quick, runs, only, strategies, own, out, resume }): DrainSettings => ({
    quick,
    resume,
    runs: runs === undefined ? (quick ? 1 : 5) : positive('runs', runs),
    only: only === undefined ? (quick ? ['rollout'] : DISTURBANCES) : someOf('only', DISTURBANCES, only),
    strategies: strategies?.split(',') ?? [],
    own: own === undefined ? undefined : ownOf(own),
    out: resolve(out ?? join(import.meta.dirname, 'results', quick ? 'drain-quick.json' : 'drain.json')),
  }),
);
runOnCluster('bench/drain/cells.test.ts', settings);
