import type { Registry } from '@prometheus-io/client';
import type { KubeConnection, ObjectEvents } from '../cluster/index.ts';
import type { SnapshotChange, SnapshotHolder } from '../core/decision/index.ts';
import type { Logger } from '../telemetry/index.ts';
import type { Manager } from './manager.ts';
import type { Runnable } from './runnable.ts';

/** The namespace in which replicas share what they measure, and this replica's name. */
export interface OwnReplica {
  /** Linger's own. */
  readonly namespace: string;
  readonly identity: string;
}

/** The context of every part of a server. `Options`: the operator's settings that it uses. */
export interface PartContext<Options> {
  readonly options: Options;
  readonly connection: KubeConnection;
  /** undefined: this replica is the only one, and shares nothing. */
  readonly place: OwnReplica | undefined;
  readonly snapshot: SnapshotHolder;
  /** Applies policies in steps, between which reviews are answered; resolves once decisions follow them. */
  readonly changePolicies: (change: SnapshotChange) => Promise<void>;
  /** Whether the cluster is still being read, has been read, or takes so long that the server answers in the meantime. */
  readonly sync: { readonly state: 'reading' | 'late' | 'synced' };
  readonly manager: Manager;
  readonly events: ObjectEvents;
  readonly registry: Registry;
  readonly logger: Logger;
  /** Milliseconds, monotonic. */
  readonly clock: () => number;
  /** A wall clock without steps: setting the system clock while the process runs must not shift the history. */
  readonly epochSeconds: () => number;
  readonly random: () => number;
  /** Aborts when the server ends. */
  readonly signal: AbortSignal;
}

/** A part that has been started. */
export interface Started<Provides> {
  /** What parts that need this one get. */
  readonly provides: Provides;
  /** What the manager runs for it. */
  readonly runnables?: readonly (Runnable | undefined)[];
  /** Resolves once it has read what it needs of the cluster. */
  readonly read?: Promise<unknown> | undefined;
}

type Needs = Readonly<Record<string, AnyPart>>;

interface Part<N extends Needs, Provides, Options> {
  readonly name: string;
  readonly needs: N;
  readonly start: (
    needs: { readonly [Name in keyof N]: ProvidedBy<N[Name]> },
    context: PartContext<Options>,
  ) => Started<Provides>;
}

/** Any part whose options are among these. */
export interface AnyPart<Options = never> {
  readonly name: string;
  readonly needs: Needs;
  readonly start: (needs: never, context: PartContext<Options>) => Started<unknown>;
}

type Providing<Provides> = AnyPart & { readonly start: (...given: never) => Started<Provides> };
type ProvidedBy<P> = P extends Providing<infer Provides> ? Provides : never;

/** A part of a server. It names the other parts that it needs, and its start gets what these provide. */
export function part<N extends Needs, Provides, Options>(
  definition: Part<N, Provides, Options>,
): Part<N, Provides, Options> {
  return definition;
}

interface Named {
  readonly name: string;
  readonly needs: Readonly<Record<string, Named>>;
}

/**
 * Orders parts so that each comes after those that it needs, and otherwise as listed.
 * @throws Error for a part that is listed twice, a needed part that is not listed, or parts that need each other
 */
export function inOrder<P extends Named>(parts: readonly P[]): readonly P[] {
  const ordered = new Set<P>();
  const visit = (each: P, users: readonly P[]): void => {
    if (ordered.has(each)) return;
    const path = [...users, each];
    if (users.includes(each)) {
      const cycle = path.slice(path.indexOf(each)).map(({ name }) => name);
      throw new Error(`parts need each other: ${cycle.join(' → ')}`);
    }
    for (const need of Object.values(each.needs)) {
      const listed = parts.find((one) => one === need);
      if (listed === undefined)
        throw new Error(`part ${each.name} needs ${need.name}, which is not in the list of parts`);
      visit(listed, path);
    }
    ordered.add(each);
  };
  for (const [index, each] of parts.entries()) {
    if (parts.some(({ name }, other) => other < index && name === each.name))
      throw new Error(`part ${each.name} is listed twice`);
    visit(each, []);
  }
  return [...ordered];
}

/** @returns what each listed part provides, and a promise that resolves once all have read what they need */
export function startParts<Options>(parts: readonly AnyPart<Options>[], context: PartContext<Options>) {
  const started = new Map<AnyPart, Started<unknown>>();
  // The cast is safe: each part is stored with the result of its own start.
  const of = <Provides>(each: Providing<Provides>) => started.get(each)?.provides as Provides;
  for (const each of inOrder(parts)) {
    const needs = Object.fromEntries(Object.entries(each.needs).map(([name, need]) => [name, of(need)]));
    const running = each.start(needs as never, context);
    started.set(each, running);
    context.manager.add(...(running.runnables ?? []));
  }
  return { of, read: Promise.all([...started.values()].map(({ read }) => read)) };
}
