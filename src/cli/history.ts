import { stringify } from 'yaml';
import { formatDuration, LingerError } from '../api/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import { type Episode, LagHistory } from '../lag/index.ts';
import {
  type Forgotten,
  readConfigMap,
  readForgotten,
  readStoredHistory,
  recordForgotten,
  SHARED_NAMES,
} from '../leader/index.ts';
import type { HistorySettings, OutputFormat } from './commands.ts';
import { connectAsKubectl, nameOf } from './connect.ts';
import type { KubeEnvironment } from './flags.ts';
import { asked } from './read-cluster.ts';
import { columns, showSeconds, type Terminal } from './terminal.ts';

export interface HistoryContext extends Terminal {
  readonly kube: KubeEnvironment;
  /** Whether a person could answer the question of a credential plugin. */
  readonly interactive: boolean;
  /** Seconds since the epoch. */
  readonly now: () => number;
}

/** For all requests together. */
const ANSWER_WITHIN_MS = 60_000;
const REQUEST_MS = 10_000;

/**
 * `linger history`: the episodes in what a running Linger has measured. `linger history forget`: takes a span out.
 * @throws LingerError, ConnectionError
 */
export async function history(settings: HistorySettings, context: HistoryContext): Promise<number> {
  const [action = 'list', ...rest] = settings.operands;
  if (rest.length > 0 || (action !== 'list' && action !== 'forget'))
    throw usage(`expected list or forget, got "${settings.operands.join(' ')}"`);
  const { kube, interactive, now } = context;
  const forgotten = action === 'forget' ? forgottenOf(settings, now()) : undefined;
  const connection = await connectAsKubectl(settings, kube, interactive);
  // A credential plugin's own words, where it gives none.
  await connection.credentials();
  const call = { signal: AbortSignal.timeout(ANSWER_WITHIN_MS), withinMs: REQUEST_MS };
  if (forgotten === undefined) await list(connection, call, settings, context);
  else await forget(connection, call, settings, context, forgotten);
  return 0;
}

type Call = Parameters<typeof readConfigMap>[3];

function usage(problem: string): LingerError {
  return new LingerError('settings-invalid', problem);
}

/** @throws LingerError `settings-invalid` */
function forgottenOf({ from, to, namespace, consumer }: HistorySettings, now: number): Forgotten {
  if (from === undefined || to === undefined) throw usage('history forget: expected --from and --to');
  if (from >= to) throw usage('--to: expected a time after --from');
  if (to > now)
    throw usage('--to: expected a time in the past: what is yet to be measured cannot be forgotten');
  if (namespace !== undefined && consumer !== undefined)
    throw usage('expected --namespace or --consumer, got both');
  return {
    from,
    to,
    ...(namespace === undefined ? {} : { namespace }),
    ...(consumer === undefined ? {} : { consumer }),
  };
}

async function forget(
  connection: KubeConnection,
  call: Call,
  { lingerNamespace }: HistorySettings,
  { now, print }: HistoryContext,
  forgotten: Forgotten,
): Promise<void> {
  await asked(connection, recordForgotten(connection, lingerNamespace, forgotten, now(), call));
  const span = `from ${timeText(forgotten.from)} to ${timeText(forgotten.to)}`;
  print(
    `What was measured ${scopeText(forgotten)} ${span} is taken out of the history: new pods get the waits without it within a minute.\n`,
  );
}

/** What `linger history` prints. */
export interface StoredEpisodes {
  readonly episodes: readonly (Episode & { readonly scope: string })[];
  readonly forgotten: readonly Forgotten[];
}

async function list(
  connection: KubeConnection,
  call: Call,
  { lingerNamespace, output }: HistorySettings,
  { now, print, warn }: HistoryContext,
): Promise<void> {
  const at = now();
  const scopes = new Map<string, LagHistory>();
  const restorePart = (json: unknown) => {
    const part = LagHistory.readPart(json);
    if (part === undefined) return false;
    scopes.set(part.key, part.history);
    return true;
  };
  const stored = await asked(
    connection,
    readStoredHistory(connection, lingerNamespace, { restorePart }, at, call),
  );
  if (stored.refused !== undefined) warn(`${stored.refused.problem}\n`);
  if (stored.stamp === undefined) {
    throw new LingerError(
      'not-published',
      `${nameOf(connection)}: there is no history in namespace ${lingerNamespace}; does Linger run there, and lead? --linger-namespace says where`,
    );
  }
  const planned = await asked(
    connection,
    readConfigMap(connection, lingerNamespace, SHARED_NAMES.planned, call),
  );
  const forgotten = readForgotten(planned);
  const episodes = [...scopes].flatMap(([scope, lags]) => {
    // The leader may not have written the history since.
    for (const each of forgotten) if (isOf(scope, each)) lags.forget(each.from, each.to);
    return lags.episodes(at, 0).map((episode) => ({ scope, ...episode }));
  });
  print(RENDERERS[output]({ episodes, forgotten }));
}

function isOf(scope: string, { namespace, consumer }: Forgotten): boolean {
  if (namespace !== undefined) return scope === `namespace/${namespace}`;
  if (consumer !== undefined) return scope.startsWith(`consumer/${consumer}/`);
  return !scope.startsWith('consumer/');
}

const RENDERERS: Readonly<Record<OutputFormat, (stored: StoredEpisodes) => string>> = {
  table: renderEpisodes,
  wide: renderEpisodes,
  json: (stored) => `${JSON.stringify(stored, undefined, 2)}\n`,
  yaml: (stored) => stringify(stored),
};

const HEADER = ['SCOPE', 'FROM', 'TO', 'REMOVALS', 'SHARE', 'P99', 'P99 WITHOUT'];
const ALIGNMENT = ['left', 'left', 'left', 'right', 'right', 'right', 'right'] as const;

export function renderEpisodes({ episodes, forgotten }: StoredEpisodes): string {
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
      ? ['No episode: no short span lifts the waits.']
      : columns([HEADER, ...rows], ALIGNMENT);
  const spans = forgotten.map(
    (each) =>
      `  ${timeText(each.from)} to ${timeText(each.to)} (${formatDuration(each.to - each.from)}) ${scopeText(each)}`,
  );
  return `${[...table, ...(spans.length === 0 ? [] : ['', 'Forgotten', ...spans])].join('\n')}\n`;
}

function scopeText({ namespace, consumer }: Pick<Forgotten, 'namespace' | 'consumer'>): string {
  if (namespace !== undefined) return `of namespace ${namespace}`;
  return consumer === undefined ? 'of the cluster and all namespaces' : `of consumer ${consumer}`;
}

function timeText(epochSeconds: number): string {
  return new Date(epochSeconds * 1000).toISOString().replace(/\.\d+Z$/, 'Z');
}
