import type { EndpointChange } from './endpoint-index.ts';
import type { Stream } from './events.ts';

/** Whether Endpoints are measured beside EndpointSlices. `Auto`: while a controller maintains them. `Ignore`: never. */
export const ENDPOINTS_CHOICES = ['Auto', 'Ignore'] as const;
export type EndpointsChoice = (typeof ENDPOINTS_CHOICES)[number];

/**
 * How long Endpoints may stay unchanged after a change of slices. Even a throttled controller writes some Endpoints in that
 * time, and a new leader takes over sooner.
 */
const FOLLOWS_WITHIN_MS = 120_000;

/** The two controllers work concurrently: Endpoints may change this long before the slices do. */
const PRECEDES_BY_MS = 10_000;

/**
 * Whether a controller maintains Endpoints. With `--controllers=-endpoints-controller` (KEP-4974) nothing updates them, and
 * they would list their last pods forever. Endpoints are ignored once slices have changed twice, this far apart, and no
 * Endpoints object in between; the second change proves that the controller-manager works. Any change of an Endpoints object
 * makes them count again.
 */
export class EndpointsUpkeep {
  readonly #trusted: string | undefined;
  /** When slices first changed without a change of Endpoints since. */
  #unfollowedSince: number | undefined;
  #changedAt = Number.NEGATIVE_INFINITY;
  #maintained = true;

  /**
   * @param trusted the only namespace whose slices count as evidence that Endpoints are not maintained; undefined: any.
   * Otherwise a tenant who can write slices in one namespace could stop the measurement of Endpoints for all others.
   */
  constructor(trusted: string | undefined) {
    this.#trusted = trusted;
  }

  get maintained(): boolean {
    return this.#maintained;
  }

  /**
   * Takes a change that arrived as it happened; others prove nothing.
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

  /** Starts again: what happened while a stream was interrupted is unknown. */
  interrupted(stream: Stream): void {
    if (stream === 'EndpointSlice' || stream === 'Endpoints') this.#unfollowedSince = undefined;
  }
}
