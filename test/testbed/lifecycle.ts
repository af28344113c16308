import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { type Binaries, ensureBinaries } from './binaries.ts';
import {
  boot,
  componentStatus,
  currentFlags,
  hasState,
  refreshImages,
  restartComponent,
  whyNotBooted,
} from './boot.ts';
import { findLeftovers, leftoversOf, removeCluster, visitors } from './leftovers.ts';
import { exclusively } from './lock.ts';
import { createNamespace, enter, insideNamespace, namespaceExists, network } from './network.ts';
import { ensureRoot, ensureSystem } from './requirements.ts';
import { removeSecondNode } from './second-node.ts';
import {
  type ClusterSettings,
  componentNames,
  type ExtraFlags,
  environmentOf,
  secondNodeOf,
  statePaths,
} from './settings.ts';
import { claimStateDirectory } from './state-directory.ts';

type Say = (line: string) => void;

/** Tells the outer process that a cluster whose processes all run does not work nevertheless. */
const UNHEALTHY = 3;

/** Brings the cluster up, whatever state it is in; returns the exit code. */
export async function up(settings: ClusterSettings, extraFlags: ExtraFlags, say: Say): Promise<number> {
  if (insideNamespace(settings.name)) {
    throw new Error('this already runs inside the cluster; run up and down from outside');
  }
  ensureRoot();
  claimStateDirectory(settings);
  return exclusively(statePaths(settings.stateDir).lock, say, async () => {
    await ensureSystem(say);
    const binaries = await ensureBinaries(settings.cacheDir, say);
    if (hasState(settings) || findLeftovers(settings).length > 0) {
      const reason = whyNotBooted(settings, binaries);
      const code =
        reason === undefined ? await again(settings, ['verify', JSON.stringify(extraFlags)]) : UNHEALTHY;
      if (code !== UNHEALTHY) return code;
      say(`found a cluster that is not whole (${reason ?? 'not healthy'}): removing it`);
      await removeCluster(settings);
    }
    await createNamespace(settings.name);
    return again(settings, ['boot', JSON.stringify(extraFlags)]);
  });
}

/** Runs main.ts inside the cluster's network: what it starts and asks is then in the right place. */
export function again(settings: ClusterSettings, args: readonly string[]): Promise<number> {
  const main = [process.execPath, join(import.meta.dirname, 'main.ts'), ...args];
  return inherit([...enter(settings.name), ...main], environmentOf(settings));
}

/** Runs a command on this process's terminal; resolves to its exit code. */
export function inherit(argv: readonly string[], env: NodeJS.ProcessEnv = process.env): Promise<number> {
  const [program = '', ...args] = argv;
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, { stdio: 'inherit', env });
    child.on('error', (error) => reject(new Error(`cannot start ${program}: ${error.message}`)));
    child.on('close', (code) => resolve(code ?? 1));
  });
}

/** The inner half of {@link up} for a cluster that does not run. */
export async function bootInside(
  settings: ClusterSettings,
  extraFlags: ExtraFlags,
  say: Say,
): Promise<number> {
  const binaries = await ensureBinaries(settings.cacheDir, say);
  await boot({ settings, binaries, extraFlags, say });
  announce(settings, say);
  return 0;
}

/** The inner half of {@link up} for one that does: is it well, and does it have the flags and images asked for? */
export async function verifyInside(
  settings: ClusterSettings,
  extraFlags: ExtraFlags,
  say: Say,
): Promise<number> {
  const binaries = await ensureBinaries(settings.cacheDir, say);
  if (leftoversOf(secondNodeOf(settings)).length > 0) {
    say('removing the second node, which a test has left');
    await removeSecondNode(settings);
  }
  const ill = (await componentStatus(settings, binaries)).filter(({ problem }) => problem !== undefined);
  for (const { name, problem } of ill) say(`${name} ${problem}`);
  if (ill.length > 0) return UNHEALTHY;
  await applyFlags(settings, binaries, extraFlags, say);
  if (await refreshImages(settings, binaries)) say('the test images had changed and were imported again');
  say('already up and healthy');
  announce(settings, say);
  return 0;
}

/** In the order of a boot: the API server before those that depend on it. */
async function applyFlags(settings: ClusterSettings, binaries: Binaries, extraFlags: ExtraFlags, say: Say) {
  for (const name of componentNames) {
    const flags = extraFlags[name];
    if (flags === undefined || currentFlags(settings, binaries, name).join('\0') === flags.join('\0'))
      continue;
    say(`restarting ${name} with ${flags.join(' ')}`);
    await restartComponent(settings, binaries, name, flags);
  }
}

function announce(settings: ClusterSettings, say: Say): void {
  const paths = statePaths(settings.stateDir);
  say(
    `cluster ${settings.name}: https://${network.nodeAddress}:${network.apiPort}, inside network namespace ${settings.name}`,
  );
  say(`kubeconfig: ${paths.kubeconfig}`);
  say(`logs: ${paths.logs}`);
}

/** Stops the cluster and removes everything but its logs; returns the exit code. */
export async function down(settings: ClusterSettings, say: Say): Promise<number> {
  const paths = statePaths(settings.stateDir);
  ensureRoot();
  claimStateDirectory(settings);
  return exclusively(paths.lock, say, async () => {
    if (findLeftovers(settings).length === 0) {
      say(`cluster ${settings.name} is not up`);
      return 0;
    }
    // Not ours to stop; they keep the network namespace alive, without its name and its node.
    for (const { pid, command } of visitors(settings)) say(`still running in its network: ${pid} ${command}`);
    await removeCluster(settings);
    const left = findLeftovers(settings);
    for (const line of left) say(`could not remove: ${line}`);
    say(`cluster ${settings.name} is down; its logs stay in ${paths.logs}`);
    return left.length === 0 ? 0 : 1;
  });
}

/** Prints one line per component; 0 when all work. Runs inside the cluster's network. */
export async function statusInside(settings: ClusterSettings, say: Say): Promise<number> {
  const binaries = await ensureBinaries(settings.cacheDir, say);
  const all = await componentStatus(settings, binaries);
  for (const { name, pid, problem, logFile } of all) {
    say(`${name.padEnd(24)} ${String(pid ?? '-').padEnd(8)} ${(problem ?? 'healthy').padEnd(10)} ${logFile}`);
  }
  for (const { pid, command } of visitors(settings)) say(`also in this network: ${pid} ${command}`);
  return all.every(({ problem }) => problem === undefined) ? 0 : 1;
}

/** {@link statusInside}, or what is left when there is no cluster. */
export async function status(settings: ClusterSettings, say: Say): Promise<number> {
  if (hasState(settings) && namespaceExists(settings.name)) return again(settings, ['status']);
  const left = findLeftovers(settings);
  for (const line of left) say(`left over: ${line}`);
  say(`cluster ${settings.name} is not up`);
  return 1;
}
