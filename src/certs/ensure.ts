import { join } from 'node:path';
import { assess, type Reissue, type RenewalReason, type Rotate, type Usable } from './assess.ts';
import { CertificateError } from './certificate-error.ts';
import { type Contents, prepareDirectory, readContents, writeContents } from './directory.ts';
import type { ServingMaterial } from './material.ts';
import { parseNames } from './names.ts';

export interface EnsureOptions {
  /** Made (0700) when it does not exist. */
  readonly directory: string;
  /** DNS names, wildcards and IP addresses that a certificate of Linger's own shall be valid for. */
  readonly names: readonly string[];
  /**
   * What to do about a sound certificate of Linger's own that has other names. A process that is already
   * running refuses: two of them, with different names and one directory, would otherwise replace each
   * other's certificate for ever. Default: reissue.
   */
  readonly onOtherNames?: 'reissue' | 'refuse';
}

export interface ServingCertificate extends ServingMaterial {
  readonly origin: 'generated' | 'reused' | 'provided';
  /** With `generated`: why. */
  readonly because?: RenewalReason;
}

/** One to issue, one more for a process that wrote at the same time, and one to see that it is over. */
const MAX_ATTEMPTS = 3;

/**
 * The serving certificate in a directory: the user's own as it is, or Linger's own, made or renewed first
 * where that is needed. What is returned has been read back from the files, so it is what they hold.
 *
 * @throws CertificateError every code
 */
export async function ensureCertificates(options: EnsureOptions, now: Date): Promise<ServingCertificate> {
  const { directory } = options;
  const names = parseNames(options.names);
  let because: RenewalReason | undefined;
  for (let attempt = 0; attempt <= MAX_ATTEMPTS; attempt++) {
    const contents = await readContents(directory);
    const verdict = assess(contents, names, directory, now);
    if ('material' in verdict) return served(verdict, because);
    if (verdict.because === 'NamesDiffer' && options.onOtherNames === 'refuse') throw otherNames(directory);
    if (attempt === MAX_ATTEMPTS) break;
    because = verdict.because;
    await prepareDirectory(directory);
    await writeContents(
      directory,
      await carryOut(verdict, options.names, now),
      contents['ca.key'] !== undefined,
    );
  }
  throw new CertificateError(
    'Contended',
    `${directory} still holds no usable certificate after ${MAX_ATTEMPTS} were written (last fault: ${because}); ` +
      'does another process write there?',
  );
}

function served({ kind, material }: Usable, because: RenewalReason | undefined): ServingCertificate {
  if (kind === 'provided') return { ...material, origin: 'provided' };
  return because === undefined
    ? { ...material, origin: 'reused' }
    : { ...material, origin: 'generated', because };
}

async function carryOut(verdict: Reissue | Rotate, names: readonly string[], now: Date): Promise<Contents> {
  // node-forge costs 60 ms and 13 MB; a process that finds its certificate in order never loads it.
  const { crossSign, issueAuthority, issueServingCertificate } = await import('./issue.ts');
  if (verdict.kind === 'reissue') {
    const pair = await issueServingCertificate(verdict.authority, names, now);
    return { 'tls.crt': pair.cert + verdict.intermediates, 'tls.key': pair.key };
  }
  const { predecessor } = verdict;
  const authority = await issueAuthority(now);
  const pair = await issueServingCertificate(authority, names, now);
  const intermediate = predecessor === undefined ? '' : crossSign(authority, predecessor, now);
  return {
    'ca.crt': authority.certificate + verdict.retained,
    'ca.key': authority.key,
    'tls.crt': pair.cert + intermediate,
    'tls.key': pair.key,
  };
}

function otherNames(directory: string): CertificateError {
  return new CertificateError(
    'OtherNames',
    `${join(directory, 'tls.crt')} has been replaced by one for other names; give each process a directory of its ` +
      'own, or remove tls.crt and tls.key for this one to make its own again',
  );
}
