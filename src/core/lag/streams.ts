import { STREAMS, type Stream } from './events.ts';

/**
 * What the instants of a stream's events are worth.
 *
 * - `current`: an event comes when the thing happens.
 * - `rotating`: the server closed the watch at its timeout and it is being resumed: nothing is lost, and what happened
 *   in the gap comes late. What began before the gap and shows its end after it was caught up has true instants on
 *   both sides, so it is not discarded; a lag of minutes could otherwise never be measured, because watches live 4 to 5.
 * - `broken`: anything else, from the start of the process on; what spans it gives no sample.
 */
export type StreamState = 'current' | 'rotating' | 'broken';

export class Streams {
  readonly #states = new Map<Stream, StreamState>(STREAMS.map((stream) => [stream, 'broken']));
  readonly #lists = new Map<Stream, number>();

  state(stream: Stream): StreamState {
    return this.#states.get(stream) ?? 'broken';
  }

  /** The number of the stream's latest list: what it named carries it, what does not is gone. */
  list(stream: Stream): number {
    return this.#lists.get(stream) ?? 0;
  }

  break(stream: Stream): void {
    this.#states.set(stream, 'broken');
  }

  beginList(stream: Stream): void {
    this.break(stream);
    this.#lists.set(stream, this.list(stream) + 1);
  }

  rotate(stream: Stream): void {
    if (this.state(stream) === 'current') this.#states.set(stream, 'rotating');
  }

  resume(stream: Stream): void {
    this.#states.set(stream, 'current');
  }
}
