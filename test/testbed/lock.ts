import { linkSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { identify, isAlive, type ProcessIdentity } from './process.ts';
import { waitUntil } from './waiting.ts';

/** A cold build and a boot, twice over. */
const PATIENCE_MS = 30 * 60_000;

/**
 * Runs `work` while no other process works on the same cluster. Waits for one that
 * does; the lock of a process that died is taken over.
 */
export async function exclusively<T>(
  file: string,
  say: (line: string) => void,
  work: () => Promise<T>,
): Promise<T> {
  mkdirSync(dirname(file), { recursive: true });
  const own = identify(process.pid);
  let told = false;
  await waitUntil(
    `the lock ${file}`,
    () => {
      const holder = tryLock(file, own);
      if (holder === undefined) return true;
      if (!told) say(`process ${holder.pid} is already working on this cluster: waiting for it`);
      told = true;
      return false;
    },
    { timeoutMs: PATIENCE_MS, intervalMs: 300 },
  );
  try {
    return await work();
  } finally {
    rmSync(file, { force: true });
  }
}

/** Takes the lock, or returns its living holder. */
function tryLock(file: string, own: ProcessIdentity | undefined): ProcessIdentity | undefined {
  const written = `${file}.${process.pid}`;
  writeFileSync(written, JSON.stringify(own));
  try {
    // A link appears with its content or not at all, and fails when the name is taken.
    linkSync(written, file);
    return undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    rmSync(written);
  }
  const holder = readHolder(file);
  if (holder !== undefined && isAlive(holder)) return holder;
  rmSync(file, { force: true });
  return tryLock(file, own);
}

function readHolder(file: string): ProcessIdentity | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8')) as ProcessIdentity;
  } catch {
    return undefined;
  }
}
