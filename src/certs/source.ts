import type { WatchStats } from '../cluster/index.ts';
import { asError } from '../core/api/index.ts';
import { type Logger, LogOnce, type Metrics } from '../telemetry/index.ts';
import { tick } from '../timing/index.ts';
import { type EnsureOptions, ensureCertificates, type ServingCertificate } from './folder.ts';
import { parseCertificates } from './x509.ts';

/**
 * Content is polled, not watched: inotify says nothing reliable about the symbolic links of a mounted Secret. The kubelet
 * takes a minute to update a mounted Secret, so 5 s add little, and reading four small files costs nothing. A timer for the
 * renewal itself would not do: setTimeout overflows at 24.8 days, and does not run while a machine sleeps.
 */
const LOOK_EVERY_MS = 5_000;

export interface FollowOptions {
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly clock?: () => Date;
  readonly everyMs?: number;
}

/** Secrets that all replicas with the same source share, newest first. Signatures with an older one are accepted as well. */
export type CommonKeys = readonly [newest: string, ...older: string[]];

/** Once open, a source always has a certificate. */
export interface CertificateSource {
  get(): ServingCertificate;
  /** Replaced by a new array whenever the keys change. */
  readonly commonKeys: CommonKeys;
  /** Why clients reject the current certificate; undefined: they do not. */
  unready(now: Date): string | undefined;
  /** Whether a webhook configuration exists; undefined: not known. Absent: the source does not follow it. */
  configured?(): boolean | undefined;
  /** Whether that configuration trusts the current certificate; undefined: not known, or there is none. */
  trusted?(): boolean | undefined;
  /** The list-watches on which it depends, by resource; absent: none. */
  watches?(): Readonly<Record<string, WatchStats>>;
  /**
   * Keeps the certificate current until the signal aborts.
   * @param use takes each new certificate; if it throws, the certificate is not used
   */
  follow(use: (certificate: ServingCertificate) => void, options: FollowOptions): Promise<void>;
}

/** @param there whether the MutatingWebhookConfiguration exists */
export function tellConfigured(once: LogOnce, configuration: string, there: boolean): void {
  if (there) once.over('configuration', { configuration }, 'webhook configuration found again');
  else
    once.warn(
      'configuration',
      { configuration },
      'webhook configuration missing; no pod creation reaches Linger',
    );
}

export function showCertificate({ cert, notAfter }: ServingCertificate, metrics: Metrics): void {
  const [leaf] = parseCertificates(cert);
  metrics.certificateExpiry.set(notAfter.getTime() / 1000);
  if (leaf !== undefined) metrics.certificateIssued.set(leaf.validFromDate.getTime() / 1000);
}

/** The serving certificate in a folder, which a user provides or Linger creates: see ensureCertificates. */
export class FileSource implements CertificateSource {
  readonly #options: EnsureOptions;
  #current: ServingCertificate;
  commonKeys: CommonKeys;

  private constructor(options: EnsureOptions, certificate: ServingCertificate) {
    this.#options = options;
    this.#current = certificate;
    this.commonKeys = [certificate.key];
  }

  /** @throws CertificateError if there is nothing to serve with */
  static async open(options: EnsureOptions, now: Date): Promise<FileSource> {
    return new FileSource(options, await ensureCertificates(options, now));
  }

  get(): ServingCertificate {
    return this.#current;
  }

  unready(now: Date): string | undefined {
    return now < this.#current.notAfter ? undefined : 'the serving certificate has expired';
  }

  async follow(use: (certificate: ServingCertificate) => void, options: FollowOptions): Promise<void> {
    const { signal, logger, metrics, clock = () => new Date(), everyMs = LOOK_EVERY_MS } = options;
    const once = new LogOnce(logger);
    showCertificate(this.#current, metrics);
    while (await tick(everyMs, signal)) {
      try {
        const certificate = await ensureCertificates(this.#options, clock());
        if (this.#differs(certificate)) {
          use(certificate);
          this.#replace(certificate);
          showCertificate(certificate, metrics);
          metrics.certificateReloads.inc({ result: 'success' });
          const { notAfter, origin } = certificate;
          logger.info({ notAfter, origin }, 'serving certificate replaced');
        }
        once.over('certificate', {}, 'certificate files usable again');
      } catch (thrown) {
        const { message: problem, code: reason }: Error & { code?: string } = asError(thrown);
        once.error(
          'certificate',
          { ...(reason && { reason }), problem },
          'certificate files unusable; still serving the previous certificate',
        );
        metrics.certificateReloads.inc({ result: 'failure' });
      }
    }
  }

  #differs(certificate: ServingCertificate): boolean {
    return (['cert', 'key', 'caBundle'] as const).some((part) => certificate[part] !== this.#current[part]);
  }

  #replace(certificate: ServingCertificate): void {
    const { key } = this.#current;
    this.#current = certificate;
    if (certificate.key !== key) this.commonKeys = [certificate.key, key];
  }
}
