import http from 'node:http';
import { text } from 'node:stream/consumers';
import { describe, expect, test } from 'vitest';
import { type Tried, type TryLimits, tryPods } from '../../src/cli/server-dry-run.ts';
import { workloadOf } from '../../src/core/decision/index.ts';
import type { AuditSubject } from '../../src/core/judge/index.ts';
import { clusterPolicy, EMPTY_SNAPSHOT, snapshotOf } from '../core/decision/sample-snapshot.ts';
import { listening } from '../webhook/listening.ts';

interface PodSent {
  readonly namespace: string;
  readonly name: string;
  readonly sleeps: boolean;
  readonly grace: number | undefined;
}
type Answer = readonly [code: number, message?: string, headers?: Readonly<Record<string, string>>];
const TAKEN: Answer = [201];
const PAGE = /^\/api\/v1\/namespaces\/([^/?]+)\/pods\?dryRun=All$/;

const terminal = (warn: (line: string) => void = () => undefined) => ({ warn, progress: () => undefined });

/** An API server's admission: what it says of a pod, with a wait and without. */
async function admission(
  judge: (pod: PodSent, count: number) => Answer | 'silence',
  lists: Readonly<Record<string, readonly object[]>> = {},
  store: (pod: object) => object = () => ({}),
) {
  const asked: string[] = [];
  const server = http.createServer((request, response) => {
    void text(request).then((body) => {
      const url = request.url ?? '';
      asked.push(url);
      if (request.method === 'GET') {
        const items = lists[url.split('?')[0] ?? ''];
        response.writeHead(items === undefined ? 404 : 200, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ metadata: { resourceVersion: '1' }, items }));
        return;
      }
      const { metadata, spec } = JSON.parse(body) as {
        metadata: { generateName: string };
        spec: { containers: { lifecycle?: object }[]; terminationGracePeriodSeconds?: number };
      };
      const namespace = decodeURIComponent(PAGE.exec(url)?.[1] ?? '');
      const name = metadata.generateName.slice(0, -1);
      const sleeps = spec.containers[0]?.lifecycle !== undefined;
      const grace = spec.terminationGracePeriodSeconds;
      const answer = judge({ namespace, name, sleeps, grace }, asked.length);
      if (answer === 'silence') return;
      const [code, message = '', headers = {}] = answer;
      response.writeHead(code, { 'content-type': 'application/json', ...headers });
      response.end(JSON.stringify({ ...store(JSON.parse(body) as object), message }));
    });
  });
  const port = await listening(server);
  const connection = { server: new URL(`http://127.0.0.1:${port}`), credentials: async () => ({}) };
  return { asked, connection };
}

function subject(name: string, namespace = 'shop'): AuditSubject {
  const spec = { containers: [{ name: 'app', image: 'a', ports: [{ containerPort: 80 }] }] };
  const object = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name, namespace },
    spec: { replicas: 2, template: { metadata: { labels: { app: name } }, spec } },
  };
  return { workload: workloadOf(object)!, namespace, object };
}
const many = (count: number, namespace?: string) =>
  Array.from({ length: count }, (_, index) => subject(`w${index}`, namespace));

/** The refusals by workload, and what standard error says. */
async function tried(
  subjects: readonly AuditSubject[],
  judge: Parameters<typeof admission>[0],
  limits: Partial<TryLimits> = {},
) {
  const { asked, connection } = await admission(judge);
  const warnings: string[] = [];
  const result: Tried = await tryPods(
    subjects,
    EMPTY_SNAPSHOT,
    ({ namespace }) => namespace !== 'kube-system',
    connection as never,
    terminal((line) => void warnings.push(`${line}\n`)),
    { most: 1_000, everyMs: 0, withinMs: 60_000, ...limits },
  );
  const refusals = Object.fromEntries(
    result.subjects.flatMap(({ workload, refusal }) =>
      refusal === undefined ? [] : [[workload.name, refusal]],
    ),
  );
  return { asked, refusals, incomplete: result.incomplete, said: warnings.join('') };
}

describe('a grace that the cluster cuts', () => {
  const POLICIES = '/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies';
  const policy = {
    metadata: { name: 'short-grace', uid: '1' },
    spec: {
      reinvocationPolicy: 'IfNeeded',
      mutations: [{ jsonPatch: { expression: '/spec/terminationGracePeriodSeconds' } }],
    },
  };
  const other = { metadata: { name: 'labels', uid: '2' }, spec: {} };
  type Stored = { spec: { terminationGracePeriodSeconds: number }; metadata: { annotations?: object } };

  async function cut(lists: Parameters<typeof admission>[1], annotations = {}) {
    const { connection } = await admission(
      () => TAKEN,
      lists,
      (pod) => {
        const { spec, metadata } = pod as Stored;
        return {
          metadata: { ...metadata, annotations: { ...metadata.annotations, ...annotations } },
          spec: { ...spec, terminationGracePeriodSeconds: 45 },
        };
      },
    );
    const limits = { most: 10, everyMs: 0, withinMs: 60_000 };
    const result = await tryPods(
      [subject('web')],
      EMPTY_SNAPSHOT,
      () => true,
      connection as never,
      terminal(),
      limits,
    );
    return result.subjects[0]?.cut;
  }

  test('the policy that names the field is named', async () => {
    const binding = { metadata: { name: 'b', uid: '3' }, spec: { policyName: 'short-grace' } };
    expect(
      await cut({ [POLICIES]: [other, policy], [POLICIES.replace(/ies$/, 'ybindings')]: [binding] }),
    ).toEqual({
      from: 60,
      grace: 45,
      wait: 30,
      by: ['MutatingAdmissionPolicy short-grace'],
    });
  });

  test('by what is asked before Linger only: nothing is cut, since Linger adds the wait', async () => {
    const spec = { ...policy.spec, reinvocationPolicy: 'Never' };
    const binding = { metadata: { name: 'b', uid: '3' }, spec: { policyName: 'short-grace' } };
    expect(
      await cut({
        [POLICIES]: [{ ...policy, spec }],
        [POLICIES.replace(/ies$/, 'ybindings')]: [binding],
      }),
    ).toBeUndefined();
  });

  test('of Kyverno, the rule that the pod itself names', async () => {
    const patches =
      'a.labels.kyverno.io: added /metadata/labels/a\ncap.limit-grace.kyverno.io: replaced /spec/terminationGracePeriodSeconds\n';
    expect((await cut({}, { 'policies.kyverno.io/last-applied-patches': patches }))?.by).toEqual([
      'Kyverno cap.limit-grace.kyverno.io',
    ]);
  });

  test('of Kyverno, the policies that change it: none that validates it or is of another namespace', async () => {
    const pattern = { spec: { terminationGracePeriodSeconds: '<=45' } };
    const mutate = { patchStrategicMerge: { spec: { terminationGracePeriodSeconds: 45 } } };
    const of = (name: string, spec: object, namespace?: string) => ({
      metadata: { name, uid: name, ...(namespace && { namespace }) },
      spec,
    });
    const rules = (...does: readonly object[]) => ({ rules: does });
    const mutations = {
      mutations: [{ applyConfiguration: { expression: 'terminationGracePeriodSeconds' } }],
    };
    expect(
      (
        await cut({
          '/apis/kyverno.io/v1/clusterpolicies': [
            of('short', rules({ validate: { pattern } }, { mutate })),
            of('judges', rules({ validate: { pattern } })),
          ],
          '/apis/kyverno.io/v1/policies': [
            of('here', rules({ mutate }), 'shop'),
            of('there', rules({ mutate }), 'other'),
          ],
          '/apis/policies.kyverno.io/v1/mutatingpolicies': [of('newer', mutations)],
          '/apis/policies.kyverno.io/v1/namespacedmutatingpolicies': [of('theirs', mutations, 'other')],
        })
      )?.by,
    ).toEqual(['ClusterPolicy short', 'Policy here', 'MutatingPolicy newer']);
  });

  test('none that is for other namespaces, or spares pods with a plan', async () => {
    const mutate = { patchStrategicMerge: { spec: { terminationGracePeriodSeconds: 45 } } };
    const of = (name: string, spec: object) => ({ metadata: { name, uid: name }, spec });
    const matching = (...namespaces: readonly string[]) => ({ any: [{ resources: { namespaces } }] });
    const exclude = { any: [{ resources: { annotations: { 'linger.dev/plan': '*' } } }] };
    const mutations = [{ applyConfiguration: { expression: 'terminationGracePeriodSeconds' } }];
    const namespaceSelector = { matchLabels: { team: 'other' } };
    const matchConditions = [{ expression: "!('linger.dev/plan' in object.metadata.annotations)" }];
    const location = 'spec.terminationGracePeriodSeconds';
    expect(
      (
        await cut({
          '/apis/kyverno.io/v1/clusterpolicies': [
            of('there', { rules: [{ mutate, match: matching('other') }] }),
            of('sparing', { rules: [{ mutate, match: matching('shop'), exclude }] }),
            of('here', { rules: [{ mutate, match: matching('other', 'shop') }] }),
            of('patterned', { rules: [{ mutate, match: matching('sh*') }] }),
          ],
          '/apis/policies.kyverno.io/v1/mutatingpolicies': [
            of('labelled', { mutations, matchConstraints: { namespaceSelector } }),
            of('conditional', { mutations, matchConditions }),
            of('all', { mutations, matchConstraints: {} }),
          ],
          '/apis/mutations.gatekeeper.sh/v1/assign': [
            of('assign-there', { location, match: { namespaces: ['other'] } }),
            of('assign-here', { location, match: { namespaces: ['shop'] } }),
          ],
        })
      )?.by,
    ).toEqual(['ClusterPolicy here', 'ClusterPolicy patterned', 'MutatingPolicy all', 'Assign assign-here']);
  });

  test('else the webhooks that change pods, without Linger’s', async () => {
    const path = '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations';
    const webhooks = (name: string) => ({
      metadata: { name, uid: name },
      webhooks: [
        {
          name: `pods.${name}.dev`,
          rules: [{ apiGroups: [''], resources: ['pods'], operations: ['CREATE'] }],
        },
      ],
    });
    expect((await cut({ [path]: [webhooks('linger'), webhooks('mesh')] }))?.by).toEqual([
      'MutatingWebhookConfiguration mesh',
    ]);
  });
});

test('a pod of Hold is tried with the grace that it gets', async () => {
  const { connection } = await admission(
    () => TAKEN,
    {},
    (pod) => pod,
  );
  const snapshot = snapshotOf([clusterPolicy({ hook: 'Hold', hold: { min: '5s', max: '120s' } })]);
  const graces: unknown[] = [];
  const judged = await admission(({ grace }) => {
    graces.push(grace);
    return grace !== undefined && grace > 60 ? [422, 'grace beyond 60'] : TAKEN;
  });
  const limits = { most: 10, everyMs: 0, withinMs: 60_000 };
  const run = (to: typeof connection) =>
    tryPods([subject('web')], snapshot, () => true, to as never, terminal(), limits);
  expect((await run(judged.connection)).subjects[0]?.refusal).toBe('422: grace beyond 60');
  expect(graces).toEqual([150, undefined]);
  expect((await run(connection)).subjects[0]?.cut).toBeUndefined();
});

describe('waits tried as dry runs', () => {
  test.each<[string, number, string]>([
    ['a validating policy', 422, 'ValidatingAdmissionPolicy "grace" denied request'],
    ['a webhook', 403, 'admission webhook "a.example.dev" denied the request: no hooks'],
    ['a webhook with a code of its own', 406, 'admission webhook "a.example.dev" denied the request'],
  ])('%s that rejects only the wait is told with its words', async (_, code, message) => {
    const { asked, refusals, incomplete, said } = await tried([subject('web'), subject('api')], (pod) =>
      pod.sleeps && pod.name === 'web' ? [code, message] : TAKEN,
    );
    expect(refusals).toEqual({ web: `${code}: ${message}` });
    expect([incomplete, said, asked.length]).toEqual([false, '', 3]);
  });

  test.each<[string, number, string]>([
    ['a quota', 403, 'pods "w0-" is forbidden: exceeded quota: few, requested: pods=1'],
    ['a LimitRange', 403, 'pods "w0-" is forbidden: maximum cpu usage per Container is 1'],
    ['Pod Security', 403, 'pods "w0-" is forbidden: violates PodSecurity "restricted:latest"'],
    ['a webhook that is away', 500, 'failed calling webhook "a.example.dev": context deadline exceeded'],
  ])('%s refuses a pod with and without it: no fault of the wait', async (_, code, message) => {
    const { refusals, incomplete, said } = await tried([subject('web')], () => [code, message]);
    expect([refusals, incomplete]).toEqual([{}, false]);
    expect(said).toContain(`1 of 1 workloads could not be tried`);
    expect(said).toContain(message);
  });

  test('a namespace that a manifest names cannot lead to another request', async () => {
    const { asked, said } = await tried(
      [subject('web', 'shop/pods?x='), subject('web', '../../v1/namespaces/shop/pods?')],
      () => [404, 'namespaces not found'],
    );
    expect(asked.length).toBeGreaterThan(0);
    for (const url of asked) expect(url).toMatch(PAGE);
    expect(said).toContain('2 of 2 workloads could not be tried');
  });

  test.each<[string, Answer, boolean]>([
    ['does not exist', [404, 'namespaces "shop" not found'], false],
    [
      'does not let us create pods',
      [
        403,
        'pods is forbidden: User "ci" cannot create resource "pods" in API group "" in the namespace "shop"',
      ],
      true,
    ],
  ])('of a namespace that %s, one pod is enough to know', async (_, answer, expected) => {
    const { asked, incomplete, said } = await tried(
      [...many(100), subject('web', 'other')],
      ({ namespace }) => (namespace === 'shop' ? answer : TAKEN),
    );
    expect(asked).toHaveLength(3);
    expect(incomplete).toBe(expected);
    expect(said).toMatch(/^100 of 101 workloads could not be tried/);
  });

  test('of a server that does not answer, nothing further is asked', async () => {
    const dead = { server: new URL('http://127.0.0.1:1'), credentials: async () => ({}) };
    const warnings: string[] = [];
    const limits = { most: 1_000, everyMs: 0, withinMs: 60_000 };
    const result = await tryPods(
      many(1_000),
      EMPTY_SNAPSHOT,
      () => true,
      dead as never,
      terminal((line) => void warnings.push(`${line}\n`)),
      limits,
    );
    expect(result.incomplete).toBe(true);
    expect(warnings.join('')).toMatch(/^1000 of 1000 workloads could not be tried/);
  });

  test('a webhook that hangs takes no more than the time there is, and the rest is said', async () => {
    const { asked, incomplete, said } = await tried(many(10), () => 'silence', { withinMs: 200 });
    expect([asked.length, incomplete]).toEqual([1, true]);
    expect(said).toBe('10 of 10 workloads were not tried: 0.2s were not enough\n');
  });

  test('a busy server is asked again as it says', async () => {
    const { asked, refusals, said } = await tried([subject('web')], (_, count) =>
      count < 3 ? [429, 'busy', { 'retry-after': '0' }] : TAKEN,
    );
    expect([asked.length, refusals, said]).toEqual([3, {}, '']);
  });

  test('a thousand workloads, two requests for each at most; pods that the webhook is not asked about, none', async () => {
    const { asked, said } = await tried([...many(5, 'kube-system'), ...many(30)], () => [422, 'no'], {
      most: 20,
    });
    expect(asked).toHaveLength(40);
    expect(said).toMatch(
      /^10 of 30 workloads were not tried: too many\n20 of 30 workloads could not be tried/,
    );
  });

  test('what others say stays one line, and moves no cursor', async () => {
    const evil = 'no\n\u001b[2Jroot@host:~# \u202e';
    const first = await tried([subject('web')], ({ sleeps }) => (sleeps ? [422, evil] : TAKEN));
    expect(first.refusals.web).toBe('422: no \\u001b[2Jroot@host:~# \\u202e');
    const { said } = await tried([subject('web')], () => [422, evil]);
    expect(said).toMatch(/^[^\p{Cc}\p{Cf}]*\n$/u);
  });
});
