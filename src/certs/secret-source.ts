import { randomBytes } from 'node:crypto';
import {
  asFailure,
  callApi,
  followObject,
  type KubeConnection,
  type KubeFailure,
  type RawObject,
  type WatchStats,
} from '../cluster/index.ts';
import { isRecord, isString, isStringMap, recordsAt } from '../core/api/index.ts';
import { type Logger, LogOnce, type Metrics } from '../telemetry/index.ts';
import { Backoff, pause, RateLimit } from '../timing/index.ts';
import type { ServingCertificate } from './folder.ts';
import { type Issue, planRotation, type ReplicaView, type RotationPlan } from './rotation-plan.ts';
import type { SecretData } from './secret-contents.ts';
import {
  type CertificateSource,
  type CommonKeys,
  type FollowOptions,
  showCertificate,
  tellConfigured,
} from './source.ts';
import { CertificateError, isTrusted, parseCertificates, parseNames } from './x509.ts';

export interface SecretOptions {
  readonly connection: KubeConnection;
  /** Linger's own. */
  readonly namespace: string;
  /** This replica's name. Field managers contain it, which shows who created the Secret. */
  readonly identity: string;
  /** The name of the Secret. Its content belongs to Linger: whatever cannot be used is replaced. */
  readonly secret: string;
  /** The name of the MutatingWebhookConfiguration whose caBundle is maintained. */
  readonly configuration: string;
  readonly names: readonly string[];
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** How long to try before there is a certificate to serve with. Milliseconds. */
  readonly openWithinMs: number;
  readonly signal: AbortSignal;
}

/** Milliseconds. */
const LIMITS = {
  requestMs: 5_000,
  /** How often expiry is checked; changes by others are seen at once. */
  lookEveryMs: 15_000,
  /** How often to check while something is due, or while new trust has to settle. */
  lookSoonMs: 1_000,
  /** Spreads replicas that see the same change, so that they do not all write at once. */
  jitterMs: 300,
  failure: { firstPauseMs: 500, longestPauseMs: 8_000 },
  /** After this time, an untrusted certificate no longer keeps a replica unready, because that would only hide the cause. */
  untrustedMs: 30_000,
};
/**
 * Limits the writes of each object: replicas that disagree must not overwrite each other forever. Even if a tool keeps
 * overwriting the caBundle, it is restored within 10 s.
 */
const WRITES = { perSecond: 1 / 8, atOnce: 4 };

const ABOUT =
  'Made and renewed by Linger, which replaces whatever it cannot use here. For a certificate of your own: docs/reference/operations.md.';

interface StoredSecret {
  readonly contents: SecretData;
  readonly common: string | undefined;
  /** The version that a write replaces. */
  readonly resourceVersion: string;
}

/** The webhooks of the configuration, with the bundle that each trusts. */
interface Configuration {
  readonly bundles: readonly string[];
  readonly resourceVersion: string;
}

interface Followed<T> {
  /** Whether it has been read. */
  isKnown: boolean;
  /** undefined: it does not exist, or is not known yet. */
  value: T | undefined;
  /** Why the watch is interrupted. */
  failure: KubeFailure | undefined;
  readonly stats: WatchStats;
}

type Use = (certificate: ServingCertificate) => void;

/** A certificate that replicas share in a Secret, and which the webhook configuration is made to trust: see planRotation. */
export class SecretSource implements CertificateSource {
  readonly #options: SecretOptions;
  readonly #names: readonly string[];
  readonly #once: LogOnce;
  readonly #backoff = new Backoff(LIMITS.failure, Math.random);
  readonly #issues = new RateLimit(WRITES, performance.now());
  readonly #trusts = new RateLimit(WRITES, performance.now());
  readonly #secret: Followed<StoredSecret>;
  readonly #configuration: Followed<Configuration>;
  /** When the caBundle last changed, in milliseconds of the monotonic clock. */
  #trustSince = performance.now();
  #serving: ServingCertificate | undefined;
  /** The last value in the Secret of the key with which replicas sign. */
  #common: string | undefined;
  /** A key of this replica alone until the Secret has been read. */
  commonKeys: CommonKeys = [newCommon()];
  /** The bundle that all webhooks of the configuration trust; empty if they differ, so that all are written. */
  #bundle: string | undefined;
  #woken = new AbortController();
  /** Why the last attempt failed. */
  #problem = '';
  /** Whether a certificate of Linger's has been trusted once. After that, distrust is no reason to be unready. */
  #settled = false;
  readonly #openedAt = performance.now();

  private constructor(options: SecretOptions) {
    const { namespace, secret, configuration } = options;
    this.#options = options;
    this.#names = parseNames(options.names);
    this.#once = new LogOnce(options.logger);
    const secrets = `/api/v1/namespaces/${namespace}/secrets`;
    this.#secret = this.#watch(secrets, secret, storedSecret, (stored) => this.#tookSecret(stored));
    this.#configuration = this.#watch(CONFIGURATIONS, configuration, configurationOf, (found) =>
      this.#tookConfiguration(found),
    );
    options.signal.addEventListener('abort', () => this.#woken.abort(), { once: true });
  }

  /**
   * Reads the Secret, or creates it, and makes the webhook configuration trust it.
   * @throws CertificateError `BadName`; `NotShared` if the API server does not allow that, or cannot be reached
   */
  static async open(options: SecretOptions): Promise<SecretSource> {
    const source = new SecretSource(options);
    const { signal, openWithinMs, namespace, secret } = options;
    for (;;) {
      const waitMs = await source.#look(() => undefined);
      if (source.#serving !== undefined) return source;
      await pause(waitMs, source.#woken.signal);
      signal.throwIfAborted();
      if (performance.now() - source.#openedAt <= openWithinMs) continue;
      throw new CertificateError(
        'NotShared',
        `the Secret ${namespace}/${secret} can neither be read nor made: ${source.#problem || 'no answer'}; ` +
          'give Linger the Role linger-certificates, or its own files with --certs',
      );
    }
  }

  get(): ServingCertificate {
    if (this.#serving === undefined) throw new Error('a source that is open has a certificate');
    return this.#serving;
  }

  unready(now: Date): string | undefined {
    if (now >= this.get().notAfter) return 'the serving certificate has expired';
    const late = performance.now() - this.#openedAt > LIMITS.untrustedMs;
    this.#settled ||= late || !this.#distrusted(now);
    return this.#settled ? undefined : 'the webhook configuration does not trust the serving certificate yet';
  }

  configured(): boolean | undefined {
    const { isKnown, value } = this.#configuration;
    return isKnown ? (value?.bundles.length ?? 0) > 0 : undefined;
  }

  trusted(): boolean | undefined {
    const isKnown = this.configured() === true && this.#serving !== undefined;
    return isKnown ? !this.#distrusted(new Date()) : undefined;
  }

  /** False if there is no webhook configuration, because then no API server calls; {@link configured} reports that. */
  #distrusted(now: Date): boolean {
    return this.#bundle !== undefined && !isTrusted(this.get().cert, this.#bundle, now);
  }

  watches(): Readonly<Record<string, WatchStats>> {
    return { secrets: this.#secret.stats, mutatingwebhookconfigurations: this.#configuration.stats };
  }

  async follow(use: Use, { signal, metrics, logger }: FollowOptions): Promise<void> {
    showCertificate(this.get(), metrics);
    while (!signal.aborted) {
      this.#showTrust();
      const waitMs = await this.#look((certificate) => {
        use(certificate);
        showCertificate(certificate, metrics);
        metrics.certificateReloads.inc({ result: 'success' });
        const { notAfter, origin } = certificate;
        logger.info({ notAfter, origin }, 'serving certificate replaced');
      });
      await pause(waitMs, this.#woken.signal);
    }
  }

  #showTrust(): void {
    const configured = this.configured();
    if (configured === undefined || this.#serving === undefined) return;
    const { metrics, configuration } = this.#options;
    metrics.certificateTrusted.set(this.#distrusted(new Date()) ? 0 : 1);
    tellConfigured(this.#once, configuration, configured);
  }

  /** Does what is due. Never rejects. @returns the milliseconds until the next look, unless woken before */
  async #look(use: Use): Promise<number> {
    // A change during this look ends the pause that follows it.
    if (!this.#options.signal.aborted) this.#woken = new AbortController();
    try {
      const waitMs = await this.#step(use);
      this.#backoff.reset();
      this.#once.over('certificates', {}, 'renewing the shared certificates recovered');
      return waitMs;
    } catch (thrown) {
      if (this.#options.signal.aborted) return 0;
      const { reason, message: problem } = asFailure(thrown);
      this.#problem = problem;
      this.#once.error(
        'certificates',
        { reason, problem },
        'renewing the shared certificates failed; still serving the last good one',
      );
      this.#options.metrics.certificateReloads.inc({ result: 'failure' });
      return this.#backoff.next();
    }
  }

  /** @returns the milliseconds until the next look @throws KubeFailure */
  async #step(use: Use): Promise<number> {
    const followed = [this.#secret, this.#configuration];
    if (followed.some(({ isKnown, failure }) => !isKnown && failure === undefined)) return LIMITS.lookEveryMs;
    const failure = followed.find((each) => each.failure !== undefined)?.failure;
    if (!this.#secret.isKnown) throw failure;
    let plan = planRotation(this.#view(), new Date());
    const isDue = plan.issue !== undefined || plan.caBundle !== undefined;
    if (isDue && this.#serving !== undefined) {
      await pause(LIMITS.jitterMs * Math.random(), this.#options.signal);
      plan = planRotation(this.#view(), new Date());
    }
    const { issue, caBundle, serve } = plan;
    if (serve !== undefined) this.#serve(serve, use);
    const now = performance.now();
    // If one write is refused, the other is still made.
    const written = await Promise.allSettled([
      caBundle !== undefined && this.#trusts.take(now) && this.#unlessOvertaken(this.#trust(caBundle)),
      issue !== undefined && this.#issues.take(now) && this.#unlessOvertaken(this.#issue(issue)),
    ]);
    const refusal = written.find((each) => each.status === 'rejected');
    if (refusal !== undefined) throw refusal.reason;
    if (failure !== undefined) throw failure;
    const isSettled = issue === undefined && caBundle === undefined && this.#servesWhatIsStored(new Date());
    return isSettled ? LIMITS.lookEveryMs : LIMITS.lookSoonMs;
  }

  /** If another replica has written first, the watch will deliver what it wrote. */
  async #unlessOvertaken(write: Promise<void>): Promise<void> {
    try {
      await write;
    } catch (thrown) {
      if (asFailure(thrown).reason !== 'Conflict') throw thrown;
    }
  }

  #serve(material: NonNullable<RotationPlan['serve']>, use: Use): void {
    const certificate: ServingCertificate = { ...material, origin: 'shared' };
    if (certificate.cert !== this.#serving?.cert || certificate.key !== this.#serving.key) use(certificate);
    // If the Secret has no such key, replicas share the key of their certificate.
    if (this.#common === undefined) this.#signWith(certificate.key);
    this.#serving = certificate;
  }

  #signWith(key: string): void {
    const [before] = this.commonKeys;
    if (key !== before) this.commonKeys = this.#serving === undefined ? [key] : [key, before];
  }

  /** False while a certificate waits to become trusted. */
  #servesWhatIsStored(now: Date): boolean {
    const [stored] = parseCertificates(this.#secret.value?.contents['tls.crt'] ?? '');
    const [served] = parseCertificates(this.#serving?.cert ?? '');
    return served?.fingerprint256 === stored?.fingerprint256 && !this.#distrusted(now);
  }

  #view(): ReplicaView {
    const bundle = this.#bundle;
    const forMs = performance.now() - this.#trustSince;
    return {
      secret: this.#secret.value?.contents,
      trust: bundle === undefined ? undefined : { bundle, forMs },
      serving: this.#serving,
      names: this.#names,
    };
  }

  #tookConfiguration(configuration: Configuration | undefined): void {
    const bundles = new Set(configuration?.bundles);
    const [bundle] = bundles.size > 1 ? [''] : bundles;
    if (bundle !== this.#bundle) this.#trustSince = performance.now();
    this.#bundle = bundle;
    this.#showTrust();
  }

  #tookSecret(secret: StoredSecret | undefined): void {
    if (secret === undefined) return;
    this.#common = secret.common;
    const key = secret.common ?? this.#serving?.key;
    if (key !== undefined) this.#signWith(key);
  }

  #watch<T>(
    path: string,
    name: string,
    project: (object: RawObject) => T,
    take: (value: T | undefined) => void,
  ): Followed<T> {
    const { connection, signal } = this.#options;
    const known: Omit<Followed<T>, 'stats'> = { isKnown: false, value: undefined, failure: undefined };
    const { stats } = followObject(
      connection,
      { path, name, project },
      {
        onObject: (value) => {
          Object.assign(known, { isKnown: true, value, failure: undefined });
          take(value);
          this.#woken.abort();
        },
        onCurrent: () => {
          known.failure = undefined;
          this.#woken.abort();
        },
        onFailure: (failure) => {
          // An interrupted watch is resumed; if that fails, the next failure is reported.
          if (failure.reason === 'Cut') return;
          known.failure = failure;
          this.#woken.abort();
        },
        onHandlerError: (error) => {
          known.failure = asFailure(error);
        },
      },
      { signal, clock: () => performance.now(), random: Math.random },
    );
    return Object.assign(known, { stats });
  }

  async #issue(issue: Issue): Promise<void> {
    const { connection, namespace, identity, secret: name, logger, metrics } = this.#options;
    // Read here: this is the version that the write replaces, whatever arrives in the meantime.
    const before = this.#secret.value;
    const { issueSecret } = await import('./issue.ts');
    const contents = await issueSecret(issue, before?.contents ?? {}, new Date());
    const files = Object.entries(contents).map(([file, text]) => [file, encoded(text)] as const);
    // This key outlives all certificates. If the Secret is lost, the replica that creates it again restores the key.
    const common = this.#common ?? newCommon();
    const data = { ...Object.fromEntries(files), [COMMON_KEY]: encoded(common) };
    const about = {
      labels: { 'app.kubernetes.io/name': 'linger' },
      annotations: { 'linger.dev/about': ABOUT },
    };
    const created = { apiVersion: 'v1', kind: 'Secret', type: 'Opaque', metadata: { name, ...about }, data };
    // RBAC can limit an apply to one name, but not a create. Not forced, and with a field manager per replica, so that if
    // two replicas create it, the API server rejects the second.
    const create = { namespace, name, fieldManager: `linger-${identity}`, body: created };
    const { resourceVersion } = before ?? {};
    const change = { namespace, name, body: { metadata: { resourceVersion }, data } };
    const patch = before === undefined ? 'apply-patch' : 'merge-patch';
    const { metadata } = await callApi(connection, 'CoreV1Api', { ...this.#call, patch }, (core) =>
      core.patchNamespacedSecret(before === undefined ? create : change),
    );
    // Not left to the watch: before that delivers it, the next look would issue another certificate, and apply it over this
    // one.
    const stored: StoredSecret = { contents, common, resourceVersion: metadata?.resourceVersion ?? '' };
    this.#secret.value = stored;
    this.#tookSecret(stored);
    const { because } = issue;
    metrics.certificateWrites.inc({ object: 'Secret', reason: because });
    const made = { authority: issue.authority === undefined, certificate: issue.names !== undefined };
    const [leaf] = parseCertificates(contents['tls.crt']);
    const members = { because, made, notAfter: leaf?.validToDate };
    if (ROUTINE.has(because)) logger.info(members, 'shared certificates written');
    else logger.warn(members, 'shared certificates written');
  }

  async #trust(bundle: string): Promise<void> {
    const { connection, configuration: name, logger, metrics } = this.#options;
    const { bundles = [], resourceVersion } = this.#configuration.value ?? {};
    const body = [
      { op: 'replace', path: '/metadata/resourceVersion', value: resourceVersion },
      ...bundles.map((_, index) => {
        const path = `/webhooks/${index}/clientConfig/caBundle`;
        return { op: 'add', path, value: encoded(bundle) };
      }),
    ];
    const reason = reasonFor(this.#bundle ?? '', bundle);
    await callApi(connection, 'AdmissionregistrationV1Api', this.#call, (api) =>
      api.patchMutatingWebhookConfiguration({ name, body }),
    );
    metrics.certificateWrites.inc({ object: 'caBundle', reason });
    const members = { because: reason, configuration: name };
    if (reason === 'Overwritten') logger.warn(members, 'caBundle written');
    else logger.info(members, 'caBundle written');
  }

  get #call() {
    return { signal: this.#options.signal, withinMs: LIMITS.requestMs };
  }
}

/** The key in the Secret with which replicas sign for each other. */
const COMMON_KEY = 'common.key';

function newCommon(): string {
  return randomBytes(32).toString('base64');
}

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations';

/** Reasons that occur in normal operation. */
const ROUTINE: ReadonlySet<Issue['because']> = new Set<Issue['because']>([
  'Absent',
  'Expiring',
  'IssuerChanged',
  'AuthorityExpiring',
  'NamesDiffer',
  'Retired',
]);

/** `Rotated`: both bundles contain a common authority. */
function reasonFor(before: string, after: string): 'Empty' | 'Rotated' | 'Overwritten' {
  if (before.trim() === '') return 'Empty';
  const known = new Set(parseCertificates(after).map((each) => each.fingerprint256));
  const common = parseCertificates(before).some((each) => known.has(each.fingerprint256));
  return common ? 'Rotated' : 'Overwritten';
}

function storedSecret(object: RawObject): StoredSecret {
  const data = 'data' in object && isStringMap(object.data) ? object.data : {};
  const held = Object.entries(data).map(([name, base64]) => [name, decoded(base64)] as const);
  const { [COMMON_KEY]: common, ...contents }: Record<string, string> = Object.fromEntries(held);
  return { contents, common: common || undefined, resourceVersion: object.metadata.resourceVersion };
}

function configurationOf(object: RawObject): Configuration {
  const bundles = recordsAt(object, 'webhooks').map(({ clientConfig }) => {
    const { caBundle } = isRecord(clientConfig) ? clientConfig : {};
    return isString(caBundle) ? decoded(caBundle) : '';
  });
  return { bundles, resourceVersion: object.metadata.resourceVersion };
}

function decoded(base64: string): string {
  return Buffer.from(base64, 'base64').toString();
}

function encoded(text: string): string {
  return Buffer.from(text).toString('base64');
}
