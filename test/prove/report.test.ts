import { describe, expect, it } from 'vitest';
import type { ProveResult } from '../../src/prove/proving.ts';
import {
  compare,
  comparison,
  drawingOf,
  drawingOfBoth,
  junitOf,
  markdownOf,
  markdownOfBoth,
  type ProveReport,
  proveReport,
  reportOf,
  sidesOf,
  tablesOf,
} from '../../src/prove/report.ts';
import type { FailedRequest, ProveVerdict } from '../../src/prove/verdict.ts';

const T = Date.parse('2026-03-01T14:05:09.000Z');
const failure: FailedRequest = {
  at: T + 1_500,
  tookMs: 3,
  way: 'edge',
  pods: ['web-1'],
  sinceDeletion: 1.5,
  sinceWithdrawal: 1.4,
  kind: 'refused',
  cause: 'late',
  after: { event: 'ended', seconds: 0.5 },
};
const WAY = { keepAlive: false, slow: 0, kinds: {}, causes: {}, atRisk: 1_200, lag: null };

const verdict: ProveVerdict = {
  sent: 4_000,
  lost: 2,
  slow: 0,
  atRisk: 2_400,
  upperBound: null,
  sentence: '2 of 4,000 requests lost, all through edge <b>.',
  advice: { wait: 5, waitFor98: 2 },
  ways: [
    { ...WAY, name: 'Service web', sent: 2_000, lost: 0, upperBound: 0.0025 },
    {
      ...WAY,
      name: 'edge',
      sent: 2_000,
      lost: 2,
      upperBound: null,
      kinds: { refused: 2 },
      causes: { late: 2 },
      lag: { least: 1.5, most: 1.6 },
    },
  ],
  failures: [failure, { ...failure, at: T + 1_600 }],
  slowAnswers: [{ ...failure, kind: 'slow', tookMs: 1_030 }],
};

const result: ProveResult = {
  verdict,
  startedAt: T - 5_000,
  disturbedAt: T,
  endedAt: T + 9_000,
  outcomes: [
    { way: 0, at: T + 1_400, tookMs: 3 },
    { way: 1, at: T + 1_500, tookMs: 3, lost: 'refused' },
    { way: 1, at: T + 1_600, tookMs: 3, lost: 'refused' },
  ],
  pods: [
    {
      name: 'web-1',
      createdAt: 0,
      wait: 0,
      deletedAt: T,
      withdrawnAt: T + 100,
      endedAt: T + 1_000,
      goneAt: T + 1_400,
    },
    { name: 'web-2', createdAt: 0, wait: 'Hold' },
  ],
  senders: 1,
  nodes: ['n1'],
  notes: ['a note'],
};
const report = reportOf(result, { workload: 'Deployment shop/web', disturbance: 'rollout restart' });

describe('the result of a run', () => {
  it('is what its schema says', () => {
    expect(proveReport.parse(JSON.parse(JSON.stringify(report)))).toEqual(report);
    // Pods that stayed have nothing to say.
    expect(report.pods.map(({ name }) => name)).toEqual(['web-1']);
  });

  it('says where more was lost than it lists', () => {
    const failures = Array.from({ length: 1_200 }, () => failure);
    const cut = reportOf({ ...result, verdict: { ...verdict, lost: 1_200, failures } }, report);
    expect(cut.failures).toHaveLength(1_000);
    expect(cut.notes).toEqual([
      'a note',
      'of 1,200 lost requests, only the first 1,000 are listed and grouped',
    ]);
    expect(report.notes).toEqual(['a note']);
  });

  it('as a table has a row for each way and pod, and one for all failures that are alike', () => {
    const { ways, pods, failures } = tablesOf(report);
    expect(ways.slice(1)).toEqual([
      ['Service web', '2,000', '0', '0', '-', '-', '-', '1,200 (≤ 0.25 %)'],
      ['edge', '2,000', '2', '0', '2 refused', '2 late', '1.5 to 1.6s', '1,200'],
    ]);
    expect(pods.slice(1)).toEqual([['web-1', '-', '14:05:09.000', '0s', '0.1s', '-', '-', '1.0s', '1.4s']]);
    expect(failures.slice(1)).toEqual([
      ['2', 'edge', 'refused', 'late', 'web-1', '14:05:10.500', '0.5s after ended'],
      ['1', 'edge', 'slow', 'late', 'web-1', '14:05:10.500', '0.5s after ended'],
    ]);
  });

  it('as JUnit is a test case for each way, of which the losing ones fail', () => {
    const text = junitOf(report);
    expect(text).toContain('<testsuite name="linger prove" tests="2" failures="1">');
    expect(text).toContain(
      '<failure message="2 of 2,000 requests lost">2 of 4,000 requests lost, all through edge &lt;b&gt;.',
    );
  });

  it('as Markdown begins with the verdict, whose text cannot be markup', () => {
    const text = markdownOf(report);
    expect(text).toMatch(
      /^\*\*linger prove\*\*, Deployment shop\/web: rollout restart: 2 of 4,000 .* edge \\<b\\>\.\n\n\| WAY \|/,
    );
    expect(text).toContain('- a note');
  });

  it('as a picture has a lane for each way and each pod that was deleted, red where requests were lost', () => {
    const { lanes, from, to } = drawingOf(result, 'title');
    const lost = [
      { at: 1.5, lost: true },
      { at: 1.6, lost: true },
    ];
    expect({ from, to }).toEqual({ from: -5, to: 9 });
    expect(lanes).toEqual([
      { label: 'Service web', note: '0 of 2,000 lost', dots: [{ at: 1.4, lost: false }] },
      { label: 'edge', note: '2 of 2,000 lost', dots: lost },
      {
        label: 'web-1',
        note: 'wait 0 s',
        dots: lost,
        spans: [
          { from: 0, to: 1, tone: 'waits' },
          { from: 1, to: 1.4, tone: 'stops' },
        ],
      },
    ]);
  });

  it('as a picture of hundreds of pods has those that lost the most, and says how many are left out', () => {
    const pods = Array.from({ length: 60 }, (_, index) => ({
      name: `web-${index}`,
      createdAt: 0,
      wait: 0,
      deletedAt: T + index,
      goneAt: T + 9_000,
    }));
    const named = { ...verdict, failures: [{ ...failure, pods: ['web-59'] }] };
    const labels = drawingOf({ ...result, verdict: named, pods }, 'title').lanes.map(({ label }) => label);
    expect(labels).toHaveLength(43);
    expect(labels.slice(-2)).toEqual(['web-59', 'and 20 more pods']);
  });
});

describe('two runs compared', () => {
  const ofWay = (lost: number, upperBound: number | null) => ({
    ...report,
    lost,
    upperBound,
    failures: lost === 0 ? [] : report.failures,
    verdict: 'Verdict.',
  });
  const without = ofWay(2, null);
  const protectedBy: ProveReport = {
    ...ofWay(0, 0.0025),
    pods: report.pods.map((pod) => ({ ...pod, wait: 15 })),
  };
  const bad = { ...protectedBy, lost: 1, upperBound: null };

  it('is what its schema says, a line and a lane for each side', () => {
    const found = compare(without, protectedBy);
    expect(comparison.parse(JSON.parse(JSON.stringify(found)))).toEqual(found);
    expect(sidesOf(found).map(([side, wait, , lost]) => [side, wait, lost])).toEqual([
      ['LINGER', 'WAIT', 'LOST'],
      ['without', 'wait 0 s', '2'],
      ['with', 'wait 15 s', '0'],
    ]);
    const chart = drawingOf(result, 'x');
    const both = drawingOfBoth(found, chart, { ...chart, to: 99 });
    expect([both.to, both.lanes.length, both.lanes[0]?.label]).toEqual([
      99,
      2 * chart.lanes.length,
      'without: Service web',
    ]);
    const [first, ...rest] = markdownOfBoth(found).split('\n');
    expect(first).toContain('linger prove --compare');
    expect(rest).toContain('| without | wait 0 s | 4,000 | 2 | 0 | 2,400 |');
  });

  it.each([
    [
      without,
      protectedBy,
      'Without Linger (wait 0 s) 2 of 4,000 requests lost; with Linger (wait 15 s) 0 of 4,000 requests lost, with 95 % confidence at most 0.25 % of those at risk.',
    ],
    [
      { ...without, lost: 0 },
      protectedBy,
      /at risk\. Through the Service this disturbance loses nothing even/,
    ],
    [without, bad, /with Linger \(wait 15 s\) 1 of 4,000 requests lost\. With Linger: Verdict\.$/],
  ])('says it in a sentence (%#)', (one, other, expected) => {
    const { verdict: said } = compare(one, other);
    if (typeof expected === 'string') expect(said).toBe(expected);
    else expect(said).toMatch(expected);
  });
});
