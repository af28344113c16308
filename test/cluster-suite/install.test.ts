import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ensureCertificates } from '../../src/certs/index.ts';
import { shipped } from '../cli/linger.ts';
import {
  type Cluster,
  type KubernetesObject,
  type ObjectReference,
  openCluster,
  waitUntil,
} from '../testbed/cluster.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../testbed/workloads.ts';
import { InstalledReplicas } from './support/installed-replicas.ts';
import { LINGER_IMAGE, lingerImageArchive } from './support/linger-image.ts';
import { type PodObject, pod, service } from './support/manifests.ts';
import { hookOf } from './support/outcome.ts';
import { allowReports, sendReport, tokenOf } from './support/reports.ts';

const ROOT = join(import.meta.dirname, '..', '..');
const NAMESPACE = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: 'linger' } };
const CONFIGURATION = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
  metadata: { name: 'linger' },
};

const DEPLOYMENT = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'linger', namespace: 'linger' },
};
const SECRET = {
  apiVersion: 'v1',
  kind: 'Secret',
  metadata: { name: 'linger-certificates', namespace: 'linger' },
};
/** A foreign one: it fails closed, and has no endpoints. */
const STRICT = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'ValidatingWebhookConfiguration',
  metadata: { name: 'strict' },
  webhooks: [
    {
      name: 'strict.example.dev',
      admissionReviewVersions: ['v1'],
      sideEffects: 'None',
      clientConfig: { service: { namespace: 'default', name: 'strict' } },
      rules: [{ apiGroups: [''], apiVersions: ['v1'], resources: ['pods'], operations: ['CREATE'] }],
      namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'linger' } },
    },
  ],
};
const YEAR_MS = 365 * 86_400_000;

const RESOURCES = [
  'namespaces',
  'services',
  'nodes',
  'pods',
  'endpointslices',
  'endpoints',
  'discoveryconsumers',
  'holdconfigmaps',
];
const ACCOUNT = 'system:serviceaccount:linger:linger';
const COUNTS = {
  EndpointSlice: 'linger_removal_lag_seconds_count{stage="EndpointSlice"}',
  Endpoints: 'linger_removal_lag_seconds_count{stage="Endpoints"}',
};
/**
 * Waits come from so few removals that a test can make them; and from more than an update of Linger itself makes, whose
 * pods are in three Services.
 */
const MIN_SAMPLES = 10;
const NAME_LABEL = 'kubernetes.io/metadata.name';

const ENFORCING = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'ClusterTerminationPolicy',
  metadata: { name: 'base' },
  spec: { mode: 'Enforce', wait: { minSamples: MIN_SAMPLES, minHistory: '1s' } },
});
const TERMINATIONS = 12;
const EDGE = JSON.stringify({
  apiVersion: 'linger.dev/v1alpha1',
  kind: 'DiscoveryConsumer',
  metadata: { name: 'edge' },
  // No pod of these tests: their waits are not about it.
  spec: { appliesTo: { podSelector: { matchLabels: { exposed: 'edge' } } }, measure: { reports: {} } },
});

/** The README's installation by hand, command by command, with deploy/ as it is. */
describe('an installation by hand', async () => {
  const cluster: Cluster = await openCluster();
  const replicas = new InstalledReplicas(cluster);
  const scratch = mkdtempSync(join(tmpdir(), 'linger-install-'));
  const kubectl = (...args: string[]) => cluster.mustKubectl(args, { timeoutMs: 120_000 });
  let namespace = '';
  let caBundle = '';
  /** Rights of gateways to report: a ClusterRole and its binding. */
  const rights: ObjectReference[] = [];

  beforeAll(async () => {
    if (!cluster.own) return;
    await waitUntil('an earlier namespace linger to be gone', async () => !(await cluster.get(NAMESPACE)), {
      timeoutMs: 120_000,
    });
    await cluster.importImages(await lingerImageArchive());
    namespace = await cluster.namespace('install');
  }, 240_000);

  afterAll(async () => {
    if (cluster.own) {
      for (const object of [CONFIGURATION, STRICT, ...rights]) await cluster.delete(object);
      await kubectl('delete', '--ignore-not-found', '--wait=false', '--kustomize', join(ROOT, 'deploy'));
      await cluster.delete(NAMESPACE, { wait: true });
    }
    await cluster.close();
    rmSync(scratch, { recursive: true });
  }, 180_000);

  const onOurOwn = it.runIf(cluster.own);

  /** What `linger check` says of each thing that is not as it should be, and its exit code. */
  async function check(...flags: string[]) {
    const asked = ['check', '--kubeconfig', cluster.kubeconfig, '--namespace', namespace, '-o', 'json'];
    const { code, stdout, stderr } = await shipped([...asked, ...flags]);
    expect(stderr).toMatch(/^\d+ ok, \d+ warnings, \d+ failures, \d+ not checked\n$/);
    const { checks } = JSON.parse(stdout) as {
      checks: readonly { code: string; state: string; text: string }[];
    };
    const said = checks.filter(({ state }) => state !== 'ok');
    return { code, said: said.map((each) => `${each.state} ${each.code}: ${each.text}`), checks };
  }

  onOurOwn('linger check --pre has nothing against it', { timeout: 60_000 }, async () => {
    const { code, said, checks } = await check('--pre');
    expect([code, said]).toEqual([0, []]);
    expect(checks.length).toBeGreaterThanOrEqual(5);
  });

  onOurOwn(
    'kubectl apply -k deploy/ brings up two replicas, as Pod Security "restricted" allows',
    { timeout: 180_000 },
    async () => {
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

  onOurOwn('a second kubectl apply changes nothing, and says so', { timeout: 60_000 }, async () => {
    const said = (await kubectl('apply', '--kustomize', join(ROOT, 'deploy'))).trim().split('\n');
    expect(said.length).toBeGreaterThan(30);
    // kubectl sends the selector of a PodDisruptionBudget each time (patchStrategy "replace" in policy/v1), equal or not.
    const other = said.filter((line) => !line.endsWith(' unchanged'));
    expect(other).toEqual(['poddisruptionbudget.policy/linger configured']);
    const budget = { apiVersion: 'policy/v1', kind: 'PodDisruptionBudget', metadata: DEPLOYMENT.metadata };
    expect(await cluster.get(budget)).toMatchObject({ metadata: { generation: 1 } });
  });

  onOurOwn('first it looks and does not touch: mode Audit', { timeout: 90_000 }, async () => {
    const bundle = '--output=jsonpath={.webhooks[0].clientConfig.caBundle}';
    caBundle = await kubectl('get', 'mutatingwebhookconfiguration', 'linger', bundle);
    expect(Buffer.from(caBundle, 'base64').toString()).toMatch(/^-----BEGIN CERTIFICATE-----/);
    const audited = async () => {
      expect((await createPod()).spec.containers.map(hookOf)).toEqual(['-']);
      return (await replicas.sum('linger_decisions_total', 'outcome="audit"')) > 0;
    };
    await waitUntil('a pod to be counted as audited', audited, { intervalMs: 1000 });
  });

  onOurOwn(
    'kubectl get ctp shows what applies from the first minute, and a deleted policy stays deleted',
    { timeout: 120_000 },
    async () => {
      const shown = await waitUntil(
        'the policy with its status',
        async () => {
          const { stdout } = await cluster.kubectl(['get', 'ctp', '--no-headers']);
          return stdout.includes('initial') ? stdout : undefined;
        },
        { intervalMs: 1000, timeoutMs: 90_000 },
      );
      console.log(shown);
      // As the policies of the ConfigMap, which are in no list of kubectl, and the built-in values make it.
      expect(shown).toMatch(/^built-in +Audit +Auto +30s +initial: .* True/);
      await kubectl('delete', 'ctp', 'built-in');
    },
  );

  onOurOwn('each replica reads the cluster', { timeout: 90_000 }, async () => {
    for (const metrics of [
      'linger_cluster_synced',
      ...RESOURCES.map((each) => `linger_watch_current{resource="${each}"}`),
    ])
      await waitUntil(`${metrics} of both`, async () => (await replicas.each(metrics)).join() === '1,1', {
        intervalMs: 1000,
      });
    expect(await replicas.each('linger_watch_objects{resource="nodes"}')).toEqual([1, 1]);
  });

  onOurOwn.each([
    ...['pods', 'services', 'endpoints', 'namespaces', 'nodes', 'endpointslices.discovery.k8s.io'].flatMap(
      (resource) => [
        ['list', resource, 'yes'],
        ['watch', resource, 'yes'],
        ['delete', resource, 'no'],
        ['patch', resource, 'no'],
      ],
    ),
    ['list', 'discoveryconsumers.linger.dev', 'yes'],
    ['watch', 'discoveryconsumers.linger.dev', 'yes'],
    ['patch', 'discoveryconsumers.linger.dev', 'no'],
    ['create', 'clusterterminationpolicies.linger.dev/built-in', 'yes'],
    ['patch', 'clusterterminationpolicies.linger.dev/base', 'no'],
    ['delete', 'discoveryconsumers.linger.dev', 'no'],
    ['patch', 'discoveryconsumers.linger.dev --subresource=status', 'yes'],
    ['update', 'discoveryconsumers.linger.dev --subresource=status', 'no'],
    ['list', 'secrets', 'no'],
    ['get', 'secrets', 'no'],
    ['list', 'configmaps', 'no'],
    ['list', 'leases.coordination.k8s.io', 'no'],
    ['get', 'pods --subresource=log', 'no'],
    ['create', 'pods --subresource=exec', 'no'],
    ['create', 'pods', 'no'],
    ['create', 'tokenreviews.authentication.k8s.io', 'yes'],
    ['create', 'subjectaccessreviews.authorization.k8s.io', 'yes'],
  ])('may it %s %s in the whole cluster? %s', async (verb, resource, answer) => {
    const asked = ['auth', 'can-i', verb, ...resource.split(' '), '--all-namespaces', `--as=${ACCOUNT}`];
    const { stdout } = await cluster.kubectl(asked, { timeoutMs: 30_000 });
    expect(stdout.trim()).toBe(answer);
  });

  onOurOwn('then it enforces', { timeout: 180_000 }, async () => {
    const data = { 'base.yaml': ENFORCING, 'edge.yaml': EDGE };
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
    expect((await cluster.kubectl(['get', 'ctp', '--no-headers'])).stdout).toBe('');
  });

  onOurOwn(
    'the Service linger-reports leads to the leader, under its own name',
    { timeout: 120_000 },
    async () => {
      rights.push(...(await allowReports(cluster, namespace)));
      const token = await tokenOf(cluster, namespace, 'gateway', { audience: 'linger.dev/reports' });
      const { spec } = (await cluster.get<KubernetesObject & { spec: { clusterIP: string } }>({
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { namespace: 'linger', name: 'linger-reports' },
      }))!;
      const place = {
        url: `https://${spec.clusterIP}/v1/consumers/edge/reports`,
        servername: 'linger-reports.linger.svc',
        ca: Buffer.from(caBundle, 'base64').toString(),
      };
      // A new leader may not know the policies yet; before that there may be no leader.
      const answer = await waitUntil(
        'a cursor',
        async () => {
          const said = await sendReport(place, token, {}).catch(() => undefined);
          return said?.status === 200 ? said : undefined;
        },
        { intervalMs: 500 },
      );
      const { cursor } = answer.body;
      expect((await sendReport(place, token, { cursor })).status).toBe(200);
      expect(
        (await replicas.each('linger_report_instances{consumer="edge"}')).filter((count) => count === 1),
      ).toHaveLength(1);
    },
  );

  onOurOwn('both replicas measure real terminations', { timeout: 180_000 }, async () => {
    const application = { namespace, name: 'measured', replicas: TERMINATIONS };
    const deployment = applicationDeployment({
      ...application,
      podSpec: { terminationGracePeriodSeconds: 1 },
    });
    await cluster.create(applicationService(application));
    await cluster.create(unhooked(deployment));
    const rolledOut = () =>
      cluster.waitFor<DeploymentObject>(deployment, (object) => isRolledOut(object, TERMINATIONS));
    const readings = async () => {
      const [slices, endpoints, discarded] = await Promise.all(
        [...Object.values(COUNTS), 'linger_removals_discarded_total'].map((each) => replicas.sums(each)),
      );
      const names = [...(slices?.keys() ?? [])];
      return names.map((name) => ({
        name,
        sampled: [slices?.get(name) ?? 0, endpoints?.get(name) ?? 0],
        discarded: discarded?.get(name) ?? 0,
      }));
    };
    const complete = new Set<string>();
    // A replica that stands still for a second, as on a busy machine, says that it has timed nothing: then once more.
    for (let round = 1; complete.size < 2; round += 1) {
      expect(round).toBeLessThanOrEqual(5);
      await rolledOut();
      await waitUntil(
        'all pods to be in the slices',
        async () => (await endpointsOf('measured')) === TERMINATIONS,
      );
      // A replica that has just started may have seen an earlier removal in one of the two only.
      const before = new Map((await readings()).map((each) => [each.name, each]));
      await kubectl('--namespace', namespace, 'delete', 'pods', '--selector', 'app=measured', '--wait=false');
      const isAccountedFor = ({ name, sampled, discarded }: Awaited<ReturnType<typeof readings>>[number]) => {
        const was = before.get(name);
        const samples = sampled.map((now, stage) => now - (was?.sampled[stage] ?? 0));
        if (samples.every((count) => count >= TERMINATIONS)) complete.add(name);
        if (complete.has(name)) return true;
        const lost = discarded - (was?.discarded ?? 0);
        return lost > 0 && lost + samples.reduce((sum, count) => sum + count, 0) >= 2 * TERMINATIONS;
      };
      await waitUntil(
        `${TERMINATIONS} removals to be sampled in slices and Endpoints, or discarded`,
        async () => (await readings()).every(isAccountedFor),
        { intervalMs: 500 },
      );
    }
    await rolledOut();
    expect(await replicas.each('linger_removals_unresolved{stage="EndpointSlice"}')).toEqual([0, 0]);
  });

  onOurOwn('and waits follow what they have measured', { timeout: 120_000 }, async () => {
    // The canary needs 100 flips to know these two, and what is unknown keeps waits at `initial`.
    for (const name of ['cluster-ip', 'cluster-dns']) {
      const spec = { measure: { declared: { lag: '100ms' } } };
      const object = {
        apiVersion: 'linger.dev/v1alpha1',
        kind: 'DiscoveryConsumer',
        metadata: { name },
        spec,
      };
      await cluster.create(object);
    }
    const plan = await waitUntil(
      'a measured plan',
      async () => {
        const text = (await createPod()).metadata.annotations?.['linger.dev/plan'] ?? '{}';
        const { why, ...rest } = JSON.parse(text) as { why?: string; samples?: number; coverage?: number };
        return why === 'measured' ? rest : undefined;
      },
      { intervalMs: 1000 },
    );
    // A calm cluster withdraws within a fraction of a second: the shortest wait there is covers nearly all.
    expect(plan).toMatchObject({ wait: 5, policy: 'built-in' });
    // The number of samples when the leader last published.
    expect(plan.samples).toBeGreaterThanOrEqual(MIN_SAMPLES);
    expect(plan.coverage).toBeGreaterThan(0.9);
    const [{ address } = { address: '' }] = await replicas.list();
    const estimates: unknown = await (await fetch(`http://${address}:8080/estimates`)).json();
    expect(estimates).toMatchObject({
      synced: true,
      defaultWait: { why: 'measured' },
      planned: { cluster: { p99: expect.any(Number) } },
    });
  });

  onOurOwn(
    'one replica leads, and both plan with exactly what it has published',
    { timeout: 60_000 },
    async () => {
      expect((await replicas.each('linger_leader')).toSorted()).toEqual([0, 1]);
      const [one, other] = await waitUntil('both to have the same', async () => {
        const planned = [...(await replicas.samples('linger_lag_planned')).values()];
        return JSON.stringify(planned[0]) === JSON.stringify(planned[1]) ? planned : undefined;
      });
      expect(one?.length).toBeGreaterThan(3);
      expect(one).toEqual(other);
      for (const reason of ['Forbidden', 'Unauthorized', 'Refused', 'Malformed'])
        expect(await replicas.sum('linger_publish_failures_total', `reason="${reason}"`)).toBe(0);
    },
  );

  onOurOwn(
    'a consumer that is declared gets a status, and linger consumers tells of it',
    { timeout: 240_000 },
    async () => {
      // For a Service without pods, so that the waits of other workloads do not change.
      const elsewhere = await cluster.namespace('elsewhere');
      await cluster.create(service(elsewhere, 'web'));
      const declare = (name: string, measure: object) => {
        const spec = {
          appliesTo: { namespaceSelector: { matchLabels: { [NAME_LABEL]: elsewhere } } },
          measure,
        };
        const object = {
          apiVersion: 'linger.dev/v1alpha1',
          kind: 'DiscoveryConsumer',
          metadata: { name },
          spec,
        };
        return cluster.create(object);
      };
      await declare('declared', { declared: { syncInterval: '10s' } });
      await declare('silent', { reports: {} });
      await kubectl('wait', '--for=condition=Measured', 'discoveryconsumer/declared', '--timeout=90s');
      const { status } = JSON.parse(
        await kubectl('get', 'discoveryconsumer', 'declared', '--output', 'json'),
      );
      expect(status).toMatchObject({ measure: 'declared', p50: expect.any(String), observedGeneration: 1 });
      const asked = ['src/main.ts', 'consumers', '--kubeconfig', cluster.kubeconfig];
      const tell = (...flags: string[]) =>
        execFileSync(process.execPath, [...asked, ...flags], { cwd: ROOT, encoding: 'utf8', stdio: 'pipe' });
      const isTold = (name: string) => {
        const { consumers } = JSON.parse(tell('--output', 'json')) as { consumers: { name: string }[] };
        return consumers.some((each) => each.name === name);
      };
      await waitUntil('both to be told', () => isTold('declared') && isTold('silent'), {
        timeoutMs: 120_000,
        intervalMs: 2_000,
      });
      const told = tell();
      console.log(`${told}\n${await kubectl('get', 'discoveryconsumers')}`);
      expect(told).toMatch(/^declared +declared +- +5\.\d+s +9\.\d+s .*Declared$/m);
      expect(told).toMatch(/^silent +reports +0 /m);
    },
  );

  onOurOwn('which explain tells, asking the cluster', { timeout: 60_000 }, () => {
    const policies = join(scratch, 'policy.yaml');
    writeFileSync(policies, ENFORCING);
    const flags = ['--kubeconfig', cluster.kubeconfig, '--policies', policies, '--namespace', namespace];
    const input = JSON.stringify(pod(namespace, 'newcomer', {}));
    const explain = ['src/main.ts', 'explain', ...flags];
    const told = execFileSync(process.execPath, explain, { cwd: ROOT, encoding: 'utf8', input });
    expect(told).toMatch(/^ {2}wait {6}5s \(measured: \d+ removals over .*\)$/m);
    expect(told).toMatch(
      /^ {2}estimate {2}p99 [\d.]+m?s \(control plane .*cluster-ip 100ms declared.*\) of \d+ samples over \d+ (s|min), ×1\.5 → 5s, covers (9\d|100)\.\d %$/m,
    );
    console.log(told);
  });

  onOurOwn('nothing that it asked for was forbidden', { timeout: 60_000 }, async () => {
    expect(replicas.refusals()).toEqual([]);
    for (const reason of ['Forbidden', 'Unauthorized', 'Refused', 'Malformed', 'Internal'])
      expect(await replicas.sum('linger_watch_restarts_total', `reason="${reason}"`)).toBe(0);
    for (const reason of ['Forbidden', 'Unauthorized', 'Refused', 'Malformed'])
      expect(await replicas.sum('linger_publish_failures_total', `reason="${reason}"`)).toBe(0);
    for (const logs of (await replicas.logs()).values()) {
      expect(logs).not.toMatch(/forbidden|unauthorized/i);
      expect(logs).not.toMatch(/"level":"(error|fatal)"/);
    }
    expect(await replicas.sum('linger_watch_handler_errors_total')).toBe(0);
  });

  onOurOwn('and linger check says that it works', { timeout: 180_000 }, async () => {
    // The first flip may come before there is a second replica; the next one is a minute later.
    const { code, said, checks } = await waitUntil(
      'the canary to have measured something',
      async () => {
        const checked = await check();
        return checked.said.some((line) => /^warning Canary: no flip/.test(line)) ? undefined : checked;
      },
      { timeoutMs: 120_000, intervalMs: 5_000 },
    );
    console.log(checks.map(({ state, code, text }) => `${state} ${code}: ${text}`).join('\n'));
    // No instance reports for the two consumers that were declared above.
    const other = said.filter((line) => !/^warning Consumers: (edge|silent): NoInstances/.test(line));
    expect([code, other]).toEqual([0, []]);
    expect(checks.find((each) => each.code === 'Policies')?.text).toMatch(
      /^policies: 1 from files, 0 from the cluster, all valid; mode of pods in \S+: Enforce \(Cluster\S+base\)$/,
    );
    expect(checks.find((each) => each.code === 'Answer')?.text).toMatch(
      /came back from Linger .* with its hook$/,
    );
  });

  onOurOwn('and with --pre what keeps one more from it', { timeout: 60_000 }, async () => {
    const quota = {
      apiVersion: 'v1',
      kind: 'ResourceQuota',
      metadata: { name: 'limited', namespace: 'linger' },
      spec: { hard: { 'limits.cpu': '4' } },
    };
    await cluster.create(quota);
    // The quota's controller counts first.
    const refused = await waitUntil('the quota to be in force', async () => {
      const { said } = await check('--pre');
      return said.length > 0 ? said : undefined;
    });
    await cluster.delete(quota);
    expect(refused).toEqual([
      expect.stringMatching(/^failure Admission: .* in namespace linger: 403: .*must specify limits\.cpu/),
    ]);
    expect(await check('--pre', '--linger-namespace', namespace)).toMatchObject({
      code: 1,
      said: [
        expect.stringMatching(/^failure Webhook: linger points at namespace linger: an installation in/),
      ],
    });
  });

  onOurOwn('or which rights are missing', { timeout: 60_000 }, async () => {
    for (const [kind, name] of [
      ['clusterrolebinding', 'linger-certificates'],
      ['clusterrolebinding', 'linger-audit'],
      ['rolebinding', 'linger-pods'],
    ] as const)
      await kubectl('--namespace', 'linger', 'delete', kind, name);
    const rights = async () => (await check()).said.filter((line) => line.includes(' Rights: '));
    expect(await rights()).toEqual([
      expect.stringMatching(
        /^warning .* may not list deployments\.apps, .* and \d+ more: the leader’s audit/,
      ),
      expect.stringMatching(
        /^failure .* may not get mutatingwebhookconfigurations\.\S+ linger, .*: the cert/,
      ),
      expect.stringMatching(/^warning .* may not patch pods, get services linger-canary: /),
    ]);
    for (const file of ['role-certificates.yaml', 'rbac-audit.yaml', 'role-pods.yaml'])
      await kubectl('apply', '--filename', join(ROOT, 'deploy', file));
    expect(await rights()).toEqual([]);
  });

  onOurOwn('or what keeps it from working', { timeout: 90_000 }, async () => {
    const { cert: expired, caBundle: foreign } = await ensureCertificates(
      { directory: join(scratch, 'expired'), names: ['linger.linger.svc'] },
      new Date(Date.now() - YEAR_MS),
    );
    const base64 = (text: string) => Buffer.from(text).toString('base64');
    await cluster.create(STRICT);
    await cluster.patch(DEPLOYMENT, { spec: { replicas: 0 } });
    // While they drain they would still put the caBundle back.
    await kubectl('--namespace', 'linger', 'delete', 'pods', '--all', '--grace-period=1');
    await kubectl(
      ...['patch', 'mutatingwebhookconfiguration', 'linger', '--type=json', '--patch'],
      JSON.stringify([{ op: 'replace', path: '/webhooks/0/clientConfig/caBundle', value: base64(foreign) }]),
    );
    const stopped = await check();
    expect(stopped.code).toBe(1);
    expect(stopped.said.filter((line) => line.startsWith('failure'))).toEqual([
      expect.stringMatching(
        /^failure Certificate: the caBundle .* does not match the certificate in Secret linger\//,
      ),
      'failure Replicas: the Deployment linger is scaled to 0 replicas',
      expect.stringMatching(
        /^failure Answer: .*without an answer from Linger; its Service is not reachable .*: 503: no endpoints/,
      ),
      expect.stringMatching(
        /^failure OtherWebhooks: strict\.example\.dev of .* Service default\/strict has no ready/,
      ),
    ]);

    await cluster.patch(SECRET, { data: { 'tls.crt': base64(expired) } });
    await cluster.patch(DEPLOYMENT, { spec: { replicas: 2 } });
    const refused = await waitUntil('the Deployment to say why', async () => {
      const { said } = await check();
      return said.some((line) => line.includes('0 of 2 ready; ')) ? said : undefined;
    });
    expect(refused).toContainEqual(expect.stringMatching(/^failure Certificate: .* expired on \d{4}-/));
    expect(refused).toContainEqual(
      expect.stringMatching(
        /^failure Replicas: 0 of 2 ready; .*failed calling webhook "strict\.example\.dev"/,
      ),
    );
  });

  /** @returns the pod as it was stored; it is deleted at once, since a node holds a limited number of pods */
  async function createPod(): Promise<PodObject> {
    const object = pod(namespace, 'newcomer', {});
    const stored = await cluster.create<PodObject>(object);
    await cluster.delete(object, { graceSeconds: 0, wait: true });
    return stored;
  }

  async function endpointsOf(name: string): Promise<number> {
    type Slice = KubernetesObject & { endpoints: { conditions: { ready: boolean } }[] | null };
    const slices = await cluster.list<Slice>(
      { apiVersion: 'discovery.k8s.io/v1', kind: 'EndpointSlice', namespace },
      `kubernetes.io/service-name=${name}`,
    );
    return slices.flatMap(({ endpoints }) => endpoints ?? []).filter(({ conditions }) => conditions.ready)
      .length;
  }
});

/** The Deployment with pods that no webhook is asked about. */
function unhooked(deployment: ReturnType<typeof applicationDeployment>) {
  const { spec } = deployment;
  const labels = { ...spec.template.metadata.labels, 'linger.dev/inject': 'false' };
  return { ...deployment, spec: { ...spec, template: { ...spec.template, metadata: { labels } } } };
}
