import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import type { Field } from '../../../src/core/decision/policy-values.ts';
import { warningsOf } from '../../../src/core/decision/reasons.ts';
import { annotated, creationOf, type JsonObject, pod } from './sample-pod.ts';
import { clusterPolicy, namespace, snapshotOf } from './sample-snapshot.ts';

function decideFor(annotations: JsonObject, labels: JsonObject = {}, documents: JsonObject[] = []) {
  return decide(creationOf(pod({}, { annotations, labels })), snapshotOf(documents));
}

function leafOf(field: Field, annotations: JsonObject): unknown {
  return decideFor(annotations).policy?.[field].value;
}

describe('an annotation that parses', () => {
  test.each<[string, string, Field, unknown]>([
    ['linger.dev/mode', 'Enforce', 'mode', 'Enforce'],
    ['linger.dev/mode', 'Audit', 'mode', 'Audit'],
    ['linger.dev/mode', 'audit', 'mode', 'Audit'],
    ['linger.dev/mode', 'ENFORCE', 'mode', 'Enforce'],
    ['linger.dev/mode', 'Off', 'mode', 'Off'],
    ['linger.dev/wait', '45s', 'wait.fixed', 45],
    ['linger.dev/wait', '45s', 'wait.from', 'Fixed'],
    ['linger.dev/wait', '1m30s', 'wait.fixed', 90],
    ['linger.dev/wait', '0', 'wait.fixed', 0],
    ['linger.dev/hook', 'Auto', 'hook', 'Auto'],
    ['linger.dev/hook', 'Sleep', 'hook', 'Sleep'],
    ['linger.dev/hook', 'Exec', 'hook', 'Exec'],
    ['linger.dev/hook', 'exec', 'hook', 'Exec'],
    ['linger.dev/containers', 'a', 'containers', ['a']],
    ['linger.dev/containers', 'a, b ,c', 'containers', ['a', 'b', 'c']],
    ['linger.dev/existing-hook', 'Keep', 'existingHook', 'Keep'],
    ['linger.dev/existing-hook', 'Extend', 'existingHook', 'Extend'],
    ['linger.dev/existing-hook', 'extend', 'existingHook', 'Extend'],
  ])('%s: %s', (key, text, field, value) => {
    expect(leafOf(field, { [key]: text })).toEqual(value);
    expect(decideFor({ [key]: text }).policy?.[field].origin).toBe(`Pod ${key}`);
  });

  test.each(['1', 't', 'T', 'true', 'TRUE', 'True'])('linger.dev/inject: %s is true', (text) => {
    expect(leafOf('inject', { 'linger.dev/inject': text })).toBe(true);
  });

  test.each(['0', 'f', 'F', 'false', 'FALSE', 'False'])('linger.dev/inject: %s is false', (text) => {
    expect(decideFor({ 'linger.dev/inject': text })).toMatchObject({ outcome: 'skip', reason: 'OptedOut' });
  });
});

describe('an annotation that does not parse never blocks: it is ignored, and a warning names it', () => {
  test.each([
    ['linger.dev/wait', ''],
    ['linger.dev/wait', '45'],
    ['linger.dev/wait', '-5s'],
    ['linger.dev/wait', 'forever'],
    ['linger.dev/wait', '1y'],
    ['linger.dev/wait', '400h'],
    ['linger.dev/hook', ''],
    ['linger.dev/hook', 'sleeping'],
    ['linger.dev/hook', 'Nap'],
    ['linger.dev/containers', ''],
    ['linger.dev/containers', ' , '],
    ['linger.dev/existing-hook', ''],
    ['linger.dev/existing-hook', 'Replace'],
  ])('%s: %j', (key, text) => {
    const decision = decideFor({ [key]: text });
    const asIfAbsent = decideFor({});
    expect(decision.outcome).toBe('inject');
    expect(decision.policy).toEqual(asIfAbsent.policy);
    expect(decision.notes).toMatchObject([{ code: 'InvalidAnnotation', subject: key }]);
    const warnings = warningsOf(decision.notes);
    expect(warnings).toHaveLength(1);
    expect(warnings[0]).toContain(key);
    expect(warnings[0]).toContain('expected ');
    expect(warnings[0]).toContain(`got "${text}"`);
  });

  const UNREADABLE = [
    ['linger.dev/inject', ''],
    ['linger.dev/inject', 'yes'],
    ['linger.dev/inject', 'no'],
    ['linger.dev/inject', 'tRUE'],
    ['linger.dev/inject', 'disabled'],
    ['linger.dev/inject', 'constructor'],
    ['linger.dev/mode', ''],
    ['linger.dev/mode', 'Dry'],
    ['linger.dev/mode', 'constructor'],
  ] as const;

  test.each(UNREADABLE)(
    '%s: %j can only have been meant to restrain: the pod is kept in Audit',
    (key, text) => {
      const { policy, notes, outcome } = decideFor({ [key]: text });
      const { policy: asIfAbsent } = decideFor({});
      expect(outcome).toBe('inject');
      const ignored = [{ value: 'Enforce', origin: 'built-in', because: key }];
      const mode = { value: 'Audit', origin: `Pod ${key}`, ignored };
      expect(policy).toEqual({ ...asIfAbsent, mode });
      expect(notes).toMatchObject([{ code: 'InvalidAnnotation', subject: key }]);
      expect(warningsOf(notes)[0]).toMatch(
        new RegExp(`${key}: expected .* got "${text}"; the pod is kept in Audit`),
      );
    },
  );

  it('as an unreadable label linger.dev/inject does, and one of the Namespace', () => {
    expect(decideFor({}, { 'linger.dev/inject': 'maybe' }).policy?.mode.value).toBe('Audit');
    const { policy } = decideFor({}, {}, [namespace({ 'linger.dev/mode': 'Dry' })]);
    expect(policy?.mode).toMatchObject({ value: 'Audit', origin: 'Namespace/shop linger.dev/mode' });
  });

  it('but neither out of Off, nor against a mode that the pod sets itself', () => {
    const off = decideFor({ 'linger.dev/inject': 'no' }, {}, [clusterPolicy({ mode: 'Off' })]);
    expect(off).toMatchObject({ outcome: 'skip', reason: 'ModeOff' });
    const ofPod = decideFor({ 'linger.dev/mode': 'Enforce' }, {}, [namespace({ 'linger.dev/mode': 'Dry' })]);
    expect(ofPod.policy?.mode.value).toBe('Enforce');
  });

  it('and not where overrides.pods is false: then the annotation would not count if it could be read', () => {
    const { policy, notes } = decideFor({ 'linger.dev/mode': 'Dry' }, {}, [
      clusterPolicy({ overrides: { pods: false } }),
    ]);
    expect(policy?.mode.value).toBe('Enforce');
    expect(notes.map(({ code }) => code)).toEqual(['InvalidAnnotation', 'OverrideIgnored']);
  });

  it('says which object it was on', () => {
    const decision = decideFor({}, {}, [namespace({ 'linger.dev/wait': 'soon' })]);
    expect(warningsOf(decision.notes)[0]).toContain('Namespace/shop: linger.dev/wait');
  });

  it('shortens a long value', () => {
    const decision = decideFor({ 'linger.dev/mode': 'x'.repeat(100_000) });
    expect(decision.notes[0]?.text.length).toBeLessThan(300);
  });

  it('leaves the other annotations in force', () => {
    const decision = decideFor({ 'linger.dev/wait': 'x', 'linger.dev/hook': 'Exec' });
    expect(decision.policy?.hook.value).toBe('Exec');
  });
});

describe('a linger.dev annotation that is not known', () => {
  test.each(['linger.dev/waits', 'linger.dev/', 'linger.dev/constructor', 'linger.dev/Inject'])(
    '%s is noted without a warning',
    (key) => {
      const decision = decideFor({ [key]: '1' });
      expect(decision.outcome).toBe('inject');
      expect(decision.notes).toMatchObject([{ code: 'UnknownAnnotation' }]);
      expect(decision.notes[0]?.text).toContain(key);
      expect(warningsOf(decision.notes)).toEqual([]);
    },
  );

  it('is noted once with others, of which the first are named', () => {
    const many = Object.fromEntries(Array.from({ length: 5_000 }, (_, index) => [`linger.dev/${index}`, '']));
    const { notes } = decideFor(many);
    expect(notes.map(({ code }) => code)).toEqual(['UnknownAnnotation']);
    expect(notes[0]?.text).toContain('linger.dev/0, linger.dev/1, linger.dev/2 and 4997 more are not known');
  });

  test.each(['other.dev/wait', 'linger.device/wait', 'wait'])('%s is not one of Linger’s', (key) => {
    expect(decideFor({ [key]: '1' }).notes).toEqual([]);
  });
});

describe('linger.dev/inject is honoured as a label too; of two on one object false wins', () => {
  const cases: readonly [string | undefined, string | undefined, boolean | undefined][] = [
    [undefined, undefined, undefined],
    ['true', undefined, true],
    ['false', undefined, false],
    [undefined, 'true', true],
    [undefined, 'false', false],
    ['true', 'true', true],
    ['false', 'true', false],
    ['true', 'false', false],
    ['false', 'false', false],
    ['maybe', 'true', true],
    ['maybe', 'false', false],
    ['true', 'maybe', true],
    ['false', 'maybe', false],
  ];
  const asMembers = (text: string | undefined) => (text === undefined ? {} : { 'linger.dev/inject': text });

  test.each(cases)('annotation %s, label %s on a pod: %s', (annotation, label, expected) => {
    expect(decideFor(asMembers(annotation), asMembers(label)).policy?.inject.value).toBe(expected);
  });

  test.each(cases)('annotation %s, label %s on a namespace: %s', (annotation, label, expected) => {
    const documents = [namespace(asMembers(annotation), asMembers(label))];
    expect(decideFor({}, {}, documents).policy?.inject.value).toBe(expected);
  });

  test.each([
    ['false', 'true', 'inject'],
    ['true', 'false', 'skip'],
  ])('namespace %s, pod %s: the pod, as the later layer, wins (%s)', (ofNamespace, ofPod, outcome) => {
    const documents = [namespace({ 'linger.dev/inject': ofNamespace })];
    expect(decideFor({ 'linger.dev/inject': ofPod }, {}, documents).outcome).toBe(outcome);
  });

  it('no other annotation is honoured as a label', () => {
    expect(decideFor({}, { 'linger.dev/mode': 'Off' }).outcome).toBe('inject');
  });
});

it('a pod’s annotation wins over its namespace’s', () => {
  const documents = [namespace({ 'linger.dev/wait': '10s', 'linger.dev/hook': 'Exec' })];
  const decision = decide(creationOf(annotated({ 'linger.dev/wait': '20s' })), snapshotOf(documents));
  expect(decision).toMatchObject({ outcome: 'inject', plan: { wait: 20, hook: 'Exec' } });
});
