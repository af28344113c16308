import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { cgroupProcesses, ourDirectories, removeCgroup } from './cgroups.ts';
import { run } from './command.ts';
import { deleteNamespace, namespaceExists, namespacePath } from './network.ts';
import { identify, isAlive, listProcesses, type ProcessIdentity, signalIfAlive } from './process.ts';
import { type ClusterSettings, componentNames, secondNodeOf, statePaths } from './settings.ts';
import { waitUntil } from './waiting.ts';

/** libcni keeps its results here, whatever the configuration says. */
const CNI_RESULTS = '/var/lib/cni/results';
/** containerd's shims make their sockets here, named by a hash (pkg/shim/util_unix.go). */
const SHIM_SOCKETS = '/run/containerd/s';
const LOG_LINKS = '/var/log/containers';

/**
 * Stops everything of a cluster and removes all traces of it but its logs. It does
 * not trust any record: it looks for what carries the cluster's name or works in its
 * state directory, so it does the same after a regular run, a crash or half a boot.
 * Nothing is stopped gently, because nothing that is stopped here is ever started again.
 */
export async function removeCluster(settings: ClusterSettings): Promise<void> {
  await removeNode(secondNodeOf(settings));
  await removeNode(settings);
}

/** What {@link removeCluster} does, for what carries one of its names: the first node's is the cluster's own. */
export async function removeNode(settings: ClusterSettings): Promise<void> {
  // kubelet and containerd first: they restart what is killed under them.
  await killAll(componentProcesses(settings));
  await killAll(cgroupProcesses(settings.name).flatMap(identified));
  await killAll(shimProcesses(settings));
  await unmountAll(settings.stateDir);
  for (const file of strayFiles(settings)) rmSync(file, { force: true });
  await removeCgroup(settings.name);
  await deleteNamespace(settings.name);
  removeState(settings.stateDir);
}

function identified(pid: number): ProcessIdentity[] {
  const identity = identify(pid);
  return identity === undefined ? [] : [identity];
}

async function killAll(processes: readonly ProcessIdentity[]): Promise<void> {
  for (const identity of processes) signalIfAlive(identity, 'SIGKILL');
  await waitUntil('killed processes to end', () => processes.every((identity) => !isAlive(identity)), {
    intervalMs: 20,
  });
}

/** What is started beside the components: cluster-dns.ts, gateways.ts, builder.ts and rollouts-controller.ts do. */
const BESIDES = [
  'buildkitd',
  'contour',
  'coredns',
  'envoy',
  'haproxy',
  'pilot-discovery',
  'rollouts-controller',
  'traefik',
];

/** Components, and what is beside them, by the command line: our binary, its name, our state directory. */
function componentProcesses({ cacheDir, stateDir }: ClusterSettings): ProcessIdentity[] {
  const names = new Set<string>([...componentNames, ...BESIDES]);
  return listProcesses()
    .filter(({ argv: [program = '', first = '', ...rest] }) => {
      const component = basename(program) === 'kube' ? first : basename(program);
      const mentionsUs = [first, ...rest].some((argument) => argument.includes(`${stateDir}/`));
      return program.startsWith(`${cacheDir}/`) && names.has(component) && mentionsUs;
    })
    .flatMap(({ pid }) => identified(pid));
}

/** containerd's shims outlive it; each names the containerd that it belongs to. */
function shimProcesses(settings: ClusterSettings): ProcessIdentity[] {
  const socket = statePaths(settings.stateDir).containerdSocket;
  return listProcesses()
    .filter(({ argv }) => basename(argv[0] ?? '') === 'containerd-shim-runc-v2' && argv.includes(socket))
    .flatMap(({ pid }) => identified(pid));
}

/** Mount points below the state directory, the deepest first. */
function mountPoints(stateDir: string): string[] {
  return (
    readFileSync('/proc/self/mountinfo', 'utf8')
      .split('\n')
      .map((line) => line.split(' ')[4] ?? '')
      // proc(5): space, tab, newline and backslash are written in octal.
      .map((path) =>
        path.replace(/\\(\d{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8))),
      )
      .filter((path) => path.startsWith(`${stateDir}/`))
      .reverse()
  );
}

async function unmountAll(stateDir: string): Promise<void> {
  for (const path of mountPoints(stateDir)) {
    // Lazily when it is still in use: it is then gone from the tree now and freed later.
    if ((await run(['umount', path])).code !== 0) await run(['umount', '--lazy', path]);
  }
}

/** Sockets of the shims of this cluster's pod sandboxes: a shim that was killed could not remove its own. */
function shimSockets({ stateDir }: ClusterSettings): string[] {
  const { containerd, containerdSocket } = statePaths(stateDir);
  const bundles = join(containerd, 'state', 'io.containerd.runtime.v2.task', 'k8s.io');
  return entries(bundles)
    .flatMap((id) => [join(containerdSocket, 'k8s.io', id), join(containerdSocket, 'k8s.io', id, 'debug')])
    .map((path) => join(SHIM_SOCKETS, createHash('sha256').update(path).digest('hex')))
    .filter((socket) => existsSync(socket));
}

/** Files named NETWORK-CONTAINER-INTERFACE; another cluster's name may begin with ours. */
function cniResults(name: string): string[] {
  const ours = new RegExp(`^${name}-[0-9a-f]{64}-`);
  return entries(CNI_RESULTS)
    .filter((file) => ours.test(file))
    .map((file) => join(CNI_RESULTS, file));
}

/** kubelet links every container's log here, whatever its configuration says. */
function logLinks({ stateDir }: ClusterSettings): string[] {
  const { podLogs } = statePaths(stateDir);
  return entries(LOG_LINKS)
    .map((file) => join(LOG_LINKS, file))
    .filter((link) => linkTarget(link).startsWith(`${podLogs}/`));
}

function linkTarget(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    // Not a link, or gone since it was listed.
    return '';
  }
}

/** Files of this cluster in directories that it shares with whatever else runs containers here. */
function strayFiles(settings: ClusterSettings): string[] {
  return [...shimSockets(settings), ...cniResults(settings.name), ...logLinks(settings)];
}

function entries(directory: string): string[] {
  return existsSync(directory) ? readdirSync(directory) : [];
}

/** Deletes all below the state directory but its logs. Refuses while anything is mounted there. */
function removeState(stateDir: string): void {
  const [mounted] = mountPoints(stateDir);
  // Deleting through a mount deletes what is on its other side, such as a pod's hostPath.
  if (mounted !== undefined) throw new Error(`${mounted} is still mounted; unmount it, then run this again`);
  for (const path of removableState(stateDir)) rmSync(path, { recursive: true, force: true });
}

function removableState(stateDir: string): string[] {
  const { logs, lock, owner } = statePaths(stateDir);
  const kept = [logs, lock, owner];
  return entries(stateDir)
    .map((entry) => join(stateDir, entry))
    .filter((path) => !kept.includes(path));
}

/** What is still there of a cluster, one line each; empty after a complete {@link removeCluster}. */
export function findLeftovers(settings: ClusterSettings): string[] {
  return [settings, secondNodeOf(settings)].flatMap(leftoversOf);
}

/** The same, for one of its nodes. */
export function leftoversOf(settings: ClusterSettings): string[] {
  const { name, stateDir } = settings;
  return [
    ...componentProcesses(settings).map(({ pid }) => `component process ${pid}`),
    ...shimProcesses(settings).map(({ pid }) => `containerd shim ${pid}`),
    ...cgroupProcesses(name).map((pid) => `container process ${pid}`),
    ...mountPoints(stateDir).map((path) => `mount ${path}`),
    ...ourDirectories(name).map((path) => `cgroup ${path}`),
    ...strayFiles(settings).map((path) => `file ${path}`),
    ...(namespaceExists(name) ? [`network namespace ${name}`] : []),
    ...removableState(stateDir).map((path) => `state ${path}`),
  ];
}

/** Processes of others (a test, a server, a shell) that run in the cluster's network namespace. */
export function visitors(settings: ClusterSettings): { pid: number; command: string }[] {
  if (!namespaceExists(settings.name)) return [];
  const inode = statSync(namespacePath(settings.name)).ino;
  const ours = new Set([
    process.pid,
    ...[...componentProcesses(settings), ...shimProcesses(settings)].map(({ pid }) => pid),
  ]);
  return listProcesses()
    .filter(({ pid }) => !ours.has(pid) && linkTarget(`/proc/${pid}/ns/net`) === `net:[${inode}]`)
    .map(({ pid, argv }) => ({ pid, command: argv.join(' ').slice(0, 100) }));
}
