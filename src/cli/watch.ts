import { LingerError, printable } from '../api/index.ts';
import type { KubeConnection } from '../cluster/index.ts';
import {
  type EndpointScope,
  EndpointWatch,
  type EndpointWatchHandlers,
  namespaceExists,
  tryScope,
} from '../informers/index.ts';
import {
  CHANGES,
  type ChangeKind,
  ChangeSummary,
  DISCARDS,
  type DiscardCounts,
  type DiscardReason,
  LAG_STAGES,
  type ObservedChange,
  type SourceSummary,
  type UnresolvedRemoval,
} from '../lag/index.ts';
import { pause } from '../timing/index.ts';
import type { Settings } from './commands.ts';
import { asked, connectAsKubectl, explained, isDenied, nameOf } from './connect.ts';
import { usageError } from './flags.ts';
import {
  columns,
  FINDINGS_EXIT_CODE,
  LiveTerminal,
  paragraphs,
  type Surroundings,
  showSeconds,
  stopRequested,
} from './terminal.ts';

/** A change as a line of `linger watch --output json`. Null: a slice without a Service, an address without a pod, no lag. */
export function changeLine(change: ObservedChange, time: Date) {
  const { namespace, service, pod = null, ip, source, lag } = change;
  return {
    time: time.toISOString(),
    namespace,
    service: service === '' ? null : service,
    pod,
    ip,
    change: change.change,
    source,
    // Watches differ by milliseconds, so finer digits mean nothing.
    lagSeconds: lag === undefined ? null : Math.round(lag * 1000) / 1000,
  };
}

/** JSON's values are YAML's. */
function yamlDocument(line: object): string {
  const members = Object.entries(line).map(([key, value]) => `${key}: ${printable(JSON.stringify(value))}\n`);
  return `---\n${members.join('')}`;
}

/** Whether to print namespaces (not where there is only one), dates and colours. */
interface ChangeTableOptions {
  readonly namespaces: boolean;
  readonly dates?: boolean;
  readonly colour: boolean;
}

/** SGR codes; a terminal's own palette decides what they look like. */
const COLOURS: Readonly<Record<ChangeKind, number>> = {
  added: 36,
  ready: 32,
  notReady: 33,
  terminating: 33,
  removed: 31,
};

/** The initial widths of columns; some names of Services and pods are longer. */
const WIDTHS = [
  '≤12:00:00.000'.length,
  Math.max(...CHANGES.map((change) => change.length)),
  '59m59s'.length + 1,
  Math.max(...LAG_STAGES.map((source) => source.length)),
  'shop/catalog'.length,
  'web-7d4b9c6f5d-x2v7q'.length,
  0,
] as const;
const RIGHT_ALIGNED: ReadonlySet<number> = new Set([0, 2]);
const CHANGE_COLUMN = 1;

/**
 * The rows of a growing table: columns are as wide as needed so far, and names are never cut, so that they can be copied.
 * With ordinary names a row has 100 characters.
 */
export class ChangeTable {
  readonly #options: ChangeTableOptions;
  readonly #widths: number[] = [...WIDTHS];

  constructor(options: ChangeTableOptions) {
    this.#options = options;
  }

  header(): string {
    return this.#row(['TIME (UTC)', 'CHANGE', 'LAG', 'SOURCE', 'SERVICE', 'POD', 'IP']);
  }

  /** `≤` before the time means that it happened at some earlier instant. */
  row(change: ObservedChange, time: Date): string {
    const { seen, lag, source, namespace, pod = '-', ip } = change;
    const service = change.service || '-';
    const from = this.#options.dates === true ? 0 : '2026-01-01T'.length;
    const clock = time.toISOString().slice(from, -1);
    const cells = [
      seen === 'live' ? clock : `≤${clock}`,
      change.change,
      lag === undefined ? '-' : showSeconds(lag),
      source,
      this.#options.namespaces ? `${namespace}/${service}` : service,
      pod,
      ip,
    ];
    return this.#row(cells, this.#options.colour ? COLOURS[change.change] : undefined);
  }

  #row(cells: readonly string[], colour?: number): string {
    const padded = cells.map(printable).map((cell, column) => {
      const width = Math.max(this.#widths[column] ?? 0, cell.length);
      this.#widths[column] = column === cells.length - 1 ? 0 : width;
      const text = RIGHT_ALIGNED.has(column) ? cell.padStart(width) : cell.padEnd(width);
      return column === CHANGE_COLUMN && colour !== undefined ? `\u001b[${colour}m${text}\u001b[0m` : text;
    });
    return `${padded.join('  ')}\n`;
  }
}

export interface WatchSummary extends Pick<ChangeSummary, 'slowest'> {
  readonly seconds: number;
  readonly sources: readonly SourceSummary[];
  /** The removals that have not ended yet; the oldest first. */
  readonly unresolved: readonly (Pick<UnresolvedRemoval, 'stage' | 'namespace' | 'name' | 'pod'> & {
    readonly ageSeconds: number;
  })[];
  readonly discarded: DiscardCounts;
  /** When a watch (`pods`, or `pods in shop`) delivered nothing, or late. */
  readonly gaps: readonly {
    readonly what: string;
    readonly since: Date;
    readonly seconds: number;
    readonly goesOn: boolean;
    readonly cause: string | undefined;
  }[];
}

/** A node failure leaves hundreds; their number is shown anyway. */
const MOST_LISTED = 10;

/** The summary at the end of `linger watch`. */
export function renderSummary(summary: WatchSummary): string {
  const { seconds, sources, slowest, unresolved, discarded, gaps } = summary;
  const lags = sources.map(({ source, samples, lag }) => [
    `  ${source}`,
    String(samples),
    ...(lag === undefined ? ['-', '-', '-', '-'] : [lag.p50, lag.p90, lag.p99, lag.max].map(showSeconds)),
  ]);
  const changes = sources.map((source) => [
    `  ${source.source}`,
    ...CHANGES.map((change) => String(source.changes[change])),
  ]);
  const discards = REASONS.filter((reason) => discarded[reason] > 0);
  return paragraphs(
    [`Watched for ${showSeconds(seconds)}.`],
    columns([['Lag of removals', 'samples', 'p50', 'p90', 'p99', 'max'], ...lags], NUMBERS),
    columns([['Changes', ...CHANGES], ...changes], NUMBERS),
    section('Slowest removals', slowest, ({ lag, source, namespace, service, pod = '-' }) => [
      showSeconds(lag),
      source,
      `${namespace}/${service || '-'}`,
      pod,
    ]),
    section(
      'Not withdrawn yet, and for how long',
      unresolved,
      ({ ageSeconds, stage, namespace, name, pod }) => [
        showSeconds(ageSeconds),
        stage,
        `${namespace}/${name}`,
        pod,
      ],
    ),
    section('Removals without a lag, of everything watched', discards, (reason) => [
      String(discarded[reason]),
      reason,
      DISCARDS[reason],
    ]),
    section('Interruptions: what happened in them has no lag', gaps, (gap) => [
      `${showSeconds(gap.seconds)}${gap.goesOn ? ' so far' : ''}`,
      gap.since.toISOString(),
      gap.what,
      gap.cause ?? 'nothing was heard',
    ]),
  );
}

const REASONS = Object.keys(DISCARDS) as DiscardReason[];
/** Alignments for the columns of either table. */
const NUMBERS = ['left', ...Array<'right'>(6).fill('right')] as const;

function section<T>(title: string, items: readonly T[], cellsOf: (item: T) => readonly string[]) {
  if (items.length === 0) return [];
  const lines = columns(items.slice(0, MOST_LISTED).map(cellsOf), ['right']).map((line) => `  ${line}`);
  const rest = items.length - lines.length;
  return [title, ...lines, ...(rest > 0 ? [`  and ${rest} more`] : [])];
}

interface SessionOptions {
  readonly settings: Settings<'watch'>;
  readonly terminal: LiveTerminal;
  readonly colour: boolean;
  readonly where: string;
}

/** Monotonic milliseconds. */
const clock = () => performance.now();

/** The wall clock's time of an instant of {@link clock}. */
function dateOf(at: number): Date {
  return new Date(Date.now() - (clock() - at));
}

/** Shorter backlogs are ordinary removals. */
const BACKLOG_SECONDS = 1;

/** Often enough for readers, and finding the oldest of thousands costs something. */
const STATUS_EVERY_MS = 500;

/** Prints what the watches deliver: call {@link look} several times a second, and {@link finish} at the end. */
class WatchSession {
  readonly #watches: readonly EndpointWatch[];
  readonly #options: SessionOptions;
  readonly #begunAt = clock();
  readonly #summary = new ChangeSummary();
  /** undefined where JSON or YAML is printed. */
  readonly #table: ChangeTable | undefined;
  readonly #isWanted: (about: { readonly pod?: string | undefined }) => boolean;
  readonly #announced = new Set<string>();
  readonly #begun = Promise.withResolvers<void>();
  #greeted = false;
  #statusMadeAt = Number.NEGATIVE_INFINITY;

  constructor(watches: readonly EndpointWatch[], options: SessionOptions) {
    this.#watches = watches;
    this.#options = options;
    const { output, namespace, pod } = options.settings;
    this.#isWanted = podFilter(pod);
    if (output === 'json' || output === 'yaml') return;
    const dates = output === 'wide';
    const namespaces = dates || namespace?.length !== 1;
    this.#table = new ChangeTable({ namespaces, dates, colour: options.colour });
    options.terminal.print(this.#table.header());
  }

  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  look(): void {
    const now = clock();
    this.#printAll(this.#watches.flatMap(({ observer }) => observer.take(now)));
    this.#greet();
    this.#announceInterruptions();
    if (now - this.#statusMadeAt < STATUS_EVERY_MS) return;
    this.#statusMadeAt = now;
    this.#options.terminal.status(this.#statusAt(now));
  }

  /** @returns whether a lag was longer than `failOnLag` */
  finish(): boolean {
    const { settings, terminal } = this.#options;
    this.#printAll(this.#watches.flatMap(({ observer }) => observer.takeAll()));
    terminal.status('');
    const now = clock();
    const unresolved = this.#unresolvedAt(now);
    const { slowest } = this.#summary;
    if (!settings.quiet) {
      const text = renderSummary({
        seconds: (now - this.#begunAt) / 1000,
        sources: this.#summary.sources(settings.source),
        slowest,
        unresolved,
        discarded: this.#discarded(),
        gaps: this.#interruptions().map(({ what, since, until, cause }) => ({
          what,
          since: dateOf(since),
          seconds: ((until ?? now) - since) / 1000,
          goesOn: until === undefined,
          cause,
        })),
      });
      // Programs read one JSON object per line, and nothing else.
      if (this.#table === undefined) terminal.note('', ...text.trimEnd().split('\n'));
      else terminal.print(`\n${text}`);
    }
    const worst = Math.max(slowest[0]?.lag ?? 0, unresolved[0]?.ageSeconds ?? 0);
    return settings.failOnLag !== undefined && worst > settings.failOnLag;
  }

  #printAll(changes: readonly ObservedChange[]): void {
    const { settings, terminal } = this.#options;
    const { output, change: kinds, minLag } = settings;
    const lines = changes.filter(this.#isWanted).map((each) => {
      this.#summary.add(each);
      const { change, lag = -1 } = each;
      if (!kinds.includes(change) || (minLag !== undefined && lag < minLag)) return '';
      const time = dateOf(each.at);
      if (this.#table !== undefined) return this.#table.row(each, time);
      const line = changeLine(each, time);
      return output === 'json' ? `${printable(JSON.stringify(line))}\n` : yamlDocument(line);
    });
    terminal.print(lines.join(''));
  }

  #greet(): void {
    if (this.#greeted || !this.#watches.every(({ begun }) => begun)) return;
    this.#greeted = true;
    this.#begun.resolve();
    const { terminal, where, settings } = this.#options;
    const services = this.#watches.flatMap((watch) => [...watch.services]);
    const known = `${services.length} ${services.length === 1 ? 'Service' : 'Services'}`;
    terminal.note(`Watching ${where}: ${known}. Ctrl-C ends it with a summary.`);
    for (const name of settings.service ?? [])
      if (!services.some((each) => each.endsWith(`/${name}`)))
        terminal.note(`There is no Service ${name} yet.`);
    if (settings.selector !== undefined && !this.#watches.some(({ selection }) => selection?.any))
      terminal.note('No pod has the labels of --selector yet.');
  }

  #announceInterruptions(): void {
    for (const { what, since, until, cause } of this.#interruptions()) {
      this.#announce(since, `${what}: interrupted${cause === undefined ? '' : `: ${cause}`}`);
      if (until !== undefined)
        this.#announce(until, `${what}: current again after ${showSeconds((until - since) / 1000)}`);
    }
  }

  /** Announced once per instant: the cause may become known later. */
  #announce(at: number, text: string): void {
    const key = `${at} ${text.split(':')[0]}`;
    if (this.#announced.has(key)) return;
    this.#announced.add(key);
    this.#options.terminal.note(`${dateOf(at).toISOString()} ${text}`);
  }

  /** Streams are named after what they deliver. */
  #interruptions() {
    return this.#watches.flatMap(({ scope: { namespace }, interruptions }) =>
      interruptions.all.map((interruption) => {
        const name = interruption.stream === 'services' ? 'Services' : interruption.stream;
        return { ...interruption, what: namespace === undefined ? name : `${name} in ${namespace}` };
      }),
    );
  }

  #statusAt(now: number): string {
    const unresolved = this.#unresolvedAt(now);
    const [oldest] = unresolved;
    if (oldest === undefined || oldest.ageSeconds < BACKLOG_SECONDS) return '';
    const { ageSeconds, stage, namespace, name, pod } = oldest;
    return `${unresolved.length} not withdrawn yet, for up to ${showSeconds(ageSeconds)}: ${pod} in ${namespace}/${name} (${stage})`;
  }

  /** Oldest first. */
  #unresolvedAt(now: number): WatchSummary['unresolved'] {
    return this.#watches
      .flatMap(({ observer }) => [...observer.unresolved()])
      .filter(this.#isWanted)
      .map((removal) => ({ ...removal, ageSeconds: (now - removal.since) / 1000 }))
      .toSorted((a, b) => b.ageSeconds - a.ageSeconds);
  }

  #discarded(): DiscardCounts {
    const all = this.#watches.map(({ observer }) => observer.discarded);
    const sums = REASONS.map((reason) => [reason, all.reduce((sum, counts) => sum + counts[reason], 0)]);
    return Object.fromEntries(sums) as DiscardCounts;
  }
}

/** @param pattern with `*` for any characters and `?` for one; undefined: every pod, and none */
function podFilter(pattern: string | undefined): (about: { readonly pod?: string | undefined }) => boolean {
  if (pattern === undefined) return () => true;
  const source = pattern
    .replace(/[\\^$.|+()[\]{}]/g, '\\$&')
    .replaceAll('*', '.*')
    .replaceAll('?', '.');
  const expression = new RegExp(`^${source}$`);
  return ({ pod }) => pod !== undefined && expression.test(pod);
}

/** Often enough for lines to seem immediate. */
const LOOK_MS = 50;

/**
 * `linger watch`: endpoint changes as they happen, with the lag of those that end a removal, measured by this process
 * alone. Ends at Ctrl-C, at SIGTERM or after --for, with a summary.
 */
export async function watch(given: Settings<'watch'>, surroundings: Surroundings): Promise<number> {
  const settings = given.allNamespaces ? { ...given, namespace: undefined } : given;
  const { namespace, service: services, source, selector, quiet, initial } = settings;
  const ending = new AbortController();
  const stopped = stopRequested();
  const connection = await connectAsKubectl(settings, surroundings);
  const sources = LAG_STAGES.filter((stage) => source.includes(stage));
  const namespaces = namespace === undefined ? [undefined] : [...new Set(namespace)];
  const scopes = namespaces.map((each) => ({ namespace: each, services, sources, selector }));
  for (const scope of scopes) await checkScope(scope, connection);
  const terminal = new LiveTerminal(surroundings, quiet);
  const { handlers, denied } = starting(connection, terminal);
  const options = { clock, random: Math.random, signal: ending.signal, initial };
  const watches = scopes.map((scope) => new EndpointWatch(scope, connection, handlers, options));
  const where = `${namespace?.join(', ') ?? 'all namespaces'} of ${nameOf(connection)}`;
  const session = new WatchSession(watches, { settings, terminal, where, colour: surroundings.colour });
  const looking = setInterval(() => session.look(), LOOK_MS);
  try {
    const longEnough = untilLongEnough(settings.for, session.begun, connection, ending.signal);
    await Promise.race([stopped, denied, longEnough]);
    return session.finish() ? FINDINGS_EXIT_CODE : 0;
  } finally {
    clearInterval(looking);
    ending.abort();
  }
}

/** A mistyped namespace would be watched forever without any output. */
async function checkScope(scope: EndpointScope, connection: KubeConnection): Promise<void> {
  const { namespace } = scope;
  const { signal } = new AbortController();
  try {
    await asked(connection, tryScope(scope, connection, signal));
  } catch (error) {
    const narrower = namespace === undefined && error instanceof LingerError;
    if (!narrower || error.code !== 'cluster-denied') throw error;
    throw new LingerError(error.code, `${error.message}; --namespace asks for less`);
  }
  if (namespace === undefined || (await namespaceExists(namespace, connection, signal))) return;
  const problem = `--namespace: expected a namespace of ${nameOf(connection)}, got "${namespace}"`;
  throw usageError(problem);
}

/** Notes each cause that keeps the watches from starting once; ends where lists are allowed but watches are not. */
function starting(connection: KubeConnection, terminal: LiveTerminal) {
  const denied = Promise.withResolvers<never>();
  const noted = new Set<string>();
  const handlers: EndpointWatchHandlers = {
    onStartFailure: (stream, failure) => {
      if (isDenied(failure.reason)) denied.reject(explained(failure, connection));
      const text = `${stream}: ${failure.reason}: ${failure.message}`;
      if (!noted.has(text)) terminal.note(text);
      noted.add(text);
    },
    onHandlerError: (error) => terminal.note(...`a mistake in Linger itself: ${error.stack}`.split('\n')),
  };
  return { handlers, denied: denied.promise };
}

/** The largest clusters are listed within a minute or two; a command with an end must not wait forever. */
const LONGEST_START_MS = 300_000;

/**
 * Resolves after watching for this long; the time before the watches were current does not count.
 * @throws LingerError `cluster-unreachable`
 */
async function untilLongEnough(
  seconds: number | undefined,
  begun: Promise<void>,
  connection: KubeConnection,
  signal: AbortSignal,
): Promise<void> {
  if (seconds === undefined) return new Promise(() => undefined);
  const late = pause(LONGEST_START_MS, signal).then(() => 'late');
  if ((await Promise.race([begun, late])) === 'late') {
    throw new LingerError(
      'cluster-unreachable',
      `${nameOf(connection)}: watches did not start within ${LONGEST_START_MS / 1000} s`,
    );
  }
  await pause(seconds * 1000, signal);
}
