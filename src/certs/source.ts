import { asError } from '../api/index.ts';
import { pause } from '../timing/index.ts';
import {
  assess,
  type Reissue,
  type RenewalReason,
  type Rotate,
  type ServingMaterial,
  type Usable,
} from './assess.ts';
import { CertificateError } from './certificate-error.ts';
import { type Contents, fingerprint, prepareDirectory, readContents, writeContents } from './directory.ts';
import { parseNames } from './x509.ts';

export interface EnsureOptions {
  /** Made (0700) when it does not exist. */
  readonly directory: string;
  /** DNS names, wildcards and IP addresses that a certificate of Linger's own shall be valid for. */
  readonly names: readonly string[];
  /**
   * Only these. Default: a certificate that is there keeps its names, and gets those that it lacks. So a server never
   * takes a name from a certificate that a person has made, and two servers with one directory agree.
   */
  readonly exactly?: boolean;
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
  const { directory, exactly = false } = options;
  const wanted = { names: parseNames(options.names), exactly };
  let because: RenewalReason | undefined;
  for (let attempt = 0; attempt <= MAX_ATTEMPTS; attempt++) {
    const contents = await readContents(directory);
    const verdict = assess(contents, wanted, directory, now);
    if ('material' in verdict) return served(verdict, because);
    if (attempt === MAX_ATTEMPTS) break;
    because = verdict.because;
    await prepareDirectory(directory);
    await writeContents(directory, await carryOut(verdict, now), contents['ca.key'] !== undefined);
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

async function carryOut(verdict: Reissue | Rotate, now: Date): Promise<Contents> {
  const { crossSign, issueAuthority, issueServingCertificate } = await import('./issue.ts');
  const names = verdict.names.map(({ value }) => value);
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

/** What a look at the source brought. After `failed`, the last good certificate stays in force. */
export type Refreshed =
  | { readonly outcome: 'unchanged' }
  | { readonly outcome: 'changed'; readonly certificate: ServingCertificate }
  | { readonly outcome: 'failed'; readonly error: Error };

/** Where the serving certificate comes from. */
export interface CertificateSource {
  /** The first load. Rejects with a CertificateError when there is nothing to serve with. */
  start(now: Date): Promise<ServingCertificate>;
  /** The certificate in force. Throws before `start` has resolved. */
  get(): ServingCertificate;
  /** Looks again, renews what is due, and never rejects. */
  refresh(now: Date): Promise<Refreshed>;
  /** False once clients must refuse the certificate in force. */
  healthy(now: Date): boolean;
}

/** A source over a directory, which Linger maintains or a user provides: see ensureCertificates. */
export function certificateDirectory(options: Pick<EnsureOptions, 'directory' | 'names'>): CertificateSource {
  let current: ServingCertificate | undefined;
  /** The files as they were after the last good look; undefined makes the next look a full one. */
  let seen: string | undefined;

  const load = async (now: Date): Promise<ServingCertificate> => {
    // Taken before: files that change during the load are then looked at again.
    const files = fingerprint(await readContents(options.directory));
    current = await ensureCertificates(options, now);
    seen = files;
    return current;
  };
  const look = async (before: ServingCertificate, now: Date): Promise<Refreshed> => {
    const due = now >= before.renewAt;
    if (!due && seen === fingerprint(await readContents(options.directory))) return { outcome: 'unchanged' };
    const certificate = await load(now);
    return sameMaterial(before, certificate) ? { outcome: 'unchanged' } : { outcome: 'changed', certificate };
  };
  const inForce = (): ServingCertificate => {
    if (current === undefined) throw new Error('no certificate yet: start the source first');
    return current;
  };

  return {
    get: inForce,
    healthy: (now) => current !== undefined && now < current.notAfter,
    start: load,
    refresh: async (now) => {
      try {
        return await look(inForce(), now);
      } catch (error) {
        seen = undefined;
        return { outcome: 'failed', error: asError(error) };
      }
    },
  };
}

function sameMaterial(one: ServingCertificate, other: ServingCertificate): boolean {
  return one.cert === other.cert && one.key === other.key && one.caBundle === other.caBundle;
}

export interface WatchOptions {
  readonly signal: AbortSignal;
  readonly clock: () => Date;
  /** Called with each new certificate: `server.setSecureContext(certificate)`, and a line in the log. */
  readonly onChange: (certificate: ServingCertificate) => void;
  /** Called when a look fails, once as long as the message stays the same. What `onChange` throws comes here too. */
  readonly onFailure: (error: Error) => void;
  /** Between two looks. Default: 5 s. */
  readonly everyMs?: number;
}

/**
 * Content is polled, not watched: inotify says nothing reliable about the symbolic links of a mounted
 * Secret. The kubelet takes a minute to bring a new Secret, so 5 s add little, and reading four small
 * files costs nothing. A timer set for the renewal itself would not do: setTimeout overflows at 24.8 days,
 * and does not run while a machine sleeps.
 */
const DEFAULT_EVERY_MS = 5_000;

/** Looks at a started source again and again. Resolves when the signal aborts; the wait keeps no process alive. */
export async function watchCertificates(source: CertificateSource, options: WatchOptions): Promise<void> {
  const { signal, clock, onChange, onFailure, everyMs = DEFAULT_EVERY_MS } = options;
  let reported: string | undefined;
  while (await pause(everyMs, signal)) {
    const error = announce(await source.refresh(clock()), onChange);
    if (error !== undefined && error.message !== reported) onFailure(error);
    reported = error?.message;
  }
}

function announce(refreshed: Refreshed, onChange: WatchOptions['onChange']): Error | undefined {
  if (refreshed.outcome === 'failed') return refreshed.error;
  if (refreshed.outcome === 'unchanged') return undefined;
  try {
    onChange(refreshed.certificate);
    return undefined;
  } catch (error) {
    return asError(error);
  }
}
