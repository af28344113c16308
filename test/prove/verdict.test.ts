import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LossKind, RequestOutcome } from '../../src/prove/traffic-plan.ts';
import { type Evidence, judge, type LossCause, type PodLife } from '../../src/prove/verdict.ts';

/** A pod that is deleted at an instant (s), and withdrawn 0.1 s later. */
function pod(name: string, deleted: number | undefined, wait: number | 'Hold' = 0): PodLife {
  const addresses = [`10.0.0.${name.length}`, `fd00::${name.length}`];
  const life: PodLife = { name, createdAt: 0, wait, addresses };
  if (deleted === undefined) return life;
  const deletedAt = deleted * 1_000;
  const ended = deletedAt + (wait === 'Hold' ? 20 : wait) * 1_000;
  Object.assign(life, { deletedAt, withdrawnAt: deletedAt + 100, goneAt: ended + 1_500, endedAt: ended });
  if (wait !== 'Hold') life.sigtermAt = ended;
  return life;
}

interface Sent {
  readonly way?: number;
  readonly from: number;
  readonly to: number;
  readonly perSecond?: number;
  readonly tookMs?: number;
  /** Every n-th is lost. */
  readonly every?: number;
  readonly kind?: LossKind;
}

function sent(...spans: readonly Sent[]): readonly RequestOutcome[] {
  return spans.flatMap(({ way = 0, from, to, perSecond = 50, tookMs = 3, every, kind = 'timeout' }) =>
    Array.from({ length: Math.round((to - from) * perSecond) }, (_, index) => ({
      way,
      at: from * 1_000 + (index * 1_000) / perSecond,
      tookMs,
      lost: every !== undefined && index % every === 0 ? kind : undefined,
    })),
  );
}

const SERVICE = { name: 'Service web', keepAlive: false };
const EDGE = { name: 'edge', keepAlive: false };

function evidence(more: Partial<Evidence>): Evidence {
  return { ways: [EDGE], outcomes: [], pods: [], slowMs: 1_000, afterRollout: false, ...more };
}

const OTHERS = [pod('a', undefined), pod('b', undefined), pod('c', undefined)];

describe('the verdict', () => {
  const cases: Record<string, readonly [Partial<Evidence>, Record<string, unknown>]> = {
    'says nothing of a run in which no pod was deleted': [
      { pods: OTHERS, outcomes: sent({ from: 0, to: 10 }) },
      {
        lost: 0,
        sent: 500,
        atRisk: 0,
        upperBound: null,
        sentence: expect.stringContaining('proves nothing'),
      },
    ],
    'says nothing of a run that ends while pods are still terminating': [
      {
        pods: [{ name: 'old', createdAt: 0, wait: 60, deletedAt: 5_000, sigtermAt: 65_000 }, ...OTHERS],
        outcomes: sent({ from: 0, to: 20 }),
      },
      {
        lost: 0,
        upperBound: null,
        sentence: expect.stringMatching(
          /still terminating at the end: this proves nothing; raise --for, which /,
        ),
      },
    ],
    'says what zero is worth, by the rule of three': [
      { pods: [pod('old', 5, 4), ...OTHERS], outcomes: sent({ from: 0, to: 20 }) },
      {
        lost: 0,
        // From 5 s to 10.5 s.
        atRisk: 276,
        upperBound: 3 / 276,
        sentence:
          '0 of 1,000 requests lost; 276 were sent while a pod was terminating: with 95 % confidence at most 1.09 % of such requests are lost.',
      },
    ],
    'names the way, the lag, the wait and what would have covered it': [
      {
        ways: [SERVICE, EDGE],
        pods: [pod('old', 10, 5), ...OTHERS],
        outcomes: sent(
          { way: 0, from: 0, to: 40 },
          { way: 1, from: 0, to: 15 },
          { way: 1, from: 15, to: 18, every: 5 },
          { way: 1, from: 18, to: 40 },
        ),
      },
      {
        lost: 30,
        advice: { wait: 25, waitFor98: 8 },
        sentence:
          '30 of 4,000 requests lost, all through edge; 4.9 to 7.8 s after the withdrawal: edge follows up to 8 s late, the wait was 5 s. 25 s would have covered it (98 %: 8 s).',
      },
    ],
    'blames the pod behind a gateway that is called by its name': [
      {
        pods: [pod('old', 10, 5), ...OTHERS],
        outcomes: [
          ...sent({ from: 0, to: 30 }),
          { way: 0, at: 17_000, tookMs: 3, lost: '5xx', address: '203.0.113.7' },
        ],
      },
      { lost: 1, ways: [expect.objectContaining({ causes: { late: 1 } })] },
    ],
    'blames no other pod than the one that a name led to': [
      {
        pods: [pod('old', 10, 5), pod('older', 9, 5), ...OTHERS],
        outcomes: [
          ...sent({ from: 0, to: 30 }),
          { way: 0, at: 17_000, tookMs: 3, lost: 'refused', address: 'fd00::5' },
        ],
      },
      { failures: [expect.objectContaining({ cause: 'late', pods: ['older'] })] },
    ],
    'counts from the deletion where no withdrawal was seen, as with gateways only': [
      {
        pods: [pod('old', 10, 5), pod('other', 10, 5), ...OTHERS].map(({ withdrawnAt: _, ...each }) => each),
        outcomes: sent({ from: 0, to: 15 }, { from: 15, to: 18, every: 5 }, { from: 18, to: 40 }),
      },
      { sentence: expect.stringMatching(/; 5 to 7.9 s after the deletion: edge follows up to 8 s late/) },
    ],
    'blames a pod whose hook failed, though SIGTERM was to come later': [
      {
        pods: [{ ...pod('old', 10, 15), endedAt: 10_000, goneAt: 11_500 }, ...OTHERS],
        outcomes: sent({ from: 0, to: 10.2 }, { from: 10.2, to: 11.8, every: 4 }, { from: 11.8, to: 40 }),
      },
      {
        lost: 20,
        ways: [expect.objectContaining({ causes: { late: 20 } })],
        sentence: expect.stringMatching(
          /; 1 of 1 pods ended before their wait had passed: .*FailedPreStopHook/,
        ),
      },
    ],
    'takes a request that was under way at SIGTERM for one that the application dropped': [
      {
        pods: [pod('old', 10, 5), ...OTHERS],
        outcomes: [...sent({ from: 0, to: 30 }), { way: 0, at: 14_000, tookMs: 1_010, lost: 'reset' }],
      },
      { lost: 1, advice: null, sentence: expect.stringContaining('under way at SIGTERM') },
    ],
    'says of connections that stay open that no wait covers them': [
      {
        ways: [{ name: 'edge (keep-alive)', keepAlive: true }],
        pods: [pod('old', 10, 5), ...OTHERS],
        outcomes: [...sent({ from: 0, to: 30 }), { way: 0, at: 15_000, tookMs: 2, lost: 'reset' }],
      },
      { lost: 1, advice: null, sentence: expect.stringContaining('no wait covers these') },
    ],
    'knows that a client which keeps its connections opened a new one where that was refused': [
      {
        ways: [{ name: 'edge (keep-alive)', keepAlive: true }],
        pods: [pod('old', 10, 5), ...OTHERS],
        outcomes: [
          ...sent({ from: 0, to: 30 }),
          { way: 0, at: 15_000, tookMs: 2, lost: 'reset' },
          { way: 0, at: 17_000, tookMs: 2, lost: 'refused' },
        ],
      },
      {
        lost: 2,
        advice: { wait: 25, waitFor98: 7 },
        ways: [expect.objectContaining({ causes: { kept: 1, late: 1 } })],
      },
    ],
    'takes what is lost before any pod went for a ghost after an earlier rollout': [
      {
        afterRollout: true,
        pods: [pod('old', 10, 5), ...OTHERS],
        outcomes: [...sent({ from: 0, to: 30 }), { way: 0, at: 2_000, tookMs: 3_000, lost: 'timeout' }],
      },
      { lost: 1, sentence: expect.stringContaining('wait two minutes and repeat') },
    ],
    'knows that a pod that stays was not ready': [
      {
        afterRollout: true,
        pods: [pod('old', 10, 5), { ...pod('a', undefined), unready: [{ from: 1_500, to: 4_000 }] }],
        outcomes: [...sent({ from: 0, to: 30 }), { way: 0, at: 2_000, tookMs: 3_000, lost: 'timeout' }],
      },
      { lost: 1, advice: null, sentence: expect.stringContaining('overloaded') },
    ],
    'blames no ending pod for what is lost without one': [
      {
        pods: [pod('old', 10, 5), ...OTHERS],
        outcomes: [...sent({ from: 0, to: 30 }), { way: 0, at: 2_000, tookMs: 3_000, lost: 'timeout' }],
      },
      { lost: 1, advice: null, sentence: expect.stringContaining('look for another cause') },
    ],
    'does not claim that no pod was terminating while one waited': [
      {
        pods: [pod('old', 10, 15), ...OTHERS],
        outcomes: [...sent({ from: 0, to: 40 }), { way: 0, at: 15_000, tookMs: 3, lost: '5xx' }],
      },
      { lost: 1, sentence: expect.stringMatching(/; 1 through edge that no ending pod explains: /) },
    ],
    'gives a range where a loss may have gone to one of several pods': [
      {
        pods: [pod('first', 10), pod('second', 16), ...OTHERS],
        outcomes: sent({ from: 0, to: 10 }, { from: 10, to: 20, every: 5 }, { from: 20, to: 40 }),
      },
      { lost: 100, ways: [expect.objectContaining({ lag: { least: 5.6, most: 9.9 } })] },
    ],
    'knows that a way was clear of the first pod before the second one went': [
      {
        pods: [pod('first', 10), pod('second', 20), ...OTHERS],
        outcomes: sent(
          { from: 0, to: 10 },
          { from: 10, to: 14, every: 5 },
          { from: 14, to: 20 },
          { from: 20, to: 26, every: 5 },
          { from: 26, to: 40 },
        ),
      },
      // Two delays say little of how late it may be.
      {
        ways: [expect.objectContaining({ lag: { least: 5.9, most: 5.9 } })],
        advice: { wait: 20, waitFor98: 6 },
      },
    ],
    'counts slow answers as answered': [
      {
        pods: [pod('old', 5), ...OTHERS],
        outcomes: sent({ from: 0, to: 5, tookMs: 1_200 }, { from: 5, to: 9 }),
      },
      { lost: 0, slow: 250 },
    ],
  };
  it.each(Object.entries(cases))('%s', (_, [given, expected]) => {
    expect(judge(evidence(given))).toMatchObject(expected);
  });

  it('explains slow answers as it does losses, and counts them as answered', () => {
    const outcomes = [...sent({ from: 0, to: 30 }), { way: 0, at: 12_000, tookMs: 1_030 }];
    const { failures, slowAnswers, lost, slow } = judge(
      evidence({ pods: [pod('old', 10), ...OTHERS], outcomes }),
    );
    expect({ failures, lost, slow }).toEqual({ failures: [], lost: 0, slow: 1 });
    expect(slowAnswers).toEqual([
      expect.objectContaining({ kind: 'slow', tookMs: 1_030, cause: 'late', pods: ['old'] }),
    ]);
  });

  it('knows the pod where only one can have been meant, and the last that had happened to it', () => {
    const outcomes = [
      ...sent({ from: 0, to: 30 }),
      { way: 0, at: 12_000, tookMs: 3, lost: 'refused' } as const,
    ];
    const { failures } = judge(evidence({ pods: [pod('old', 10), ...OTHERS], outcomes }));
    expect(failures).toEqual([
      expect.objectContaining({
        pods: ['old'],
        after: { event: 'gone', seconds: 0.5 },
        cause: 'late',
        sinceWithdrawal: 1.9,
      }),
    ]);
  });

  it('finds the delay of any consumer that follows late: never less than it was, and the advised wait covers it', () => {
    const lags = fc.record({
      lag: fc.integer({ min: 1, max: 60 }),
      wait: fc.integer({ min: 0, max: 20 }),
      gap: fc.integer({ min: 1, max: 30 }),
    });
    fc.assert(
      fc.property(lags, ({ lag, wait, gap }) => {
        const pods = [pod('first', 10, wait), pod('second', 10 + gap, wait), ...OTHERS];
        const dead = (at: number) =>
          pods.some(
            ({ deletedAt = Number.NaN, sigtermAt = Number.NaN }) =>
              at >= sigtermAt && at < deletedAt + lag * 1_000,
          );
        const outcomes = sent({ from: 0, to: 130 }).map((each, index) =>
          dead(each.at) && index % 5 === 0 ? { ...each, lost: 'refused' as const } : each,
        );
        const { lost, advice, ways } = judge(evidence({ pods, outcomes }));
        expect(lost > 0).toBe(lag > wait);
        if (lost === 0) return;
        const [way] = ways;
        expect(way?.lag?.most).toBeGreaterThanOrEqual(lag - 0.2);
        expect(way?.lag?.least).toBeLessThanOrEqual(lag);
        expect(advice?.wait).toBeGreaterThanOrEqual(lag);
      }),
    );
  });

  it('explains every failure once, whatever happened', () => {
    const kinds = fc.constantFrom<LossKind>('refused', 'reset', 'timeout', 'unreachable', '5xx', 'malformed');
    const outcome = fc.record({
      way: fc.integer({ min: 0, max: 1 }),
      at: fc.integer({ min: 0, max: 100_000 }),
      tookMs: fc.integer({ min: 0, max: 5_000 }),
      lost: fc.option(kinds, { nil: undefined }),
    });
    const pods = fc.array(
      fc.tuple(
        fc.option(fc.integer({ min: 0, max: 90 }), { nil: undefined }),
        fc.constantFrom<number | 'Hold'>(0, 5, 'Hold'),
      ),
      { maxLength: 5 },
    );
    fc.assert(
      fc.property(
        fc.array(outcome, { maxLength: 60 }),
        pods,
        fc.boolean(),
        (outcomes, lives, afterRollout) => {
          const named = lives.map(([deleted, wait], index) => pod(`pod-${index}`, deleted, wait));
          const verdict = judge(evidence({ ways: [SERVICE, EDGE], outcomes, pods: named, afterRollout }));
          const lost = outcomes.filter((each) => each.lost !== undefined).length;
          expect(verdict.failures).toHaveLength(lost);
          expect(verdict.ways.reduce((sum, way) => sum + way.lost, 0)).toBe(lost);
          const causes = (way: (typeof verdict.ways)[number]) =>
            Object.values(way.causes).reduce((sum, count) => sum + count, 0);
          for (const way of verdict.ways) expect(causes(way)).toBe(way.lost);
          for (const { pods: suspects, cause } of verdict.failures)
            expect(suspects.length === 0).toBe(
              (['ghost', 'unready', 'unexplained'] as LossCause[]).includes(cause),
            );
          expect(verdict.sentence).toMatch(/^[^\n]{20,}\.$/);
          expect(verdict.sentence).not.toMatch(/NaN|Infinity|undefined/);
        },
      ),
    );
  });
});
