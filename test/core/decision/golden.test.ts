import { describe, expect, it, test } from 'vitest';
import { stringify } from 'yaml';
import { decide } from '../../../src/core/decision/decide.ts';
import { patchFor } from '../../../src/core/decision/patch.ts';
import { renderPlan } from '../../../src/core/decision/plan-codec.ts';
import type { Pod } from '../../../src/core/decision/pod.ts';
import { warningsOf } from '../../../src/core/decision/reasons.ts';
import { type GoldenCase, type GoldenExpectation, loadGoldenCases } from './golden-cases.ts';
import { codesOf, patched } from './sample-pod.ts';

const CASES = loadGoldenCases();

/** What the case's pod really gets, in the form of the file. */
function actual({ request, snapshot, pod }: GoldenCase): GoldenExpectation {
  const decision = decide(request, snapshot);
  return {
    outcome: decision.outcome,
    ...(decision.outcome === 'skip' ? { reason: decision.reason } : { plan: renderPlan(decision.plan) }),
    mode: decision.policy?.mode.value ?? 'Enforce',
    operations: patchFor(pod as unknown as Pod, decision),
    notes: codesOf(decision).toSorted(),
    warnings: warningsOf(decision.notes),
  };
}

// As YAML, so that a difference reads like the file that it is in.
const readable = (expectation: GoldenExpectation) =>
  stringify(expectation, { sortMapEntries: true, aliasDuplicateObjects: false });

describe('the golden cases', () => {
  test.each(CASES.map((each) => [each.name, each.title, each] as const))(
    '%s: %s',
    (_name, _title, golden) => {
      expect(readable(actual(golden))).toBe(readable(golden.expected));
    },
  );

  test.each(CASES.map((each) => [each.name, each] as const))(
    '%s, asked again, stays as it is',
    (_, golden) => {
      const { pod, request, snapshot } = golden;
      const result = patched(pod, actual(golden).operations);
      const again = decide({ ...request, object: result }, snapshot);
      expect(patchFor(result as unknown as Pod, again)).toEqual([]);
    },
  );

  it('have names of their own, so that all can be created in one namespace', () => {
    const names = CASES.map(({ pod }) => (pod.metadata as { name?: string }).name).filter(Boolean);
    expect(new Set(names).size).toBe(names.length);
  });
});
