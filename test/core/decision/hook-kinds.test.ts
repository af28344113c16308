import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import {
  HOOK_CHOICES,
  HOOK_NAMES,
  HOOKS,
  type HookContents,
  type HookKind,
  type HookName,
  plainSleep,
  terminationPolicySpec,
} from '../../../src/core/api/index.ts';
import { decide } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import { parsePlan } from '../../../src/core/decision/plan-codec.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { codesOf, tableUnder } from '../../docs/markdown.ts';
import { HOLD_ADDRESS, HOLD_MOUNTS, heldSnapshot, holdToken } from './sample-hold.ts';
import { pass, reviewOf } from './sample-pass.ts';
import { annotated, creationOf, pod, preStop, server } from './sample-pod.ts';
import { clusterPolicy, snapshotOf } from './sample-snapshot.ts';

const SECONDS = fc.integer({ min: 1, max: 600 });

const TOKEN = holdToken();

/** What a hook of a kind is made of; only Hold makes a call. */
function contents(name: HookName, wait: number, max = wait): HookContents {
  return name === 'Hold' ? { wait, call: { address: HOLD_ADDRESS, token: TOKEN.text, wait, max } } : { wait };
}

/** Nothing but `HOOKS` lists kinds: what follows holds for each of them, and for each that is added. */
describe.each(HOOK_NAMES.map((name) => [name, HOOKS[name] as HookKind] as const))('%s', (name, kind) => {
  // Hold is rendered with longest waits; with these it is as long as the others.
  const snapshot = heldSnapshot([clusterPolicy({ hook: name, hold: { max: '30s' } })]);
  const ordinary = (seconds: number) => {
    const container = server('app', preStop(kind.render(contents(name, seconds))));
    return name === 'Hold' ? { ...container, volumeMounts: HOLD_MOUNTS } : container;
  };

  it('recognises what it renders, and nothing of another kind', () => {
    fc.assert(
      fc.property(SECONDS, (seconds) => {
        const handler = kind.render(contents(name, seconds));
        expect(kind.recognise(handler)).toEqual(contents(name, seconds));
        expect(kind.recognise({ ...handler, httpGet: {} })).toBeUndefined();
        for (const other of HOOK_NAMES) {
          if (other !== name) expect(HOOKS[other].recognise(handler)).toBeUndefined();
        }
      }),
    );
  });

  it('is a word of policies and, in any case, of annotations', () => {
    expect(terminationPolicySpec.parse({ hook: name })).toEqual({ hook: name });
    for (const text of [name, name.toLowerCase(), name.toUpperCase()]) {
      const { policy, notes } = decide(
        reviewOf(annotated({ 'linger.dev/hook': text }), heldSnapshot([])),
        heldSnapshot([]),
      );
      expect(policy?.hook.value).toBe(name);
      expect(notes).toEqual([]);
    }
  });

  it('is written to the pod and its plan, and read back from there', () => {
    const { result, decision } = pass(pod(), snapshot, TOKEN);
    expect(result.spec.containers).toEqual([ordinary(30)]);
    expect(decision).toMatchObject({ outcome: 'inject', plan: { hook: name } });
    const { 'linger.dev/plan': text } = result.metadata.annotations as Record<string, string>;
    expect(parsePlan(text ?? '')?.hook).toBe(name);
    expect(pass(result, snapshot)).toMatchObject({ decision: { reason: 'AlreadyInjected' }, operations: [] });
  });

  it('shrinks with a grace that was cut, and goes with it', () => {
    const { result } = pass(pod(), snapshot, TOKEN);
    result.spec.terminationGracePeriodSeconds = 50;
    expect(pass(result, snapshot).result.spec.containers).toEqual([ordinary(20)]);
    result.spec.terminationGracePeriodSeconds = 5;
    expect(pass(result, snapshot).result.spec).toEqual({
      containers: [server('app')],
      terminationGracePeriodSeconds: 5,
    });
  });
});

describe.each(['Sleep', 'Exec'] as const)('an author’s own %s', (name) => {
  const kind: HookKind = HOOKS[name];

  it('is lengthened under Extend', () => {
    const object = pod({ containers: [server('app', preStop(kind.render({ wait: 4 })))] });
    const extend = snapshotOf([clusterPolicy({ existingHook: 'Extend', hook: name })]);
    const operations = patchFor(object as unknown as Pod, decide(creationOf(object), extend));
    expect(plainSleep(kind.render({ wait: 4 }))?.seconds).toBe(4);
    expect(operations[0]?.path).toBe(
      `/spec/containers/0/lifecycle/preStop${plainSleep(kind.render({ wait: 4 }))?.pointer}`,
    );
    expect(pass(object, extend).result.spec.containers).toEqual([
      server('app', preStop(kind.render({ wait: 30 }))),
    ]);
  });
});

describe('the docs name exactly the kinds', () => {
  const rowOf = (page: string, heading: string, table: number, column: string, named: string) =>
    tableUnder(`docs/reference/${page}.md`, heading, table).find((row) => codesOf(row[column])[0] === named);

  test('in the policy fields', () => {
    expect(codesOf(rowOf('policies', 'Fields', 0, 'field', 'hook')?.values)).toEqual([...HOOK_CHOICES]);
  });

  test('in the annotations', () => {
    const row = rowOf('annotations', 'Read by Linger', 0, 'annotation', 'linger.dev/hook');
    expect(codesOf(row?.values)).toEqual([...HOOK_CHOICES]);
  });

  test('in the plan', () => {
    const row = rowOf('annotations', 'Written by Linger', 1, 'member', 'hook');
    expect(codesOf(row?.value)).toEqual([...HOOK_NAMES]);
  });
});

test('Auto takes the first kind that is supported, of those that it may choose', () => {
  const auto = (nativeSleep: boolean, windows: boolean): HookName | undefined =>
    HOOK_NAMES.find(
      (name) => HOOKS[name].auto && HOOKS[name].supports({ nativeSleep, windows, holdHelper: true }),
    );
  expect([auto(true, false), auto(false, false), auto(true, true), auto(false, true)]).toEqual([
    'Sleep',
    'Exec',
    'Sleep',
    undefined,
  ]);
});
