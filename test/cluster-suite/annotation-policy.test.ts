import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ANNOTATION, NO_LABELS, namespaceRecord } from '../../src/core/api/index.ts';
import { effectivePolicy, NO_SOURCES, snapshotOf } from '../../src/core/decision/index.ts';
import { type Cluster, inParallel, openCluster, waitUntil } from '../testbed/cluster.ts';
import { nearlyDurations } from './support/crd-judge.ts';
import { appContainer } from './support/manifests.ts';

const MANIFEST = join(import.meta.dirname, '..', '..', 'deploy', 'annotation-policy.yaml');
const SEED = 20_261_125;
/** `plan` and `hold-token` are written by Linger, never read as a wish. */
const KEYS = Object.values(ANNOTATION).filter(
  (key) => key !== ANNOTATION.plan && key !== ANNOTATION.holdToken,
);

type Members = Readonly<Record<string, string>>;

/** Whether Linger reads every annotation and label of an object. */
function isRead(annotations: Members, labels: Members = {}): boolean {
  const subject = { namespace: namespaceRecord('shop', NO_LABELS, NO_LABELS), labels, annotations };
  const { notes } = effectivePolicy(snapshotOf(NO_SOURCES).policies, subject, 'Enforce');
  return !notes.some(({ code }) => code === 'InvalidAnnotation');
}

const words = [
  'Enforce',
  'audit',
  'OFF',
  'Auto',
  'sLeEp',
  'Exec',
  'Hold',
  'Keep',
  'extend',
  '\u212aeep',
  '\u017fleep',
  'Of',
  'offf',
];
const bools = [
  '1',
  't',
  'T',
  'true',
  'TRUE',
  'True',
  '0',
  'f',
  'F',
  'false',
  'FALSE',
  'False',
  'tRUE',
  'yes',
  'no',
  '2',
  '-1',
];
const durations = [
  '0',
  '45s',
  '1m30s',
  '.5s',
  '1.s',
  '168h',
  '168h1ns',
  '0.1000h',
  '100000ms',
  '0000000000001h',
  '999999999999999h',
  '9223372036854775808ns',
  '1d',
  '-1s',
  '+1s',
  '1e3s',
  '1µs',
  '1μs',
  '30 s',
  '30',
  `${'0'.repeat(63)}s`,
  `${'0'.repeat(64)}s`,
];
const names = [
  'app',
  'app,proxy',
  ' app , proxy ',
  ',',
  ' , ',
  ',,app,,',
  'a\u00a0b',
  `${'a,'.repeat(1_000)}`,
  `${'a,'.repeat(1_001)}`,
];
const spaces = ['', ' ', '\t', '\n', '\u00a0', '\u2003', '\u3000', '\ufeff', '\u0085', '\u200b', '\r\n '];
const texts = [...words, ...bools, ...durations, ...names, ''];
/** Every value that means something to one annotation, at each of them, and some with white space around. */
const TABLE: readonly (readonly [key: string, value: string])[] = [
  ...KEYS.flatMap((key) => texts.map((text) => [key, text] as const)),
  ...KEYS.flatMap((key) =>
    ['true', 'Audit', '45s', 'Sleep', 'app', 'Keep'].flatMap((text) =>
      spaces.map((space) => [key, `${space}${text}${space}`] as const),
    ),
  ),
];

describe('the policy of annotations, as a real API server applies it', () => {
  let cluster: Cluster;
  let namespace = '';

  beforeAll(async () => {
    cluster = await openCluster();
    namespace = await cluster.namespace('annotations');
    await cluster.mustKubectl(['apply', '--filename', MANIFEST]);
    await waitUntil('the policy to be in force', async () => !(await isTaken({ [ANNOTATION.mode]: 'x' })), {
      timeoutMs: 60_000,
    });
  }, 120_000);

  afterAll(async () => {
    await cluster.kubectl(['delete', '--ignore-not-found', '--filename', MANIFEST]);
    await cluster.close();
  }, 120_000);

  async function post(path: string, object: object) {
    return cluster.api.request<{ message?: string }>('POST', `${path}?dryRun=All`, { body: object });
  }

  const namespaceWith = (metadata: object) => ({
    apiVersion: 'v1',
    kind: 'Namespace',
    metadata: { name: 'linger-annotation-policy', ...metadata },
  });

  async function isTaken(annotations: Members, labels: Members = {}): Promise<boolean> {
    const { status, body } = await post('/api/v1/namespaces', namespaceWith({ annotations, labels }));
    if (status === 201) return true;
    expect([status, body.message]).toEqual([422, expect.stringContaining('linger-annotations')]);
    return false;
  }

  async function differences(
    cases: readonly (readonly [key: string, value: string])[],
  ): Promise<readonly string[]> {
    const different: string[] = [];
    await inParallel(cases, async ([key, value]) => {
      const [read, taken] = [isRead({ [key]: value }), await isTaken({ [key]: value })];
      if (read !== taken)
        different.push(`${key}: ${JSON.stringify(value)}: Linger ${read}, API server ${taken}`);
    });
    return different;
  }

  it('takes and refuses what Linger does, value by value', { timeout: 240_000 }, async () => {
    const taken = TABLE.filter(([key, value]) => isRead({ [key]: value })).length;
    console.log(`${taken} of ${TABLE.length} values are read`);
    expect(taken).toBeGreaterThan(100);
    expect(taken).toBeLessThan(TABLE.length - 100);
    expect(await differences(TABLE)).toEqual([]);
  });

  it('and what chance makes', { timeout: 240_000 }, async () => {
    const value = fc.oneof(
      nearlyDurations(),
      fc.string({ maxLength: 8 }),
      fc.constantFrom(...texts),
      fc
        .tuple(fc.constantFrom(...spaces), fc.constantFrom(...texts), fc.constantFrom(...spaces))
        .map((parts) => parts.join('')),
    );
    const cases = fc.sample(fc.tuple(fc.constantFrom(...KEYS), value), { seed: SEED, numRuns: 400 });
    expect(await differences(cases)).toEqual([]);
  });

  it.each(['true', 'False', 'no', 'yes', '2'])('the label inject: %s', async (value) => {
    expect(await isTaken({}, { [ANNOTATION.inject]: value })).toBe(
      isRead({}, { [ANNOTATION.inject]: value }),
    );
  });

  const template = (metadata: object) => ({
    metadata: { ...metadata, labels: { app: 'x' } },
    spec: { containers: [appContainer('app')] },
  });
  const selector = { matchLabels: { app: 'x' } };
  const workloads = (metadata: object): readonly (readonly [path: string, object: object])[] => {
    const apps = `/apis/apps/v1/namespaces/${namespace}`;
    const job = {
      template: { ...template(metadata), spec: { ...template({}).spec, restartPolicy: 'Never' } },
    };
    return [
      [`/api/v1/namespaces/${namespace}/pods`, { kind: 'Pod', ...template(metadata) }],
      [`${apps}/deployments`, { kind: 'Deployment', spec: { selector, template: template(metadata) } }],
      [
        `${apps}/statefulsets`,
        { kind: 'StatefulSet', spec: { serviceName: 'x', selector, template: template(metadata) } },
      ],
      [`${apps}/daemonsets`, { kind: 'DaemonSet', spec: { selector, template: template(metadata) } }],
      [`${apps}/replicasets`, { kind: 'ReplicaSet', spec: { selector, template: template(metadata) } }],
      [`/apis/batch/v1/namespaces/${namespace}/jobs`, { kind: 'Job', spec: job }],
      [
        `/apis/batch/v1/namespaces/${namespace}/cronjobs`,
        { kind: 'CronJob', spec: { schedule: '* * * * *', jobTemplate: { spec: job } } },
      ],
    ];
  };
  const named = (object: object) => ({
    ...object,
    metadata: { ...(object as { metadata?: object }).metadata, name: 'x' },
  });

  it('looks at pods and the templates of workloads, not at what controllers make', async () => {
    for (const [path, object] of workloads({ annotations: { [ANNOTATION.wait]: '45s' } }))
      expect([path, (await post(path, named(object))).status]).toEqual([path, 201]);
    for (const [path, object] of workloads({ annotations: { [ANNOTATION.wait]: 'soon' } })) {
      const { status, body } = await post(path, named(object));
      expect([path, status, body.message]).toEqual([
        path,
        422,
        expect.stringMatching(/linger\.dev\/wait: expected a duration/),
      ]);
    }
    const owner = { apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'x', uid: 'x', controller: true };
    const [[path, pod] = ['', {}]] = workloads({
      annotations: { [ANNOTATION.wait]: 'soon' },
      ownerReferences: [owner],
    });
    expect((await post(path, named(pod))).status).toBe(201);
  });

  it('lets an object that has a fault already be changed', async () => {
    await cluster.kubectl(['delete', '--filename', MANIFEST]);
    await waitUntil('the policy to be gone', () => isTaken({ [ANNOTATION.mode]: 'x' }), {
      timeoutMs: 60_000,
    });
    const annotate = (...pairs: string[]) =>
      cluster.kubectl(['annotate', '--overwrite', 'namespace', namespace, ...pairs]);
    expect((await annotate(`${ANNOTATION.mode}=x`)).code).toBe(0);
    await cluster.mustKubectl(['apply', '--filename', MANIFEST]);
    await waitUntil('the policy to be in force', async () => !(await isTaken({ [ANNOTATION.mode]: 'x' })), {
      timeoutMs: 60_000,
    });
    expect((await annotate('other=y')).code).toBe(0);
    const refused = await annotate(`${ANNOTATION.mode}=z`);
    expect([refused.code, refused.stderr]).toEqual([
      1,
      expect.stringContaining('expected Enforce, Audit or Off'),
    ]);
    expect((await annotate(`${ANNOTATION.mode}-`)).code).toBe(0);
  });

  it.each([
    [{ labels: { [ANNOTATION.wait]: '45s' } }, /Warning: .*move it to metadata\.annotations/],
    [{ annotations: { 'linger.dev/waits': '45s' } }, /Warning: .*does not know/],
    [{ annotations: { [ANNOTATION.wait]: '45s' }, labels: { [ANNOTATION.inject]: 'true' } }, /^$/],
  ])('warns of %j', async (metadata, said) => {
    const args = ['apply', '--dry-run=server', '--filename', '-'];
    const { code, stderr } = await cluster.kubectl(args, { stdin: JSON.stringify(namespaceWith(metadata)) });
    expect([code, stderr.trim()]).toEqual([0, expect.stringMatching(said)]);
  });

  it('warns of an annotation on the workload in place of its template', async () => {
    const [, [, object] = ['', {}]] = workloads({});
    const deployment = {
      apiVersion: 'apps/v1',
      ...object,
      metadata: { name: 'x', namespace, annotations: { [ANNOTATION.wait]: '45s' } },
    };
    const args = ['apply', '--dry-run=server', '--filename', '-'];
    const { code, stderr } = await cluster.kubectl(args, { stdin: JSON.stringify(deployment) });
    expect([code, stderr]).toEqual([0, expect.stringMatching(/Warning: .*put it into the pod template/)]);
  });
});
