import { setTimeout as sleep } from 'node:timers/promises';
import { fingerprint, readContents } from './directory.ts';
import { type EnsureOptions, ensureCertificates, type ServingCertificate } from './ensure.ts';

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

  const load = async (onOtherNames: 'reissue' | 'refuse', now: Date): Promise<ServingCertificate> => {
    // Taken before: files that change during the load are then looked at again.
    const files = fingerprint(await readContents(options.directory));
    current = await ensureCertificates({ ...options, onOtherNames }, now);
    seen = files;
    return current;
  };
  const look = async (before: ServingCertificate, now: Date): Promise<Refreshed> => {
    const due = now >= before.renewAt;
    if (!due && seen === fingerprint(await readContents(options.directory))) return { outcome: 'unchanged' };
    const certificate = await load('refuse', now);
    return sameMaterial(before, certificate) ? { outcome: 'unchanged' } : { outcome: 'changed', certificate };
  };
  const inForce = (): ServingCertificate => {
    if (current === undefined) throw new Error('no certificate yet: start the source first');
    return current;
  };

  return {
    get: inForce,
    healthy: (now) => current !== undefined && now < current.notAfter,
    start: (now) => load('reissue', now),
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

/** False when the signal has aborted. */
async function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  try {
    await sleep(ms, undefined, { signal, ref: false });
    return true;
  } catch {
    return false;
  }
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
