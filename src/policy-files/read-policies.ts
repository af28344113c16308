import type { Documents } from '../core/decision/index.ts';
import { documentsOf, joined, type PolicyReading, parsePolicyFiles, usable } from '../core/manifest/index.ts';
import { readPolicyFiles } from './policy-files.ts';

/**
 * Reads a policy path once, all or nothing.
 * @throws LingerError for the first invalid file or document
 */
export async function readPolicies(path: string): Promise<Documents> {
  return usable(await readPath(path));
}

export async function problemsIn(path: string) {
  const { problems, entries } = await readPath(path);
  return { problems, documents: documentsOf(entries), usable: entries.length };
}

async function readPath(path: string): Promise<PolicyReading> {
  const { files, problems } = await readPolicyFiles(path);
  return joined([{ entries: [], problems }, ...parsePolicyFiles(files)]);
}
