import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { type Cluster, FakeNode, openCluster } from '../test/testbed/cluster.ts';
import type { Reading } from './lists/reader.ts';
import { slowWay } from './lists/slow-way.ts';
import { describeMachine } from './machine.ts';
import { positive, readOptions } from './options.ts';
import { spreadOf, table } from './statistics.ts';

// What a list costs plain and compressed, on a real API server; docs/decisions/0013 is made of it. Run it against a
// test cluster: `node test/testbed/main.ts exec node bench/lists.ts`.

const usage = `usage: node bench/lists.ts [--rounds N] [--pods N] [--mbit N]
  --rounds   rounds; each lists the pods once in either way (default 11)
  --pods     pods that are made for it (default 20000)
  --mbit     then lists them over a way of so many Mbit/s, too (default 50)`;
const settings = readOptions(
  process.argv.slice(2),
  {
    rounds: { type: 'string', default: '11' },
    pods: { type: 'string', default: '20000' },
    mbit: { type: 'string', default: '50' },
  } as const,
  usage,
  ({ rounds, pods, mbit }) => ({
    rounds: positive('rounds', rounds),
    pods: positive('pods', pods),
    mbit: positive('mbit', mbit),
  }),
);

const ENCODINGS = ['identity', 'gzip'] as const;
type Encoding = (typeof ENCODINGS)[number];

interface Measurement extends Reading {
  readonly serverCpuSeconds: number;
}

const cluster = await openCluster();
const namespace = await cluster.namespace('lists');
const node = await FakeNode.start(cluster.api);
const pods = Array.from({ length: settings.pods }, (_, index) => {
  const name = `web-${index}`;
  return { namespace, name, labels: { app: 'web', index: name } };
});
try {
  await node.run(pods);
  console.log(`${describeMachine()}; ${settings.pods} pods, ${settings.rounds} rounds`);
  console.log(tableOf(await compare('')));
  const slow = await slowWay(cluster.api.url, settings.mbit);
  console.log(`\nover a way of ${settings.mbit} Mbit/s`);
  console.log(tableOf(await compare(String(slow.port))));
  slow.close();
} finally {
  // One by one: a request that deletes them all would take longer than a request may.
  await node.finish(pods);
  await node.remove();
  await cluster.close();
}

async function compare(port: string): Promise<ReadonlyMap<Encoding, readonly Measurement[]>> {
  const measurements = new Map<Encoding, Measurement[]>(ENCODINGS.map((encoding) => [encoding, []]));
  for (let round = 0; round < settings.rounds; round++) {
    // Neither always comes first.
    for (const encoding of round % 2 === 0 ? ENCODINGS : ENCODINGS.toReversed()) {
      measurements.get(encoding)?.push(await measure(cluster, encoding, port));
    }
  }
  return measurements;
}

async function measure({ api, kubeconfig }: Cluster, encoding: Encoding, port: string): Promise<Measurement> {
  const before = await serverCpuSeconds(api);
  const reader = join(import.meta.dirname, 'lists', 'reader.ts');
  // Not synchronously: the slow way is made by this process.
  const { stdout: said } = await promisify(execFile)(process.execPath, [reader, kubeconfig, encoding, port]);
  const serverSeconds = (await serverCpuSeconds(api)) - before;
  return { ...(JSON.parse(said) as Reading), serverCpuSeconds: serverSeconds };
}

/** As the API server counts it; making the metrics is part of it, and the same for both. */
async function serverCpuSeconds(api: Cluster['api']): Promise<number> {
  const text = await api.call<string>('GET', '/metrics');
  const value = /^process_cpu_seconds_total (\S+)$/m.exec(text)?.[1];
  if (value === undefined) throw new Error('the API server does not say how much CPU it has used');
  return Number(value);
}

function tableOf(measurements: ReadonlyMap<Encoding, readonly Measurement[]>): string {
  const columns: readonly (readonly [string, (each: Measurement) => number, number])[] = [
    ['pods', ({ pods }) => pods, 0],
    ['MB', ({ bytes }) => bytes / 1e6, 2],
    ['seconds', ({ seconds }) => seconds, 2],
    ['CPU here', ({ cpuSeconds }) => cpuSeconds, 2],
    ['CPU of the API server', ({ serverCpuSeconds: seconds }) => seconds, 2],
  ];
  const rows = [...measurements].map(([encoding, all]) => [
    encoding,
    ...columns.map(([, numberOf, digits]) => {
      const { median, min, max } = spreadOf(all.map(numberOf));
      return `${median.toFixed(digits)} (${min.toFixed(digits)} to ${max.toFixed(digits)})`;
    }),
  ]);
  return table([['', ...columns.map(([name]) => name)], ...rows]);
}
