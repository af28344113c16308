import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { shipped as linger } from '../cli/linger.ts';
import { type Json, manifestText, pod } from '../cluster-suite/support/manifests.ts';
import { createPod, planOf, summaryOf } from '../cluster-suite/support/outcome.ts';
import { clusterPolicy, fixedWait, policyFile } from '../cluster-suite/support/policies.ts';
import { openStage, type Stage } from '../cluster-suite/support/stage.ts';
import { ensureGatekeeper, gatekeeperManifests } from '../testbed/binaries.ts';
import { type KubernetesObject, type NewObject, waitUntil } from '../testbed/cluster.ts';
import { imageArchive } from '../testbed/image.ts';
import { clusterSettings } from '../testbed/settings.ts';
import { LONG } from './form.ts';

/* Gatekeeper as it is built from its module and installed by its own manifests, with one replica. */

const IMAGE = 'linger.test/gatekeeper:1';
const SYSTEM = { namespace: 'gatekeeper-system' };
const WEBHOOKS = { apiVersion: 'admissionregistration.k8s.io/v1', kind: 'MutatingWebhookConfiguration' };
const EARLIER = 'gatekeeper-mutating-webhook-configuration';
/** Behind Linger's own: the API server goes by the names. */
const LATER = 'zz-gatekeeper';
const WAIT = 5;

type Webhooks = KubernetesObject & {
  readonly webhooks: readonly { readonly clientConfig: { readonly caBundle?: string } }[];
};

let stage: Stage;
let manifests = '';

/** Its manifests, with our image. */
async function gatekeeper(): Promise<string> {
  const documents = parseAllDocuments(readFileSync(await gatekeeperManifests(), 'utf8'));
  const objects = documents.map((document) => {
    if (document.get('kind') !== 'Deployment') return document.toJS() as Json;
    document.setIn(['spec', 'replicas'], 1);
    const container = ['spec', 'template', 'spec', 'containers', 0];
    document.setIn([...container, 'image'], IMAGE);
    document.setIn([...container, 'imagePullPolicy'], 'Never');
    return document.toJS() as Json;
  });
  return manifestText(objects);
}

const checkedIn = (namespace: string) =>
  linger(['check', '--pre', '--namespace', namespace, '--kubeconfig', stage.cluster.kubeconfig]);

beforeAll(async () => {
  if (!LONG) return;
  const policy = clusterPolicy('base', { mode: 'Enforce', ...fixedWait(`${WAIT}s`) });
  stage = await openStage(() => policyFile(policy));
  const { cluster } = stage;
  if (!cluster.own) return;
  const content = readFileSync(await ensureGatekeeper(clusterSettings().cacheDir, console.log));
  const files = [{ path: '/manager', mode: 0o755, content }];
  await cluster.importImages(
    imageArchive([{ reference: IMAGE, files, entrypoint: ['/manager'], user: '1000:999' }]),
  );
  manifests = await gatekeeper();
  await cluster.mustKubectl(['apply', '--server-side', '--filename', '-'], { stdin: manifests });
  for (const name of ['controller-manager', 'audit'])
    await cluster.mustKubectl(
      [
        'rollout',
        'status',
        `deployment/gatekeeper-${name}`,
        '--namespace',
        SYSTEM.namespace,
        '--timeout=180s',
      ],
      { timeoutMs: 200_000 },
    );
  await waitUntil('its authority', async () =>
    (await cluster.get<Webhooks>({ ...WEBHOOKS, metadata: { name: EARLIER } }))?.webhooks.every(
      ({ clientConfig }) => clientConfig.caBundle !== undefined,
    ),
  );
}, 400_000);

afterAll(async () => {
  if (manifests !== '') {
    await stage.cluster.delete({ ...WEBHOOKS, metadata: { name: LATER } });
    const remove = ['delete', '--ignore-not-found', '--filename', '-'];
    await stage.cluster.mustKubectl(remove, { stdin: manifests, timeoutMs: 180_000 });
  }
  await stage?.close();
}, 240_000);

/** Sets the grace of every pod in the namespace. */
function assignment(namespace: string, seconds: number): NewObject {
  const object = {
    apiVersion: 'mutations.gatekeeper.sh/v1',
    kind: 'Assign',
    metadata: { name: `grace-${namespace}` },
    spec: {
      applyTo: [{ groups: [''], versions: ['v1'], kinds: ['Pod'] }],
      match: { scope: 'Namespaced', namespaces: [namespace] },
      location: 'spec.terminationGracePeriodSeconds',
      parameters: { assign: { value: seconds } },
    },
  };
  return object;
}

const TEMPLATE = {
  apiVersion: 'templates.gatekeeper.sh/v1',
  kind: 'ConstraintTemplate',
  metadata: { name: 'longestgrace' },
  spec: {
    crd: {
      spec: {
        names: { kind: 'LongestGrace' },
        validation: {
          openAPIV3Schema: { type: 'object', properties: { seconds: { type: 'integer' } } },
        },
      },
    },
    targets: [
      {
        target: 'admission.k8s.gatekeeper.sh',
        rego: `package longestgrace
violation[{"msg": msg}] {
  grace := input.review.object.spec.terminationGracePeriodSeconds
  grace > input.parameters.seconds
  msg := sprintf("a grace of %v s is longer than %v s", [grace, input.parameters.seconds])
}`,
      },
    ],
  },
};

function constraint(namespace: string, seconds: number): NewObject {
  const object = {
    apiVersion: 'constraints.gatekeeper.sh/v1beta1',
    kind: 'LongestGrace',
    metadata: { name: `longest-${namespace}` },
    spec: {
      match: { kinds: [{ apiGroups: [''], kinds: ['Pod'] }], namespaces: [namespace] },
      parameters: { seconds },
    },
  };
  return object;
}

const graceOf = (object: { readonly spec: { readonly terminationGracePeriodSeconds?: number } }) =>
  object.spec.terminationGracePeriodSeconds;

describe.runIf(LONG)('beside Gatekeeper', { timeout: 180_000 }, () => {
  it('that is asked before Linger and sets the grace: the wait is added to it', async () => {
    const { cluster } = stage;
    const namespace = await cluster.namespace('gatekeeper');
    const assigned = await cluster.create(assignment(namespace, 20));
    const plain = pod(namespace, 'app', {}, { labels: { app: 'app' } });
    await waitUntil(
      'Gatekeeper to set it',
      async () => graceOf(await cluster.create(plain, { dryRun: true })) === 20 + WAIT,
    );
    const outcome = await createPod(stage, plain);
    expect(summaryOf(outcome)).toMatch(/^Injected(, then AlreadyInjected)?: app sleep 5; grace 25$/);
    expect(planOf(outcome.pod)).toMatchObject({ wait: WAIT, grace: 25, baseGrace: 20 });
    await cluster.delete(assigned);
  });

  it('that is asked after Linger and sets the grace: the wait shrinks, and the pod is accepted', async () => {
    const { cluster } = stage;
    const earlier = await cluster.get<Webhooks>({ ...WEBHOOKS, metadata: { name: EARLIER } });
    const later = { ...WEBHOOKS, metadata: { name: LATER }, webhooks: earlier?.webhooks };
    await cluster.delete({ ...WEBHOOKS, metadata: { name: EARLIER } });
    await cluster.create(later);
    const namespace = await cluster.namespace('gatekeeper');
    await cluster.create(assignment(namespace, 32));
    const plain = pod(namespace, 'app', {}, { labels: { app: 'app' } });
    await waitUntil(
      'Gatekeeper to set it',
      async () => graceOf(await cluster.create(plain, { dryRun: true })) === 32,
    );
    const outcome = await createPod(stage, plain);
    expect(summaryOf(outcome)).toBe('Injected, then Injected: app sleep 3; grace 32');
    expect(planOf(outcome.pod)).toMatchObject({ wait: 3, grace: 32, baseGrace: 30 });
    const checked = await checkedIn(namespace);
    // The culprit itself, and not only the webhook that works for it.
    expect(checked.stdout).toContain(
      `with a grace of 32 s instead of 90 s: Assign grace-${namespace} changes it`,
    );
  });

  it('whose constraint allows no longer grace: it is named, and grace.max keeps the pods', async () => {
    const { cluster } = stage;
    const namespace = await cluster.namespace('gatekeeper');
    await cluster.create(TEMPLATE);
    await waitUntil('its CRD', () => cluster.create(constraint(namespace, 34)).catch(() => undefined));
    const plain = pod(namespace, 'app', {}, { labels: { app: 'app' } });
    const refusal = await waitUntil('Gatekeeper to refuse the pod', () =>
      cluster.create(plain, { dryRun: true }).then(
        () => undefined,
        (error: unknown) => String(error),
      ),
    );
    expect(refusal).toContain('a grace of 35 s is longer than 34 s');
    const checked = await checkedIn(namespace);
    expect(checked.stdout).toMatch(/is rejected in .*a grace of 90 s is longer than 34 s/);

    const policy = { mode: 'Enforce', ...fixedWait(`${WAIT}s`), grace: { max: '34s' } };
    await stage.linger.setPolicies(policyFile(clusterPolicy('base', policy)));
    expect(summaryOf(await createPod(stage, plain))).toMatch(/: app sleep 4; grace 34$/);
  });
});
