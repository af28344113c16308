import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ensureCertificates } from '../src/certs/index.ts';
import { driveOnce } from './load.ts';
import { describeMachine } from './machine.ts';
import { positive, readOptions } from './options.ts';
import { type Server, startServer, stopServer } from './servers.ts';
import { median, spreadOf, table } from './statistics.ts';
import { build, pinning } from './toolchain.ts';

// What a reload of policies costs reviews: percentiles at one rate, by turns without and with reloads.

const usage = `usage: node bench/reload.ts [--seconds N] [--rounds N] [--rate N] [--kilobytes N] [--quick]
  --seconds    length of each measurement (default 20)
  --rounds     rounds of both (default 7)
  --rate       reviews a second (default 200)
  --kilobytes  of policies (default 1000)
  --quick      does it still work? one round of 5 s`;
const text = { type: 'string' } as const;
const settings = readOptions(
  process.argv.slice(2),
  {
    seconds: text,
    rounds: text,
    rate: text,
    kilobytes: text,
    quick: { type: 'boolean', default: false },
  },
  usage,
  ({ quick, ...written }) => ({
    seconds: positive('seconds', written.seconds ?? (quick ? '5' : '20')),
    rounds: positive('rounds', written.rounds ?? (quick ? '1' : '7')),
    rate: positive('rate', written.rate ?? '200'),
    bytes: 1000 * positive('kilobytes', written.kilobytes ?? '1000'),
  }),
);

/**
 * Reading, parsing and applying 1 MB takes less than a second, which ends with the line in the log. What is late because
 * of it may have been due a little later.
 */
const RELOAD_MS = { before: 1_000, after: 100 };
const WARMUP_SECONDS = 4;

const bench = import.meta.dirname;
const scratch = mkdtempSync(join(tmpdir(), 'linger-bench-'));
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }));
const policies = join(scratch, 'policies');
mkdirSync(policies);

/** The policies of teams, none of which selects the pod that is reviewed. */
function writePolicies(waitSeconds: number): void {
  let written = '';
  for (let team = 0; written.length < settings.bytes; team++)
    written += `---
apiVersion: linger.dev/v1alpha1
kind: ClusterTerminationPolicy
metadata: {name: team-${team}}
spec:
  namespaceSelector: {matchLabels: {team: team-${team}}}
  wait: {from: Fixed, fixed: ${waitSeconds}s}
`;
  writeFileSync(join(policies, '.new'), written);
  renameSync(join(policies, '.new'), join(policies, 'teams.yaml'));
}

/** When reloads were over, Unix time in ms. */
function reloads({ logFile }: Server): readonly number[] {
  return readFileSync(logFile, 'utf8')
    .split('\n')
    .filter((line) => line.includes('"policies reloaded"'))
    .map((line) => new Date((JSON.parse(line) as { time: string | number }).time).getTime());
}

/** Changes the policies until the signal aborts, each time as soon as the last change is in force. */
async function keepReloading(server: Server, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    const before = reloads(server).length;
    writePolicies(10 + (before % 10));
    while (reloads(server).length === before && !signal.aborted) await sleep(50);
  }
}

/** Milliseconds. */
interface Measured {
  readonly p50: number;
  readonly p99: number;
  readonly max: number;
  readonly reviews: number;
  readonly reloads: number;
  /** Cores that neither the server nor the load used. */
  readonly others: number;
}

function quantile(sorted: readonly number[], share: number): number {
  return sorted[Math.ceil(sorted.length * share) - 1] ?? Number.NaN;
}

async function measure(server: Server, reloading: boolean): Promise<Measured> {
  const from = Date.now();
  const samplesFile = join(scratch, 'samples');
  const ending = new AbortController();
  const changing = reloading ? keepReloading(server, ending.signal) : undefined;
  const { othersCpu } = await driveOnce(
    server,
    { reviewFile, seconds: settings.seconds, rate: settings.rate, samplesFile },
    generator,
  );
  ending.abort();
  await changing;
  const ends = reloads(server).filter((at) => at > from);
  const during = (due: number) =>
    ends.some((end) => due > end - RELOAD_MS.before && due < end + RELOAD_MS.after);
  const latencies = readFileSync(samplesFile, 'utf8')
    .trimEnd()
    .split('\n')
    .map((line) => line.split(' ').map(Number) as [number, number])
    .filter(([due]) => !reloading || during(due))
    .map(([, latency]) => latency)
    .toSorted((a, b) => a - b);
  const [p50, p99, max] = [0.5, 0.99, 1].map((share) => quantile(latencies, share)) as [
    number,
    number,
    number,
  ];
  return { p50, p99, max, reviews: latencies.length, reloads: ends.length, others: othersCpu };
}

const pinned = pinning();
const generator = { binaries: { load: build(bench, 'load'), controllerRuntime: '' }, pinning: pinned };
const reviewFile = join(bench, 'data', 'review-3k.json');
await ensureCertificates({ directory: scratch, names: ['127.0.0.1'] }, new Date());
writePolicies(9);
console.error(`${describeMachine()}; load average ${loadavg()[0]!.toFixed(2)}; ${pinned.text}`);
const server = await startServer('linger', { root: dirname(bench), scratch, ...generator }, [
  ...['--policies', policies],
]);
const measured: Record<'idle' | 'reloading', Measured[]> = { idle: [], reloading: [] };
try {
  await serving(server);
  await driveOnce(server, { reviewFile, seconds: WARMUP_SECONDS }, generator);
  for (let round = 0; round < settings.rounds; round++) {
    for (const kind of ['idle', 'reloading'] as const) {
      const result = await measure(server, kind === 'reloading');
      measured[kind].push(result);
      console.error(
        `  round ${round + 1}/${settings.rounds} ${kind}: p50 ${result.p50.toFixed(2)}, p99 ${result.p99.toFixed(2)}, longest ${result.max.toFixed(2)} ms; ${result.reviews} reviews, ${result.reloads} reloads; others used ${result.others.toFixed(2)} cores`,
      );
      // What it wrote last comes into force in quiet.
      if (kind === 'reloading') await sleep(4_000);
    }
  }
} finally {
  await stopServer(server);
}

const cell = (values: readonly number[]) => {
  const { median: middle, min, max } = spreadOf(values);
  return `${middle.toFixed(2)} (${min.toFixed(2)} to ${max.toFixed(2)})`;
};
const rows = Object.entries(measured).map(([kind, all]) => [
  kind,
  ...(['p50', 'p99', 'max'] as const).map((each) => cell(all.map((result) => result[each]))),
  String(all.reduce((sum, { reviews }) => sum + reviews, 0)),
  String(all.reduce((sum, each) => sum + each.reloads, 0)),
]);
console.log(table([['', 'p50 ms', 'p99 ms', 'longest ms', 'reviews', 'reloads'], ...rows]));
const ratios = measured.reloading.map(({ p99 }, round) => p99 / measured.idle[round]!.p99);
console.log(`\np99 while policies are reloaded ÷ p99 idle: ${cell(ratios)}; target: at most 2`);
if (median(ratios) > 2) console.log('MISSED');

/** Until it listens: reading so many policies takes a moment. */
async function serving({ logFile, child }: Server): Promise<void> {
  while (!readFileSync(logFile, 'utf8').includes('"listening"')) {
    if (child.exitCode !== null) throw new Error(`linger ended: ${readFileSync(logFile, 'utf8')}`);
    await sleep(50);
  }
}
