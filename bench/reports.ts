import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureCertificates } from '../src/certs/index.ts';
import { positive, readOptions } from './options.ts';
import { started, stop } from './processes.ts';
import { median, spreadOf, table } from './statistics.ts';

// What reports cost reviews: 99th percentiles of reviews at one rate, without reports, with those of 1,000 instances, and
// with a flood. The three take turns on one server.

const usage = `usage: node bench/reports.ts [--seconds N] [--rounds N] [--rate N]
  --seconds   length of each measurement (default 10)
  --rounds    rounds of all three (default 5)
  --rate      reviews a second (default 200)`;
const text = { type: 'string' } as const;
const { seconds, rounds, rate } = readOptions(
  process.argv.slice(2),
  { seconds: text, rounds: text, rate: text },
  usage,
  (written) => ({
    seconds: positive('seconds', written.seconds ?? '10'),
    rounds: positive('rounds', written.rounds ?? '5'),
    rate: positive('rate', written.rate ?? '200'),
  }),
);

/** Reports a second, and connections, of those who disturb. */
const DISTURBANCES = {
  none: undefined,
  'reports of 1,000 instances': ['reports', '200', '50'],
  'a flood on 50 connections': ['flood', '0', '50'],
} as const;
type Disturbance = keyof typeof DISTURBANCES;

const HERE = join(import.meta.dirname, 'reports');
const scratch = mkdtempSync(join(tmpdir(), 'linger-bench-'));
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }));

async function run(file: string, args: readonly string[]): Promise<ChildProcess> {
  const child = fork(join(HERE, file), args, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  await started(file, child);
  return child;
}

async function asked<T>(child: ChildProcess): Promise<T> {
  child.send('');
  const [said] = (await once(child, 'message')) as [T];
  return said;
}

/** One round. Milliseconds; `cpu`: cores that the server used. */
interface Measured {
  readonly p50: number;
  readonly p99: number;
  readonly cpu: number;
  readonly results: Readonly<Record<string, number>>;
}

/** Milliseconds. */
function quantile(times: readonly number[], share: number): number {
  return times.toSorted((a, b) => a - b)[Math.floor(times.length * share)] ?? Number.NaN;
}

await ensureCertificates({ directory: scratch, names: ['127.0.0.1'] }, new Date());
const server = await run('server.ts', [scratch]);
const [{ port }] = (await once(server, 'message')) as [{ port: number }];
const review = join(import.meta.dirname, 'data', 'review-3k.json');
const reviews = await run('senders.ts', ['reviews', String(port), String(rate), '16', review]);
await sleep(5_000);

const measured: Record<Disturbance, Measured[]> = {
  none: [],
  'reports of 1,000 instances': [],
  'a flood on 50 connections': [],
};
const names = Object.keys(DISTURBANCES) as Disturbance[];
for (let round = 0; round < rounds; round++) {
  for (const name of names) {
    const [kind, perSecond, connections] = DISTURBANCES[name] ?? [];
    const sender =
      kind && (await run('senders.ts', [kind, String(port), perSecond ?? '', connections ?? '']));
    // Its handshakes are over.
    await sleep(2_000);
    await Promise.all([asked(reviews), asked(server)]);
    await sleep(seconds * 1000);
    const { times } = await asked<{ times: number[] }>(reviews);
    const { results, cpu } = await asked<{ results: Record<string, number>; cpu: number }>(server);
    if (sender) await stop(sender, 'SIGTERM', 1_000);
    measured[name].push({
      p50: quantile(times, 0.5),
      p99: quantile(times, 0.99),
      cpu: cpu / seconds,
      results,
    });
  }
}
await Promise.all([server, reviews].map((child) => stop(child, 'SIGTERM', 1_000)));

const milliseconds = (values: readonly number[]) => {
  const { median: middle, min, max } = spreadOf(values);
  return `${middle.toFixed(2)} (${min.toFixed(2)} to ${max.toFixed(2)})`;
};
const rows = names.map((name) => {
  const all = measured[name];
  const ratio = median(all.map(({ p99 }, round) => p99 / measured.none[round]!.p99));
  const counts = Object.entries(all.at(-1)?.results ?? {}).map(
    ([result, count]) => `${result} ${Math.round(count / seconds)}`,
  );
  return [
    name,
    milliseconds(all.map(({ p50 }) => p50)),
    milliseconds(all.map(({ p99 }) => p99)),
    ratio.toFixed(2),
    median(all.map(({ cpu }) => cpu)).toFixed(3),
    counts.join(', ') || '-',
  ];
});
console.log(table([['beside', 'p50 ms', 'p99 ms', 'p99 ratio', 'cores', 'reports a second'], ...rows]));
process.exit(0);
