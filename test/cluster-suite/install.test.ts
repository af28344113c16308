import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Cluster, openCluster, waitUntil } from '../cluster/cluster.ts';
import { LINGER_IMAGE, lingerImageArchive } from './support/linger-image.ts';
import { type PodObject, pod } from './support/manifests.ts';
import { hookOf } from './support/outcome.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const NAMESPACE = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'linger' } };
const CONFIGURATION = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
  metadata: { name: 'linger' },
};

/** The README's installation by hand, command by command, with deploy/ as it is. */
describe('an installation by hand', async () => {
  const cluster: Cluster = await openCluster();
  const scratch = mkdtempSync(join(tmpdir(), 'linger-install-'));
  const kubectl = async (...args: string[]) => {
    const { code, stdout, stderr } = await cluster.kubectl(args, { timeoutMs: 120_000 });
    if (code !== 0) throw new Error(`kubectl ${args.join(' ')}: ${stderr}`);
    return stdout;
  };
  let namespace = '';
  let caBundle = '';

  beforeAll(async () => {
    if (!cluster.own) return;
    await waitUntil('an earlier namespace linger to be gone', async () => !(await cluster.get(NAMESPACE)), {
      timeoutMs: 120_000,
    });
    await cluster.importImages(lingerImageArchive());
    namespace = await cluster.namespace('install');
  }, 240_000);

  afterAll(async () => {
    if (cluster.own) {
      await cluster.delete(CONFIGURATION);
      await cluster.delete(NAMESPACE, { wait: true });
    }
    await cluster.close();
    rmSync(scratch, { recursive: true });
  }, 180_000);

  const onOurOwn = it.runIf(cluster.own);

  onOurOwn('linger certs makes the certificate and prints the caBundle', () => {
    const certs = ['src/main.ts', 'certs', '--dns', 'linger.linger.svc', '--out', scratch];
    caBundle = execFileSync(process.execPath, certs, { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' }).trim();
    expect(Buffer.from(caBundle, 'base64').toString()).toMatch(/^-----BEGIN CERTIFICATE-----/);
  });

  onOurOwn(
    'kubectl apply -k deploy/ brings up two replicas, as Pod Security "restricted" allows',
    { timeout: 180_000 },
    async () => {
      await kubectl('apply', '--filename', join(ROOT, 'deploy', 'namespace.yaml'));
      const pair = ['--cert', join(scratch, 'tls.crt'), '--key', join(scratch, 'tls.key')];
      await kubectl('--namespace', 'linger', 'create', 'secret', 'tls', 'linger-tls', ...pair);
      await kubectl('apply', '--kustomize', join(ROOT, 'deploy'));
      await kubectl('--namespace', 'linger', 'rollout', 'status', 'deployment/linger', '--timeout=100s');
      const image = await kubectl(
        '--namespace',
        'linger',
        'get',
        'pods',
        '--output',
        'jsonpath={.items[*].spec.containers[*].image}',
      );
      expect(image.split(' ')).toEqual([LINGER_IMAGE, LINGER_IMAGE]);
    },
  );

  onOurOwn('first it looks and does not touch: mode Audit', { timeout: 90_000 }, async () => {
    const patch = [{ op: 'add', path: '/webhooks/0/clientConfig/caBundle', value: caBundle }];
    const target = ['mutatingwebhookconfiguration', 'linger'];
    await kubectl('patch', ...target, '--type', 'json', '--patch', JSON.stringify(patch));
    const audited = async () => {
      expect((await createPod()).spec.containers.map(hookOf)).toEqual(['-']);
      return (await metric('linger_decisions_total{outcome="audit",reason=""}')) > 0;
    };
    await waitUntil('a pod to be counted as audited', audited, { intervalMs: 1000 });
  });

  onOurOwn('then it enforces', { timeout: 180_000 }, async () => {
    const base = {
      apiVersion: 'linger.dev/v1alpha1',
      kind: 'ClusterTerminationPolicy',
      metadata: { name: 'base' },
    };
    const data = { 'base.yaml': JSON.stringify({ ...base, spec: { mode: 'Enforce' } }) };
    await cluster.patch(
      { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'linger-policies', namespace: 'linger' } },
      { data },
    );
    // The kubelet brings a changed ConfigMap within about a minute; a restart does not wait for that.
    await kubectl('--namespace', 'linger', 'rollout', 'restart', 'deployment/linger');
    await kubectl('--namespace', 'linger', 'rollout', 'status', 'deployment/linger', '--timeout=100s');
    const created = await waitUntil(
      'a pod to get its hook',
      async () => {
        const made = await createPod();
        return made.metadata.annotations?.['linger.dev/plan'] === undefined ? undefined : made;
      },
      { intervalMs: 1000 },
    );
    expect(created.spec.containers.map(hookOf)).toEqual(['sleep 30']);
    expect(created.spec.terminationGracePeriodSeconds).toBe(60);
  });

  /** The pod as it was stored; it goes at once, since a node holds only so many. */
  async function createPod(): Promise<PodObject> {
    const object = pod(namespace, 'newcomer', {});
    const stored = await cluster.create<PodObject>(object);
    await cluster.delete(object, { graceSeconds: 0, wait: true });
    return stored;
  }

  async function lingerPods(): Promise<{ status: { podIP: string } }[]> {
    return cluster.list(
      { apiVersion: 'v1', kind: 'Pod', namespace: 'linger' },
      'app.kubernetes.io/name=linger',
    );
  }

  async function metric(sample: string): Promise<number> {
    const texts = (await lingerPods()).map(async ({ status }) =>
      (await fetch(`http://${status.podIP}:8080/metrics`)).text(),
    );
    const lines = (await Promise.all(texts)).flatMap((text) => text.split('\n'));
    return lines
      .filter((line) => line.startsWith(sample))
      .reduce((sum, line) => sum + Number(line.slice(sample.length)), 0);
  }
});
