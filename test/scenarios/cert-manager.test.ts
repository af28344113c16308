import { execFileSync } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { issueAuthority, issueServingCertificate } from '../../src/certs/index.ts';
import { shipped as linger } from '../cli/linger.ts';
import { Admissions } from '../cluster-suite/support/admissions.ts';
import { CHART, helmOf } from '../cluster-suite/support/helm.ts';
import { InstalledReplicas } from '../cluster-suite/support/installed-replicas.ts';
import { lingerImageArchive } from '../cluster-suite/support/linger-image.ts';
import { type PodObject, pod } from '../cluster-suite/support/manifests.ts';
import { hookOf } from '../cluster-suite/support/outcome.ts';
import { serialServedAt } from '../cluster-suite/support/served-serial.ts';
import { certManagerCrds } from '../testbed/binaries.ts';
import { type Cluster, type KubernetesObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { LONG } from './form.ts';

/*
 * The chart with cert-manager's own CustomResourceDefinitions, and a stand-in for its controllers: their commands are Go
 * modules of their own, which the Go proxy does not have. It fills the Secret, and merges the authority into the caBundle, as
 * those of 1.21 do.
 */

const NAMESPACE = 'linger-cm';
const IN_NAMESPACE = ['--namespace', NAMESPACE];
const VALUES = [
  ...[
    'mode=Enforce',
    'certificates.certManager.enabled=true',
    'certificates.certManager.issuerRef.name=linger',
    // A machine that stands still for two seconds would look like a lost admission; one that is not trusted shows at once.
    'webhook.timeoutSeconds=10',
  ],
].flatMap((each) => ['--set', each]);
const CONFIGURATION = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
  metadata: { name: 'linger' },
};
const CERTIFICATE = {
  apiVersion: 'cert-manager.io/v1',
  kind: 'Certificate',
  metadata: { namespace: NAMESPACE, name: 'linger' },
};
const DAY_MS = 86_400_000;
const EVERY_MS = 20;
/** A kubelet delivers a changed Secret within a minute or so, and replicas read the file every few seconds. */
const DELIVERED_MS = 180_000;

type Issuer = 'CA' | 'SelfSigned';
type Certificate = KubernetesObject & { readonly spec: { secretName: string; dnsNames: readonly string[] } };
type Configuration = KubernetesObject & {
  readonly webhooks: readonly {
    readonly name: string;
    readonly clientConfig: { readonly caBundle?: string };
  }[];
};

describe.runIf(LONG)('with the certificates of cert-manager', async () => {
  if (!LONG) return;
  const cluster: Cluster = await openCluster();
  const { must, remove } = helmOf(cluster);
  const replicas = new InstalledReplicas(cluster, NAMESPACE);
  const authority = await issueAuthority(new Date());
  let namespace = '';
  let crds: readonly string[] = [];

  beforeAll(async () => {
    if (!cluster.own) return;
    await cluster.importImages(await lingerImageArchive());
    crds = (await certManagerCrds()).flatMap((file) => ['--filename', file]);
    await cluster.mustKubectl(['apply', '--server-side', ...crds]);
    namespace = await cluster.namespace('cert-manager');
  }, 900_000);

  afterAll(async () => {
    if (cluster.own) await remove('linger', NAMESPACE);
    if (crds.length > 0) await cluster.mustKubectl(['delete', '--ignore-not-found', ...crds]);
    await cluster.close();
  }, 180_000);

  /** What an issuer of this kind puts into the Secret. */
  async function issued(issuer: Issuer, names: readonly string[]) {
    if (issuer === 'CA') {
      const { cert, key } = await issueServingCertificate(authority, names, new Date(), 90 * DAY_MS);
      return { 'tls.crt': cert, 'tls.key': key, 'ca.crt': authority.certificate };
    }
    const words = [
      'req',
      '-x509',
      '-newkey',
      'rsa:2048',
      '-nodes',
      '-days',
      '90',
      '-subj',
      '/',
      '-keyout',
      '-',
    ];
    const extensions = [
      `subjectAltName=critical,${names.map((name) => `DNS:${name}`).join(',')}`,
      'basicConstraints=critical,CA:FALSE',
    ].flatMap((each) => ['-addext', each]);
    const both = execFileSync('openssl', [...words, ...extensions], {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const [key = ''] = /-----BEGIN PRIVATE[\s\S]*?-----END PRIVATE KEY-----\n/.exec(both) ?? [];
    const [cert = ''] = /-----BEGIN CERT[\s\S]*?-----END CERTIFICATE-----\n/.exec(both) ?? [];
    return { 'tls.crt': cert, 'tls.key': key, 'ca.crt': cert };
  }

  const apply = (object: object, manager: string) =>
    cluster.mustKubectl(
      ['apply', '--server-side', '--force-conflicts', `--field-manager=${manager}`, '--filename', '-'],
      { stdin: JSON.stringify(object) },
    );

  /** The controller's part and then the injector's. @returns the serial number of the new certificate */
  async function issue(issuer: Issuer): Promise<string> {
    const { spec } = (await cluster.get<Certificate>(CERTIFICATE))!;
    const contents = await issued(issuer, spec.dnsNames);
    const metadata = {
      namespace: NAMESPACE,
      name: spec.secretName,
      labels: { 'controller.cert-manager.io/fao': 'true' },
      annotations: { 'cert-manager.io/certificate-name': 'linger' },
    };
    const secret = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata,
      type: 'kubernetes.io/tls',
      stringData: contents,
    };
    await apply(secret, 'cert-manager-certificates-issuing');
    const { metadata: marked, webhooks } = (await cluster.get<Configuration>(CONFIGURATION))!;
    expect(marked.annotations?.['cert-manager.io/inject-ca-from']).toBe(`${NAMESPACE}/linger`);
    const merged = webhooks.map(({ name, clientConfig: { caBundle = '' } }) => {
      const before = Buffer.from(caBundle, 'base64').toString();
      const text = before.includes(contents['ca.crt']) ? before : before + contents['ca.crt'];
      return { name, clientConfig: { caBundle: Buffer.from(text).toString('base64') } };
    });
    await apply({ ...CONFIGURATION, webhooks: merged }, 'cert-manager-cainjector');
    return new X509Certificate(contents['tls.crt']).serialNumber;
  }

  const untilServed = (serial: string) =>
    waitUntil(
      'both replicas to serve it',
      async () => {
        const all = await Promise.all((await replicas.list()).map(({ address }) => serialServedAt(address)));
        return all.length === 2 && all.every((each) => each === serial);
      },
      { timeoutMs: DELIVERED_MS, intervalMs: 500 },
    );

  const rolledOut = () =>
    cluster.mustKubectl([...IN_NAMESPACE, 'rollout', 'status', 'deployment/linger', '--timeout=200s'], {
      timeoutMs: 210_000,
    });

  it.runIf(cluster.own)('the chart installs, and pods are protected', { timeout: 300_000 }, async () => {
    await must('install', 'linger', CHART, ...IN_NAMESPACE, '--create-namespace', ...VALUES);
    const serial = await issue('CA');
    await rolledOut();
    await waitUntil('a pod to be protected', async () => {
      const tried = await cluster.create<PodObject>(pod(namespace, 'first', {}), { dryRun: true });
      return tried.spec.containers.map(hookOf).join() !== '-';
    });
    await untilServed(serial);
    const place = [
      '--linger-namespace',
      NAMESPACE,
      '--namespace',
      namespace,
      '--kubeconfig',
      cluster.kubeconfig,
    ];
    const { stdout } = await linger(['check', ...place]);
    console.log(stdout);
    expect(stdout).not.toMatch(/^failure/m);
    // None of its own.
    const own = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { namespace: NAMESPACE, name: 'linger-certificates' },
    };
    expect(await cluster.get(own)).toBeUndefined();
    const rights = { apiVersion: 'rbac.authorization.k8s.io/v1', kind: 'ClusterRoleBinding' };
    expect(await cluster.get({ ...rights, metadata: { name: 'linger-certificates' } })).toBeUndefined();
    expect(await replicas.each('linger_certificate_trusted')).not.toContain(0);
  });

  it.runIf(cluster.own).each<[Issuer, string]>([
    ['CA', 'with the same authority'],
    ['SelfSigned', 'which is its own authority'],
    ['SelfSigned', 'once more'],
  ])('an issuer of kind %s renews it, %s: no admission is lost', { timeout: 300_000 }, async (issuer) => {
    const admissions = new Admissions(cluster, namespace, EVERY_MS);
    await sleep(1_000);
    const begun = performance.now();
    await untilServed(await issue(issuer));
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    await sleep(2_000);
    const result = await admissions.end();
    console.log(`${issuer}: served after ${seconds} s;`, JSON.stringify(result));
    expect([result.missed, result.problems]).toEqual([0, []]);
    expect(result.total).toBeGreaterThan(50);
  });

  it.runIf(cluster.own)('an upgrade leaves the authority alone', { timeout: 300_000 }, async () => {
    const bundles = async () =>
      (await cluster.get<Configuration>(CONFIGURATION))?.webhooks.map(({ clientConfig }) => clientConfig);
    const before = await bundles();
    const more = ['--reset-then-reuse-values', '--set', 'podAnnotations.changed=yes'];
    await must('upgrade', 'linger', CHART, ...IN_NAMESPACE, ...more);
    await rolledOut();
    expect(await bundles()).toEqual(before);
  });
});
