import type { KubeConnection } from '../cluster/index.ts';
import { formatDuration } from '../core/api/index.ts';
import { LagHistory } from '../core/lag/index.ts';
import type { HistoryReport } from '../dashboard/index.ts';
import {
  type Forgotten,
  readConfigMap,
  readForgotten,
  recordForgotten,
  restoreHistory,
  SHARED_NAMES,
} from '../leader/index.ts';
import type { Settings } from './commands.ts';
import { asked, connectToLinger } from './connect.ts';
import { usageError } from './flags.ts';
import { notPublished } from './read-cluster.ts';
import { rendered } from './rendering.ts';
import { columns, paragraphs, type Surroundings, showSeconds } from './terminal.ts';

/** For all requests together. */
const ANSWER_WITHIN_MS = 60_000;
const REQUEST_MS = 10_000;

/** `linger history`: shows the episodes in the stored history. `linger history forget`: removes a span from it. */
export async function history(settings: Settings<'history'>, surroundings: Surroundings): Promise<number> {
  const { operands, output } = settings;
  const { now, print, progress, warn } = surroundings;
  const span = operands[0] === 'forget' ? forgottenOf(settings, now()) : undefined;
  const ofForget = (['from', 'to', 'namespace', 'consumer'] as const).find(
    (each) => settings[each] !== undefined,
  );
  if (span === undefined && ofForget !== undefined)
    throw usageError(`--${ofForget}: only with linger history forget; the list has all episodes`);
  const { connection, lingerNamespace } = await connectToLinger(settings, surroundings);
  if (span !== undefined) {
    const { scopes } = await readHistory(connection, lingerNamespace, now(), warn);
    const isMeasured = [...scopes].some(
      ([scope, lags]) => isOf(scope, span) && [...lags().spans()].some((each) => overlaps(each, span)),
    );
    const call = { signal: AbortSignal.timeout(ANSWER_WITHIN_MS), withinMs: REQUEST_MS };
    await asked(connection, recordForgotten(connection, lingerNamespace, span, now(), call));
    const about = `${scopeText(span)} from ${timeText(span.from)} to ${timeText(span.to)}`;
    // The leader may have measured some since it last wrote the history, so just warn.
    if (!isMeasured) warn(`linger: there are no measurements ${about} in the stored history`);
    print(
      `Measurements ${about} removed from the history; new pods get waits without them within a minute.\n`,
    );
    return 0;
  }
  const at = now();
  progress('reading the history');
  const { scopes, forgotten } = await readHistory(connection, lingerNamespace, at, warn);
  const episodes = [...scopes].flatMap(([scope, lags]) =>
    [...lags().episodes(at, 0)].map((episode) => ({ scope, ...episode })),
  );
  const report: HistoryReport = { episodes, forgotten };
  print(rendered(output, report, () => renderEpisodes(report)));
  return 0;
}

/**
 * The stored lags of the leader by scope, without what has been forgotten. Each is kept as text until it is needed, because
 * in memory, 28 days of a busy namespace take several times as much room.
 * @throws LingerError `not-published`, `cluster-denied`, `cluster-unreachable`
 */
export async function readHistory(
  connection: KubeConnection,
  namespace: string,
  now: number,
  warn: Surroundings['warn'],
): Promise<{
  readonly scopes: ReadonlyMap<string, () => LagHistory>;
  readonly forgotten: readonly Forgotten[];
}> {
  const call = { signal: AbortSignal.timeout(ANSWER_WITHIN_MS), withinMs: REQUEST_MS };
  /** The texts of each scope; the history of a busy scope has several parts. */
  const parts = new Map<string, string[]>();
  const restorePart = (json: unknown) => {
    const key = LagHistory.readPart(json)?.key;
    if (key !== undefined) parts.set(key, [...(parts.get(key) ?? []), JSON.stringify(json)]);
    return key !== undefined;
  };
  const read = (name: string) => readConfigMap(connection, namespace, name, call);
  const { refused, stamp } = await asked(connection, restoreHistory(read, { restorePart }, now));
  if (refused !== undefined) warn(refused.problem);
  if (stamp === undefined) throw notPublished(connection, `there is no history in namespace ${namespace}`);
  const forgotten = readForgotten(await asked(connection, read(SHARED_NAMES.planned)));
  const restored = (scope: string, texts: readonly string[]) => {
    const lags = new LagHistory();
    for (const text of texts) {
      const part = LagHistory.readPart(JSON.parse(text));
      if (part !== undefined) lags.merge(part.history, now);
    }
    // The leader may not have rewritten the history since these spans were forgotten.
    for (const each of forgotten) if (isOf(scope, each)) lags.forget(each.from, each.to);
    return lags;
  };
  const scopes = new Map([...parts].map(([scope, texts]) => [scope, () => restored(scope, texts)] as const));
  return { scopes, forgotten };
}

/** @throws LingerError `settings-invalid` */
function forgottenOf({ from, to, namespace, consumer }: Settings<'history'>, now: number): Forgotten {
  if (from === undefined || to === undefined) throw usageError('history forget needs --from and --to');
  if (from >= to) throw usageError('--to: expected a time after --from');
  if (to > now) throw usageError('--to: expected a time in the past');
  if (namespace !== undefined && consumer !== undefined)
    throw usageError('--namespace and --consumer are mutually exclusive');
  if (namespace !== undefined) return { from, to, namespace };
  return consumer === undefined ? { from, to } : { from, to, consumer };
}

function overlaps(a: Pick<Forgotten, 'from' | 'to'>, b: Pick<Forgotten, 'from' | 'to'>): boolean {
  return a.from < b.to && a.to > b.from;
}

function isOf(scope: string, { namespace, consumer }: Forgotten): boolean {
  if (namespace !== undefined) return scope === `namespace/${namespace}`;
  if (consumer !== undefined) return scope.startsWith(`consumer/${consumer}/`);
  return !scope.startsWith('consumer/');
}

const HEADER = ['SCOPE', 'FROM', 'TO', 'REMOVALS', 'SHARE', 'P99', 'P99 WITHOUT'];
const ALIGNMENT = ['left', 'left', 'left', 'right', 'right', 'right', 'right'] as const;

function renderEpisodes({ episodes, forgotten }: HistoryReport): string {
  const rows = episodes.map(({ scope, from, to, removals, share, p99Seconds, p99WithoutSeconds }) => [
    scope,
    timeText(from),
    timeText(to),
    String(removals),
    `${(100 * share).toFixed(1)} %`,
    showSeconds(p99Seconds),
    showSeconds(p99WithoutSeconds),
  ]);
  const table =
    rows.length === 0
      ? ['No episode: no short span raises the waits.']
      : columns([HEADER, ...rows], ALIGNMENT);
  const spans = forgotten.map(
    (each) =>
      `  ${timeText(each.from)} to ${timeText(each.to)} (${formatDuration(each.to - each.from)}) ${scopeText(each)}`,
  );
  return paragraphs(table, spans.length === 0 ? [] : ['Forgotten', ...spans]);
}

function scopeText({ namespace, consumer }: HistoryReport['forgotten'][number]): string {
  if (namespace !== undefined) return `of namespace ${namespace}`;
  return consumer === undefined ? 'of the cluster and all namespaces' : `of consumer ${consumer}`;
}

function timeText(epochSeconds: number): string {
  return new Date(epochSeconds * 1000).toISOString().replace(/\.\d+Z$/, 'Z');
}
