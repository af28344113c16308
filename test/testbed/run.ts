import { delimiter, dirname, join } from 'node:path';
import { LONG } from '../scenarios/form.ts';
import { ensureContour, ensureCoreDns, ensureHelm, ensureReportCrd } from './binaries.ts';
import { bootedAt } from './boot.ts';
import { ensureEnvoy, ensureHaproxy } from './gateways.ts';
import { down, inherit, up } from './lifecycle.ts';
import { enter } from './network.ts';
import { clusterSettings } from './settings.ts';

/*
 * npm run test:cluster -- VITEST ARGS…
 * Our own cluster: up, the suite inside its network, down, unless it was up before or
 * KEEP_CLUSTER=1. With KUBECONFIG: only the suite.
 */
const root = join(import.meta.dirname, '..', '..');
const config = join(import.meta.dirname, 'vitest.config.ts');
const vitest = join(root, 'node_modules', 'vitest', 'vitest.mjs');
const suite = [process.execPath, vitest, 'run', '--root', root, '--config', config, ...process.argv.slice(2)];
// What the suite spawns as `node` must be the node that runs this, not an older one of the machine.
const env = { ...process.env, PATH: `${dirname(process.execPath)}${delimiter}${process.env.PATH ?? ''}` };

const say = (line: string) => console.log(line);

async function runInOwnCluster(): Promise<number> {
  const settings = clusterSettings();
  const before = bootedAt(settings);
  // Now: from inside the cluster's network nothing can be fetched.
  const wanted = [ensureHaproxy, ensureEnvoy, ensureContour, ensureHelm, ensureCoreDns];
  if (LONG) for (const ensure of wanted) await ensure(settings.cacheDir, say);
  await ensureReportCrd('wgpolicyk8s.io', settings.cacheDir);
  await ensureReportCrd('openreports.io', settings.cacheDir);
  const code = await up(settings, {}, say);
  if (code !== 0) return code;
  const keep = process.env.KEEP_CLUSTER === '1' || bootedAt(settings) === before;
  // Ctrl-C reaches the suite too, as part of this terminal's group: it ends, and then the cluster does.
  process.on('SIGINT', () => {});
  try {
    return await inherit([...enter(settings.name), ...suite], env);
  } finally {
    if (keep) say('the cluster stays up (npm run cluster:down)');
    else await down(settings, say);
  }
}

async function main(): Promise<number> {
  const named = process.env.KUBECONFIG !== undefined && process.env.KUBECONFIG !== '';
  return named ? inherit(suite, env) : runInOwnCluster();
}

process.exitCode = await main().catch((error: unknown) => {
  console.error(error instanceof Error ? `failed: ${error.message}` : error);
  return 1;
});
