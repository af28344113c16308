import { createHash, randomBytes } from 'node:crypto';
import { constants } from 'node:fs';
import { access, mkdir, open, readFile, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { CertificateError } from './x509.ts';

/** Kubernetes' names in a Secret of type kubernetes.io/tls, as cert-manager fills it, and the CA's key. */
export const certificateFiles = ['ca.crt', 'ca.key', 'tls.crt', 'tls.key'] as const;
export type CertificateFile = (typeof certificateFiles)[number];

/** The text of each file; a file that does not exist is absent. */
export type Contents = Readonly<Partial<Record<CertificateFile, string>>>;

const KEY_MODE = 0o600;
const CERTIFICATE_MODE = 0o644;
const DIRECTORY_MODE = 0o700;
/** Reads that must agree. A writer that changes files without end is found out by comparing the pair. */
const MAX_READS = 4;

/**
 * Reads the four files until two readings agree, so that a Secret volume whose `..data` link is swapped in
 * between does not yield the certificate of one generation and the key of another.
 *
 * @throws CertificateError `Unreadable`
 */
export async function readContents(directory: string): Promise<Contents> {
  let contents = await readOnce(directory);
  for (let reads = 1; reads < MAX_READS; reads++) {
    const again = await readOnce(directory);
    if (fingerprint(again) === fingerprint(contents)) return again;
    contents = again;
  }
  return contents;
}

/** A digest that differs when any of the files does. */
export function fingerprint(contents: Contents): string {
  const files = certificateFiles.map((name) => contents[name] ?? null);
  return createHash('sha256').update(JSON.stringify(files)).digest('hex');
}

async function readOnce(directory: string): Promise<Contents> {
  const texts = await Promise.all(certificateFiles.map((name) => readText(join(directory, name))));
  return Object.fromEntries(certificateFiles.map((name, i) => [name, texts[i]]));
}

async function readText(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw new CertificateError(
      'Unreadable',
      `cannot read ${file}: ${errorCode(error)}; let this user read it, or use another directory`,
    );
  }
}

/**
 * Creates the directory (0700) if it is missing, and makes sure that it can be written to: before a key
 * is generated, because a process that retries every few seconds should not burn a core for nothing.
 *
 * @throws CertificateError `Unwritable`
 */
export async function prepareDirectory(directory: string): Promise<void> {
  try {
    await makeDirectory(directory);
    await access(directory, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw unwritable(directory, error);
  }
}

/** Not mkdir's own `recursive`: where a directory exists but takes no children (procfs), that never returns. */
async function makeDirectory(directory: string): Promise<void> {
  try {
    await mkdir(directory, { mode: DIRECTORY_MODE });
  } catch (error) {
    const parent = dirname(directory);
    if (errorCode(error) === 'EEXIST') return;
    if (errorCode(error) !== 'ENOENT' || parent === directory) throw error;
    await makeDirectory(parent);
    await mkdir(directory, { mode: DIRECTORY_MODE }).catch((again: unknown) => {
      // Another process may have created it meanwhile.
      if (errorCode(again) !== 'EEXIST') throw again;
    });
  }
}

/**
 * Replaces the files given, each at once (a temporary file, then a rename), in an order that a crash
 * cannot turn into something that looks right and is not:
 * - where there was no ca.key, it comes first: without it the directory would pass for a user's own;
 * - where it replaces one, it comes last: until then the old key still signs, and can cross-sign.
 *
 * @throws CertificateError `Unwritable`
 */
export async function writeContents(
  directory: string,
  contents: Contents,
  replacesKey: boolean,
): Promise<void> {
  const authorityKey = ['ca.key'] as const;
  const others = ['ca.crt', 'tls.key', 'tls.crt'] as const;
  for (const name of replacesKey ? [...others, ...authorityKey] : [...authorityKey, ...others]) {
    const text = contents[name];
    if (text !== undefined) await replaceFile(directory, name, text);
  }
}

async function replaceFile(directory: string, name: CertificateFile, text: string): Promise<void> {
  const target = join(directory, name);
  const temporary = join(directory, `.${name}.${randomBytes(6).toString('hex')}.tmp`);
  try {
    const file = await open(temporary, 'wx', name.endsWith('.key') ? KEY_MODE : CERTIFICATE_MODE);
    try {
      await file.writeFile(text);
      // Else a power cut may leave the new name with none of the bytes.
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(temporary, target);
  } catch (error) {
    await rm(temporary, { force: true }).catch(() => undefined);
    throw unwritable(target, error);
  }
}

function unwritable(path: string, error: unknown): CertificateError {
  return new CertificateError(
    'Unwritable',
    `cannot write ${path}: ${errorCode(error)}; use a directory that this user may write to, or one with a tls.crt and tls.key of your own`,
  );
}

/** EACCES and the like: it says all there is to say, and a message of Node's would repeat the path. */
function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error);
}
