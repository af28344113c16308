import { join, resolve } from 'node:path';
import { runOnCluster } from './on-cluster.ts';
import { positive, readOptions } from './options.ts';
import { build, goVersion, moduleVersion } from './toolchain.ts';

// How an API server's reviews are spread over three replicas after a rolling restart, on the test cluster: balance/shares.test.ts.

const usage = `usage: node bench/balance.ts [--seconds N] [--rate N] [--burst N] [--out FILE]
  --seconds  of measuring, of all settings at the same time (default 540); installing them takes two minutes more
  --rate     reviews a second of each setting (default 20)
  --burst    how many pods are created at once (default 10)
  --out      JSON (default bench/results/balance.json)
It needs what npm run test:cluster needs, and Go.`;
const text = { type: 'string' } as const;

export interface BalanceSettings {
  readonly seconds: number;
  readonly rate: number;
  readonly burst: number;
  readonly out: string;
  /** The program of controller-runtime/: from inside the cluster's network nothing can be fetched. */
  readonly program: string;
  /** What it is built with. */
  readonly versions: Readonly<Record<'go' | 'controllerRuntime', string>>;
}

const settings = readOptions(
  process.argv.slice(2),
  {
    seconds: { ...text, default: '540' },
    rate: { ...text, default: '20' },
    burst: { ...text, default: '10' },
    out: text,
  },
  usage,
  ({ seconds, rate, burst, out }): BalanceSettings => ({
    seconds: positive('seconds', seconds),
    rate: positive('rate', rate),
    burst: positive('burst', burst),
    out: resolve(out ?? join(import.meta.dirname, 'results', 'balance.json')),
    program: build(import.meta.dirname, 'controller-runtime'),
    versions: {
      go: goVersion(import.meta.dirname),
      controllerRuntime: moduleVersion(
        import.meta.dirname,
        'controller-runtime',
        'sigs.k8s.io/controller-runtime',
      ),
    },
  }),
);
runOnCluster('bench/balance/shares.test.ts', settings);
