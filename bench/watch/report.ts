import { round, spreadOf, table } from '../statistics.ts';
import type { Measurement } from './measure.ts';
import type { ProgramName } from './programs.ts';

/** What is reported of each program, and with how many digits. */
const digits = {
  rssMb: 1,
  syncedRssMb: 1,
  peakRssMb: 1,
  syncSeconds: 2,
  syncCpuSeconds: 2,
  syncMbPerSecond: 1,
  eventsPerSecond: 0,
  eventsPerCpuSecond: 0,
  mbPerSecond: 1,
  sliceSamples: 0,
  endpointsSamples: 0,
  replayCpu: 2,
  othersCpu: 2,
} as const satisfies Partial<Record<keyof Measurement, number>>;

type Metric = keyof typeof digits;

/** Medians over the rounds; `spread` has the smallest and the largest of each. */
export type Row = Readonly<Record<Metric, number>> & {
  readonly spread: Readonly<Record<Metric, readonly [least: number, most: number]>>;
};

export function rowOf(measurements: readonly Measurement[]): Row {
  const metrics = Object.keys(digits) as Metric[];
  const spreads = metrics.map((metric) => {
    const { median, min, max } = spreadOf(measurements.map((measurement) => measurement[metric]));
    const rounded = (value: number) => round(value, digits[metric]);
    return { metric, median: rounded(median), range: [rounded(min), rounded(max)] as const };
  });
  return {
    ...(Object.fromEntries(spreads.map(({ metric, median }) => [metric, median])) as Record<Metric, number>),
    spread: Object.fromEntries(spreads.map(({ metric, range }) => [metric, range])) as Row['spread'],
  };
}

export interface Ratio {
  readonly name: string;
  /** The ratio of the medians. */
  readonly value: number;
  /** The extremes of single rounds. */
  readonly min: number;
  readonly max: number;
  readonly target: string;
  readonly met: boolean;
}

/** What the project promises: half the memory, and as many events. */
const targets = [
  { metric: 'rssMb', most: 1 / 2 },
  { metric: 'eventsPerSecond', least: 1 },
] as const;

type Measurements = ReadonlyMap<ProgramName, readonly Measurement[]>;

export function ratiosOf(measurements: Measurements): Ratio[] {
  const linger = measurements.get('linger') ?? [];
  return [...measurements].flatMap(([against, theirs]) =>
    against === 'linger' || linger.length === 0
      ? []
      : targets.map((target) => ratioOf(target, linger, against, theirs)),
  );
}

function ratioOf(
  target: (typeof targets)[number],
  linger: readonly Measurement[],
  against: ProgramName,
  theirs: readonly Measurement[],
): Ratio {
  const { metric } = target;
  const values = (of: readonly Measurement[]) => of.map((measurement) => measurement[metric]);
  const single = values(linger).map((value, at) => value / values(theirs)[at]!);
  const ratio = spreadOf(values(linger)).median / spreadOf(values(theirs)).median;
  const atMost = 'most' in target;
  return {
    name: `${metric} linger / ${against}`,
    value: round(ratio, 2),
    min: round(Math.min(...single), 2),
    max: round(Math.max(...single), 2),
    target: atMost ? `<= ${target.most}` : `>= ${target.least}`,
    met: atMost ? ratio <= target.most : ratio >= target.least,
  };
}

export function printTables(rows: ReadonlyMap<ProgramName, Row>, ratios: readonly Ratio[]): void {
  const cell = (row: Row, metric: Metric): string => {
    const [least, most] = row.spread[metric];
    return least === most ? String(row[metric]) : `${row[metric]} (${least}-${most})`;
  };
  console.log(
    table([
      [
        'program',
        'synced after s',
        'RSS MB',
        'peak',
        'events/s',
        'per CPU s',
        'MB/s',
        'lags of slices',
        'Endpoints',
      ],
      ...[...rows].map(([program, row]) => [
        program,
        ...(
          [
            'syncSeconds',
            'rssMb',
            'peakRssMb',
            'eventsPerSecond',
            'eventsPerCpuSecond',
            'mbPerSecond',
            'sliceSamples',
            'endpointsSamples',
          ] as const
        ).map((metric) => cell(row, metric)),
      ]),
    ]),
  );
  if (ratios.length === 0) return;
  console.log(
    table([
      ['', 'value (min-max)', 'target', ''],
      ...ratios.map(({ name, value, min, max, target, met }) => [
        name,
        `${value} (${min}-${max})`,
        target,
        met ? 'met' : 'NOT met',
      ]),
    ]),
  );
}
