import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ensureCertificates } from '../../src/certs/index.ts';
import { ROOT } from '../cli/linger.ts';
import { Admissions } from '../cluster-suite/support/admissions.ts';
import { CHART, documentation, HELM_PAGES, helmOf } from '../cluster-suite/support/helm.ts';
import { InstalledReplicas, processesOf } from '../cluster-suite/support/installed-replicas.ts';
import { lingerImageArchive } from '../cluster-suite/support/linger-image.ts';
import { type PodObject, pod } from '../cluster-suite/support/manifests.ts';
import { hookOf } from '../cluster-suite/support/outcome.ts';
import { blocksOf } from '../docs/markdown.ts';
import { ensureBinaries, ensureHelm } from '../testbed/binaries.ts';
import { type Cluster, type NewObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { run } from '../testbed/command.ts';
import { clusterSettings } from '../testbed/settings.ts';

import { LONG } from './form.ts';

/** Neither the release nor its namespace is called linger. */
const RELEASE = 'quiet';
const NAMESPACE = 'tools';
const IN_NAMESPACE = ['--namespace', NAMESPACE];
/** The name of a later release, and of its namespace. */
const OTHER = 'elsewhere';
/** More than the required 50 pods a second. */
const EVERY_MS = 13;
/** Deployments report readiness by their replicas' probes, every second or two. */
const READY_MS = 20_000;
const IDLE_SECONDS = 30;

// What takes minutes; every run of the cluster suite has test/cluster-suite/chart.test.ts.
describe.runIf(LONG)('the chart', async () => {
  if (!LONG) return;
  const cluster: Cluster = await openCluster();
  const replicas = new InstalledReplicas(cluster, NAMESPACE);
  const scratch = mkdtempSync(join(tmpdir(), 'linger-helm-'));
  let namespace = '';
  let before: ReadonlySet<string> = new Set();

  const { helm, must, remove } = helmOf(cluster);
  const kubectl = (...args: string[]) => cluster.mustKubectl(args, { timeoutMs: 120_000 });

  beforeAll(async () => {
    if (!cluster.own) return;
    await cluster.importImages(await lingerImageArchive());
    namespace = await cluster.namespace('helm');
    before = await inventory();
  }, 900_000);

  afterAll(async () => {
    if (cluster.own) await remove(RELEASE, NAMESPACE);
    await cluster.close();
    rmSync(scratch, { recursive: true });
  }, 180_000);

  const onOurOwn = it.runIf(cluster.own);

  const installed = async (chart: string) => {
    const begun = performance.now();
    await must('install', RELEASE, chart, ...IN_NAMESPACE, '--create-namespace', '--set', 'mode=Enforce');
    await rolledOut();
    return performance.now() - begun;
  };
  const rolledOut = (where = IN_NAMESPACE) =>
    kubectl(...where, 'rollout', 'status', 'deployment/linger', '--timeout=200s');
  const isProtected = ({ spec }: PodObject) => spec.containers.map(hookOf).join() !== '-';
  const protectedPod = async (name: string) =>
    isProtected(await cluster.create<PodObject>(pod(namespace, name, {}), { dryRun: true }));

  /** All objects, except those that come and go by themselves. */
  async function inventory(): Promise<ReadonlySet<string>> {
    const kinds = (await kubectl('api-resources', '--verbs=list', '--output=name')).trim().split('\n');
    const kept = kinds.filter((kind) => !/^(events|componentstatuses)\b/.test(kind));
    const name = '{range .items[*]}{.kind} {.metadata.namespace}/{.metadata.name}{"\\n"}{end}';
    const text = await kubectl('get', kept.join(','), '--all-namespaces', `--output=jsonpath=${name}`);
    return new Set(text.trim().split('\n'));
  }

  /** Admission requests that the API server let pass without Linger's answer. */
  async function passedUnasked(): Promise<number> {
    const lines = (await kubectl('get', '--raw', '/metrics')).split('\n');
    return lines
      .filter((line) => /^apiserver_admission_webhook_fail_open_count\{.*pods\.linger\.dev/.test(line))
      .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0);
  }

  onOurOwn(
    'helm install, under names of one’s own: the next pod is protected',
    { timeout: 240_000 },
    async () => {
      const readyMs = await installed(CHART);
      await waitUntil('a pod to be protected', () => protectedPod('first'), { timeoutMs: 30_000 });
      console.log(`both replicas ready after ${(readyMs / 1000).toFixed(1)} s`);
      expect(readyMs).toBeLessThan(READY_MS);
      const pods = await cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace: NAMESPACE });
      expect(pods).toHaveLength(2);
      // It excludes itself, although its namespace has no label of ours.
      for (const { metadata } of pods) expect(metadata.annotations?.['linger.dev/plan']).toBeUndefined();
    },
  );

  onOurOwn('a replica at rest takes little', { timeout: 180_000 }, async () => {
    await sleep(IDLE_SECONDS * 1000);
    const cpu = async () => [...(await replicas.sums('process_cpu_seconds_total')).values()];
    const begun = await cpu();
    await sleep(IDLE_SECONDS * 1000);
    const milliCores = (await cpu()).map((now, index) => ((now - (begun[index] ?? 0)) / IDLE_SECONDS) * 1000);
    const megabytes = (await replicas.each('process_resident_memory_bytes')).map((bytes) => bytes / 1e6);
    const seconds = [...(await replicas.logs()).values()].map((text) => {
      const line = text.split('\n').find((each) => each.includes('"initial sync done"')) ?? '{}';
      return (JSON.parse(line) as { seconds?: number }).seconds;
    });
    console.log(
      `at rest: ${milliCores.map((value) => value.toFixed(1)).join(' and ')} thousandths of a core, ` +
        `${megabytes.map((value) => value.toFixed(0)).join(' and ')} MB; the cluster read in ${seconds.join(' and ')} s`,
    );
    for (const value of megabytes) expect(value).toBeLessThan(150);
    // Scrapes and probes included; a busy machine makes the same work take longer.
    for (const value of milliCores) expect(value).toBeLessThan(30);
  });

  onOurOwn('a replica is ready soon after its process has begun', { timeout: 120_000 }, async () => {
    const [replica] = await cluster.list<PodObject & { status: { podIP: string } }>(
      { apiVersion: 'v1', kind: 'Pod', namespace: NAMESPACE },
      'app.kubernetes.io/name=linger',
    );
    const { metadata, status } = replica!;
    const uid = metadata.uid ?? '-';
    // Restarted by the kubelet, alone: two that start at once share the processors.
    for (const pid of processesOf(uid)) process.kill(pid, 'SIGKILL');
    const isReady = () =>
      fetch(`http://${status.podIP}:8080/readyz`).then(
        ({ ok }) => ok,
        () => false,
      );
    await waitUntil('it to be ready again', isReady, { timeoutMs: 60_000, intervalMs: 10 });
    const seconds = Date.now() / 1000 - Math.min(...processesOf(uid).map(begunAt));
    console.log(`ready ${seconds.toFixed(2)} s after the process began`);
    // The goal is 1.5 s; these two processors have missed it by 0.3 s (docs/benchmarks.md).
    expect(seconds).toBeLessThan(2.5);
  });

  onOurOwn('the heap takes half of the memory limit, by the cgroup alone', { timeout: 60_000 }, async () => {
    const limit = 'require("node:v8").getHeapStatistics().heap_size_limit';
    const node = ['exec', 'deployment/linger', '--', '/bin/node', '--print', limit];
    const mebibytes = Number(await kubectl(...IN_NAMESPACE, ...node)) / 2 ** 20;
    console.log(`the heap may take ${mebibytes.toFixed(0)} MiB`);
    // About half of 512 MiB.
    expect(mebibytes).toBeGreaterThan(240);
    expect(mebibytes).toBeLessThan(300);
  });

  onOurOwn('nothing that it asked for was forbidden', () => {
    expect(replicas.refusals()).toEqual([]);
  });

  onOurOwn(
    'helm uninstall leaves what docs/install.md says, and nothing else',
    { timeout: 180_000 },
    async () => {
      await must('uninstall', RELEASE, ...IN_NAMESPACE, '--wait');
      expect(await protectedPod('afterwards')).toBe(false);
      let left: readonly string[] = [];
      const gone = async () => {
        left = [...(await inventory())].filter((name) => !before.has(name));
        return left.every((name) => STAYS.test(name));
      };
      // What remains after that is stated below.
      await waitUntil('the rest to be gone', gone, { timeoutMs: 90_000, intervalMs: 3_000 }).catch(() => {});
      console.log(`left by helm uninstall: ${left.toSorted().join(', ')}`);
      expect(left.filter((name) => !STAYS.test(name))).toEqual([]);
      expect(left).toEqual(
        expect.arrayContaining([
          'Secret tools/linger-certificates',
          'Lease tools/linger',
          `${CRD}terminationpolicies.linger.dev`,
        ]),
      );
      const now = await inventory();
      expect([...before].filter((name) => !now.has(name))).toEqual([]);
    },
  );

  onOurOwn(
    'helm upgrade from the chart before its last change, with 50 pods created a second: none without a hook',
    { timeout: 400_000 },
    async () => {
      // Over the CRDs of the previous release, which has the same name and namespace.
      await installed(chartBefore(scratch));
      await waitUntil('a pod to be protected', () => protectedPod('second'), { timeoutMs: 30_000 });
      const bundle = await kubectl('get', 'mutatingwebhookconfiguration', 'linger', '--output', BUNDLE);
      expect(bundle).not.toBe('');
      const unasked = await passedUnasked();
      const admissions = new Admissions(cluster, namespace, EVERY_MS);
      await sleep(2_000);
      await must(...documented('upgrade', RELEASE, NAMESPACE), '--set', 'flags={--log-level=warn}');
      await rolledOut();
      // The last old replicas are still draining.
      await sleep(20_000);
      const { total, perSecond, missed, problems } = await admissions.end();
      const passed = (await passedUnasked()) - unasked;
      console.log(
        `${total} pods, ${perSecond} a second, around an upgrade: ${missed} without a hook, ` +
          `${problems.length} refused, ${passed} let pass without an answer`,
      );
      expect([missed, problems, passed]).toEqual([0, [], 0]);
      expect(perSecond).toBeGreaterThanOrEqual(50);
      expect(await kubectl('get', 'mutatingwebhookconfiguration', 'linger', '--output', BUNDLE)).toBe(bundle);
    },
  );

  onOurOwn(
    'one of two replicas is killed while pods are created: seconds at most without a hook',
    { timeout: 120_000 },
    async () => {
      const [victim] = await cluster.list<PodObject>(
        { apiVersion: 'v1', kind: 'Pod', namespace: NAMESPACE },
        'app.kubernetes.io/name=linger',
      );
      const admissions = new Admissions(cluster, namespace, EVERY_MS);
      await sleep(2_000);
      const pids = processesOf(victim?.metadata.uid ?? '-');
      for (const pid of pids) process.kill(pid, 'SIGKILL');
      await sleep(15_000);
      const { total, perSecond, missed, missedForMs, problems } = await admissions.end();
      console.log(
        `${total} pods, ${perSecond} a second, around a SIGKILL: ${missed} without a hook within ${missedForMs} ms`,
      );
      expect([pids.length, problems]).toEqual([1, []]);
      // Until its address is withdrawn: the API server goes on without an answer (`failurePolicy: Ignore`).
      expect(missedForMs).toBeLessThan(5_000);
      await rolledOut();
    },
  );

  onOurOwn(
    'to a certificate of one’s own and back, as docs/reference/operations.md says: no pod misses its hook on the way there',
    { timeout: 400_000 },
    async () => {
      const folder = join(scratch, 'own');
      const names = ['linger', 'linger-reports'].map((name) => `${name}.${NAMESPACE}.svc`);
      const { cert, key, caBundle } = await ensureCertificates({ directory: folder, names }, new Date());
      const base64 = (text: string) => Buffer.from(text).toString('base64');
      await cluster.create({
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name: 'my-tls', namespace: NAMESPACE },
        type: 'kubernetes.io/tls',
        data: { 'tls.crt': base64(cert), 'tls.key': base64(key) },
      } as NewObject);
      const upgrade = ['upgrade', RELEASE, CHART, ...IN_NAMESPACE, '--reset-then-reuse-values'];
      const own = ['--set', 'certificates.existingSecret=my-tls'];
      const generation = () =>
        kubectl(...IN_NAMESPACE, 'get', 'deployment', 'linger', '--output=jsonpath={.metadata.generation}');
      const before = await generation();
      const refused = await helm([...upgrade, ...own, '--set', `certificates.caBundle=${base64(caBundle)}`]);
      expect([refused.code, refused.stderr]).toEqual([
        1,
        expect.stringContaining('must stay in it during the change'),
      ]);
      expect(await generation()).toBe(before);

      const unasked = await passedUnasked();
      const admissions = new Admissions(cluster, namespace, EVERY_MS);
      await sleep(2_000);
      writeFileSync(join(folder, 'ca.crt'), caBundle);
      await shell('helm upgrade linger deploy/chart .*existingSecret=my-tls', folder);
      // The last old replicas are still draining.
      await sleep(20_000);
      const { total, perSecond, missed, problems } = await admissions.end();
      const passed = (await passedUnasked()) - unasked;
      console.log(
        `${total} pods, ${perSecond} a second, around a change of certificates: ${missed} without a hook, ` +
          `${problems.length} refused, ${passed} let pass without an answer`,
      );
      expect([missed, problems, passed]).toEqual([0, [], 0]);
      const bundle = () => kubectl('get', 'mutatingwebhookconfiguration', 'linger', '--output', BUNDLE);
      expect(await bundle()).toBe(base64(caBundle));

      await must(...documented('upgrade', RELEASE, NAMESPACE, 'existingSecret= '));
      await rolledOut();
      await waitUntil('a pod to be protected', () => protectedPod('back'), { timeoutMs: 60_000 });
      expect(await bundle()).not.toBe(base64(caBundle));
    },
  );

  /** Runs a documented block that has this text, as it stands there, for this release. */
  async function shell(text: string, folder: string): Promise<void> {
    const block = HELM_PAGES.flatMap(blocksOf).find((each) => new RegExp(text).test(each.text));
    const { kube } = await ensureBinaries(clusterSettings().cacheDir, () => {});
    const helmProgram = await ensureHelm(clusterSettings().cacheDir, () => {});
    writeFileSync(join(folder, 'kubectl'), `#!/bin/sh\nexec ${kube} kubectl "$@"\n`, { mode: 0o755 });
    const PATH = [folder, dirname(helmProgram), process.env.PATH].join(delimiter);
    const commands = (block?.text ?? 'exit 1')
      .replaceAll('linger deploy/chart', `${RELEASE} ${CHART}`)
      .replaceAll('--namespace linger', `--namespace ${NAMESPACE}`);
    const options = { cwd: folder, env: { ...process.env, KUBECONFIG: cluster.kubeconfig, PATH } };
    const { code, stdout, stderr } = await run(['bash', '-eo', 'pipefail', '-c', commands], options);
    if (code !== 0) throw new Error(`${commands}: ${stdout}${stderr}`);
  }

  onOurOwn(
    'a release of another name and namespace takes over the CRDs that were kept, as docs/install.md says',
    { timeout: 240_000 },
    async () => {
      const where = ['--namespace', OTHER];
      const install = ['install', OTHER, CHART, ...where, '--create-namespace', '--set', 'mode=Enforce'];
      await helm(['uninstall', RELEASE, ...IN_NAMESPACE, '--ignore-not-found', '--wait']);
      const { code, stderr } = await helm(install);
      expect([code, stderr]).toEqual([1, expect.stringContaining('meta.helm.sh/release-name')]);
      const [line = ''] = /^kubectl annotate crd .*$/m.exec(documentation()) ?? [];
      await kubectl(
        ...line.replace('=RELEASE', `=${OTHER}`).replace('=NAMESPACE', `=${OTHER}`).split(' ').slice(1),
      );
      await must(...install);
      try {
        await rolledOut(where);
        await waitUntil('a pod to be protected', () => protectedPod('third'), { timeoutMs: 30_000 });
      } finally {
        await must('uninstall', OTHER, ...where, '--wait');
        await cluster.delete({ apiVersion: 'v1', kind: 'Namespace', metadata: { name: OTHER } });
      }
    },
  );
});

/** When a process started, in seconds since the epoch. Source: proc_pid_stat(5), starttime. */
function begunAt(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const ticks = Number(stat.slice(stat.lastIndexOf(')')).split(' ')[20]);
  const uptime = Number(readFileSync('/proc/uptime', 'utf8').split(' ')[0]);
  return Date.now() / 1000 - (uptime - ticks / TICKS_PER_SECOND);
}

const TICKS_PER_SECOND = 100;
const CRD = 'CustomResourceDefinition /';

/** What docs/install.md lists, and what Kubernetes itself adds to a namespace and for a CRD. */
const STAYS = new RegExp(
  [
    'CustomResourceDefinition /(discoveryconsumers|(cluster)?terminationpolicies)\\.linger\\.dev',
    'APIService /v1alpha1\\.linger\\.dev',
    '(Secret tools/linger-certificates|Lease tools/linger)',
    'ConfigMap tools/linger-(planned|history(-[2-8])?|consumers|shortfalls)',
    '(EndpointSlice|Endpoints) tools/linger-heartbeat',
    'Service tools/linger-hold|EndpointSlice tools/linger-hold-\\w+|Endpoints tools/linger-hold',
    '(Namespace /tools|ServiceAccount [\\w-]+/default|ConfigMap [\\w-]+/kube-root-ca\\.crt)',
  ]
    .map((each) => `^${each}$`)
    .join('|'),
);

/** @returns the folder of the chart as it was before the last commit that changed it */
function chartBefore(scratch: string): string {
  const git = (...args: string[]) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).trim();
  const last = git('rev-list', '-1', 'HEAD', '--', 'deploy/chart');
  const archive = join(scratch, 'chart.tar');
  git('archive', `--output=${archive}`, `${last}~1`, 'deploy/chart');
  execFileSync('tar', ['-xf', archive, '-C', scratch]);
  return join(scratch, 'deploy', 'chart');
}

/** A documented command, for this release. */
function documented(verb: string, release: string, namespace: string, text = ''): readonly string[] {
  const commands = documentation().match(/^helm .*$/gm) ?? [];
  const begin = `helm ${verb} linger deploy/chart `;
  const line = commands.find((each) => each.startsWith(begin) && each.includes(text)) ?? '';
  const words = line.split(' ').slice(4);
  return [verb, release, CHART, ...words.map((word) => (word === 'linger' ? namespace : word))];
}

const BUNDLE = 'jsonpath={.webhooks[0].clientConfig.caBundle}';
