import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { join } from 'node:path';

/** A folder that is whole or not there. */
export async function cached(
  cacheDir: string,
  name: string,
  fill: (into: string) => Promise<void>,
): Promise<string> {
  const directory = join(cacheDir, name);
  if (existsSync(directory)) return directory;
  mkdirSync(cacheDir, { recursive: true });
  const unfinished = mkdtempSync(join(cacheDir, `unfinished-${process.pid}-`));
  try {
    await fill(unfinished);
    // Another process may have been faster.
    if (!existsSync(directory)) renameSync(unfinished, directory);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return directory;
}
