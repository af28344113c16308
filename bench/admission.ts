import { mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { issueAuthority, issueServingCertificate } from '../src/certs/issue.ts';
import { describeMachine, QUIET_CPU } from './machine.ts';
import { type Body, fillCompileCache, type Measurement, measureBody } from './measure.ts';
import { printTables, ratiosOf, rowOf } from './report.ts';
import { readSettings } from './settings.ts';
import { buildBinaries, goVersion, pinning } from './toolchain.ts';

// `npm run bench:admission`: Linger, a bare node:https handler and a controller-runtime webhook, measured in one
// run on the same two reviews. See README.md for how, and for how to read what comes out.

const bench = import.meta.dirname;
const settings = readSettings(process.argv.slice(2), join(bench, 'results', 'admission.json'));
const bodies: readonly Body[] = [
  { label: '3.4 KB', file: 'review-3k.json' },
  { label: '16 KB', file: 'review-16k.json' },
].map(({ label, file }) => {
  const reviewFile = join(bench, 'data', file);
  return { label, reviewFile, bytes: statSync(reviewFile).size };
});

const surroundings = {
  root: dirname(bench),
  scratch: mkdtempSync(join(tmpdir(), 'linger-bench-')),
  binaries: buildBinaries(bench),
  pinning: pinning(),
};
process.on('exit', () => rmSync(surroundings.scratch, { recursive: true, force: true }));
await writeCertificate(surroundings.scratch);

const machine = describeMachine();
const load = loadavg()[0]!;
console.error(`${machine}; load average ${load.toFixed(2)}; ${surroundings.pinning.text}`);
if (settings.servers.includes('linger')) await fillCompileCache(bodies[0]!, surroundings);
const measurements: Measurement[] = [];
for (const body of bodies) measurements.push(...(await measureBody(body, settings, surroundings)));

const rows = measurements.map(rowOf);
const ratios = ratiosOf(measurements);
printTables(rows, ratios);
for (const { server, body, othersCpu } of rows) {
  if (othersCpu > QUIET_CPU)
    console.log(`disturbed: others used up to ${othersCpu} cores beside ${server} with ${body}`);
}
if (settings.output !== undefined) {
  const results = {
    machine,
    date: new Date().toISOString(),
    node: process.version,
    go: goVersion(bench),
    pinning: surroundings.pinning.text,
    loadAverageBefore: load,
    seconds: settings.seconds,
    rounds: settings.rounds,
    rows,
    ratios,
  };
  mkdirSync(dirname(settings.output), { recursive: true });
  writeFileSync(settings.output, `${JSON.stringify(results, null, 2)}\n`);
}

/** One pair for all three servers. Linger takes a directory without a ca.key for a user's own. */
async function writeCertificate(directory: string): Promise<void> {
  const now = new Date();
  const { cert, key } = await issueServingCertificate(
    await issueAuthority(now),
    ['localhost', '127.0.0.1'],
    now,
  );
  writeFileSync(join(directory, 'tls.crt'), cert);
  writeFileSync(join(directory, 'tls.key'), key, { mode: 0o600 });
}
