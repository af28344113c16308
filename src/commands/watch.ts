import { LingerError } from '../core/catalog/errors.ts';
import { LAG_STAGES } from '../core/lag/sample.ts';
import type { KubeConnection } from '../kube/connection.ts';
import type { WatchSettings } from '../settings/commands.ts';
import type { KubeEnvironment } from '../settings/kube-environment.ts';
import { type EndpointScope, namespaceExists, tryScope } from '../sources/kube/endpoint-scope.ts';
import { EndpointWatch, type EndpointWatchHandlers } from '../sources/kube/endpoint-watch.ts';
import { pause } from '../sources/pause.ts';
import { connectAsKubectl, explained, first, isDenied, nameOf } from './as-kubectl.ts';
import { LiveTerminal } from './live-terminal.ts';
import type { Terminal } from './terminal.ts';
import { WatchSession } from './watch-session.ts';

export interface WatchContext extends Terminal {
  readonly kube: KubeEnvironment;
  readonly terminals: {
    /** Whether standard input and output are terminals. */
    readonly input: boolean;
    readonly output: boolean;
    /** How wide standard error is; undefined: it is none. */
    readonly errorColumns: () => number | undefined;
  };
  /** Whether colours are welcome. */
  readonly colour: boolean;
}

const FINDINGS_EXIT_CODE = 3;

/**
 * `linger watch`: endpoint changes as they happen, with the lag of those that end a removal, measured by this process
 * alone. Ends at Ctrl-C, at SIGTERM or after --for, with a summary.
 * @returns the exit code: 3 when a removal took longer than --fail-on-lag
 * @throws ConnectionError, LingerError
 */
export async function watch(settings: WatchSettings, context: WatchContext): Promise<number> {
  const ending = new AbortController();
  const stop = untilStopped();
  const { terminals } = context;
  const connection = await connectAsKubectl(settings, context.kube, terminals.input);
  const scopes = scopesOf(settings);
  await tryAll(scopes, connection);
  const terminal = new LiveTerminal(context, { columns: terminals.errorColumns, quiet: settings.quiet });
  const clock = () => performance.now();
  const { handlers, denied } = starting(connection, terminal);
  const options = { clock, random: Math.random, signal: ending.signal, initial: settings.initial };
  const watches = scopes.map((scope) => new EndpointWatch(scope, connection, handlers, options));
  const session = new WatchSession(watches, {
    settings,
    terminal,
    clock,
    date: () => new Date(),
    colour: context.colour && terminals.output,
    where: `${settings.namespace?.join(', ') ?? 'all namespaces'} of ${nameOf(connection)}`,
  });
  // Keeps the process alive, too: what a list-watch waits for does not.
  const looking = setInterval(() => session.look(), LOOK_MS);
  try {
    const longEnough = untilLongEnough(settings.for, session.begun, connection, ending.signal);
    await Promise.race([stop, denied, longEnough]);
    return session.finish() ? FINDINGS_EXIT_CODE : 0;
  } finally {
    clearInterval(looking);
    ending.abort();
  }
}

function scopesOf({
  namespace,
  service: services,
  source,
  selector,
}: WatchSettings): readonly EndpointScope[] {
  const namespaces = namespace === undefined ? [undefined] : [...new Set(namespace)];
  const sources = LAG_STAGES.filter((stage) => source.includes(stage));
  return namespaces.map((each) => ({ namespace: each, services, sources, selector }));
}

/** Whoever watches the wrong thing would see nothing for ever. */
async function tryAll(scopes: readonly EndpointScope[], connection: KubeConnection): Promise<void> {
  const { signal } = new AbortController();
  for (const scope of scopes) {
    try {
      await first(connection, () => tryScope(scope, connection, signal));
    } catch (error) {
      const narrower = scope.namespace === undefined && error instanceof LingerError;
      if (!narrower || error.code !== 'cluster-denied') throw error;
      throw new LingerError(error.code, `${error.message}; --namespace asks for less`);
    }
    const { namespace } = scope;
    if (namespace === undefined || (await namespaceExists(namespace, connection, signal))) continue;
    throw new LingerError(
      'settings-invalid',
      `--namespace: expected a namespace of ${nameOf(connection)}, got "${namespace}"`,
    );
  }
}

/** What keeps the watches from beginning is told, once each; that they are not allowed, although lists are, ends it. */
function starting(
  connection: KubeConnection,
  terminal: LiveTerminal,
): { readonly handlers: EndpointWatchHandlers; readonly denied: Promise<never> } {
  const denied = Promise.withResolvers<never>();
  const told = new Set<string>();
  const handlers: EndpointWatchHandlers = {
    onStartFailure: (stream, failure) => {
      if (isDenied(failure.reason)) denied.reject(explained(failure, connection));
      const text = `${stream}: ${failure.reason}: ${failure.message}`;
      if (!told.has(text)) terminal.note(text);
      told.add(text);
    },
    onHandlerError: (error) => terminal.note(`a mistake in Linger itself: ${error.stack}`),
  };
  return { handlers, denied: denied.promise };
}

/** Often enough that lines seem to come at once. */
const LOOK_MS = 50;

/** Resolves at Ctrl-C or SIGTERM; a second Ctrl-C then ends the process as usual. */
function untilStopped(): Promise<void> {
  return new Promise((resolve) => {
    const stop = () => {
      process.off('SIGINT', stop).off('SIGTERM', stop);
      resolve();
    };
    process.on('SIGINT', stop).on('SIGTERM', stop);
  });
}

/** The largest clusters are listed within a minute or two; who has asked for an end must not wait for ever. */
const LONGEST_START_MS = 300_000;

/**
 * Resolves when it has watched for so long; the time before the watches were current shows nothing, and does not count.
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
      `${nameOf(connection)}: not everything could be watched within ${LONGEST_START_MS / 1000} s`,
    );
  }
  await pause(seconds * 1000, signal);
}
