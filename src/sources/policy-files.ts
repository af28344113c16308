import { createHash } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { LingerError } from '../core/catalog/errors.ts';
import { readManifests } from '../manifest/read.ts';
import type { Documents, LocatedObject } from '../world/documents.ts';
import { sortDocuments } from '../world/sort-documents.ts';

/** Policy files as they stand on the disk at one moment. */
export interface PolicySnapshot {
  /** Changes whenever a name or a byte changes. */
  readonly hash: string;
  /** @throws LingerError when a file is not valid; nothing of the set counts then */
  parse(): Documents;
}

const POLICY_FILE = /^[^.].*\.(ya?ml|json)$/;

/** More than a ConfigMap can hold (1 MiB), so a file beyond it is there by mistake. */
const MAX_FILE_BYTES = 4 * 1024 * 1024;

/**
 * Reads a policy file, or every `*.yaml`, `*.yml` and `*.json` of a folder: not recursive, dot-files left out (a
 * mounted ConfigMap keeps its revisions in them), links followed.
 * @throws LingerError `policy-unreadable`
 */
export async function readPolicyFiles(path: string): Promise<PolicySnapshot> {
  const files = await Promise.all((await policyPaths(path)).map(readPolicyFile));
  const hash = createHash('sha256');
  for (const { name, text } of files) hash.update(`${name}\0${text}\0`);
  return { hash: hash.digest('hex'), parse: () => sortDocuments(files.flatMap(objectsIn)) };
}

interface PolicyFile {
  readonly name: string;
  readonly text: string;
}

async function policyPaths(path: string): Promise<readonly string[]> {
  try {
    if (!(await stat(path)).isDirectory()) return [path];
    const names = (await readdir(path)).filter((name) => POLICY_FILE.test(name));
    return names.toSorted().map((name) => join(path, name));
  } catch (cause) {
    throw unreadable(path, cause);
  }
}

async function readPolicyFile(path: string): Promise<PolicyFile> {
  let size: number;
  let regular: boolean;
  try {
    const about = await stat(path);
    size = about.size;
    regular = about.isFile();
    // A pipe or device would never end.
    if (regular && size <= MAX_FILE_BYTES)
      return { name: basename(path), text: await readFile(path, 'utf8') };
  } catch (cause) {
    throw unreadable(path, cause);
  }
  const problem = regular ? `is ${size} bytes long, more than ${MAX_FILE_BYTES}` : 'is not a regular file';
  throw new LingerError(
    'policy-unreadable',
    `${path}: ${problem}; --policies takes a folder or a file of policies`,
  );
}

function objectsIn({ name, text }: PolicyFile): readonly LocatedObject[] {
  try {
    return readManifests(text, name).objects;
  } catch (cause) {
    const message = cause instanceof Error ? cause.message : String(cause);
    throw new LingerError('policy-syntax', message, { cause });
  }
}

function unreadable(path: string, cause: unknown): LingerError {
  const why = cause instanceof Error ? cause.message : String(cause);
  return new LingerError(
    'policy-unreadable',
    `${path}: cannot be read (${why}); --policies takes a folder or a file`,
    {
      cause,
    },
  );
}
