import { readFileSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse, parseAllDocuments } from 'yaml';
import type { AuditReport } from '../../src/core/judge/index.ts';
import { emptyDirectory, shipped as linger } from '../cli/linger.ts';
import { Linger } from '../cluster-suite/support/linger.ts';
import {
  appContainer,
  type Json,
  manifestText,
  type PodObject,
  pod,
  preStop,
} from '../cluster-suite/support/manifests.ts';
import { createPod, hookOf, planOf, summaryOf } from '../cluster-suite/support/outcome.ts';
import { clusterPolicy, fixedWait, policyFile } from '../cluster-suite/support/policies.ts';
import type { WebhookConfiguration } from '../cluster-suite/support/registration.ts';
import { openStage, type Stage } from '../cluster-suite/support/stage.ts';
import { blocksOf } from '../docs/markdown.ts';
import { ensureKyverno, kyvernoManifests } from '../testbed/binaries.ts';
import { type KubernetesObject, type NewObject, waitUntil } from '../testbed/cluster.ts';
import { imageArchive } from '../testbed/image.ts';
import { clusterSettings } from '../testbed/settings.ts';
import {
  applicationDeployment,
  applicationService,
  type DeploymentObject,
  isRolledOut,
} from '../testbed/workloads.ts';
import { atEndOfFile } from '../webhook/connection.ts';
import { LONG } from './form.ts';

/* Kyverno as it is built from its module and installed by its manifests: the controllers of admission and of reports. */

const IMAGE = 'linger.test/kyverno:1';
const IN_SYSTEM = ['--namespace', 'kyverno'];
const PROGRAMS: Readonly<Record<string, string>> = {
  'kyverno-admission-controller': 'kyverno',
  'kyverno-reports-controller': 'reports-controller',
};
const WAIT = 5;
/** What policies set. */
const GRACE = 20;
const CONFIGURATIONS = ['mutatingwebhookconfigurations', 'validatingwebhookconfigurations'];

const LINGER = {
  apiVersion: 'admissionregistration.k8s.io/v1',
  kind: 'MutatingWebhookConfiguration',
  metadata: { name: 'linger' },
};
const REPORT = { apiVersion: 'wgpolicyk8s.io/v1alpha2', kind: 'PolicyReport' };

interface PolicyReport extends KubernetesObject {
  readonly results?: readonly { readonly policy: string; readonly result: string }[];
}

const atEnd = atEndOfFile();
let stage: Stage;
let manifests = '';
let policies = '';

/** Its manifests, with our image, and without the controllers that have no part in the creation of pods. */
async function kyverno(): Promise<string> {
  const documents = parseAllDocuments(readFileSync(await kyvernoManifests(), 'utf8'));
  const objects = documents.flatMap((document) => {
    if (document.get('kind') !== 'Deployment') return document.toJS() as Json;
    const program = PROGRAMS[String(document.getIn(['metadata', 'name']))];
    if (program === undefined) return [];
    const podSpec = ['spec', 'template', 'spec'];
    // It removed what versions before this one left behind, and has nothing left to remove.
    document.deleteIn([...podSpec, 'initContainers']);
    const container = [...podSpec, 'containers', 0];
    document.setIn([...container, 'image'], IMAGE);
    document.setIn([...container, 'imagePullPolicy'], 'Never');
    document.setIn([...container, 'command'], [`/${program}`]);
    return document.toJS() as Json;
  });
  return manifestText(objects);
}

const kubectl = (...args: string[]) => stage.cluster.mustKubectl(args, { timeoutMs: 200_000 });

beforeAll(async () => {
  if (!LONG) return;
  const policy = clusterPolicy('base', { mode: 'Enforce', ...fixedWait(`${WAIT}s`) });
  policies = policyFile(policy);
  stage = await openStage(() => policies);
  const { cluster } = stage;
  if (!cluster.own) return;
  const directory = await ensureKyverno(clusterSettings().cacheDir, console.log);
  const files = Object.values(PROGRAMS).map((program) => ({
    path: `/${program}`,
    mode: 0o755,
    content: readFileSync(join(directory, program)),
  }));
  await cluster.importImages(imageArchive([{ reference: IMAGE, files, user: '65534:65534' }]));
  manifests = await kyverno();
  await cluster.mustKubectl(['apply', '--server-side', '--filename', '-'], {
    stdin: manifests,
    timeoutMs: 120_000,
  });
  for (const name of Object.keys(PROGRAMS))
    await kubectl('rollout', 'status', `deployment/${name}`, ...IN_SYSTEM, '--timeout=180s');
}, 600_000);

afterAll(async () => {
  if (manifests !== '') {
    // First what asks it about every object, its own included.
    await kubectl('delete', 'deployments', '--all', ...IN_SYSTEM, '--wait');
    for (const kind of CONFIGURATIONS)
      await kubectl('delete', kind, '--selector', 'webhook.kyverno.io/managed-by=kyverno');
    const remove = ['delete', '--ignore-not-found', '--filename', '-'];
    await stage.cluster.mustKubectl(remove, { stdin: manifests, timeoutMs: 180_000 });
  }
  await stage?.close();
}, 400_000);

const checkedIn = (namespace: string) =>
  linger(['check', '--pre', '--namespace', namespace, '--kubeconfig', stage.cluster.kubeconfig]);

/** A policy of one rule for the pods of a namespace. */
function ruleFor(namespace: string, name: string, rule: Json): NewObject {
  const match = { any: [{ resources: { kinds: ['Pod'], namespaces: [namespace] } }] };
  const object = {
    apiVersion: 'kyverno.io/v1',
    kind: 'ClusterPolicy',
    metadata: { name: `${name}-${namespace}` },
    spec: { rules: [{ name, match, ...rule }] },
  };
  return object;
}

const setGrace = (seconds: number) => ({
  mutate: { patchStrategicMerge: { spec: { terminationGracePeriodSeconds: seconds } } },
});

/** The documented exclusion of pods that have a plan. */
function documented(field: string): Json {
  const found = blocksOf('docs/reference/operations.md').find(({ text }) => text.startsWith(`${field}:`));
  return parse(found?.text ?? '') as Json;
}

/** Sets the grace with a MutatingPolicy, the newer kind of policy. */
function graceByMutatingPolicy(namespace: string, seconds: number, more: Json = {}): NewObject {
  const object = {
    apiVersion: 'policies.kyverno.io/v1',
    kind: 'MutatingPolicy',
    metadata: { name: `grace-${namespace}` },
    spec: {
      matchConstraints: {
        namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
        resourceRules: [
          { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] },
        ],
      },
      mutations: [
        {
          patchType: 'ApplyConfiguration',
          applyConfiguration: {
            expression: `Object{spec: Object.spec{terminationGracePeriodSeconds: ${seconds}}}`,
          },
        },
      ],
      ...more,
    },
  };
  return object;
}

const NO_HOOKS = {
  mutate: {
    foreach: [
      {
        list: 'request.object.spec.containers',
        preconditions: {
          all: [{ key: "{{ element.lifecycle.preStop || '' }}", operator: 'NotEquals', value: '' }],
        },
        patchesJson6902: '- {op: remove, path: "/spec/containers/{{elementIndex}}/lifecycle"}',
      },
    ],
  },
};

const graceUpTo = (seconds: number, failureAction: string) => ({
  validate: {
    failureAction,
    message: `a grace is ${seconds} s at most`,
    pattern: { spec: { terminationGracePeriodSeconds: `<=${seconds}` } },
  },
});

const NO_PRE_STOP = {
  validate: {
    failureAction: 'Enforce',
    message: 'no hooks here',
    pattern: { spec: { containers: [{ 'X(lifecycle)': 'null' }] } },
  },
};

/** A pod as an author writes it. */
const plainPod = (namespace: string, annotations: Readonly<Record<string, string>> = {}) =>
  pod(namespace, 'app', {}, { labels: { app: 'app' }, annotations });

/** Creates the policy, and waits until it acts: `acts` sees what becomes of a pod without a wait. */
async function enact(policy: NewObject, namespace: string, acts: (pod: PodObject | undefined) => boolean) {
  const { cluster } = stage;
  // Its Service takes a moment after its pods are ready.
  await waitUntil('Kyverno to take the policy', () => cluster.create(policy));
  const author = appContainer('app', preStop({ exec: { command: ['true'] } }));
  const without = { containers: [author], terminationGracePeriodSeconds: 600 };
  const probe = pod(namespace, 'probe', without, { annotations: { 'linger.dev/inject': 'false' } });
  await waitUntil('Kyverno to follow the policy', async () => {
    const { status, body } = await cluster.tryCreate<PodObject>(probe, { dryRun: true });
    return acts(status < 300 ? body : undefined);
  });
}

async function policyPath(): Promise<string> {
  const file = join(await emptyDirectory(atEnd), 'policies.yaml');
  await writeFile(file, policies);
  return file;
}

const cutBy = (kind: string, namespace: string) =>
  `with a grace of ${GRACE} s instead of 90 s: ${kind} grace-${namespace} changes it`;

/** A rule that gives each container a hook. */
async function enactHook(namespace: string, key: string): Promise<void> {
  const container = { '(name)': '*', [key]: { preStop: { exec: { command: ['sleep', '3'] } } } };
  const mutate = { patchStrategicMerge: { spec: { containers: [container] } } };
  await enact(ruleFor(namespace, 'hook', { mutate }), namespace, () => true);
  const bare = pod(namespace, 'bare', {}, { annotations: { 'linger.dev/inject': 'false' } });
  await waitUntil('Kyverno to give it', async () => {
    const { spec } = await stage.cluster.create<PodObject>(bare, { dryRun: true });
    return spec.containers[0]?.lifecycle !== undefined;
  });
}

const graceOf = ({ spec }: PodObject) => spec.terminationGracePeriodSeconds;
const cutTo = (seconds: number) => (object: PodObject | undefined) =>
  object !== undefined && graceOf(object) === seconds;
const isRefused = (object: PodObject | undefined) => object === undefined;

describe.runIf(LONG)('beside Kyverno', { timeout: 180_000 }, () => {
  const KINDS = {
    ClusterPolicy: {
      field: 'exclude',
      policy: (namespace: string, more: Json = {}) =>
        ruleFor(namespace, 'grace', { ...setGrace(GRACE), ...more }),
    },
    MutatingPolicy: {
      field: 'matchConditions',
      policy: (namespace: string, more: Json = {}) => graceByMutatingPolicy(namespace, GRACE, more),
    },
  };

  it('whose ClusterPolicy sets the grace, and is asked again: the wait shrinks, and check names it', async () => {
    const namespace = await stage.cluster.namespace('kyverno');
    await enact(KINDS.ClusterPolicy.policy(namespace), namespace, cutTo(GRACE));
    const outcome = await createPod(stage, plainPod(namespace));
    expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 2; grace 20');
    expect(planOf(outcome.pod)).toMatchObject({ wait: 2, grace: GRACE, baseGrace: GRACE });
    expect((await checkedIn(namespace)).stdout).toContain(cutBy('ClusterPolicy', namespace));
  });

  it('whose MutatingPolicy sets the grace, and is not asked again: the wait is added, and check says so', async () => {
    const namespace = await stage.cluster.namespace('kyverno');
    await enact(KINDS.MutatingPolicy.policy(namespace), namespace, cutTo(GRACE));
    const outcome = await createPod(stage, plainPod(namespace));
    expect(summaryOf(outcome)).toBe('Injected: app sleep 5; grace 25');
    expect(planOf(outcome.pod)).toMatchObject({ wait: WAIT, grace: 25, baseGrace: GRACE });
    const { stdout } = await checkedIn(namespace);
    expect(stdout).toMatch(/ok .*with a grace of 20 s instead of 90 s: what changes it comes before Linger/);
  });

  it.each(Object.keys(KINDS) as (keyof typeof KINDS)[])(
    'whose %s excludes pods with a plan, as documented: the wait is added',
    async (kind) => {
      const namespace = await stage.cluster.namespace('kyverno');
      const { field, policy } = KINDS[kind];
      await enact(policy(namespace, documented(field)), namespace, cutTo(GRACE));
      const outcome = await createPod(stage, plainPod(namespace));
      expect(summaryOf(outcome)).toMatch(/^Injected(, then AlreadyInjected)?: app sleep 5; grace 25$/);
      expect((await checkedIn(namespace)).stdout).toMatch(/with a hook of .*with hook and grace unchanged/);
    },
  );

  it.each([
    ['excluding them: explain and audit say what they got', documented('exclude'), 30, 5, 25, 'Injected'],
    ['and its Deployment: audit names it', {}, GRACE, 2, GRACE, 'WaitShrunk'],
  ] as const)('that changes the pods of a Deployment, %s', async (_, more, written, wait, grace, reason) => {
    const { cluster } = stage;
    const namespace = await cluster.namespace('kyverno');
    await enact(KINDS.ClusterPolicy.policy(namespace, more), namespace, cutTo(GRACE));
    const application = { namespace, name: 'web', replicas: 2 };
    const deployment = applicationDeployment(application);
    const { spec } = await cluster.create<{ spec: { template: PodObject } }>(deployment);
    // Kyverno derives no rule for Deployments from one that excludes annotations.
    expect(graceOf(spec.template)).toBe(written);
    await cluster.create(applicationService(application));
    await cluster.waitFor<DeploymentObject>(deployment, (each) => isRolledOut(each, 2));
    const pods = await cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=web');
    for (const each of pods) expect(planOf(each)).toMatchObject({ wait, grace, baseGrace: GRACE });

    const place = ['--kubeconfig', cluster.kubeconfig, '--namespace', namespace];
    const known = [...place, '--policies', await policyPath(), '-o', 'json'];
    const explained = await linger(['explain', 'deployment/web', ...known]);
    const { plans } = JSON.parse(explained.stdout) as { plans: readonly object[] };
    expect(plans).toMatchObject([
      { outcome: 'inject', waitSeconds: WAIT, live: { pods: 2, withoutPlan: 0, plans: [{ wait, grace }] } },
    ]);
    const audited = await linger(['audit', ...known, '--server-dry-run']);
    const { findings } = JSON.parse(audited.stdout) as AuditReport;
    expect(findings).toMatchObject([{ kind: 'Deployment', reason, waitSeconds: wait }]);
    if (reason === 'WaitShrunk') expect(findings[0]?.text).toContain(`ClusterPolicy grace-${namespace} cuts`);
  });

  it('that is asked after Linger: the wait shrinks, or goes where it gives a hook, and check names it', async () => {
    const { cluster } = stage;
    const name = 'a-linger';
    const { webhooks } = (await cluster.get<WebhookConfiguration>(LINGER))!;
    await cluster.create({ ...LINGER, metadata: { name }, webhooks } as NewObject);
    await cluster.delete(LINGER);
    try {
      const namespace = await cluster.namespace('kyverno');
      await enact(KINDS.MutatingPolicy.policy(namespace), namespace, cutTo(GRACE));
      const outcome = await createPod(stage, plainPod(namespace));
      expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 2; grace 20');
      expect((await checkedIn(namespace)).stdout).toContain(cutBy('MutatingPolicy', namespace));

      const excluding = await cluster.namespace('kyverno');
      const policy = KINDS.ClusterPolicy.policy(excluding, documented('exclude'));
      await enact(policy, excluding, cutTo(GRACE));
      expect(summaryOf(await createPod(stage, plainPod(excluding)))).toMatch(/: app sleep 5; grace 35$/);

      const hooked = await cluster.namespace('kyverno');
      await enactHook(hooked, 'lifecycle');
      expect(summaryOf(await createPod(stage, plainPod(hooked)))).toBe(
        'Injected, then ExistingHook: app ["sleep","3"]; grace 35',
      );
    } finally {
      await cluster.create({ ...LINGER, webhooks } as NewObject);
      await cluster.delete({ ...LINGER, metadata: { name } });
    }
  });

  it('whose rule removes hooks: they are put back', async () => {
    const namespace = await stage.cluster.namespace('kyverno');
    await enact(
      ruleFor(namespace, 'hooks', NO_HOOKS),
      namespace,
      (object) => object?.spec.containers[0]?.lifecycle === undefined && object !== undefined,
    );
    expect(summaryOf(await createPod(stage, plainPod(namespace)))).toBe(
      'Injected, then Injected: app sleep 5; grace 35',
    );
    expect((await checkedIn(namespace)).stdout).toContain(
      `without its hook: ClusterPolicy hooks-${namespace} changes it`,
    );
  });

  it.each([
    ['that have none', '+(lifecycle)'],
    ['whatever they have', 'lifecycle'],
  ])('whose rule gives a hook to containers %s: it is kept, as an author’s', async (_, key) => {
    const namespace = await stage.cluster.namespace('kyverno');
    await enactHook(namespace, key);
    const outcome = await createPod(stage, plainPod(namespace));
    expect(summaryOf(outcome)).toBe('ExistingHook: app ["sleep","3"]; grace 30');
  });

  it('that allows no longer grace: it is named, and grace.max keeps the pods', async () => {
    const { cluster } = stage;
    const namespace = await cluster.namespace('kyverno');
    await enact(ruleFor(namespace, 'longest', graceUpTo(34, 'Enforce')), namespace, isRefused);
    const refusal = await cluster.tryCreate(plainPod(namespace), { dryRun: true });
    expect(JSON.stringify(refusal.body)).toContain('a grace is 34 s at most');
    const checked = await checkedIn(namespace);
    expect(checked.stdout).toMatch(/is rejected in .*policies longest-.*a grace is 34 s at most/);

    const application = { namespace, name: 'web', replicas: 1 };
    await cluster.create(applicationDeployment(application));
    await cluster.create(applicationService(application));
    const place = ['--kubeconfig', cluster.kubeconfig, '--namespace', namespace];
    const known = [...place, '--policies', await policyPath(), '-o', 'json'];
    const audited = await linger(['audit', ...known, '--server-dry-run']);
    const { findings } = JSON.parse(audited.stdout) as AuditReport;
    expect(findings).toContainEqual(
      expect.objectContaining({ reason: 'PatchRefused', text: expect.stringContaining('a grace is 34 s') }),
    );

    const policy = { mode: 'Enforce', ...fixedWait(`${WAIT}s`), grace: { max: '34s' } };
    await stage.linger.setPolicies(policyFile(clusterPolicy('base', policy)));
    expect(summaryOf(await createPod(stage, plainPod(namespace)))).toMatch(/: app sleep 4; grace 34$/);
    await stage.linger.setPolicies(policies);
  });

  it('that forbids hooks: it is named, and a pod that opts out is accepted', async () => {
    const { cluster } = stage;
    const namespace = await cluster.namespace('kyverno');
    await enact(ruleFor(namespace, 'forbidden', NO_PRE_STOP), namespace, isRefused);
    const refusal = await cluster.tryCreate(plainPod(namespace), { dryRun: true });
    expect(JSON.stringify(refusal.body)).toContain('no hooks here');
    const checked = await checkedIn(namespace);
    expect(checked.stdout).toMatch(/is rejected in .*policies forbidden-.*no hooks here/);
    const out = plainPod(namespace, { 'linger.dev/inject': 'false' });
    expect(summaryOf(await createPod(stage, out))).toBe('OptedOut: app -; grace 30');
  });

  it('that only reports on graces: the pods keep theirs, and both write their reports', async () => {
    const { cluster } = stage;
    const namespace = await cluster.namespace('kyverno');
    await cluster.create(ruleFor(namespace, 'longest', graceUpTo(34, 'Audit')));
    const home = await cluster.namespace('linger-reports');
    const flags = {
      'audit-every': '1s',
      'policy-reports': 'wgpolicyk8s.io',
      'hold-port': '0',
      'canary-every': '0',
    };
    const { kubeconfig, nodeAddress: host } = cluster;
    const directory = await emptyDirectory(atEnd);
    const replica = await Linger.start({ host, kubeconfig, directory, namespace: home, flags, policies: '' });
    try {
      const deployment = applicationDeployment({ namespace, name: 'web', replicas: 1 });
      const spec = { ...deployment.spec, strategy: { type: 'Recreate' } };
      await cluster.create({ ...deployment, spec } as NewObject);
      await cluster.create(applicationService({ namespace, name: 'web' }));
      const reports = async () => {
        const found = await cluster.list<PolicyReport>({ ...REPORT, namespace });
        return found.flatMap(({ metadata, results = [] }) =>
          results.map(({ policy, result }) => `${metadata.name === 'linger' ? 'linger' : policy} ${result}`),
        );
      };
      await waitUntil(
        'both reports',
        async () => {
          const found = await reports();
          return (
            found.includes(`longest-${namespace} fail`) && found.some((each) => each.startsWith('linger'))
          );
        },
        { timeoutMs: 90_000, intervalMs: 2_000 },
      );
      const pods = await cluster.list<PodObject>({ apiVersion: 'v1', kind: 'Pod', namespace }, 'app=web');
      expect(pods.map(({ spec }) => spec.containers.map(hookOf))).toEqual([[`sleep ${WAIT}`]]);
    } finally {
      await replica.stop('SIGKILL');
    }
  });
});
