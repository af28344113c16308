import { asError } from '../core/catalog/errors.ts';
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
