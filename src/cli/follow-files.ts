import { type FSWatcher, statSync, watch } from 'node:fs';
import { basename, dirname } from 'node:path';
import { pause } from '../timing/index.ts';

/** Editors write a file in several steps, and a checkout many files. */
const SETTLE_MS = 150;
/** Where the file system tells nothing. */
const LOOK_EVERY_MS = 5_000;

/**
 * Follows files, and folders with what is below them, by the events of the file system; where there are none, as on some
 * network file systems, a change is assumed every so often.
 * @param pathsNow asked again after each change: a kustomization may use other folders then
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
        // The new ones first: what changes from here on is not missed.
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
  /** A path of which no event will come. */
  #isBlind = false;

  constructor(paths: readonly string[]) {
    this.#watchers = paths.flatMap((path) => this.#watch(path));
  }

  #watch(path: string): readonly FSWatcher[] {
    try {
      const isFolder = statSync(path).isDirectory();
      // What replaces a file, as editors do it, is another one: only its folder tells of both.
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

  /** @returns false: the signal has aborted */
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
