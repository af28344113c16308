import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { shipped as command } from '../cli/linger.ts';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import type { Json } from './support/manifests.ts';
import { Neighbour, type NeighbourOptions } from './support/neighbour.ts';

const GROUP = '/apis/admissionregistration.k8s.io';

/** What takes a hook or cuts a grace is found by `linger check`, by name. */
describe('check names what undoes Linger', { timeout: 120_000 }, () => {
  let cluster: Cluster;

  beforeAll(async () => {
    cluster = await openCluster();
  });

  afterAll(() => cluster?.close());

  async function admissionLines(namespace: string): Promise<readonly string[]> {
    const words = ['check', '--pre', '--output', 'json', '--namespace', namespace];
    const { stdout } = await command([...words, '--kubeconfig', cluster.kubeconfig]);
    const { checks } = JSON.parse(stdout) as { checks: { code: string; state: string; text: string }[] };
    return checks.filter(({ code }) => code === 'Admission').map(({ state, text }) => `${state} ${text}`);
  }

  /** The version in which the API server serves the kind; undefined: it does not. */
  async function servedPolicies(): Promise<string | undefined> {
    type Group = { readonly versions: readonly { readonly version: string }[] };
    const { versions } = await cluster.api.call<Group>('GET', GROUP);
    for (const { version } of versions) {
      const { resources } = await cluster.api.call<{ resources: { name: string }[] }>(
        'GET',
        `${GROUP}/${version}`,
      );
      if (resources.some(({ name }) => name === 'mutatingadmissionpolicies')) return version;
    }
    return undefined;
  }

  const POLICIES: readonly (readonly [name: string, patch: string, again: string, says: RegExp])[] = [
    [
      'takes-hooks',
      '[JSONPatch{op: "remove", path: "/spec/containers/0/lifecycle"}]',
      'IfNeeded',
      /^warning .* without its hook: MutatingAdmissionPolicy takes-hooks changes it$/,
    ],
    [
      'cuts-graces',
      '[JSONPatch{op: "replace", path: "/spec/terminationGracePeriodSeconds", value: 50}]',
      'IfNeeded',
      /^warning .* with a grace of 50 s instead of 90 s: MutatingAdmissionPolicy cuts-graces changes it$/,
    ],
    [
      'sets-graces-first',
      '[JSONPatch{op: "replace", path: "/spec/terminationGracePeriodSeconds", value: 50}]',
      'Never',
      /^ok .* with a grace of 50 s instead of 90 s: what changes it comes before Linger$/,
    ],
  ];

  it.for(POLICIES)(
    'a MutatingAdmissionPolicy that %s',
    async ([name, expression, reinvocationPolicy, says], { skip }) => {
      const version = await servedPolicies();
      if (version === undefined)
        return skip(`Kubernetes 1.${cluster.minor} serves no MutatingAdmissionPolicy`);
      const namespace = await cluster.namespace('undone');
      const of = (kind: string, spec: Json) =>
        ({ apiVersion: `admissionregistration.k8s.io/${version}`, kind, metadata: { name }, spec }) as never;
      const policy = of('MutatingAdmissionPolicy', {
        matchConstraints: {
          namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': namespace } },
          resourceRules: [
            { apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] },
          ],
        },
        matchConditions: [{ name: 'hooked', expression: 'has(object.spec.containers[0].lifecycle)' }],
        failurePolicy: 'Fail',
        reinvocationPolicy,
        mutations: [{ patchType: 'JSONPatch', jsonPatch: { expression } }],
      });
      const binding = of('MutatingAdmissionPolicyBinding', { policyName: name });
      const unbound = { ...(policy as { metadata: object }), metadata: { name: `${name}-unbound` } } as never;
      for (const object of [unbound, policy, binding]) await cluster.create(object);
      try {
        await waitUntil('the policy to be named', async () =>
          (await admissionLines(namespace)).some((line) => says.test(line)),
        );
      } finally {
        for (const object of [binding, policy, unbound]) await cluster.delete(object);
      }
    },
  );

  const takesHooks: NeighbourOptions['mutate'] = ({ spec }) =>
    spec.containers[0]?.lifecycle === undefined
      ? []
      : [{ op: 'remove', path: '/spec/containers/0/lifecycle' }];

  it('a webhook that takes hooks, beside one that does not', async () => {
    const namespace = await cluster.namespace('undone');
    const of = { namespace, byService: true } as const;
    const culprit = await Neighbour.start(cluster, { ...of, name: 'z-hygiene', mutate: takesHooks });
    const other = await Neighbour.start(cluster, { ...of, name: 'z-onlooker', mutate: () => [] });
    try {
      expect(await admissionLines(namespace)).toEqual([
        expect.stringMatching(
          /^warning .* without its hook: MutatingWebhookConfiguration z-hygiene changes it$/,
        ),
      ]);
    } finally {
      await culprit.stop();
      await other.stop();
    }
  });

  it('webhooks that cannot be asked are named together', async () => {
    const namespace = await cluster.namespace('undone');
    const culprit = await Neighbour.start(cluster, { namespace, name: 'z-hygiene', mutate: takesHooks });
    const other = await Neighbour.start(cluster, { namespace, name: 'z-onlooker', mutate: () => [] });
    try {
      expect(await admissionLines(namespace)).toEqual([
        expect.stringMatching(
          /^warning .*: one of these changes it: MutatingWebhookConfiguration z-hygiene, MutatingWebhookConfiguration z-onlooker$/,
        ),
      ]);
    } finally {
      await culprit.stop();
      await other.stop();
    }
  });
});
