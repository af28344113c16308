import { accessSync, constants, existsSync, statfsSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { must, run } from './command.ts';

/** Something the machine lacks, said so that the reader knows what to do. */
export class MissingRequirement extends Error {}

/** Programs the cluster runs, and the Debian package that brings each. */
const programs: readonly { readonly program: string; readonly debian: string }[] = [
  { program: 'ip', debian: 'iproute2' },
  { program: 'iptables', debian: 'iptables' },
  { program: 'conntrack', debian: 'conntrack' },
  { program: 'runc', debian: 'runc' },
  { program: 'busybox', debian: 'busybox-static' },
  { program: 'nsenter', debian: 'util-linux' },
  { program: 'mount', debian: 'mount' },
  // Not the cluster but its suite runs it, as the documentation says.
  { program: 'openssl', debian: 'openssl' },
];

/** Where distributions put the CNI plugins: Debian, Fedora, and the upstream archive. */
const cniDirectories = ['/usr/lib/cni', '/usr/libexec/cni', '/opt/cni/bin'];
const cniPlugins = ['ptp', 'host-local', 'portmap'];

/** Debian keeps system programs where a user's PATH, and so sudo's in places, does not look. */
const systemDirectories = ['/usr/local/sbin', '/usr/sbin', '/sbin', '/usr/bin', '/bin'];

/** PATH for the components: kubelet, kube-proxy and containerd all run programs by name. */
export function systemPath(env: NodeJS.ProcessEnv = process.env): string {
  return [...(env.PATH ?? '').split(delimiter).filter(Boolean), ...systemDirectories].join(delimiter);
}

/** The full path of a program, or undefined. */
export function findProgram(program: string, path: string = systemPath()): string | undefined {
  return path
    .split(delimiter)
    .map((directory) => join(directory, program))
    .find((file) => {
      try {
        accessSync(file, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** The directory that holds the CNI plugins, or undefined when no directory has all we use. */
export function findCniDirectory(): string | undefined {
  return cniDirectories.find((directory) =>
    cniPlugins.every((plugin) => existsSync(join(directory, plugin))),
  );
}

function missingPackages(): string[] {
  const missing = programs.filter(({ program }) => findProgram(program) === undefined);
  const packages = missing.map(({ debian }) => debian);
  if (findCniDirectory() === undefined) packages.push('containernetworking-plugins');
  return packages;
}

/** Throws {@link MissingRequirement} unless this is root on Linux. */
export function ensureRoot(): void {
  if (process.platform !== 'linux') {
    throw new MissingRequirement(
      `the cluster needs Linux, this is ${process.platform}; point KUBECONFIG at a cluster instead`,
    );
  }
  if (process.getuid?.() !== 0) {
    throw new MissingRequirement(
      'the cluster needs root (namespaces, cgroups, mounts): run it with sudo, or point KUBECONFIG at a cluster',
    );
  }
}

/**
 * Makes sure that every program the cluster needs is there; installs Debian packages
 * for those that are missing. Throws {@link MissingRequirement}.
 */
export async function ensureSystem(say: (line: string) => void): Promise<void> {
  const packages = missingPackages();
  if (packages.length === 0) return;
  await install(packages, say);
  const still = missingPackages();
  if (still.length > 0)
    throw new MissingRequirement(`installed, yet still not found: what ${still.join(', ')} bring`);
}

async function install(packages: readonly string[], say: (line: string) => void): Promise<void> {
  if (findProgram('apt-get') === undefined) {
    throw new MissingRequirement(
      `missing programs; on Debian they are in ${packages.join(', ')}. ` +
        'There is no apt-get here: install their equivalents, then run this again',
    );
  }
  say(`installing Debian packages: ${packages.join(' ')}`);
  await aptInstall(packages);
}

/** Package lists are often absent or old on a fresh machine: a failure is tried once more after an update. */
export async function aptInstall(words: readonly string[]): Promise<void> {
  const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive' };
  const apt = (...args: readonly string[]) =>
    unlocked(() => run(['apt-get', ...LOCK_OPTIONS, ...args], { env }));
  const install = ['install', '--yes', '--no-install-recommends', ...words];
  if ((await apt(...install)).code === 0) return;
  for (const args of [['update'], install]) {
    const { code, stderr } = await apt(...args);
    if (code !== 0) throw new Error(`apt-get ${args[0]} ended with ${code}: ${stderr.trim()}`);
  }
}

/** Makes apt-get wait for the lock of packages; that of the lists (apt-get update) has no such option. */
const LOCK_OPTIONS = ['-o', `DPkg::Lock::Timeout=300`];
const LOCKED = /Could not get lock|Unable to acquire the dpkg frontend lock|Unable to lock directory/;
const LOCK_TRIES = { times: 60, pauseMs: 5_000 };

/** Runs it again while another process, such as unattended-upgrades, has the lock. */
export async function unlocked<T extends { readonly code: number | null; readonly stderr: string }>(
  attempt: () => Promise<T>,
  { times, pauseMs } = LOCK_TRIES,
): Promise<T> {
  let last = await attempt();
  for (let tries = 1; tries < times && last.code !== 0 && LOCKED.test(last.stderr); tries += 1) {
    await new Promise((resolve) => setTimeout(resolve, pauseMs));
    last = await attempt();
  }
  return last;
}

/** The oldest `go` that can fetch the toolchain which go.mod asks for (toolchain lines came with 1.21). */
const OLDEST_GO_MINOR = 21;

/** Throws {@link MissingRequirement} when there is no Go that can build the components. */
export async function ensureGo(): Promise<void> {
  const hint = `building Kubernetes needs Go 1.${OLDEST_GO_MINOR} or newer: https://go.dev/dl`;
  if (findProgram('go') === undefined) throw new MissingRequirement(`no go in PATH; ${hint}`);
  const version = (
    await must(['go', 'env', 'GOVERSION'], { env: { ...process.env, GOTOOLCHAIN: 'local' } })
  ).trim();
  const minor = Number(/^go1\.(\d+)/.exec(version)?.[1] ?? Number.NaN);
  if (!(minor >= OLDEST_GO_MINOR))
    throw new MissingRequirement(`go is ${version || 'of unknown version'}; ${hint}`);
}

/**
 * What a cold build takes: 4 GB of compiled packages, 2 GB of module sources,
 * the linker's temporary files and the binaries, 0.5 GB.
 */
const BUILD_BYTES = 7e9;

/** Throws {@link MissingRequirement} when a directory's file system is too full to build on. */
export function ensureDiskSpace(directories: readonly string[]): void {
  for (const directory of directories) {
    const { bavail, bsize } = statfsSync(existsSync(directory) ? directory : '/');
    const free = bavail * bsize;
    if (free < BUILD_BYTES) {
      throw new MissingRequirement(
        `${directory}: ${(free / 1e9).toFixed(1)} GB free, building needs ${BUILD_BYTES / 1e9} GB (once)`,
      );
    }
  }
}
