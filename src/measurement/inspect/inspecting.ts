import type { KubeConnection } from '../../cluster/index.ts';
import type { Inspected, Source } from './inspected.ts';

type Followed<I> = I extends { readonly followed: object } ? Omit<I, 'name'> : never;
type Paged<I> = I extends { readonly followed?: undefined } ? Omit<I, 'name'> : never;

/** The context that a source may need. */
export interface SourceContext {
  readonly connection: KubeConnection;
  /** The folder with the files that consumers may refer to; undefined: they may refer to none. */
  readonly files: string | undefined;
  /** Linger's own. */
  readonly namespace: string;
  readonly allowLinkLocal: boolean;
  readonly clock: () => number;
  readonly random: () => number;
  readonly signal: AbortSignal;
}

/** A kind of measure whose instances are asked what they still send to. */
export interface Inspecting<M> {
  readonly inspected: (measure: M) => Paged<Inspected> | Followed<Inspected>;
  /** Follows the source that takes the place of pages, until the signal aborts; absent: pages are read. */
  readonly follow?: (measure: M, context: SourceContext) => Promise<Source>;
}

/** Seconds. A source in memory may be looked up as often as a hold is checked. */
export const EVERY = 0.1;
