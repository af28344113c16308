import { describe, expect, it } from 'vitest';
import { taken } from '../../../src/core/api/index.ts';
import {
  type Floor,
  type FloorEntry,
  floorData,
  floorEntry,
  floorOf,
  floorWaits,
} from '../../../src/core/decision/floor.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { container, type JsonObject, podOf, server } from './sample-pod.ts';
import {
  type Circumstances,
  clusterPolicy,
  consumer,
  fleet,
  namespace,
  policy,
  sampleNode,
  service,
  snapshotOf,
} from './sample-snapshot.ts';

const FOR_SOME = { podSelector: { matchLabels: { tier: 'edge' } } };
const UNTIL = Date.parse('2026-11-28T06:00:00Z') / 1_000;

function entryOf(documents: readonly JsonObject[], circumstances: Circumstances = {}) {
  return taken(floorEntry('shop', snapshotOf([namespace(), ...documents], circumstances)));
}

describe('what pods of a namespace get while Linger is down', () => {
  it('is the initial wait where nothing is known', () => {
    expect(entryOf([])).toEqual({
      wait: 30,
      initial: 30,
      maxGrace: 600,
      hook: 'Sleep',
      excluded: ['Job', 'DaemonSet'],
      containers: [],
    });
  });

  it.each<[string, readonly JsonObject[], Partial<FloorEntry>]>([
    ['what is fixed', [clusterPolicy({ wait: { from: 'Fixed', fixed: '12500ms' } })], { wait: 13 }],
    ['its initial wait', [policy({ wait: { initial: '40s' } })], { wait: 40, initial: 40 }],
    ['within the ceiling', [clusterPolicy({ ceiling: { wait: '7s' } })], { wait: 7, initial: 7 }],
    ['what a Namespace asks for', [namespace({ 'linger.dev/wait': '50s' })], { wait: 50 }],
    [
      'the longest that a policy for some pods gives',
      [policy({ ...FOR_SOME, wait: { from: 'Fixed', fixed: '80s' } })],
      { wait: 80 },
    ],
    [
      'not the shorter one of a policy for some pods',
      [policy({ ...FOR_SOME, wait: { initial: '10s' } })],
      { wait: 30 },
    ],
    [
      'with the ceiling of all, where one for some pods is higher',
      [
        clusterPolicy({ ceiling: { wait: '20s' } }),
        clusterPolicy({ ...FOR_SOME, ceiling: { wait: '90s' } }, 'edge'),
      ],
      { wait: 20 },
    ],
    [
      'what a consumer needs that may send to a pod without a Service',
      [consumer({}, 'slow', { declared: { lag: '40s' } })],
      { wait: 60 },
    ],
    [
      'what a consumer needs that finds pods by itself',
      [
        consumer({ podSelector: { matchLabels: { own: 'discovery' } } }, 'slow', {
          declared: { lag: '40s' },
        }),
      ],
      { wait: 60 },
    ],
    [
      'nothing of a consumer of other namespaces',
      [
        consumer({ namespaceSelector: { matchLabels: { other: 'one' } } }, 'slow', {
          declared: { lag: '40s' },
        }),
        service({ selector: { app: 'web' } }),
      ],
      { wait: 30 },
    ],
    ['the largest grace', [policy({ ...FOR_SOME, grace: { max: '900s' } })], { maxGrace: 900 }],
    [
      'no pod of a kind that some policy excludes',
      [policy({ exclude: ['Job'] }), policy({ ...FOR_SOME, exclude: ['StatefulSet'] }, 'edge')],
      { excluded: ['Job', 'StatefulSet'] },
    ],
    ['the containers that are named', [policy({ containers: ['app'] })], { containers: ['app'] }],
    [
      'only pods without hooks, where some pods have named containers',
      [policy({ ...FOR_SOME, containers: ['app'] })],
      { containers: ['?'] },
    ],
    ['Sleep where pods would be held', [policy({ hook: 'Hold' })], { hook: 'Sleep' }],
    ['Exec where that is asked for', [policy({ hook: 'Exec' })], { hook: 'Exec' }],
  ])('is %s', (_, documents, expected) => {
    expect(entryOf(documents)).toMatchObject(expected);
  });

  it.each<[string, readonly JsonObject[], Circumstances?]>([
    ['the mode is Audit', [clusterPolicy({ mode: 'Audit' })]],
    ['the mode is limited', [], { modeLimit: 'Audit' }],
    ['the ceiling is Off', [clusterPolicy({ ceiling: { mode: 'Off' } })]],
    ['a policy restrains some pods', [policy({ ...FOR_SOME, mode: 'Audit' })]],
    ['a ceiling restrains some pods', [clusterPolicy({ ...FOR_SOME, ceiling: { mode: 'Audit' } })]],
    ['the Namespace opts out', [namespace({ 'linger.dev/inject': 'false' })]],
    ['the Namespace cannot be read', [namespace({ 'linger.dev/mode': 'Auditt' })]],
    ['the wait is 0', [policy({ wait: { from: 'Fixed', fixed: '0s' } })]],
    ['the hook works on no node', [policy({ hook: 'Sleep' })], { fleet: fleet('v1.36.3', 'v1.29.0') }],
    [
      'the hook may meet Windows',
      [policy({ hook: 'Exec' })],
      {
        fleet: {
          ...fleet('v1.36.3', 'v1.36.3'),
          nodes: [sampleNode({ operatingSystem: 'windows' })],
        },
      },
    ],
  ])('is nothing where %s', (_, documents, circumstances) => {
    expect(entryOf(documents, circumstances)).toBeUndefined();
  });
});

describe('what new namespaces get', () => {
  const newOf = (...documents: readonly JsonObject[]) => taken(floorOf(snapshotOf(documents))).newNamespaces;

  it('is what the policies for all of the cluster give', () => {
    expect(newOf(clusterPolicy({ wait: { initial: '45s' } }))).toMatchObject({ wait: 45 });
  });

  it('is nothing while a policy for some namespaces may restrain theirs', () => {
    const selector = { namespaceSelector: { matchLabels: { env: 'test' } } };
    expect(newOf(clusterPolicy({ ...selector, mode: 'Off' }))).toBeUndefined();
    expect(newOf(clusterPolicy({ ...selector, wait: { initial: '45s' } }))).toMatchObject({ wait: 30 });
  });
});

describe('the data of the ConfigMap', () => {
  const entry = (wait: number): FloorEntry => ({
    wait,
    initial: 30,
    maxGrace: 600,
    hook: 'Sleep',
    excluded: ['Job'],
    containers: [],
  });
  const floor = (entries: Readonly<Record<string, FloorEntry | undefined>>, others = entry(30)): Floor => ({
    byNamespace: new Map(Object.entries(entries)),
    newNamespaces: others,
  });

  it('has a line for each namespace that differs from new ones', () => {
    const { data, dropped } = floorData(floor({ shop: entry(20), web: entry(30), test: undefined }), UNTIL);
    expect(data).toEqual({
      _: '30 30 600 Sleep Job ',
      _validUntil: '2026-11-28T06:00:00Z',
      shop: '20 30 600 Sleep Job ',
      test: 'none',
    });
    expect(dropped).toBe(0);
  });

  it('leaves some namespaces alone, and all new ones, where it has no room', () => {
    const many = Object.fromEntries(
      Array.from({ length: 100 }, (_, at) => [`namespace-${at}`, at % 2 === 0 ? undefined : entry(at)]),
    );
    const { data, dropped } = floorData(floor(many), UNTIL, 1_000);
    const { _: others, _validUntil: _until, _dropped: said, ...kept } = data;
    expect(others).toBe('none');
    expect(said).toBe(String(dropped));
    expect(Object.keys(kept).length + dropped).toBe(50);
    expect(Object.keys(kept).length).toBeGreaterThan(10);
    expect(Object.values(kept)).not.toContain('none');
    expect(JSON.stringify(kept).length).toBeLessThan(1_000);
  });
});

describe('the waits that an entry comes to', () => {
  const entry = entryOf([policy({ wait: { from: 'Fixed', fixed: '20s' } })]);
  if (entry === undefined) throw new Error('expected an entry');
  const waitsOf = (pod: object, changes: Partial<FloorEntry> = {}, kind = 'ReplicaSet') =>
    floorWaits(pod as Pod, kind, { ...entry, ...changes });

  it.each<[string, Partial<FloorEntry>, atFirst: number, later: number]>([
    ['as they are', {}, 20, 20],
    ['at least the initial wait, once it is out of date', { initial: 30 }, 20, 30],
    ['but not less than before', { initial: 5 }, 20, 20],
    ['what grace.max leaves room for', { maxGrace: 40 }, 10, 10],
  ])('%s', (_, changes, atFirst, later) => {
    expect(waitsOf(podOf(server()), changes)).toEqual({ hook: 'Sleep', atFirst, later });
  });

  it('none for a pod that declares no traffic, or whose owner is excluded', () => {
    const none = { hook: 'Sleep', atFirst: 0, later: 0 };
    expect(waitsOf(podOf(container('app')))).toEqual(none);
    expect(waitsOf(podOf(server()), {}, 'Job')).toEqual(none);
  });
});
