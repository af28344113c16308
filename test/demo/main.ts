import { setTimeout as sleep } from 'node:timers/promises';
import build from '../cli/build.ts';
import { ensureCoreDns } from '../testbed/binaries.ts';
import { openCluster } from '../testbed/cluster.ts';
import { down, inherit, up } from '../testbed/lifecycle.ts';
import { enter, insideNamespace } from '../testbed/network.ts';
import { clusterSettings, environmentOf } from '../testbed/settings.ts';
import { record } from './record.ts';
import { runStage } from './stage.ts';

/*
 * npm run record:demo -- [MINUTES BEFORE] [MINUTES]
 * Boots the test cluster, lets it run for some minutes (30), records some (6), and takes it down.
 */
const [before = 30, minutes = 6] = process.argv.slice(2).map(Number);
const settings = clusterSettings();

/** Outside of the cluster's network. */
async function boot(): Promise<number> {
  const say = (line: string) => console.log(line);
  await build();
  await ensureCoreDns(settings.cacheDir, say);
  const code = await up(settings, {}, say);
  if (code !== 0) return code;
  try {
    const words = [process.execPath, import.meta.filename, String(before), String(minutes)];
    return await inherit([...enter(settings.name), ...words], environmentOf(settings));
  } finally {
    await down(settings, say);
  }
}

async function recordStage(): Promise<number> {
  const ending = new AbortController();
  const cluster = await openCluster();
  const ready = Promise.withResolvers<void>();
  const running = runStage(cluster, ending.signal, ready.resolve);
  await Promise.race([ready.promise, running]);
  await sleep(before * 60_000);
  console.log(`${await record(cluster, minutes * 60)} bytes`);
  ending.abort();
  await running;
  await cluster.close();
  return 0;
}

process.exitCode = insideNamespace(settings.name) ? await recordStage() : await boot();
