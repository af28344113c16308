import type { ConsumerView, LagView } from '../core/consumers/view.ts';
import { columns } from './columns.ts';
import { showSeconds } from './seconds.ts';

/** What is told of consumers, and when that was. */
export interface ShownConsumers {
  /** Seconds since the epoch. */
  readonly asOf: number;
  readonly consumers: readonly ConsumerView[];
}

const HEADER = [
  'NAME',
  'MEASURE',
  'SAMPLES',
  'P50',
  'P99',
  'ADDED P50',
  'LAST SAMPLE',
  'INSTANCES',
  'MEASURED',
] as const;
const ALIGNMENT = HEADER.map((title) =>
  ['NAME', 'MEASURE', 'MEASURED'].includes(title) ? ('left' as const) : ('right' as const),
);

/**
 * Consumers for people: a line for each, then what is wrong with some, then what their numbers cannot show.
 * @param now seconds since the epoch
 */
export function renderConsumers({ consumers }: ShownConsumers, now: number): string {
  const table = columns([HEADER, ...consumers.map((view) => cellsOf(view, now))], ALIGNMENT);
  const parts = [table, troubleLines(consumers, now), limitLines(consumers)];
  return `${parts
    .filter((lines) => lines.length > 0)
    .map((lines) => lines.join('\n'))
    .join('\n\n')}\n`;
}

const NONE = '-';

function cellsOf(view: ConsumerView, now: number): readonly string[] {
  const { name, measure, removals, additions, lastSample, instances, condition } = view;
  return [
    name,
    measure,
    measure === 'declared' ? NONE : String(removals?.samples ?? 0),
    percentile(removals, 'p50'),
    percentile(removals, 'p99'),
    percentile(additions, 'p50'),
    lastSample === null ? NONE : `${showSpan(now - lastSample)} ago`,
    instances === null ? NONE : String(instances),
    condition.status === 'True' ? condition.reason : `${condition.status}: ${condition.reason}`,
  ];
}

function percentile(lag: LagView | null, which: 'p50' | 'p99'): string {
  return lag === null ? NONE : showSeconds(lag[which]);
}

function troubleLines(consumers: readonly ConsumerView[], now: number): readonly string[] {
  const troubled = consumers.filter(({ condition }) => condition.status !== 'True');
  if (troubled.length === 0) return [];
  return [
    'Trouble',
    ...troubled.map(({ name, condition: { reason, message, since } }) => {
      return `  ${name}: ${reason}, for ${showSpan(now - since)}: ${message}`;
    }),
  ];
}

function limitLines(consumers: readonly ConsumerView[]): readonly string[] {
  const limited = consumers.filter(({ limits }) => limits.length > 0);
  if (limited.length === 0) return [];
  return [
    'What these numbers cannot show',
    ...limited.flatMap(({ name, limits }) => [`  ${name}`, ...limits.map((limit) => `    ${limit}`)]),
  ];
}

const UNITS = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
] as const;

/** An age, in the largest unit of which it has two: clocks of others are not better. */
function showSpan(seconds: number): string {
  const span = Math.max(0, seconds);
  const [unit, length] = UNITS.find(([, each]) => span >= 2 * each) ?? ['s', 1];
  return `${Math.floor(span / length)} ${unit}`;
}
