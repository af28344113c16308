import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { proveReport } from '../../src/prove/index.ts';
import { emptyDirectory, shipped as linger } from '../cli/linger.ts';
import { lingerImageArchive } from '../cluster-suite/support/linger-image.ts';
import type { PodObject } from '../cluster-suite/support/manifests.ts';
import { hookOf } from '../cluster-suite/support/outcome.ts';
import { clusterPolicy, fixedWait, policyFile } from '../cluster-suite/support/policies.ts';
import { ProveStage } from '../cluster-suite/support/prove.ts';
import { openStage, type Stage } from '../cluster-suite/support/stage.ts';
import { argoRolloutsCrds } from '../testbed/binaries.ts';
import { type KubernetesObject, waitUntil } from '../testbed/cluster.ts';
import { startLoad } from '../testbed/load/load.ts';
import { untilEveryPodAnswers } from '../testbed/load/programmed.ts';
import { startRolloutsController } from '../testbed/rollouts-controller.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { applicationDeployment, applicationService } from '../testbed/workloads.ts';
import { type AtEnd, atEndOfFile } from '../webhook/connection.ts';
import { LONG } from './form.ts';

/* The controller of Argo Rollouts, as it is built from its module, makes and replaces the pods. */

const REPLICAS = 4;
const WAIT = 5;
/** Requests a second. */
const RATE = 50;
const ROLLOUT = { apiVersion: 'argoproj.io/v1alpha1', kind: 'Rollout' };

/** Half of the pods, a pause, all of them. */
const CANARY = {
  canary: { maxSurge: 1, maxUnavailable: 0, steps: [{ setWeight: 50 }, { pause: { duration: '3s' } }] },
};

type Rollout = KubernetesObject & {
  readonly status?: {
    readonly phase?: string;
    readonly currentPodHash?: string;
    readonly stableRS?: string;
  };
};

let stage: Stage;
let stop: (() => Promise<void>) | undefined;
let crds = '';
let policies = '';
const atEnd: AtEnd = atEndOfFile();

beforeAll(async () => {
  if (!LONG) return;
  const policy = policyFile(clusterPolicy('base', { mode: 'Enforce', ...fixedWait(`${WAIT}s`) }));
  policies = join(await emptyDirectory(atEnd), 'policies.yaml');
  await writeFile(policies, policy);
  stage = await openStage(() => policy);
  if (!stage.cluster.own) return;
  crds = await argoRolloutsCrds();
  await stage.cluster.mustKubectl(['apply', '--server-side', '--kustomize', crds]);
  const served = () =>
    stage.cluster.list(ROLLOUT).then(
      () => true,
      () => false,
    );
  await waitUntil('the API server to serve its kinds', served);
  stop = await startRolloutsController(clusterSettings());
}, 300_000);

afterAll(async () => {
  await stop?.();
  if (crds !== '') await stage.cluster.mustKubectl(['delete', '--kustomize', crds]);
  await stage?.close();
}, 120_000);

/** The same application, as each kind of author writes it. */
function objectsOf(namespace: string, how: string) {
  const application = { namespace, name: 'web', replicas: REPLICAS };
  const deployment = applicationDeployment(application);
  const { selector, template } = deployment.spec;
  const metadata = { namespace, name: 'web' };
  const service = applicationService(application);
  if (how === 'a workloadRef') {
    const workloadRef = { apiVersion: 'apps/v1', kind: 'Deployment', name: 'web' };
    const spec = { replicas: REPLICAS, workloadRef, strategy: CANARY };
    return [
      service,
      { ...deployment, spec: { ...deployment.spec, replicas: 0 } },
      { ...ROLLOUT, metadata, spec },
    ];
  }
  const spec = { replicas: REPLICAS, selector, template, strategy: CANARY };
  if (how === 'a template') return [service, { ...ROLLOUT, metadata, spec }];
  const canary = { ...CANARY.canary, stableService: 'web', canaryService: 'web-canary' };
  const second = { ...service, metadata: { namespace, name: 'web-canary' } };
  return [service, second, { ...ROLLOUT, metadata, spec: { ...spec, strategy: { canary } } }];
}

/** @returns its pods, once all are of its newest template and none of them is among those `before` */
async function healthy(namespace: string, before: ReadonlySet<string>): Promise<readonly PodObject[]> {
  const { cluster } = stage;
  const reference = { ...ROLLOUT, metadata: { namespace, name: 'web' } };
  const look = async () => {
    const { status } = (await cluster.get<Rollout>(reference)) ?? {};
    const all = await cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=web');
    const found = all.filter(({ metadata }) => metadata.deletionTimestamp === undefined);
    const isNew = found.length === REPLICAS && found.every(({ metadata }) => !before.has(metadata.uid));
    return isNew && status?.phase === 'Healthy' && status.stableRS === status.currentPodHash && found;
  };
  return waitUntil('the Rollout to be healthy', look, { timeoutMs: 120_000 });
}

describe.runIf(LONG)('pods of an Argo Rollout', () => {
  it.each(['a template', 'a workloadRef', 'a template, and Services for its two sides'])(
    'with %s wait, and lose nothing while they are replaced',
    { timeout: 240_000 },
    async (how) => {
      const { cluster } = stage;
      if (!cluster.own) return;
      const namespace = await cluster.namespace('argo');
      for (const object of objectsOf(namespace, how)) await cluster.create(object);
      const first = await healthy(namespace, new Set());
      expect(first.map(({ spec }) => spec.containers.map(hookOf))).toEqual(
        Array(REPLICAS).fill([`sleep ${WAIT}`]),
      );

      const { clusterIP: address } = (await cluster.get<{ spec: { clusterIP: string } }>(
        applicationService({ namespace, name: 'web' }),
      ))!.spec;
      await untilEveryPodAnswers(address, REPLICAS);
      const target = { kind: 'clusterIP', address, port: 80 } as const;
      const load = await startLoad({ cluster, namespace, target, podSelector: 'app=web' });
      await sleep(2_000);
      const [kind, plural] =
        how === 'a workloadRef' ? ['apps/v1', 'deployments'] : [ROLLOUT.apiVersion, 'rollouts'];
      const template = { metadata: { annotations: { restarted: 'yes' } } };
      await cluster.api.call('PATCH', `/apis/${kind}/namespaces/${namespace}/${plural}/web`, {
        body: { spec: { template } },
        contentType: 'application/merge-patch+json',
      });
      const old = new Set(first.map(({ metadata }) => metadata.uid));
      await healthy(namespace, old);
      const all = { apiVersion: 'v1', kind: 'Pod', namespace };
      await waitUntil('the old pods to be gone', async () =>
        (await cluster.list(all, 'app=web')).every(({ metadata }) => !old.has(metadata.uid)),
      );
      await sleep(2_000);
      const report = await load.stop();
      console.log(
        `${how}: ${report.lost} of ${report.total} lost, ${Object.keys(report.byPod).length} pods answered`,
      );
      expect(report.firstLosses).toEqual([]);
      expect(Object.keys(report.byPod)).toHaveLength(2 * REPLICAS);

      // The commands say of the Rollout what its pods got, and so did each decision.
      const decisions = await stage.linger.decisions(namespace);
      expect(new Set(decisions.map(({ outcome }) => outcome))).toEqual(new Set(['inject']));
      const place = ['--kubeconfig', cluster.kubeconfig, '--namespace', namespace, '--policies', policies];
      const explained = await linger(['explain', 'rollout/web', ...place, '-o', 'json']);
      const { plans } = JSON.parse(explained.stdout) as { plans: readonly object[] };
      expect(plans).toMatchObject([
        { kind: 'Rollout', outcome: 'inject', waitSeconds: WAIT, live: { pods: REPLICAS, withoutPlan: 0 } },
      ]);
      const audited = await linger(['audit', ...place, '-o', 'json']);
      const { findings } = JSON.parse(audited.stdout) as AuditReport;
      const found = findings.map(({ kind, reason }) => `${kind} ${reason}`);
      expect(found).toContain('Rollout Injected');
      // The Deployment of a workloadRef has no pods of its own.
      expect(found.filter((each) => !/^Rollout|^Deployment NoReplicas$/.test(each))).toEqual([]);
    },
  );

  it.each(['a template', 'a workloadRef'])(
    'with %s are proved, all of them, as those of a Deployment are',
    { timeout: 400_000 },
    async (how) => {
      const { cluster } = stage;
      if (!cluster.own) return;
      await cluster.importImages(await lingerImageArchive());
      const namespace = await cluster.namespace('argo-prove');
      for (const object of objectsOf(namespace, how)) await cluster.create(object);
      const before = await healthy(namespace, new Set());
      const { code, stdout, stderr } = await new ProveStage(cluster, namespace).prove([
        ...['rollout/web', '--rate', `${RATE}`, '--quiet', '5s', '-o', 'json'],
      ]);
      expect([code, stderr]).toEqual([0, expect.stringContaining('rollout restart')]);
      const report = proveReport.parse(JSON.parse(stdout));
      const deletions = report.pods.map(({ deletedAt }) => `deleted at ${deletedAt}`);
      console.log([how, report.verdict, ...report.notes, ...deletions].join('\n'));
      const names = (pods: readonly { readonly name: string }[]) => pods.map(({ name }) => name).toSorted();
      expect(names(report.pods)).toEqual(names(before.map(({ metadata }) => metadata)));
      expect(report.lost).toBe(0);
      // Its controller evicts them one after the other: while each waited, requests came.
      expect(report.atRisk).toBeGreaterThan(1.5 * WAIT * RATE);
    },
  );
});
