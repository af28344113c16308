import { formatDuration } from '../api/index.ts';
import { CONDITIONS, type ConsumerTable, type ConsumerView, type LagView } from '../lag/index.ts';
import type { Settings } from './commands.ts';
import { connectAsKubectl } from './connect.ts';
import { readConsumerTable } from './read-cluster.ts';
import {
  checkFailOn,
  columns,
  exitCodeFor,
  paragraphs,
  rendered,
  type Surroundings,
  showSeconds,
} from './terminal.ts';

const ANY = 'any';

/** For one object, with a user waiting for it. */
const ANSWER_WITHIN_MS = 30_000;

/** The leader publishes at least every 5 minutes; twice that, and some for a change of leader. */
const OLD_SECONDS = 900;

/** `linger consumers`: what the leader of a running Linger has measured of each consumer. */
export async function consumers(
  settings: Settings<'consumers'>,
  surroundings: Surroundings,
): Promise<number> {
  const { failOn, lingerNamespace, output } = settings;
  checkFailOn(failOn, [ANY, ...Object.keys(CONDITIONS)]);
  const { now, print, warn } = surroundings;
  const connection = await connectAsKubectl(settings, surroundings);
  const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const published = await readConsumerTable(connection, lingerNamespace, signal);
  const age = now() - published.asOf;
  if (age > OLD_SECONDS)
    warn(`this is ${formatDuration(Math.round(age))} old: no replica of Linger seems to lead there now\n`);
  print(rendered(output, published, (wide) => renderConsumers(published, now(), wide)));
  // `any` means consumers whose estimate is unreliable; ones that are only too new do not fail.
  const conditions = published.consumers.map(({ condition }) => condition);
  const codes = conditions.flatMap(({ reason, status }) => [reason, status === 'False' ? ANY : null]);
  return exitCodeFor(failOn, codes);
}

const WIDE_ONLY = 'ADDED P99';
const HEADER = [
  'NAME',
  'MEASURE',
  'SAMPLES',
  'P50',
  'P99',
  'ADDED P50',
  WIDE_ONLY,
  'LAST SAMPLE',
  'INSTANCES',
  'MEASURED',
];
const LEFT: readonly string[] = ['NAME', 'MEASURE', 'MEASURED'];

/**
 * A table of consumers: a line for each, then their problems, then the limits of their numbers.
 * @param now seconds since the epoch
 */
export function renderConsumers({ consumers }: ConsumerTable, now: number, wide = false): string {
  const header = HEADER.filter((title) => wide || title !== WIDE_ONLY);
  const rows = consumers.map((view) => {
    const cells = cellsOf(view, now);
    return header.map((title) => cells[HEADER.indexOf(title)] ?? NONE);
  });
  const alignment = header.map((title) => (LEFT.includes(title) ? 'left' : 'right'));
  const troubles = consumers.flatMap(({ name, condition: { status, reason, message, since } }) =>
    status === 'True' ? [] : [`  ${name}: ${reason}, for ${showSpan(now - since)}: ${message}`],
  );
  const limits = consumers.flatMap(({ name, limits }) =>
    limits.length === 0 ? [] : [`  ${name}`, ...limits.map((limit) => `    ${limit}`)],
  );
  return paragraphs(
    columns([header, ...rows], alignment),
    troubles.length === 0 ? [] : ['Trouble', ...troubles],
    limits.length === 0 ? [] : ['What these numbers cannot show', ...limits],
  );
}

const NONE = '-';

/** In the order of the header. */
function cellsOf(view: ConsumerView, now: number): readonly string[] {
  const { name, measure, removals, additions, lastSample, instances, condition } = view;
  const percentile = (lag: LagView | null, which: 'p50' | 'p99') =>
    lag === null ? NONE : showSeconds(lag[which]);
  return [
    name,
    measure,
    measure === 'declared' ? NONE : String(removals?.samples ?? 0),
    percentile(removals, 'p50'),
    percentile(removals, 'p99'),
    percentile(additions, 'p50'),
    percentile(additions, 'p99'),
    lastSample === null ? NONE : `${showSpan(now - lastSample)} ago`,
    instances === null ? NONE : String(instances),
    condition.status === 'True' ? condition.reason : `${condition.status}: ${condition.reason}`,
  ];
}

const UNITS = [
  ['d', 86_400],
  ['h', 3_600],
  ['min', 60],
] as const;

/** An age in the largest unit of which it has at least two: the clocks of other machines are not more precise. */
function showSpan(seconds: number): string {
  const span = Math.max(0, seconds);
  const [unit, length] = UNITS.find(([, each]) => span >= 2 * each) ?? ['s', 1];
  return `${Math.floor(span / length)} ${unit}`;
}
