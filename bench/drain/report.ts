import type { Chart, Lane } from '../../src/core/timeline/index.ts';
import { table } from '../../test/scenarios/table.ts';
import { spanned } from './losses.ts';

export const CLIENTS = {
  service: 'through the ClusterIP',
  poller: 'polls every 10 s',
  envoy: 'Envoy, DNS every 2 s',
  keptService: 'through the ClusterIP, kept open',
  keptPoller: 'polls every 10 s, kept open',
} as const;

/** What one client saw of one run. */
export interface Cell {
  readonly disturbance: string;
  readonly strategy: string;
  /** One of {@link CLIENTS}. */
  readonly client: string;
  readonly run: number;
  /** The machine's load average over the last minute when the run ended. */
  readonly load: number;
  readonly sent: number;
  readonly lost: number;
  readonly slow: number;
  /** Seconds from the deletion of each pod that ended to SIGTERM, and until this client had dropped it. */
  readonly waits: readonly number[];
  readonly lags: readonly number[];
  /** The same of the slowest client. */
  readonly slowest: readonly number[];
  /** Seconds until the last old pod was gone. */
  readonly took: number;
  /** Why Hold released its pods, and what it waited for last. */
  readonly released: readonly string[];
  readonly verdict: string;
}

export interface Results {
  readonly machine: string;
  readonly kubernetes: string;
  readonly cells: Cell[];
  /** What each run with losses lost, in words. */
  readonly accounts: { readonly run: string; readonly account: string }[];
}

/** In which disturbances and strategies appear. */
interface Order {
  readonly disturbances: readonly string[];
  readonly strategies: readonly string[];
}

/** A table for each disturbance. */
export function tablesOf(cells: readonly Cell[], order: Order): string {
  return order.disturbances
    .map((disturbance) => `${disturbance}\n\n${clientsTable(cells, disturbance, order.strategies)}`)
    .join('\n\n');
}

/** A row for each strategy: what each client lost of what it sent. */
export function clientsTable(
  cells: readonly Cell[],
  disturbance: string,
  strategies: readonly string[],
): string {
  const clients = Object.values(CLIENTS).filter((name) => cells.some(({ client }) => client === name));
  const head = ['strategy', 'runs', ...clients, 'SIGTERM after', 'dropped after', 'wait ÷ lag', 'done after'];
  const rows = byStrategy(cells, disturbance, strategies).map(([strategy, own]) =>
    rowOf(strategy, own, clients),
  );
  return table(head, rows);
}

/** The cells of each strategy that has some. */
function byStrategy(cells: readonly Cell[], disturbance: string, strategies: readonly string[]) {
  return strategies.flatMap((strategy) => {
    const own = cells.filter((each) => each.disturbance === disturbance && each.strategy === strategy);
    return own.length === 0 ? [] : [[strategy, own] as const];
  });
}

function rowOf(strategy: string, cells: readonly Cell[], clients: readonly string[]) {
  const lost = clients.map((client) => lostOf(cells.filter((each) => each.client === client)));
  // What is the same for all clients of a run.
  const runs = cells.filter(({ client }) => client === CLIENTS.service);
  const [waits, slowest] = [runs.flatMap((each) => each.waits), runs.flatMap((each) => each.slowest)];
  const took = spanned(runs.map((each) => each.took));
  const ratio = (mean(waits) / mean(slowest)).toFixed(1);
  return [strategy, runs.length, ...lost, spanned(waits), spanned(slowest), ratio, took];
}

function lostOf(cells: readonly Cell[]): string {
  const [lost, sent] = [sum(cells.map((each) => each.lost)), sum(cells.map((each) => each.sent))];
  return `${lost.toLocaleString('en')} of ${sent.toLocaleString('en')}`;
}

/** A picture for each disturbance, with a lane for each strategy: how long SIGTERM waits, and what new connections lose. */
export function chartsOf(cells: readonly Cell[], { disturbances, strategies }: Order): readonly Chart[] {
  const fresh = cells.filter(isFresh);
  return disturbances.map((disturbance) => {
    const lanes = byStrategy(fresh, disturbance, strategies).map(([strategy, own]) => laneOf(strategy, own));
    const to = Math.max(1, ...lanes.flatMap(({ spans = [] }) => spans.map((span) => span.to)));
    const summary =
      'Seconds from the deletion to SIGTERM (mean), and until the slowest client sent nothing more to the last pod, where that lost requests on new connections.';
    return { title: disturbance, summary, from: 0, to, marks: [{ at: 0, label: 'deleted' }], lanes };
  });
}

function laneOf(label: string, cells: readonly Cell[]): Lane {
  const wait = mean(cells.flatMap((each) => each.waits));
  const longest = Math.max(...cells.flatMap((each) => each.slowest));
  const hasLost = cells.some(({ lost }) => lost > 0);
  const spans = [
    { from: 0, to: wait, tone: 'waits' as const },
    { from: wait, to: hasLost ? longest : wait, tone: 'lost' as const },
  ];
  return { label, note: `${lostOf(cells)} lost`, spans: spans.filter(({ from, to }) => to > from) };
}

/** Of a client that makes a new connection for each request. */
export const isFresh = ({ client }: Pick<Cell, 'client'>): boolean =>
  client !== CLIENTS.keptService && client !== CLIENTS.keptPoller;

const sum = (values: readonly number[]) => values.reduce((total, each) => total + each, 0);

const mean = (values: readonly number[]) => sum(values) / Math.max(1, values.length);
