import { asError } from '../../core/catalog/errors.ts';
import { isRecord, isString } from '../../core/schema/shape.ts';
import { failureOfEvent, WatchFailure } from '../../kube/failure.ts';
import type { StreamChange, WatchHandlers } from './handlers.ts';
import { Inventory } from './inventory.ts';
import type { SparingParser } from './managed-fields.ts';
import type { ObjectIdentity, RawObject, Resource } from './resource.ts';
import type { GrowingStats } from './stats.ts';

/** Turns what lists and watches bring into events, and knows which objects there are. */
export class Reception<T> {
  readonly #project: Resource<T>['project'];
  readonly #parser: SparingParser;
  readonly #handlers: WatchHandlers<T>;
  readonly #stats: GrowingStats;
  readonly #inventory = new Inventory();
  #broken = true;
  /** Since when the watch before had brought nothing, until it is clear that there was nothing to bring. */
  #silentSince: number | undefined;

  constructor(
    project: Resource<T>['project'],
    parser: SparingParser,
    handlers: WatchHandlers<T>,
    stats: GrowingStats,
  ) {
    this.#project = project;
    this.#parser = parser;
    this.#handlers = handlers;
    this.#stats = stats;
  }

  beginList(at: number): void {
    this.#inventory.beginList();
    this.#broken = true;
    this.#silentSince = undefined;
    this.#tell({ type: 'ListBegins', at });
  }

  listed(raw: RawObject, at: number): void {
    this.#state(raw, at, true);
  }

  endList(at: number): void {
    for (const identity of this.#inventory.endList()) this.#vanished(identity, at);
    this.#stats.objects = this.#inventory.size;
    this.#tell({ type: 'ListEnds', at });
  }

  /**
   * Takes in a line of a watch.
   * @returns the resourceVersion that the watch has reached by it
   * @throws WatchFailure for an ERROR event, or when the line is not an event
   */
  line(line: Buffer, at: number): string {
    const { type, object } = this.#eventOf(line);
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
    else this.#state(object as RawObject, at, false);
    this.#stats.objects = this.#inventory.size;
    return resourceVersion;
  }

  /** Events may be late from this instant on, or from the last sign of life if that was followed by silence. */
  broken(at: number): void {
    const since = this.#silentSince ?? at;
    this.#silentSince = undefined;
    if (this.#broken) return;
    this.#broken = true;
    this.#stats.current = false;
    this.#tell({ type: 'StreamBroken', at: since });
  }

  /**
   * The watch was given up because nothing had come since `heardAt`. Whether it was dead or there was nothing to tell
   * shows in the next one: a dead one has left something behind.
   */
  silent(heardAt: number, at: number): void {
    this.#silentSince ??= heardAt;
    this.rotated(at);
  }

  /** The watch was closed in good order. A stream that was not current yet stays what it is. */
  rotated(at: number): void {
    if (!this.#stats.current) return;
    this.#stats.current = false;
    this.#tell({ type: 'StreamRotated', at });
  }

  current(at: number): void {
    this.#broken = false;
    this.#silentSince = undefined;
    this.#stats.current = true;
    this.#tell({ type: 'StreamCurrent', at });
  }

  failed(failure: WatchFailure, pauseMs: number): void {
    this.#guarded(() => this.#handlers.onFailure?.(failure, pauseMs));
  }

  #state(raw: RawObject, at: number, listed: boolean): void {
    const identity = identityOf(raw);
    const { known, replaced } = this.#inventory.put(identity);
    if (replaced !== undefined) this.#vanished({ ...identity, uid: replaced }, at);
    this.#guarded(() => {
      const object = this.#project(raw);
      this.#handlers.onEvent({ type: known ? 'modified' : 'added', identity, object, at, listed });
    });
  }

  #deleted(raw: RawObject, at: number): void {
    const identity = identityOf(raw);
    this.#inventory.remove(identity);
    this.#guarded(() => {
      this.#handlers.onEvent({
        type: 'deleted',
        identity,
        object: this.#project(raw),
        at,
        relist: false,
      });
    });
  }

  #vanished(identity: ObjectIdentity, at: number): void {
    this.#guarded(() => this.#handlers.onEvent({ type: 'deleted', identity, at, relist: true }));
  }

  #eventOf(line: Buffer): { readonly type: string; readonly object: unknown } {
    let event: unknown;
    try {
      event = this.#parser.parse(line, 'event');
    } catch {
      throw new WatchFailure('Malformed', `expected a watch event, got ${line.toString('utf8', 0, 100)}`);
    }
    const { type, object } = isRecord(event) ? event : {};
    if (!isString(type) || !EVENT_TYPES.has(type)) {
      throw new WatchFailure('Malformed', `expected a watch event, got type ${String(type)}`);
    }
    return { type, object };
  }

  #tell(change: StreamChange): void {
    if (change.type === 'ListBegins') this.#stats.current = false;
    this.#guarded(() => this.#handlers.onStream(change));
  }

  #guarded(call: () => void): void {
    try {
      call();
    } catch (error) {
      this.#stats.handlerErrors += 1;
      try {
        this.#handlers.onHandlerError?.(asError(error));
      } catch {
        // It is counted; there is nobody left to tell.
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
  throw new WatchFailure('Malformed', `a ${type} event without a resourceVersion`);
}

function identityOf({ metadata }: RawObject): ObjectIdentity {
  const { namespace = '', name, uid } = metadata;
  if (isString(name) && isString(uid)) return { namespace, name, uid };
  throw new WatchFailure('Malformed', 'an object without a name or uid');
}
