import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ApiClient, ownConnection } from './api.ts';
import type { Binaries } from './binaries.ts';
import { writeCertificates } from './certificates.ts';
import { createCgroup } from './cgroups.ts';
import { must } from './command.ts';
import { type Component, components } from './components.ts';
import { writeConfiguration } from './configuration.ts';
import { logFile, problemOf, waitHealthy } from './health.ts';
import { sha256 } from './image.ts';
import { buildImageArchive, images } from './images.ts';
import { configureNode, firstNode, type NodeNetwork, network } from './network.ts';
import { isAlive, readRecord, startProcess, stopProcess } from './process.ts';
import { findCniDirectory, MissingRequirement, systemPath } from './requirements.ts';
import {
  type ClusterSettings,
  type ComponentName,
  type ExtraFlags,
  type StatePaths,
  statePaths,
} from './settings.ts';
import { waitUntil } from './waiting.ts';

/** What a complete boot leaves behind: its absence means half a boot. */
interface BootRecord {
  readonly bootedAt: string;
  readonly imagesDigest: string;
}

export interface BootInput {
  readonly settings: ClusterSettings;
  readonly binaries: Binaries;
  readonly extraFlags: ExtraFlags;
  readonly say: (line: string) => void;
}

/** Boots a cluster whose state directory and network namespace are empty. Runs inside that namespace. */
export async function boot({ settings, binaries, extraFlags, say }: BootInput): Promise<void> {
  const begun = performance.now();
  const since = () => `${((performance.now() - begun) / 1000).toFixed(1)} s`;
  const paths = statePaths(settings.stateDir);
  prepareNode(settings, firstNode);
  // etcd refuses a directory that others may read.
  mkdirSync(paths.etcd, { recursive: true, mode: 0o700 });
  await Promise.all([writeCertificates(paths.pki), configureNode()]);
  const start = startWith(paths, binaries, extraFlags);
  const archive = buildImageArchive(binaries.app);
  await Promise.all([
    start('etcd').then(() => start('kube-apiserver')),
    start('containerd').then(() => importImages(archive, paths, binaries)),
  ]);
  say(`${since()}: etcd, API server and containerd are up`);
  await Promise.all(
    (['kube-controller-manager', 'kube-scheduler', 'kubelet', 'kube-proxy'] as const).map(start),
  );
  await waitForNode(paths, network.nodeName);
  say(`${since()}: node ${network.nodeName} is Ready`);
  writeBootRecord(paths, archive);
}

/** Makes a node's directories, its cgroup and its configuration. */
export function prepareNode(settings: ClusterSettings, node: NodeNetwork): void {
  const paths = statePaths(settings.stateDir);
  const cniDirectory = findCniDirectory();
  if (cniDirectory === undefined) throw new MissingRequirement('no CNI plugins found');
  rmSync(paths.logs, { recursive: true, force: true });
  for (const directory of [paths.logs, paths.run, paths.containerd, paths.kubelet]) {
    mkdirSync(directory, { recursive: true });
  }
  createCgroup(settings.name);
  writeConfiguration({ name: settings.name, node, paths, cniDirectory, pauseImage: images.pause });
}

/** A node, and the words before a command that make it run in that node's network. */
export interface NodePlace {
  readonly node: NodeNetwork;
  readonly enter: readonly string[];
}

/** The first node, for a process that runs in its network already. */
const HERE: NodePlace = { node: firstNode, enter: [] };

/** Returns a function that starts one component and waits until it works. */
export function startWith(
  paths: StatePaths,
  binaries: Binaries,
  extraFlags: ExtraFlags,
  { node, enter }: NodePlace = HERE,
) {
  const all = new Map(components(paths, binaries, node).map((component) => [component.name, component]));
  return async (name: ComponentName): Promise<void> => {
    const component = all.get(name);
    if (component === undefined) throw new Error(`no component ${name}`);
    await startProcess({
      name,
      argv: [...enter, ...component.argv, ...(extraFlags[name] ?? [])],
      runDir: paths.run,
      logFile: logFile(paths, name),
      env: componentEnvironment(binaries),
    });
    await waitHealthy(component, paths);
  };
}

/** containerd finds its shim by PATH, and all of them find iptables, mount and runc by it. */
export function componentEnvironment(binaries: Binaries): NodeJS.ProcessEnv {
  return { PATH: `${binaries.containerdDirectory}:${systemPath()}`, HOME: '/root' };
}

/** Makes the images of a docker-archive known to the node. */
export async function importImages(archive: Buffer, paths: StatePaths, binaries: Binaries): Promise<void> {
  const file = join(paths.containerd, 'images.tar');
  writeFileSync(file, archive);
  const ctr = join(binaries.containerdDirectory, 'ctr');
  // --local: ctr reads the archive itself and needs no transfer service configuration.
  await must([
    ctr,
    '--address',
    paths.containerdSocket,
    '--namespace',
    'k8s.io',
    'images',
    'import',
    '--local',
    file,
  ]);
  rmSync(file);
}

interface NodeObject {
  readonly status?: { readonly conditions?: readonly { type: string; status: string; message?: string }[] };
}

/** Waits for a node to be Ready and for the ServiceAccount without which no pod is admitted. */
export async function waitForNode(paths: StatePaths, name: string): Promise<void> {
  const api = new ApiClient(ownConnection(paths.kubeconfig));
  try {
    await waitUntil(`node ${name} to be Ready`, async () => {
      const node = await api.call<NodeObject>('GET', `/api/v1/nodes/${name}`);
      const ready = node.status?.conditions?.find(({ type }) => type === 'Ready');
      if (ready?.status !== 'True') throw new Error(ready?.message ?? 'no Ready condition');
      return true;
    });
    await waitUntil('the default ServiceAccount', () =>
      api.call('GET', '/api/v1/namespaces/default/serviceaccounts/default'),
    );
  } finally {
    api.close();
  }
}

function writeBootRecord(paths: StatePaths, archive: Buffer): void {
  const record: BootRecord = {
    // Written again when the images are: that is no boot.
    bootedAt: readBootRecord(paths)?.bootedAt ?? new Date().toISOString(),
    imagesDigest: sha256(archive),
  };
  writeFileSync(paths.booted, JSON.stringify(record, null, 2));
}

function readBootRecord(paths: StatePaths): BootRecord | undefined {
  try {
    return JSON.parse(readFileSync(paths.booted, 'utf8')) as BootRecord;
  } catch {
    return undefined;
  }
}

/** When the last complete boot was; undefined when there was none. RFC 3339. */
export function bootedAt(settings: ClusterSettings): string | undefined {
  return readBootRecord(statePaths(settings.stateDir))?.bootedAt;
}

/** Why a cluster is not one that this checkout has booted completely; undefined when it is. Looks only, from any network. */
export function whyNotBooted(settings: ClusterSettings, binaries: Binaries): string | undefined {
  const paths = statePaths(settings.stateDir);
  if (readBootRecord(paths) === undefined) return 'its boot was not completed';
  for (const { name, argv } of components(paths, binaries)) {
    const record = readRecord(paths.run, name);
    if (record === undefined || !isAlive(record)) return `${name} has ended`;
    // Other binaries are in another directory, and so on another command line.
    if (argv.some((word, i) => word !== record.argv[i]))
      return `${name} was started by another version of this checkout`;
  }
  return undefined;
}

/** Whether there is anything of a boot, complete or not. */
export function hasState(settings: ClusterSettings): boolean {
  return existsSync(statePaths(settings.stateDir).run);
}

/** Imports the images again when the application has changed since they were. */
export async function refreshImages(settings: ClusterSettings, binaries: Binaries): Promise<boolean> {
  const paths = statePaths(settings.stateDir);
  const archive = buildImageArchive(binaries.app);
  if (readBootRecord(paths)?.imagesDigest === sha256(archive)) return false;
  await importImages(archive, paths, binaries);
  writeBootRecord(paths, archive);
  return true;
}

export interface ComponentStatus {
  readonly name: ComponentName;
  readonly pid: number | undefined;
  readonly problem: string | undefined;
  readonly logFile: string;
}

/** Every component's state. Runs inside the cluster's network. */
export async function componentStatus(
  settings: ClusterSettings,
  binaries: Binaries,
): Promise<ComponentStatus[]> {
  const paths = statePaths(settings.stateDir);
  return Promise.all(
    components(paths, binaries).map(async (component) => ({
      name: component.name,
      pid: readRecord(paths.run, component.name)?.pid,
      problem: await problemOf(component, paths),
      logFile: logFile(paths, component.name),
    })),
  );
}

/**
 * Stops a component and starts it again with other extra flags, none by default.
 * Runs inside the cluster's network; returns when the component works.
 */
export async function restartComponent(
  settings: ClusterSettings,
  binaries: Binaries,
  name: ComponentName,
  flags: readonly string[] = [],
  place: NodePlace = HERE,
): Promise<void> {
  const paths = statePaths(settings.stateDir);
  const record = readRecord(paths.run, name);
  if (record !== undefined) await stopProcess(record, paths.run);
  await startWith(paths, binaries, { [name]: flags }, place)(name);
}

/** The extra flags that a running component was started with. */
export function currentFlags(
  settings: ClusterSettings,
  binaries: Binaries,
  name: ComponentName,
): readonly string[] {
  const paths = statePaths(settings.stateDir);
  const own: Component | undefined = components(paths, binaries).find((component) => component.name === name);
  return readRecord(paths.run, name)?.argv.slice(own?.argv.length ?? 0) ?? [];
}
