import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { issueAuthority, issueServingCertificate } from '../../src/certs/index.ts';
import { Installation } from '../../test/cluster-suite/support/installation.ts';
import { type Json, type PodObject, pod } from '../../test/cluster-suite/support/manifests.ts';
import { clusterPolicy, fixedWait, policyFile } from '../../test/cluster-suite/support/policies.ts';
import { table } from '../../test/scenarios/table.ts';
import { kubernetesVersion } from '../../test/testbed/binaries.ts';
import { type Cluster, openCluster, waitUntil } from '../../test/testbed/cluster.ts';
import type { ApiSettings } from '../api.ts';
import { describeMachine } from '../machine.ts';
import { settingsOnCluster } from '../on-cluster.ts';
import { started, stop } from '../processes.ts';
import { freePorts } from '../servers.ts';
import { median, round } from '../statistics.ts';

/* npm run bench:api. Pods are created as dry runs: all of admission, and nothing in etcd. */

const { rounds, out, program } = settingsOnCluster<ApiSettings>();
const KINDS = ['no webhook', 'Linger', 'controller-runtime', 'MutatingAdmissionPolicy'] as const;
type Kind = (typeof KINDS)[number];
const GROUP = 'admissionregistration.k8s.io';
const RULES = [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }];
const SLEEP =
  'Object.spec.containers.lifecycle{preStop: Object.spec.containers.lifecycle.preStop{sleep: Object.spec.containers.lifecycle.preStop.sleep{seconds: 30}}}';

let cluster: Cluster;
let linger: Installation;
const cleanUp: (() => Promise<unknown>)[] = [];
const namespaces = new Map<Kind, string>();

const created = (namespace: string) =>
  cluster.create<PodObject>(pod(namespace, 'measured', {}, { labels: { app: 'measured' } }), {
    dryRun: true,
  });

async function create(kind: string, version: string, name: string, rest: Json): Promise<void> {
  const object = { apiVersion: `${GROUP}/${version}`, kind, metadata: { name }, ...rest };
  await cluster.create(object as never);
  cleanUp.push(() => cluster.delete(object));
}

/** The program of controller-runtime/, called by its address on the loopback that the API server shares. */
async function startControllerRuntime(namespace: string): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'linger-bench-'));
  const now = new Date();
  const authority = await issueAuthority(now);
  const { cert, key } = await issueServingCertificate(authority, ['127.0.0.1'], now);
  writeFileSync(join(directory, 'tls.crt'), cert);
  writeFileSync(join(directory, 'tls.key'), key, { mode: 0o600 });
  const [port] = await freePorts(1);
  const child = spawn(program, ['--port', String(port), '--certs', directory], { stdio: 'ignore' });
  await started('controller-runtime', child);
  cleanUp.push(async () => {
    await stop(child, 'SIGINT', 5_000);
    rmSync(directory, { recursive: true });
  });
  const caBundle = Buffer.from(authority.certificate).toString('base64');
  await create('MutatingWebhookConfiguration', 'v1', 'bench-controller-runtime', {
    webhooks: [
      {
        ...{ name: 'bench.linger.dev', admissionReviewVersions: ['v1'], sideEffects: 'None' },
        ...{ rules: RULES, clientConfig: { url: `https://127.0.0.1:${port}/mutate`, caBundle } },
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
      },
    ],
  });
}

async function startPolicy(namespace: string): Promise<void> {
  const expression = `Object{spec: Object.spec{containers: object.spec.containers.map(c, Object.spec.containers{name: c.name, lifecycle: ${SLEEP}})}}`;
  await create('MutatingAdmissionPolicy', 'v1', 'bench-sleep', {
    spec: {
      matchConstraints: {
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
        resourceRules: RULES,
      },
      ...{ failurePolicy: 'Fail', reinvocationPolicy: 'Never' },
      mutations: [{ patchType: 'ApplyConfiguration', applyConfiguration: { expression } }],
    },
  });
  await create('MutatingAdmissionPolicyBinding', 'v1', 'bench-sleep', {
    spec: { policyName: 'bench-sleep' },
  });
}

/** Sum and count of an admission histogram of the API server, by the name of what was called. */
async function admissionTimes(): Promise<ReadonlyMap<string, readonly [sum: number, count: number]>> {
  const text = await cluster.api.call<string>('GET', '/metrics');
  const found = new Map<string, [number, number]>();
  const names: Readonly<Record<string, Kind>> = {
    'pods.linger.dev': 'Linger',
    'bench.linger.dev': 'controller-runtime',
    'bench-sleep': 'MutatingAdmissionPolicy',
  };
  const line =
    /^apiserver_(?:admission_webhook_admission_duration|mutating_admission_policy_check_duration)_seconds_(sum|count)\{(.*)\} (\S+)$/gm;
  for (const [, which, labels = '', value] of text.matchAll(line)) {
    const [, name = ''] = /(?:^|,)(?:name|policy)="([^"]+)"/.exec(labels) ?? [];
    const kind = names[name];
    if (kind === undefined) continue;
    const [sum, count] = found.get(kind) ?? [0, 0];
    found.set(kind, which === 'sum' ? [sum + Number(value), count] : [sum, count + Number(value)]);
  }
  return found;
}

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) throw new Error('bench:api needs the cluster of npm run cluster:up');
  const policies = policyFile(clusterPolicy('base', { mode: 'Enforce', ...fixedWait('30s') }));
  linger = await Installation.create(cluster, { policies });
  for (const kind of KINDS)
    namespaces.set(
      kind,
      await cluster.namespace('bench-api', kind === 'Linger' ? {} : { 'linger.dev/inject': 'false' }),
    );
  await startControllerRuntime(namespaces.get('controller-runtime') ?? '');
  await startPolicy(namespaces.get('MutatingAdmissionPolicy') ?? '');
  for (const [kind, namespace] of namespaces)
    await waitUntil(`${kind} to mutate, or not`, async () => {
      const { spec } = await created(namespace);
      return (spec.containers[0]?.lifecycle === undefined) === (kind === 'no webhook');
    });
}, 300_000);

afterAll(async () => {
  for (const each of cleanUp.toReversed()) await each();
  await linger?.remove();
  await cluster?.close();
}, 120_000);

it('the creation of a pod', { timeout: 600_000 }, async () => {
  const times = new Map<Kind, number[]>(KINDS.map((kind) => [kind, []]));
  // Connections and caches are warm.
  for (let index = 0; index < 20; index += 1) for (const [, each] of namespaces) await created(each);
  const before = await admissionTimes();
  for (let index = 0; index < rounds; index += 1)
    for (let turn = 0; turn < KINDS.length; turn += 1) {
      // Another one begins each time.
      const kind = KINDS[(index + turn) % KINDS.length]!;
      const begun = performance.now();
      await created(namespaces.get(kind) ?? '');
      times.get(kind)?.push(performance.now() - begun);
    }
  const after = await admissionTimes();
  const results = KINDS.map((kind) => {
    const sorted = (times.get(kind) ?? []).toSorted((a, b) => a - b);
    const at = (share: number) => round(sorted[Math.ceil(share * sorted.length) - 1] ?? 0, 2);
    const [[sum, count], [earlier, fewer]] = [after.get(kind) ?? [0, 0], before.get(kind) ?? [0, 0]];
    const apiServerMs = count > fewer ? round((1_000 * (sum - earlier)) / (count - fewer), 2) : null;
    return { kind, p50Ms: round(median(sorted), 2), p90Ms: at(0.9), p99Ms: at(0.99), apiServerMs };
  });
  for (const { kind, apiServerMs } of results) expect(apiServerMs === null).toBe(kind === 'no webhook');
  const setting = { machine: describeMachine(), kubernetes: kubernetesVersion, rounds };
  writeFileSync(out, `${JSON.stringify({ ...setting, results }, undefined, 2)}\n`);
  const rows = results.map(({ kind, p50Ms, p90Ms, p99Ms, apiServerMs }) => [
    ...[kind, `${p50Ms} ms`, `${p90Ms} ms`, `${p99Ms} ms`],
    apiServerMs === null ? '–' : `${apiServerMs} ms`,
  ]);
  console.log(table(['mutated by', 'p50', 'p90', 'p99', 'in admission, by the API server'], rows));
});
