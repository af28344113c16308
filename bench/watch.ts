import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { issueAuthority, issueServingCertificate } from '../src/certs/issue.ts';
import { describeMachine, QUIET_CPU } from './machine.ts';
import { build, goVersion, moduleVersion, pinning } from './toolchain.ts';
import { type Measurement, measure } from './watch/measure.ts';
import type { ProgramName, Surroundings } from './watch/programs.ts';
import { startReplay } from './watch/replay.ts';
import { printTables, ratiosOf, rowOf } from './watch/report.ts';
import { readSettings } from './watch/settings.ts';

// `npm run bench:watch`: what it costs to follow a large cluster, in Linger and in a program made with client-go,
// measured in one run on the same replayed stream. See README.md for how, and for how to read what comes out.

const bench = import.meta.dirname;
const settings = readSettings(process.argv.slice(2), join(bench, 'results', 'watch.json'));
const recordings = join(bench, 'data', 'watch');
const surroundings: Surroundings = {
  root: dirname(bench),
  scratch: mkdtempSync(join(tmpdir(), 'linger-bench-')),
  binaries: { clientGo: build(bench, 'client-go'), replay: build(bench, 'replay') },
  pinning: pinning(),
  recordings: readdirSync(recordings).map((file) => join(recordings, file)),
};
process.on('exit', () => rmSync(surroundings.scratch, { recursive: true, force: true }));
await writeServiceAccount(surroundings.scratch);

const machine = describeMachine();
const load = loadavg()[0]!;
console.error(`${machine}; load average ${load.toFixed(2)}; ${surroundings.pinning.text}`);
const replay = await startReplay(settings, surroundings);
const { volume } = replay;
console.error(
  `lists of ${megabytes(volume.listBytes)} MB, then ${volume.streamEvents} events of ${megabytes(volume.streamBytes)} MB`,
);
const measurements = new Map<ProgramName, Measurement[]>(settings.programs.map((name) => [name, []]));
for (let round = 0; round < settings.rounds; round++) {
  for (const at of settings.programs.keys()) {
    // Each round begins with another program, so that none always follows the same one.
    const program = settings.programs[(round + at) % settings.programs.length]!;
    const measurement = await measure(program, replay, surroundings, settings.attempts);
    measurements.get(program)!.push(measurement);
    console.error(`  round ${round + 1}/${settings.rounds} ${progress(measurement)}`);
  }
}
await replay.stop();

const rows = new Map([...measurements].map(([name, measured]) => [name, rowOf(measured)]));
const ratios = ratiosOf(measurements);
printTables(rows, ratios);
if (!settings.whole) console.log('not the whole: the targets are for 13,000 Services and 150,000 pods');
for (const [name, { spread }] of rows) {
  const [, most] = spread.othersCpu;
  if (most > QUIET_CPU) console.log(`disturbed: others used up to ${most} cores beside ${name}`);
}
if (settings.output !== undefined) {
  const results = {
    machine,
    date: new Date().toISOString(),
    node: process.version,
    go: goVersion(bench),
    clientGoVersion: moduleVersion(bench, 'client-go', 'k8s.io/client-go'),
    pinning: surroundings.pinning.text,
    loadAverageBefore: load,
    rounds: settings.rounds,
    sizes: volume,
    ...Object.fromEntries(rows),
    ratios,
  };
  mkdirSync(dirname(settings.output), { recursive: true });
  writeFileSync(settings.output, `${JSON.stringify(results, null, 2)}\n`);
}

/** A server's certificate, and how a pod finds its API server trustworthy. */
async function writeServiceAccount(directory: string): Promise<void> {
  const now = new Date();
  const authority = await issueAuthority(now);
  const { cert, key } = await issueServingCertificate(authority, ['localhost', '127.0.0.1'], now);
  const files = {
    'tls.crt': cert,
    'tls.key': key,
    'ca.crt': authority.certificate,
    token: 'bench',
    namespace: 'bench',
  };
  for (const [name, text] of Object.entries(files)) {
    writeFileSync(join(directory, name), text, { mode: 0o600 });
  }
}

function megabytes(bytes: number): string {
  return (bytes / 1e6).toFixed(0);
}

function progress({
  program,
  syncSeconds,
  eventsPerSecond,
  rssMb,
  peakRssMb,
  replayCpu,
}: Measurement): string {
  const server = `replay server ${(100 * replayCpu).toFixed(0)} % of its core`;
  return `${program}: synced after ${syncSeconds.toFixed(1)} s; ${eventsPerSecond.toFixed(0)} events/s; RSS ${rssMb.toFixed(0)}, peak ${peakRssMb.toFixed(0)} MB; ${server}`;
}
