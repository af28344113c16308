import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { issueAuthority, issueServingCertificate } from '../../src/certs/index.ts';
import { ANNOTATION, FLOOR } from '../../src/core/api/index.ts';
import { Installation } from '../../test/cluster-suite/support/installation.ts';
import { type Json, type PodObject, pod } from '../../test/cluster-suite/support/manifests.ts';
import { clusterPolicy, fixedWait, policyFile } from '../../test/cluster-suite/support/policies.ts';
import { table } from '../../test/scenarios/table.ts';
import { kubernetesVersion } from '../../test/testbed/binaries.ts';
import { type Cluster, openCluster, waitUntil } from '../../test/testbed/cluster.ts';
import { readRecord } from '../../test/testbed/process.ts';
import { clusterSettings, statePaths } from '../../test/testbed/settings.ts';
import type { ApiSettings } from '../api.ts';
import { describeMachine } from '../machine.ts';
import { settingsOnCluster } from '../on-cluster.ts';
import { started, stop } from '../processes.ts';
import { freePorts } from '../servers.ts';
import { median, round } from '../statistics.ts';

/* npm run bench:api. Pods are created as dry runs: all of admission, and nothing in etcd. */

const { rounds, out, program } = settingsOnCluster<ApiSettings>();
/** Lines in the ConfigMap that the floor reads, as many as a cluster has namespaces with policies of their own. */
const FLOORS = { floor: 1, 'floor, 200 namespaces': 200, 'floor, 2,000 namespaces': 2_000 } as const;
const KINDS = [
  'nothing',
  ...(Object.keys(FLOORS) as (keyof typeof FLOORS)[]),
  'floor and Linger',
  'Linger',
  'controller-runtime',
  'MutatingAdmissionPolicy',
] as const;
type Kind = (typeof KINDS)[number];
const FLOOR_LABEL = 'bench-floor';
/** Labels namespaces for which the floor acts and the webhook does not. */
const WITHOUT_LINGER = 'bench-without-linger';
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
        name: 'bench.linger.dev',
        admissionReviewVersions: ['v1'],
        sideEffects: 'None',
        rules: RULES,
        clientConfig: { url: `https://127.0.0.1:${port}/mutate`, caBundle },
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
      failurePolicy: 'Fail',
      reinvocationPolicy: 'Never',
      mutations: [{ patchType: 'ApplyConfiguration', applyConfiguration: { expression } }],
    },
  });
  await create('MutatingAdmissionPolicyBinding', 'v1', 'bench-sleep', {
    spec: { policyName: 'bench-sleep' },
  });
}

/** The policy of deploy/floor, bound once for each size of its ConfigMap, and the webhook kept out of some namespaces. */
async function startFloors(): Promise<void> {
  const [policy, binding] = parseAllDocuments(readFileSync(FLOOR_MANIFEST, 'utf8')).map(
    (each) =>
      each.toJS() as Json & {
        readonly kind: string;
        readonly metadata: { readonly name: string };
        readonly spec: Json;
      },
  );
  if (policy === undefined || binding === undefined) throw new Error('deploy/floor: expected two objects');
  await create(policy.kind, 'v1', policy.metadata.name, { spec: policy.spec });
  for (const [kind, lines] of Object.entries(FLOORS)) {
    const name = floorName(lines);
    const measured = [namespaces.get(kind as Kind), namespaces.get('floor and Linger')];
    const others = Array.from({ length: lines - 1 }, (_, at) => `a-namespace-of-somebody-${at}`);
    const entry = '30 30 600 Sleep Job,DaemonSet ';
    const own = measured.slice(0, lines === FLOORS.floor ? 2 : 1).map((each) => [each, entry]);
    const data = {
      _: 'none',
      _validUntil: new Date(Date.now() + 3_600_000).toISOString().replace(/\.\d+Z/, 'Z'),
      ...Object.fromEntries([...own, ...others.map((each) => [each, '45 30 600 Sleep Job,DaemonSet '])]),
    };
    const map = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { namespace: 'linger', name }, data };
    await cluster.create(map);
    cleanUp.push(() => cluster.delete(map));
    await create(binding.kind, 'v1', name, {
      spec: {
        ...binding.spec,
        paramRef: { name, namespace: 'linger', parameterNotFoundAction: 'Allow' },
        matchResources: { namespaceSelector: { matchLabels: { [FLOOR_LABEL]: String(lines) } } },
      },
    });
  }
  const kept = { key: WITHOUT_LINGER, operator: 'DoesNotExist' };
  const path = '/webhooks/0/namespaceSelector/matchExpressions/-';
  const patch = JSON.stringify([{ op: 'add', path, value: kept }]);
  await cluster.mustKubectl([
    'patch',
    'mutatingwebhookconfiguration',
    'linger',
    '--type=json',
    '--patch',
    patch,
  ]);
}

const FLOOR_MANIFEST = join(import.meta.dirname, '..', '..', 'deploy', 'floor', 'floor.yaml');
const floorName = (lines: number) => `bench-floor-${lines}`;

function labelsOf(kind: Kind): Readonly<Record<string, string>> {
  if (kind === 'Linger') return {};
  if (kind === 'floor and Linger') return { [FLOOR_LABEL]: String(FLOORS.floor) };
  if (Object.hasOwn(FLOORS, kind))
    return { [FLOOR_LABEL]: String(FLOORS[kind as keyof typeof FLOORS]), [WITHOUT_LINGER]: 'yes' };
  return { 'linger.dev/inject': 'false' };
}

/** Sum and count of an admission histogram of the API server, by the name of what was called. */
async function admissionTimes(): Promise<ReadonlyMap<string, readonly [sum: number, count: number]>> {
  const text = await cluster.api.call<string>('GET', '/metrics');
  const found = new Map<string, [number, number]>();
  const names: Readonly<Record<string, Kind>> = {
    'pods.linger.dev': 'Linger',
    'bench.linger.dev': 'controller-runtime',
    'bench-sleep': 'MutatingAdmissionPolicy',
    ...Object.fromEntries(Object.entries(FLOORS).map(([kind, lines]) => [floorName(lines), kind as Kind])),
  };
  const line =
    /^apiserver_(?:admission_webhook_admission_duration|mutating_admission_policy_check_duration)_seconds_(sum|count)\{(.*)\} (\S+)$/gm;
  for (const [, which, labels = '', value] of text.matchAll(line)) {
    const [, name = ''] = /(?:^|,)(?:name|policy_binding)="([^"]+)"/.exec(labels) ?? [];
    const kind = names[name];
    if (kind === undefined) continue;
    const [sum, count] = found.get(kind) ?? [0, 0];
    found.set(kind, which === 'sum' ? [sum + Number(value), count] : [sum, count + Number(value)]);
  }
  return found;
}

/** What the API server has computed so far, milliseconds: does not count what else the machine does. Ticks of 10 ms. */
function processorTime(): number {
  const { pid } = readRecord(statePaths(clusterSettings().stateDir).run, 'kube-apiserver') ?? {};
  const [, user = '', system = ''] =
    /\) (?:\S+ ){11}(\d+) (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? [];
  return 10 * (Number(user) + Number(system));
}

/** By kind, of one creation: each in turn for a block of creations, several times. */
async function processorTimes(): Promise<ReadonlyMap<Kind, number>> {
  const sums = new Map<Kind, number>();
  const blocks = Math.max(1, Math.round(rounds / BLOCK));
  for (let block = 0; block < blocks; block += 1)
    for (const [kind, namespace] of namespaces) {
      const before = processorTime();
      for (let index = 0; index < BLOCK; index += 1) await created(namespace);
      sums.set(kind, (sums.get(kind) ?? 0) + processorTime() - before);
    }
  return new Map([...sums].map(([kind, sum]) => [kind, round(sum / (blocks * BLOCK), 2)]));
}

const BLOCK = 50;

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) throw new Error('bench:api needs the cluster of npm run cluster:up');
  const policies = policyFile(clusterPolicy('base', { mode: 'Enforce', ...fixedWait('30s') }));
  linger = await Installation.create(cluster, { policies });
  for (const kind of KINDS) namespaces.set(kind, await cluster.namespace('bench-api', labelsOf(kind)));
  await startControllerRuntime(namespaces.get('controller-runtime') ?? '');
  await startPolicy(namespaces.get('MutatingAdmissionPolicy') ?? '');
  await startFloors();
  for (const [kind, namespace] of namespaces)
    await waitUntil(`${kind} to mutate, or not`, async () => {
      const { spec, metadata } = await created(namespace);
      const isStamp = metadata.annotations?.[ANNOTATION.plan]?.startsWith(FLOOR.stamp) === true;
      const isBare = spec.containers[0]?.lifecycle === undefined;
      return isBare === (kind === 'nothing') && isStamp === Object.hasOwn(FLOORS, kind);
    });
}, 300_000);

afterAll(async () => {
  for (const each of cleanUp.toReversed()) await each();
  await linger?.remove();
  await cluster?.close();
}, 120_000);

it('the creation of a pod', { timeout: 900_000 }, async () => {
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
  const processor = await processorTimes();
  const results = KINDS.map((kind) => {
    const sorted = (times.get(kind) ?? []).toSorted((a, b) => a - b);
    const at = (share: number) => round(sorted[Math.ceil(share * sorted.length) - 1] ?? 0, 2);
    const [[sum, count], [earlier, fewer]] = [after.get(kind) ?? [0, 0], before.get(kind) ?? [0, 0]];
    const apiServerMs = count > fewer ? round((1_000 * (sum - earlier)) / (count - fewer), 2) : null;
    const processorMs = processor.get(kind) ?? null;
    return {
      kind,
      p50Ms: round(median(sorted), 2),
      p90Ms: at(0.9),
      p99Ms: at(0.99),
      apiServerMs,
      processorMs,
    };
  });
  for (const { kind, apiServerMs } of results)
    expect(apiServerMs === null).toBe(kind === 'nothing' || kind === 'floor and Linger');
  // A machine that does something else as well is slower, and says so.
  const load = round(loadavg()[0] ?? 0, 1);
  const setting = { machine: describeMachine(), load, kubernetes: kubernetesVersion, rounds };
  writeFileSync(out, `${JSON.stringify({ ...setting, results }, undefined, 2)}\n`);
  const rows = results.map(({ kind, p50Ms, p90Ms, p99Ms, apiServerMs, processorMs }) => [
    ...[kind, `${p50Ms} ms`, `${p90Ms} ms`, `${p99Ms} ms`],
    apiServerMs === null ? '–' : `${apiServerMs} ms`,
    `${processorMs} ms`,
  ]);
  const titles = ['mutated by', 'p50', 'p90', 'p99', 'in admission, by the API server', 'its processor time'];
  console.log(table(titles, rows));
});
