import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { shipped as linger, MAIN } from '../cli/linger.ts';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import { appContainer, job, pod, service, workload } from './support/manifests.ts';

let cluster: Cluster;

beforeAll(async () => {
  cluster = await openCluster();
});

afterAll(() => cluster?.close());

const audit = async (...args: readonly string[]) => {
  const { stdout, stderr } = await linger([
    'audit',
    '--kubeconfig',
    cluster.kubeconfig,
    '-o',
    'json',
    ...args,
  ]);
  expect(stdout, stderr).not.toBe('');
  return JSON.parse(stdout) as AuditReport;
};

/** `verdict reasons` by `Kind name`. */
const inWords = ({ findings }: AuditReport) => {
  const words: Record<string, string> = {};
  for (const { kind, name, verdict, reason } of findings) {
    const key = `${kind} ${name}`;
    words[key] = key in words ? `${words[key]},${reason}` : `${verdict} ${reason}`;
  }
  return words;
};

describe('an audit of a cluster', () => {
  it('judges what runs there: workloads with their pods, bare pods, and what leads to them', async () => {
    const namespace = await cluster.namespace('audit');
    for (const object of [
      workload('Deployment', namespace, 'web', { replicas: 2 }),
      service(namespace, 'web'),
      workload('StatefulSet', namespace, 'db', { replicas: 1, serviceName: 'db' }),
      service(namespace, 'db'),
      workload('DaemonSet', namespace, 'agent'),
      service(namespace, 'agent'),
      pod(namespace, 'bare', {}, { labels: { app: 'bare' } }),
      service(namespace, 'bare'),
      job(namespace, 'once'),
    ])
      await cluster.create(object);
    await cluster.api.call('POST', `/apis/networking.k8s.io/v1/namespaces/${namespace}/ingresses`, {
      body: {
        metadata: { name: 'edge' },
        spec: { defaultBackend: { service: { name: 'web', port: { number: 80 } } } },
      },
    });
    await waitUntil('the pods have been made', async () => {
      const { items } = await cluster.api.call<{ items: unknown[] }>(
        'GET',
        `/api/v1/namespaces/${namespace}/pods`,
      );
      return items.length >= 6;
    });
    const report = await audit('-n', namespace);
    expect(inWords(report)).toEqual({
      // Linger runs nowhere here, so no pod was given a wait.
      'Deployment web': 'unprotected NotInjected,UndeclaredConsumer',
      'StatefulSet db': 'unprotected NoOtherEndpoint,NotInjected',
      'DaemonSet agent': 'skipped DaemonSet,DaemonSetServing',
      'Pod bare': 'unprotected NotInjected',
    });
    const [web] = report.findings;
    expect(web?.text).toMatch(/^2 of 2 pods have no wait/);
  }, 120_000);

  it('tries waits as dry runs, and tells those that the cluster refuses from pods that it refuses anyway', async () => {
    const namespace = await cluster.namespace('audit-tried');
    const group = { apiVersion: 'admissionregistration.k8s.io/v1', metadata: { name: namespace } };
    const inNamespace = { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } } };
    const pods = { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] };
    const validation = {
      expression: 'object.spec.terminationGracePeriodSeconds <= 45',
      message: 'graces of more than 45 s are not for us',
    };
    const rules = [
      // Without Linger's webhook no pod would get what is tried here. Nothing answers behind this one.
      {
        apiVersion: 'admissionregistration.k8s.io/v1',
        kind: 'MutatingWebhookConfiguration',
        metadata: { name: namespace },
        webhooks: [
          {
            name: 'pods.linger.dev',
            clientConfig: { url: 'https://127.0.0.1:1/' },
            failurePolicy: 'Ignore',
            ...inNamespace,
            sideEffects: 'None',
            admissionReviewVersions: ['v1'],
            rules: [pods],
          },
        ],
      },
      {
        ...group,
        kind: 'ValidatingAdmissionPolicy',
        spec: { matchConstraints: { resourceRules: [pods] }, validations: [validation] },
      },
      {
        ...group,
        kind: 'ValidatingAdmissionPolicyBinding',
        spec: { policyName: namespace, validationActions: ['Deny'], matchResources: inNamespace },
      },
    ];
    for (const rule of rules) await cluster.create(rule as never);
    onTestFinished(async () => {
      for (const rule of rules) await cluster.delete(rule as never);
    });
    const claim = {
      metadata: { name: 'data' },
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } },
    };
    const withGrace = (terminationGracePeriodSeconds: number) => ({ terminationGracePeriodSeconds });
    // Paused from the start: there are no pods of theirs.
    const paused = { replicas: 2, paused: true };
    for (const object of [
      workload('Deployment', namespace, 'refused', paused),
      workload('Deployment', namespace, 'taken', paused, withGrace(10)),
      workload('Deployment', namespace, 'hopeless', paused, withGrace(120)),
      workload(
        'StatefulSet',
        namespace,
        'db',
        { replicas: 2, serviceName: 'db', volumeClaimTemplates: [claim] },
        {
          ...withGrace(10),
          containers: [{ ...appContainer('app'), volumeMounts: [{ name: 'data', mountPath: '/data' }] }],
        },
      ),
    ])
      await cluster.create(object);
    await waitUntil('the policy is in force', async () => {
      const path = `/api/v1/namespaces/${namespace}/pods?dryRun=All`;
      const { status } = await cluster.api.request('POST', path, {
        body: pod(namespace, 'probe', withGrace(60)),
      });
      return status >= 400;
    });
    const { stdout, stderr } = await linger([
      ...['audit', '--kubeconfig', cluster.kubeconfig, '-n', namespace, '--server-dry-run', '-o', 'json'],
    ]);
    const report = JSON.parse(stdout) as AuditReport;
    expect(inWords(report)).toEqual({
      'Deployment refused': 'unprotected PatchRefused',
      'Deployment taken': 'protected Injected',
      'Deployment hopeless': 'protected Injected',
      // Its pods were created while no webhook answered.
      'StatefulSet db': 'unprotected NotInjected',
    });
    const [refused] = report.findings.filter(({ reason }) => reason === 'PatchRefused');
    expect(refused?.text).toContain('graces of more than 45 s are not for us');
    expect(stderr).toMatch(
      /1 of 4 workloads could not be tried .*Deployment \S+\/hopeless: .*45 s are not for us/,
    );
  }, 120_000);

  it('of 1,000 Deployments takes at most 10 s and 300 MB', async () => {
    const namespace = await cluster.namespace('audit-many');
    const made = Array.from({ length: 1_000 }, (_, index) =>
      workload('Deployment', namespace, `app-${index}`, { replicas: 0 }),
    );
    for (let from = 0; from < made.length; from += 50)
      await Promise.all(made.slice(from, from + 50).map((object) => cluster.create(object)));
    const begun = performance.now();
    const child = spawn(
      process.execPath,
      [MAIN, 'audit', '--kubeconfig', cluster.kubeconfig, '-n', namespace, '-o', 'json'],
      { stdio: ['ignore', 'pipe', 'inherit'] },
    );
    let peakMb = 0;
    const watching = setInterval(() => {
      peakMb = Math.max(peakMb, peakOf(child.pid) ?? 0);
    }, 20);
    const [stdout] = await Promise.all([text(child.stdout), once(child, 'exit')]);
    clearInterval(watching);
    const seconds = (performance.now() - begun) / 1000;
    console.log(`1,000 Deployments: ${seconds.toFixed(1)} s, ${peakMb} MB`);
    expect((JSON.parse(stdout) as AuditReport).summary.workloads).toBe(1_000);
    expect(seconds).toBeLessThan(10);
    expect(peakMb).toBeGreaterThan(40);
    expect(peakMb).toBeLessThan(300);
  }, 300_000);
});

/** undefined: it has ended. */
function peakOf(pid: number | undefined): number | undefined {
  try {
    const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? [];
    return kib === undefined ? undefined : Math.round(Number(kib) / 1024);
  } catch {
    return undefined;
  }
}
