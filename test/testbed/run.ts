import { spawn } from 'node:child_process';
import { existsSync, globSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { LONG } from '../scenarios/form.ts';
import {
  certManagerCrds,
  ensureArgoRollouts,
  ensureContour,
  ensureCoreDns,
  ensureFloors,
  ensureGatekeeper,
  ensureHelm,
  ensureIstiod,
  ensureKyverno,
  ensureLogind,
  ensurePilotAgent,
  ensurePromtool,
  ensureQueueProxy,
  ensureReportCrd,
  ensureTraefik,
} from './binaries.ts';
import { bootedAt } from './boot.ts';
import { ensureBuilder } from './builder.ts';
import { ensureEureka } from './eureka.ts';
import { ALONE, EVERYTHING } from './files.ts';
import { ensureEnvoy, ensureHaproxy } from './gateways.ts';
import { down, up } from './lifecycle.ts';
import { enter } from './network.ts';
import { besides, type ClusterSettings, clusterSettings, environmentOf } from './settings.ts';

/*
 * npm run test:cluster -- VITEST ARGS…
 * Our own cluster: up, the suite inside its network, down, unless it was up before or KEEP_CLUSTER=1. Without a file it is
 * the whole suite, in two clusters at once: most of the time it waits. With KUBECONFIG: only the suite, in that cluster.
 */
const root = join(import.meta.dirname, '..', '..');
const config = join(import.meta.dirname, 'vitest.config.ts');
const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
const suite = [process.execPath, vitest, 'run', '--root', root, '--config', config];
const args = process.argv.slice(2);
// What the suite spawns as `node` must be the node that runs this, not an older one of the machine.
const PATH = `${dirname(process.execPath)}${delimiter}${process.env.PATH ?? ''}`;

const say = (line: string) => console.log(line);

/** Aborted by the first signal: what runs ends, and then the clusters do. */
const stopping = new AbortController();

/** Resolves to its exit code, after its output has been passed on: at once, or with `whole` when it has ended. */
function execute(argv: readonly string[], env: NodeJS.ProcessEnv, whole = false): Promise<number> {
  const [program = '', ...rest] = argv;
  const { signal } = stopping;
  const stdio = whole ? ('pipe' as const) : ('inherit' as const);
  return new Promise((resolve, reject) => {
    const child = spawn(program, rest, { stdio, env: { ...env, PATH }, signal });
    const output: Buffer[] = [];
    for (const stream of [child.stdout, child.stderr]) stream?.on('data', (chunk) => output.push(chunk));
    child.on('error', (error) => {
      if (!signal.aborted) reject(new Error(`cannot start ${program}: ${error.message}`));
    });
    child.on('close', (code) => {
      process.stdout.write(Buffer.concat(output));
      resolve(code ?? 1);
    });
  });
}

/** Does the work in a cluster. @returns the exit code of that, or of what went wrong before it */
async function withCluster(settings: ClusterSettings, work: () => Promise<number>): Promise<number> {
  const before = bootedAt(settings);
  const code = await up(settings, {}, say);
  if (code !== 0) return code;
  const keep = process.env.KEEP_CLUSTER === '1' || bootedAt(settings) === before;
  try {
    return await work();
  } finally {
    if (keep) say(`cluster ${settings.name} stays up (npm run cluster:down)`);
    else await down(settings, say);
  }
}

const inside = (settings: ClusterSettings, words: readonly string[], whole = false) => {
  const env = { ...environmentOf(settings), LINGER_OUTSIDE: `/proc/${process.pid}/ns/net` };
  return execute([...enter(settings.name), ...suite, ...words], env, whole);
};

/** Each file on its own, in the cluster that is free; then, in one cluster, those that nothing may disturb. */
async function runEverything(first: ClusterSettings): Promise<number> {
  const second = besides(first);
  const reports = mkdtempSync(join(tmpdir(), 'linger-reports-'));
  let worst = 0;
  const unreported: string[] = [];
  const runEach = async (settings: ClusterSettings, files: Iterable<string>) => {
    for (const file of files) {
      if (stopping.signal.aborted) break;
      say(`${settings.name}: ${file}`);
      const report = join(reports, `${file.replaceAll('/', '-')}.json`);
      const reporting = ['--reporter=verbose', '--reporter=blob', `--outputFile.blob=${report}`];
      worst = Math.max(worst, await inside(settings, [file, ...reporting], true));
      if (!existsSync(report)) unreported.push(file);
    }
    return 0;
  };
  // Backwards: the scenarios, which take longest, do not come last.
  const files = globSync(EVERYTHING, { cwd: root }).toSorted().toReversed();
  const together = files.filter((file) => !ALONE.includes(file)).values();
  try {
    const code = await withCluster(first, async () => {
      const beside = withCluster(second, () => runEach(second, together));
      await runEach(first, together);
      const failed = await beside;
      await runEach(first, ALONE);
      return failed;
    });
    // Their totals, in whatever form is asked for.
    const merged = await execute([...suite, `--merge-reports=${reports}`, ...args], process.env);
    for (const file of unreported) say(`no report of ${file}`);
    return Math.max(code, worst, merged);
  } finally {
    rmSync(reports, { recursive: true });
  }
}

/** What single files need besides, of the long form and of `bench/`. */
const PARTS = {
  'bench/drain/cells.test.ts': [ensureEnvoy],
  'test/scenarios/alerts.test.ts': [ensurePromtool],
  'test/scenarios/argo-rollouts.test.ts': [ensureArgoRollouts],
  'test/scenarios/cert-manager.test.ts': [certManagerCrds],
  'test/scenarios/discovered-gateways.test.ts': [ensureEnvoy, ensureContour, ensureTraefik, ensureIstiod],
  'test/scenarios/eureka.test.ts': [ensureEureka],
  'test/scenarios/gatekeeper.test.ts': [ensureGatekeeper],
  'test/scenarios/hold.test.ts': [ensureEnvoy, ensureContour],
  'test/scenarios/image.test.ts': [ensureBuilder],
  'test/scenarios/istio.test.ts': [ensureEnvoy, ensureIstiod],
  'test/scenarios/istio-sidecars.test.ts': [ensureEnvoy, ensureIstiod, ensurePilotAgent],
  'test/scenarios/kyverno.test.ts': [ensureKyverno],
  'test/scenarios/node-shutdown.test.ts': [ensureLogind],
  'test/scenarios/stale-upstream.test.ts': [ensureEnvoy, ensureContour],
};

async function runInOwnCluster(): Promise<number> {
  const settings = clusterSettings();
  // Now: from inside the cluster's network nothing can be fetched.
  const always = [ensureHaproxy, ensureCoreDns, ensureHelm, ensureQueueProxy, ensureFloors];
  for (const ensure of always) await ensure(settings.cacheDir, say);
  const words = args.filter((word) => !word.startsWith('-'));
  const isRun = (file: string) =>
    file.startsWith('bench/')
      ? words.includes(file)
      : LONG && (words.length === 0 || words.some((word) => file.includes(word)));
  for (const [file, ensures] of Object.entries(PARTS))
    if (isRun(file)) for (const ensure of ensures) await ensure(settings.cacheDir, say);
  await ensureReportCrd('wgpolicyk8s.io', settings.cacheDir);
  await ensureReportCrd('openreports.io', settings.cacheDir);
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.on(name, () => stopping.abort());
  if (words.length > 0 || LONG) return withCluster(settings, () => inside(settings, args));
  return runEverything(settings);
}

async function main(): Promise<number> {
  const named = process.env.KUBECONFIG !== undefined && process.env.KUBECONFIG !== '';
  if (!named) return runInOwnCluster();
  // vitest gets it from the terminal, too, and deletes the namespaces then.
  process.on('SIGINT', () => {});
  return execute([...suite, ...args], process.env);
}

process.exitCode = await main().catch((error: unknown) => {
  console.error(error instanceof Error ? `failed: ${error.message}` : error);
  return 1;
});
