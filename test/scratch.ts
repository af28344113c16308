import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/**
 * One folder for all that tests leave in the system's: their files and what they start inherit it, and it is taken away when
 * the last test has ended, whatever became of each.
 */
export default function setup(): () => void {
  const folder = mkdtempSync(join(tmpdir(), 'linger-tests-'));
  process.env.TMPDIR = folder;
  return () => rmSync(folder, { recursive: true, force: true, maxRetries: 3 });
}
