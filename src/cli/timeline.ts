import { kindAndName, WORKLOAD_KINDS } from '../audit/index.ts';
import { formatDuration, printable } from '../core/api/index.ts';
import { assess, chartOf, chartText, type Termination, terminationSummary } from '../core/timeline/index.ts';
import type { TimelineReport } from '../dashboard/index.ts';
import type { Settings } from './commands.ts';
import { connectToLinger } from './connect.ts';
import { usageError } from './flags.ts';
import { readTerminations } from './read-cluster.ts';
import { draw, rendered } from './rendering.ts';
import { exitCodeFor, repeated, type Surroundings, showInstant, withoutProgress } from './terminal.ts';

/** How many are drawn; JSON and --output wide contain the others as well. */
const DRAWN = 10;
/** The width if standard output is not a terminal. */
const USUAL_WIDTH = 100;

/** `linger timeline`: shows when everything happened in the last terminations; with --watch, also in each new one. */
export async function timeline(settings: Settings<'timeline'>, surroundings: Surroundings): Promise<number> {
  const { operands, since, svg, output, failOn, allNamespaces, watch } = settings;
  const { print, warn, now, colour, outputColumns } = surroundings;
  const wanted = operands.map(namedBy);
  const around = watch ? withoutProgress(surroundings) : surroundings;
  const { connection, lingerNamespace } = await connectToLinger(settings, around);
  const namespace = allNamespaces ? undefined : (settings.namespace ?? connection.namespace ?? 'default');
  const from = since === undefined ? 0 : now() - since;
  const width = outputColumns() ?? USUAL_WIDTH;
  const all = new Map<string, Termination>();
  let isFirst = true;
  await repeated(watch, surroundings, async () => {
    const record = await readTerminations(connection, lingerNamespace);
    const found = record.terminations
      .filter((each) => each.deletedAt >= from && each.namespace === (namespace ?? each.namespace))
      .filter((each) => wanted.length === 0 || wanted.some((is) => is(each)))
      .filter(({ uid }) => !all.has(uid))
      .toSorted((a, b) => b.deletedAt - a.deletedAt);
    for (const each of found) all.set(each.uid, each);
    const isNews = isFirst || found.length > 0;
    isFirst = false;
    if (!isNews) return;
    const drawn = output === 'wide' ? found : found.slice(0, DRAWN);
    if (svg !== undefined && drawn.length > 0) await draw(svg, drawn.map(chartAt));
    print(
      rendered(output, timelineReportOf(found), () => {
        if (found.length > 0)
          return drawn.map((each) => chartText(chartAt(each), { width, colour })).join('\n');
        const what = operands.length === 0 ? 'a pod' : operands.map(printable).join(', ');
        const where = namespace === undefined ? '' : ` in namespace ${namespace}`;
        const when = since === undefined ? '' : ` of the last ${formatDuration(since)}`;
        return `No termination of ${what}${where}${when} is known. The leader keeps the latest terminations of pods that a Service lists: delete such a pod, and run this 15 seconds after it has ended.\n`;
      }),
    );
    if (drawn.length < found.length && output === 'table')
      warn(`linger: the latest ${drawn.length} of ${found.length}; -o wide shows all`);
  });
  return exitCodeFor(
    failOn,
    timelineReportOf([...all.values()]).terminations.map(({ afterSigterm }) => afterSigterm),
  );
}

/** The output of `-o json`, which /api/v1 returns as well. */
export function timelineReportOf(terminations: readonly Termination[]): TimelineReport {
  return {
    terminations: terminations.map((each) => ({ ...each, ...assess(each), text: terminationSummary(each) })),
  };
}

function chartAt(termination: Termination) {
  return chartOf(termination, `${showInstant(termination.deletedAt)} UTC`);
}

/** @throws LingerError `settings-invalid` */
function namedBy(operand: string): (termination: Termination) => boolean {
  const named = kindAndName(operand);
  if (named === undefined) {
    const kinds = WORKLOAD_KINDS.map((each) => each.kind.toLowerCase()).join(', ');
    throw usageError(`expected KIND/NAME, such as deployment/web or pod/web-1 (${kinds}), got "${operand}"`);
  }
  const { kind, name } = named;
  return ({ owner, pod }) => (kind.kind === 'Pod' ? pod === name : owner === `${kind.kind}/${name}`);
}
