import type { ClusterEvent } from '../../core/lag/events.ts';

/** Why an instant could not be had: `interrupted`, the watch was; `ended`, the signal aborted. */
export type NoInstant = 'interrupted' | 'ended';

interface Waiter {
  readonly uid: string;
  readonly ready: boolean;
  readonly settle: (outcome: number | NoInstant) => void;
}

/**
 * Which pods the slices of one Service list as ready, by the watch that there is anyway: its instants are those that the
 * control plane's lag is measured by.
 */
export class CanaryEndpoints {
  readonly #service: { readonly namespace: string; readonly name: string };
  /** Slice → the uids that it lists as ready. */
  readonly #slices = new Map<string, ReadonlySet<string>>();
  readonly #waiters = new Set<Waiter>();
  /** While a list is read: slices that it has not named yet. */
  #unnamed: Set<string> | undefined;

  constructor(service: { readonly namespace: string; readonly name: string }) {
    this.#service = service;
  }

  /** To be told everything that the recorder is told. */
  observe(event: ClusterEvent): void {
    if (event.type === 'Slice') {
      const { slice } = event;
      if (slice.namespace !== this.#service.namespace || slice.serviceName !== this.#service.name) return;
      const ready = slice.endpoints.filter((each) => each.ready && each.targetUid !== undefined);
      this.#unnamed?.delete(slice.name);
      this.#slices.set(slice.name, new Set(ready.map(({ targetUid }) => targetUid as string)));
      this.#changed(event.at);
    } else if (event.type === 'SliceDeleted') {
      if (event.namespace === this.#service.namespace && this.#slices.delete(event.name))
        this.#changed(event.at);
    } else if ('stream' in event && event.stream === 'EndpointSlice') this.#streamed(event.type);
  }

  isReady(uid: string): boolean {
    return [...this.#slices.values()].some((ready) => ready.has(uid));
  }

  /**
   * Resolves with the instant, in milliseconds of the watch's clock, at which the pod becomes ready, or ceases to be; to
   * be called before that is brought about.
   */
  becomes({ uid, ready }: Pick<Waiter, 'uid' | 'ready'>, signal: AbortSignal): Promise<number | NoInstant> {
    return new Promise((resolve) => {
      const settle: Waiter['settle'] = (outcome) => {
        this.#waiters.delete(waiter);
        signal.removeEventListener('abort', end);
        resolve(outcome);
      };
      const waiter = { uid, ready, settle };
      const end = () => settle('ended');
      signal.addEventListener('abort', end, { once: true });
      this.#waiters.add(waiter);
      if (signal.aborted) end();
    });
  }

  #changed(at: number): void {
    for (const { uid, ready, settle } of this.#waiters) if (this.isReady(uid) === ready) settle(at);
  }

  /** What comes after an interruption came earlier. Even a watch that is resumed at once may have missed an instant. */
  #streamed(type: ClusterEvent['type']): void {
    if (type === 'ListBegins') this.#unnamed = new Set(this.#slices.keys());
    if (type === 'ListEnds') {
      for (const name of this.#unnamed ?? []) this.#slices.delete(name);
      this.#unnamed = undefined;
    }
    if (type !== 'StreamCurrent') for (const { settle } of this.#waiters) settle('interrupted');
  }
}
