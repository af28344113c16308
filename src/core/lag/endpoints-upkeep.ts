import type { EndpointChange } from './endpoint-index.ts';
import type { Stream } from './events.ts';

/** Whether Endpoints count beside EndpointSlices: while they are maintained, or never. */
export const ENDPOINTS_CHOICES = ['Auto', 'Ignore'] as const;
export type EndpointsChoice = (typeof ENDPOINTS_CHOICES)[number];

/**
 * How long Endpoints may stay unchanged after a change of slices. A throttled controller writes other Endpoints meanwhile,
 * and a new leader takes over in less.
 */
const FOLLOWS_WITHIN_MS = 120_000;

/** The two controllers work side by side: Endpoints may change this long before the slices do. */
const PRECEDES_BY_MS = 10_000;

/**
 * Whether a controller maintains Endpoints: with `--controllers=-endpoints-controller` (KEP-4974) the objects stay as they
 * were, and would list the pods of that time for ever. Endpoints are given up once slices have changed twice, this far apart,
 * and not one Endpoints object in between: the second change shows that the controller-manager works. Any change of an
 * Endpoints object takes that back.
 */
export class EndpointsUpkeep {
  readonly #trusted: string | undefined;
  /** The first change of slices that no change of Endpoints has followed. */
  #unfollowedSince: number | undefined;
  #changedAt = Number.NEGATIVE_INFINITY;
  #maintained = true;

  /**
   * @param trusted the namespace whose slices count as evidence against Endpoints; undefined: any. A tenant who writes
   *   slices in one namespace must not decide this for others
   */
  constructor(trusted: string | undefined) {
    this.#trusted = trusted;
  }

  get maintained(): boolean {
    return this.#maintained;
  }

  /**
   * Only changes that arrive as they happen.
   * @param isSelected whether the Service has a selector, so that controllers write its endpoints
   */
  changed({ group, before, after }: EndpointChange, at: number, isSelected: boolean): void {
    if (!isSelected || group.mirrored || (before === 'ready') === (after === 'ready')) return;
    if (group.stage === 'Endpoints') {
      this.#maintained = true;
      this.#unfollowedSince = undefined;
      this.#changedAt = at;
    } else if (
      (this.#trusted === undefined || group.namespace === this.#trusted) &&
      at - this.#changedAt > PRECEDES_BY_MS
    ) {
      this.#unfollowedSince ??= at;
      if (at - this.#unfollowedSince >= FOLLOWS_WITHIN_MS) this.#maintained = false;
    }
  }

  /** What happened while a stream was interrupted is unknown. */
  interrupted(stream: Stream): void {
    if (stream === 'EndpointSlice' || stream === 'Endpoints') this.#unfollowedSince = undefined;
  }
}
