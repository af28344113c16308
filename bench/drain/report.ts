import type { Chart, Lane } from '../../src/timeline/index.ts';
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
  /** Of {@link CLIENTS}. */
  readonly client: string;
  readonly run: number;
  /** Of the machine, over the last minute, when the run ended. */
  readonly load: number;
  readonly sent: number;
  readonly lost: number;
  readonly slow: number;
  /** Of each pod that ended, seconds from its deletion to SIGTERM, and until this client had dropped it. */
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
  /** Of the runs that lost something. */
  readonly accounts: { readonly run: string; readonly account: string }[];
}

/** In which disturbances and strategies appear. */
interface Order {
  readonly disturbances: readonly string[];
  readonly strategies: readonly string[];
}

/** A table for each disturbance, with a row for each strategy: what each client lost of what it sent. */
export function tablesOf(cells: readonly Cell[], { disturbances, strategies }: Order): string {
  const clients = Object.values(CLIENTS).filter((name) => cells.some(({ client }) => client === name));
  const head = ['strategy', 'runs', ...clients, 'SIGTERM after', 'dropped after', 'wait ÷ lag', 'done after'];
  const tables = disturbances.map((disturbance) => {
    const rows = strategies.flatMap((strategy) => {
      const own = cells.filter((each) => each.disturbance === disturbance && each.strategy === strategy);
      return own.length === 0 ? [] : [rowOf(strategy, own, clients)];
    });
    return `${disturbance}\n\n${table(head, rows)}`;
  });
  return tables.join('\n\n');
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
  return `${lost} of ${sent.toLocaleString('en')}`;
}

/** A picture for each disturbance, a lane for each strategy and client: how long SIGTERM waits, and for how long the client goes on sending after it. */
export function chartsOf(cells: readonly Cell[], { disturbances, strategies }: Order): readonly Chart[] {
  const groups = Map.groupBy(cells, keyOf);
  return disturbances.map((disturbance) => {
    const lanes = strategies.flatMap((strategy) =>
      Object.values(CLIENTS).flatMap((client): Lane[] => {
        const own = groups.get(keyOf({ disturbance, strategy, client }));
        return own === undefined ? [] : [laneOf(`${strategy}, ${client}`, own)];
      }),
    );
    const to = Math.max(1, ...lanes.flatMap(({ spans = [] }) => spans.map((span) => span.to)));
    const summary = 'Mean seconds from the deletion: SIGTERM held back, and still sent to after it.';
    return { title: disturbance, summary, from: 0, to, marks: [{ at: 0, label: 'deleted' }], lanes };
  });
}

function laneOf(label: string, cells: readonly Cell[]): Lane {
  const [wait, lag] = [mean(cells.flatMap((each) => each.waits)), mean(cells.flatMap((each) => each.lags))];
  const spans = [
    { from: 0, to: wait, tone: 'waits' as const },
    { from: wait, to: lag, tone: 'lost' as const },
  ];
  return { label, note: `${lostOf(cells)} lost`, spans: spans.filter(({ from, to }) => to > from) };
}

const keyOf = ({ disturbance, strategy, client }: Pick<Cell, 'disturbance' | 'strategy' | 'client'>) =>
  [disturbance, strategy, client].join('\n');

const sum = (values: readonly number[]) => values.reduce((total, each) => total + each, 0);

const mean = (values: readonly number[]) => sum(values) / Math.max(1, values.length);
