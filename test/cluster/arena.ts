import { onTestFinished } from 'vitest';
import type { KubeConnection } from '../../src/cluster/connection.ts';
import type { KubeFailure } from '../../src/cluster/failure.ts';
import { type ResourceWatch, watchResource } from '../../src/cluster/reflector.ts';
import type { RawObject, ResourceEvent, StreamChange, WatchLimits } from '../../src/cluster/resource.ts';
import { waitUntil } from '../testbed/waiting.ts';
import type { Gateway } from './gateway.ts';

/** A collection of an API server, who may be a model or a real one, behind a gateway. */
export interface Arena {
  readonly gateway: Gateway;
  readonly path: string;
  put(name: string, value: string): Promise<void>;
  remove(name: string): Promise<void>;
  /** What there is: name → resourceVersion. */
  truth(): Promise<ReadonlyMap<string, string>>;
}

/** What the tests keep of an object. */
export interface Kept {
  readonly name: string;
  readonly uid: string;
  readonly resourceVersion: string;
  readonly value: string | undefined;
}

/** Quick where the real ones are patient; a page of 3, so that a handful of objects are several. */
export const QUICK: Partial<WatchLimits> = {
  pageSize: 3,
  firstPauseMs: 20,
  longestPauseMs: 200,
  healthyMs: 0,
  rewatchMs: 5,
  currentWithinMs: 100,
  currentRetryMs: 20,
};

export interface Observed {
  readonly watch: ResourceWatch;
  readonly events: ResourceEvent<Kept>[];
  readonly changes: StreamChange[];
  readonly failures: KubeFailure[];
  readonly errors: Error[];
  /** What the events come to: name → resourceVersion. */
  readonly state: ReadonlyMap<string, string>;
  /** Waits until the watch is current and knows what the server knows. */
  readonly upToDate: () => Promise<void>;
  readonly stop: () => Promise<void>;
}

export interface ObserveOptions {
  readonly limits?: Partial<WatchLimits>;
  readonly credentials?: KubeConnection['credentials'];
  /** Called before an event is noted. */
  readonly onEvent?: (event: ResourceEvent<Kept>) => void;
  readonly onProject?: (kept: Kept) => void;
}

/** Follows the arena's collection until the test's end. */
export function observe(arena: Arena, options: ObserveOptions = {}): Observed {
  const { limits = {}, credentials = async () => ({}), onProject } = options;
  const stopping = new AbortController();
  const { handlers, notes } = noting(options);
  const project = (raw: RawObject) => {
    const kept = keptOf(raw);
    onProject?.(kept);
    return kept;
  };
  const connection = { server: arena.gateway.url, credentials };
  const watch = watchResource({ path: arena.path, project }, connection, handlers, {
    signal: stopping.signal,
    clock: () => performance.now(),
    random: Math.random,
    limits: { ...QUICK, ...limits },
  });
  const stop = () => {
    stopping.abort();
    return watch.ended;
  };
  onTestFinished(stop);
  // The truth may still change while this waits.
  const same = async () => watch.stats.current && textOf(notes.state) === textOf(await arena.truth());
  const wait = { intervalMs: 10, timeoutMs: 30_000 };
  const upToDate = () => waitUntil('the watch to be up to date', same, wait).then(() => undefined);
  return { watch, ...notes, upToDate, stop };
}

const textOf = (state: ReadonlyMap<string, string>) => JSON.stringify([...state].sort());

/** Handlers that record their calls. */
function noting({ onEvent }: ObserveOptions) {
  const notes = {
    events: [] as ResourceEvent<Kept>[],
    changes: [] as StreamChange[],
    failures: [] as KubeFailure[],
    errors: [] as Error[],
    state: new Map<string, string>(),
  };
  const handlers = {
    onEvent: (event: ResourceEvent<Kept>) => {
      onEvent?.(event);
      notes.events.push(event);
      const { name } = event.identity;
      if (event.type === 'deleted') notes.state.delete(name);
      else notes.state.set(name, event.object.resourceVersion);
    },
    onStream: (change: StreamChange) => void notes.changes.push(change),
    onFailure: (failure: KubeFailure) => void notes.failures.push(failure),
    onHandlerError: (error: Error) => void notes.errors.push(error),
  };
  return { handlers, notes };
}

function keptOf({ metadata, ...rest }: RawObject): Kept {
  const { name, uid, resourceVersion } = metadata;
  const { data } = rest as { data?: { value?: string } };
  return { name, uid, resourceVersion, value: data?.value };
}

/** One word per event, as `added a`, `deleted b (relist)`. */
export function describeEvent({ type, identity, ...rest }: ResourceEvent<Kept>): string {
  const relist = 'relist' in rest && rest.relist ? ' (relist)' : '';
  const listed = 'listed' in rest && rest.listed ? ' (listed)' : '';
  return `${type} ${identity.name}${relist}${listed}`;
}
