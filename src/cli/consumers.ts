import { stringify } from 'yaml';
import { formatDuration } from '../api/index.ts';
import { CONDITIONS, type ConsumerView, type LagView, type ToldConsumers } from '../lag/index.ts';
import type { ConsumersSettings, OutputFormat } from './commands.ts';
import { connectAsKubectl } from './connect.ts';
import type { KubeEnvironment } from './flags.ts';
import { readToldConsumers } from './read-cluster.ts';
import { checkFailOn, columns, FINDINGS_EXIT_CODE, showSeconds, type Terminal } from './terminal.ts';

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
] as const;
const ALIGNMENT = HEADER.map((title) =>
  ['NAME', 'MEASURE', 'MEASURED'].includes(title) ? ('left' as const) : ('right' as const),
);

/**
 * Consumers for people: a line for each, then what is wrong with some, then what their numbers cannot show.
 * @param now seconds since the epoch
 */
export function renderConsumers({ consumers }: ToldConsumers, now: number, wide = false): string {
  const shown = (row: readonly string[]) => row.filter((_, column) => wide || HEADER[column] !== WIDE_ONLY);
  const rows = [HEADER, ...consumers.map((view) => cellsOf(view, now))].map(shown);
  const table = columns(rows, shown(ALIGNMENT) as typeof ALIGNMENT);
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
    percentile(additions, 'p99'),
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

const ANY = 'any';

export interface ConsumersContext extends Terminal {
  readonly kube: KubeEnvironment;
  /** Whether a person could answer the question of a credential plugin. */
  readonly interactive: boolean;
  /** Seconds since the epoch. */
  readonly now: () => number;
}

/** One object, and a person who waits for it. */
const ANSWER_WITHIN_MS = 30_000;

/** The leader publishes at least every 5 minutes; twice that, and some for a change of leader. */
const OLD_SECONDS = 900;

/**
 * `linger consumers`: what the leader of a running Linger has measured of each consumer.
 * @returns the exit code: 3 when a condition has one of the reasons of --fail-on
 * @throws LingerError, ConnectionError
 */
export async function consumers(settings: ConsumersSettings, context: ConsumersContext): Promise<number> {
  const { failOn, lingerNamespace, output } = settings;
  checkFailOn(failOn, [ANY, ...Object.keys(CONDITIONS)]);
  const { kube, interactive, now, print, warn } = context;
  const connection = await connectAsKubectl(settings, kube, interactive);
  // A plugin's own words, where it gives none.
  await connection.credentials();
  const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
  const published = await readToldConsumers(connection, lingerNamespace, signal);
  const age = now() - published.asOf;
  if (age > OLD_SECONDS)
    warn(`this is ${formatDuration(Math.round(age))} old: no replica of Linger seems to lead there now\n`);
  print(RENDERERS[output](published, now()));
  return published.consumers.some((view) => isAskedFor(view, failOn)) ? FINDINGS_EXIT_CODE : 0;
}

const RENDERERS: Readonly<Record<OutputFormat, (published: ToldConsumers, now: number) => string>> = {
  table: (published, now) => renderConsumers(published, now),
  wide: (published, now) => renderConsumers(published, now, true),
  json: (published) => `${JSON.stringify(published, undefined, 2)}\n`,
  yaml: (published) => stringify(published),
};

/** `any` is what cannot be relied on: where it is only too early to say, nothing fails. */
function isAskedFor({ condition }: ConsumerView, reasons: readonly string[] = []): boolean {
  return reasons.includes(condition.reason) || (condition.status === 'False' && reasons.includes(ANY));
}
