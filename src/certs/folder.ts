import { constants } from 'node:fs';
import { access, mkdir, readFile, rm, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { isDeepStrictEqual } from 'node:util';
import { fileText } from '../core/yaml/index.ts';
import {
  AUTHORITY_LIFE_MS,
  CertificateError,
  type CertificateErrorCode,
  formatCertificates,
  isIssuedByLinger,
  namesOf,
  parseCertificates,
  parseKey,
  parseNames,
  renewalTime,
  type ServingMaterial,
  tlsRejection,
} from './x509.ts';

/** The names that Kubernetes uses in a Secret of type kubernetes.io/tls, as cert-manager creates it. */
const FILES = ['ca.crt', 'tls.crt', 'tls.key'] as const;
type FolderFile = (typeof FILES)[number];
/** The text of each file; a file that does not exist is absent. */
type Files = Readonly<Partial<Record<FolderFile, string>>>;

export interface EnsureOptions {
  /** Created (0700) if it does not exist. */
  readonly directory: string;
  /** DNS names, wildcards and IP addresses for which a certificate of Linger's own should be valid. */
  readonly names: readonly string[];
  /**
   * Whether a person asks for it (`linger certs`): the certificate then gets exactly these names, and is replaced once two
   * thirds of its life have passed. A server keeps a valid certificate that has its names, because clients trust it.
   */
  readonly onRequest?: boolean;
}

export interface ServingCertificate extends ServingMaterial {
  /** `provided`: a user's own, served as it is. `shared`: from a Secret, see SecretSource. */
  readonly origin: 'generated' | 'reused' | 'provided' | 'shared';
}

/** A second process waits this long for the pair of the first, which takes milliseconds to write it. */
const WRITTEN_WITHIN_MS = 250;

/**
 * The serving certificate in a folder: a user's, served as it is, or one of Linger's own, which is created if there is none
 * or it can no longer be used. A new one has a new authority, whose key is discarded, so clients need the new ca.crt. Linger
 * never replaces a file that it did not create.
 *
 * @throws CertificateError every code but `NotShared`
 */
export async function ensureCertificates(options: EnsureOptions, now: Date): Promise<ServingCertificate> {
  const { directory } = options;
  const names = parseNames(options.names);
  const files = await readFolder(directory);
  const isOurs = isMadeByLinger(files);
  if (!isOurs || !isDue(files, { ...options, names }, now))
    return { ...acceptPair(files, directory, now), origin: isOurs ? 'reused' : 'provided' };
  try {
    await makeDirectory(directory);
    // Checked before keys are created, so that a server that retries every few seconds does not waste processor time.
    await access(directory, constants.W_OK | constants.X_OK);
    const made = await makePair(names, now);
    if (await writePair(directory, made, files['tls.key']))
      return { ...acceptPair(made, directory, now), origin: 'generated' };
  } catch (error) {
    // An expired pair is a better explanation than a folder that cannot be written to.
    if (files['tls.key'] !== undefined) acceptPair(files, directory, now);
    throw unwritable(directory, error);
  }
  await sleep(WRITTEN_WITHIN_MS);
  return ensureCertificates(options, now);
}

/** Whether Linger may replace what is in the folder: nothing, or files that it has created itself. */
function isMadeByLinger({ 'ca.crt': ca = '', 'tls.crt': cert, 'tls.key': key }: Files): boolean {
  if (ca === '' && cert === undefined) return key === undefined;
  const authorities = parseCertificates(ca);
  const chain = parseCertificates(cert ?? '');
  if (authorities.length === 0 || (cert !== undefined && chain.length === 0)) return false;
  return [...authorities, ...chain].every(isIssuedByLinger);
}

/**
 * Whether a new pair must be created. A key that does not match the certificate beside it may be a user's only copy, so it
 * is never replaced.
 */
function isDue(files: Files, { names, onRequest = false }: EnsureOptions, now: Date): boolean {
  const { 'tls.crt': cert = '', 'tls.key': keyText } = files;
  if (keyText === undefined) return true;
  const [leaf] = parseCertificates(cert);
  const key = parseKey(keyText);
  if (leaf === undefined || typeof key === 'string' || !leaf.checkPrivateKey(key)) return false;
  if (!onRequest) return now >= leaf.validToDate;
  return now >= renewalTime(leaf) || !isDeepStrictEqual(new Set(namesOf(leaf)), new Set(names));
}

/**
 * Accepts the pair as it is. Its names are up to the user, and so is a notBefore in the future, which clients judge by their
 * own clocks.
 */
function acceptPair(files: Files, directory: string, now: Date): ServingMaterial {
  const refuse = (code: CertificateErrorCode, file: FolderFile, fault: string) =>
    new CertificateError(
      code,
      `${join(directory, file)} ${fault}; put a valid tls.crt and tls.key there, ` +
        `or remove the .crt and .key files from ${directory} and Linger makes its own`,
    );
  const required = (file: FolderFile) => {
    const text = files[file];
    if (text === undefined) throw refuse('Incomplete', file, 'is missing');
    return text;
  };
  const chain = parseCertificates(required('tls.crt'));
  const key = required('tls.key');
  const [leaf] = chain;
  if (leaf === undefined) throw refuse('Corrupt', 'tls.crt', 'holds no certificate that can be read');
  const parsed = parseKey(key);
  if (parsed === 'encrypted')
    throw refuse('EncryptedKey', 'tls.key', 'is encrypted, and a server cannot ask for a passphrase');
  if (parsed === 'corrupt') throw refuse('Corrupt', 'tls.key', 'holds no private key that can be read');
  if (!leaf.checkPrivateKey(parsed))
    throw refuse('Mismatched', 'tls.key', 'does not belong to the first certificate in tls.crt');
  const cert = formatCertificates(chain);
  const rejection = tlsRejection(cert, key);
  if (rejection !== undefined) throw refuse('Corrupt', 'tls.crt', `is not accepted for TLS: ${rejection}`);
  if (leaf.validToDate <= now)
    throw refuse('Expired', 'tls.crt', `expired on ${leaf.validToDate.toISOString()}`);
  // A self-signed serving certificate is its own authority.
  const selfSigned = leaf.checkIssued(leaf) ? [leaf] : [];
  const authorities = files['ca.crt'] === undefined ? selfSigned : parseCertificates(files['ca.crt']);
  return { cert, key, caBundle: formatCertificates(authorities), notAfter: leaf.validToDate };
}

/** Takes about 100 ms for each of its two keys, in the thread pool. */
async function makePair(names: readonly string[], now: Date): Promise<Required<Files>> {
  const { issueAuthority, issueServingCertificate } = await import('./issue.ts');
  const authority = await issueAuthority(now);
  const { cert, key } = await issueServingCertificate(authority, names, now, AUTHORITY_LIFE_MS);
  return { 'ca.crt': authority.certificate, 'tls.crt': cert, 'tls.key': key };
}

async function readFolder(directory: string): Promise<Files> {
  const texts = await Promise.all(FILES.map((name) => readText(join(directory, name))));
  return Object.fromEntries(FILES.flatMap((name, i) => (texts[i] === undefined ? [] : [[name, texts[i]]])));
}

async function readText(file: string): Promise<string | undefined> {
  try {
    return fileText(await readFile(file));
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined;
    throw new CertificateError(
      'Unreadable',
      `cannot read ${file}: ${errorCode(error)}; let this user read it, or use another directory`,
    );
  }
}

/** Does not use mkdir's own `recursive`, which never returns if a directory exists but accepts no children (procfs). */
async function makeDirectory(directory: string): Promise<void> {
  const make = () => mkdir(directory, { mode: 0o700 });
  const unlessThere = (error: unknown) => {
    if (errorCode(error) !== 'EEXIST') throw error;
  };
  try {
    await make();
  } catch (error) {
    const parent = dirname(directory);
    if (errorCode(error) !== 'ENOENT' || parent === directory) return unlessThere(error);
    await makeDirectory(parent);
    await make().catch(unlessThere);
  }
}

/**
 * Writes a pair, the key first, because only one process can create it.
 * @param before the key that it replaces
 * @returns false if another process was faster
 */
async function writePair(
  directory: string,
  files: Required<Files>,
  before: string | undefined,
): Promise<boolean> {
  const key = join(directory, 'tls.key');
  if (before !== undefined && (await readText(key)) === before) await rm(key);
  try {
    await writeFile(key, files['tls.key'], { mode: 0o600, flag: 'wx' });
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return false;
    throw error;
  }
  // The certificate comes last: until it exists, readers do not consider the pair complete.
  for (const name of ['ca.crt', 'tls.crt'] as const) await writeFile(join(directory, name), files[name]);
  return true;
}

function unwritable(path: string, error: unknown): CertificateError {
  return new CertificateError(
    'Unwritable',
    `cannot write ${path}: ${errorCode(error)}; use a directory that this user may write to, or one with a tls.crt and tls.key of your own`,
  );
}

/** A code such as EACCES; Node’s own message would repeat the path. */
function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : String(error);
}
