import { randomBytes } from 'node:crypto';
import type { V1MutatingWebhookConfiguration, V1Secret } from '@kubernetes/client-node';
import { asError, isRecord, isString, isStringMap, recordsAt } from '../api/index.ts';
import {
  asFailure,
  callApi,
  followObject,
  type KubeConnection,
  type KubeFailure,
  type RawObject,
  type Resource,
  unlessNotFound,
  type WatchStats,
} from '../cluster/index.ts';
import { type Logger, LogOnce, type Metrics } from '../telemetry/index.ts';
import { Backoff, pause } from '../timing/index.ts';
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
  /** Of this replica: by it, the API server tells apart who created the Secret. */
  readonly identity: string;
  /** The name of the Secret. What is in it is Linger's own: whatever cannot be used is replaced. */
  readonly secret: string;
  /** The name of the MutatingWebhookConfiguration whose caBundle is kept. */
  readonly configuration: string;
  /** What the certificate is for. */
  readonly names: readonly string[];
  readonly logger: Logger;
  readonly metrics: Metrics;
  /** How long to try before there is something to serve with. Milliseconds. */
  readonly openWithinMs: number;
  readonly signal: AbortSignal;
}

/** Milliseconds. */
const LIMITS = {
  requestMs: 5_000,
  /** Between two looks at what time has brought; what others do is seen at once. */
  lookEveryMs: 15_000,
  /** While what others do is not seen, and is read. */
  readEveryMs: 7_000,
  /** Replicas that see the same must not all make keys at once. */
  jitterMs: 300,
  /** A replica whose write was undone backs off: replicas that disagree must not overwrite each other forever. */
  issue: { firstPauseMs: 500, longestPauseMs: 15_000 },
  /** Even where something keeps overwriting the caBundle, it is put back within 10 s. */
  trust: { firstPauseMs: 250, longestPauseMs: 8_000 },
  /** After this long without a write the next one does not wait. */
  calmMs: 120_000,
  failure: { firstPauseMs: 500, longestPauseMs: 8_000 },
  /** How long an untrusted certificate keeps a replica unready: beyond that it would only hide the cause. */
  untrustedMs: 30_000,
};

const ABOUT =
  'Made and renewed by Linger, which replaces whatever it cannot use here. For a certificate of your own: docs/operations.md.';

interface StoredSecret {
  readonly contents: SecretData;
  readonly common: string | undefined;
  /** What a write replaces. */
  readonly resourceVersion: string | undefined;
}

/** What is known of an object that a watch follows, and that is read and written besides. */
class FollowedObject<T> {
  readonly #took: (value: T | undefined) => void;
  #heards = 0;
  /** undefined: there is none, or nothing is known yet. */
  value: T | undefined;
  isKnown = false;

  constructor(took: (value: T | undefined) => void) {
    this.#took = took;
  }

  /** The watch has brought it. */
  heard(value: T | undefined): void {
    this.#heards += 1;
    this.#take(value);
  }

  /** It is about to be read or written. @returns what takes the answer, unless the watch brings something meanwhile */
  asked(): (answer: T | undefined) => void {
    const before = this.#heards;
    return (answer) => {
      if (this.#heards === before) this.#take(answer);
    };
  }

  #take(value: T | undefined): void {
    this.value = value;
    this.isKnown = true;
    this.#took(value);
  }
}

/** A write that is due, and how soon after the one before it may come. */
interface Due {
  readonly pace: Pace;
  readonly write: () => Promise<void>;
}

/** The webhooks of the configuration, by name, and what they trust. */
type Webhooks = readonly { readonly name: string; readonly bundle: string }[];

/** A certificate that replicas share in a Secret, and that the webhook configuration is made to trust: see planRotation. */
export class SecretSource implements CertificateSource {
  readonly #options: SecretOptions;
  readonly #names: readonly string[];
  readonly #once: LogOnce;
  readonly #paces: Readonly<Record<'issue' | 'trust', Pace>>;
  readonly #secret = new FollowedObject<StoredSecret>((secret) => this.#tookSecret(secret));
  readonly #webhooks = new FollowedObject<Webhooks>((webhooks) => this.#tookWebhooks(webhooks));
  /** Since when the caBundle is what it is, in milliseconds of the monotonic clock. */
  #trustSince = performance.now();
  #serving: ServingCertificate | undefined;
  /** What the Secret has said last of what replicas sign with. */
  #common: string | undefined;
  /** Of this replica alone, until the Secret has been read. */
  commonKeys: CommonKeys = [newCommon()];
  /** What all webhooks of the configuration trust; where they differ, none: then all of them are written. */
  #bundle: string | undefined;
  #woken = new AbortController();
  #watches: Readonly<Record<string, WatchStats>> = {};
  /** Whether a certificate of ours has been trusted once; after that, being distrusted is no reason to be unready. */
  #settled = false;
  readonly #openedAt = performance.now();

  private constructor(options: SecretOptions) {
    this.#options = options;
    this.#names = parseNames(options.names);
    this.#once = new LogOnce(options.logger);
    this.#paces = { issue: new Pace(LIMITS.issue), trust: new Pace(LIMITS.trust) };
  }

  /**
   * Reads the Secret, or makes it, and has it trusted.
   * @throws CertificateError `BadName`; `NotShared` when the API server does not let us, or is not there
   */
  static async open(options: SecretOptions): Promise<SecretSource> {
    const source = new SecretSource(options);
    const { signal, openWithinMs, namespace, secret } = options;
    const backoff = new Backoff(LIMITS.failure, Math.random);
    while (source.#serving === undefined) {
      try {
        const least = await source.#step();
        if (source.#serving === undefined) await pause(least ?? 0, signal);
      } catch (thrown) {
        signal.throwIfAborted();
        // What is left to be written is tried again, and told, once this replica serves.
        if (source.#serving !== undefined) break;
        const { message } = asError(thrown);
        if (performance.now() - source.#openedAt > openWithinMs) {
          const what = `the Secret ${namespace}/${secret} can neither be read nor made: ${message}`;
          throw new CertificateError(
            'NotShared',
            `${what}; give Linger the Role linger-certificates, or its own files with --certs`,
          );
        }
        source.#trouble(asFailure(thrown));
        await pause(backoff.next(), signal);
      }
    }
    return source;
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
    return this.#webhooks.isKnown ? (this.#webhooks.value ?? []).length > 0 : undefined;
  }

  /** Where there is no webhook configuration, no API server calls: {@link configured} says so. */
  #distrusted(now: Date): boolean {
    return this.#bundle !== undefined && !isTrusted(this.get().cert, this.#bundle, now);
  }

  async follow(use: (certificate: ServingCertificate) => void, options: FollowOptions): Promise<void> {
    const { signal, metrics } = options;
    showCertificate(this.get(), metrics);
    this.#watches = this.#watch(signal);
    // Not AbortSignal.any, which would leave something behind on this signal with each look.
    signal.addEventListener('abort', () => this.#woken.abort(), { once: true });
    const backoff = new Backoff(LIMITS.failure, Math.random);
    do {
      this.#woken = new AbortController();
      // Changes that happen meanwhile are handled at once, but not during a pause before something is tried again.
      let wait: number;
      let until = signal;
      const isFollowed = Object.values(this.#watches).every(({ current }) => current);
      try {
        const unread = isFollowed ? undefined : await this.#read();
        const before = this.#serving;
        const least = await this.#step((certificate) => {
          use(certificate);
          showCertificate(certificate, metrics);
        });
        if (this.#serving?.cert !== before?.cert) {
          metrics.certificateReloads.inc({ result: 'success' });
          const { notAfter, origin } = this.get();
          options.logger.info({ notAfter, origin }, 'serving certificate replaced');
        }
        if (unread !== undefined) throw unread;
        backoff.reset();
        this.#once.over('certificates', {}, 'renewing the shared certificates works again');
        wait = least ?? (isFollowed ? LIMITS.lookEveryMs : LIMITS.readEveryMs);
        until = this.#woken.signal;
      } catch (thrown) {
        if (signal.aborted) return;
        if (this.#trouble(asFailure(thrown))) metrics.certificateReloads.inc({ result: 'failure' });
        // The caBundle, while it has to wait, is not kept waiting for longer.
        wait = Math.min(backoff.next(), this.#paces.trust.heldMs() || Number.POSITIVE_INFINITY);
      }
      // Above all where what is needed cannot be written.
      const configured = this.configured();
      if (configured !== undefined) {
        metrics.certificateTrusted.set(this.#distrusted(new Date()) ? 0 : 1);
        tellConfigured(this.#once, this.#options.configuration, configured);
      }
      await pause(wait, until);
    } while (!signal.aborted);
  }

  #trouble({ reason, message: problem }: KubeFailure): boolean {
    return this.#once.error(
      'certificates',
      { reason, problem },
      'renewing the shared certificates failed; still serving the last good one',
    );
  }

  /**
   * Does what is due.
   * @returns when to look again, in milliseconds, if that is soon
   * @throws KubeFailure
   */
  async #step(use: (certificate: ServingCertificate) => void = () => undefined): Promise<number | undefined> {
    let now = new Date();
    let plan = planRotation(this.#view(), now);
    let unread: unknown;
    const isDue = plan.issue !== undefined || plan.caBundle !== undefined || this.#lacksCommon();
    if (isDue || this.#serving === undefined) {
      if (this.#serving !== undefined) await pause(LIMITS.jitterMs * Math.random(), this.#options.signal);
      // A watch may be late, and what is written must follow from what is there.
      unread = await this.#read();
      // It may hold what is served.
      if (!this.#secret.isKnown) throw unread;
      now = new Date();
      plan = planRotation(this.#view(), now);
    }
    if (plan.serve !== undefined) this.#serve(plan.serve, use);
    const { issue, caBundle } = plan;
    // What is written replaces this one, whatever comes meanwhile.
    const secret = this.#secret.value;
    const due: readonly Due[] = [
      caBundle !== undefined && { pace: this.#paces.trust, write: () => this.#trust(caBundle) },
      issue !== undefined && { pace: this.#paces.issue, write: () => this.#issue(issue, secret, now) },
      issue === undefined &&
        this.#lacksCommon() && { pace: this.#paces.issue, write: () => this.#share(secret) },
    ].filter((each) => each !== false);
    if (due.length === 0 && unread !== undefined) throw unread;
    if (due.length === 0) return this.#settling(now);
    const ready = due.filter(({ pace }) => pace.heldMs() === 0);
    if (ready.length === 0) return Math.min(...due.map(({ pace }) => pace.heldMs()));
    // What is refused keeps the other from nothing.
    const refusals: unknown[] = [];
    for (const { pace, write } of ready)
      await write().then(
        () => pace.took(),
        (thrown) => refusals.push(thrown),
      );
    const [refusal = unread] = refusals;
    if (refusal !== undefined) throw refusal;
    return this.#step(use);
  }

  /** Somebody has put back the certificates, and not what replicas sign with. */
  #lacksCommon(): boolean {
    const secret = this.#secret.value;
    return secret !== undefined && secret.common === undefined;
  }

  #serve(material: NonNullable<RotationPlan['serve']>, use: (certificate: ServingCertificate) => void): void {
    const certificate: ServingCertificate = { ...material, origin: 'shared' };
    if (certificate.cert !== this.#serving?.cert || certificate.key !== this.#serving.key) use(certificate);
    this.#serving = certificate;
    // Where the Secret has none, and none may be written there, replicas have the key of their certificate in common.
    if (this.#common === undefined) this.commonKeys = [certificate.key];
  }

  /** While what the Secret holds is not what is served, trust is being waited for. */
  #settling(now: Date): number | undefined {
    const held = this.#secret.value?.contents['tls.crt'];
    const [leaf] = parseCertificates(held ?? '');
    const serves = parseCertificates(this.get().cert)[0]?.fingerprint256 === leaf?.fingerprint256;
    return serves && !this.#distrusted(now) ? undefined : 1_000;
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

  #tookWebhooks(webhooks: Webhooks = []): void {
    const bundles = new Set(webhooks.map(({ bundle }) => bundle));
    const [bundle] = bundles.size > 1 ? [''] : bundles;
    if (bundle !== this.#bundle) this.#trustSince = performance.now();
    this.#bundle = bundle;
  }

  watches(): Readonly<Record<string, WatchStats>> {
    return this.#watches;
  }

  #watch(signal: AbortSignal): Readonly<Record<string, WatchStats>> {
    const { connection, namespace, secret, configuration } = this.#options;
    const follow = <T>(
      path: string,
      name: string,
      project: Resource<T>['project'],
      take: (value: T | undefined) => void,
    ) => {
      const { stats } = followObject(
        connection,
        { path, name, project },
        {
          onObject: (object) => {
            take(object);
            this.#woken.abort();
          },
          onCurrent: () => this.#once.over(path, { what: path }, 'watch of an object recovered'),
          onFailure: ({ reason, message: problem }) => {
            const members = { what: path, reason, problem };
            this.#once.warn(path, members, 'watch of an object failed, polling it instead');
          },
          onHandlerError: (error) => this.#trouble(asFailure(error)),
        },
        { signal, clock: () => performance.now(), random: Math.random },
      );
      return stats;
    };
    return {
      secrets: follow(`/api/v1/namespaces/${namespace}/secrets`, secret, storedSecret, (stored) =>
        this.#secret.heard(stored),
      ),
      mutatingwebhookconfigurations: follow(CONFIGURATIONS, configuration, webhooksOf, (webhooks) =>
        this.#webhooks.heard(webhooks),
      ),
    };
  }

  #tookSecret(secret: StoredSecret | undefined): void {
    if (secret?.common === undefined || secret.common === this.#common) return;
    const before = this.#common ?? this.#serving?.key;
    this.#common = secret.common;
    this.commonKeys = before === undefined ? [secret.common] : [secret.common, before];
  }

  /** Takes what can be read, and keeps what was known of the rest. @returns why not both could be; undefined: both were */
  async #read(): Promise<unknown> {
    const { connection, namespace, secret: name, configuration } = this.#options;
    const takes = { secret: this.#secret.asked(), webhooks: this.#webhooks.asked() };
    const [secret, webhooks] = await Promise.allSettled([
      unlessNotFound(
        callApi(connection, 'CoreV1Api', this.#call, (core) =>
          core.readNamespacedSecret({ namespace, name }),
        ),
      ),
      unlessNotFound(
        callApi(connection, 'AdmissionregistrationV1Api', this.#call, (api) =>
          api.readMutatingWebhookConfiguration({ name: configuration }),
        ),
      ),
    ]);
    const { signal } = this.#options;
    signal.throwIfAborted();
    if (secret.status === 'fulfilled') takes.secret(secret.value && storedSecret(secret.value));
    if (webhooks.status === 'fulfilled') takes.webhooks(webhooks.value && webhooksOf(webhooks.value));
    return [secret, webhooks].find((each) => each.status === 'rejected')?.reason;
  }

  async #issue(issue: Issue, before: StoredSecret | undefined, now: Date): Promise<void> {
    const { connection, namespace, identity, secret: name, logger, metrics } = this.#options;
    const { issueSecret } = await import('./issue.ts');
    const contents = await issueSecret(issue, before?.contents ?? {}, now);
    const common = this.#ownCommon();
    const files = Object.entries(contents).map(([file, text]) => [file, encoded(text)] as const);
    const data = { ...Object.fromEntries(files), [COMMON_KEY]: encoded(common) };
    const about = {
      labels: { 'app.kubernetes.io/name': 'linger' },
      annotations: { 'linger.dev/about': ABOUT },
    };
    const created = { apiVersion: 'v1', kind: 'Secret', type: 'Opaque', metadata: { name, ...about }, data };
    // RBAC can limit no `create` to a name but that of an apply. Not forced, and by a manager of our own: of two replicas that
    // make it, the API server refuses the second.
    const create = { namespace, name, fieldManager: `linger-${identity}`, body: created };
    const { resourceVersion } = before ?? {};
    const change = { namespace, name, body: { metadata: { resourceVersion }, data } };
    const patch = before === undefined ? 'apply-patch' : 'merge-patch';
    const isWritten = await this.#written(() =>
      callApi(connection, 'CoreV1Api', { ...this.#call, patch }, (core) =>
        core.patchNamespacedSecret(before === undefined ? create : change),
      ),
    );
    if (!isWritten) return;
    const { because } = issue;
    metrics.certificateWrites.inc({ object: 'Secret', reason: because });
    const made = { authority: issue.authority === undefined, certificate: issue.names !== undefined };
    const [leaf] = parseCertificates(contents['tls.crt']);
    const members = { because, made, notAfter: leaf?.validToDate };
    if (ROUTINE.has(because)) logger.info(members, 'shared certificates written');
    else logger.warn(members, 'shared certificates written');
  }

  /** Writes what replicas sign with, and nothing else. */
  async #share(before: StoredSecret | undefined): Promise<void> {
    const { connection, namespace, secret: name, logger } = this.#options;
    const metadata = { resourceVersion: before?.resourceVersion };
    const body = { metadata, data: { [COMMON_KEY]: encoded(this.#ownCommon()) } };
    const isWritten = await this.#written(() =>
      callApi(connection, 'CoreV1Api', { ...this.#call, patch: 'merge-patch' }, (core) =>
        core.patchNamespacedSecret({ namespace, name, body }),
      ),
    );
    if (isWritten) logger.warn({ because: 'Absent' }, 'shared signing key written');
  }

  /** It outlives every certificate; a lost Secret gets it back from the replica that makes it again. */
  #ownCommon(): string {
    return this.#common ?? newCommon();
  }

  /** @returns false where another replica was first: what it has written will do, and has been read */
  async #written(write: () => Promise<object>): Promise<boolean> {
    const take = this.#secret.asked();
    try {
      take(storedSecret(await write()));
      return true;
    } catch (thrown) {
      if (asFailure(thrown).reason !== 'Conflict') throw thrown;
      await this.#read();
      return false;
    }
  }

  async #trust(bundle: string): Promise<void> {
    const { connection, configuration: name, logger, metrics } = this.#options;
    const before = this.#webhooks.value ?? [];
    const body = before.flatMap((webhook, index) =>
      webhook.bundle === bundle
        ? []
        : [
            { op: 'test', path: `/webhooks/${index}/name`, value: webhook.name },
            { op: 'add', path: `/webhooks/${index}/clientConfig/caBundle`, value: encoded(bundle) },
          ],
    );
    const take = this.#webhooks.asked();
    const reason = reasonFor(this.#bundle ?? '', bundle);
    const written = await callApi(connection, 'AdmissionregistrationV1Api', this.#call, (api) =>
      api.patchMutatingWebhookConfiguration({ name, body }),
    );
    take(webhooksOf(written));
    metrics.certificateWrites.inc({ object: 'caBundle', reason });
    const members = { because: reason, configuration: name };
    if (reason === 'Overwritten') logger.warn(members, 'caBundle written');
    else logger.info(members, 'caBundle written');
  }

  get #call() {
    return { signal: this.#options.signal, withinMs: LIMITS.requestMs };
  }
}

/** Of the Secret: what replicas sign with among themselves. */
const COMMON_KEY = 'common.key';

function newCommon(): string {
  return randomBytes(32).toString('base64');
}

const CONFIGURATIONS = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations';

/** What happens without anybody having done anything wrong. */
const ROUTINE: ReadonlySet<Issue['because']> = new Set<Issue['because']>([
  'Absent',
  'Expiring',
  'IssuerChanged',
  'AuthorityExpiring',
  'NamesDiffer',
  'Retired',
]);

/** `Rotated`: they have an authority in common. */
function reasonFor(before: string, after: string): 'Empty' | 'Rotated' | 'Overwritten' {
  if (before.trim() === '') return 'Empty';
  const known = new Set(parseCertificates(after).map((each) => each.fingerprint256));
  const common = parseCertificates(before).some((each) => known.has(each.fingerprint256));
  return common ? 'Rotated' : 'Overwritten';
}

/** How long the next write waits: not at all, and longer from one to the next while they come close together. */
class Pace {
  readonly #backoff: Backoff;
  #tookAt = Number.NEGATIVE_INFINITY;
  #pauseMs = 0;

  constructor(limits: typeof LIMITS.issue) {
    this.#backoff = new Backoff(limits, Math.random);
  }

  heldMs(): number {
    return Math.max(0, this.#tookAt + this.#pauseMs - performance.now());
  }

  took(): void {
    const now = performance.now();
    if (now - this.#tookAt > LIMITS.calmMs) this.#backoff.reset();
    this.#pauseMs = this.#backoff.next();
    this.#tookAt = now;
  }
}

function storedSecret(object: RawObject | V1Secret): StoredSecret {
  const data = 'data' in object && isStringMap(object.data) ? object.data : {};
  const held = Object.entries(data).map(([name, base64]) => [name, decoded(base64)] as const);
  const { [COMMON_KEY]: common, ...contents }: Record<string, string> = Object.fromEntries(held);
  return { contents, common: common || undefined, resourceVersion: object.metadata?.resourceVersion };
}

function webhooksOf(object: RawObject | V1MutatingWebhookConfiguration): Webhooks {
  return recordsAt(object, 'webhooks').map(({ name, clientConfig }) => {
    const { caBundle } = isRecord(clientConfig) ? clientConfig : {};
    return { name: String(name), bundle: isString(caBundle) ? decoded(caBundle) : '' };
  });
}

function decoded(base64: string): string {
  return Buffer.from(base64, 'base64').toString();
}

function encoded(text: string): string {
  return Buffer.from(text).toString('base64');
}
