import { describe, expect, it, test } from 'vitest';
import type { Mode } from '../../../src/core/api/index.ts';
import type { Field } from '../../../src/core/decision/policy-values.ts';
import { merge, said } from './sample-merge.ts';
import type { JsonObject } from './sample-pod.ts';
import { clusterPolicy, namespace, policy } from './sample-snapshot.ts';

describe('ceilings merge to the smallest and overrides by AND, never last-wins', () => {
  test.each<[string, JsonObject[], Field, unknown, string]>([
    [
      'a later, larger ceiling does not loosen',
      [{ ceiling: { wait: '20s' } }, { ceiling: { wait: '100s' } }],
      'ceiling.wait',
      20,
      'a',
    ],
    [
      'a later, smaller one tightens',
      [{ ceiling: { wait: '100s' } }, { ceiling: { wait: '20s' } }],
      'ceiling.wait',
      20,
      'b',
    ],
    [
      'Audit, then Enforce',
      [{ ceiling: { mode: 'Audit' } }, { ceiling: { mode: 'Enforce' } }],
      'ceiling.mode',
      'Audit',
      'a',
    ],
    [
      'Audit, then Off',
      [{ ceiling: { mode: 'Audit' } }, { ceiling: { mode: 'Off' } }],
      'ceiling.mode',
      'Off',
      'b',
    ],
    [
      'namespaces: false, then true',
      [{ overrides: { namespaces: false } }, { overrides: { namespaces: true } }],
      'overrides.namespaces',
      false,
      'a',
    ],
    [
      'pods: true, then false',
      [{ overrides: { pods: true } }, { overrides: { pods: false } }],
      'overrides.pods',
      false,
      'b',
    ],
  ])('%s', (_, [first = {}, second = {}], field, value, origin) => {
    const { policy: inForce } = merge([clusterPolicy(first, 'a'), clusterPolicy(second, 'b')]);
    expect(said(inForce, field)).toEqual([value, `ClusterTerminationPolicy/${origin}`]);
  });

  it('the built-in ceiling holds only where no cluster policy declares one', () => {
    const { policy: inForce } = merge([clusterPolicy({ ceiling: { wait: '900s' } })]);
    expect(said(inForce, 'ceiling.wait')).toEqual([900, 'ClusterTerminationPolicy/base']);
    expect(said(merge([]).policy, 'ceiling.wait')).toEqual([300, 'built-in']);
  });
});

describe('a layer that overrides forbids is ignored, and the explanation says so', () => {
  const forbidding = clusterPolicy({ mode: 'Audit', overrides: { namespaces: false, pods: false } });

  test.each<[string, JsonObject[], Record<string, string>, string, string]>([
    [
      'a TerminationPolicy',
      [policy({ mode: 'Enforce' })],
      {},
      'TerminationPolicy/shop/team',
      'overrides.namespaces',
    ],
    [
      'a Namespace annotation',
      [namespace({ 'linger.dev/mode': 'Enforce' })],
      {},
      'Namespace/shop linger.dev/mode',
      'overrides.namespaces',
    ],
    ['a Pod annotation', [], { 'linger.dev/mode': 'Enforce' }, 'Pod linger.dev/mode', 'overrides.pods'],
  ])('%s', (_, documents, annotations, origin, because) => {
    const { policy: inForce, notes } = merge([forbidding, ...documents], annotations);
    expect(inForce.mode).toMatchObject({
      value: 'Audit',
      origin: 'ClusterTerminationPolicy/base',
      ignored: [{ value: 'Enforce', origin, because }],
    });
    const texts = notes.filter(({ code }) => code === 'OverrideIgnored').map(({ text }) => text);
    expect(texts).toHaveLength(1);
    for (const part of ['mode', origin, because, 'ClusterTerminationPolicy/base']) {
      expect(texts[0]).toContain(part);
    }
  });

  it('pods alone may be forbidden', () => {
    const documents = [clusterPolicy({ overrides: { pods: false } }), policy({ hook: 'Exec' })];
    const { policy: inForce } = merge(documents, { 'linger.dev/hook': 'Sleep' });
    expect(said(inForce, 'hook')).toEqual(['Exec', 'TerminationPolicy/shop/team']);
  });

  it('namespaces alone may be forbidden', () => {
    const documents = [clusterPolicy({ overrides: { namespaces: false } }), policy({ hook: 'Exec' })];
    const { policy: inForce } = merge(documents, { 'linger.dev/hook': 'Sleep' });
    expect(said(inForce, 'hook')).toEqual(['Sleep', 'Pod linger.dev/hook']);
    expect(inForce.hook.ignored).toHaveLength(1);
  });

  it('a forbidden opt-out does not opt out', () => {
    const { policy: inForce } = merge([forbidding], { 'linger.dev/inject': 'false' });
    expect(inForce.inject.value).toBeUndefined();
  });
});

describe('no layer exceeds the mode that the operator allows', () => {
  const allowed: readonly [Mode, Mode, Mode][] = [
    ['Enforce', 'Enforce', 'Enforce'],
    ['Enforce', 'Audit', 'Audit'],
    ['Enforce', 'Off', 'Off'],
    ['Audit', 'Enforce', 'Audit'],
    ['Audit', 'Audit', 'Audit'],
    ['Audit', 'Off', 'Off'],
    ['Off', 'Enforce', 'Off'],
    ['Off', 'Audit', 'Off'],
  ];

  test.each(allowed)('a pod that asks for %s under --mode-limit %s gets %s', (asked, limit, mode) => {
    const { policy: inForce, notes } = merge([], { 'linger.dev/mode': asked }, limit);
    expect(inForce.mode.value).toBe(mode);
    const lowered = asked !== mode;
    expect(inForce.mode.ignored).toEqual(
      lowered ? [{ value: asked, origin: 'Pod linger.dev/mode', because: 'flag --mode-limit' }] : [],
    );
    expect(notes.map(({ code }) => code)).toEqual(lowered ? ['CeilingApplied'] : []);
  });

  test.each(allowed)('a pod that asks for %s under a ceiling of %s gets %s', (asked, limit, mode) => {
    const documents = [clusterPolicy({ ceiling: { mode: limit } })];
    const { policy: inForce } = merge(documents, { 'linger.dev/mode': asked });
    expect(inForce.mode.value).toBe(mode);
    if (asked !== mode) {
      expect(inForce.mode.origin).toBe('ClusterTerminationPolicy/base');
      expect(inForce.mode.ignored).toEqual([
        { value: asked, origin: 'Pod linger.dev/mode', because: 'ceiling.mode' },
      ]);
    }
  });

  it('the stricter of ceiling and limit counts', () => {
    const documents = [clusterPolicy({ ceiling: { mode: 'Audit' } })];
    expect(merge(documents, {}, 'Off').policy.mode.value).toBe('Off');
    expect(merge([clusterPolicy({ ceiling: { mode: 'Off' } })], {}, 'Audit').policy.mode.value).toBe('Off');
  });
});
