import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shipped } from '../cli/linger.ts';
import { type Cluster, type NewObject, type ObjectReference, openCluster } from '../testbed/cluster.ts';
import { applicationDeployment, applicationService } from '../testbed/workloads.ts';
import { kubeconfigOf } from './support/account.ts';
import { Installation } from './support/installation.ts';
import { clusterPolicy, fixedWait, policyFile } from './support/policies.ts';

/* People with the roles of deploy/rbac-view.yaml and no more: commands go on with what they may read, and say what they assume. */

const RBAC = 'rbac.authorization.k8s.io';

let cluster: Cluster;
let installation: Installation | undefined;
let namespace = '';
const bindings: NewObject[] = [];
const scratch = mkdtempSync(join(tmpdir(), 'linger-rights-'));

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own) return;
  const policies = policyFile(clusterPolicy('base', { mode: 'Enforce', ...fixedWait('5s') }));
  installation = await Installation.create(cluster, { policies });
  namespace = await cluster.namespace('team');
  const application = { namespace, name: 'web', replicas: 1 };
  await cluster.create(applicationService(application));
  await cluster.create(applicationDeployment(application));
  const own = {
    apiVersion: 'linger.dev/v1alpha1',
    kind: 'TerminationPolicy',
    metadata: { namespace, name: 'own' },
    spec: fixedWait('7s'),
  };
  await cluster.create(own);
  await cluster.waitFor<{ status?: { mode?: string } }>(own, ({ status }) => status?.mode === 'Enforce');
}, 300_000);

afterAll(async () => {
  for (const each of bindings) await cluster.delete(each as ObjectReference);
  await installation?.remove();
  await cluster?.close();
  rmSync(scratch, { recursive: true });
}, 180_000);

type Role = readonly [kind: 'Role' | 'ClusterRole', name: string, within?: string];

/** A ServiceAccount with these roles. @returns its kubeconfig */
async function person(name: string, roles: readonly Role[]): Promise<string> {
  const metadata = { namespace, name };
  await cluster.create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata });
  for (const [kind, role, within] of roles) {
    const binding = {
      apiVersion: `${RBAC}/v1`,
      kind: within === undefined ? 'ClusterRoleBinding' : 'RoleBinding',
      metadata: { name: `${namespace}-${name}-${role}`, ...(within !== undefined && { namespace: within }) },
      roleRef: { apiGroup: RBAC, kind, name: role },
      subjects: [{ kind: 'ServiceAccount', ...metadata }],
    };
    bindings.push(binding);
    await cluster.create(binding);
  }
  const file = join(scratch, name);
  writeFileSync(file, await kubeconfigOf(cluster, namespace, name));
  return file;
}

async function run(kubeconfig: string, ...command: readonly string[]) {
  const { code, stdout, stderr } = await shipped([...command, '--kubeconfig', kubeconfig]);
  return { code, stdout, stderr };
}

/** The lines of `linger check`: by their names, the states. */
function statesOf(stdout: string): Readonly<Record<string, string>> {
  const lines = stdout.matchAll(/^(ok|warning|failure|unknown) +(\w+) /gm);
  return Object.fromEntries([...lines].map(([, state = '', code = '']) => [code, state]));
}

/** What every command says of the team's own Deployment, whatever else can be read. */
async function expectOwnAnswers(file: string): Promise<void> {
  const own = ['--namespace', namespace];
  const audit = await run(file, 'audit', ...own);
  expect(audit).toMatchObject({ code: 0 });
  expect(audit.stdout).toMatch(new RegExp(`^protected +Deployment ${namespace}/web +7s`, 'm'));
  // These are of no namespace: a role of one cannot give them.
  expect(audit.stderr).not.toMatch(
    /listing related objects is forbidden; .*: (?!(CiliumClusterwideEnvoyConfig, )?NodePool$)|workloads of this kind/m,
  );
  expect(await run(file, 'watch', '--for', '1s', ...own)).toMatchObject({ code: 0 });
  const explained = await run(file, 'explain', 'deployment/web', ...own);
  expect(explained).toMatchObject({ code: 0 });
  expect(explained.stdout).toMatch(/sleep 7|7s/);
  const policies = await cluster.kubectl(['--kubeconfig', file, 'get', 'tp', ...own]);
  expect(policies).toMatchObject({ code: 0, stdout: expect.stringMatching(/^own +Enforce/m) as string });
}

const OWN = await (async () => {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
})();

describe.runIf(OWN)('with the rights of', () => {
  it('linger-view and linger-view-replicas', { timeout: 240_000 }, async () => {
    const file = await person('platform', [
      ['ClusterRole', 'linger-view'],
      ['Role', 'linger-view-replicas', 'linger'],
    ]);
    await expectOwnAnswers(file);
    const status = await run(file, 'status');
    expect(status).toMatchObject({ code: 0 });
    expect(status.stdout).toMatch(/^replicas +2 of 2 ready$/m);
    expect(status.stdout).toMatch(/^decisions +\d+ injected/m);
    expect(status.stdout).not.toMatch(/forbidden/);
    const { code, stdout } = await run(file, 'check');
    expect(code).toBe(0);
    // They take Secrets, other people's rights, and the creation of pods.
    const unknown = Object.entries(statesOf(stdout)).filter(([, state]) => state === 'unknown');
    expect(unknown.map(([name]) => name)).toEqual(['Rights', 'Certificate', 'Answer']);
    expect((await run(file, 'hold', 'list')).stdout).toBe('No pod is held.\n');
    // Nothing may have been published yet.
    for (const command of ['history', 'consumers', 'timeline'])
      expect((await run(file, command)).stderr).not.toMatch(/forbidden/);
    expect(await run(file, 'watch', '--for', '1s')).toMatchObject({ code: 0 });
    const { stdout: diagnosis } = await run(file, 'diagnose', '--interval', '0');
    expect(diagnosis).not.toMatch(/cannot (get|list|watch) resource "(leases|endpoints|pods|services)"/);
  });

  it('linger-view alone: the status of replicas is not seen', { timeout: 240_000 }, async () => {
    const file = await person('reader', [['ClusterRole', 'linger-view']]);
    await expectOwnAnswers(file);
    const status = await run(file, 'status');
    expect(status).toMatchObject({ code: 0 });
    expect(status.stdout).toMatch(/^decisions +not seen$/m);
    expect(status.stdout).toMatch(/^ +status: 403: .*"pods\/proxy".* in the namespace "linger"$/m);
    const { code, stdout } = await run(file, 'check');
    expect(code).toBe(0);
    expect(statesOf(stdout)).toMatchObject({ Replicas: 'ok', Webhook: 'ok', Watches: 'unknown' });
    expect(stdout).toMatch(/Get the permission to get pods\/proxy in namespace linger\./);
    // Only the replicas know what is held.
    const held = await run(file, 'hold', 'list');
    expect(held).toMatchObject({ code: 1, stdout: '' });
    expect(held.stderr).toMatch(/cannot get resource "pods\/proxy" .*\[cluster-denied\]/);
  });

  it.each([
    ['linger-view-namespace and linger-published', 'team', true],
    ['linger-view-namespace alone', 'lonely', false],
  ])('%s: of one namespace', { timeout: 240_000 }, async (_, name, published) => {
    const file = await person(name, [
      ['ClusterRole', 'linger-view-namespace', namespace],
      ...(published ? ([['Role', 'linger-published', 'linger']] as const) : []),
    ]);
    await expectOwnAnswers(file);
    const { stderr } = await run(file, 'audit', '--namespace', namespace);
    expect(stderr).toMatch(/namespaces is forbidden: .*; ignoring labels and annotations of namespaces$/m);
    expect(stderr).toMatch(/nodes is forbidden: .*; assuming that all kubelets know the native sleep$/m);
    expect(/no policies found \(.*\); assuming the built-in policy/.test(stderr)).toBe(!published);
    const status = await run(file, 'status');
    expect(status).toMatchObject({ code: 0 });
    expect(status.stdout).toMatch(/^replicas +not seen$/m);
    expect(status.stdout).toMatch(/^ +leader: 403: leases\.coordination\.k8s\.io "linger" is forbidden/m);
    const { code, stdout } = await run(file, 'check');
    expect(code).toBe(0);
    const states = statesOf(stdout);
    expect(states).toMatchObject({
      ApiServer: 'ok',
      Webhook: 'unknown',
      Replicas: 'unknown',
      Policies: 'unknown',
    });
    expect(Object.values(states)).not.toContain('failure');
    const held = await run(file, 'hold', 'list');
    expect(held).toMatchObject({ code: 1, stdout: '' });
    expect(held.stderr).toMatch(
      /cannot list resource "pods" .* in the namespace "linger" \[cluster-denied\]/,
    );
    // An audit of what may not be read must not pass as one that finds nothing.
    const everywhere = await run(file, 'audit');
    expect(everywhere).toMatchObject({ code: 1, stdout: '' });
    expect(everywhere.stderr).toMatch(/\[cluster-denied\]\n$/);
  });
});
