import { X509Certificate } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { issueAuthority, issueServingCertificate } from '../../src/certs/index.ts';
import { byForm, LONG } from '../scenarios/form.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { Admissions } from './support/admissions.ts';
import { Installation } from './support/installation.ts';
import { type PodObject, pod } from './support/manifests.ts';
import { planOf } from './support/outcome.ts';
import { serialServedAt } from './support/served-serial.ts';

const SECRET = {
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name: 'linger-certificates', namespace: 'linger' },
};
const DEPLOYMENT = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'linger', namespace: 'linger' },
};
const CONFIGURATION = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
  metadata: { name: 'linger' },
};
const POLICIES = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'ClusterTerminationPolicy',
  metadata: { name: 'base' },
  spec: { mode: 'Enforce', wait: { from: 'Fixed', fixed: '5s' } },
});
/** Between two admissions. The long form is 100 a second. */
const EVERY_MS = byForm(30, 10);
/**
 * A machine that stands still for two seconds, the timeout of deploy/webhook.yaml, would look like a missed admission. What is
 * asked is whether a connection fails, for a certificate that is not trusted or none at all, and that shows at once.
 */
const TIMEOUT_SECONDS = 10;
const NAMES = ['linger.linger.svc', 'linger-reports.linger.svc'];

type SecretObject = KubernetesObject & { readonly data: Readonly<Record<string, string>> };
type Configuration = KubernetesObject & {
  readonly webhooks: readonly { readonly clientConfig: { readonly caBundle?: string } }[];
};

describe('the certificate that replicas share', async () => {
  const cluster: Cluster = await openCluster();
  let linger: Installation | undefined;
  let namespace = '';
  const onOurOwn = it.runIf(cluster.own);

  beforeAll(async () => {
    if (!cluster.own) return;
    namespace = await cluster.namespace('certificates');
    linger = await Installation.create(cluster, { policies: POLICIES, timeoutSeconds: TIMEOUT_SECONDS });
  }, 300_000);

  afterAll(async () => {
    await linger?.remove();
    await cluster.close();
  }, 180_000);

  const secret = async () => {
    const { data } = (await cluster.get<SecretObject>(SECRET))!;
    return Object.fromEntries(
      Object.entries(data).map(([name, text]) => [name, Buffer.from(text, 'base64').toString()]),
    );
  };
  const put = (contents: Readonly<Record<string, string>>) =>
    cluster.patch(SECRET, {
      data: Object.fromEntries(
        Object.entries(contents).map(([name, text]) => [name, Buffer.from(text).toString('base64')]),
      ),
    });
  const bundle = async () => {
    const { webhooks } = (await cluster.get<Configuration>(CONFIGURATION))!;
    return Buffer.from(webhooks[0]?.clientConfig.caBundle ?? '', 'base64').toString();
  };
  const setBundle = (text: string) =>
    cluster.kubectl(
      [
        ...['patch', 'mutatingwebhookconfiguration', 'linger', '--type', 'json', '--patch'],
        JSON.stringify([
          {
            op: 'add',
            path: '/webhooks/0/clientConfig/caBundle',
            value: Buffer.from(text).toString('base64'),
          },
        ]),
      ],
      { timeoutMs: 30_000 },
    );
  const serial = (pem = '') => new X509Certificate(pem).serialNumber;
  /** What each replica serves a new connection with. */
  const served = async () =>
    Promise.all((await linger!.replicas.list()).map(({ address }) => serialServedAt(address)));
  const untilServed = (wanted: () => Promise<string>, timeoutMs: number) =>
    waitUntil(
      'both replicas to serve what the Secret holds',
      async () => {
        const serials = await served();
        const held = await wanted();
        return serials.length === 2 && serials.every((each) => each === held);
      },
      { timeoutMs, intervalMs: 250 },
    );

  onOurOwn('is there after an installation, made once and trusted', { timeout: 60_000 }, async () => {
    const held = await secret();
    expect(await bundle()).toBe(held['ca.crt']);
    expect(new Set(await served())).toEqual(new Set([serial(held['tls.crt'])]));
    const leaf = new X509Certificate(held['tls.crt']!);
    const days = (leaf.validToDate.getTime() - leaf.validFromDate.getTime()) / 86_400_000;
    expect(days).toBeCloseTo(7, 1);
    expect(leaf.subjectAltName).toBe(NAMES.map((name) => `DNS:${name}`).join(', '));
    // One of them has written the caBundle, and the other one's watch may be a moment behind on a busy machine.
    await waitUntil('both replicas to see that they are trusted', async () => {
      const trusted = await linger!.replicas.each('linger_certificate_trusted');
      return trusted.length === 2 && trusted.every((each) => each === 1);
    });
    expect(await linger!.replicas.sum('linger_certificate_writes_total', 'object="Secret"')).toBe(1);
  });

  /** A leaf of the authority that is there, as old as that. */
  const agedLeaf = async (held: Readonly<Record<string, string>>, days: number) => {
    const authority = { certificate: held['ca.crt']!, key: held['ca.key']! };
    const at = new Date(Date.now() - days * 86_400_000);
    return issueServingCertificate(authority, NAMES, at, 7 * 86_400_000);
  };
  const agedAuthority = () => issueAuthority(new Date(Date.now() - 250 * 86_400_000));

  onOurOwn.each<[string, () => Promise<unknown>, { settledMs: number; renews: 'leaf' | 'all' }]>([
    [
      'its certificate is due',
      async () => {
        const { cert, key } = await agedLeaf(await secret(), 5);
        await put({ 'tls.crt': cert, 'tls.key': key });
      },
      { settledMs: 60_000, renews: 'leaf' },
    ],
    [
      'its authority is due',
      async () => {
        const old = await agedAuthority();
        const held = await secret();
        // As it would have been for months: trusted, and what it has issued serves.
        await put({ 'ca.crt': old.certificate + held['ca.crt'] });
        await waitUntil('trust', async () => (await bundle()).startsWith(old.certificate));
        const pair = await issueServingCertificate(old, NAMES, new Date(), 7 * 86_400_000);
        await put({
          'ca.crt': old.certificate + held['ca.crt'],
          'ca.key': old.key,
          'tls.crt': pair.cert,
          'tls.key': pair.key,
        });
      },
      { settledMs: 90_000, renews: 'all' },
    ],
    ['the Secret is deleted', () => cluster.delete(SECRET), { settledMs: 60_000, renews: 'all' }],
    [
      'everything in it is garbage',
      () => put({ 'ca.crt': 'x', 'ca.key': 'x', 'tls.crt': 'x', 'tls.key': 'x' }),
      { settledMs: 60_000, renews: 'all' },
    ],
    [
      'the key is not that of the certificate',
      async () => put({ 'tls.key': (await agedAuthority()).key }),
      { settledMs: 60_000, renews: 'leaf' },
    ],
  ])('no admission fails while %s', { timeout: 180_000 }, async (what, harm, { settledMs, renews }) => {
    const before = await secret();
    const admissions = new Admissions(cluster, namespace, EVERY_MS);
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    const begun = performance.now();
    await harm();
    let healed = 0;
    await waitUntil(
      'a new certificate',
      async () => {
        const held = await secret().catch(() => undefined);
        if (held === undefined || !held['tls.crt']?.includes('CERTIFICATE')) return false;
        const leaf = new X509Certificate(held['tls.crt']);
        // Certificates know whole seconds.
        const isNew = Date.now() - leaf.validFromDate.getTime() < 3_602_000 + (performance.now() - begun);
        const authority = new X509Certificate(held['ca.crt']!);
        const renewed = renews === 'leaf' || Date.now() - authority.validFromDate.getTime() < 86_400_000;
        const ours = serial(held['tls.crt']) !== serial(before['tls.crt']) && leaf.checkIssued(authority);
        if (!(isNew && renewed && ours)) return false;
        healed ||= performance.now() - begun;
        return true;
      },
      { timeoutMs: settledMs, intervalMs: 250 },
    );
    await untilServed(async () => serial((await secret())['tls.crt']), settledMs);
    const settled = performance.now() - begun;
    await new Promise((resolve) => setTimeout(resolve, 2_000));
    const result = await admissions.end();
    console.log(
      `${what}: new certificate after ${(healed / 1000).toFixed(1)} s, served after ${(settled / 1000).toFixed(1)} s;`,
      JSON.stringify(result),
    );
    expect([result.missed, result.problems]).toEqual([0, []]);
    expect(result.total).toBeGreaterThan(50);
    expect(await linger!.replicas.each('linger_certificate_trusted')).toEqual([1, 1]);
  });

  onOurOwn.each(['', 'garbage', 'another authority'])(
    'the caBundle is put back within 10 s when it becomes: %s',
    { timeout: 60_000 },
    async (what) => {
      const good = (await secret())['ca.crt'];
      const admissions = new Admissions(cluster, namespace, EVERY_MS);
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      const begun = performance.now();
      const text = what === 'another authority' ? (await agedAuthority()).certificate : what;
      expect((await setBundle(text)).code).toBe(0);
      await waitUntil('the caBundle', async () => (await bundle()) === good, { intervalMs: 50 });
      const tookMs = performance.now() - begun;
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      const result = await admissions.end();
      console.log(
        `caBundle ${what || 'emptied'}: back after ${Math.round(tookMs)} ms;`,
        JSON.stringify(result),
      );
      expect(tookMs).toBeLessThan(10_000);
      expect(result.missedForMs).toBeLessThan(10_000);
      expect(result.problems).toEqual([]);
    },
  );

  it.runIf(cluster.own && LONG)(
    'all has expired while Linger was off: pods get hooks soon after it is back',
    { timeout: 180_000 },
    async () => {
      const asked = async () => {
        const created = await cluster.create<PodObject>(pod(namespace, 'newcomer', {}), { dryRun: true });
        return planOf(created) !== undefined;
      };
      const scale = (replicas: number) => cluster.patch(DEPLOYMENT, { spec: { replicas } });
      await scale(0);
      // Those that drain still answer, and would put everything back.
      const pods = { apiVersion: 'v1', kind: 'Pod', namespace: 'linger' };
      const left = () => cluster.list(pods, 'app.kubernetes.io/name=linger');
      await waitUntil('Linger to be off', async () => (await left()).length === 0, { timeoutMs: 60_000 });
      const old = await issueAuthority(new Date(Date.now() - 400 * 86_400_000));
      const pair = await issueServingCertificate(old, NAMES, new Date(Date.now() - 100 * 86_400_000));
      await put({ 'ca.crt': old.certificate, 'ca.key': old.key, 'tls.crt': pair.cert, 'tls.key': pair.key });
      expect((await setBundle(old.certificate)).code).toBe(0);
      expect(await asked()).toBe(false);
      expect(await bundle()).toBe(old.certificate);
      const begun = performance.now();
      await scale(2);
      await waitUntil('a pod to get its hook', asked, { timeoutMs: 90_000, intervalMs: 100 });
      const seconds = ((performance.now() - begun) / 1000).toFixed(1);
      console.log(`all had expired: pods get hooks ${seconds} s after Linger was asked for`);
      const admissions = new Admissions(cluster, namespace, EVERY_MS);
      await untilServed(async () => serial((await secret())['tls.crt']), 60_000);
      expect(await admissions.end()).toMatchObject({ missed: 0, problems: [] });
      expect(await bundle()).not.toContain(old.certificate);
    },
  );

  onOurOwn('all replicas see that there is no webhook configuration', { timeout: 90_000 }, async () => {
    const shown = (value: number) => async () =>
      (await linger!.replicas.each('linger_webhook_configured')).join() === `${value},${value}`;
    await waitUntil('both to know it', shown(1), { intervalMs: 250 });
    const { apiVersion, kind, metadata, webhooks } = (await cluster.get<Configuration>(CONFIGURATION))!;
    await cluster.delete(CONFIGURATION);
    await waitUntil('both to miss it', shown(0), { timeoutMs: 10_000, intervalMs: 250 });
    for (const logs of (await linger!.replicas.logs()).values())
      expect(logs).toContain('webhook configuration missing; no pod creation reaches Linger');
    const unbundled = webhooks.map((each) => ({
      ...each,
      clientConfig: { ...each.clientConfig, caBundle: undefined },
    }));
    const again = { apiVersion, kind, metadata: { name: metadata.name }, webhooks: unbundled };
    await cluster.create(again);
    await waitUntil('both to see it again', shown(1), { timeoutMs: 10_000, intervalMs: 250 });
    const trusted = async () => (await bundle()) === (await secret())['ca.crt'];
    await waitUntil('the caBundle', trusted, { timeoutMs: 20_000, intervalMs: 250 });
  });

  onOurOwn('no right is missing, and nothing is fought about', { timeout: 30_000 }, async () => {
    const logs = [...(await linger!.replicas.logs()).values()].join('\n').split('\n');
    expect(
      logs.filter((line) =>
        /Forbidden|renewing the shared certificates failed|watch of an object failed/.test(line),
      ),
    ).toEqual([]);
  });
});
