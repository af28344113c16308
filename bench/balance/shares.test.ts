import { readFileSync, writeFileSync } from 'node:fs';
import { loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { issueAuthority, issueServingCertificate } from '../../src/certs/index.ts';
import { LINGER_IMAGE, lingerImageArchive } from '../../test/cluster-suite/support/linger-image.ts';
import { type Json, type PodObject, pod } from '../../test/cluster-suite/support/manifests.ts';
import { planOf } from '../../test/cluster-suite/support/outcome.ts';
import { table } from '../../test/scenarios/table.ts';
import { ownConnection } from '../../test/testbed/api.ts';
import { kubernetesVersion } from '../../test/testbed/binaries.ts';
import {
  ApiClient,
  type Cluster,
  type KubernetesObject,
  type NewObject,
  openCluster,
  waitUntil,
} from '../../test/testbed/cluster.ts';
import { imageArchive } from '../../test/testbed/image.ts';
import type { BalanceSettings } from '../balance.ts';
import { describeMachine } from '../machine.ts';
import { settingsOnCluster } from '../on-cluster.ts';
import { median, round } from '../statistics.ts';

/*
 * npm run bench:balance. Each setting has three replicas behind a ClusterIP and a webhook configuration for a namespace of its
 * own. All are installed, restarted and measured at the same time, so that what else the machine does befalls all alike.
 */

const { seconds, rate, burst, out, program, versions } = settingsOnCluster<BalanceSettings>();

const REPLICAS = 3;
const GO_IMAGE = 'linger.test/controller-runtime:1';
const ADMIN_PORT = 8080;
const FOLDER = '/certs';
const MINUTE_MS = 60_000;

interface Setting {
  /** Its name in the table. */
  readonly name: string;
  readonly container: Json;
  /** The sample that counts a replica's answered reviews begins so. */
  readonly counts: string;
}

function linger(probability: string): Setting {
  const args = [
    ...['--host=::', '--cluster=off', `--certs=${FOLDER}`],
    `--connection-close-probability=${probability}`,
  ];
  return {
    name: `Linger, closing probability ${probability}`,
    container: { image: LINGER_IMAGE, args },
    counts: 'linger_http_responses_total{code="200"}',
  };
}

function goWebhook(name: string, godebug?: string): Setting {
  const args = ['--host=', '--port=8443', `--certs=${FOLDER}`, `--metrics-port=${ADMIN_PORT}`];
  const env = godebug === undefined ? [] : [{ name: 'GODEBUG', value: godebug }];
  return { name, container: { image: GO_IMAGE, args, env }, counts: 'bench_reviews_total{' };
}

const SETTINGS: readonly Setting[] = [
  ...['0', '0.001', '0.01'].map(linger),
  goWebhook('Go, as controller-runtime sets it up (HTTP/2)'),
  goWebhook('Go, `GODEBUG=http2server=0`', 'http2server=0'),
];

/** What a setting is in the cluster. */
interface Installed extends Setting {
  /** Name of its Deployment and its Service, and part of the name of its webhook configuration. */
  readonly id: string;
  /** Where pods are created for it. */
  readonly loaded: string;
  /** Milliseconds that each creation of a pod took; emptied when the measurement begins. */
  readonly times: number[];
}

let cluster: Cluster;
/** The load's client, which has connections of its own. */
let api: ApiClient;
let namespace = '';
const installed: Installed[] = [];
const configurations: { readonly apiVersion: string; readonly kind: string; metadata: { name: string } }[] =
  [];

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) throw new Error('bench:balance needs the cluster of npm run cluster:up');
  api = new ApiClient(ownConnection(cluster.kubeconfig));
  const files = [{ path: '/bin/webhook', mode: 0o755, content: readFileSync(program) }];
  const image = { reference: GO_IMAGE, files, entrypoint: ['/bin/webhook'], user: '65532:65532' };
  await cluster.importImages(await lingerImageArchive());
  await cluster.importImages(imageArchive([image]));
  namespace = await cluster.namespace('balance', { 'linger.dev/inject': 'false' });
  for (const [index, setting] of SETTINGS.entries())
    installed.push(await install(setting, `webhook-${index}`));
  for (const { id } of installed) await rolledOut(id);
  for (const each of installed)
    await waitUntil(`${each.id} to mutate`, async () => planOf(await created(each)) !== undefined);
}, 400_000);

afterAll(async () => {
  for (const each of configurations) await cluster.delete(each);
  api?.close();
  await cluster?.close();
}, 120_000);

async function install(setting: Setting, id: string): Promise<Installed> {
  const loaded = await cluster.namespace('balance-load');
  const now = new Date();
  const authority = await issueAuthority(now);
  const { cert, key } = await issueServingCertificate(authority, [`${id}.${namespace}.svc`], now);
  const metadata = { namespace, name: id };
  const matchLabels = { app: id };
  const probe = { httpGet: { path: '/readyz', port: ADMIN_PORT }, periodSeconds: 1 };
  const container = {
    name: 'webhook',
    imagePullPolicy: 'Never',
    readinessProbe: probe,
    ports: [{ containerPort: 8443 }],
    volumeMounts: [{ name: 'certs', mountPath: FOLDER }],
    ...setting.container,
  };
  const template = {
    metadata: { labels: matchLabels },
    spec: {
      containers: [container],
      enableServiceLinks: false,
      automountServiceAccountToken: false,
      volumes: [{ name: 'certs', secret: { secretName: id } }],
    },
  };
  const strategy = { rollingUpdate: { maxSurge: 1, maxUnavailable: 0 } };
  const spec = { replicas: REPLICAS, selector: { matchLabels }, strategy, template };
  const configuration = {
    apiVersion: 'admissionregistration.k8s.io/v1',
    kind: 'MutatingWebhookConfiguration',
    metadata: { name: `bench-balance-${id}` },
    webhooks: [
      {
        name: nameOf(id),
        admissionReviewVersions: ['v1'],
        sideEffects: 'None',
        failurePolicy: 'Ignore',
        timeoutSeconds: 10,
        rules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }],
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': loaded } },
        clientConfig: {
          service: { namespace, name: id, path: '/mutate', port: 443 },
          caBundle: Buffer.from(authority.certificate).toString('base64'),
        },
      },
    ],
  };
  configurations.push(configuration);
  const service = { selector: matchLabels, ports: [{ port: 443, targetPort: 8443 }] };
  const objects: readonly Json[] = [
    { apiVersion: 'v1', kind: 'Secret', metadata, stringData: { 'tls.crt': cert, 'tls.key': key } },
    { apiVersion: 'v1', kind: 'Service', metadata, spec: service },
    { apiVersion: 'apps/v1', kind: 'Deployment', metadata, spec },
    configuration,
  ];
  for (const object of objects) await cluster.create(object as unknown as NewObject);
  return { ...setting, id, loaded, times: [] };
}

const nameOf = (id: string) => `${id}.balance.linger.dev`;

const inNamespace = (...args: string[]) =>
  cluster.mustKubectl(['--namespace', namespace, ...args], { timeoutMs: 320_000 });

const rolledOut = (id: string) => inNamespace('rollout', 'status', `deployment/${id}`, '--timeout=300s');

/** Creates a pod as a dry run: all of admission, and nothing in etcd. */
const created = ({ loaded }: Installed) =>
  api.call<PodObject>('POST', `/api/v1/namespaces/${loaded}/pods?dryRun=All`, {
    body: pod(loaded, 'measured', {}, { labels: { app: 'measured' } }),
  });

/** Creates pods as controllers do, several at once. A burst that is due before the last one has been answered is left out. */
async function load(of: Installed, delayMs: number, signal: AbortSignal): Promise<void> {
  const everyMs = (1_000 * burst) / rate;
  let due = performance.now() + delayMs;
  while (!signal.aborted) {
    await sleep(Math.max(0, due - performance.now()));
    const now = performance.now();
    while (due <= now) due += everyMs;
    const one = async () => {
      const begun = performance.now();
      await created(of);
      of.times.push(performance.now() - begun);
    };
    await Promise.all(Array.from({ length: burst }, one));
  }
}

type Replica = KubernetesObject & { readonly status: { readonly podIP: string } };

/** What a replica has done since its start. */
interface Done {
  readonly reviews: number;
  readonly cpuSeconds: number;
  /** `HTTP/1.1`, `HTTP/2.0`; of Linger, which knows no other, empty. */
  readonly protocols: readonly string[];
}

/** What each replica has done since its start, by the name of the replica. */
async function replicasOf({ id, counts }: Installed): Promise<ReadonlyMap<string, Done>> {
  const found = await cluster.list<Replica>({ apiVersion: 'v1', kind: 'Pod', namespace }, `app=${id}`);
  const read = found.map(async ({ metadata: { name }, status: { podIP } }) => {
    const lines = (await (await fetch(`http://${podIP}:${ADMIN_PORT}/metrics`)).text()).split('\n');
    const own = (beginning: string) => lines.filter((line) => line.startsWith(beginning));
    const sum = (of: readonly string[]) =>
      of.reduce((total, line) => total + Number(line.slice(line.lastIndexOf(' '))), 0);
    const protocols = own(counts).flatMap((line) => /proto="([^"]+)"/.exec(line)?.[1] ?? []);
    const cpuSeconds = sum(own('process_cpu_seconds_total '));
    return [name, { reviews: sum(own(counts)), cpuSeconds, protocols }] as const;
  });
  return new Map(await Promise.all(read));
}

/** What each replica has done between two readings. @throws when the replicas are not the same */
function since(before: ReadonlyMap<string, Done>, after: ReadonlyMap<string, Done>): readonly Done[] {
  expect([...after.keys()].toSorted()).toEqual([...before.keys()].toSorted());
  return [...after].map(([name, { reviews, cpuSeconds, protocols }]) => {
    const earlier = before.get(name)!;
    return { reviews: reviews - earlier.reviews, cpuSeconds: cpuSeconds - earlier.cpuSeconds, protocols };
  });
}

/** The share of reviews that each replica answered, from 0 to 1, the largest first. */
function sharesOf(done: readonly Done[]): readonly number[] {
  const total = done.reduce((sum, { reviews }) => sum + reviews, 0);
  return done.map(({ reviews }) => round(reviews / total, 3)).toSorted((a, b) => b - a);
}

/** Sum in seconds and count of the API server's own histogram, by the name of the webhook. */
async function admissionTimes(): Promise<ReadonlyMap<string, readonly [sum: number, count: number]>> {
  const text = await cluster.api.call<string>('GET', '/metrics');
  const line = /^apiserver_admission_webhook_admission_duration_seconds_(sum|count)\{(.*)\} (\S+)$/gm;
  const found = new Map<string, readonly [number, number]>();
  for (const [, which, labels = '', value] of text.matchAll(line)) {
    const [, name = ''] = /(?:^|,)name="([^"]+)"/.exec(labels) ?? [];
    const [sum, count] = found.get(name) ?? [0, 0];
    found.set(name, which === 'sum' ? [sum + Number(value), count] : [sum, count + Number(value)]);
  }
  return found;
}

it('the share of each replica after a rolling restart', { timeout: (seconds + 600) * 1_000 }, async () => {
  const ending = new AbortController();
  const gap = (1_000 * burst) / rate / SETTINGS.length;
  const loads = installed.map((each, index) => load(each, index * gap, ending.signal));
  // Reviews go on meanwhile: connections move to the replicas that are there.
  await sleep(5_000);
  await inNamespace('rollout', 'restart', 'deployment');
  for (const { id } of installed) await rolledOut(id);
  for (const { id } of installed)
    await waitUntil(`the old replicas of ${id} to be gone`, async () => {
      const pods = await cluster.list({ apiVersion: 'v1', kind: 'Pod', namespace }, `app=${id}`);
      return pods.length === REPLICAS;
    });
  const read = () => Promise.all(installed.map(replicasOf));
  const loadBefore = round(loadavg()[0] ?? 0, 1);
  for (const { times } of installed) times.splice(0);
  const apiBefore = await admissionTimes();
  const counts = [await read()];
  const end = performance.now() + seconds * 1_000;
  while (performance.now() < end) {
    await sleep(Math.min(MINUTE_MS, end - performance.now()));
    counts.push(await read());
  }
  const apiAfter = await admissionTimes();
  ending.abort();
  await Promise.all(loads);
  const results = installed.map(({ name, id, times }, index) => {
    const at = (minute: number) => counts.at(minute)![index]!;
    const done = since(at(0), at(-1));
    const reviews = done.reduce((sum, each) => sum + each.reviews, 0);
    const cpuSeconds = done.reduce((sum, each) => sum + each.cpuSeconds, 0);
    const minutes = counts.slice(1).map((_, minute) => sharesOf(since(at(minute), at(minute + 1)))[0]!);
    const sorted = times.toSorted((a, b) => a - b);
    const percentile = (share: number) => round(sorted[Math.ceil(share * sorted.length) - 1]!, 1);
    const [[sum, count], [earlier, fewer]] = [apiAfter, apiBefore].map(
      (each) => each.get(nameOf(id)) ?? [0, 0],
    ) as [readonly [number, number], readonly [number, number]];
    return {
      name,
      protocols: [...new Set(done.flatMap(({ protocols }) => protocols))],
      reviews,
      shares: sharesOf(done),
      largestByMinute: minutes,
      p50Ms: round(median(sorted), 1),
      p90Ms: percentile(0.9),
      p99Ms: percentile(0.99),
      apiServerMs: round((1_000 * (sum - earlier)) / (count - fewer), 2),
      cpuMs: cpuSeconds === 0 ? null : round((1_000 * cpuSeconds) / reviews, 2),
    };
  });
  const setting = {
    machine: describeMachine(),
    kubernetes: kubernetesVersion,
    ...versions,
    load: [loadBefore, round(loadavg()[0] ?? 0, 1)],
    seconds,
    rate,
    burst,
    replicas: REPLICAS,
  };
  writeFileSync(out, `${JSON.stringify({ ...setting, results }, undefined, 2)}\n`);
  const percent = (share: number) => `${(100 * share).toFixed(0)} %`;
  const rows = results.map(({ name, protocols, reviews, shares, largestByMinute, ...costs }) => [
    ...[name, protocols.join(), reviews, shares.map(percent).join(', ')],
    ...[largestByMinute.map(percent).join(', '), ...Object.values(costs).map((each) => each ?? '–')],
  ]);
  const costs = ['p50', 'p90', 'p99', 'in admission (ms)', 'CPU of the replicas (ms a review)'];
  console.log(table(['setting', 'protocol', 'reviews', 'shares', 'largest by minute', ...costs], rows));
  // Whatever the load was, each webhook was called, and only over HTTP/1.1.
  for (const { reviews } of results) expect(reviews).toBeGreaterThan(0);
});
