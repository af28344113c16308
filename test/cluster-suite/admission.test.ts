import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { emptyDirectory, shipped as linger } from '../cli/linger.ts';
import { waitUntil } from '../testbed/cluster.ts';
import { appContainer, type PodObject, pod, RESTRICTED, workload } from './support/manifests.ts';
import { createPod, hookOf, planOf, summaryOf } from './support/outcome.ts';
import { clusterPolicy, fixedWait, labelledPolicy, policyFile } from './support/policies.ts';
import { openStage, type Stage } from './support/stage.ts';
import { isReady } from './support/termination.ts';

const BASE = [clusterPolicy('base', fixedWait('5s')), labelledPolicy('audit', { mode: 'Audit' })];

interface AuditEvent {
  readonly objectRef?: { readonly namespace?: string; readonly name?: string };
  readonly annotations?: Readonly<Record<string, string>>;
}

describe('the creator of a pod', () => {
  let stage: Stage;
  let namespace = '';

  beforeAll(async () => {
    stage = await openStage(() => policyFile(...BASE));
    namespace = await stage.cluster.namespace('admission');
  });

  afterAll(() => stage?.close());

  const apply = (object: object, ...flags: string[]) =>
    stage.cluster.kubectl(['apply', '-f', '-', ...flags], { stdin: JSON.stringify(object) });

  const decisionsCounted = () => stage.linger.metric('linger_decisions_total');

  it('gets a warning from kubectl about an annotation that does not parse, and gets the pod', async () => {
    const wrong = pod(namespace, 'wrong', {}, { annotations: { 'linger.dev/wait': 'soon' } });
    const { code, stderr, stdout } = await apply(wrong);
    expect(stderr).toMatch(/^Warning: linger: Pod: linger\.dev\/wait: expected .*, got "soon"; ignored$/m);
    expect({ code, stdout }).toEqual({ code: 0, stdout: 'pod/wrong created\n' });
    expect(await stage.linger.metric('linger_invalid_annotations_total')).toBe(1);
  });

  it('gets a warning about a shortened wait', async () => {
    const large = pod(
      namespace,
      'large',
      { terminationGracePeriodSeconds: 599 },
      { annotations: { 'linger.dev/wait': '2m' } },
    );
    const { warnings } = await stage.cluster.tryCreate(large, { dryRun: true });
    expect(warnings).toEqual([
      expect.stringMatching(/^linger: the wait is 60s instead of 120s: grace\.max is 600s/),
    ]);
  });

  it('gets no warning when all is well', async () => {
    const { warnings } = await stage.cluster.tryCreate(pod(namespace, 'well', {}), { dryRun: true });
    expect(warnings).toEqual([]);
  });

  it('sees the hook in kubectl apply --dry-run=server, which leaves no trace', async () => {
    const before = await decisionsCounted();
    const dry = await apply(pod(namespace, 'dry', {}), '--dry-run=server', '-o', 'json');
    expect(dry).toMatchObject({ code: 0, stderr: '' });
    const shown = JSON.parse(dry.stdout) as PodObject;
    expect(shown.spec.containers.map(hookOf)).toEqual(['sleep 5']);
    expect(shown.spec.terminationGracePeriodSeconds).toBe(35);
    expect(await decisionsCounted()).toBe(before);
    expect(await stage.cluster.get(pod(namespace, 'dry', {}))).toBeUndefined();
  });

  it('is counted once for a pod that is stored', async () => {
    const before = await decisionsCounted();
    await createPod(stage, pod(namespace, 'counted', {}));
    expect(await decisionsCounted()).toBe(before + 1);
  });

  it('can apply the same manifest again without a change', async () => {
    const object = pod(namespace, 'twice', {});
    expect((await apply(object)).stdout).toBe('pod/twice created\n');
    expect((await apply(object)).stdout).toBe('pod/twice unchanged\n');
  });

  // What Argo CD and Flux compare is what kubectl compares.
  it('sees no drift of what Git has: kubectl diff is empty once the pods have their hooks', async () => {
    const deployment = workload('Deployment', namespace, 'from-git');
    const bare = pod(namespace, 'bare-from-git', {});
    const ownGrace = pod(namespace, 'grace-from-git', { terminationGracePeriodSeconds: 20 });
    const all = { apiVersion: 'v1', kind: 'List', items: [deployment, bare, ownGrace] };
    expect(await apply(all)).toMatchObject({ code: 0, stderr: '' });
    const pods = () =>
      stage.cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=from-git');
    const [made] = await waitUntil('the pod of the Deployment', async () => {
      const found = await pods();
      return found.length > 0 ? found : undefined;
    });
    expect(made?.spec.containers.map(hookOf)).toEqual(['sleep 5']);
    const differs = async (object: object) => {
      const { code, stdout, stderr } = await stage.cluster.kubectl(['diff', '-f', '-'], {
        stdin: JSON.stringify(object),
      });
      return { code, stdout, stderr };
    };
    expect(await differs(deployment)).toMatchObject({ code: 0, stdout: '' });
    expect(await differs(bare)).toMatchObject({ code: 0, stdout: '' });
    // The guide names this one.
    expect((await differs(ownGrace)).stderr).toMatch(/pod updates may not change fields/);
  });

  it('may have the waits in the manifests: kustomize, inject, apply', async () => {
    const folder = await emptyDirectory();
    await writeFile(join(folder, 'kustomization.yaml'), `namespace: ${namespace}\nresources: [web.yaml]\n`);
    await writeFile(join(folder, 'web.yaml'), JSON.stringify(workload('Deployment', '', 'kustomized')));
    const built = await stage.cluster.kubectl(['kustomize', folder]);
    const { code, stdout } = await linger(['inject'], { stdin: built.stdout });
    expect(code).toBe(0);
    const applied = await stage.cluster.kubectl(['apply', '-f', '-', '-o', 'json'], { stdin: stdout });
    const { spec } = JSON.parse(applied.stdout) as { spec: { template: PodObject } };
    expect(spec.template.spec.containers.map(hookOf)).toEqual(['sleep 30']);
  });

  it('changes nothing in Audit, and the API server’s audit log has the plan', async ({ skip }) => {
    const outcome = await createPod(stage, pod(namespace, 'audited', {}, { labels: { policy: 'audit' } }));
    expect(summaryOf(outcome)).toBe('Audit: app -; grace 30');
    const file = stage.cluster.auditLog;
    if (file === undefined) return skip('only where the audit log is ours to read');
    const event = await waitUntil('the audit event', () =>
      readFileSync(file, 'utf8')
        .split('\n')
        .filter((line) => line.includes(namespace) && line.includes('"audited"'))
        .map((line) => JSON.parse(line) as AuditEvent)
        .find(({ annotations = {} }) => 'pods.linger.dev/plan' in annotations),
    );
    expect(event.annotations?.['pods.linger.dev/reason']).toBe('Audit');
    const plan = JSON.parse(event.annotations?.['pods.linger.dev/plan'] ?? '') as object;
    expect(plan).toMatchObject({ wait: 5, grace: 35, baseGrace: 30, hook: 'Sleep', containers: ['app'] });
  });

  describe('in a namespace under Pod Security restricted', () => {
    let restricted = '';

    beforeAll(async () => {
      restricted = await stage.cluster.namespace('admission-restricted', {
        'pod-security.kubernetes.io/enforce': 'restricted',
      });
    });

    it.each(['Sleep', 'Exec'])('gets a running pod with hook %s', async (hook) => {
      const spec = { containers: [appContainer('app', RESTRICTED)] };
      const object = pod(restricted, hook.toLowerCase(), spec, { annotations: { 'linger.dev/hook': hook } });
      const { pod: stored } = await createPod(stage, object);
      expect(planOf(stored)).toMatchObject({ wait: 5, hook });
      await stage.cluster.waitFor(object, isReady);
    });

    it('is refused a pod that is not, with or without Linger', async () => {
      const { status } = await stage.cluster.tryCreate(pod(restricted, 'root', {}), { dryRun: true });
      expect(status).toBe(403);
    });
  });

  it('gets the old or the new wait while policies are reloaded, never none', async () => {
    const waits: (number | undefined)[] = [];
    let going = true;
    const creating = (async () => {
      for (let index = 0; going; index++) {
        const created = await stage.cluster.create<PodObject>(pod(namespace, `reload-${index}`, {}), {
          dryRun: true,
        });
        waits.push(planOf(created)?.wait);
      }
    })();
    const started = performance.now();
    await stage.linger.setPolicies(policyFile(clusterPolicy('base', fixedWait('7s'))));
    await waitUntil('the new wait', () => waits.at(-1) === 7, { intervalMs: 10 });
    const tookMs = Math.round(performance.now() - started);
    going = false;
    await creating;
    console.log(`${waits.length} pods created during the reload, in force after ${tookMs} ms`);
    // One change from the old to the new, and none back.
    expect(waits.filter((wait, index) => wait !== waits[index - 1])).toEqual([5, 7]);
    expect(tookMs).toBeLessThan(3_000);
  });

  it('still gets the last good wait after a policy that is wrong', async () => {
    const wrong = policyFile(clusterPolicy('base', { wait: { from: 'Fixed', fixed: '9s', typo: true } }));
    await expect(stage.linger.setPolicies(wrong)).rejects.toThrow(/wait\.typo: unknown field/);
    const { pod: stored } = await createPod(stage, pod(namespace, 'last-good', {}), { dryRun: true });
    expect(planOf(stored)?.wait).toBe(7);
  });
});
