import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { waitUntil } from '../testbed/cluster.ts';
import {
  appContainer,
  type Json,
  job,
  noSleepZero,
  type PodMetadata,
  type PodObject,
  pod,
  preStop,
  silentContainer,
} from './support/manifests.ts';
import { createPod, planOf, summaryOf } from './support/outcome.ts';
import {
  clusterPolicy,
  fixedWait,
  knownNamespace,
  knownService,
  labelledPolicy,
  policyFile,
} from './support/policies.ts';
import { openStage, type Stage } from './support/stage.ts';

interface Case {
  readonly it: string;
  readonly spec?: Json;
  readonly metadata?: PodMetadata;
  /** Default: a namespace whose Services Linger knows. */
  readonly in?: 'optedOut';
  /** Not stored: the cluster has no node for it. */
  readonly dryRun?: true;
  readonly expect: string;
}

const by = (policy: string) => ({ metadata: { labels: { policy } } });
const annotated = (annotations: Record<string, string>) => ({ metadata: { annotations } });
const owner = (kind: string) => ({
  ownerReferences: [
    { apiVersion: 'apps/v1', kind, name: 'owner', uid: crypto.randomUUID(), controller: true },
  ],
});
const windows = { os: { name: 'windows' }, nodeSelector: { 'kubernetes.io/os': 'windows' } };

const untouched = 'app -; grace 30';

/** Every reason that a pod on its way through a real API server can have, as deploy/ registers Linger. */
const cases: readonly Case[] = [
  { it: 'nothing against it', expect: 'Injected: app sleep 5; grace 35' },
  {
    it: 'annotation inject: "false"',
    ...annotated({ 'linger.dev/inject': 'false' }),
    expect: `OptedOut: ${untouched}`,
  },
  {
    it: 'annotation inject: F',
    ...annotated({ 'linger.dev/inject': 'F' }),
    expect: `OptedOut: ${untouched}`,
  },
  {
    it: 'label inject: "false" (objectSelector)',
    metadata: { labels: { 'linger.dev/inject': 'false' } },
    expect: `not asked: ${untouched}`,
  },
  { it: 'namespace annotation inject: "false"', in: 'optedOut', expect: `OptedOut: ${untouched}` },
  { it: 'mode Off by policy', ...by('off'), expect: `ModeOff: ${untouched}` },
  {
    it: 'mode Off by annotation',
    ...annotated({ 'linger.dev/mode': 'Off' }),
    expect: `ModeOff: ${untouched}`,
  },
  { it: 'mode Audit by policy', ...by('audit'), expect: `Audit: ${untouched}` },
  {
    it: 'restartPolicy Never (matchConditions)',
    spec: { restartPolicy: 'Never' },
    expect: `not asked: ${untouched}`,
  },
  {
    it: 'restartPolicy OnFailure (matchConditions)',
    spec: { restartPolicy: 'OnFailure' },
    expect: `not asked: ${untouched}`,
  },
  { it: 'a pod of a DaemonSet', metadata: owner('DaemonSet'), expect: `DaemonSet: ${untouched}` },
  {
    it: 'a pod of a DaemonSet that asks for it',
    metadata: { ...owner('DaemonSet'), annotations: { 'linger.dev/inject': 'true' } },
    expect: 'Injected: app sleep 5; grace 35',
  },
  {
    it: 'a pod of a kind that the policy excludes',
    metadata: { ...owner('StatefulSet'), ...by('exclude').metadata },
    expect: `ExcludedKind: ${untouched}`,
  },
  { it: 'grace 0', spec: { terminationGracePeriodSeconds: 0 }, expect: 'ZeroGrace: app -; grace 0' },
  {
    it: 'no Service, no port, no probe',
    spec: { containers: [silentContainer('app')] },
    expect: `NotServing: ${untouched}`,
  },
  {
    it: 'no Service, no port, no probe, but it asks for it',
    spec: { containers: [silentContainer('app')] },
    ...annotated({ 'linger.dev/inject': 'true' }),
    expect: 'Injected: app sleep 5; grace 35',
  },
  { it: 'pods: Selected, and only a port', ...by('selected'), expect: `NotServing: ${untouched}` },
  {
    it: 'pods: Selected, and a Service selects it',
    metadata: { labels: { policy: 'selected', app: 'known' } },
    expect: 'Injected: app sleep 5; grace 35',
  },
  {
    it: 'pods: All, and no sign of traffic',
    spec: { containers: [silentContainer('app')] },
    ...by('all'),
    expect: 'Injected: app sleep 5; grace 35',
  },
  {
    it: 'no container of that name',
    ...annotated({ 'linger.dev/containers': 'web' }),
    expect: `NoContainer: ${untouched}`,
  },
  {
    it: 'own hook',
    spec: { containers: [appContainer('app', preStop({ exec: { command: ['sh', '-c', 'true'] } }))] },
    expect: 'ExistingHook: app ["sh","-c","true"]; grace 30',
  },
  {
    it: 'sleep: 0',
    spec: { containers: [appContainer('app', preStop({ sleep: { seconds: 0 } }))] },
    expect: 'ExistingHook: app sleep 0; grace 30',
  },
  {
    it: 'a Windows pod that may only have Exec',
    spec: windows,
    ...annotated({ 'linger.dev/hook': 'Exec' }),
    dryRun: true,
    expect: `NoHook: ${untouched}`,
  },
  { it: 'a Windows pod', spec: windows, dryRun: true, expect: 'Injected: app sleep 5; grace 35' },
  { it: 'wait 0', ...annotated({ 'linger.dev/wait': '0s' }), expect: `NoWait: ${untouched}` },
  {
    it: 'grace.max without room',
    ...by('no-room'),
    spec: { terminationGracePeriodSeconds: 5 },
    expect: 'NoRoom: app -; grace 5',
  },
];

describe('a pod is left alone, or not, for', () => {
  let stage: Stage;
  let namespace = '';
  let optedOut = '';

  beforeAll(async () => {
    stage = await openStage(async (cluster) => {
      namespace = await cluster.namespace('skips');
      optedOut = await cluster.namespace('skips-opted-out');
      return policyFile(
        clusterPolicy('base', fixedWait('5s')),
        labelledPolicy('off', { mode: 'Off' }),
        labelledPolicy('audit', { mode: 'Audit' }),
        labelledPolicy('exclude', { exclude: ['StatefulSet'] }),
        labelledPolicy('selected', { pods: 'Selected' }),
        labelledPolicy('all', { pods: 'All' }),
        labelledPolicy('no-room', { grace: { max: '5s' } }),
        knownService(namespace, { app: 'known' }),
        knownNamespace(optedOut, { 'linger.dev/inject': 'false' }),
      );
    });
  });

  afterAll(() => stage?.close());

  let count = 0;
  const create = async (each: Case) => {
    const object = pod(
      each.in === 'optedOut' ? optedOut : namespace,
      `case-${count++}`,
      each.spec ?? {},
      each.metadata,
    );
    const outcome = await createPod(stage, object, { dryRun: each.dryRun === true });
    if (each.dryRun !== true) await stage.cluster.delete(object, { graceSeconds: 0 });
    return outcome;
  };

  it.for(cases)('$it: $expect', async (each, { skip }) => {
    const why = noSleepZero(each, stage.cluster);
    skip(why !== undefined, why);
    const outcome = await create(each);
    expect(summaryOf(outcome)).toBe(each.expect);
    // Either the whole plan is there, or no trace of one.
    expect(planOf(outcome.pod) !== undefined).toBe(each.expect.startsWith('Injected'));
    expect(planOf(outcome.pod)).toMatchObject(
      outcome.decisions[0]?.outcome === 'inject' ? (outcome.decisions[0].plan ?? {}) : {},
    );
  });

  it('a namespace with the label inject: "false" (namespaceSelector): not asked', async () => {
    const labelled = await stage.cluster.namespace('skips-labelled', { 'linger.dev/inject': 'false' });
    const outcome = await createPod(stage, pod(labelled, 'app', {}));
    expect(summaryOf(outcome)).toBe(`not asked: ${untouched}`);
  });

  it('a pod that carries its plan already: AlreadyInjected, and stored as it came', async () => {
    const first = await createPod(stage, pod(namespace, 'again', {}), { dryRun: true });
    const { spec, metadata } = first.pod;
    const again = pod(namespace, 'again', { ...spec }, { annotations: metadata.annotations ?? {} });
    const second = await createPod(stage, again, { dryRun: true });
    expect(summaryOf(second)).toBe('AlreadyInjected: app sleep 5; grace 35');
    expect(second.pod.metadata.annotations).toEqual(metadata.annotations);
  });

  it('a copied plan without its hooks: Injected as if it were not there', async () => {
    const { pod: first } = await createPod(stage, pod(namespace, 'copied', {}), { dryRun: true });
    const copied = pod(namespace, 'copied', {}, { annotations: first.metadata.annotations ?? {} });
    const outcome = await createPod(stage, copied, { dryRun: true });
    expect(summaryOf(outcome)).toBe('Injected: app sleep 5; grace 35');
    expect(outcome.decisions[0]?.notes).toContain('StalePlan');
  });

  /** The selectors and conditions of deploy/webhook.yaml are an economy: without them nothing may change. */
  describe('the same, when the API server asks about everything', () => {
    beforeAll(async () => {
      await stage.registration.edit((webhook) => ({
        ...webhook,
        matchConditions: [],
        objectSelector: {},
        rules: [
          {
            apiGroups: [''],
            apiVersions: ['v1'],
            resources: ['pods'],
            operations: ['CREATE', 'UPDATE'],
            scope: '*',
          },
        ],
      }));
      const asked = pod(namespace, 'asked', { restartPolicy: 'Never' });
      await waitUntil('the API server to ask', async () => {
        const { decisions } = await createPod(stage, asked, { dryRun: true });
        return decisions.length > 0;
      });
    });

    const more: readonly Case[] = [
      { it: 'restartPolicy Never', spec: { restartPolicy: 'Never' }, expect: `RestartPolicy: ${untouched}` },
      {
        it: 'restartPolicy OnFailure',
        spec: { restartPolicy: 'OnFailure' },
        expect: `RestartPolicy: ${untouched}`,
      },
      {
        it: 'label inject: "false"',
        metadata: { labels: { 'linger.dev/inject': 'false' } },
        expect: `OptedOut: ${untouched}`,
      },
    ];

    it.each(more)('$it: $expect', async (each) => {
      expect(summaryOf(await create(each))).toBe(each.expect);
    });

    it('a mirror pod: MirrorPod', async () => {
      const [node] = await stage.cluster.list({ apiVersion: 'v1', kind: 'Node' });
      const annotations = { 'kubernetes.io/config.mirror': 'hash' };
      const mirror = pod(namespace, 'mirror', { nodeName: node?.metadata.name }, { annotations });
      const outcome = await createPod(stage, mirror, { dryRun: true });
      expect(summaryOf(outcome)).toBe(`MirrorPod: ${untouched}`);
    });

    it('a pod of a Job: Job', async () => {
      const before = (await stage.linger.decisions(namespace)).length;
      await stage.cluster.create(job(namespace, 'work'));
      const decided = await waitUntil('the pod of the Job', async () =>
        (await stage.linger.decisions(namespace)).at(before),
      );
      expect(decided).toMatchObject({ outcome: 'skip', reason: 'Job' });
    });

    it('a label that is set later: NotPodCreate', async () => {
      const object = pod(namespace, 'updated', {});
      await createPod(stage, object);
      const before = (await stage.linger.decisions(namespace)).length;
      await stage.cluster.patch<PodObject>(object, { metadata: { labels: { changed: 'yes' } } });
      const decisions = (await stage.linger.decisions(namespace)).slice(before);
      expect(decisions[0]).toMatchObject({ outcome: 'skip', reason: 'NotPodCreate' });
    });
  });
});
