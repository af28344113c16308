import type { LoadResult } from './load.ts';
import type { Measurement } from './measure.ts';
import type { ServerName } from './servers.ts';
import { median, round, type Spread, spreadOf, table } from './statistics.ts';

export interface Row {
  readonly server: ServerName;
  readonly body: string;
  readonly bodyBytes: number;
  /** Closed loop. */
  readonly rps: number;
  readonly rpsMin: number;
  readonly rpsMax: number;
  /** Reviews per second of CPU time that the server used: the same, less what others took of its core. */
  readonly rpsPerCpu: number;
  /** Open loop at `rateRps`, from the instant at which each review was due. */
  readonly rateRps: number;
  readonly p50ms: number;
  readonly p50msMin: number;
  readonly p50msMax: number;
  readonly p99ms: number;
  readonly p99msMin: number;
  readonly p99msMax: number;
  /** Closed loop, where latency is little more than connections ÷ throughput. */
  readonly closedP50ms: number;
  readonly closedP99ms: number;
  readonly rssMb: number;
  readonly peakRssMb: number;
  /** Cores that the server and the load generator used in the closed loop. */
  readonly serverCpu: number;
  readonly loadCpu: number;
  /** Cores that something else used, in the worst measurement that counts. */
  readonly othersCpu: number;
  /** How late the open loop's pacer was, 99th percentile: the error of p50ms and p99ms. */
  readonly pacerLateP99ms: number;
}

export interface Ratio {
  readonly name: string;
  readonly body: string;
  /** The ratio of the medians. */
  readonly value: number;
  /** The extremes of single rounds. */
  readonly min: number;
  readonly max: number;
  readonly target: string;
  readonly met: boolean;
}

export function rowOf({ server, body, rate, closed, open, rssMb, peakRssMb }: Measurement): Row {
  const rps = spread(closed, 'rps');
  const p50 = spread(open, 'p50ms');
  const p99 = spread(open, 'p99ms');
  return {
    server,
    body: body.label,
    bodyBytes: body.bytes,
    rps: round(rps.median, 0),
    rpsMin: round(rps.min, 0),
    rpsMax: round(rps.max, 0),
    rateRps: rate,
    rpsPerCpu: round(median(closed.map(perCpu)), 0),
    p50ms: round(p50.median, 2),
    p50msMin: round(p50.min, 2),
    p50msMax: round(p50.max, 2),
    p99ms: round(p99.median, 2),
    p99msMin: round(p99.min, 2),
    p99msMax: round(p99.max, 2),
    closedP50ms: round(spread(closed, 'p50ms').median, 2),
    closedP99ms: round(spread(closed, 'p99ms').median, 2),
    rssMb: round(rssMb, 1),
    peakRssMb: round(peakRssMb, 1),
    serverCpu: round(spread(closed, 'serverCpu').median, 2),
    loadCpu: round(spread(closed, 'cpu').median, 2),
    othersCpu: round(Math.max(...[...closed, ...open].map(({ othersCpu }) => othersCpu)), 2),
    pacerLateP99ms: round(spread(open, 'lateP99ms').median, 2),
  };
}

interface Target {
  readonly name: string;
  readonly against: ServerName;
  readonly value: (measurement: Measurement) => number[];
  readonly atLeast?: Readonly<Record<string, number>>;
  readonly atMost?: Readonly<Record<string, number>>;
}

const throughput = ({ closed }: Measurement): number[] => closed.map(({ rps }) => rps);
const perCpu = ({ requests, seconds, serverCpu }: LoadResult): number => requests / (seconds * serverCpu);
const p99 = ({ open }: Measurement): number[] => open.map(({ p99ms }) => p99ms);
/** What the project promises, per body. */
const targets: readonly Target[] = [
  {
    name: 'throughput',
    against: 'controller-runtime',
    value: throughput,
    atLeast: { '3.4 KB': 4, '16 KB': 8 },
  },
  { name: 'p99', against: 'controller-runtime', value: p99, atMost: { '3.4 KB': 1 / 3, '16 KB': 1 / 3 } },
  { name: 'throughput', against: 'bare', value: throughput, atLeast: { '3.4 KB': 0.65, '16 KB': 0.65 } },
];
const RSS_TARGET_MB = 120;

/** Linger against the others, and its memory against the promise; those whose servers were measured. */
export function ratiosOf(measurements: readonly Measurement[]): Ratio[] {
  return measurements
    .filter(({ server }) => server === 'linger')
    .flatMap((linger) => {
      const ratios = targets.flatMap((target) => {
        const other = measurements.find(
          ({ server, body }) => server === target.against && body === linger.body,
        );
        return other === undefined ? [] : [ratioOf(target, linger, other)];
      });
      const { rssMb } = linger;
      const memory = {
        name: 'RSS of linger, MB',
        body: linger.body.label,
        value: rssMb,
        min: rssMb,
        max: rssMb,
      };
      return [...ratios, { ...memory, target: `<= ${RSS_TARGET_MB}`, met: rssMb <= RSS_TARGET_MB }];
    });
}

function ratioOf(
  { name, against, value, atLeast, atMost }: Target,
  linger: Measurement,
  other: Measurement,
): Ratio {
  const body = linger.body.label;
  const [ours, theirs] = [value(linger), value(other)];
  const single = ours.map((number, index) => number / theirs[index]!);
  const ratio = median(ours) / median(theirs);
  const lower = atLeast?.[body] ?? Number.NEGATIVE_INFINITY;
  const upper = atMost?.[body] ?? Number.POSITIVE_INFINITY;
  return {
    name: `${name} linger / ${against}`,
    body,
    value: ratio,
    min: Math.min(...single),
    max: Math.max(...single),
    target: atLeast ? `>= ${lower}` : `<= ${round(upper, 2)}`,
    met: ratio >= lower && ratio <= upper,
  };
}

export function printTables(rows: readonly Row[], ratios: readonly Ratio[]): void {
  console.log(
    table([
      [
        'body',
        'server',
        'req/s (min-max)',
        'per CPU s',
        'at',
        'p50 ms (min-max)',
        'p99 ms (min-max)',
        'RSS MB (peak)',
      ],
      ...rows.map((row) => [
        row.body,
        row.server,
        `${row.rps} (${row.rpsMin}-${row.rpsMax})`,
        String(row.rpsPerCpu),
        `${row.rateRps}/s`,
        `${row.p50ms} (${row.p50msMin}-${row.p50msMax})`,
        `${row.p99ms} (${row.p99msMin}-${row.p99msMax})`,
        `${row.rssMb} (${row.peakRssMb})`,
      ]),
    ]),
  );
  console.log(
    table([
      ['', 'body', 'value (min-max)', 'target', ''],
      ...ratios.map(({ name, body, value, min, max, target, met }) => [
        name,
        body,
        `${round(value, 2)} (${round(min, 2)}-${round(max, 2)})`,
        target,
        met ? 'met' : 'NOT met',
      ]),
    ]),
  );
}

function spread<K extends keyof LoadResult>(results: readonly LoadResult[], field: K): Spread {
  return spreadOf(results.map((result) => result[field]));
}
