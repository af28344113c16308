import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  appContainer,
  type Json,
  noSleepZero,
  type PodMetadata,
  pod,
  preStop,
  sidecar,
  silentContainer,
} from './support/manifests.ts';
import { createPod, hookOf, planOf, summaryOf } from './support/outcome.ts';
import { clusterPolicy, fixedWait, labelledPolicy, policyFile } from './support/policies.ts';
import { openStage, type Stage } from './support/stage.ts';

interface Case {
  readonly it: string;
  readonly spec?: Json;
  readonly metadata?: PodMetadata;
  readonly expect: string;
}

const by = (policy: string) => ({ metadata: { labels: { policy } } });
const annotated = (annotations: Record<string, string>) => ({ metadata: { annotations } });
const hooked = (handler: Json) => ({ containers: [appContainer('app', preStop(handler))] });
const command = (...words: string[]) => ({ exec: { command: words } });
const side = silentContainer('side');
const grace = (seconds: number) => ({ terminationGracePeriodSeconds: seconds });

const hooks: readonly Case[] = [
  { it: 'Auto', expect: 'Injected: app sleep 5; grace 35' },
  { it: 'Sleep', ...annotated({ 'linger.dev/hook': 'Sleep' }), expect: 'Injected: app sleep 5; grace 35' },
  {
    it: 'Exec',
    ...annotated({ 'linger.dev/hook': 'Exec' }),
    expect: 'Injected: app ["sleep","5"]; grace 35',
  },
  {
    it: 'every ordinary container',
    spec: { containers: [appContainer('app'), side] },
    expect: 'Injected: app sleep 5, side sleep 5; grace 35',
  },
  {
    it: 'only the containers that are named',
    spec: { containers: [appContainer('app'), side] },
    ...annotated({ 'linger.dev/containers': 'side' }),
    expect: 'Injected: app -, side sleep 5; grace 35',
  },
  {
    it: 'a container beside one with its own hook',
    spec: { containers: [appContainer('app', preStop(command('sh', '-c', 'true'))), side] },
    expect: 'Injected: app ["sh","-c","true"], side sleep 5; grace 35',
  },
  {
    it: 'a postStart hook of the author is kept',
    spec: {
      containers: [appContainer('app', { lifecycle: { postStart: { exec: { command: ['true'] } } } })],
    },
    expect: 'Injected: app sleep 5; grace 35',
  },
];

const kept = (handler: Json, as: string): Case => ({
  it: `Keep: ${JSON.stringify(handler)}`,
  spec: hooked(handler),
  expect: `ExistingHook: app ${as}; grace 30`,
});
const extended = (handler: Json, expected: string): Case => ({
  it: `Extend: ${JSON.stringify(handler)}`,
  spec: hooked(handler),
  ...by('extend'),
  expect: expected,
});

const existing: readonly Case[] = [
  kept({ sleep: { seconds: 2 } }, 'sleep 2'),
  kept({ sleep: { seconds: 0 } }, 'sleep 0'),
  kept(command('sleep', '2'), '["sleep","2"]'),
  kept(
    { httpGet: { path: '/', port: 8080, scheme: 'HTTP' } },
    '{"httpGet":{"path":"/","port":8080,"scheme":"HTTP"}}',
  ),
  extended({ sleep: { seconds: 2 } }, 'Injected: app sleep 5; grace 35'),
  extended(command('sleep', '2'), 'Injected: app ["sleep","5"]; grace 35'),
  extended(command('/bin/sleep', '2'), 'Injected: app ["/bin/sleep","5"]; grace 35'),
  extended(command('sh', '-c', 'sleep 2'), 'Injected: app ["sh","-c","sleep 5"]; grace 35'),
  extended(command('/bin/sh', '-c', 'sleep 2s'), 'Injected: app ["/bin/sh","-c","sleep 5s"]; grace 35'),
  extended({ sleep: { seconds: 0 } }, 'ExistingHook: app sleep 0; grace 30'),
  extended({ sleep: { seconds: 8 } }, 'ExistingHook: app sleep 8; grace 30'),
  extended(command('sh', '-c', 'sleep 2; true'), 'ExistingHook: app ["sh","-c","sleep 2; true"]; grace 30'),
];

const graces: readonly Case[] = [
  { it: 'rises by the wait', spec: grace(10), expect: 'Injected: app sleep 5; grace 15' },
  {
    it: 'does not rise beyond grace.max: the wait is taken out of it',
    spec: grace(40),
    ...by('max-35'),
    expect: 'Injected: app sleep 5; grace 40',
  },
  {
    it: 'rises to grace.max, and the wait shrinks',
    spec: grace(28),
    ...by('max-30'),
    expect: 'Injected: app sleep 3; grace 30',
  },
  {
    it: 'keeps nine tenths of grace.max',
    spec: grace(30),
    ...by('max-30'),
    expect: 'Injected: app sleep 3; grace 30',
  },
  { it: 'a ceiling lowers the wait', ...by('ceiling'), expect: 'Injected: app sleep 3; grace 33' },
  {
    it: 'a ceiling lowers an annotation',
    metadata: { labels: { policy: 'ceiling' }, annotations: { 'linger.dev/wait': '60s' } },
    expect: 'Injected: app sleep 3; grace 33',
  },
  {
    it: 'overrides.pods: false ignores an annotation',
    metadata: { labels: { policy: 'strict' }, annotations: { 'linger.dev/wait': '60s' } },
    expect: 'Injected: app sleep 5; grace 35',
  },
  { it: 'of the built-in initial wait', ...by('measured'), expect: 'Injected: app sleep 30; grace 60' },
];

describe('with Linger in front of a real API server', () => {
  let stage: Stage;
  let namespace = '';

  beforeAll(async () => {
    stage = await openStage(async (cluster) => {
      namespace = await cluster.namespace('hooks');
      return policyFile(
        clusterPolicy('base', fixedWait('5s')),
        labelledPolicy('extend', { existingHook: 'Extend' }),
        labelledPolicy('max-35', { grace: { max: '35s' } }),
        labelledPolicy('max-30', { grace: { max: '30s' } }),
        labelledPolicy('ceiling', { ceiling: { wait: '3s' } }),
        labelledPolicy('strict', { overrides: { pods: false } }),
        labelledPolicy('measured', { wait: { from: 'Measured' } }),
      );
    });
  });

  afterAll(() => stage?.close());

  let count = 0;
  const checked = async ({ spec = {}, metadata, expect: expected }: Case) => {
    const object = pod(namespace, `case-${count++}`, spec, metadata);
    const outcome = await createPod(stage, object);
    await stage.cluster.delete(object, { graceSeconds: 0 });
    expect(summaryOf(outcome)).toBe(expected);
    return outcome.pod;
  };

  describe('the hook', () => {
    it.each(hooks)('$it: $expect', async (each) => {
      await checked(each);
    });

    it('keeps what else the author wrote into lifecycle', async () => {
      const stored = await checked(hooks.at(-1) as Case);
      expect(stored.spec.containers[0]?.lifecycle).toHaveProperty('postStart');
    });

    it('a native sidecar gets none', async () => {
      const spec = { initContainers: [sidecar('proxy', 8081)] };
      const stored = await checked({ it: 'sidecar', spec, expect: 'Injected: app sleep 5; grace 35' });
      expect(stored.spec.initContainers?.map(hookOf)).toEqual(['-']);
      expect(planOf(stored)?.containers).toEqual(['app']);
    });
  });

  describe('an existing hook', () => {
    it.for(existing)('$it: $expect', async (each, { skip }) => {
      const why = noSleepZero(each, stage.cluster);
      skip(why !== undefined, why);
      await checked(each);
    });
  });

  describe('the grace', () => {
    it.each(graces)('$it: $expect', async (each) => {
      await checked(each);
    });
  });
});
