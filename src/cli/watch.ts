import type { KubeConnection } from '../cluster/index.ts';
import { LingerError, printable } from '../core/api/index.ts';
import {
  ChangeSummary,
  type DiscardCounts,
  ENDPOINT_SOURCES,
  type ObservedChange,
} from '../core/lag/index.ts';
import {
  type EndpointScope,
  EndpointWatch,
  type EndpointWatchHandlers,
  namespaceExists,
  tryScope,
} from '../informers/index.ts';
import { pause } from '../timing/index.ts';
import type { Settings } from './commands.ts';
import { asked, connectAsKubectl, explained, isDenied, nameOf } from './connect.ts';
import { usageError } from './flags.ts';
import {
  FINDINGS_EXIT_CODE,
  LiveTerminal,
  type Surroundings,
  showSeconds,
  stopRequested,
} from './terminal.ts';
import {
  ChangeTable,
  changeLine,
  REASONS,
  renderSummary,
  type WatchSummary,
  yamlDocument,
} from './watch-output.ts';

interface SessionOptions {
  readonly settings: Settings<'watch'>;
  readonly terminal: LiveTerminal;
  /** undefined if JSON or YAML is printed. */
  readonly table: ChangeTable | undefined;
  readonly where: string;
  /** If several clusters are watched, the context of this one. */
  readonly context: string | undefined;
}

/** Monotonic milliseconds. */
const clock = () => performance.now();

/** The wall clock's time of an instant of {@link clock}. */
function dateOf(at: number): Date {
  return new Date(Date.now() - (clock() - at));
}

/** Shorter backlogs are due to ordinary removals. */
const BACKLOG_SECONDS = 1;

/** Often enough for readers; finding the oldest of thousands takes some time. */
const STATUS_EVERY_MS = 500;

/** A line to print, and the instant that it describes. */
interface Line {
  readonly at: number;
  readonly text: string;
}

/** The watches of one cluster: call {@link look} several times a second, and {@link finish} at the end. */
class WatchSession {
  readonly #watches: readonly EndpointWatch[];
  readonly #options: SessionOptions;
  readonly #begunAt = clock();
  readonly #summary = new ChangeSummary();
  readonly #isWanted: (about: { readonly pod?: string | undefined }) => boolean;
  readonly #announced = new Set<string>();
  readonly #begun = Promise.withResolvers<void>();
  #greeted = false;

  constructor(watches: readonly EndpointWatch[], options: SessionOptions) {
    this.#watches = watches;
    this.#options = options;
    this.#isWanted = podFilter(options.settings.pod);
  }

  get begun(): Promise<void> {
    return this.#begun.promise;
  }

  look(): readonly Line[] {
    const now = clock();
    const lines = this.#linesOf(this.#watches.flatMap(({ observer }) => observer.take(now)));
    this.#greet();
    this.#announceInterruptions();
    return lines;
  }

  /** The remaining changes. */
  rest(): readonly Line[] {
    return this.#linesOf(this.#watches.flatMap(({ observer }) => observer.takeAll()));
  }

  /** @returns whether a lag was longer than `failOnLag` */
  finish(): boolean {
    const { settings, terminal, table, context } = this.#options;
    const now = clock();
    const unresolved = this.#unresolvedAt(now);
    const { slowest } = this.#summary;
    if (!settings.quiet) {
      const text = renderSummary({
        context,
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
      if (table === undefined) terminal.note('', ...text.trimEnd().split('\n'));
      else terminal.print(`\n${text}`);
    }
    const worst = Math.max(slowest[0]?.lag ?? 0, unresolved[0]?.ageSeconds ?? 0);
    return settings.failOnLag !== undefined && worst > settings.failOnLag;
  }

  #linesOf(changes: readonly ObservedChange[]): readonly Line[] {
    const { settings, table, context } = this.#options;
    const { output, change: kinds, minLag } = settings;
    return changes.filter(this.#isWanted).flatMap((each) => {
      this.#summary.add(each);
      const { change, lag = -1, at } = each;
      if (!kinds.includes(change) || (minLag !== undefined && lag < minLag)) return [];
      const time = dateOf(at);
      if (table !== undefined) return [{ at, text: table.row(each, time, context) }];
      const line = changeLine(each, time, context);
      return [{ at, text: output === 'json' ? `${printable(JSON.stringify(line))}\n` : yamlDocument(line) }];
    });
  }

  #greet(): void {
    if (this.#greeted || !this.#watches.every(({ begun }) => begun)) return;
    this.#greeted = true;
    this.#begun.resolve();
    const { terminal, where, settings } = this.#options;
    const services = this.#watches.flatMap((watch) => [...watch.services]);
    const known = `${services.length} ${services.length === 1 ? 'Service' : 'Services'}`;
    terminal.note(`Watching ${where}: ${known}. Ctrl-C stops it and prints a summary.`);
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

  /** Announces an interruption once per instant, even if its cause becomes known only later. */
  #announce(at: number, text: string): void {
    const key = `${at} ${text.split(':')[0]}`;
    if (this.#announced.has(key)) return;
    this.#announced.add(key);
    this.#options.terminal.note(`${dateOf(at).toISOString()} ${text}`);
  }

  /** Streams named after what they deliver. */
  #interruptions() {
    const { context } = this.#options;
    return this.#watches.flatMap(({ scope: { namespace }, interruptions }) =>
      interruptions.all.map((interruption) => {
        const name = interruption.stream === 'services' ? 'Services' : interruption.stream;
        const what = namespace === undefined ? name : `${name} in ${namespace}`;
        return { ...interruption, what: context === undefined ? what : `${what} of ${context}` };
      }),
    );
  }

  /** The backlog in words; empty where there is none. */
  status(): string {
    const now = clock();
    const unresolved = this.#unresolvedAt(now);
    const [oldest] = unresolved;
    if (oldest === undefined || oldest.ageSeconds < BACKLOG_SECONDS) return '';
    const { ageSeconds, stage, namespace, name, pod } = oldest;
    const place = [this.#options.context, namespace, name].filter((each) => each !== undefined).join('/');
    return `${unresolved.length} not withdrawn yet, for up to ${showSeconds(ageSeconds)}: ${pod} in ${place} (${stage})`;
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

/** @param pattern with `*` for any characters and `?` for one; undefined: every pod, and addresses without a pod */
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
 * `linger watch`: prints endpoint changes as they happen, with the lag of those that end a removal, all measured by this
 * process alone. Ends at Ctrl-C, at SIGTERM or after --for, with a summary.
 */
export async function watch(given: Settings<'watch'>, surroundings: Surroundings): Promise<number> {
  const settings = given.allNamespaces ? { ...given, namespace: undefined } : given;
  const ending = new AbortController();
  const clusters = await clustersOf(settings, surroundings);
  // Only from here on: until there is something to sum up, Ctrl-C ends the process as usual.
  const stopped = stopRequested();
  const terminal = new LiveTerminal(surroundings, settings.quiet);
  const several = clusters.length > 1;
  const table = tableFor(settings, several, surroundings);
  if (table !== undefined) terminal.print(table.header());
  const options = { clock, random: Math.random, signal: ending.signal, initial: settings.initial };
  const watched = clusters.map(({ context, connection, scopes }) => {
    const { handlers, denied } = starting(connection, terminal);
    const watches = scopes.map((scope) => new EndpointWatch(scope, connection, handlers, options));
    const places = scopes.map((scope) => scope.namespace ?? 'all namespaces').join(', ');
    const where = `${places || 'no namespace'} of ${nameOf(connection)}`;
    const known = { settings, terminal, table, where, context: several ? context : undefined };
    const session = new WatchSession(watches, known);
    const longEnough = untilLongEnough(settings.for, session.begun, connection, ending.signal);
    return { session, denied, longEnough };
  });
  const sessions = watched.map(({ session }) => session);
  // All instants are by this process's clock, because all watches are its own.
  const print = (lines: readonly Line[]) => {
    const inOrder = lines.toSorted((a, b) => a.at - b.at);
    terminal.print(inOrder.map(({ text }) => text).join(''));
  };
  let toldAt = Number.NEGATIVE_INFINITY;
  const look = () => {
    print(sessions.flatMap((session) => session.look()));
    if (clock() - toldAt < STATUS_EVERY_MS) return;
    toldAt = clock();
    terminal.status(sessions.map((session) => session.status()).find((text) => text !== '') ?? '');
  };
  const looking = setInterval(look, LOOK_MS);
  try {
    const longEnough = Promise.all(watched.map((each) => each.longEnough));
    await Promise.race([stopped, ...watched.map(({ denied }) => denied), longEnough]);
    print(sessions.flatMap((session) => session.rest()));
    terminal.status('');
    return sessions.map((session) => session.finish()).includes(true) ? FINDINGS_EXIT_CODE : 0;
  } finally {
    clearInterval(looking);
    ending.abort();
  }
}

/** @returns undefined if JSON or YAML is printed */
function tableFor(
  { output, namespace }: Settings<'watch'>,
  contexts: boolean,
  { colour }: Surroundings,
): ChangeTable | undefined {
  if (output === 'json' || output === 'yaml') return undefined;
  const dates = output === 'wide';
  return new ChangeTable({ namespaces: dates || new Set(namespace).size !== 1, dates, contexts, colour });
}

interface WatchedCluster {
  readonly context: string | undefined;
  readonly connection: KubeConnection;
  /** What to watch in this cluster. */
  readonly scopes: readonly EndpointScope[];
}

/** @throws LingerError for a namespace that no cluster has, which would otherwise be watched forever without any output */
async function clustersOf(
  settings: Settings<'watch'>,
  surroundings: Surroundings,
): Promise<readonly WatchedCluster[]> {
  const { kubeconfig, context, namespace, service: services, source, selector } = settings;
  const connected: Omit<WatchedCluster, 'scopes'>[] = [];
  for (const each of context === undefined ? [undefined] : new Set(context)) {
    const connection = await connectAsKubectl({ kubeconfig, context: each }, surroundings);
    connected.push({ context: each, connection });
  }
  const sources = ENDPOINT_SOURCES.filter((stage) => source.includes(stage));
  const namespaces = namespace === undefined ? [undefined] : [...new Set(namespace)];
  const scopes = namespaces.map((each) => ({ namespace: each, services, sources, selector }));
  const clusters: WatchedCluster[] = [];
  for (const each of connected) {
    const there: EndpointScope[] = [];
    for (const scope of scopes) if (await isThere(scope, each.connection)) there.push(scope);
    clusters.push({ ...each, scopes: there });
  }
  const missing = scopes.find((scope) => !clusters.some((each) => each.scopes.includes(scope)));
  if (missing === undefined) return clusters;
  const names = clusters.map(({ connection }) => nameOf(connection)).join(' or ');
  throw usageError(`--namespace: expected a namespace of ${names}, got "${missing.namespace}"`);
}

async function isThere(scope: EndpointScope, connection: KubeConnection): Promise<boolean> {
  const { namespace } = scope;
  const { signal } = new AbortController();
  try {
    await asked(connection, tryScope(scope, connection, signal));
  } catch (error) {
    const narrower = namespace === undefined && error instanceof LingerError;
    if (!narrower || error.code !== 'cluster-denied') throw error;
    throw new LingerError(error.code, `${error.message}; --namespace asks for less`);
  }
  return namespace === undefined || namespaceExists(namespace, connection, signal);
}

/** Notes each cause that prevents the watches from starting once. Ends if lists are allowed but watches are not. */
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
    onHandlerError: (error) => terminal.note(...`a bug in Linger: ${error.stack}`.split('\n')),
  };
  return { handlers, denied: denied.promise };
}

/** Even the largest clusters are listed within a minute or two, and a command that is meant to end must not wait forever. */
const LONGEST_START_MS = 300_000;

/**
 * Resolves after watching for this long, not counting the time before the watches were current.
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
