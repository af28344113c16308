import { mkdirSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { ensureApplication, ensureBinaries } from './binaries.ts';
import { restartComponent } from './boot.ts';
import { CommandFailure } from './command.ts';
import { ComponentFailure } from './health.ts';
import { buildImageArchive } from './images.ts';
import { again, bootInside, down, inherit, status, statusInside, up, verifyInside } from './lifecycle.ts';
import { enter, insideNamespace, namespaceExists } from './network.ts';
import { ensureRoot, MissingRequirement } from './requirements.ts';
import {
  type ClusterSettings,
  type ComponentName,
  clusterSettings,
  componentNames,
  type ExtraFlags,
  statePaths,
} from './settings.ts';
import { WaitTimeout } from './waiting.ts';

const usage = `usage: node test/testbed/main.ts COMMAND

  up [COMPONENT:FLAG…]        boot the cluster, or say that it is up; for example
                              up kube-controller-manager:--kube-api-qps=5
  down                        stop it and remove everything but its logs
  status                      one line per component
  kubectl ARGS…               kubectl as cluster-admin
  exec COMMAND [ARGS…]        run a command inside the cluster's network
  restart COMPONENT [FLAGS…]  restart one component, with these extra flags only
  images DIRECTORY            write the test images as an archive, to load into another cluster

components: ${componentNames.join(', ')}
environment: LINGER_CLUSTER_NAME (linger-test), LINGER_CACHE (~/.cache), LINGER_CLUSTER_DIR`;

class UsageError extends Error {}

const say = (line: string) => console.log(line);

function componentName(text: string): ComponentName {
  const name = componentNames.find((known) => known === text);
  if (name === undefined)
    throw new UsageError(`no component ${text}; there are ${componentNames.join(', ')}`);
  return name;
}

/** `COMPONENT:FLAG` words to flags per component. */
function extraFlags(words: readonly string[]): ExtraFlags {
  const flags: Partial<Record<ComponentName, string[]>> = {};
  for (const word of words) {
    const colon = word.indexOf(':');
    if (colon < 0) throw new UsageError(`expected COMPONENT:FLAG, got ${word}`);
    const name = componentName(word.slice(0, colon));
    flags[name] = [...(flags[name] ?? []), word.slice(colon + 1)];
  }
  return flags;
}

/** The words before a command that make it run in the cluster's network. Throws when there is none. */
function entering(settings: ClusterSettings): string[] {
  if (insideNamespace(settings.name)) return [];
  ensureRoot();
  if (!namespaceExists(settings.name)) {
    throw new MissingRequirement(`cluster ${settings.name} is not up: npm run cluster:up`);
  }
  return enter(settings.name);
}

async function execute(settings: ClusterSettings, argv: readonly string[]): Promise<number> {
  if (argv.length === 0) throw new UsageError('exec needs a command');
  return inherit([...entering(settings), ...argv]);
}

async function kubectl(settings: ClusterSettings, args: readonly string[]): Promise<number> {
  const before = entering(settings);
  const { kube } = await ensureBinaries(settings.cacheDir, say);
  const kubeconfig = `--kubeconfig=${statePaths(settings.stateDir).kubeconfig}`;
  return inherit([...before, kube, 'kubectl', kubeconfig, ...args]);
}

async function restart(settings: ClusterSettings, words: readonly string[]): Promise<number> {
  const name = componentName(words[0] ?? '');
  if (entering(settings).length > 0) return again(settings, ['restart', ...words]);
  await restartComponent(settings, await ensureBinaries(settings.cacheDir, say), name, words.slice(1));
  say(`${name} restarted`);
  return 0;
}

async function writeImages(settings: ClusterSettings, directory: string | undefined): Promise<number> {
  if (directory === undefined) throw new UsageError('images needs a directory');
  const file = join(resolve(directory), 'linger-test-images.tar');
  mkdirSync(resolve(directory), { recursive: true });
  writeFileSync(file, buildImageArchive(await ensureApplication(settings.cacheDir, say)));
  say(`${file}\nkind: kind load image-archive ${file}`);
  return 0;
}

async function main([command = '', ...args]: readonly string[]): Promise<number> {
  const settings = clusterSettings();
  switch (command) {
    case 'up':
      return up(settings, extraFlags(args), say);
    case 'down':
      return down(settings, say);
    case 'status':
      return insideNamespace(settings.name) ? statusInside(settings, say) : status(settings, say);
    case 'kubectl':
      return kubectl(settings, args);
    case 'exec':
      return execute(settings, args[0] === '--' ? args.slice(1) : args);
    case 'restart':
      return restart(settings, args);
    case 'images':
      return writeImages(settings, args[0]);
    // The inner halves of `up`, which is who calls them; see lifecycle.ts.
    case 'boot':
      return bootInside(settings, JSON.parse(args[0] ?? '{}') as ExtraFlags, say);
    case 'verify':
      return verifyInside(settings, JSON.parse(args[0] ?? '{}') as ExtraFlags, say);
    default:
      throw new UsageError(command === '' ? 'a command is missing' : `no command ${command}`);
  }
}

/** Says what went wrong in words; a stack only for unforeseen errors. Returns the exit code. */
function report(error: unknown): number {
  if (error instanceof UsageError) {
    console.error(`${error.message}\n\n${usage}`);
    return 2;
  }
  if (error instanceof ComponentFailure) {
    console.error(`failed: ${error.message}`);
    console.error('what has started still runs: up tries again, down removes it');
  } else {
    console.error('failed:', isForeseen(error) ? error.message : error);
  }
  return 1;
}

/** Ours have a message for the reader; those of the system and of the language have a code or a class of their own. */
function isForeseen(error: unknown): error is Error {
  if (
    error instanceof MissingRequirement ||
    error instanceof CommandFailure ||
    error instanceof WaitTimeout
  ) {
    return true;
  }
  return error instanceof Error && error.constructor === Error && !('code' in error);
}

process.exitCode = await main(process.argv.slice(2)).catch(report);
