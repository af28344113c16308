import type { PriorityFacts } from './facts.ts';

/** Where Kubernetes puts the controller-manager's requests unless somebody changed it (flowcontrol bootstrap). */
const LEVEL = 'workload-high';

const COLUMNS = ['PriorityLevelName', 'WaitingRequests', 'RejectedRequests', 'TimedoutRequests'] as const;
type Column = (typeof COLUMNS)[number];

/**
 * Reads two of `/debug/api_priority_and_fairness/dump_priority_levels`: a table with commas (apf_controller_debug.go).
 * Its counts are of the one API server that answered.
 * @returns undefined when it is none, or the level is not there
 */
export function priorityFacts(before: string, after: string): PriorityFacts | undefined {
  const [first, last] = [levelIn(before), levelIn(after)];
  if (first === undefined || last === undefined) return undefined;
  // Another API server may have answered the second time.
  const since = (column: Column) => Math.max(0, (last.get(column) ?? 0) - (first.get(column) ?? 0));
  return {
    level: LEVEL,
    waiting: last.get('WaitingRequests') ?? 0,
    rejected: since('RejectedRequests'),
    timedOut: since('TimedoutRequests'),
  };
}

function levelIn(table: string): ReadonlyMap<Column, number> | undefined {
  const [head = [], ...rows] = table.split('\n').map((line) => line.split(',').map((cell) => cell.trim()));
  const row = rows.find((cells) => cells[head.indexOf('PriorityLevelName')] === LEVEL);
  if (row === undefined) return undefined;
  return new Map(
    COLUMNS.map((column) => [column, Number(row[head.indexOf(column)])] as const).filter(([, value]) =>
      Number.isFinite(value),
    ),
  );
}
