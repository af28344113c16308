import { existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { waitUntil } from './waiting.ts';

interface Hierarchy {
  readonly mountPoint: string;
  readonly version: 1 | 2;
}

/** The mounted cgroup hierarchies: one for version 2, one per controller for version 1, or both. */
function hierarchies(): Hierarchy[] {
  const text = readFileSync('/proc/self/mounts', 'utf8');
  const found = text.split('\n').flatMap((line): Hierarchy[] => {
    const [, mountPoint = '', type] = line.split(' ');
    if (type === 'cgroup') return [{ mountPoint, version: 1 }];
    return type === 'cgroup2' ? [{ mountPoint, version: 2 }] : [];
  });
  // The same hierarchy is often mounted twice in containers.
  return [...new Map(found.map((hierarchy) => [hierarchy.mountPoint, hierarchy])).values()];
}

/**
 * Makes the cgroup that kubelet takes as its root, in every hierarchy: with a root
 * of its own a cluster does not mix its pods with those of another kubelet.
 */
export function createCgroup(name: string): void {
  const all = hierarchies();
  if (all.length === 0) throw new Error('no cgroup file system is mounted; kubelet and runc need one');
  for (const { mountPoint, version } of all) {
    const directory = join(mountPoint, name);
    mkdirSync(directory, { recursive: true });
    if (version === 1) inheritCpuset(mountPoint, directory);
    else if (all.length === 1) delegateControllers(mountPoint);
  }
}

/** Under version 1 a new cpuset is empty, and no process can enter it. */
function inheritCpuset(parent: string, child: string): void {
  for (const file of ['cpuset.cpus', 'cpuset.mems']) {
    if (existsSync(join(parent, file))) {
      writeFileSync(join(child, file), readFileSync(join(parent, file), 'utf8'));
    }
  }
}

/** Under version 2 a child has only the controllers that its parent hands down. */
function delegateControllers(mountPoint: string): void {
  const available = readFileSync(join(mountPoint, 'cgroup.controllers'), 'utf8')
    .trim()
    .split(' ')
    .filter(Boolean);
  writeFileSync(
    join(mountPoint, 'cgroup.subtree_control'),
    available.map((controller) => `+${controller}`).join(' '),
  );
}

/** Pids of everything that runs in a cluster's cgroup: the containers of its pods. */
export function cgroupProcesses(name: string): number[] {
  const pids = ourDirectories(name)
    .flatMap(subtree)
    .flatMap((directory) => {
      try {
        return readFileSync(join(directory, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean).map(Number);
      } catch {
        // The pod was removed while we looked.
        return [];
      }
    });
  return [...new Set(pids)];
}

/** Directories that exist for a cluster, one per hierarchy. */
export function ourDirectories(name: string): string[] {
  return hierarchies()
    .map(({ mountPoint }) => join(mountPoint, name))
    .filter((directory) => existsSync(directory));
}

/** Removes a cluster's cgroups. A killed process leaves its cgroup a moment after it is gone. */
export async function removeCgroup(name: string): Promise<void> {
  await waitUntil(`cgroups named ${name} to be removed`, () => {
    for (const directory of ourDirectories(name).flatMap(subtree)) rmdirSync(directory);
    return ourDirectories(name).length === 0;
  });
}

/** A directory and all below it, the deepest first: only an empty cgroup can be removed. */
function subtree(directory: string): string[] {
  let entries: string[];
  try {
    entries = readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => join(directory, entry.name));
  } catch {
    return [];
  }
  return [...entries.flatMap(subtree), directory];
}
