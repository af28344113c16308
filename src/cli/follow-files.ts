import { type FSWatcher, statSync, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import { pause } from '../timing/index.ts';

/** Editors write a file in several steps, and a checkout writes many files, so wait for that to end. */
const SETTLE_MS = 150;
/** How often to assume a change if the file system sends no events. */
const LOOK_EVERY_MS = 5_000;

/**
 * Follows files, and folders with everything below them, by events of the file system. If there are none, as on some network
 * file systems, a change is assumed regularly.
 * @param pathsNow called again after each change, because a kustomization may then use other folders
 * @returns once they are followed: an item after each change, until the signal aborts
 */
export async function followFiles(
  pathsNow: () => Promise<readonly string[]>,
  signal: AbortSignal,
): Promise<AsyncIterable<void>> {
  let following = new Following(await pathsNow());
  const changes = async function* () {
    try {
      while (await following.changed(signal)) {
        if (!(await pause(SETTLE_MS, signal))) return;
        // Follow the new ones first, so that no further change is missed.
        const next = new Following(await pathsNow());
        following.end();
        following = next;
        yield;
      }
    } finally {
      following.end();
    }
  };
  return changes();
}

class Following {
  readonly #watchers: readonly FSWatcher[];
  readonly #change = Promise.withResolvers<true>();
  /** Whether there is a path for which no events will come. */
  #isBlind = false;

  constructor(paths: readonly string[]) {
    this.#watchers = paths.flatMap((path) => this.#watch(path));
  }

  #watch(path: string): readonly FSWatcher[] {
    try {
      const isFolder = statSync(path).isDirectory();
      // Editors replace a file by another one, so follow its folder, which reports both.
      const at = isFolder ? path : dirname(path);
      const watcher = watch(at, { recursive: isFolder, persistent: false }, (_event, name) => {
        if (isFolder || name === null || name === basename(path)) this.#change.resolve(true);
      });
      watcher.on('error', () => {
        this.#isBlind = true;
        this.#change.resolve(true);
      });
      return [watcher];
    } catch {
      this.#isBlind = true;
      return [];
    }
  }

  /** @returns false if the signal has aborted */
  async changed(signal: AbortSignal): Promise<boolean> {
    const ended = new AbortController();
    const either = AbortSignal.any([signal, ended.signal]);
    const aborted = pause(this.#isBlind ? LOOK_EVERY_MS : 2 ** 31 - 1, either);
    const isChanged = await Promise.race([this.#change.promise, aborted]);
    ended.abort();
    return isChanged && !signal.aborted;
  }

  end(): void {
    for (const watcher of this.#watchers) watcher.close();
  }
}
