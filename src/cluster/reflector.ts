import type { Agent, IncomingMessage } from 'node:http';
import { asError, FOREIGN_LIMITS, isRecord, isString } from '../core/api/index.ts';
import { onLoop } from '../telemetry/index.ts';
import { Backoff, pause, withSignal } from '../timing/index.ts';
import type { KubeConnection } from './connection.ts';
import { asFailure, failureOfEvent, KubeFailure } from './failure.ts';
import { listAll, NOT_RESUMABLE, pagesOf } from './list.ts';
import { malformed, readEvent } from './object-json.ts';
import { ask, newAgent, readChunks } from './request.ts';
import {
  acceptOf,
  newStats,
  type ObjectIdentity,
  type RawObject,
  type Resource,
  type ResourceEvent,
  requestPath,
  type StreamChange,
  WATCH_LIMITS,
  type WatchHandlers,
  type WatchLimits,
  type WatchStats,
} from './resource.ts';

/** etcd accepts objects of 1.5 MiB (--max-request-bytes) in protobuf; as JSON, an object is a few times as long. */
const LONGEST_LINE = FOREIGN_LIMITS.watch.bytes;

const LINE_FEED = 10;

/** Splits chunks into lines, buffering at most one incomplete line. */
export class LineReader {
  #held: Buffer[] = [];
  #heldBytes = 0;

  /**
   * The lines that this chunk completes, without terminators and without empty lines. They may be views of the chunk.
   * @throws KubeFailure `Malformed` for a line that is too long
   */
  *push(chunk: Buffer): Generator<Buffer> {
    let start = 0;
    for (let end = chunk.indexOf(LINE_FEED); end >= 0; end = chunk.indexOf(LINE_FEED, start)) {
      const part = chunk.subarray(start, end);
      start = end + 1;
      const line = this.incomplete ? this.#complete(part) : part;
      if (line.length > 0) yield line;
    }
    if (start < chunk.length) this.#hold(chunk.subarray(start));
  }

  get incomplete(): boolean {
    return this.#heldBytes > 0;
  }

  #complete(last: Buffer): Buffer {
    this.#hold(last);
    const line = Buffer.concat(this.#held, this.#heldBytes);
    this.#held = [];
    this.#heldBytes = 0;
    return line;
  }

  #hold(part: Buffer): void {
    this.#held.push(part);
    this.#heldBytes += part.length;
    if (this.#heldBytes <= LONGEST_LINE) return;
    throw new KubeFailure('Malformed', `a line of more than ${LONGEST_LINE} bytes`);
  }
}

export interface StreamPosition {
  readonly resourceVersion: string;
  readonly heardAt: number;
}

interface CurrentOptions {
  readonly position: () => StreamPosition;
  /** Returns the collection's current resourceVersion, by a consistent read. */
  readonly latest: () => Promise<string>;
  readonly limits: Pick<WatchLimits, 'currentWithinMs' | 'currentRetryMs'>;
  readonly backoff: Backoff;
  readonly clock: () => number;
  readonly signal: AbortSignal;
}

/** Used if the server's versions are not numbers: then only silence shows that nothing is outstanding. */
const BEYOND_REACH = 2n ** 128n;

const LOOK_MS = 25;

/**
 * Waits until a newly opened watch has delivered its backlog and delivers events as they happen. The protocol does not mark
 * that point, so the server is asked for the latest resourceVersion: a watch that reaches it within `currentWithinMs` of the
 * answer is behind by no more than that plus the time of one request. If nothing changes, that version never arrives; then
 * an equally long silence shows that nothing is outstanding. resourceVersions may be compared as numbers since KEP-5504, and
 * always could with etcd.
 * @returns false once the signal has aborted, `rolledBack` if the server's history is older than what the watch has seen
 * (etcd was restored), because such a watch would stay silent until the numbers exceed that again
 */
export async function untilCurrent(options: CurrentOptions): Promise<boolean | 'rolledBack'> {
  const { latest, limits, backoff, signal, position } = options;
  while (!signal.aborted) {
    const seen = numberOf(position().resourceVersion);
    let target: bigint;
    try {
      target = numberOf(await latest()) ?? BEYOND_REACH;
    } catch (thrown) {
      // A failed request proves nothing, and neither does the silence of an unhealthy server.
      await pause(backoff.next(asFailure(thrown).retryAfterMs), signal);
      continue;
    }
    backoff.reset();
    if (signal.aborted) break;
    if (seen !== undefined && target < seen) return 'rolledBack';
    if (await reaches(target, options)) return true;
    await pause(limits.currentRetryMs, signal);
  }
  return false;
}

async function reaches(
  target: bigint,
  { position, limits, clock, signal }: CurrentOptions,
): Promise<boolean> {
  const { currentWithinMs } = limits;
  const answeredAt = clock();
  for (;;) {
    const { resourceVersion, heardAt } = position();
    const now = clock();
    if ((numberOf(resourceVersion) ?? -1n) >= target) return now - answeredAt <= currentWithinMs;
    if (now - Math.max(answeredAt, heardAt) >= currentWithinMs) return true;
    if (!(await pause(LOOK_MS, signal))) return false;
  }
}

function numberOf(resourceVersion: string): bigint | undefined {
  return /^\d+$/.test(resourceVersion) ? BigInt(resourceVersion) : undefined;
}

/** Two levels need only about 150 bytes per object, because no combined key has to be built and stored. */
type Names = Map<string, Map<string, string>>;

/**
 * The names and uids of existing objects: enough to find out from the next list which ones are gone. Handlers keep what else
 * they need.
 */
export class Inventory {
  #named: Names = new Map();
  /** Known objects that the current list has not named so far. */
  #unnamed: Names = new Map();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** @returns the uid of the object that had this name before */
  put({ namespace, name, uid }: ObjectIdentity): string | undefined {
    let names = this.#named.get(namespace);
    if (names === undefined) {
      names = new Map();
      this.#named.set(namespace, names);
    }
    const unnamed = this.#unnamed.get(namespace);
    const before = names.get(name) ?? unnamed?.get(name);
    unnamed?.delete(name);
    names.set(name, uid);
    if (before === undefined) this.#size += 1;
    return before;
  }

  /** Removes only the object with this uid, because another object may already have its name. */
  remove({ namespace, name, uid }: ObjectIdentity): void {
    const names = this.#named.get(namespace);
    if (names?.get(name) !== uid) return;
    names.delete(name);
    this.#size -= 1;
    if (names.size === 0) this.#named.delete(namespace);
  }

  /** Begins a list, during which every object is named again by {@link put}. An unfinished list is discarded. */
  beginList(): void {
    for (const [namespace, names] of this.#named) {
      const unnamed = this.#unnamed.get(namespace);
      if (unnamed === undefined) this.#unnamed.set(namespace, names);
      else for (const [name, uid] of names) unnamed.set(name, uid);
    }
    this.#named = new Map();
  }

  /** Ends a list: removes and returns the objects that it has not named. */
  endList(): readonly ObjectIdentity[] {
    const gone = [...this.#unnamed].flatMap(([namespace, names]) =>
      [...names].map(([name, uid]) => ({ namespace, name, uid })),
    );
    this.#unnamed = new Map();
    this.#size -= gone.length;
    return gone;
  }
}

class Reception<T> {
  readonly #project: Resource<T>['project'];
  readonly #handlers: WatchHandlers<T>;
  readonly #stats: ReturnType<typeof newStats>;
  readonly #inventory = new Inventory();
  #broken = true;
  /** When the previous watch fell silent; undefined once it is clear that nothing was missed. */
  #silentSince: number | undefined;

  constructor(resource: Resource<T>, handlers: WatchHandlers<T>, stats: ReturnType<typeof newStats>) {
    this.#project = resource.project;
    this.#handlers = handlers;
    this.#stats = stats;
  }

  beginList(at: number): void {
    this.#inventory.beginList();
    this.#broken = true;
    this.#silentSince = undefined;
    this.#pass('ListBegins', at);
  }

  endList(at: number): void {
    for (const identity of this.#inventory.endList()) this.#vanished(identity, at);
    this.#stats.objects = this.#inventory.size;
    this.#pass('ListEnds', at);
  }

  /**
   * @returns the resourceVersion that the watch has reached with this line
   * @throws KubeFailure for an ERROR event, or if the line is not an event
   */
  line(line: Buffer, at: number): string {
    const { type, object } = readEvent(line) ?? {};
    if (!isString(type) || !EVENT_TYPES.has(type)) throw malformed('a watch event', line);
    if (type === 'ERROR') throw failureOfEvent(object);
    const { resourceVersion } = metadataOf(object, type);
    this.#stats.lastEventAt = at;
    if (type === 'BOOKMARK') {
      this.#stats.bookmarks += 1;
      return resourceVersion;
    }
    this.#stats.events += 1;
    if (this.#silentSince !== undefined) {
      this.#stats.stalls += 1;
      this.broken(at);
    }
    if (type === 'DELETED') this.#deleted(object as RawObject, at);
    else this.put(object as RawObject, at, false);
    this.#stats.objects = this.#inventory.size;
    return resourceVersion;
  }

  /**
   * Notes an interruption. Events may be late from this instant on; if there was silence before it, from the last sign of
   * life on.
   */
  broken(at: number): void {
    const since = this.#silentSince ?? at;
    this.#silentSince = undefined;
    if (this.#broken) return;
    this.#broken = true;
    this.#pass('StreamBroken', since);
  }

  /**
   * Records that the watch was closed because nothing had arrived since `heardAt`. The next watch shows whether the connection
   * was dead (then it has withheld events) or nothing had happened.
   */
  silent(heardAt: number, at: number): void {
    this.#silentSince ??= heardAt;
    this.rotated(at);
  }

  /** Records that the watch was closed in good order. A stream that was not current yet stays as it is. */
  rotated(at: number): void {
    if (this.#stats.current) this.#pass('StreamRotated', at);
  }

  current(at: number): void {
    this.#broken = false;
    this.#silentSince = undefined;
    this.#pass('StreamCurrent', at);
  }

  failed(failure: KubeFailure, pauseMs: number): void {
    this.#guarded(() => this.#handlers.onFailure?.(failure, pauseMs));
  }

  /** @param listed whether a list names the object, whether or not it has changed */
  put(raw: RawObject, at: number, listed: boolean): void {
    const identity = identityOf(raw);
    const before = this.#inventory.put(identity);
    const type = before === identity.uid ? 'modified' : 'added';
    if (type === 'added' && before !== undefined) this.#vanished({ ...identity, uid: before }, at);
    this.#emit(() => ({ type, identity, object: this.#project(raw), at, listed }));
  }

  #deleted(raw: RawObject, at: number): void {
    const identity = identityOf(raw);
    this.#inventory.remove(identity);
    this.#emit(() => ({ type: 'deleted', identity, object: this.#project(raw), at, relist: false }));
  }

  #vanished(identity: ObjectIdentity, at: number): void {
    this.#emit(() => ({ type: 'deleted', identity, at, relist: true }));
  }

  #emit(event: () => ResourceEvent<T>): void {
    this.#guarded(() => this.#handlers.onEvent(event()));
  }

  #pass(type: StreamChange['type'], at: number): void {
    if (type !== 'ListEnds') this.#stats.current = type === 'StreamCurrent';
    this.#guarded(() => {
      this.#handlers.onStream?.({ type, at });
      if (type === 'ListEnds') this.#handlers.onListed?.();
      if (type === 'StreamCurrent') this.#handlers.onCurrent?.();
    });
  }

  #guarded(call: () => void): void {
    try {
      call();
    } catch (error) {
      this.#stats.handlerErrors += 1;
      try {
        this.#handlers.onHandlerError?.(asError(error));
      } catch {
        // The error has been counted; there is no other place to report it.
      }
    }
  }
}

/** Source: k8s.io/apimachinery pkg/watch (EventType). */
const EVENT_TYPES: ReadonlySet<string> = new Set(['ADDED', 'MODIFIED', 'DELETED', 'BOOKMARK', 'ERROR']);

function metadataOf(object: unknown, type: string): RawObject['metadata'] {
  const metadata = isRecord(object) ? object.metadata : undefined;
  if (isRecord(metadata) && isString(metadata.resourceVersion)) {
    return metadata as unknown as RawObject['metadata'];
  }
  throw new KubeFailure('Malformed', `a ${type} event without a resourceVersion`);
}

function identityOf({ metadata }: RawObject): ObjectIdentity {
  const { namespace = '', name, uid } = metadata;
  if (isString(name) && isString(uid)) return { namespace, name, uid };
  throw new KubeFailure('Malformed', 'an object without a name or uid');
}

export interface WatchOptions {
  readonly signal: AbortSignal;
  /** Monotonic milliseconds, such as `performance.now`. */
  readonly clock: () => number;
  /** In [0, 1). */
  readonly random: () => number;
  /** Default: {@link WATCH_LIMITS}. */
  readonly limits?: Partial<WatchLimits>;
  /**
   * Called when a watch was closed in good order, which happens every few minutes. Returns whether to list everything before
   * the next watch.
   */
  readonly relist?: () => boolean;
}

export interface ResourceWatch {
  /** Resolves once the signal has aborted and every connection is closed. Never rejects. */
  readonly ended: Promise<void>;
  /** Updated continuously. */
  readonly stats: WatchStats;
}

/**
 * Follows a collection until the signal aborts: lists it, watches it from there, and after any failure starts again with a
 * pause. A watch is resumed from where it stopped. Everything is listed again only if the server no longer remembers that
 * point, or if the events cannot be trusted.
 */
export function watchResource<T>(
  resource: Resource<T>,
  connection: KubeConnection,
  handlers: WatchHandlers<T>,
  options: WatchOptions,
): ResourceWatch {
  const { clock, random, signal } = options;
  const limits = { ...WATCH_LIMITS, ...options.limits };
  const stats = newStats();
  const reception = new Reception(resource, handlers, stats);
  const newBackoff = () => new Backoff(limits, random);
  const backoff = newBackoff();
  /** undefined: start with a list. */
  let resourceVersion: string | undefined;
  let heardAt = 0;
  /** Whether the previous watch ended with an ERROR event and nothing else has arrived since. */
  let errorsOnly = false;

  async function run(): Promise<void> {
    while (!signal.aborted) {
      try {
        resourceVersion ??= await list();
        await watch(resourceVersion);
      } catch (thrown) {
        if (signal.aborted) break;
        await recover(thrown);
      }
    }
    stats.state = 'ended';
  }

  async function list(): Promise<string> {
    const version = await listAll(resource, connection, {
      limits,
      signal,
      backoff: newBackoff(),
      onBegin: () => {
        stats.state = 'listing';
        reception.beginList(clock());
      },
      onItem: (item) => reception.put(item, clock(), true),
      onBytes: (bytes) => {
        stats.bytes += bytes;
      },
      pause: pauseAfter,
    });
    stats.lists += 1;
    stats.version = version;
    reception.endList(clock());
    return version;
  }

  /** Resolves when the watch has ended or fallen silent, and can be resumed. */
  function watch(from: string): Promise<void> {
    const agent = newAgent(connection);
    return withSignal({ signal }, async (until, leave) => {
      until.throwIfAborted();
      const response = await open(from, agent, until);
      const openedAt = clock();
      heardAt = openedAt;
      const becoming = becomeCurrent(until).catch((error: unknown) => {
        response.destroy(asFailure(error));
      });
      let ended: 'Ended' | 'Silent';
      try {
        ended = await read(response);
      } finally {
        leave();
        await becoming;
        if (clock() - openedAt >= limits.healthyMs) backoff.reset();
      }
      await rewatch(ended, clock() - openedAt);
    }).finally(() => agent.destroy());
  }

  async function open(from: string, agent: Agent, until: AbortSignal): Promise<IncomingMessage> {
    const [least, most] = limits.watchSeconds;
    const parameters = {
      watch: 'true',
      allowWatchBookmarks: 'true',
      resourceVersion: from,
      timeoutSeconds: String(Math.round(least + (most - least) * random())),
    };
    stats.state = 'connecting';
    const response = await ask(connection, {
      path: requestPath(resource, parameters),
      accept: acceptOf(resource, 'watch'),
      agent,
      signal: until,
      answerMs: limits.answerMs,
    });
    stats.state = 'watching';
    return response;
  }

  /** Reads a watch until it ends. `Ended`: closed in good order by the server; `Silent`: abandoned by this process. */
  async function read(response: IncomingMessage): Promise<'Ended' | 'Silent'> {
    const lines = new LineReader();
    let silent = false;
    const take = (chunk: Buffer) => {
      const at = clock();
      heardAt = at;
      stats.bytes += chunk.length;
      onLoop('watch', () => {
        for (const line of lines.push(chunk)) {
          resourceVersion = reception.line(line, at);
          stats.version = resourceVersion;
          errorsOnly = false;
        }
      });
    };
    try {
      await readChunks(response, limits.silenceMs, take, () => {
        silent = true;
      });
    } catch (thrown) {
      if (silent) return 'Silent';
      throw thrown;
    } finally {
      response.destroy();
    }
    if (lines.incomplete) throw new KubeFailure('Cut', 'the answer ended in the middle of a line');
    return 'Ended';
  }

  /** @throws KubeFailure `Expired` if the server's history was rolled back, since the watch would then wait in vain */
  async function becomeCurrent(until: AbortSignal): Promise<void> {
    const pages = pagesOf(resource, connection);
    const first = { limit: 1, signal: until, answerMs: limits.answerMs };
    try {
      const answer = await untilCurrent({
        position: () => ({ resourceVersion: resourceVersion ?? '', heardAt }),
        latest: async () => (await pages.page(undefined, first)).resourceVersion,
        limits,
        backoff: newBackoff(),
        clock,
        signal: until,
      });
      if (answer === 'rolledBack') throw new KubeFailure('Expired', "the server's history was rolled back");
      if (answer && !until.aborted) reception.current(clock());
    } finally {
      pages.close();
    }
  }

  /**
   * A watch that ends too soon counts as a failure, even if it was closed in good order. Otherwise a server could make this
   * client hammer it.
   */
  async function rewatch(ended: 'Ended' | 'Silent', livedMs: number): Promise<void> {
    if (ended === 'Silent') reception.silent(heardAt, clock());
    else reception.rotated(clock());
    stats.restarts[ended] += 1;
    if (options.relist?.()) resourceVersion = undefined;
    const pauseMs = livedMs >= limits.healthyMs ? limits.rewatchMs * random() : backoff.next();
    stats.state = 'pausing';
    await pause(pauseMs, signal);
  }

  async function recover(thrown: unknown): Promise<void> {
    const failure = asFailure(thrown);
    const { reason } = failure;
    // A broken connection may have been dead for some time before that was noticed.
    reception.broken(reason === 'Cut' ? heardAt : clock());
    const stuck = reason === 'ErrorEvent' && errorsOnly;
    errorsOnly = reason === 'ErrorEvent';
    if (stuck || NOT_RESUMABLE.has(reason)) resourceVersion = undefined;
    await pauseAfter(failure, backoff.next(failure.retryAfterMs));
  }

  async function pauseAfter(failure: KubeFailure, pauseMs: number): Promise<void> {
    stats.restarts[failure.reason] = (stats.restarts[failure.reason] ?? 0) + 1;
    stats.state = 'pausing';
    reception.failed(failure, pauseMs);
    await pause(pauseMs, signal);
  }

  return { stats, ended: run() };
}

export interface ObjectHandlers<T> extends Omit<WatchHandlers<T>, 'onEvent' | 'onStream' | 'onListed'> {
  /** Called with each state of the object that the watch shows, in order; undefined: it does not exist. */
  onObject(object: T | undefined): void;
}

/**
 * Follows a single object by its name until the signal aborts. Such a watch needs no right to read other objects.
 * @returns `read`: resolves once it has been read for the first time; may never resolve
 */
export function followObject<T>(
  connection: KubeConnection,
  { path, name, project }: Pick<Resource<T>, 'path' | 'project'> & { readonly name: string },
  handlers: ObjectHandlers<T>,
  options: WatchOptions,
): ResourceWatch & { readonly read: Promise<void> } {
  const read = Promise.withResolvers<void>();
  let present = false;
  const own: WatchHandlers<T> = {
    ...handlers,
    onEvent: (event) => {
      present = event.type !== 'deleted';
      handlers.onObject(event.type === 'deleted' ? undefined : event.object);
    },
    onListed: () => {
      if (!present) handlers.onObject(undefined);
      read.resolve();
    },
  };
  const resource = { path, query: { fieldSelector: `metadata.name=${name}` }, project };
  return { read: read.promise, ...watchResource(resource, connection, own, options) };
}
