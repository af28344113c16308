import crypto, { X509Certificate } from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import tls from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { issueSecret } from '../../src/certs/issue.ts';
import {
  planRotation,
  RETIRE_MS,
  type ReplicaView,
  type RotationPlan,
  TRUSTED_MS,
} from '../../src/certs/rotation-plan.ts';
import type { SecretData } from '../../src/certs/secret-contents.ts';
import { isTrusted, parseCertificates, parseNames, type ServingMaterial } from '../../src/certs/x509.ts';
import { DAY_MS, days, intermediate, signedByItself } from './fixture.ts';

vi.setConfig({ testTimeout: 120_000, hookTimeout: 60_000 });

const NAMES = parseNames(['linger.linger.svc', 'linger-reports.linger.svc']);
const now = new Date();
const later = (ms: number, from = now) => new Date(from.getTime() + ms);
const SETTLED_MS = 3 * TRUSTED_MS;
const garbage = '-----BEGIN CERTIFICATE-----\nbm8=\n-----END CERTIFICATE-----\n';

/** A year takes 76 keys, and all of them half a minute. Who is trusted when is the same with a few, in turn. */
const { generateKeyPair, createPrivateKey, X509Certificate: X509 } = crypto;
const { createSecureContext } = tls;
const keys: Promise<object>[] = [];
let keysGiven = 0;
beforeAll(() => {
  const generate = promisify(generateKeyPair) as (...asked: unknown[]) => Promise<object>;
  const fromAFew = (...asked: unknown[]) => {
    keysGiven += 1;
    if (keys.length < 8) keys.push(generate(...asked));
    return keys[(keysGiven - 1) % 8];
  };
  Object.assign(crypto, {
    generateKeyPair: Object.assign(() => {}, { [promisify.custom]: fromAFew }),
    createPrivateKey: onceForEach(createPrivateKey),
    X509Certificate: onceForEach(X509),
  });
  Object.assign(tls, { createSecureContext: onceForEach(createSecureContext) });
  syncBuiltinESMExports();
});
afterAll(() => {
  Object.assign(crypto, { generateKeyPair, createPrivateKey, X509Certificate: X509 });
  Object.assign(tls, { createSecureContext });
  syncBuiltinESMExports();
});

/** What OpenSSL makes of a text is always the same, and it is asked thousands of times in a year. */
function onceForEach<F extends object>(make: F): F {
  const known = new Map<string, unknown>();
  const recall = ([asked]: unknown[], makeAnew: () => unknown) => {
    const texts = typeof asked === 'object' && asked !== null ? Object.values(asked) : [asked];
    if (texts.length === 0 || texts.some((text) => typeof text !== 'string')) return makeAnew();
    const key = JSON.stringify(asked);
    if (!known.has(key)) known.set(key, makeAnew());
    return known.get(key);
  };
  return new Proxy(make, {
    apply: (target, self, asked) =>
      recall(asked, () => Reflect.apply(target as (...asked: unknown[]) => unknown, self, asked)),
    construct: (target, asked) =>
      recall(asked, () => Reflect.construct(target as new (...asked: unknown[]) => object, asked)) as object,
  });
}

type Made = Required<SecretData>;

/** The Secret that a first replica makes. */
async function made(at: Date): Promise<Made> {
  const { issue } = planRotation(
    { secret: undefined, trust: undefined, serving: undefined, names: NAMES },
    at,
  );
  return issueSecret(issue!, {}, at);
}

const trusting = (bundle: string, forMs = SETTLED_MS) => ({ bundle, forMs });
const servingFrom = (secret: Made): ServingMaterial =>
  planRotation({ secret, trust: undefined, serving: undefined, names: NAMES }, now).serve!;

/** A foreign authority whose certificate also serves. */
function corporate(host: string): string {
  return signedByItself('linger', days(1, now), [
    { name: 'basicConstraints', cA: true },
    { name: 'keyUsage', keyCertSign: true, digitalSignature: true },
    { name: 'subjectAltName', altNames: [{ type: 2, value: host }] },
  ]);
}

function selfSigned(): string {
  return signedByItself('linger', days(1, now), [
    { name: 'keyUsage', digitalSignature: true, keyEncipherment: true },
  ]);
}

describe('what to do', () => {
  let good: Made;
  let other: Made;
  beforeAll(async () => {
    good = await made(now);
    other = await made(now);
  });
  const authority = () => ({
    certificate: new X509Certificate(good['ca.crt']).toString(),
    key: good['ca.key'],
  });

  /** The plan of a replica that serves the certificate of an intact Secret. */
  const plan = (secret: SecretData | undefined, bundle: string | undefined, at = now, names = NAMES) =>
    planRotation(
      {
        secret,
        trust: bundle === undefined ? undefined : trusting(bundle),
        serving: servingFrom(good),
        names,
      },
      at,
    );

  it('nothing while all is well', () => {
    expect(plan(good, good['ca.crt'])).toEqual({});
  });

  it.each<[string, (at: Date) => Parameters<typeof plan>, object]>([
    [
      'no Secret',
      () => [undefined, good['ca.crt']],
      { because: 'Absent', authority: undefined, names: NAMES },
    ],
    ['an empty one', () => [{}, good['ca.crt']], { because: 'Absent', authority: undefined, names: NAMES }],
    [
      'an authority’s key that cannot be read: the certificate stays in service',
      () => [{ ...good, 'ca.key': 'no key' }, good['ca.crt']],
      { because: 'AuthorityCorrupt', authority: undefined, names: undefined },
    ],
    [
      'a key that is another’s',
      () => [{ ...good, 'ca.key': other['ca.key'] }, good['ca.crt']],
      { because: 'AuthorityMismatched', authority: undefined, names: undefined },
    ],
    [
      'an authority past two thirds of its life',
      () => [good, good['ca.crt'], days(244, now)],
      { because: 'AuthorityExpiring', authority: undefined },
    ],
    [
      'an authority that has expired',
      () => [good, good['ca.crt'], days(366, now)],
      { because: 'AuthorityExpiring', names: NAMES, retained: '' },
    ],
    [
      'one from the future: a clock was wrong',
      () => [good, good['ca.crt'], days(-2, now)],
      { because: 'AuthorityNotYetValid', names: NAMES },
    ],
    [
      'no certificate',
      () => [{ ...good, 'tls.crt': '' }, good['ca.crt']],
      { because: 'Corrupt', names: NAMES },
    ],
    [
      'garbage',
      () => [{ ...good, 'tls.crt': garbage }, good['ca.crt']],
      { because: 'Corrupt', names: NAMES },
    ],
    [
      'another’s key',
      () => [{ ...good, 'tls.key': other['tls.key'] }, good['ca.crt']],
      { because: 'Mismatched', names: NAMES },
    ],
    [
      'a certificate of another authority',
      () => [{ ...good, 'tls.crt': other['tls.crt'], 'tls.key': other['tls.key'] }, good['ca.crt']],
      { because: 'IssuerChanged', names: NAMES },
    ],
    [
      'two thirds of its life',
      () => [good, good['ca.crt'], days(4.7, now)],
      { because: 'Expiring', names: NAMES },
    ],
    ['its end, while nobody was there', () => [good, good['ca.crt'], days(8, now)], { because: 'Expiring' }],
    [
      'a name that it lacks: those that it has stay',
      () => [good, good['ca.crt'], now, parseNames(['10.0.0.7'])],
      { because: 'NamesDiffer', names: [...NAMES, '10.0.0.7'] },
    ],
  ])('issues: %s', (_, given, expected) => {
    const { issue, ...rest } = plan(...given(now));
    expect(issue).toMatchObject(expected);
    expect(rest).toEqual({});
  });

  describe('until an issue has been written, which may be refused', () => {
    const at = days(244, now);
    /** With an authority that is due, and a certificate in the middle of its life. */
    let late: Made;
    beforeAll(async () => {
      const earlier = days(240, now);
      late = { ...good, ...(await issueSecret(plan(good, good['ca.crt'], earlier).issue!, good, earlier)) };
    });

    it('a replica that starts serves what is good', () => {
      const seen = { secret: late, trust: trusting(late['ca.crt']), serving: undefined, names: NAMES };
      const { issue, caBundle, serve } = planRotation(seen, at);
      expect([issue?.because, caBundle, serve?.cert]).toEqual([
        'AuthorityExpiring',
        undefined,
        late['tls.crt'],
      ]);
    });

    it('a replica that runs takes what somebody else has renewed, once its own ends', async () => {
      const { issueServingCertificate } = await import('../../src/certs/issue.ts');
      const signing = { certificate: good['ca.crt'], key: good['ca.key'] };
      const { cert, key } = await issueServingCertificate(signing, NAMES, days(5, now), 7 * DAY_MS);
      const renewed = { ...good, 'ca.key': '', 'tls.crt': cert, 'tls.key': key };
      const of = (at: Date) => plan(renewed, good['ca.crt'], at);
      expect(of(days(6, now))).toMatchObject({
        issue: { because: 'AuthorityCorrupt' },
        serve: { cert: expect.stringContaining(cert.trim()) as string },
      });
    });

    it('what is served stays trusted, and what others may serve', () => {
      const { serve: serving } = planRotation(
        { secret: late, trust: undefined, serving: undefined, names: NAMES },
        at,
      );
      for (const bundle of ['', other['ca.crt']])
        for (const secret of [late, undefined]) {
          const seen = { secret, trust: trusting(bundle), serving, names: NAMES };
          const { issue, caBundle = '' } = planRotation(seen, at);
          expect(issue).toBeDefined();
          expect(isTrusted(late['tls.crt'], caBundle, at)).toBe(true);
          expect(parseCertificates(caBundle).length).toBe(bundle === '' ? 1 : 2);
        }
    });
  });

  it('trusts what an API server does', async () => {
    const { issueAuthority, issueServingCertificate } = await import('../../src/certs/issue.ts');
    const [root, upper, lower] = await Promise.all([1, 2, 3].map(() => issueAuthority(now)));
    const passed = [intermediate(upper!, root!), intermediate(lower!, upper!)];
    const { cert, key: keyOfLeaf } = await issueServingCertificate(lower!, NAMES, now, DAY_MS);
    const [leaf = ''] = cert.match(/-----BEGIN[^-]*-----[^-]*-----END[^-]*-----\n?/) ?? [];
    for (const between of [passed, passed.toReversed()])
      expect(isTrusted([leaf, ...between].join('\n'), root!.certificate, now)).toBe(true);
    expect(isTrusted([leaf, passed[1]].join('\n'), root!.certificate, now)).toBe(false);
    // Signed by what is no authority.
    const under = await issueServingCertificate({ certificate: cert, key: keyOfLeaf }, NAMES, now, DAY_MS);
    expect(isTrusted([under.cert, cert].join('\n'), lower!.certificate, now)).toBe(false);
    // Issued by itself, and not as an authority: cert-manager's issuer `selfSigned` does so.
    const own = selfSigned();
    expect(isTrusted(own, own, now)).toBe(true);
    expect(isTrusted(own, selfSigned(), now)).toBe(false);
    expect(isTrusted(own, own, days(2, now))).toBe(false);
  });

  it('takes no names from a certificate that it did not make, or that has changed', async () => {
    const { issueServingCertificate } = await import('../../src/certs/issue.ts');
    const foreign = { certificate: other['ca.crt'], key: other['ca.key'] };
    const { cert, key } = await issueServingCertificate(foreign, ['*.corp.example'], now, DAY_MS);
    const { issue } = plan({ ...good, 'tls.crt': cert, 'tls.key': key }, good['ca.crt']);
    expect(issue).toMatchObject({ because: 'IssuerChanged', names: NAMES });
    // With the authority that has issued it beside ours.
    const corp = corporate('my_host.example');
    const both = { ...good, 'ca.crt': `${good['ca.crt']}${corp}`, 'tls.crt': corp };
    expect(plan(both, good['ca.crt']).issue).toMatchObject({ names: NAMES });
    // One letter of a name, as it stands in the certificate.
    const [leaf = ''] = good['tls.crt'].match(/-----BEGIN[^-]*CERT[^-]*-----[^-]*-----END[^-]*-----/) ?? [];
    const der = Buffer.from(new X509Certificate(leaf).raw);
    der[der.lastIndexOf('linger.') + 1] = '_'.charCodeAt(0);
    const pem = `-----BEGIN CERTIFICATE-----\n${der.toString('base64')}\n-----END CERTIFICATE-----\n`;
    expect(new X509Certificate(pem).subjectAltName).toContain('l_nger.');
    expect(plan({ ...good, 'tls.crt': pem }, good['ca.crt']).issue).toMatchObject({ names: NAMES });
  });

  it('keeps what replicas serve with trusted when the Secret is lost', () => {
    expect(plan(undefined, good['ca.crt']).issue?.retained).toBe(good['ca.crt']);
    // The caBundle as well: this replica knows what it serves with.
    expect(plan(undefined, '').issue?.retained).toBe(good['ca.crt']);
    expect(plan(undefined, undefined).issue?.retained).toBe(good['ca.crt']);
  });

  it('replaces a certificate that still serves only while the authority is trusted', () => {
    const due = days(4.7, now);
    expect(plan(good, other['ca.crt'], due)).toEqual({ caBundle: good['ca.crt'] });
    const seen = { secret: good, serving: servingFrom(good), names: NAMES };
    const justNow = { ...seen, trust: trusting(good['ca.crt'], TRUSTED_MS - 1) };
    expect(planRotation(justNow, due)).toEqual({});
    expect(planRotation({ ...seen, trust: trusting(good['ca.crt']) }, due).issue).toBeDefined();
  });

  it.each([
    ['nothing', ''],
    ['garbage', garbage],
    ['something else', 'c29tZXRoaW5n'],
  ])('puts the caBundle back: %s', (_, bundle) => {
    expect(plan(good, bundle)).toEqual({ caBundle: good['ca.crt'] });
  });

  it('drops the authority of before an hour after its successor’s certificate', async () => {
    const both = { ...good, 'ca.crt': good['ca.crt'] + other['ca.crt'] };
    expect(plan(both, both['ca.crt'], later(RETIRE_MS - 1_000)).issue).toBeUndefined();
    const { issue } = plan(both, both['ca.crt'], later(RETIRE_MS));
    expect(issue).toMatchObject({ because: 'Retired', names: undefined, authority: authority() });
    expect((await issueSecret(issue!, both, later(RETIRE_MS)))['ca.crt']).toBe(good['ca.crt']);
  });

  it('serves with a new one once it has been trusted for long enough, and at once where nothing is lost', () => {
    const both = { ...other, 'ca.crt': other['ca.crt'] + good['ca.crt'] };
    const serving = servingFrom(good);
    const serve = (
      trust: ReturnType<typeof trusting> | undefined,
      before: ServingMaterial | undefined = serving,
    ) => planRotation({ secret: both, trust, serving: before, names: NAMES }, now).serve?.cert;
    expect(serve(trusting(good['ca.crt']))).toBeUndefined();
    expect(serve(trusting(both['ca.crt'], TRUSTED_MS - 1))).toBeUndefined();
    expect(serve(trusting(both['ca.crt'], TRUSTED_MS))).toBe(other['tls.crt']);
    const first = { secret: both, trust: trusting(good['ca.crt']), serving: undefined, names: NAMES };
    expect(planRotation(first, now).serve?.cert).toBe(other['tls.crt']);
    expect(serve(undefined)).toBe(other['tls.crt']);
    expect(serve(trusting(other['ca.crt'], 0))).toBe(other['tls.crt']);
  });
});

/** How late watches may be here: those of replicas, and those of API servers. */
const LATE_MS = 4_000;
const STEP_MS = 2_000;
const BUSY_MS = 30_000;

/** A history of values: what a reader sees who is late by this much. */
class Followed<T> {
  readonly #values: { readonly at: number; readonly value: T }[] = [];
  constructor(at: number, value: T) {
    this.put(at, value);
  }
  put(at: number, value: T): void {
    this.#values.push({ at, value });
  }
  at(instant: number): { readonly at: number; readonly value: T } {
    return this.#values.findLast(({ at }) => at <= instant) ?? this.#values[0]!;
  }
  get latest(): T {
    return this.#values.at(-1)!.value;
  }
}

/** Two replicas that act by what they see late, one API, and two API servers that follow the caBundle late. */
class Simulation {
  now: number;
  readonly secret: Followed<SecretData | undefined>;
  readonly bundle: Followed<string>;
  readonly serving: (ServingMaterial | undefined)[] = [undefined, undefined];
  readonly writes: string[] = [];
  /** Seconds in which an API server refuses a replica that serves. */
  untrusted = 0;
  #changedAt: number;
  #planned: { readonly at: number; readonly seen: ReplicaView; readonly plan: RotationPlan } | undefined;

  constructor(at: Date) {
    this.now = at.getTime();
    this.#changedAt = this.now;
    this.secret = new Followed<SecretData | undefined>(this.now, undefined);
    this.bundle = new Followed<string>(this.now, '');
  }

  putSecret(contents: SecretData | undefined): void {
    this.secret.put(this.now, contents);
    this.#changedAt = this.now;
  }

  putBundle(bundle: string): void {
    this.bundle.put(this.now, bundle);
    this.#changedAt = this.now;
  }

  /** Time passes while no replica runs. */
  sleep(ms: number): void {
    this.now += ms;
    this.#changedAt = this.now;
    this.serving.fill(undefined);
  }

  /** In small steps while something happens, else half a day at a time. */
  async run(ms: number): Promise<void> {
    const end = this.now + ms;
    while (this.now < end) {
      const busy = this.now - this.#changedAt < BUSY_MS;
      this.now += busy ? STEP_MS : 12 * 3_600_000;
      for (const replica of [0, 1]) await this.#act(replica);
      this.#judge();
    }
  }

  async #act(replica: number): Promise<void> {
    const now = new Date(this.now);
    const seenAt = this.now - replica * LATE_MS;
    const { value: bundle, at } = this.bundle.at(seenAt);
    const trust = { bundle, forMs: this.now - at };
    const seen = {
      secret: this.secret.at(seenAt).value,
      trust,
      serving: this.serving[replica],
      names: NAMES,
    };
    let plan = this.#plan(seen, now);
    const before = this.secret.latest;
    // What is written follows from a fresh look, and replaces what that look has shown.
    if (plan.issue !== undefined || plan.caBundle !== undefined) {
      const { value, at: since } = this.bundle.at(this.now);
      const fresh = { bundle: value, forMs: value === bundle ? trust.forMs : this.now - since };
      plan = planRotation({ ...seen, secret: before, trust: fresh }, now);
    }
    if (plan.serve !== undefined) this.serving[replica] = plan.serve;
    if (plan.issue !== undefined) {
      this.writes.push(plan.issue.because);
      this.putSecret(await issueSecret(plan.issue, before ?? {}, now));
    } else if (plan.caBundle !== undefined) this.putBundle(plan.caBundle);
  }

  /** Mostly both replicas see the same. */
  #plan(seen: ReplicaView, now: Date): RotationPlan {
    const { secret, trust, serving } = seen;
    const before = this.#planned;
    const isSame =
      before?.at === this.now &&
      before.seen.secret === secret &&
      before.seen.serving === serving &&
      before.seen.trust?.bundle === trust?.bundle &&
      before.seen.trust?.forMs === trust?.forMs;
    const plan = isSame ? before.plan : planRotation(seen, now);
    this.#planned = { at: this.now, seen, plan };
    return plan;
  }

  #judge(): void {
    const chains = new Set(this.serving.flatMap((serving) => serving?.cert ?? []));
    const bundles = new Set([0, LATE_MS].map((late) => this.bundle.at(this.now - late).value));
    const refused = [...chains].some((chain) =>
      [...bundles].some((bundle) => !isTrusted(chain, bundle, new Date(this.now))),
    );
    if (refused) this.untrusted += STEP_MS / 1000;
  }

  get settled(): boolean {
    const held = this.secret.latest;
    return (
      this.serving.every((serving) => serving?.cert === held?.['tls.crt']) &&
      this.bundle.latest === held?.['ca.crt']
    );
  }
}

async function settled(at = now): Promise<Simulation> {
  const simulation = new Simulation(at);
  await simulation.run(60_000);
  expect(simulation.settled).toBe(true);
  simulation.untrusted = 0;
  simulation.writes.length = 0;
  return simulation;
}

describe('two replicas', () => {
  it('make one authority between them', async () => {
    const simulation = new Simulation(now);
    await simulation.run(60_000);
    expect(simulation.writes).toEqual(['Absent']);
    expect(simulation.settled).toBe(true);
    // No replica can be trusted before the caBundle has reached every API server.
    expect(simulation.untrusted).toBeLessThanOrEqual((2 * LATE_MS) / 1000);
  });

  it('keep a certificate that is always trusted for a year', async () => {
    const simulation = await settled();
    await simulation.run(365 * 86_400_000);
    expect(simulation.untrusted).toBe(0);
    const counts = Object.groupBy(simulation.writes, (write) => write);
    expect(counts.Expiring?.length).toBeGreaterThanOrEqual(70);
    expect(counts.Expiring?.length).toBeLessThanOrEqual(80);
    expect(counts.AuthorityExpiring).toHaveLength(1);
    expect(counts.Retired).toHaveLength(1);
    expect(parseCertificates(simulation.bundle.latest)).toHaveLength(1);
  });

  it.each<[string, (secret: SecretData) => SecretData | undefined]>([
    ['the Secret is deleted', () => undefined],
    ['everything in it is emptied', () => ({})],
    [
      'every text in it is garbage',
      (secret) => Object.fromEntries(Object.keys(secret).map((file) => [file, garbage])),
    ],
    ['the authority’s key is lost', (secret) => ({ ...secret, 'ca.key': '' })],
    ['the authority is lost', (secret) => ({ ...secret, 'ca.crt': '' })],
    ['the certificate is lost', (secret) => ({ ...secret, 'tls.crt': garbage })],
    ['the key is another’s', (secret) => ({ ...secret, 'tls.key': secret['ca.key']! })],
  ])('go on being trusted when %s', async (_, harm) => {
    const simulation = await settled();
    simulation.putSecret(harm(simulation.secret.latest!));
    await simulation.run(120_000);
    await simulation.run(2 * RETIRE_MS);
    await simulation.run(2 * RETIRE_MS);
    expect(simulation.untrusted).toBe(0);
    expect(simulation.settled).toBe(true);
    expect(parseCertificates(simulation.bundle.latest)).toHaveLength(1);
  });

  it.each(['', garbage, 'nothing'])('put the caBundle back when it becomes "%s"', async (bundle) => {
    const simulation = await settled();
    const before = simulation.bundle.latest;
    simulation.putBundle(bundle);
    await simulation.run(60_000);
    expect(simulation.bundle.latest).toBe(before);
    expect(simulation.untrusted).toBeLessThanOrEqual((2 * LATE_MS) / 1000);
    expect(simulation.writes).toEqual([]);
  });

  it('start again after months away', async () => {
    const simulation = await settled();
    simulation.sleep(400 * 86_400_000);
    await simulation.run(120_000);
    expect(simulation.settled).toBe(true);
    expect(simulation.writes).toEqual(['AuthorityExpiring']);
    expect(simulation.untrusted).toBeLessThanOrEqual((2 * LATE_MS) / 1000);
  });
});
