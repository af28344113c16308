import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ANNOTATION, FLOOR } from '../../src/core/api/index.ts';
import { floorWaits } from '../../src/core/decision/index.ts';
import type { Pod } from '../../src/core/decision/pod.ts';
import { shipped } from '../cli/linger.ts';
import { generatedPods } from '../core/decision/arbitrary-pod.ts';
import { entryIn } from '../floor/entry.ts';
import { type Cluster, openCluster, waitUntil } from '../testbed/cluster.ts';
import { Installation } from './support/installation.ts';
import { appContainer, type Json, manifestText, type PodObject, pod, preStop } from './support/manifests.ts';
import { clusterPolicy, fixedWait, policyFile } from './support/policies.ts';

/*
 * The floor with the Linger that writes it: on a real API server, from the leader's ConfigMap to the pod, with Linger up and
 * down, and what `check`, `status` and `explain` say of it.
 */

const GROUP = 'admissionregistration.k8s.io/v1';
const POLICY = { apiVersion: GROUP, kind: 'MutatingAdmissionPolicy', metadata: { name: FLOOR.policy } };
const BINDING = { ...POLICY, kind: 'MutatingAdmissionPolicyBinding' };
const MAP = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { namespace: 'linger', name: FLOOR.configMap } };
const SEED = 20_261_129;
const PODS = 60;

type Lines = Readonly<Record<string, string>>;

/** By what their own policies and annotations say; the cluster's policy gives 12 s, fixed. */
const NAMESPACES: Readonly<
  Record<string, { readonly policies?: readonly Json[]; readonly annotations?: Json }>
> = {
  usual: {},
  longer: { policies: [fixedWait('40s')] },
  exec: { policies: [{ hook: 'Exec' }] },
  named: { policies: [{ containers: ['app'] }] },
  small: { policies: [{ grace: { max: '40s' } }] },
  edge: { policies: [{ ...fixedWait('25s'), podSelector: { matchLabels: { app: 'web' } } }] },
  restrained: { policies: [{ mode: 'Audit', podSelector: { matchLabels: { app: 'web' } } }] },
  audited: { policies: [{ mode: 'Audit' }] },
  measured: { policies: [{ wait: { from: 'Measured', initial: '20s' } }] },
  off: { annotations: { [ANNOTATION.mode]: 'Off' } },
  // Its Service selects no pod: Linger skips pods there, and the floor does not know.
  unserved: { policies: [{ pods: 'Selected' }] },
  annotated: { annotations: { [ANNOTATION.wait]: '33s' } },
};

const planIn = ({ metadata }: PodObject) => metadata.annotations?.[ANNOTATION.plan];
const isStamp = (plan: string | undefined) => plan?.startsWith(FLOOR.stamp) === true;
const isMarker = (plan: string | undefined) => plan?.startsWith('{"v":1,"by":"webhook","skip":') === true;

/** An answer without what the API server makes anew for each object. */
function comparable({ body, status }: { readonly body: PodObject; readonly status: number }): unknown {
  if (status !== 201) return { status, body };
  const left = { ...body.metadata, uid: '', creationTimestamp: '', managedFields: '' };
  const plan = planIn(body);
  // The marker of a skip is what the webhook leaves where it has taken a stamp out.
  if (!isMarker(plan)) return { status, metadata: left, spec: body.spec };
  const { [ANNOTATION.plan]: _marker, ...annotations } = left.annotations ?? {};
  const rest = Object.keys(annotations).length === 0 ? undefined : annotations;
  return { status, metadata: { ...left, annotations: rest }, spec: body.spec };
}

describe('the floor beside an installed Linger', async () => {
  const cluster: Cluster = await openCluster();
  // An API server 1.36 that has deleted the policy once reads no parameters for it any more until it is restarted.
  const where = it.runIf(cluster.own && cluster.minor >= 37);
  const kubectl = (...args: string[]) => cluster.mustKubectl(args, { timeoutMs: 120_000 });
  let installation: Installation | undefined;
  const namespaces = new Map<string, string>();
  const named = (name: string) => namespaces.get(name) ?? '';

  const lines = async () => (await cluster.get<{ data?: Lines }>(MAP))?.data ?? {};
  const lineOf = (data: Lines, namespace: string) => data[namespace] ?? data[FLOOR.newNamespaces] ?? '';

  /** Some of each namespace, as Linger's own tests generate them. */
  const pods = generatedPods(SEED, PODS).flatMap((each) =>
    Object.keys(NAMESPACES).map((namespace) => {
      const { [ANNOTATION.plan]: _plan, ...annotations } = (each.metadata?.annotations ?? {}) as Lines;
      return [namespace, { ...each, metadata: { ...each.metadata, annotations } }] as const;
    }),
  );
  const admitted = async (most = pods.length) => {
    const answers: { readonly status: number; readonly body: PodObject }[] = [];
    for (const [namespace, object] of pods.slice(0, most)) {
      const metadata = { ...object.metadata, namespace: named(namespace) };
      // Its volume has a name that is made up.
      const spec = { ...object.spec, automountServiceAccountToken: false };
      answers.push(
        await cluster.tryCreate<PodObject>({ ...object, metadata, spec } as never, { dryRun: true }),
      );
    }
    return answers;
  };
  const tried = async (more: Json = {}, metadata: Json = {}, namespace = named('usual')) => {
    const object = pod(namespace, 'tried', { containers: [appContainer('app')], ...more }, metadata);
    return cluster.tryCreate<PodObject>(object, { dryRun: true });
  };
  const sleepIn = ({ body }: { readonly body: PodObject }) =>
    (body.spec.containers[0]?.lifecycle?.preStop as { sleep?: { seconds: number } } | undefined)?.sleep
      ?.seconds;

  /** Only pods that the webhook skips show whether the policy counts: it leaves its marker there. */
  const isFelt = async () => {
    const { body } = await tried({}, {}, named('unserved'));
    return isMarker(planIn(body));
  };

  const cli = (...args: string[]) => shipped([...args, '--kubeconfig', cluster.kubeconfig]);
  const check = async () => {
    const { stdout } = await cli('check', '--output', 'json', '--namespace', named('usual'));
    const { checks } = JSON.parse(stdout) as {
      checks: readonly { code: string; state: string; text: string }[];
    };
    return checks.filter(({ code }) => code === 'Floor').map(({ state, text }) => `${state}: ${text}`);
  };
  const status = async () => /^ *floor +(.*)$/m.exec((await cli('status')).stdout)?.[1];
  const explained = async (namespace: string) => {
    const app = { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'web', namespace } };
    const labels = { app: 'web' };
    const template = { metadata: { labels }, spec: { containers: [appContainer('app')] } };
    const spec = { selector: { matchLabels: labels }, template };
    const args = ['explain', '--kubeconfig', cluster.kubeconfig, '--output', 'json', '-'];
    const { stdout } = await shipped(args, { stdin: JSON.stringify({ ...app, spec }) });
    const { plans } = JSON.parse(stdout) as {
      plans: readonly { floor?: { hook: string; waitSeconds: number; laterSeconds: number } | null }[];
    };
    return plans[0]?.floor;
  };

  const scale = async (replicas: number) => {
    await kubectl('--namespace', 'linger', 'scale', 'deployment/linger', `--replicas=${replicas}`);
    if (replicas === 0) {
      const all = ['--all', '--grace-period=1', '--wait=true', '--timeout=60s'];
      await kubectl('--namespace', 'linger', 'delete', 'pods', ...all);
      await waitUntil('no answer of Linger', async () => isStamp(planIn((await tried()).body)), {
        timeoutMs: 60_000,
      });
    } else await kubectl('--namespace', 'linger', 'rollout', 'status', 'deployment/linger', '--timeout=100s');
  };
  const set = (data: Readonly<Record<string, string | null>>) => cluster.patch(MAP, { data });

  beforeAll(async () => {
    if (!cluster.own || cluster.minor < 37) return;
    const base = clusterPolicy('base', { mode: 'Enforce', ...fixedWait('12s') });
    installation = await Installation.create(cluster, { policies: policyFile(base) });
    for (const [name, { policies = [], annotations }] of Object.entries(NAMESPACES)) {
      const namespace = await cluster.namespace(`floor-${name}`);
      namespaces.set(name, namespace);
      if (annotations !== undefined)
        await cluster.patch(
          { apiVersion: 'v1', kind: 'Namespace', metadata: { name: namespace } },
          { metadata: { annotations } },
        );
      const apiVersion = 'linger.dev/v1alpha1';
      const objects = policies.map((spec, at) => ({
        apiVersion,
        kind: 'TerminationPolicy',
        metadata: { namespace, name: `own-${at}` },
        spec,
      }));
      if (objects.length > 0)
        await cluster.mustKubectl(['apply', '--filename', '-'], { stdin: manifestText(objects) });
    }
    const unserved = named('unserved');
    const spec = { selector: { nothing: 'here' }, ports: [{ port: 80 }] };
    await cluster.create({
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { namespace: unserved, name: 'other' },
      spec,
    } as never);
    await installation.add('floor/floor.yaml');
    await waitUntil(
      'the leader to have written all of it',
      async () => {
        const data = await lines();
        const says = (name: string, beginning: string) => lineOf(data, named(name)).startsWith(beginning);
        return (
          says('usual', '12 12 ') &&
          says('longer', '40 40 ') &&
          says('edge', '25 ') &&
          says('measured', '20 20 ') &&
          says('annotated', '33 33 ') &&
          ['restrained', 'audited', 'off'].every((name) => says(name, 'none'))
        );
      },
      { timeoutMs: 120_000, intervalMs: 1_000 },
    );
    await waitUntil('the policy to count', isFelt, { timeoutMs: 60_000 });
  }, 400_000);

  afterAll(async () => {
    for (const object of [BINDING, POLICY]) if (cluster.minor >= 37) await cluster.delete(object);
    await installation?.remove();
    await cluster.close();
  }, 240_000);

  // The count is left out where evaluations failed, as some may on an API server that has run other tests.
  const STANDS =
    /^ok: bound, and ConfigMap linger\/linger-floor is up to date for \d+ min, until [^;]+(; [\d,]+ evaluations? on this API server, none failed)?$/;

  where('check and status say that it stands', { timeout: 60_000 }, async () => {
    expect((await check())[0]).toMatch(STANDS);
    expect(await status()).toMatch(/^stands, and is up to date until 20/);
  });

  let both: Awaited<ReturnType<typeof admitted>> = [];

  where(
    'floor, then webhook, is webhook alone, but for the marker of a skip',
    { timeout: 300_000 },
    async () => {
      both = await admitted();
      for (const { body } of both.filter(({ status: code }) => code === 201))
        expect(isStamp(planIn(body))).toBe(false);
      // Not deleted: where its last binding is created anew, the API server may go on with the ConfigMap as it was then.
      const nowhere = { namespaceSelector: { matchLabels: { 'linger.dev/nowhere': 'yes' } } };
      await cluster.patch(BINDING, { spec: { matchResources: nowhere } });
      await waitUntil('the policy not to count', async () => !(await isFelt()));
      const alone = await admitted();
      for (const { body } of alone.filter(({ status: code }) => code === 201))
        expect(isMarker(planIn(body))).toBe(false);
      expect(both.map(comparable)).toEqual(alone.map(comparable));
      await cluster.patch(BINDING, { spec: { matchResources: null } });
      await waitUntil('the policy to count again', isFelt);
    },
  );

  where(
    'with Linger down pods get what the leader has written, and explain has said',
    { timeout: 300_000 },
    async () => {
      const said = new Map<string, Awaited<ReturnType<typeof explained>>>();
      for (const [name, namespace] of namespaces) said.set(name, await explained(namespace));
      await scale(0);
      const data = await lines();
      const down = await admitted();
      const counts = { stamped: 0, replacedThen: 0, markedThen: 0, leftAlone: 0, refused: 0 };
      for (const [at, { status: code, body }] of down.entries()) {
        // Floor or not, the same pods are refused.
        expect(code).toBe(both[at]?.status);
        const [name = '', object] = pods[at] ?? [];
        if (code !== 201) {
          counts.refused += 1;
          continue;
        }
        const plan = planIn(body);
        const entry = entryIn(lineOf(data, named(name)));
        const [owner] = ((object?.metadata as Json | undefined)?.ownerReferences ?? []) as {
          kind: string;
          controller: boolean;
        }[];
        const kind = owner?.controller === true ? owner.kind : undefined;
        const waits = entry && floorWaits(object as Pod, kind, entry);
        if (!isStamp(plan)) {
          counts.leftAlone += 1;
          continue;
        }
        counts.stamped += 1;
        const before = planIn(both[at]?.body as PodObject);
        if (isMarker(before)) counts.markedThen += 1;
        else counts.replacedThen += 1;
        const { wait, hook } = JSON.parse(plan ?? '') as { wait: number; hook: string };
        expect({ wait, hook }, JSON.stringify(object)).toEqual({ wait: waits?.atFirst, hook: waits?.hook });
      }
      console.log(JSON.stringify(counts));
      for (const count of Object.values(counts).slice(0, 4)) expect(count).toBeGreaterThan(PODS / 10);
      let compared = 0;
      for (const [name, floor] of said) {
        // For pods that would be skipped or only audited, explain says nothing of the floor.
        if (floor === undefined) continue;
        const { body } = await tried({}, { labels: { app: 'web' } }, named(name));
        const plan = planIn(body);
        if (!isStamp(plan)) {
          expect([name, floor]).toEqual([name, null]);
          continue;
        }
        const { wait, hook } = JSON.parse(plan ?? '') as { wait: number; hook: string };
        compared += 1;
        expect([name, floor?.waitSeconds, floor?.hook]).toEqual([name, wait, hook]);
      }
      expect(compared).toBeGreaterThan(5);
    },
  );

  /** With Linger down, so that the leader does not put it right meanwhile. */
  const faults: readonly (readonly [string, () => Promise<unknown>, RegExp, RegExp, number | undefined])[] = [
    [
      'is out of date',
      () => set({ [named('measured')]: '5 20 600 Sleep - ', _validUntil: '2026-01-01T00:00:00Z' }),
      /^warning: ConfigMap linger\/linger-floor is out of date since 2026-01-01T00:00:00\.000Z: .* at least wait\.initial$/,
      /^stands, and is out of date since 2026-01-01/,
      20,
    ],
    [
      'has a line that cannot be read',
      () => set({ [named('measured')]: '5s 20 600 Sleep - ' }),
      /^warning: ConfigMap linger\/linger-floor has lines that cannot be read: floor-measured-\w+\. /,
      /^stands, /,
      undefined,
    ],
    [
      'has a line that overflows',
      () => set({ [named('measured')]: '5 20 9223372036854775807 Sleep - ' }),
      /^warning: ConfigMap linger\/linger-floor has lines that cannot be read: floor-measured-\w+\. /,
      /^stands, /,
      undefined,
    ],
    [
      'is as large as can be',
      () =>
        set(
          Object.fromEntries(
            Array.from({ length: 14_000 }, (_, at) => [`n-${at}`, '5 20 600 Sleep Job,DaemonSet ']),
          ),
        ),
      /^ok: bound, and /,
      /^stands, /,
      20,
    ],
    [
      'does not say until when',
      () => set({ _validUntil: 'tomorrow' }),
      /^warning: ConfigMap linger\/linger-floor does not say until when it is valid: /,
      /^bound, and cannot be used: /,
      undefined,
    ],
    [
      'is deleted',
      () => cluster.delete(MAP),
      /^warning: there is no ConfigMap linger\/linger-floor: /,
      /^bound, and cannot be used: /,
      undefined,
    ],
  ];

  let usual: Lines = {};
  const write = async (data: Lines) => {
    await cluster.delete(MAP);
    await cluster.create({ ...MAP, data } as never);
  };
  where.each(faults)(
    'where its ConfigMap %s, check and status find it, and pods are created',
    { timeout: 120_000 },
    async (_, make, expected, inStatus, wait) => {
      if (Object.keys(usual).length === 0) usual = await lines();
      await write(usual);
      await make();
      const measured = named('measured');
      await waitUntil('the API server to see it', async () => {
        const answer = await tried({}, {}, measured);
        expect(answer.status).toBe(201);
        return sleepIn(answer) === wait;
      });
      expect((await check())[0]).toMatch(expected);
      expect(await status()).toMatch(inStatus);
    },
  );

  where('errors of its evaluation are counted, and check says so', { timeout: 60_000 }, async () => {
    await write(usual);
    expect((await check()).at(-1)).toMatch(
      /^warning: of [\d,]+ evaluations of linger-floor on this API server since it started, \d+ failed \(\w+ \d+\)/,
    );
  });

  where(
    'tenants can neither change it, nor get a pod refused that would be created without it',
    { timeout: 240_000 },
    async () => {
      const namespace = named('usual');
      const attempts: readonly (readonly [Json, Json])[] = [
        ...[
          '{"v":1,"by":"floor",',
          '{"v":1,"by":"floor","wait":"x","grace":60,"baseGrace":30,"hook":"Sleep","containers":["app"]}',
          '{"v":1,"by":"floor","wait":99999999999999999999,"grace":1,"baseGrace":1,"hook":"Sleep","containers":["app"]}',
          '{"v":1,"by":"floor","wait":999999999,"grace":999999999,"baseGrace":0,"hook":"Sleep","containers":["app"]}',
          '{"v":1,"by":"floor","wait":30,"grace":999999999,"baseGrace":0,"hook":"Exec","containers":["app"]}',
          '{"v":1,"by":"webhook","skip":"NotServing"}',
          'x'.repeat(200_000),
        ].flatMap((plan): (readonly [Json, Json])[] => {
          const metadata = { annotations: { [ANNOTATION.plan]: plan } };
          const stamped = (preStopped: Json) => ({ containers: [appContainer('app', preStop(preStopped))] });
          return [
            [{}, metadata],
            [{ terminationGracePeriodSeconds: 1 }, metadata],
            [stamped({ sleep: { seconds: 30 } }), metadata],
            [{ ...stamped({ sleep: { seconds: 1 } }), terminationGracePeriodSeconds: 1 }, metadata],
          ];
        }),
        [{ terminationGracePeriodSeconds: Number.MAX_SAFE_INTEGER }, {}],
        [{ terminationGracePeriodSeconds: 0 }, {}],
        [{ terminationGracePeriodSeconds: -7 }, {}],
        [{}, { annotations: { [ANNOTATION.containers]: 'a,'.repeat(100_000) } }],
        [{}, { annotations: { [ANNOTATION.inject]: ' '.repeat(200_000) } }],
        [{}, { labels: Object.fromEntries(Array.from({ length: 10_000 }, (_, at) => [`key-${at}`, 'x'])) }],
        [{ containers: Array.from({ length: 300 }, (_, at) => appContainer(`app-${at}`)) }, {}],
        [{ containers: [appContainer('x'.repeat(100_000))] }, {}],
        [
          { nodeSelector: Object.fromEntries(Array.from({ length: 20_000 }, (_, at) => [`key-${at}`, 'x'])) },
          {},
        ],
        [
          {},
          {
            managedFields: [
              {
                manager: 'x',
                operation: 'Update',
                apiVersion: 'v1',
                time: '2000-01-01T00:00:00Z',
                fieldsType: 'FieldsV1',
                fieldsV1: {},
              },
            ],
          },
        ],
      ];
      const outcomes = async () => {
        const answers = [];
        for (const [more, metadata] of attempts) answers.push(await tried(more, metadata, namespace));
        return answers;
      };
      const codes = (answers: Awaited<ReturnType<typeof outcomes>>) => answers.map((each) => each.status);
      // The floor is not installed here.
      const without = await outcomes();
      const late = {
        [FLOOR.newNamespaces]: '5 30 600 Sleep Job,DaemonSet ',
        _validUntil: '2026-01-01T00:00:00Z',
      };
      await write({ ...usual, ...late });
      await installation?.add('floor/floor.yaml');
      await waitUntil('the policy to count', async () => sleepIn(await tried()) === 30);
      const failures = async () => (await check()).find((line) => line.includes(' failed (')) ?? 'none';
      const failed = (text: string) => /since it started, (\d+) failed/.exec(text)?.[1];
      const before = failed(await failures());
      const withFloor = await outcomes();
      expect(codes(withFloor)).toEqual(codes(without));
      expect(codes(withFloor).filter((code) => code === 201).length).toBeGreaterThan(attempts.length / 2);
      // No stamp, size or time has made an evaluation fail.
      expect(failed(await failures())).toBe(before);
      // A forged time does not make outdated data fresh.
      expect(sleepIn(withFloor.at(-1) as never)).toBe(30);

      const tenant = { kind: 'ServiceAccount', name: 'default', namespace };
      await cluster.create({
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'RoleBinding',
        metadata: { namespace, name: 'everything' },
        roleRef: { apiGroup: 'rbac.authorization.k8s.io', kind: 'ClusterRole', name: 'cluster-admin' },
        subjects: [tenant],
      } as never);
      const may = async (...words: string[]) =>
        (
          await cluster.kubectl([
            'auth',
            'can-i',
            ...words,
            `--as=system:serviceaccount:${namespace}:default`,
          ])
        ).stdout.trim();
      expect(await may('create', 'pods', '--namespace', namespace)).toBe('yes');
      for (const verb of ['get', 'update', 'patch', 'delete'])
        expect(await may(verb, `configmaps/${FLOOR.configMap}`, '--namespace', 'linger')).toBe('no');
      for (const kind of ['mutatingadmissionpolicies', 'mutatingadmissionpolicybindings'])
        for (const verb of ['create', 'update', 'patch', 'delete']) expect(await may(verb, kind)).toBe('no');
      expect(await may('patch', `namespaces/${namespace}`)).toBe('no');
    },
  );

  where('when Linger is back, the leader puts the ConfigMap right', { timeout: 240_000 }, async () => {
    await scale(2);
    const known = (data: Lines) => ({ ...data, _validUntil: '' });
    await waitUntil(
      'the ConfigMap as it was',
      async () => JSON.stringify(known(await lines())) === JSON.stringify(known(usual)),
      {
        timeoutMs: 120_000,
        intervalMs: 1_000,
      },
    ).catch(async () => expect(known(await lines())).toEqual(known(usual)));
    // And again, while nothing moves.
    await set({ [named('usual')]: 'none', 'of-nobody': '5 5 600 Sleep - ' });
    await waitUntil(
      'what an operator has changed to be gone',
      async () => {
        const data = await lines();
        return data[named('usual')] === usual[named('usual')] && data['of-nobody'] === undefined;
      },
      { timeoutMs: 100_000, intervalMs: 1_000 },
    );
  });

  // The last: what an API server reads of a policy that is created anew is its own.
  where(
    'where its policy or its binding is deleted, check and status find it',
    { timeout: 240_000 },
    async () => {
      await scale(0);
      await cluster.delete(BINDING);
      expect((await check())[0]).toMatch(/^warning: MutatingAdmissionPolicy linger-floor is not bound: /);
      expect(await status()).toMatch(/^none: while Linger is down, pods are created without a hook/);
      await installation?.add('floor/floor.yaml');
      await cluster.delete(POLICY);
      expect((await check())[0]).toMatch(
        /^warning: linger-floor has a binding and no MutatingAdmissionPolicy: /,
      );
      await waitUntil('pods without a wait', async () => {
        const answer = await tried();
        expect(answer.status).toBe(201);
        return planIn(answer.body) === undefined;
      });
      await cluster.delete(BINDING);
      expect((await check())[0]).toMatch(
        /^warning: MutatingAdmissionPolicy linger-floor and its binding are gone, after [\d,]+ evaluations on this API server: /,
      );
      expect(await status()).toMatch(/^none: /);
    },
  );
});
