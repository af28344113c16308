import { join, resolve } from 'node:path';
import { runOnCluster } from './on-cluster.ts';
import { positive, readOptions } from './options.ts';
import { build } from './toolchain.ts';

// What the creation of a pod costs with different mutations, on the test cluster: api/creations.test.ts.

const usage = `usage: node bench/api.ts [--rounds N] [--out FILE]
  --rounds  in each, one pod of each kind (default 500)
  --out     JSON (default bench/results/api.json)
It needs what npm run test:cluster needs, and Go.`;
const text = { type: 'string' } as const;

export interface ApiSettings {
  readonly rounds: number;
  readonly out: string;
  /** The program of controller-runtime/: from inside the cluster's network nothing can be fetched. */
  readonly program: string;
}

const settings = readOptions(
  process.argv.slice(2),
  { rounds: { ...text, default: '500' }, out: text },
  usage,
  ({ rounds, out }): ApiSettings => ({
    rounds: positive('rounds', rounds),
    out: resolve(out ?? join(import.meta.dirname, 'results', 'api.json')),
    program: build(import.meta.dirname, 'controller-runtime'),
  }),
);
runOnCluster('bench/api/creations.test.ts', settings);
