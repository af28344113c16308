import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ROOT, shipped } from '../cli/linger.ts';
import { Installation } from '../cluster-suite/support/installation.ts';
import { appContainer, pod } from '../cluster-suite/support/manifests.ts';
import { planOf } from '../cluster-suite/support/outcome.ts';
import { clusterPolicy, fixedWait, policyFile } from '../cluster-suite/support/policies.ts';
import { type Cluster, FakeNode, type NewObject, openCluster, waitUntil } from '../testbed/cluster.ts';
import { applicationDeployment, applicationService } from '../testbed/workloads.ts';
import { LONG } from './form.ts';
import { untilPlanned } from './hold/setting.ts';
import { table } from './table.ts';

/*
 * An operator's day: Linger is installed, and then things break one by one. Each must be found by one of two commands, in a sentence
 * that names it. What the commands say is the table.
 */
const POLICIES = policyFile(
  clusterPolicy('base', { mode: 'Enforce', ...fixedWait('5s') }),
  clusterPolicy('hold', {
    namespaceSelector: { matchLabels: { waiting: 'hold' } },
    hook: 'Hold',
    hold: { min: '1s', max: '20s' },
  }),
);
const FLAGS = ['--canary-every=0', '--audit-every=15s'];
/** Controllers, watches and kubelets bring it there; the ConfigMap of policies takes longest. */
const FOUND_WITHIN_MS = 90_000;

/** Words of `linger`, unless the first is kubectl. */
type Command = readonly string[];

interface Thing {
  readonly name: string;
  readonly wreck: () => Promise<unknown>;
  /** The first that says it counts. */
  readonly commands: readonly [Command, Command?];
  readonly says: RegExp;
  /** Default: {@link FOUND_WITHIN_MS}. */
  readonly withinMs?: number;
  readonly mend: () => Promise<unknown>;
}

let cluster: Cluster;
let installation: Installation | undefined;
let day = '';
let held = '';
const scratch = mkdtempSync(join(tmpdir(), 'linger-day-'));

beforeAll(async () => {
  cluster = await openCluster();
  if (!cluster.own || !LONG) return;
  installation = await Installation.create(cluster, { policies: POLICIES, flags: FLAGS });
  day = await cluster.namespace('day');
  held = await cluster.namespace('held', { waiting: 'hold' });
  await untilPlanned(cluster, held, ({ hook }) => hook === 'Hold', { labels: { app: 'web' } });
  for (const namespace of [day, held]) {
    await cluster.create(applicationService({ namespace, name: 'web' }));
    await cluster.create(applicationDeployment({ namespace, name: 'web', replicas: 1 }));
    await kubectl('--namespace', namespace, 'rollout', 'status', 'deployment/web', '--timeout=100s');
  }
}, 400_000);

afterAll(async () => {
  // In the middle of a thing that has not been mended, its objects are not all there.
  await installation?.remove().catch((error: Error) => console.log(error.message));
  await cluster?.close();
  rmSync(scratch, { recursive: true });
}, 240_000);

const kubectl = (...args: string[]) => cluster.mustKubectl(args, { timeoutMs: 120_000 });
const inLinger = (...args: string[]) => kubectl('--namespace', 'linger', ...args);
const deployed = (file: string) => kubectl('apply', '--filename', join(ROOT, 'deploy', file));
const json = (value: unknown) => JSON.stringify(value);

async function run(command: Command): Promise<string> {
  const [program = '', ...args] = command;
  if (program === 'kubectl') {
    const { stdout, stderr } = await cluster.kubectl(args);
    return stdout + stderr;
  }
  const kubeconfig = command.includes('--kubeconfig') ? [] : ['--kubeconfig', cluster.kubeconfig];
  const { stdout, stderr } = await shipped([...command, ...kubeconfig]);
  return stdout + stderr;
}

async function untilMutating(): Promise<void> {
  await waitUntil('a pod to be mutated', async () => {
    const made = await cluster.create<Parameters<typeof planOf>[0]>(pod(day, 'tried', {}), { dryRun: true });
    return planOf(made) !== undefined;
  });
}

const CHECK = ['check'] as const;
const LEASE = {
  apiVersion: 'coordination.k8s.io/v1',
  kind: 'Lease',
  metadata: { namespace: 'linger', name: 'linger' },
};

function patchDeployment(spec: unknown) {
  return inLinger('patch', 'deployment', 'linger', '--type=strategic', '--patch', json({ spec }));
}

const rolledOut = () => inLinger('rollout', 'status', 'deployment/linger', '--timeout=100s');

/** The shipped policy denies it until the operator says that no pod uses it. */
async function deleteHoldService(): Promise<void> {
  await inLinger('annotate', 'service', 'linger-hold', 'linger.dev/unused=true');
  await inLinger('delete', 'service', 'linger-hold');
}

function things(): readonly Thing[] {
  let node: FakeNode | undefined;
  let ghost: NodeJS.Timeout | undefined;
  const foreign = Buffer.from('-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n').toString(
    'base64',
  );
  const unreachable = join(scratch, 'unreachable');
  const clamp = [
    {
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: 'MutatingAdmissionPolicy',
      metadata: { name: 'clamp' },
      spec: {
        matchConstraints: {
          resourceRules: [
            { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] },
          ],
          namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': day } },
        },
        reinvocationPolicy: 'IfNeeded',
        mutations: [
          {
            patchType: 'ApplyConfiguration',
            applyConfiguration: { expression: 'Object{spec: Object.spec{terminationGracePeriodSeconds: 3}}' },
          },
        ],
      },
    },
    {
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: 'MutatingAdmissionPolicyBinding',
      metadata: { name: 'clamp' },
      spec: { policyName: 'clamp' },
    },
  ];
  const consumer = {
    apiVersion: 'linger.dev/v1alpha1',
    kind: 'DiscoveryConsumer',
    metadata: { name: 'edge' },
    spec: {
      measure: { inspect: { url: `http://${cluster.nodeAddress}:1/`, format: 'Text', syncInterval: '1s' } },
    },
  };
  const greedy = applicationDeployment({
    namespace: day,
    name: 'greedy',
    replicas: 1,
    container: { lifecycle: { preStop: { exec: { command: ['sleep', '60'] } } } },
  });
  return [
    {
      name: 'a replica of Linger is scaled down, and keeps answering while it drains',
      wreck: async () => {
        await patchDeployment({ replicas: 3 });
        await rolledOut();
        await patchDeployment({ replicas: 2 });
        const label = 'app.kubernetes.io/name=linger';
        const replicas = () => cluster.list({ apiVersion: 'v1', kind: 'Pod', namespace: 'linger' }, label);
        const options = { timeoutMs: 120_000, intervalMs: 500 };
        await waitUntil('the third replica to be gone', async () => (await replicas()).length === 2, options);
      },
      commands: [['audit', '--since', '10m', '--namespace', 'linger']],
      says: /^0 of [1-9]\d* pods? that ended in the last 10m may have lost requests.*/,
      mend: async () => undefined,
    },
    {
      name: 'the webhook configuration is deleted',
      wreck: () => kubectl('delete', 'mutatingwebhookconfiguration', 'linger'),
      commands: [['status']],
      says: /^New pods get no hook at this moment: there is no MutatingWebhookConfiguration linger; .*/,
      mend: async () => {
        await deployed('webhook.yaml');
        await untilMutating();
      },
    },
    {
      name: 'its caBundle is another authority’s, and Linger may not put it back',
      wreck: async () => {
        await kubectl('delete', 'clusterrolebinding', 'linger-certificates');
        const patch = [{ op: 'replace', path: '/webhooks/0/clientConfig/caBundle', value: foreign }];
        await kubectl(
          'patch',
          'mutatingwebhookconfiguration',
          'linger',
          '--type=json',
          '--patch',
          json(patch),
        );
      },
      commands: [CHECK],
      says: /.*(does not match the certificate|has no caBundle).*/,
      mend: async () => {
        await deployed('role-certificates.yaml');
        await untilMutating();
      },
    },
    {
      name: 'the Secret of the certificate is deleted, and Linger may not make it',
      wreck: async () => {
        await inLinger('delete', 'rolebinding', 'linger-certificates');
        await inLinger('delete', 'secret', 'linger-certificates');
      },
      commands: [CHECK],
      says: /there is no Secret linger\/linger-certificates.*/,
      mend: async () => {
        await deployed('role-certificates.yaml');
        const secret = {
          apiVersion: 'v1',
          kind: 'Secret',
          metadata: { namespace: 'linger', name: 'linger-certificates' },
        };
        await waitUntil('the Secret', async () => (await cluster.get(secret)) !== undefined, {
          timeoutMs: 120_000,
        });
        await untilMutating();
      },
    },
    {
      name: 'a right is taken away',
      wreck: () => kubectl('delete', 'clusterrolebinding', 'linger-audit'),
      commands: [CHECK],
      says: /ServiceAccount linger\/linger may not .*audit fails or is incomplete/,
      mend: () => deployed('rbac-audit.yaml'),
    },
    {
      name: 'a NetworkPolicy cuts egress',
      wreck: () =>
        inLinger(
          'patch',
          'networkpolicy',
          'linger',
          '--type=merge',
          '--patch',
          json({ spec: { egress: [] } }),
        ),
      commands: [CHECK],
      says: /NetworkPolicy .* blocks egress to port 6443.*/,
      mend: () => deployed('networkpolicy.yaml'),
    },
    {
      name: 'a kind of node joins on which the helper of Hold cannot run',
      wreck: async () => {
        node = await FakeNode.start(cluster.api, 'node-1');
        const status = { nodeInfo: { architecture: 's390x' }, allocatable: { pods: '10' } };
        const body = { status };
        const contentType = 'application/merge-patch+json';
        await cluster.api.call('PATCH', `/api/v1/nodes/${node.name}/status`, { body, contentType });
        // It stays Pending: what it is given is decided when it is created.
        await untilPlanned(cluster, held, ({ hook }) => hook !== 'Hold', { labels: { app: 'web' } });
        const spec = { schedulerName: 'none', containers: [appContainer('app')] };
        await cluster.create(pod(held, 'newcomer', spec, { labels: { app: 'web' } }));
      },
      commands: [
        ['explain', 'pod/newcomer', '--namespace', held],
        ['kubectl', '--namespace', held, 'get', 'events'],
      ],
      says: /.*(HoldUnavailable|s390x).*/,
      mend: async () => {
        await kubectl('--namespace', held, 'delete', 'pod', 'newcomer', '--grace-period=0', '--force');
        await node?.remove();
      },
    },
    {
      name: 'a node joins that says no architecture: pods keep Hold',
      wreck: async () => {
        node = await FakeNode.start(cluster.api);
        // Until every replica has seen it.
        await sleep(5_000);
        const spec = { schedulerName: 'none', containers: [appContainer('app')] };
        await cluster.create(pod(held, 'newcomer', spec, { labels: { app: 'web' } }));
      },
      commands: [['explain', 'pod/newcomer', '--namespace', held, '-o', 'json']],
      says: /"hook": ?"Hold"/,
      mend: async () => {
        await kubectl('--namespace', held, 'delete', 'pod', 'newcomer', '--grace-period=0', '--force');
        await node?.remove();
      },
    },
    {
      name: 'the ConfigMap of the helper is deleted, and Linger may not bring it',
      wreck: async () => {
        await kubectl('delete', 'clusterrolebinding', 'linger-hold-delivery');
        const maps = await cluster.list({ apiVersion: 'v1', kind: 'ConfigMap', namespace: held });
        const [helper] = maps.filter(({ metadata }) => /^linger-hold/.test(metadata.name));
        const name = helper?.metadata.name ?? '';
        const none = json({ metadata: { finalizers: null } });
        await kubectl('--namespace', held, 'patch', 'configmap', name, '--type=merge', '--patch', none);
        // The shipped policy denies it until the operator says that no pod uses it.
        await kubectl('--namespace', held, 'annotate', 'configmap', name, 'linger.dev/unused=true');
        await kubectl('--namespace', held, 'delete', 'configmap', name);
      },
      commands: [CHECK],
      says: /ConfigMap \S+ is missing in 1 namespace .*/,
      mend: async () => undefined,
    },
    {
      name: 'and the right is given back: the helper comes',
      wreck: () => deployed('rbac-hold.yaml'),
      commands: [['kubectl', '--namespace', held, 'get', 'configmaps']],
      says: /linger-hold-\S+.*/,
      withinMs: 30_000,
      mend: async () => {
        await untilPlanned(cluster, held, ({ hook }) => hook === 'Hold', { labels: { app: 'web' } });
      },
    },
    {
      name: 'a policy has a field that does not exist',
      wreck: () =>
        inLinger(
          ...['patch', 'configmap', 'linger-policies', '--type=merge', '--patch'],
          json({ data: { 'bad.yaml': policyFile(clusterPolicy('bad', { wait: { maximum: '5s' } })) } }),
        ),
      commands: [CHECK],
      says: /not in force: .*maximum.*/,
      mend: () =>
        inLinger(
          'patch',
          'configmap',
          'linger-policies',
          '--type=json',
          '--patch',
          json([{ op: 'remove', path: '/data/bad.yaml' }]),
        ),
    },
    {
      name: 'an annotation does not parse',
      wreck: async () => undefined,
      commands: [
        [
          ...['kubectl', '--namespace', day, 'patch', 'deployment', 'web', '--type=merge', '--patch'],
          json({ spec: { template: { metadata: { annotations: { 'linger.dev/wait': '5 apples' } } } } }),
        ],
      ],
      says: /annotation linger\.dev\/wait: expected a duration.*/,
      mend: async () => undefined,
    },
    {
      name: 'a policy of others cuts graces',
      wreck: async () => {
        for (const object of clamp) await cluster.create(object as NewObject);
      },
      commands: [
        ['audit', '--namespace', day],
        ['audit', '--namespace', day, '--server-dry-run'],
      ],
      says: /.*WaitShrunk.*/,
      mend: async () => {
        for (const { kind } of clamp) await kubectl('delete', kind, 'clamp');
      },
    },
    {
      name: 'the URL of a consumer leads nowhere',
      wreck: async () => {
        await cluster.create(consumer as NewObject);
        await kubectl('--namespace', day, 'delete', 'pods', '--selector=app=web', '--wait=false');
      },
      commands: [CHECK, ['status']],
      says: /edge: \w+.*/,
      mend: () => kubectl('delete', 'discoveryconsumer', 'edge'),
    },
    {
      name: 'the Lease is held by nobody',
      wreck: async () => {
        const hold = () => {
          const renewTime = new Date().toISOString().replace('Z', '000Z');
          return cluster.patch(LEASE, {
            spec: { holderIdentity: 'ghost_1', renewTime, leaseDurationSeconds: 60 },
          });
        };
        await hold();
        ghost = setInterval(() => void hold().catch(() => undefined), 500);
      },
      commands: [CHECK],
      says: /ghost_1 leads, .*is not a pod of this installation/,
      mend: async () => clearInterval(ghost),
    },
    {
      name: 'the API server cannot be reached',
      wreck: async () => {
        const clusters = [{ name: 'x', cluster: { server: `https://${cluster.nodeAddress}:1` } }];
        const contexts = [{ name: 'x', context: { cluster: 'x', user: 'x' } }];
        const users = [{ name: 'x', user: {} }];
        const kubeconfig = {
          apiVersion: 'v1',
          kind: 'Config',
          clusters,
          contexts,
          users,
          'current-context': 'x',
        };
        writeFileSync(unreachable, json(kubeconfig));
      },
      commands: [['check', '--kubeconfig', unreachable]],
      says: /.*(ECONNREFUSED|cannot be reached|unreachable).*/,
      mend: async () => undefined,
    },
    {
      name: 'a namespace is labelled so that the webhook is not asked about it',
      wreck: () => kubectl('label', 'namespace', day, 'linger.dev/inject=false'),
      commands: [
        ['explain', 'deployment/web', '--namespace', day],
        ['audit', '--namespace', day],
      ],
      says: /.*(NotAsked|OptedOut|NotSelected|opts? out|linger\.dev\/inject).*/,
      mend: () => kubectl('label', 'namespace', day, 'linger.dev/inject-'),
    },
    {
      name: 'a preStop hook is longer than the grace',
      wreck: () => cluster.create(greedy),
      commands: [['audit', '--namespace', day]],
      says: /.*(GraceEaten|HookEatsGrace).*/,
      mend: () => cluster.delete(greedy),
    },
    {
      name: 'Linger is scaled to nothing',
      wreck: () => patchDeployment({ replicas: 0 }),
      commands: [['status']],
      says: /^New pods get no hook at this moment: the Deployment linger is scaled to 0 replicas; .*/,
      mend: async () => {
        await patchDeployment({ replicas: 2 });
        await rolledOut();
      },
    },
    {
      name: 'its image does not exist',
      wreck: () => inLinger('set', 'image', 'deployment/linger', 'linger=registry.example/linger:none'),
      commands: [CHECK],
      says: /2 of 2 ready.* an update is stuck; .*(ErrImagePull|ImagePullBackOff).*/,
      mend: async () => {
        await inLinger('rollout', 'undo', 'deployment/linger');
        await rolledOut();
      },
    },
    {
      name: 'its Service selects nothing',
      wreck: () =>
        inLinger(
          'patch',
          'service',
          'linger',
          '--type=merge',
          '--patch',
          json({ spec: { selector: { app: 'none' } } }),
        ),
      commands: [CHECK],
      says: /Service linger\/linger has no ready endpoint.*/,
      mend: () =>
        inLinger(
          'patch',
          'service',
          'linger',
          '--type=merge',
          '--patch',
          json({ spec: { selector: { app: null } } }),
        ),
    },
    {
      name: 'the Hold Service is deleted',
      wreck: deleteHoldService,
      commands: [CHECK],
      says: /there is no Service linger\/linger-hold: .*/,
      mend: async () => undefined,
    },
    {
      name: 'and applied again: it has another address',
      wreck: () => deployed('service-hold.yaml'),
      commands: [['audit', '--namespace', held]],
      says: /.*HoldUnreached: .*they call .*, and the Hold Service is at .*/,
      mend: async () => {
        await kubectl('--namespace', held, 'rollout', 'restart', 'deployment/web');
        await kubectl('--namespace', held, 'rollout', 'status', 'deployment/web', '--timeout=100s');
      },
    },
  ];
}

interface Finding {
  readonly thing: string;
  readonly command: string;
  readonly sentence: string | undefined;
}

async function find({
  name,
  wreck,
  commands,
  says,
  withinMs = FOUND_WITHIN_MS,
  mend,
}: Thing): Promise<Finding> {
  console.log(`${new Date().toISOString()} ${name}`);
  await wreck();
  let said: string[] = [];
  const look = async () => {
    said = [];
    for (const command of commands) {
      if (command === undefined) continue;
      const text = await run(command);
      said.push(text);
      const [sentence] = says.exec(text) ?? [];
      if (sentence === undefined) continue;
      const words = command[0] === 'kubectl' ? command : ['linger', ...command];
      return {
        thing: name,
        command: words.join(' ').replaceAll(day, 'day').replaceAll(held, 'held'),
        sentence: sentence.trim(),
      };
    }
    return undefined;
  };
  const options = { timeoutMs: withinMs, intervalMs: 3_000 };
  const found = await waitUntil(name, look, options).catch(() => undefined);
  if (found === undefined) console.log(`not found: ${name}\n${said.join('\n')}`);
  await mend();
  await untilMutating();
  return found ?? { thing: name, command: '', sentence: undefined };
}

const OWN = await (async () => {
  const opened = await openCluster();
  await opened.close();
  return opened.own;
})();

describe.runIf(LONG && OWN)('an operator’s day', () => {
  it('whatever breaks is found within two commands', { timeout: 3_000_000 }, async () => {
    const findings: Finding[] = [];
    for (const thing of things()) findings.push(await find(thing));
    const rows = findings.map(({ thing, command, sentence = '**not found**' }) => [
      thing,
      `\`${command}\``,
      sentence.replaceAll('|', '\\|').slice(0, 300),
    ]);
    console.log(table(['what breaks', 'command', 'what it says'], rows));
    expect(findings.filter(({ sentence }) => sentence === undefined).map(({ thing }) => thing)).toEqual([]);
    expect(findings.length).toBeGreaterThanOrEqual(16);
  });
});
