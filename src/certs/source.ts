import { asError } from '../api/index.ts';
import { type Logger, LogOnce, type Metrics } from '../telemetry/index.ts';
import { tick } from '../timing/index.ts';
import { assess, type IssueReason, issued, type ServingMaterial } from './assess.ts';
import { fingerprint, prepareDirectory, readContents, writeContents } from './directory.ts';
import { CertificateError, parseCertificates, parseNames, SERVING_LIFE_MS } from './x509.ts';

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
  /** `shared`: of a Secret, see SecretSource. */
  readonly origin: 'generated' | 'reused' | 'provided' | 'shared';
  /** With `generated`: why. */
  readonly because?: IssueReason;
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
  let because: IssueReason | undefined;
  for (let attempt = 0; attempt <= MAX_ATTEMPTS; attempt++) {
    const contents = await readContents(directory);
    const verdict = assess(contents, wanted, directory, now);
    if ('serve' in verdict) {
      const { serve, origin } = verdict;
      if (origin === 'provided' || because === undefined) return { ...serve, origin };
      return { ...serve, origin: 'generated', because };
    }
    if (attempt === MAX_ATTEMPTS) break;
    const { issue } = verdict;
    because = issue.because;
    await prepareDirectory(directory);
    const made = await issued(issue, contents, now, SERVING_LIFE_MS);
    const pair = { 'tls.crt': made['tls.crt'], 'tls.key': made['tls.key'] };
    // The files of an authority that stays are left alone: they may be a user's.
    const files = issue.authority === undefined ? made : pair;
    await writeContents(directory, files, contents['ca.key'] !== undefined);
  }
  throw new CertificateError(
    'Contended',
    `${directory} still holds no usable certificate after ${MAX_ATTEMPTS} were written (last fault: ${because}); ` +
      'does another process write there?',
  );
}

/**
 * Content is polled, not watched: inotify says nothing reliable about the symbolic links of a mounted Secret. The
 * kubelet takes a minute to bring a new Secret, so 5 s add little, and reading four small files costs nothing. A timer
 * for the renewal itself would not do: setTimeout overflows at 24.8 days, and does not run while a machine sleeps.
 */
const LOOK_EVERY_MS = 5_000;

export interface FollowOptions {
  readonly signal: AbortSignal;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly clock?: () => Date;
  readonly everyMs?: number;
}

/** Secrets that all replicas with the same source have, the newest first: what was signed with an older one is good, too. */
export type CommonKeys = readonly [newest: string, ...older: string[]];

/** Where a server's certificate comes from. A source that is open always has one. */
export interface CertificateSource {
  /** The certificate in force. */
  get(): ServingCertificate;
  /** Others, and another array, whenever they change. */
  readonly commonKeys: CommonKeys;
  /** Why clients refuse the certificate in force; undefined: they do not. */
  unready(now: Date): string | undefined;
  /** Whether there is a webhook configuration; undefined: not known. Absent: the source does not follow it. */
  configured?(): boolean | undefined;
  /**
   * Keeps the certificate up until the signal aborts; the wait keeps no process alive.
   * @param use gets each new certificate; one that it refuses, by throwing, does not come into force
   */
  follow(use: (certificate: ServingCertificate) => void, options: FollowOptions): Promise<void>;
}

/** @param configuration the name of the MutatingWebhookConfiguration @param there whether there is one */
export function tellConfigured(once: LogOnce, configuration: string, there: boolean): void {
  if (there) once.over('configuration', { configuration }, 'the webhook configuration is there again');
  else
    once.warn('configuration', { configuration }, 'there is no webhook configuration: no pod reaches Linger');
}

export function showCertificate({ cert, notAfter }: ServingCertificate, metrics: Metrics): void {
  const [leaf] = parseCertificates(cert);
  metrics.certificateExpiry.set(notAfter.getTime() / 1000);
  if (leaf !== undefined) metrics.certificateIssued.set(leaf.validFromDate.getTime() / 1000);
}

/** The serving certificate of a directory, which Linger maintains or a user provides: see ensureCertificates. */
export class FileSource implements CertificateSource {
  readonly #options: EnsureOptions;
  #current: ServingCertificate;
  commonKeys: CommonKeys;
  /** The files as they were after the last good look; undefined makes the next look a full one. */
  #seen: string | undefined;

  private constructor(options: EnsureOptions, { certificate, files }: Awaited<ReturnType<typeof load>>) {
    this.#options = options;
    this.#current = certificate;
    this.commonKeys = [certificate.key];
    this.#seen = files;
  }

  /** @throws CertificateError when there is nothing to serve with */
  static async open(options: EnsureOptions, now: Date): Promise<FileSource> {
    return new FileSource(options, await load(options, now));
  }

  get(): ServingCertificate {
    return this.#current;
  }

  unready(now: Date): string | undefined {
    return now < this.#current.notAfter ? undefined : 'the serving certificate has expired';
  }

  /**
   * Looks again, and renews what is due. After a failure the last good certificate stays in force.
   * @returns the new certificate, if there is one
   * @throws CertificateError
   */
  async refresh(now: Date): Promise<ServingCertificate | undefined> {
    const before = this.#current;
    const { directory } = this.#options;
    if (now < before.renewAt && this.#seen === fingerprint(await readContents(directory))) return undefined;
    this.#seen = undefined;
    const { certificate, files } = await load(this.#options, now);
    this.#seen = files;
    this.#current = certificate;
    // Other replicas may have the one before still.
    if (certificate.key !== before.key) this.commonKeys = [certificate.key, before.key];
    const same = (['cert', 'key', 'caBundle'] as const).every((part) => certificate[part] === before[part]);
    return same ? undefined : certificate;
  }

  async follow(use: (certificate: ServingCertificate) => void, options: FollowOptions): Promise<void> {
    const { signal, logger, metrics, clock = () => new Date(), everyMs = LOOK_EVERY_MS } = options;
    const once = new LogOnce(logger);
    showCertificate(this.#current, metrics);
    while (await tick(everyMs, signal)) {
      const before = this.#current;
      try {
        const certificate = await this.refresh(clock());
        if (certificate !== undefined) {
          use(certificate);
          const { notAfter, origin } = certificate;
          showCertificate(certificate, metrics);
          metrics.certificateReloads.inc({ result: 'success' });
          logger.info({ notAfter, origin }, 'serving certificate replaced');
        }
        once.over('certificate', {}, 'the files of the serving certificate can be used again');
      } catch (thrown) {
        this.#current = before;
        this.#seen = undefined;
        const { message: problem, code: reason }: Error & { code?: string } = asError(thrown);
        const isNew = once.error(
          'certificate',
          { ...(reason && { reason }), problem },
          'serving certificate not replaced; the last good one keeps serving',
        );
        if (isNew) metrics.certificateReloads.inc({ result: 'failure' });
      }
    }
  }
}

async function load(options: EnsureOptions, now: Date) {
  // Taken before: files that change during the load are then looked at again.
  const files = fingerprint(await readContents(options.directory));
  return { files, certificate: await ensureCertificates(options, now) };
}
