import { describe, expect, it } from 'vitest';
import {
  ConnectionMonitor,
  type HelperLine,
  helperLine,
  openedBetween,
  type QuietVerdict,
} from '../../src/hold/connection-monitor.ts';

describe('a line', () => {
  it('is read', () => {
    expect(helperLine('w 18446744073709551615 4 2 10.0.0.7,fd00::1 3', 5)).toEqual({
      at: 5,
      opens: 18446744073709551615n,
      established: 2,
      loopback: 3,
      remotes: ['10.0.0.7', 'fd00::1'],
    });
  });

  it('may say that nothing could be read', () => {
    expect(helperLine('w - - - - -', 5)).toEqual({ at: 5, remotes: [] });
  });

  it.each([
    'w',
    'w 1 2 3',
    'w -1 2 3 - 0',
    'w 1 2 3 10.0.0.7; 0',
    'w 1 2 3 <script> 0',
    `w 1 2 3 ${Array(17).fill('10.0.0.7').join()} 0`,
    'W 1 2 3 - 0',
    'w 111111111111111111111 2 3 - 0',
  ])('is none: %s', (text) => {
    expect(helperLine(text, 5)).toBeUndefined();
  });
});

const line = (
  at: number,
  opens: number | bigint | undefined,
  loopback: number | undefined = 0,
): HelperLine => ({
  at,
  opens: opens === undefined ? undefined : BigInt(opens),
  established: 0,
  loopback,
  remotes: [],
});

describe('connections between two lines', () => {
  it.each([
    ['some', line(0, 10), line(500, 15), 5],
    ['without those of the pod itself', line(0, 10), line(500, 15, 4), 1],
    ['never fewer than none', line(0, 10), line(500, 11, 4), 0],
    ['of a counter of 32 bits that wraps', line(0, 2n ** 32n - 2n), line(500, 3), 5],
    ['of one of 64 bits that wraps', line(0, 2n ** 64n - 2n), line(500, 3), 5],
    ['not of one that was reset', line(0, 3_000_000_000), line(500, 3), undefined],
    ['not where a counter is missing', line(0, undefined), line(500, 3), undefined],
    [
      'not where those of the pod itself are not known',
      line(0, 1),
      { ...line(500, 3), loopback: undefined },
      undefined,
    ],
  ])('%s', (_, before, after, opened) => {
    expect(openedBetween(before.opens, after)).toBe(opened);
  });
});

/** The lines of a helper that samples twice a second. @param arrivals milliseconds, ascending */
function linesOf(
  arrivals: readonly number[],
  until: number,
  { phase = 0, start = 1_000_000 } = {},
): HelperLine[] {
  const lines: HelperLine[] = [];
  for (let at = phase; at <= until; at += 500)
    lines.push(line(at, start + arrivals.filter((arrival) => arrival <= at).length));
  return lines;
}

function quietVerdict(
  lines: readonly HelperLine[],
  at: Parameters<ConnectionMonitor['observe']>[0],
): QuietVerdict {
  const monitor = new ConnectionMonitor();
  for (const each of lines) monitor.hear(each);
  return monitor.observe(at).verdict;
}
const rule = { probes: 0, min: 5 };
const every = (period: number, from: number, to: number) =>
  Array.from({ length: Math.max(0, Math.ceil((to - from) / period)) }, (_, index) => from + index * period);

describe('the rule', () => {
  const judged = (arrivals: readonly number[], now: number, probes = 0): QuietVerdict =>
    quietVerdict(
      linesOf(
        arrivals.toSorted((a, b) => a - b),
        now,
      ),
      { ...rule, now, probes },
    );

  it.each([
    [
      'is off with hold.min 0',
      quietVerdict(linesOf(every(50, 0, 5_000), 5_000), { now: 5_000, probes: 0, min: 0 }),
      'Off',
    ],
    ['knows nothing without lines', quietVerdict([], { ...rule, now: 5_000 }), 'Unknown'],
    ['waits for what it cannot tell yet', quietVerdict(linesOf([], 0), { ...rule, now: 0 }), 'Sending'],
    ['nor of silence of a second', judged([], 1_000), 'Sending'],
    ['nor of a single connection, within five', judged([200], 4_500), 'Sending'],
    ['nor where probes hide who comes', judged(every(1_000, 300, 2_000), 2_000, 1), 'Sending'],
    ['but not for ever', quietVerdict(linesOf([], 0), { ...rule, now: 10_100 }), 'Unknown'],
    [
      'goes by the last line while none comes, as from a node without processor time',
      quietVerdict(linesOf(every(50, 0, 5_000), 5_000), { ...rule, now: 14_900 }),
      'Sending',
    ],
    [
      'be it of the end',
      quietVerdict(linesOf(every(50, 0, 5_000), 7_000), { ...rule, now: 14_900 }),
      'Quiet',
    ],
    ['or too short to tell', quietVerdict(linesOf([], 3_000), { ...rule, now: 12_000 }), 'Sending'],
    [
      'knows nothing long after the last',
      quietVerdict(linesOf(every(50, 0, 5_000), 5_000), { ...rule, now: 15_100 }),
      'Unknown',
    ],
    [
      'nor where numbers are missing',
      quietVerdict([line(0, 1), line(4_500, undefined), line(5_000, 5)], { ...rule, now: 5_000 }),
      'Unknown',
    ],
    ['20 a second that go on', judged(every(50, 0, 7_000), 7_000), 'Sending'],
    ['20 a second that ended half a second ago', judged(every(50, 0, 7_000), 8_000), 'Quiet'],
    ['2 a second that ended a second ago', judged(every(500, 100, 7_000), 8_000), 'Sending'],
    ['2 a second that ended 3.5 s ago', judged(every(500, 100, 7_000), 10_500), 'Sending'],
    ['2 a second that ended 5 s ago', judged(every(500, 100, 7_000), 12_000), 'Quiet'],
    ['a scrape every 15 s', judged([2_000], 5_000), 'Rare'],
    ['two scrapers, one of them a second ago', judged([2_000, 4_000], 5_000), 'Sending'],
    ['two scrapers that are over', judged([2_000, 4_000], 9_500), 'Quiet'],
    ['nobody', judged([], 5_000), 'Rare'],
    ['probes alone', judged(every(1_000, 300, 9_000), 9_000, 1), 'Rare'],
    [
      'probes that go on when the others have ended',
      judged([...every(1_000, 300, 9_000), ...every(50, 0, 6_000)], 9_000, 1),
      'Quiet',
    ],
    [
      'probes beside those that go on',
      judged([...every(1_000, 300, 9_000), ...every(200, 0, 9_000)], 9_000, 1),
      'Sending',
    ],
  ] as const)('%s', (_, verdict, expected) => {
    expect(verdict).toBe(expected);
  });

  it('counts from a gap in the lines on', () => {
    const before = linesOf(every(50, 0, 3_000), 3_000);
    const later = (until: number) => linesOf([], until, { phase: 6_500, start: 1_000_060 });
    expect(quietVerdict([...before, ...later(7_000)], { ...rule, now: 7_000 })).toBe('Sending');
    expect(quietVerdict([...before, ...later(11_500)], { ...rule, now: 11_500 })).toBe('Rare');
  });

  it.each([
    ['at once', 0],
    ['a few milliseconds apart', 3],
  ])('counts from the last of the lines that have piled up and arrive %s', (_, apart) => {
    const until = (end: number, from = 0) =>
      linesOf(every(500, 100, 9_400), end).filter(({ at }) => at > from || from === 0);
    const piled = until(9_000, 5_000).map((each, index) => ({ ...each, at: 9_000 + index * apart }));
    const lines = [...until(5_000), ...piled, ...until(12_000, 9_000)];
    const judged = (now: number) =>
      quietVerdict(
        lines.filter(({ at }) => at <= now),
        { ...rule, now },
      );
    // 2 a second until 9.1 s: that 10 came since 5 s says nothing of how often they come.
    for (const now of [10_000, 10_500, 11_000]) expect(judged(now)).toBe('Sending');
  });
});

/** xorshift, so that a failure can be reproduced. */
function chance(seed: number): () => number {
  let state = seed | 1;
  return () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 0) / 2 ** 32;
  };
}

function poisson(rate: number, from: number, to: number, random: () => number): number[] {
  const arrivals: number[] = [];
  for (let at = from; ; ) {
    at += (-Math.log(1 - random()) / rate) * 1000;
    if (at >= to) return arrivals;
    arrivals.push(at);
  }
}

/** When the rule first releases the pod, evaluated at each line from hold.min on. */
function letGoAt(
  arrivals: readonly number[],
  phase: number,
  { probes = 0, min = 5, until = 60_000 } = {},
): number {
  const lines = linesOf(arrivals, until, { phase });
  for (let count = 1; count <= lines.length; count += 1) {
    const now = (lines[count - 1] as HelperLine).at;
    if (now < min * 1000) continue;
    if (quietVerdict(lines.slice(Math.max(0, count - 26), count), { now, probes, min }) !== 'Sending')
      return now;
  }
  return until;
}

/** Traffic with a known truth: the gateway stops sending 5 to 20 s after the deletion. */
describe('against simulated traffic', () => {
  const RUNS = 400;
  const tried = (
    traffic: (end: number, random: () => number) => readonly number[],
    probes = 0,
    begin = 5_000,
  ): { readonly early: number; readonly longest: number } => {
    let early = 0;
    let longest = 0;
    for (let run = 1; run <= RUNS; run += 1) {
      const random = chance(run * 7919);
      for (let warm = 0; warm < 5; warm += 1) random();
      const end = begin + 15_000 * random();
      const kubelet = probes > 0 ? every(1000 / probes, 1000 * random(), 60_000) : [];
      const arrivals = [...traffic(end, random), ...kubelet].toSorted((a, b) => a - b);
      const last = Math.max(...traffic(end, () => 0.5), ...arrivals.filter((at) => at <= end));
      const released = letGoAt(arrivals, 500 * random(), { probes });
      if (released < end - 200) early += 1;
      longest = Math.max(longest, released - Math.max(5_000, last));
    }
    return { early: early / RUNS, longest };
  };

  it.each([
    ['20 a second', 20, 0, 0.01],
    ['5 a second', 5, 0, 0.01],
    ['2 a second', 2, 0, 0.01],
    ['1 a second', 1, 0, 0.12],
    ['20 a second beside a probe each second', 20, 1, 0.01],
    ['5 a second beside a probe each second', 5, 1, 0.01],
    ['2 a second beside a probe each second', 2, 1, 0.03],
  ])('of chance, %s: hardly ever let go before its end, and soon after it', (_, rate, probes, most) => {
    const { early, longest } = tried((end, random) => poisson(rate, 0, end, random), probes);
    // Each judgement errs once in ten thousand times, and there is one after each of up to 400 connections. Of one or two a
    // second a silence of 5 s is more likely (docs/concepts.md).
    expect(early).toBeLessThanOrEqual(most);
    expect(longest).toBeLessThanOrEqual(6_500);
  });

  it('of chance, beside another that ends at once', () => {
    const { early } = tried((end, random) =>
      [...poisson(50, 0, 1_000, random), ...poisson(5, 0, end, random)].toSorted((a, b) => a - b),
    );
    expect(early).toBeLessThanOrEqual(0.01);
  });

  it('at even distances, 4 a second: never before its end', () => {
    expect(tried((end) => every(250, 0, end)).early).toBe(0);
  });

  it('of 10 at once each second: never before its end', () => {
    expect(tried((end) => every(1_000, 0, end).flatMap((at) => Array(10).fill(at) as number[])).early).toBe(
      0,
    );
  });
});

describe('the last connection', () => {
  /** The error of the reported lag for pods whose connections and probes come evenly; milliseconds. */
  function told(rate: number, probes: number, containers: number): readonly number[] {
    const random = chance(7);
    return Array.from({ length: 300 }, () => {
      const last = 8_000 + 1_000 * random();
      const now = last + 4_000;
      const train = () => {
        const period = (1_000 * containers) / probes;
        return every(period, random() * period, now).map((at) => at + 30 * random());
      };
      const ofProbes = probes === 0 ? [] : Array.from({ length: containers }, train).flat();
      const ofOthers = every(1_000 / rate, 0, last).map((before) => last - before);
      const monitor = new ConnectionMonitor();
      const arrivals = [...ofProbes, ...ofOthers];
      for (const each of linesOf(arrivals, now, { phase: 500 * random() })) monitor.hear(each);
      return (monitor.observe({ ...rule, now, probes }).lastAt ?? Number.NaN) - last;
    });
  }

  it.each([
    { rate: 20, probes: 0 },
    { rate: 3.3, probes: 0 },
    { rate: 20, probes: 1 },
    { rate: 20, probes: 0.1 },
    { rate: 3.3, probes: 1 },
    { rate: 3.3, probes: 0.1 },
    { rate: 3.3, probes: 0.2, containers: 2 },
    { rate: 3.3, probes: 2, containers: 2, most: 0.02 },
    { rate: 1.7, probes: 1, most: 0.02 },
    { rate: 1.7, probes: 0.1, most: 0.02 },
  ])(
    'is known to half a second, and beside probes to two connections: $rate a second, beside $probes probes a second',
    ({ rate, probes, containers = 1, most = 0 }) => {
      const off = told(rate, probes, containers);
      // Beside probes, the last two connections may have been some.
      const gap = probes > 0 ? 1_000 / rate : 0;
      expect(
        off.filter((each) => !(Math.abs(each) <= 600 + 2 * gap)).length / off.length,
      ).toBeLessThanOrEqual(most);
      const mean = off.reduce((sum, each) => sum + each, 0) / off.length;
      expect(Math.abs(mean)).toBeLessThanOrEqual(250 + 1.5 * gap);
    },
  );

  it('is none where there were only probes', () => {
    const monitor = new ConnectionMonitor();
    for (const each of linesOf(every(1_000, 0, 8_000), 8_000)) monitor.hear(each);
    expect(monitor.observe({ ...rule, now: 8_000, probes: 1 }).lastAt).toBeUndefined();
  });
});
