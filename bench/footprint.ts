import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import { buildProgram } from '../deploy/build.ts';
import { issueAuthority, issueServingCertificate } from '../src/certs/issue.ts';
import { cpuSecondsOf, describeMachine, memoryOf } from './machine.ts';
import { freePorts, lingerRuntime } from './servers.ts';
import { build, pinning } from './toolchain.ts';
import { startTalker, stopTalker } from './watch/process.ts';
import type { Surroundings } from './watch/programs.ts';
import { startReplay } from './watch/replay.ts';

// `npm run bench:footprint`: what a replica is, as the image runs it: how large, how soon ready, how much memory and
// processor it takes at rest, in clusters of some sizes. One run each: sizes and memory vary little.

const { values: flags } = parseArgs({
  options: {
    pods: { type: 'string', default: '1000,10000,150000' },
    seconds: { type: 'string', default: '30' },
  },
});
const IDLE_SECONDS = Number(flags.seconds);
/** Half of the 512 MiB in deploy/: what Node takes for its heap there. */
const HEAP_MB = 256;

const bench = import.meta.dirname;
const root = dirname(bench);
const scratch = mkdtempSync(join(tmpdir(), 'linger-bench-'));
process.on('exit', () => rmSync(scratch, { recursive: true, force: true }));
const recordings = join(bench, 'data', 'watch');
const surroundings: Surroundings = {
  root,
  scratch,
  pinning: pinning(),
  binaries: { clientGo: '', replay: build(bench, 'replay') },
  recordings: readdirSync(recordings).map((file) => join(recordings, file)),
};
const authority = await issueAuthority(new Date());
const { cert, key } = await issueServingCertificate(authority, ['localhost', '127.0.0.1'], new Date());
for (const [name, text] of Object.entries({
  'tls.crt': cert,
  'tls.key': key,
  'ca.crt': authority.certificate,
}))
  writeFileSync(join(scratch, name), text, { mode: 0o600 });

console.error(describeMachine());
await buildProgram(join(root, 'dist'));
printSize();
console.log('pods     Services  ready after s  RSS MB  peak MB  heap MB  idle mCPU');
for (const pods of flags.pods.split(',').map(Number)) await measureWith(pods);

/** What of the image is ours to choose, as a registry stores it; the base, glibc and libstdc++, comes on top. */
function printSize(): void {
  const dist = readdirSync(join(root, 'dist'), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !entry.name.endsWith('.map'))
    .map((entry) => readFileSync(join(entry.parentPath, entry.name)));
  const compressed = (bytes: Buffer) => (gzipSync(bytes).length / 1e6).toFixed(1);
  const node = compressed(readFileSync(process.execPath));
  console.log(`compressed: Node ${node} MB, the bundle ${compressed(Buffer.concat(dist))} MB`);
}

async function measureWith(pods: number): Promise<void> {
  // A Service for each 11.5 pods, as in the cluster of the field report.
  const services = Math.round((pods * 13) / 150);
  const settings = { services, pods, replacements: 100, rounds: 1, attempts: 1 };
  const replay = await startReplay(
    { ...settings, programs: ['linger'], whole: false, output: undefined },
    surroundings,
  );
  const [port = 0, adminPort = 0] = await freePorts(2);
  const config = join(scratch, 'kubeconfig');
  writeFileSync(config, kubeconfig(replay.port));
  const { nodeFlags, program, environment } = lingerRuntime(surroundings);
  const heap = `${environment.NODE_OPTIONS} --max-old-space-size=${HEAP_MB}`;
  const serve = [
    'serve',
    '--port',
    String(port),
    '--admin-port',
    String(adminPort),
    '--certs',
    scratch,
    '--drain',
    '0s',
  ];
  const command = [process.execPath, ...nodeFlags, join(root, program), ...serve, '--kubeconfig', config];
  const begun = performance.now();
  const talker = await startTalker({ name: 'linger', command, env: { ...environment, NODE_OPTIONS: heap } });
  try {
    while (!(await answers(`http://127.0.0.1:${adminPort}/readyz`))) await sleep(20);
    const readySeconds = (performance.now() - begun) / 1000;
    // Ready is before the pods have been listed.
    while (!/^linger_watch_current\{[^}]*"pods"[^}]*\} 1$/m.test(await metricsOf(adminPort)))
      await sleep(500);
    await sleep(15_000);
    const before = cpuSecondsOf(talker);
    await sleep(IDLE_SECONDS * 1000);
    const idle = ((cpuSecondsOf(talker) - before) / IDLE_SECONDS) * 1000;
    const { rssMb, peakRssMb } = memoryOf(talker);
    const metrics = await metricsOf(adminPort);
    const heapMb = Number(/^nodejs_heap_size_used_bytes (\S+)$/m.exec(metrics)?.[1]) / 1e6;
    const columns = [
      readySeconds.toFixed(2),
      rssMb.toFixed(0),
      peakRssMb.toFixed(0),
      heapMb.toFixed(0),
      idle.toFixed(1),
    ];
    console.log(
      [String(pods).padEnd(9), String(services).padEnd(10), ...columns.map((text) => text.padEnd(9))].join(
        '',
      ),
    );
  } finally {
    await stopTalker(talker);
    await replay.stop();
  }
}

async function metricsOf(adminPort: number): Promise<string> {
  return (await fetch(`http://127.0.0.1:${adminPort}/metrics`)).text();
}

async function answers(url: string): Promise<boolean> {
  return fetch(url).then(
    ({ ok }) => ok,
    () => false,
  );
}

function kubeconfig(port: number): string {
  const ca = Buffer.from(authority.certificate).toString('base64');
  return JSON.stringify({
    'current-context': 'here',
    clusters: [
      { name: 'here', cluster: { server: `https://127.0.0.1:${port}`, 'certificate-authority-data': ca } },
    ],
    users: [{ name: 'here', user: { token: 'bench' } }],
    contexts: [{ name: 'here', context: { cluster: 'here', user: 'here' } }],
  });
}
