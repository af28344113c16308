import { span } from '../core/api/index.ts';
import { CONDITIONS, type ConsumerTable, type ConsumerView } from '../core/lag/index.ts';
import type { ConsumersReport } from '../dashboard/index.ts';
import type { Settings } from './commands.ts';
import { connectToLinger } from './connect.ts';
import { usageError } from './flags.ts';
import { readConsumerTable, stalenessOf } from './read-cluster.ts';
import { rendered } from './rendering.ts';
import { checkFailOn, columns, exitCodeFor, paragraphs, type Surroundings, showSeconds } from './terminal.ts';

const ANY = 'any';

/** `linger consumers`: shows what the leader of a running Linger has measured for each consumer. */
export async function consumers(
  settings: Settings<'consumers'>,
  surroundings: Surroundings,
): Promise<number> {
  if (settings.operands[0] === 'discover')
    return (await import('./discover-consumers.ts')).discoverConsumers(settings, surroundings);
  const { failOn, output = 'table', filename, apply } = settings;
  if (filename !== undefined || apply)
    throw usageError(`${apply ? '--apply' : '--filename'}: only with linger consumers discover`);
  checkFailOn(failOn, [ANY, ...Object.keys(CONDITIONS)]);
  const { now, print, warn } = surroundings;
  const { connection, lingerNamespace } = await connectToLinger(settings, surroundings);
  const published: ConsumersReport & ConsumerTable = await readConsumerTable(connection, lingerNamespace);
  const stale = stalenessOf(published, now());
  if (stale !== undefined) warn(stale);
  print(rendered(output, published, (wide) => renderConsumers(published, now(), wide)));
  // `any` means consumers whose estimate is unreliable; ones that are only too new do not fail.
  const conditions = published.consumers.map(({ condition }) => condition);
  const codes = conditions.flatMap(({ reason, status }) => [reason, status === 'False' ? ANY : null]);
  return exitCodeFor(failOn, codes);
}

interface Column {
  readonly title: string;
  readonly cell: (view: ConsumerView, now: number) => string | number | null;
  readonly left?: true;
  readonly wideOnly?: true;
}

/** A cell of null is printed as `-`. */
const COLUMNS: readonly Column[] = [
  { title: 'NAME', cell: ({ name }) => name, left: true },
  {
    title: 'MEASURE',
    cell: ({ measure, mode }) => (mode === undefined ? measure : `${measure} (${mode})`),
    left: true,
  },
  {
    title: 'SAMPLES',
    cell: ({ measure, removals }) => (measure === 'declared' ? null : (removals?.samples ?? 0)),
  },
  { title: 'P50', cell: ({ removals }) => removals && showSeconds(removals.p50) },
  { title: 'P99', cell: ({ removals }) => removals && showSeconds(removals.p99) },
  { title: 'ADDED P50', cell: ({ additions }) => additions && showSeconds(additions.p50) },
  { title: 'ADDED P99', cell: ({ additions }) => additions && showSeconds(additions.p99), wideOnly: true },
  {
    title: 'LAST SAMPLE',
    cell: ({ lastSample }, now) => (lastSample === null ? null : `${span(now - lastSample)} ago`),
  },
  { title: 'SERVICES', cell: ({ services }) => services },
  { title: 'INSTANCES', cell: ({ instances }) => instances },
  {
    title: 'MEASURED',
    cell: ({ condition: { status, reason } }) => (status === 'True' ? reason : `${status}: ${reason}`),
    left: true,
  },
];

/**
 * A table of consumers: first a line for each, then their problems, then the limits of their numbers.
 * @param now seconds since the epoch
 */
export function renderConsumers({ consumers }: ConsumerTable, now: number, wide = false): string {
  const shown = COLUMNS.filter(({ wideOnly }) => wide || wideOnly !== true);
  const rows = consumers.map((view) => shown.map(({ cell }) => String(cell(view, now) ?? '-')));
  const alignment = shown.map(({ left }) => (left === true ? 'left' : 'right'));
  const troubles = consumers.flatMap(({ name, condition: { status, reason, message, since } }) =>
    status === 'True' ? [] : [`  ${name}: ${reason}, for ${span(now - since)}: ${message}`],
  );
  const limits = consumers.flatMap(({ name, limits }) =>
    limits.length === 0 ? [] : [`  ${name}`, ...limits.map((limit) => `    ${limit}`)],
  );
  return paragraphs(
    columns([shown.map(({ title }) => title), ...rows], alignment),
    troubles.length === 0 ? [] : ['Trouble', ...troubles],
    limits.length === 0 ? [] : ['What these numbers cannot show', ...limits],
  );
}
