import { inquire, modeLimitOf, overviewOf, unreachedInWords } from '../check/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import { count, type Overview, span } from '../core/api/index.ts';
import { NO_DOCUMENTS, namespaceView, snapshotOf } from '../core/decision/index.ts';
import { headlineOf } from '../core/judge/index.ts';
import type { StatusReport } from '../dashboard/index.ts';
import type { Settings } from './commands.ts';
import { connectToLinger } from './connect.ts';
import { sourcesFor } from './manifests.ts';
import { readCluster, readConsumerTable, stalenessOf } from './read-cluster.ts';
import { rendered } from './rendering.ts';
import { columns, paragraphs, repeated, type Surroundings, withoutProgress } from './terminal.ts';

/**
 * `linger status`: shows on one screen what a running Linger does, and with --watch, shows it again whenever that changes.
 */
export async function status(settings: Settings<'status'>, surroundings: Surroundings): Promise<number> {
  const { print, now } = surroundings;
  const { output, watch } = settings;
  const around = watch ? withoutProgress(surroundings) : surroundings;
  const { connection, lingerNamespace } = await connectToLinger(settings, around);
  let shown: string | undefined;
  await repeated(watch, surroundings, async () => {
    around.progress('asking the replicas and the cluster');
    const value = await statusOf(connection, lingerNamespace, now);
    const text = JSON.stringify(value, withoutAges);
    if (text === shown) return;
    const between = shown !== undefined && (output === 'table' || output === 'wide') ? '\n' : '';
    print(between + rendered(output, value, (wide) => renderStatus(value, now(), wide)));
    shown = text;
  });
  return 0;
}

/** Removes ages, because a different age is not a change. */
function withoutAges(member: string, value: unknown): unknown {
  return member === 'renewedSeconds' || member === 'seconds' ? undefined : value;
}

/** Continues without what it may not read, and says so. */
async function statusOf(
  connection: KubeConnection,
  lingerNamespace: string,
  now: () => number,
): Promise<StatusReport> {
  const unseen: string[] = [];
  const about = {
    connection,
    namespace: lingerNamespace,
    configuration: 'linger',
    tryIn: 'default',
    now: now(),
  };
  const [overview, modeLimit] = await inquire(about, async (inquiry) => {
    const limit = modeLimitOf(inquiry).catch((error: Error) => {
      unseen.push(`--mode-limit: ${error.message}; assuming Enforce`);
      return 'Enforce' as const;
    });
    return [await overviewOf(inquiry), await limit] as const;
  });
  const place = { lingerNamespace, policies: undefined, namespace: connection.namespace };
  const known = await readCluster(connection, place, (line) => unseen.push(line));
  const within = { namespace: 'default', policies: undefined, modeLimit };
  const snapshot = snapshotOf(await sourcesFor(NO_DOCUMENTS, within, known));
  const groups = new Map<string, StatusReport['namespaces'][number]>();
  for (const namespace of snapshot.namespaces.values()) {
    const { mode, hook, seconds, why } = namespaceView(namespace, snapshot);
    const key = JSON.stringify([mode, hook, seconds, why]);
    const { namespaces = [] } = groups.get(key) ?? {};
    groups.set(key, { mode, hook, waitSeconds: seconds, why, namespaces: [...namespaces, namespace.name] });
  }
  const table = await readConsumerTable(connection, lingerNamespace).catch(
    (error: Error) => void unseen.push(`consumers: ${error.message}`),
  );
  const stale = table && stalenessOf(table, now());
  if (stale !== undefined) unseen.push(`consumers: ${stale}`);
  const troubled = table?.consumers.filter(({ condition }) => condition.status === 'False') ?? null;
  return {
    headline: statusHeadline(overview),
    ...overview,
    namespaces: [...groups.values()].toSorted((a, b) => b.namespaces.length - a.namespaces.length),
    consumers: troubled,
    unseen: [...overview.unseen, ...unseen],
  };
}

/** The same first line as `audit` and `check` print. */
export function statusHeadline({ hooks, audit }: Pick<Overview, 'hooks' | 'audit'>): string {
  const verdicts = verdictsOf(audit);
  return hooks.headline === undefined ? verdicts : `${hooks.headline} ${verdicts}`;
}

function verdictsOf(audit: Overview['audit']): string {
  if (audit !== null) {
    const { protected: safe = 0, unprotected = 0, skipped = 0, unknown = 0 } = audit.verdicts;
    const verdicts = { protected: safe, unprotected, skipped, unknown };
    return headlineOf({ workloads: safe + unprotected + skipped + unknown, verdicts, skipped: {} });
  }
  return 'Not known which workloads may lose requests: no audit by the leader was seen (linger audit runs one).';
}

const MOST_NAMES = 5;
const MOST_FINDINGS = 5;

const NOT_SEEN = 'not seen';

/** The text of a line in the table; null: not known. `elsewhere`: the fact has no line of its own. */
type Line = ((value: StatusReport, now: number) => string | null) | 'elsewhere';

const LINES: { readonly [Fact in keyof Overview]: Line } = {
  replicas: ({ replicas }) => replicas && `${replicas.ready} of ${replicas.all} ready`,
  leader: ({ leader }) => leader && `${leader.name}, renewed ${span(leader.renewedSeconds)} ago`,
  decisions: ({ decisions }) => decisions && decisionsInWords(decisions),
  held: heldInWords,
  floor: ({ floor }, now) => floor && floorInWords(floor, now),
  hooks: 'elsewhere',
  unreached: 'elsewhere',
  audit: 'elsewhere',
  unseen: 'elsewhere',
};

function renderStatus(value: StatusReport, now: number, wide: boolean): string {
  const { audit, namespaces, consumers, unseen } = value;
  const few = (names: readonly string[]) => {
    const shown = wide ? names : names.slice(0, MOST_NAMES);
    return `${shown.join(', ')}${names.length > shown.length ? `, and ${names.length - shown.length} more` : ''}`;
  };
  const facts = Object.entries<Line>(LINES).flatMap(([name, line]) =>
    line === 'elsewhere' ? [] : [[name, line(value, now) ?? NOT_SEEN]],
  );
  const rows = namespaces.map(({ mode, hook, waitSeconds, why, namespaces: names }) => [
    mode,
    mode === 'Off' ? '-' : hook,
    mode === 'Off' ? '-' : `${waitSeconds}s`,
    mode === 'Off' ? '-' : why,
    `${names.length}: ${few(names)}`,
  ]);
  const troubles = (consumers ?? []).map(
    ({ name, condition: { reason, message, since } }) =>
      `  ${name}: ${reason}, for ${span(now - since)}: ${message}`,
  );
  const findings = (audit?.findings ?? [])
    .slice(0, wide ? undefined : MOST_FINDINGS)
    .map(({ reason, workloads, namespaces: names }) => ['', reason, String(workloads), `in ${few(names)}`]);
  return paragraphs(
    [value.headline],
    columns(facts),
    rows.length === 0 ? [] : columns([['MODE', 'HOOK', 'WAIT', 'WHY', 'NAMESPACES'], ...rows]),
    troubles.length === 0 ? [] : ['consumers in trouble (linger consumers)', ...troubles],
    findings.length === 0
      ? []
      : ['findings (linger audit)', ...columns(findings, ['left', 'left', 'right', 'left'])],
    unseen.length === 0 ? [] : ['not seen', ...unseen.map((line) => `  ${line}`)],
  );
}

function heldInWords({ held, unreached }: StatusReport): string {
  const now = held === null ? NOT_SEEN : `${count(held, 'pod')} now${held > 0 ? ': linger hold list' : ''}`;
  return unreached === null || unreached === 0
    ? now
    : `${now}; ${unreachedInWords(unreached)} (linger check)`;
}

function floorInWords(
  { bound, validUntil, changed }: NonNullable<StatusReport['floor']>,
  now: number,
): string {
  if (!bound) return 'none: while Linger is down, pods are created without a hook';
  if (validUntil === null)
    return 'bound, and cannot be used: while Linger is down, pods are created without a hook (linger check)';
  if (changed.length > 0)
    return 'not as this version installs it: while Linger is down, pods may get another wait or none (linger check)';
  const until = new Date(validUntil * 1000).toISOString();
  return validUntil < now
    ? `stands, and is out of date since ${until} (linger check)`
    : `stands, and is up to date until ${until}`;
}

/** Mentions the start: a replica that has started since has forgotten earlier decisions. */
function decisionsInWords({ outcomes, skips, started }: NonNullable<Overview['decisions']>): string {
  const since = started.map(({ replica, seconds }) =>
    seconds === null
      ? `${replica} perhaps only since its start, which it does not say`
      : `${replica} only since its start ${span(seconds)} ago`,
  );
  const when = since.length === 0 ? 'in the last hour' : `in the last hour, of ${since.join(', ')}`;
  return `${inOrder(outcomes)} ${when}${skipsOf(skips)}`;
}

const OUTCOMES = { inject: 'injected', audit: 'only audited', skip: 'skipped' };

function inOrder(outcomes: Readonly<Record<string, number>>): string {
  return Object.entries(OUTCOMES)
    .map(([outcome, word]) => `${outcomes[outcome] ?? 0} ${word}`)
    .join(', ');
}

function skipsOf(skips: Readonly<Record<string, number>>): string {
  const each = Object.entries(skips).toSorted(([, a], [, b]) => b - a);
  return each.length === 0 ? '' : ` (${each.map(([reason, times]) => `${reason} ${times}`).join(', ')})`;
}
