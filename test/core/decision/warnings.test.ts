import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { decide } from '../../../src/core/decision/decide.ts';
import { admissionWarning, note, warningsOf } from '../../../src/core/decision/reasons.ts';
import { runs } from '../../property/runs.ts';
import { annotated, creationOf, pod } from './sample-pod.ts';
import { snapshotOf } from './sample-snapshot.ts';

describe('a warning is one line of ASCII, at most 256 bytes, with a prefix', () => {
  test.each([
    ['plain', 'linger: plain'],
    ['the pod’s own “grace”', `linger: the pod's own "grace"`],
    ['3 × 5 ≤ 15 …', 'linger: 3 x 5 <= 15 ...'],
    ['a\nb\r\nc\td', 'linger: a b  c d'],
    ['no\u00a0break', 'linger: no break'],
    ['line\u2028separator', 'linger: line separator'],
    ['grüße 🎉', 'linger: gr??e ?'],
    ['bell\u0007 escape\u001b[31m', 'linger: bell? escape?[31m'],
    ['\ud800', 'linger: ?'],
    ['', 'linger: '],
  ])('%j', (text, expected) => {
    expect(admissionWarning(text)).toBe(expected);
  });

  it('of 256 bytes stays whole, of 257 is cut', () => {
    const longest = 'x'.repeat(256 - 'linger: '.length);
    expect(admissionWarning(longest)).toBe(`linger: ${longest}`);
    expect(admissionWarning(`${longest}y`)).toHaveLength(256);
    expect(admissionWarning(`${longest}y`)).toMatch(/^linger: x+\.\.\.$/);
  });

  it('whatever the text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 600 }), (text) => {
        expect(admissionWarning(text)).toMatch(/^linger: [\x20-\x7e]*$/);
        expect(admissionWarning(text).length).toBeLessThanOrEqual(256);
      }),
      runs(200),
    );
  });
});

describe('only values that do not parse and waits that were shrunk give warnings', () => {
  test.each([
    ['InvalidAnnotation', true],
    ['UnreadablePod', true],
    ['WaitShrunk', true],
    ['UnknownAnnotation', false],
    ['CeilingApplied', false],
    ['OverrideIgnored', false],
    ['StormNotCovered', false],
    ['ProbeGraceShort', false],
    ['ExistingHookKept', false],
    ['HookExtended', false],
    ['UnknownContainer', false],
    ['HookUnsupported', false],
    ['StalePlan', false],
    ['ServicesUnknown', false],
    ['PartialWait', false],
    ['ShutdownShortened', false],
    ['DaemonSetServing', false],
    ['NamespaceUnknown', false],
    ['HookWithdrawn', true],
  ] as const)('%s: %s', (code, warns) => {
    expect(warningsOf([note(code, 'text')])).toEqual(warns ? ['linger: text'] : []);
  });

  it('a pod that cannot be read passes with a warning that says why', () => {
    const decision = decide(creationOf({ ...pod(), spec: null }), snapshotOf([]));
    expect(warningsOf(decision.notes)).toEqual([
      expect.stringMatching(/^linger: .*spec: expected an object/),
    ]);
  });

  it('a value with line breaks and colours cannot forge a second line', () => {
    const object = annotated({ 'linger.dev/wait': '1\n2\u001b[31mred' });
    const [first = '', ...others] = warningsOf(decide(creationOf(object), snapshotOf([])).notes);
    expect(others).toEqual([]);
    expect(first).toMatch(/^[\x20-\x7e]+$/);
  });
});
